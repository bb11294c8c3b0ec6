// One dead letter: what it was, why it failed, and what can be done with it.
import {html, useState} from "./html.js";
import {command} from "./act.js";
import {path} from "./api.js";
import {count} from "./format.js";
import {link} from "./flow.js";
import {Replay} from "./letter_acts.js";
import {Repair} from "./letter_repair.js";
import {useAnswer} from "./live.js";
import {Again, decided, useSeldom} from "./planned.js";
import {fromBase64, hexdump, visible} from "./record_bytes.js";
import {may} from "./session.js";
import {Answer, Facts, Long, State} from "./ui.js";

/** Its state in a word; `open` if nothing was done with it. */
export const stateOf = (letter) => letter.state || "open";

/** The bytes of a record: as text, or in hexadecimal digits if they are not UTF-8. */
function Bytes({letter, withheld}) {
  if (withheld) return html`<p class="note">The bytes of records are shown to operators and above.</p>`;
  const {payload, payload_base64: packed} = letter;
  return html`<h2>Record</h2>${letter.truncated && html`<p class="note">Only its first 64 KiB are kept.</p>`}
    ${packed ? html`<p class="quiet">not UTF-8: ${count(fromBase64(packed).length)} bytes</p><${Long} text=${hexdump(fromBase64(packed))}/>` : payload !== null && html`<${Long} text=${visible(payload)}/>`}
    ${letter.came && html`<h2>The row as it came to ${letter.step}</h2><${Long} text=${visible(letter.came)}/>`}`;
}

/** A repaired or refused dead letter's acts. `asked` and `replayed` ones have none: they are on their way. */
function Acts({flow, letter: fresh, onDone}) {
  const [held, hold] = useState(null);  // while a dialog is open, its button stays, whatever becomes of the dead letter
  const letter = held ?? fresh;
  const opens = {onOpen: () => hold(fresh), onDone: (acted) => { hold(null); if (acted) onDone(); }};
  const state = stateOf(letter);
  if (!may("operator")) return null;
  if (letter.state.startsWith("asked")) return html`<p class="note">Its replay is requested: a worker takes it at its next look.</p>`;
  if (letter.state.startsWith("replayed")) return html`<p class="note">It was replayed. If it failed again, it is a new dead letter.</p>`;
  return html`<p class="row"><${Replay} flow=${flow} which=${{prefix: letter.key}} label=${state === "repaired" ? "send the repaired one on" : "replay"} main=${state === "repaired"} ...${opens}/></p>
    <h2>Repair</h2><${Repair} flow=${flow} letterKey=${letter.key} stamp=${letter.state} ...${opens}/>`;
}

function Shown({flow, letter, withheld, onDone}) {
  return html`<div class="row"><h2><code>${letter.key}</code></h2><${State} state=${stateOf(letter)}/></div>
    <div class="fault"><p><strong>${letter.step}: ${letter.reason}</strong></p><p dir="auto">${visible(letter.message)}</p>${letter.code_line && html`<p>raised at <strong class="place">${letter.code_line}</strong></p>`}</div>
    <${Facts} pairs=${[["place", letter.place && html`<span dir="auto">${visible(letter.place)}</span>`], ["query", letter.query], ["Batch", count(letter.batch)], ["exception", letter.exception],
      ["record", letter.record && html`<a href=${link(flow, `/trace?${new URLSearchParams({record: letter.record})}`)}>${visible(letter.record)}</a>`], ["replay of", letter.replay_of && visible(letter.replay_of)], ["replays", letter.replays > 0 && count(letter.replays)]]}/>
    <${Acts} flow=${flow} letter=${letter} onDone=${onDone}/>
    <${Bytes} letter=${letter} withheld=${withheld}/>`;
}

/** The dead letter of that key. While its replay is under way, it is asked for again after each Batch. */
export function OneLetter({flow, letterKey, metrics}) {
  const where = `${path`flows/${flow}/dead-letters`}?${new URLSearchParams({prefix: letterKey, limit: 1})}`;
  const page = useAnswer(where, {stamp: useSeldom(decided(metrics))});
  return html`<p class="row"><a href=${link(flow, "/dead")}>all dead letters</a><${Again} of=${page}/></p>
    ${page.error?.code === "answer-large" && html`<p>This dead letter is too large to be shown. Write it to a file: <code>${command("scribengin", "dead-letter", "export", flow, letterKey, "--to", "FILE")}</code></p>`}
    <${Answer} of=${page}>${({letters, withheld}) => letters.length ? html`<${Shown} key=${letterKey} flow=${flow} letter=${letters[0]} withheld=${withheld} onDone=${page.again}/>` : html`<p>No dead letter has the key <code>${letterKey}</code>: it was purged, or belongs to an earlier lineage.</p>`}</${Answer}>`;
}

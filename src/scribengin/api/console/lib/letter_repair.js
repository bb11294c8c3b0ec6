// The repair of one dead letter: its columns, or its whole text.
import {html, useEffect, useState} from "./html.js";
import {Act, command} from "./act.js";
import {path, send} from "./api.js";
import {Replay} from "./letter_acts.js";
import {useDialog} from "./opener.js";
import {escaped, fromBase64, toBase64, unescaped, visible} from "./record_bytes.js";
import {Fault} from "./ui.js";

/** Column → its value as it is written in a field: a text as it is, anything else as JSON, numbers with all their digits. Null if the text is not a JSON object, or the browser cannot keep digits. */
export function columnsOf(text) {
  if (!JSON.rawJSON) return null;
  try {
    const row = JSON.parse(text, (_, value, {source}) => typeof value === "number" ? JSON.rawJSON(source) : value);
    if (row === null || typeof row !== "object" || Array.isArray(row) || JSON.isRawJSON(row)) return null;
    return new Map(Object.entries(row).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]));
  } catch {
    return null;
  }
}

function Columns({columns, changed, change}) {
  return html`<div class="columns">${[...columns].map(([name, value]) => {
    const now = changed[name] ?? value;
    return html`<label key=${name}><span dir="auto">${visible(name)}</span>
      <input value=${now} dir="auto" spellcheck=${false} autocomplete="off" onInput=${(event) => change(name, event.target.value)}/>
      ${visible(now) !== now && html`<span>with hidden characters: <code>${visible(now)}</code></span>`}</label>`;
  })}</div>`;
}

/** What was repaired says how it goes on. */
function Repaired({answer, flow, letterKey, onSent}) {
  if (!answer.queries.length) return html`<p>Nothing was changed.</p>`;
  return html`<p>The repair is kept for query ${answer.queries.join(", ")} until the replay; it enters at ${answer.at}.</p>
    <p><${Replay} flow=${flow} which=${{prefix: letterKey}} label="send the repaired one on" main onDone=${(acted) => { if (acted) onSent(); }}/></p>`;
}

function Editor({flow, letterKey, found, onOpen, onDone}) {
  const dialog = useDialog({onOpen, onDone});
  const binary = found.text === null;
  const before = binary ? escaped(fromBase64(found.text_base64)) : found.text;
  const columns = binary ? null : columnsOf(before);
  const [whole, setWhole] = useState(columns === null);
  const [text, write] = useState(before), [changed, setChanged] = useState({});
  const set = Object.fromEntries(Object.entries(changed).filter(([name, value]) => columns?.get(name) !== value));
  const change = whole ? binary ? {text_base64: toBase64(unescaped(text))} : {text} : {columns: set};
  const words = whole ? ["--with", "-"] : Object.entries(set).flatMap(([name, value]) => ["--set", `${name}=${value}`]);
  const act = {title: "repair", says: "The flow checks the repair, and keeps it until the replay.", role: "operator", method: "POST", path: path`flows/${flow}/dead-letters/repairs`,
    body: {letter: letterKey, ...change, digest: found.digest}, command: command("scribengin", "dead-letter", "edit", flow, letterKey, ...words), button: "keep the repair",
    after: (answer) => html`<${Repaired} answer=${answer} flow=${flow} letterKey=${letterKey} onSent=${dialog.leave}/>`};
  const differs = whole ? text !== before : Object.keys(set).length > 0;
  return html`<p>${found.row ? `The row as it comes to ${found.at}.` : `The record as source ${found.at} reads it.`}${binary ? " Bytes that are not UTF-8 are written as \\xff, a backslash as \\\\." : ""}</p>
    ${whole ? html`<label>text <textarea rows="6" dir="auto" spellcheck=${false} value=${text} onInput=${(event) => write(event.target.value)}></textarea></label>` : html`<${Columns} columns=${columns} changed=${changed} change=${(name, value) => setChanged((now) => ({...now, [name]: value}))}/>`}
    <p class="row"><button type="button" disabled=${!differs} onClick=${() => dialog.enter(true)}>repair</button>
      ${dialog.open && html`<${Act} act=${act} ...${dialog.ends}/>`}
      ${columns && html`<button type="button" onClick=${() => setWhole(!whole)}>${whole ? "edit its columns" : "edit the whole text"}</button>`}</p>`;
}

/** The part of a dead letter's page that repairs it. */
export function Repair({flow, letterKey, stamp, onOpen, onDone}) {
  const [state, set] = useState({found: null, error: null});
  useEffect(() => {
    const abort = new AbortController();
    send("POST", path`flows/${flow}/dead-letters/repairs`, {letter: letterKey}, {signal: abort.signal}).then((found) => set({found, error: null}), (error) => { if (error.name !== "AbortError") set({found: null, error}); });
    return () => abort.abort();
  }, [flow, letterKey, stamp]);
  if (state.error) return html`<${Fault} error=${state.error}/>`;
  if (state.found === null) return html`<p class="quiet" aria-busy="true">asking what can be repaired …</p>`;
  return html`<${Editor} key=${state.found.digest} flow=${flow} letterKey=${letterKey} found=${state.found} onOpen=${onOpen} onDone=${onDone}/>`;
}

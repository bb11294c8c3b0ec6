// Other control planes, whose flows are connected to flows here.
import {Act, command, Value} from "../lib/act.js";
import {path} from "../lib/api.js";
import {link} from "../lib/flow.js";
import {pairsOf, pairsText} from "../lib/format.js";
import {html, useState} from "../lib/html.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, Opener, useAct} from "../lib/opener.js";
import {Answer, Moment, State, Table} from "../lib/ui.js";

const wordsOf = (text) => text.split(/[\s,]+/).filter(Boolean);

/** A peer, or other addresses of one. */
function SetPeer({row, onClose, onDone}) {
  const [peer, name] = useState(row?.peer ?? "");
  const [addresses, write] = useState((row?.masters ?? []).join(" "));
  const [text, alias] = useState(pairsText(row?.aliases ?? {}));
  const masters = wordsOf(addresses), aliases = pairsOf(text), wanted = peer.trim();
  const act = {
    title: row ? `change the peer ${row.peer}` : "set a peer", button: "set the peer", says: "The leading master asks it which of its flows are connected to flows here, and throttles flows here for them.", method: "PUT", path: path`peers/${wanted || "PEER"}`,
    body: {masters, aliases: aliases ?? {}}, disabled: !wanted || masters.length === 0 || aliases === null,
    command: command("scribengin", "peer", "set", wanted || "PEER", ...(masters.length ? masters : ["URL"]), ...Object.entries(aliases ?? {}).flatMap(([there, here]) => ["--alias", `${there}=${here}`])),
    after: (answer) => html`<p>The list says whether it answers. If its masters require a token, write one to <code>peers/${answer.peer}.token</code> in the home folder of each master here.</p>`,
  };
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    ${!row && html`<${Value} label="name" value=${peer} onValue=${name} placeholder="berlin"/>`}
    <${Value} label="addresses of its masters" value=${addresses} onValue=${write} placeholder="https://flows.berlin.example:8443"/>
    <${Value} label="names of servers there" value=${text} onValue=${alias} problem=${aliases === null ? "write THERE=HERE, each HOST:PORT" : ""} placeholder="kafka.lan:9092=kafka.example:9094"/></${Act}>`;
}

const remove = ({peer}) => ({title: "remove", says: `The flows of ${peer} throttle flows here no more, and are not shown.`, role: "admin", method: "DELETE", path: path`peers/${peer}`, command: command("scribengin", "peer", "remove", peer), name: peer,
  after: () => html`<p>The peer is removed.</p>`});

function Answers({row}) {
  if (row.refused) return html`<${State} state="refused"/> its record ${row.refused}`;
  if (row.silent_since) return html`<${State} state="away"/> since <${Moment} at=${row.silent_since}/>: ${row.why}`;
  return row.answered_at ? html`<${State} state="up"/> <${Moment} at=${row.answered_at}/>` : html`<span class="quiet">not asked yet</span>`;
}

const end = (flow, node) => flow.includes("/") ? `${flow}.${node}` : html`<a href=${link(flow)}>${flow}</a>.${node}`;

const Flows = ({flows}) => flows.length === 0 ? html`<span class="quiet">none is connected to a flow here</span>` : html`<ul class="plain">${flows.map((each) => html`<li key=${each.flow}>${each.flow} <${State} state=${each.state}/> ${each.reason}
  ${each.meetings.map((met) => html`<div class="quiet">${end(met.feeding, met.sink)} → ${end(met.reading, met.source)} (${met.place})</div>`)}</li>`)}</ul>`;

export default function Peers() {
  const answer = useAnswer("peers", {every: 4});
  const [open, dialog] = useAct(answer.again);
  return html`<div class="row"><h1>Peers</h1><${Opener} label="set a peer" role="admin" onDone=${answer.again}>${(ends) => html`<${SetPeer} ...${ends}/>`}</${Opener}></div>
    <${Answer} of=${answer} empty="There is no peer: no flow here is connected to a flow of another control plane.">${(rows) => html`<${Table} caption="peers" rows=${rows} keyOf=${(row) => row.peer} columns=${[
      {name: "peer", of: (row) => html`<strong>${row.peer}</strong>`}, {name: "state", of: (row) => html`<${Answers} row=${row}/>`}, {name: "masters", of: (row) => row.masters.join(", ")}, {name: "names of servers there", of: (row) => pairsText(row.aliases)},
      {name: "flows", of: (row) => html`<${Flows} flows=${row.flows}/>`},
      {name: "acts", of: (row) => html`<span class="row"><${Opener} label="change" role="admin" aria-label=${`change ${row.peer}`} onDone=${answer.again}>${(ends) => html`<${SetPeer} row=${row} ...${ends}/>`}</${Opener}>
        <${Buttons} acts=${[remove(row)]} open=${open} of=${row.peer}/></span>`}]}/>`}</${Answer}>${dialog}`;
}

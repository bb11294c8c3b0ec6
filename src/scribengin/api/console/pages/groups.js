// Groups of equivalent places: members are disabled and enabled, and get other costs.
import {Act, command} from "../lib/act.js";
import {html, useState} from "../lib/html.js";
import {path} from "../lib/api.js";
import {count, duration} from "../lib/format.js";
import {link} from "../lib/flow.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, Opener, useAct} from "../lib/opener.js";
import {Answer, State, Table} from "../lib/ui.js";

const about = (group, member) => ({role: "operator", method: "PUT", path: path`groups/${group}/members/${member}`});
const done = () => html`<p>It applies from the next Batch on.</p>`;

const enable = (group, member) => ({...about(group, member), title: "enable", says: `Batches go to ${member} again.`, body: {out: false}, command: command("scribengin", "group", "enable", group, member), after: done});

function Disable({group, member, onClose, onDone}) {
  const [why, set] = useState("");
  const act = {...about(group, member), title: `disable ${member}`, button: "disable", says: `No new Batch of any flow goes to ${member} of ${group}. Batches that are decided for it still go there.`, body: {out: true, why},
    command: command("scribengin", "group", "disable", group, member, ...(why ? ["--reason", why] : [])), name: member, after: done};
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}><p><label>reason <input value=${why} maxlength="200" placeholder="shown to other operators" onInput=${(event) => set(event.target.value)}/></label></p></${Act}>`;
}

function SetCost({group, member, cost, onClose, onDone}) {
  const [text, set] = useState(String(cost ?? ""));
  const number = Number(text), fits = text !== "" && number >= 0;
  const act = {...about(group, member), title: `set the cost of ${member}`, button: "set the cost", says: "A Batch goes to the available member with the lowest cost; members of equal cost share the load. 0: the cost of the flow files.", body: {cost: fits ? number : null},
    command: command("scribengin", "group", "set-cost", group, member, text || "COST"), disabled: !fits, after: done};
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}><p><label>cost <input type="number" min="0" step="any" value=${text} onInput=${(event) => set(event.target.value)}/></label></p></${Act}>`;
}

const Seen = ({seen}) => seen.length === 0 ? html`<span class="quiet">not reported</span>` : html`<ul class="plain">${seen.map((each) => html`<li><${State} state=${each.state}/> <a href=${link(each.flow)}>${each.flow}</a>, sink ${each.sink}: ${count(each.batches)} Batches
  ${each.reason && html`<div class="quiet">${each.reason}${each.again_s ? `, next attempt in ${duration(each.again_s)}` : ""}</div>`}</li>`)}</ul>`;

function Group({group, open, again}) {
  const name = group.group;
  const ways = (row) => html`<span class="row">
    ${row.out && html`<${Buttons} acts=${[enable(name, row.member)]} open=${open} of=${row.member}/>`}
    <${Opener} label="disable" role="operator" hidden=${row.out} aria-label=${`disable ${row.member}`} onDone=${again}>${(ends) => html`<${Disable} group=${name} member=${row.member} ...${ends}/>`}</${Opener}>
    <${Opener} label="set cost" role="operator" aria-label=${`set cost of ${row.member}`} onDone=${again}>${(ends) => html`<${SetCost} group=${name} member=${row.member} cost=${row.cost} ...${ends}/>`}</${Opener}></span>`;
  return html`<section aria-label=${`group ${name}`}><h2 dir="auto">${name}</h2>
    <p>${group.flows.length === 0 ? "No flow names this group." : html`used by ${group.flows.map((flow) => html`<a href=${link(flow)}>${flow}</a> `)}`}</p>
    ${group.refused && html`<div class="fault"><p>The record of this group in the registry is not in force: ${group.refused}</p></div>`}
    <${Table} caption=${`members of ${name}`} rows=${group.members} keyOf=${(row) => row.member} columns=${[
      {name: "member", of: (row) => html`<strong>${row.member}</strong>`}, {name: "state", of: (row) => row.out ? html`<${State} state="disabled"/> ${row.why}` : "enabled"}, {name: "cost", kind: "number", of: (row) => row.cost === null ? "–" : String(row.cost)},
      {name: "in flow files", kind: "number", of: (row) => row.costs.join(", ") || "–"}, {name: "as sinks find it", of: (row) => html`<${Seen} seen=${row.seen}/>`}, {name: "acts", of: ways}]}/></section>`;
}

const ill = (group) => group.refused || group.members.some((row) => row.out || row.seen.some((each) => each.state === "failed")) ? 0 : 1;

export default function Groups() {
  const answer = useAnswer("groups", {every: 3});
  const [open, dialog] = useAct(answer.again);
  return html`<h1>Groups</h1>
    <${Answer} of=${answer} empty="No flow names a group.">${(groups) => [...groups].sort((a, b) => ill(a) - ill(b)).map((group) => html`<${Group} key=${group.group} group=${group} open=${open} again=${answer.again}/>`)}</${Answer}>${dialog}`;
}

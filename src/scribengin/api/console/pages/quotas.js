// What all flows with a label may use together.
import {Act, command, Value} from "../lib/act.js";
import {path} from "../lib/api.js";
import {link} from "../lib/flow.js";
import {bytes, count, rate} from "../lib/format.js";
import {html, useState} from "../lib/html.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, Opener, useAct} from "../lib/opener.js";
import {Answer, State, Table} from "../lib/ui.js";

const GIB = 2 ** 30;

/** [name in the record, its field, its option, the number of a text, the text of a number, the value of the option]. */
const BOUNDS = [
  ["cores", "cores", "cores", Number, String, String],
  ["memory_bytes", "memory in GiB", "memory", (text) => Math.round(Number(text) * GIB), (value) => String(value / GIB), (value) => value % GIB ? `${value}B` : `${value / GIB}GiB`],
  ["rows_per_s", "rows per second", "rows-per-second", Number, String, String],
];

/** A quota of a label, or other bounds of one. Bounds without a value are removed. */
function SetQuota({row, onClose, onDone}) {
  const [quota, name] = useState(row?.quota ?? "");
  const [texts, write] = useState(Object.fromEntries(BOUNDS.map(([key, , , , shown]) => [key, (row?.[key] ?? null) === null ? "" : shown(row[key])])));
  const wrong = (key) => texts[key].trim() && (!(Number(texts[key]) > 0) || (key === "cores" && !Number.isInteger(Number(texts[key])))) ? `write a ${key === "cores" ? "whole " : ""}number above 0, or nothing for no limit` : "";
  const given = BOUNDS.filter(([key]) => texts[key].trim() && !wrong(key)).map(([key, , option, number, , value]) => [key, number(texts[key]), option, value]);
  const off = BOUNDS.filter(([key]) => !texts[key].trim() && (row?.[key] ?? null) !== null);
  const label = quota.trim(), act = {
    title: row ? `change the quota ${row.quota}` : "set a quota", button: "set the quota", says: "Flows that run continue. A flow that does not fit waits, and says for what.", method: "PUT", path: path`quotas/${label || "LABEL=VALUE"}`,
    body: {...Object.fromEntries(given), ...(off.length > 0 && {off: off.map(([key]) => key)})}, disabled: !/^[^=]+=[^=]+$/.test(label) || given.length === 0 || BOUNDS.some(([key]) => wrong(key)),
    command: command("scribengin", "quota", "set", label || "LABEL=VALUE", ...given.flatMap(([, number, option, value]) => [`--${option}`, value(number)]), ...off.flatMap(([, , option]) => ["--unset", option])),
    after: (answer) => html`<p>${answer.over ? "Its flows have more already: they keep running, and no other one starts until they use less." : "It applies from now on."}</p>`,
  };
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    ${!row && html`<${Value} label="label" value=${quota} onValue=${name} placeholder="team=shop"/>`}
    ${BOUNDS.map(([key, field]) => html`<${Value} key=${key} label=${field} value=${texts[key]} onValue=${(text) => write({...texts, [key]: text})} problem=${wrong(key)} inputmode="decimal" placeholder="no limit"/>`)}</${Act}>`;
}

const remove = ({quota}) => ({title: "remove", says: `Flows with ${quota} are limited no more; those that wait for it start.`, role: "admin", method: "DELETE", path: path`quotas/${quota}`, command: command("scribengin", "quota", "remove", quota), name: quota,
  after: () => html`<p>The quota is removed.</p>`});

const used = (taken, bound, shown) => bound === null ? `${shown(taken)}, no limit` : `${shown(taken)} of ${shown(bound)}`;

const Flows = ({flows}) => flows.length === 0 ? html`<span class="quiet">no flow has this label</span>` : html`<ul class="plain">${flows.map((each) => html`<li key=${each.flow}><a href=${link(each.flow)}>${each.flow}</a>
  ${each.waits ? html` <${State} state="waiting"/> ${each.reason}` : html` ${[each.cores && `${count(each.cores)} cores`, each.memory_bytes && bytes(each.memory_bytes), each.rows_per_s !== null && rate(each.rows_per_s), each.idle && "idle"].filter(Boolean).join(", ")}`}</li>`)}</ul>`;

export default function Quotas() {
  const answer = useAnswer("quotas", {every: 4});
  const [open, dialog] = useAct(answer.again);
  return html`<div class="row"><h1>Quotas</h1><${Opener} label="set a quota" role="admin" onDone=${answer.again}>${(ends) => html`<${SetQuota} ...${ends}/>`}</${Opener}></div>
    <${Answer} of=${answer} empty="There is no quota: flows use what their hosts have.">${(rows) => html`<${Table} caption="quotas" rows=${rows} keyOf=${(row) => row.quota} columns=${[
      {name: "label", of: (row) => html`<strong>${row.quota}</strong>${row.refused ? html` <${State} state="refused"/> ${row.refused}; no further flow starts under it` : row.over ? html` <${State} state="full"/> its flows have more already` : ""}`},
      {name: "cores", kind: "number", of: (row) => used(row.taken.cores, row.cores, count)}, {name: "memory", kind: "number", of: (row) => used(row.taken.memory_bytes, row.memory_bytes, bytes)},
      {name: "rows per second", kind: "number", of: (row) => row.rows_per_s === null ? "no limit" : count(row.rows_per_s)}, {name: "flows", of: (row) => html`<${Flows} flows=${row.flows}/>`},
      {name: "acts", of: (row) => html`<span class="row"><${Opener} label="change" role="admin" aria-label=${`change ${row.quota}`} onDone=${answer.again}>${(ends) => html`<${SetQuota} row=${row} ...${ends}/>`}</${Opener}>
        <${Buttons} acts=${[remove(row)]} open=${open} of=${row.quota}/></span>`}]}/>`}</${Answer}>${dialog}`;
}

// The dead letters of a flow: counts by step and reason, pages of them, and one of them.
import {html} from "../lib/html.js";
import {command} from "../lib/act.js";
import {path} from "../lib/api.js";
import {count} from "../lib/format.js";
import {FlowFrame, link} from "../lib/flow.js";
import {OneLetter, stateOf} from "../lib/letter.js";
import {chosen, Purge, Replay, UndoPurge} from "../lib/letter_acts.js";
import {useAnswer, useFlowAnswer} from "../lib/live.js";
import {Again, decided, useSeldom} from "../lib/planned.js";
import {visible} from "../lib/record_bytes.js";
import {Answer, Moment, State, Table} from "../lib/ui.js";

const LIMIT = 50, FEW = 5;

const list = (flow, which) => link(flow, `/dead${Object.keys(which).length ? `?${new URLSearchParams(which)}` : ""}`);

const one = (flow, key) => link(flow, `/dead/${encodeURIComponent(key)}`);

function Groups({flow, counts, which}) {
  return html`<${Table} caption="dead letters by step and reason" rows=${counts.groups} keyOf=${(row) => [row.query, row.step, row.reason].join()} columns=${[
    {name: "step", of: (row) => html`<a href=${list(flow, {query: row.query, step: row.step, reason: row.reason})} aria-current=${which.step === row.step && which.reason === row.reason ? "true" : undefined}>${row.step}</a>`},
    {name: "reason", of: (row) => row.reason}, {name: "query", of: (row) => `${row.query}${row.gone ? " (no sink uses it any more)" : ""}`}, {name: "count", kind: "number", of: (row) => count(row.count)},
    {name: "replayed", kind: "number", of: (row) => count(row.replayed)}, {name: "requested", kind: "number", of: (row) => count(row.asked)}, {name: "repaired", kind: "number", of: (row) => count(row.repaired)},
    {name: "example", of: (row) => html`<span class="brief"><a href=${one(flow, row.key)} dir="auto">${visible(row.example)}</a> <span class="quiet" dir="auto">${visible(row.place)}</span></span>`}, {name: "last", of: (row) => html`<${Moment} at=${row.last}/>`}]}/>`;
}

function Page({flow, page, which, after}) {
  return html`${page.letters.length === 0 ? html`<p class="quiet">${page.after ? "None on this page: the next one may have some." : "No dead letter matches."}</p>` : html`<${Table} caption="dead letters" rows=${page.letters} keyOf=${(row) => row.key} columns=${[
      {name: "key", of: (row) => html`<a href=${one(flow, row.key)}>${row.key}</a>`}, {name: "state", of: (row) => html`<${State} state=${stateOf(row)}/>`}, {name: "step", of: (row) => row.step}, {name: "reason", of: (row) => row.reason},
      {name: "message", of: (row) => html`<span dir="auto" class="brief">${visible(row.message)}</span>`}, {name: "line of code", of: (row) => row.code_line || "–"}, {name: "place", of: (row) => html`<span dir="auto">${visible(row.place)}</span>`}]}/>`}
    <p class="row">${after && html`<a href=${list(flow, which)}>first page</a>`}${page.after && html`<a href=${list(flow, {...which, after: page.after})}>next page</a>`}</p>`;
}

function Letters({flow, query, metrics}) {
  const which = chosen(Object.fromEntries(query)), after = query.get("after") || "";
  const stamp = useSeldom(metrics ? `${metrics.now?.dead} ${decided(metrics)}` : null);
  const counts = useAnswer(path`flows/${flow}/dead-letters/counts`, {stamp});
  const few = query.get("few") === "1" ? {few: 1} : {}, limit = few.few ? FEW : LIMIT;
  const page = useAnswer(`${path`flows/${flow}/dead-letters`}?${new URLSearchParams({...which, limit, ...(after && {after})})}`, {stamp});
  const again = () => { counts.again(); page.again(); };
  const refresh = (acted) => { if (acted) again(); };
  const total = counts.data?.dead ?? 0, replayed = counts.data?.groups.some((group) => group.replayed > 0);
  const filters = Object.entries(which);
  return html`<div class="row"><h2>By step and reason</h2><${Again} of=${{...counts, again}}/></div>
    <${Answer} of=${counts}>${(found) => found.groups.length ? html`<${Groups} flow=${flow} counts=${found} which=${which}/>` : html`<p class="quiet">The flow has no dead letters.</p>`}</${Answer}>
    <div class="row"><h2>${filters.length ? "Selected dead letters" : "All dead letters"}</h2>
      ${filters.map(([name, value]) => html`<a class="choice" key=${name} href=${list(flow, Object.fromEntries(filters.filter(([other]) => other !== name)))} aria-label=${`remove the filter ${name} ${value}`}>${name} ${value} ×</a>`)}</div>
    <p class="row">${total > 0 && html`<${Replay} flow=${flow} which=${which} label=${filters.length ? "replay the selected" : "replay all"} onDone=${refresh}/>`}
      ${replayed && html`<${Purge} flow=${flow} which=${which} replayed label=${filters.length ? "purge the selected that are replayed" : "purge those that are replayed"} onDone=${refresh}/>`}
      ${total > 0 && html`<${Purge} flow=${flow} which=${which} label=${filters.length ? "purge the selected" : "purge all"} onDone=${refresh}/>`}<${UndoPurge} flow=${flow} onDone=${again}/></p>
    <${Answer} of=${page}>${(found) => html`<${Page} flow=${flow} page=${found} which=${{...which, ...few}} after=${after}/>`}</${Answer}>
    ${page.error?.code === "answer-large" && (few.few ? html`<p>Open one of them by its example above, or write all to a file: <code>${command("scribengin", "dead-letter", "export", flow, "--to", "FILE")}</code></p>`
    : html`<p>The records are large: <a href=${list(flow, {...which, few: 1, ...(after && {after})})}>show ${FEW} on a page</a></p>`)}`;
}

function Shown({flow, letter, query}) {
  const metrics = useFlowAnswer(flow, `${path`flows/${flow}/metrics`}?step=600`).data;
  return letter ? html`<${OneLetter} flow=${flow} letterKey=${letter} metrics=${metrics}/>` : html`<${Letters} flow=${flow} query=${query} metrics=${metrics}/>`;
}

export default function Dead({flow, letter, query}) {
  return html`<${FlowFrame} flow=${flow} now="Dead letters">${() => html`<${Shown} flow=${flow} letter=${letter} query=${query}/>`}</${FlowFrame}>`;
}

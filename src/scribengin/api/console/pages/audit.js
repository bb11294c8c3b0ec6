// The audit log of the master that served this page: who requested which change, with which outcome.
import {ask, Field} from "../lib/asked.js";
import {html} from "../lib/html.js";
import {count} from "../lib/format.js";
import {flows, useAnswer, useStore} from "../lib/live.js";
import {Answer, Moment, State, Table} from "../lib/ui.js";

const FIRST = 100, MOST = 1000;

export default function Audit({query}) {
  const who = query.get("who") || "", flow = query.get("flow") || "", limit = Math.min(MOST, Number(query.get("limit")) || FIRST);
  const known = useStore(flows);
  const answer = useAnswer(`audit?${new URLSearchParams({limit, who, flow})}`, {every: 5});
  const change = (values) => ask("#/audit", {who, flow, limit: limit === FIRST ? "" : limit, ...values});
  return html`<h1>Audit log</h1>
    <p class="quiet">This is the log of the master that served this page${answer.data?.master && html`, <strong>${answer.data.master}</strong>`}. Each master has a log of its own: open the page at the <a href="#/hosts">other masters</a> to see theirs.</p>
    <div class="row" role="search"><${Field} label="caller" value=${who} onValue=${(text) => change({who: text})}/>
      <${Field} label="flow or other target" value=${flow} onValue=${(text) => change({flow: text})}/></div>
    <${Answer} of=${answer}>${({entries, complete}) => entries.length === 0 ? html`<p>No line of the log matches.</p>` : html`<${Table} caption="audit log" rows=${entries} columns=${[
      {name: "time", of: (row) => html`<${Moment} at=${row.at}/>`}, {name: "caller", of: (row) => row.who || html`<span class="quiet">unknown</span>`}, {name: "address", of: (row) => row.address}, {name: "change", of: (row) => row.what},
      {name: "target", of: (row) => known?.has(row.target) ? html`<a href=${`#/flows/${encodeURIComponent(row.target)}`}>${row.target}</a>` : html`<span class="target">${row.target}</span>`},
      {name: "outcome", of: (row) => html`<${State} state=${row.outcome === "done" ? "done" : "refused"}/>${row.outcome !== "done" && ` ${row.outcome}`}${row.again && " (repeated)"}`}, {name: "revision", kind: "number", of: (row) => count(row.revision)}]}/>
      ${!complete && (limit < MOST ? html`<button type="button" onClick=${() => change({limit: MOST})}>show up to ${count(MOST)} lines</button>` : html`<p class="quiet">Older lines are in the file of the master.</p>`)}`}</${Answer}>`;
}

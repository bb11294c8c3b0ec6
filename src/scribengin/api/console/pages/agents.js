// All agents, worst first, and the gateways that take records from them.
import {ask} from "../lib/asked.js";
import {html} from "../lib/html.js";
import {bytes, count, duration} from "../lib/format.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, useAct} from "../lib/opener.js";
import {may} from "../lib/session.js";
import {Answer, State, Tabs} from "../lib/ui.js";
import {Window} from "../lib/window.js";
import {acts, AgentState, link} from "./agent.js";
import {Gateways} from "./gateways.js";

const RANKS = ["failed", "full", "away", "waiting", "paused", "running", "idle", "decommissioned"];

const rank = (row) => RANKS.indexOf(row.state);
const worst = (a, b) => rank(a) - rank(b) || (b.oldest_age_s ?? 0) - (a.oldest_age_s ?? 0) || (a.agent < b.agent ? -1 : 1);

const columns = (open) => [
  {name: "agent", kind: "name", of: (row) => html`<a href=${link(row.agent)}>${row.agent}</a><br/><span class="quiet">${row.group || "no group"}</span>`},
  {name: "state", kind: "states", of: (row) => html`<${AgentState} row=${row}/>`},
  {name: "message", kind: "why", wide: true, about: (row) => row.message, of: (row) => row.message},
  {name: "backlog", kind: "number", of: (row) => html`${count(row.backlog)}<br/><span class="quiet">${bytes(row.waiting_bytes)}</span>`},
  {name: "oldest", kind: "number", wide: true, of: (row) => duration(row.oldest_age_s)},
  {name: "last report", kind: "number", wide: true, of: (row) => `${duration(row.report_age_s)} ago`},
  {name: "host", wide: true, about: (row) => row.host, of: (row) => row.host},
  {name: "gateway", wide: true, about: (row) => row.gateway, of: (row) => row.gateway || "–"},
  ...may("operator") ? [{name: "acts", wide: true, of: (row) => html`<span class="acts"><${Buttons} acts=${acts(row)} open=${open} of=${row.agent}/></span>`}] : [],
];

const matches = (row, words) => words.every((word) => [row.agent, row.group, row.host, row.gateway, row.state, row.message].some((text) => text.toLowerCase().includes(word)));

function Agents({text, state}) {
  const answer = useAnswer("agents", {every: 4});
  const [open, dialog] = useAct(answer.again);
  const change = (values) => ask("#/agents", {filter: text, state, ...values});
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return html`<${Answer} of=${answer} empty="No agent has reported to a gateway yet.">${(rows) => {
    const shown = rows.filter((row) => (!state || row.state === state) && matches(row, words)).sort(worst);
    const states = [...new Set(rows.map((row) => row.state))].sort((a, b) => RANKS.indexOf(a) - RANKS.indexOf(b));
    return html`<div class="row" role="search">
      <label>filter <input type="search" value=${text} placeholder="name, group, host, message" onInput=${(event) => change({filter: event.target.value})}/></label>
      ${states.map((each) => html`<button type="button" aria-pressed=${state === each} onClick=${() => change({state: state === each ? "" : each})}><${State} state=${each}/> ${count(rows.filter((row) => row.state === each).length)}</button>`)}
      <span class="quiet" role="status">${count(shown.length)} of ${count(rows.length)} agents</span>
    </div>
    ${shown.length === 0 ? html`<p>No agent matches the filter.</p>` : html`<${Window} label="agents" kind="agent-row" columns=${columns(open)} rows=${shown} keyOf=${(row) => row.agent}/>`}`;
  }}</${Answer}>
  ${dialog}`;
}

export default function AgentsAndGateways({query}) {
  const gateways = query.get("show") === "gateways";
  return html`<h1>Agents</h1>
    <${Tabs} label="agents and gateways" now=${gateways ? "Gateways" : "Agents"} tabs=${[["Agents", "#/agents"], ["Gateways", "#/agents?show=gateways"]]}/>
    ${gateways ? html`<${Gateways}/>` : html`<${Agents} text=${query.get("filter") || ""} state=${query.get("state") || ""}/>`}`;
}

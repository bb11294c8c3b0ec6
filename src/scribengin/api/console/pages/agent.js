// One agent: the tiers that run there, its lanes, and the gateways in the order in which it tries them.
import {Act, command} from "../lib/act.js";
import {html, useState} from "../lib/html.js";
import {path} from "../lib/api.js";
import {bytes, count, duration} from "../lib/format.js";
import {link as flowLink} from "../lib/flow.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, Opener, useAct} from "../lib/opener.js";
import {Answer, Facts, Fault, Moment, State, Table} from "../lib/ui.js";

/** The address of an agent's page in the console. */
export const link = (agent) => `#/agents/${encodeURIComponent(agent)}`;

const unfinished = (changed) => changed.lanes.length ? html`<p>Not committed yet: ${changed.lanes.join(", ")}</p>` : html`<p>All its records are committed.</p>`;

/** The state of an agent, and that it is drained, if it is away too. */
export const AgentState = ({row}) => html`<${State} state=${row.state}/>${row.decommissioned && row.state !== "decommissioned" && html` <${State} state="decommissioned"/>`}`;

/** The acts that an agent's state allows. */
export function acts({agent, state, decommissioned}) {
  const about = {role: "operator", path: path`agents/${agent}/decommissioned`};
  const drain = {...about, title: "drain", says: "The agent reads nothing more, and hands over what it has read.", method: "PUT", command: command("scribengin", "agent", "drain", agent), name: agent, after: unfinished};
  const undrain = {...about, title: "undrain", says: `The agent ${agent} reads again.`, method: "DELETE", command: command("scribengin", "agent", "undrain", agent),
    after: (done) => html`<p>${done.changed ? "The agent reads again." : "The agent was not drained."}</p>`};
  const remove = {title: "remove", says: "The agent is removed from the registry; records that it has not handed over stay on its host.", role: "operator", method: "DELETE",
    path: path`agents/${agent}`, command: command("scribengin", "agent", "remove", agent), name: agent, after: () => html`<p>The agent is removed. <a href="#/agents">Go to the agents</a>.</p>`};
  return [decommissioned ? undrain : drain, ...(state === "away" ? [remove] : [])];
}

function MapTier({agent, onClose, onDone}) {
  const [name, setName] = useState("");
  const [start, setStart] = useState(false);
  const [flow, tier] = name.trim().split(".");
  const act = {
    title: `map a tier to ${agent}`, says: "The tier runs at this agent too, whatever the agent's group is.", role: "operator", method: "PUT", button: start ? "start the tier" : "map the tier", disabled: !flow || !tier,
    path: path`flows/${flow || "FLOW"}/tiers/${tier || "TIER"}/agents/${agent}` + (start ? "?start=true" : ""), command: command("scribengin", "agent", start ? "start-tier" : "map", name.trim() || "FLOW.TIER", agent),
    after: (bound) => html`<p>${bound.tier} ${bound.changed ? "will run at this agent." : "was mapped to this agent before."}</p>`,
  };
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    <p><label>tier <input value=${name} placeholder="FLOW.TIER" autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value)}/></label></p>
    <p><label><input type="checkbox" checked=${start} onChange=${(event) => setStart(event.target.checked)}/> start its flow</label></p>
  </${Act}>`;
}

function unmap(agent, node) {
  const [flow, tier] = node.split(".");
  return {title: "unmap", says: `${node} is no longer bound to ${agent}. An agent of the tier's group continues to run it.`, role: "operator", method: "DELETE", path: path`flows/${flow}/tiers/${tier}/agents/${agent}`,
    command: command("scribengin", "agent", "unmap", node, agent), after: () => html`<p>${node} is no longer bound to ${agent}.</p>`};
}

const versions = (running, wanted) => running === wanted ? `version ${running}` : `version ${running}, wanted ${wanted || "none"}`;

const STAGES = {one: "tried at one agent", some: "at some agents", all: "at all agents"};
const stage = ({stage: now, version}) => now === "done" ? html`<${State} state="done"/>` : now === "back" ? html`<${State} state="failed"/> back to version ${version}:` : STAGES[now] ?? now;

function Parts({view, open}) {
  const {agent} = view;
  return html`<${Facts} pairs=${[["group", agent.group], ["host", agent.host], ["release", agent.release], ["gateway", agent.gateway], ["records not committed", count(agent.backlog)], ["bytes that wait", bytes(agent.waiting_bytes)],
      ["oldest that waits", agent.oldest_age_s !== null && duration(agent.oldest_age_s)], ["last report", `${duration(agent.report_age_s)} ago`], ["runs since", view.since && html`<${Moment} at=${view.since}/>`], ["revision of its configuration", view.revision]]}/>
    ${agent.message && html`<div class=${agent.state === "failed" ? "fault" : "note"}><p>${agent.message}</p></div>`}
    <h2>Tiers</h2>
    ${view.tiers.length === 0 ? html`<p class="quiet">No tier runs at this agent.</p>` : html`<${Table} caption="tiers" rows=${view.tiers} keyOf=${(tier) => tier.tier} columns=${[
      {name: "tier", of: (tier) => html`<a href=${flowLink(tier.tier.split(".")[0])}>${tier.tier}</a>`}, {name: "runs here because of", of: (tier) => tier.bound ? "a binding" : `its group ${agent.group}`},
      {name: "version", of: (tier) => versions(tier.version, tier.wanted)}, {name: "roll-out", of: (tier) => html`${stage(tier)} ${tier.reason}`},
      {name: "acts", of: (tier) => tier.bound ? html`<${Buttons} acts=${[unmap(agent.agent, tier.tier)]} open=${open} of=${tier.tier}/>` : ""}]}/>`}
    <h2>Lanes</h2>
    ${view.lanes.length === 0 ? html`<p class="quiet">The agent has not reported a lane.</p>` : html`<${Table} caption="lanes" rows=${view.lanes} keyOf=${(lane) => lane.lane} columns=${[
      {name: "lane", of: (lane) => lane.lane}, {name: "state", of: (lane) => html`<${State} state=${lane.state}/>`}, {name: "version", of: (lane) => versions(lane.version, lane.wanted)},
      {name: "read", kind: "number", of: (lane) => count(lane.read)}, {name: "stored", kind: "number", of: (lane) => count(lane.stored)}, {name: "committed", kind: "number", of: (lane) => count(lane.committed)},
      {name: "waiting", kind: "number", of: (lane) => bytes(lane.waiting_bytes)}, {name: "oldest", kind: "number", of: (lane) => duration(lane.oldest_age_s)}, {name: "dropped", kind: "number", of: (lane) => count(lane.dropped)},
      {name: "files", kind: "number", of: (lane) => count(lane.files)}, {name: "message", of: (lane) => lane.message}]}/>`}
    <h2>Gateways, in the order in which it tries them</h2>
    ${view.chain.length === 0 ? html`<p class="quiet">No gateway is up.</p>` : html`<${Table} caption="chain" rows=${view.chain} keyOf=${(member) => member.gateway} columns=${[
      {name: "gateway", of: (member) => member.gateway}, {name: "state", of: (member) => member.gateway === agent.gateway ? "took the last report" : ""}, {name: "cost", kind: "number", of: (member) => String(member.cost)},
      {name: "url", of: (member) => html`<code>${member.url}</code>`}]}/>`}`;
}

export default function Agent({agent}) {
  const answer = useAnswer(path`agents/${agent}`, {every: 3});
  const [open, dialog] = useAct(answer.again);
  const gone = answer.error?.status === 404;
  const summary = gone ? null : answer.data?.agent;
  return html`<p class="crumbs"><a href="#/agents">Agents</a> / </p>
    <div class="row"><h1 dir="auto">${agent}</h1>${summary && html`<${AgentState} row=${summary}/>
      <span class="row acts"><${Buttons} acts=${acts(summary)} open=${open}/>
      <${Opener} label="map a tier" role="operator" onDone=${answer.again}>${(ends) => html`<${MapTier} agent=${agent} ...${ends}/>`}</${Opener}></span>`}</div>
    ${gone ? html`<${Fault} error=${answer.error}/>` : html`<${Answer} of=${answer}>${(view) => html`<${Parts} view=${view} open=${open}/>`}</${Answer}>`}${dialog}`;
}

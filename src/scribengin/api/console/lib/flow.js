// The frame of all pages about one flow: its state, its acts, and links to its parts.
import {html} from "./html.js";
import {command, Until} from "./act.js";
import {path} from "./api.js";
import {Changes} from "./flow_changes.js";
import {flows, useFlowAnswer, useStore} from "./live.js";
import {Buttons, useAct} from "./opener.js";
import {Fault, Moment, State, Tabs} from "./ui.js";

const PARTS = [["Graph", ""], ["Batches", "/batches"], ["Workers", "/workers"], ["Dead letters", "/dead"], ["Trace", "/trace"], ["Positions", "/positions"], ["Versions", "/versions"], ["Operations", "/operations"], ["Logs", "/logs"]];
const WANTED = [
  ["pause", "paused", "No new Batch starts; workers stay up.", false],
  ["resume", "running", "Workers continue where they stopped.", false],
  ["drain", "drained", "Everything that is available now is processed through all tiers; then the workers end.", false],
  ["stop", "stopped", "Workers end after the current Batches.", true],
];

/** The address of a flow's page in the console. */
export const link = (flow, part = "") => `#/flows/${encodeURIComponent(flow)}${part}`;

/** The queries of all tiers in the metrics of a flow, each with its tier; none before the metrics are known. */
export const queriesOf = (metrics) => (metrics?.tiers || []).flatMap((tier) => tier.queries.map((query) => ({tier: tier.tier, ...query})));

function Reached({flow, wanted}) {
  const row = useStore(flows)?.get(flow);
  const target = wanted === "drained" ? "stopped" : wanted;
  return html`<${Until} until=${row?.state === target} now=${`The master has it. The flow is ${row?.state ?? "unknown"}${row?.reason ? `: ${row.reason}` : ""}`}
    done=${`The flow is ${target}.`}/>`;
}

/** The acts that a state allows. */
function acts(flow, row) {
  const made = WANTED.filter(([, wanted]) => row && row.wanted !== wanted && !(wanted === "paused" && row.wanted !== "running")).map(([verb, wanted, says, destructive]) => ({
    title: verb, says, role: "operator", method: "PUT", path: path`flows/${flow}/wanted`, body: {state: wanted},
    command: command("scribengin", verb, flow), name: destructive ? flow : "", after: () => html`<${Reached} flow=${flow} wanted=${wanted}/>`,
  }));
  if (row?.wanted === "stopped" && row.state === "stopped") {
    made.push({title: "delete", says: "The flow and its records are removed from the registry. Its outputs and its state stay.", role: "editor", method: "DELETE",
      path: path`flows/${flow}`, command: command("scribengin", "delete", flow, "--yes"), name: flow, after: () => html`<p>The flow is deleted. <a href="#/">Go to the fleet</a>.</p>`});
  }
  return made;
}

/** The frame. `now`: the name of the shown part. `children`: (view, again) => the part, where view is the answer of /v1/flows/FLOW. */
export function FlowFrame({flow, now, children}) {
  const known = useStore(flows), row = known?.get(flow);
  const view = useFlowAnswer(flow, path`flows/${flow}`);
  const [open, dialog] = useAct(view.again);
  if (view.error?.status === 404) return html`<h1 dir="auto">${flow}</h1><${Fault} error=${view.error}/><p><a href="#/">Go to the fleet</a></p>`;
  const state = row ?? (view.data ? {state: view.data.status?.state ?? "created", wanted: view.data.wanted.state, since: view.data.status?.since, reason: view.data.status?.reason, next: view.data.status?.next, version: view.data.wanted.version} : null);
  return html`<p class="crumbs"><a href="#/">Fleet</a> / </p>
    <div class="row"><h1 dir="auto">${flow}</h1>${state && html`<${State} state=${state.state}/>
      ${state.wanted !== state.state && html`<span>wanted ${state.wanted}</span>`}<span class="quiet">version ${state.version}, since <${Moment} at=${state.since}/></span>`}
      <span class="row acts">${known && html`<${Buttons} acts=${acts(flow, state)} open=${open}/><${Changes} flow=${flow} tiers=${view.data?.tiers.map((tier) => tier.tier) ?? []} onDone=${view.again}/>`}</span></div>${dialog}
    ${state?.reason && html`<div class=${state.state === "failed" || state.state === "degraded" ? "fault" : "note"}><p>${state.reason}</p>${state.next && html`<p class="remedy">${state.next}</p>`}</div>`}
    <${Tabs} label="parts of the flow" now=${now} tabs=${PARTS.map(([title, part]) => [title, link(flow, part)])}/>
    ${children(view)}`;
}

// Workflows, that is connected flows: a list, and one as a graph with its acts.
import {command} from "../lib/act.js";
import {html, useMemo} from "../lib/html.js";
import {path} from "../lib/api.js";
import {bytes, count, duration} from "../lib/format.js";
import {link as flowLink} from "../lib/flow.js";
import {corner, cut, Drawing, layOut, newGraph} from "../lib/graph.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, useAct} from "../lib/opener.js";
import {Answer, Moment, State, Table, tone} from "../lib/ui.js";
import {Operations} from "./operations.js";

const WIDE = 190, HIGH = 62;
const ILL = ["failed", "degraded", "recovering", "paused", "stopped"];

const link = (workflow) => `#/workflows/${encodeURIComponent(workflow)}`;
const inTrouble = (flow) => ILL.includes(flow.state) && (flow.state !== flow.wanted || ["failed", "degraded"].includes(flow.state));

const WANTED = [
  ["pause", "paused", "No new Batch of any of these flows starts; workers stay up. Flows are paused one after the other, from the sources down.", false],
  ["resume", "running", "All these flows run, one after the other, from the sinks up.", false],
  ["drain", "drained", "What is available now is processed through all these flows, from the sources down; then their workers end.", false],
  ["stop", "stopped", "Workers of all these flows end after the current Batches, from the sources down.", true],
];

const acts = (view) => WANTED.filter(([, wanted]) => view.nodes.some((node) => node.wanted !== wanted)).map(([verb, wanted, says, destructive]) => ({
  title: verb, says, role: "operator", method: "PUT", path: path`workflows/${view.workflow}/wanted`, body: {state: wanted}, button: `${verb} ${view.nodes.length} flows`,
  command: command("scribengin", verb, view.workflow, "--workflow"), name: destructive ? view.workflow : "",
  after: (begun) => html`<p>Operation ${begun.operation} sets it, flow by flow. The list of operations shows its progress.</p>`,
}));

function backlog(waits) {
  if (!waits) return "";
  const much = waits.rows !== null ? `${count(waits.rows)} rows` : waits.bytes !== null ? bytes(waits.bytes) : waits.files !== null ? `${count(waits.files)} files` : "";
  return [much && `${much} wait`, waits.seconds !== null && `${duration(waits.seconds)} old`].filter(Boolean).join(", ");
}

/** A connection of two flows is a box of its own, with its backlog. */
const meeting = (edge) => `e ${edge.feeding} ${edge.sink} ${edge.reading} ${edge.source}`;

function place(view) {
  const graph = newGraph();
  view.nodes.forEach((node) => graph.setNode(`f ${node.flow}`, {width: WIDE, height: HIGH}));
  view.edges.forEach((edge) => {
    graph.setNode(meeting(edge), {width: 170, height: 46});
    if (graph.hasNode(`f ${edge.feeding}`)) graph.setEdge(`f ${edge.feeding}`, meeting(edge));
    if (graph.hasNode(`f ${edge.reading}`)) graph.setEdge(meeting(edge), `f ${edge.reading}`);
  });
  return layOut(graph);
}

function Graph({view}) {
  const form = JSON.stringify([view.nodes.map((node) => node.flow), view.edges.map(meeting)]);
  const placed = useMemo(() => place(view), [form]);
  return html`<${Drawing} label=${`graph of the workflow ${view.workflow}`} placed=${placed}>
    ${view.edges.map((edge) => html`<g class="gate" key=${meeting(edge)} transform=${corner(placed.boxes.get(meeting(edge)))}><title>${edge.place}: sink ${edge.sink} of ${edge.feeding} feeds source ${edge.source} of ${edge.reading}</title>
      <rect width="170" height="46" rx="3"/><text x="8" y="18">${cut(edge.place, 23)}</text><text x="8" y="35" class="small">${cut(backlog(edge.waits), 26)}</text></g>`)}
    ${view.nodes.map((node) => html`<a class=${`node flow-box ${tone(node.state)}`} key=${node.flow} href=${flowLink(node.flow)} transform=${corner(placed.boxes.get(`f ${node.flow}`))}>
      <title>flow ${node.flow}, ${node.state}${node.reason && `: ${node.reason}`}</title><rect width=${WIDE} height=${HIGH} rx="7"/>
      <text x="10" y="20" font-weight="600">${cut(node.flow)}</text><text x="10" y="37" class="small">${node.state}${node.wanted === node.state ? "" : `, wanted ${node.wanted}`}</text><text x="10" y="53" class="small">${cut(node.reason || `${node.tiers.length} ${node.tiers.length === 1 ? "tier" : "tiers"}`, 29)}</text></a>`)}
  </${Drawing}>`;
}

const asRow = (view) => (operation) => ({flow: operation.flows[0] ?? view.workflow, id: operation.id, kind: `workflow ${operation.goal}`, step: operation.step, under_way: operation.step === "ask", since: operation.since, by: operation.by, at: operation.at,
  error: operation.error, tiers: [], arguments: {flows: operation.flows, waits_for: operation.waits_for, stuck: operation.stuck}});

function Workflow({workflow}) {
  const answer = useAnswer(path`workflows/${workflow}`, {every: 3});
  const [open, dialog] = useAct(answer.again);
  return html`<p class="crumbs"><a href="#/workflows">Workflows</a> / </p>
    <div class="row"><h1 dir="auto">${workflow}</h1>${answer.data && html`<span class="quiet">${answer.data.nodes.length} flows</span><span class="row acts"><${Buttons} acts=${acts(answer.data)} open=${open}/></span>`}</div>
    <${Answer} of=${answer}>${(view) => html`
      <${Graph} view=${view}/>
      <h2>Flows</h2>
      <${Table} caption="flows" rows=${[...view.nodes].sort((a, b) => inTrouble(b) - inTrouble(a))} keyOf=${(node) => node.flow} columns=${[
        {name: "flow", of: (node) => html`<a href=${flowLink(node.flow)}>${node.flow}</a>`}, {name: "state", of: (node) => html`<${State} state=${node.state}/>${node.wanted !== node.state && ` wanted ${node.wanted}`}`},
        {name: "why, and what to do", of: (node) => html`${node.reason}${node.next && html` <span class="quiet">→ ${node.next}</span>`}`}, {name: "version", kind: "number", of: (node) => node.version}, {name: "since", of: (node) => html`<${Moment} at=${node.since}/>`}]}/>
      <h2>Operations</h2>
      ${view.operations.length === 0 ? html`<p class="quiet">There has been no operation over the workflow.</p>` : html`<${Operations} rows=${view.operations.map(asRow(view))} again=${answer.again}/>`}`}</${Answer}>${dialog}`;
}

function Workflows() {
  const answer = useAnswer("workflows", {every: 5});
  const bad = (row) => Object.values(row.states).filter((state) => ["failed", "degraded", "recovering"].includes(state)).length;
  return html`<h1>Workflows</h1>
    <${Answer} of=${answer} empty="No flow is connected to another one: none reads the folder or the topic that another one writes.">${(rows) => html`<${Table} caption="workflows" rows=${[...rows].sort((a, b) => bad(b) - bad(a))} keyOf=${(row) => row.workflow} columns=${[
      {name: "workflow", of: (row) => html`<a href=${link(row.workflow)}>${row.workflow}</a>`}, {name: "flows", of: (row) => html`<div class="row">${Object.entries(row.states).map(([flow, state]) => html`<span><a href=${flowLink(flow)}>${flow}</a> <${State} state=${state}/></span>`)}</div>`},
      {name: "connections", kind: "number", of: (row) => count(row.meetings)}]}/>`}</${Answer}>`;
}

export default ({workflow}) => workflow ? html`<${Workflow} key=${workflow} workflow=${workflow}/>` : html`<${Workflows}/>`;

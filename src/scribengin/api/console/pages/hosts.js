// The masters, and the hosts on which they start workers.
import {html} from "../lib/html.js";
import {bytes, count, duration} from "../lib/format.js";
import {useAnswer} from "../lib/live.js";
import {Answer, Facts, Moment, State, Table} from "../lib/ui.js";
import {link} from "./host.js";

function Masters({master}) {
  const cycle = master.cycle;
  return html`<h2>Masters</h2>
    <${Table} caption="masters" rows=${master.masters} keyOf=${(row) => row.id} columns=${[
      {name: "master", of: (row) => row.id}, {name: "state", of: (row) => html`<${State} state=${row.leads ? "leads" : "standby"}/>`},
      {name: "address", of: (row) => html`<a href=${/^https?:/.test(row.http) ? row.http : undefined} rel="noreferrer">${row.http}</a>`}, {name: "since", of: (row) => html`<${Moment} at=${row.since}/>`}]}/>
    <h2>This master${master.id && `: ${master.id}`}</h2>
    <${Facts} pairs=${[["state", html`<${State} state=${master.leads ? "leads" : "standby"}/>`], ["Term", master.term], ["revision of the registry", count(master.revision)], ["host", master.host], ["process", master.pid || null],
      ["since", master.since && html`<${Moment} at=${master.since}/>`], ["flows", Object.entries(master.states).map(([state, number]) => `${number} ${state}`).join(", ") || "none"],
      ["last reconciliation", cycle && html`<${Moment} at=${cycle.at}/>, took ${duration(cycle.took_s)}`], ["flows reconciled", cycle && `${cycle.selected} of ${cycle.flows}, ${count(cycle.decided)} decisions`]]}/>
    ${master.decided.length > 0 && html`<details><summary>The last decisions</summary><${Table} caption="decisions" rows=${master.decided} columns=${[
      {name: "time", of: (row) => html`<${Moment} at=${row.at}/>`}, {name: "flow", of: (row) => row.flow && html`<a href=${`#/flows/${encodeURIComponent(row.flow)}`}>${row.flow}</a>`}, {name: "decision", of: (row) => row.what}]}/></details>`}`;
}

const Nodes = ({nodes}) => html`<h2>Nodes</h2>${nodes.length === 0 ? html`<p class="quiet">No node has registered yet. One is started with: <code>scribengin server node</code></p>` : html`<${Table} caption="nodes" rows=${nodes} keyOf=${(row) => row.node} columns=${[
  {name: "node", of: (row) => html`<a href=${link(row.node)}>${row.node}</a>`}, {name: "state", of: (row) => html`<${State} state=${row.state}/>`},
  {name: "cores", kind: "number", of: (row) => row.cores || "no limit"}, {name: "memory", kind: "number", of: (row) => row.memory_bytes ? bytes(row.memory_bytes) : "no limit"},
  {name: "Spark", of: (row) => row.spark || "in the workers"}, {name: "workers", of: (row) => row.workers.join(", ") || "none"}, {name: "mapped tiers", of: (row) => row.mapped.join(", ") || "none"}, {name: "host", of: (row) => row.host}, {name: "since", of: (row) => html`<${Moment} at=${row.since}/>`}]}/>`}`;

/** The servers of the registry, as they describe themselves. */
function Servers() {
  const answer = useAnswer("registry-servers", {every: 10});
  return html`<h2>ZooKeeper</h2><${Answer} of=${answer}>${({link: state, left_s: left, servers}) => html`
    <p>The session of this master is <${State} state=${state} look=${state === "connected" ? "good" : "bad"}/>${left > 0 && `, and lives for ${duration(left)} at least`}.</p>
    ${servers.length === 0 ? html`<p class="quiet">The registry is in the memory of this process.</p>` : html`<${Table} caption="ZooKeeper servers" rows=${servers} keyOf=${(row) => row.server} columns=${[
      {name: "server", of: (row) => row.server}, {name: "state", of: (row) => html`<${State} state=${row.mode || "no answer"} look=${row.mode ? "good" : "bad"}/>`},
      {name: "version", of: (row) => row.version || "–"}, {name: "clients", kind: "number", of: (row) => count(row.clients)}, {name: "problem", of: (row) => row.problem}]}/>`}`}</${Answer}>`;
}

const RANKS = ["away", "decommissioned", "up"];

export default function Hosts() {
  const answer = useAnswer("master", {every: 3});
  return html`<h1>Hosts</h1><${Answer} of=${answer}>${(master) => html`<${Nodes} nodes=${[...master.nodes].sort((a, b) => RANKS.indexOf(a.state) - RANKS.indexOf(b.state))}/><${Masters} master=${master}/>`}</${Answer}><${Servers}/>`;
}

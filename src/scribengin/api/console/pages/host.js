// One node: what the registry records about it, and what it reports now.
import {Act, command} from "../lib/act.js";
import {html, useState} from "../lib/html.js";
import {path} from "../lib/api.js";
import {bytes, count} from "../lib/format.js";
import {link as flowLink} from "../lib/flow.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, Opener, useAct} from "../lib/opener.js";
import {Answer, Facts, Fault, Moment, State, Table} from "../lib/ui.js";

/** The address of a node's page in the console. */
export const link = (node) => `#/hosts/${encodeURIComponent(node)}`;

const workers = (changed) => changed.workers.length ? html`<p>It still has: ${changed.workers.join(", ")}</p>` : html`<p>It has no workers.</p>`;

function acts({node, state, up}) {
  const about = {role: "operator", path: path`nodes/${node}/decommissioned`};
  const drain = state === "decommissioned"
    ? {...about, title: "undrain", says: `The node ${node} takes workers again.`, method: "DELETE", command: command("scribengin", "node", "undrain", node), after: workers}
    : {...about, title: "drain", says: "The node gets no new workers. Its workers move to other nodes after the current Batches.", method: "PUT", command: command("scribengin", "node", "drain", node), name: node, after: workers};
  const remove = {title: "remove", says: "The node is removed from the registry. This is for a machine that no longer exists.", role: "operator", method: "DELETE", path: path`nodes/${node}`,
    command: command("scribengin", "node", "remove", node), name: node, after: () => html`<p>The node is removed. <a href="#/hosts">Go to the hosts</a>.</p>`};
  return up ? [drain] : [drain, remove];
}

function MapTier({node, onClose, onDone}) {
  const [name, setName] = useState("");
  const [start, setStart] = useState(false);
  const [flow, tier] = name.trim().split(".");
  const act = {
    title: `map a tier to ${node}`, says: "The tier runs on this node only. If it runs elsewhere, it stops there after the current Batches and continues here.", role: "operator", method: "PUT",
    button: start ? "start the tier" : "map the tier", disabled: !flow || !tier, path: path`flows/${flow || "FLOW"}/tiers/${tier || "TIER"}/node`, body: {node, start},
    command: command("scribengin", "node", start ? "start-tier" : "map", name.trim() || "FLOW.TIER", node),
    after: (bound) => html`<p>${bound.tier} ${bound.changed ? `will run on ${bound.node}.` : `was mapped to ${bound.node} before.`}</p>`,
  };
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    <p><label>tier <input value=${name} placeholder="FLOW.TIER" autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value)}/></label></p>
    <p><label><input type="checkbox" checked=${start} onChange=${(event) => setStart(event.target.checked)}/> start its flow</label></p>
  </${Act}>`;
}

function unmap(name) {
  const [flow, tier] = name.split(".");
  return {title: "unmap", says: `${name} may run on any node; it stays where it is.`, role: "operator", method: "DELETE", path: path`flows/${flow}/tiers/${tier}/node`, command: command("scribengin", "node", "unmap", name),
    after: () => html`<p>${name} may run on any node.</p>`};
}

const taken = ({has, given}, shown) => `${shown(given)}, ${has ? `of ${shown(has)}` : "no limit"}`;

function Reported({now}) {
  return html`<${Facts} pairs=${[["registry", now.registry], ["lease", now.lease && (now.lease.held ? `held, Term ${now.lease.term}` : "not held")], ["master that leads", now.master?.id],
      ["cores given to workers", now.capacity && taken(now.capacity.cores, count)], ["memory given to workers", now.capacity && taken(now.capacity.memory_bytes, bytes)]]}/>
    ${now.workers?.length > 0 && html`<h3>Workers</h3><${Table} caption="workers" rows=${now.workers} keyOf=${(row) => row.worker} columns=${[
      {name: "worker", of: (row) => html`<a href=${`${flowLink(row.worker.split(".")[0])}/workers`}>${row.worker}</a>`}, {name: "state", of: (row) => html`<${State} state=${row.state}/>`}, {name: "process", kind: "number", of: (row) => row.pid},
      {name: "last order", of: (row) => row.asked}, {name: "cores", kind: "number", of: (row) => row.cores}, {name: "memory", kind: "number", of: (row) => row.memory_bytes ? bytes(row.memory_bytes) : "no limit"},
      {name: "since", of: (row) => html`<${Moment} at=${row.since}/>`}, {name: "reason", of: (row) => row.reason}]}/>`}
    ${now.folders?.length > 0 && html`<h3>Folders that it maintains</h3><${Table} caption="folders" rows=${now.folders} keyOf=${(row) => row.path} columns=${[
      {name: "folder", of: (row) => html`<code>${row.path}</code>`}, {name: "last run", of: (row) => html`<${Moment} at=${row.looked_at}/>`}, {name: "last work", of: (row) => html`<${Moment} at=${row.did_at}/>`},
      {name: "files removed", kind: "number", of: (row) => count(row.files)}, {name: "bytes", kind: "number", of: (row) => bytes(row.bytes)}, {name: "error", of: (row) => row.error}]}/>`}
    ${now.orders?.length > 0 && html`<details><summary>The last orders</summary><${Table} caption="orders" rows=${now.orders} columns=${[
      {name: "time", of: (row) => html`<${Moment} at=${row.at}/>`}, {name: "worker", of: (row) => row.worker}, {name: "order", of: (row) => row.ask}]}/></details>`}
    ${now.packages?.length > 0 && html`<details><summary>Packages</summary><${Table} caption="packages" rows=${now.packages} keyOf=${(row) => row.id} columns=${[
      {name: "package", of: (row) => html`<code>${row.id.slice(0, 16)}</code>`}, {name: "size", kind: "number", of: (row) => bytes(row.size)}]}/></details>`}`;
}

function Parts({view, open}) {
  const row = view.node;
  return html`<${Facts} pairs=${[["host", row.host], ["process", row.pid], ["address", row.http], ["cores", row.cores || "no limit"], ["memory", row.memory_bytes ? bytes(row.memory_bytes) : "no limit"], ["folder", row.home], ["Spark", row.spark || "in the workers"],
      ["since", row.since && html`<${Moment} at=${row.since}/>`], ["workers", row.workers.join(", ") || "none"]]}/>
    <h2>Mapped tiers</h2>
    ${row.mapped.length === 0 ? html`<p class="quiet">No tier is bound to this node.</p>` : html`<ul class="plain">${row.mapped.map((name) => html`<li class="row" key=${name}><a href=${flowLink(name.split(".")[0])}>${name}</a> <${Buttons} acts=${[unmap(name)]} open=${open} of=${name}/></li>`)}</ul>`}
    <h2>What it reports now</h2>
    ${view.now ? html`<${Reported} now=${view.now}/>` : html`<div class="fault"><p>The node does not answer this master: ${view.silent}</p></div>`}`;
}

export default function Host({node}) {
  const answer = useAnswer(path`nodes/${node}`, {every: 4});
  const [open, dialog] = useAct(answer.again);
  const gone = answer.error?.status === 404;
  const row = gone ? null : answer.data?.node;
  return html`<p class="crumbs"><a href="#/hosts">Hosts</a> / </p>
    <div class="row"><h1 dir="auto">${node}</h1>${row && html`<${State} state=${row.state}/>
      <span class="row acts"><${Buttons} acts=${acts(row)} open=${open}/>
      <${Opener} label="map a tier" role="operator" onDone=${answer.again}>${(ends) => html`<${MapTier} node=${node} ...${ends}/>`}</${Opener}></span>`}</div>
    ${gone ? html`<${Fault} error=${answer.error}/>` : html`<${Answer} of=${answer}>${(view) => html`<${Parts} view=${view} open=${open}/>`}</${Answer}>`}${dialog}`;
}

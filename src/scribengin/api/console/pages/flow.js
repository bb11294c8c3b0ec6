// A flow as a live graph: sources, steps and sinks; tiers as frames, channels as gates; the bottleneck marked.
import {html, useMemo} from "../lib/html.js";
import {path} from "../lib/api.js";
import {bytes, count, duration, rate} from "../lib/format.js";
import {FlowFrame, link, queriesOf} from "../lib/flow.js";
import {corner, cut, Drawing, layOut, newGraph, useNear, useSight} from "../lib/graph.js";
import {useAnswer, useFlowAnswer} from "../lib/live.js";
import {Sample} from "../lib/node_sample.js";
import {Answer, Facts, Moment, State, Table} from "../lib/ui.js";

const WIDE = 190, HIGH = 62, GATE = 46;

/** Where everything is drawn. It changes only with the flow's shape, not with its figures. */
function place(graph) {
  const drawn = newGraph({compound: true});
  const framed = graph.tiers.length > 1;
  graph.nodes.forEach((node) => drawn.setNode(`n ${node.node}`, {width: WIDE, height: HIGH}));
  if (framed) {
    graph.tiers.forEach((tier) => drawn.setNode(`t ${tier.tier}`, {}));
    graph.nodes.forEach((node) => drawn.setParent(`n ${node.node}`, `t ${node.tiers[0]}`));
  }
  graph.channels.forEach((gate) => drawn.setNode(`c ${gate.channel}`, {width: 150, height: GATE}));
  graph.edges.forEach((edge) => {
    const from = `n ${edge.reads.split(".")[0]}`, to = `n ${edge.node}`, gate = edge.channel && `c ${edge.channel}`;
    if (!drawn.hasNode(from)) return;
    if (gate && drawn.hasNode(gate)) {
      drawn.setEdge(from, gate);
      drawn.setEdge(gate, to);
    } else {
      drawn.setEdge(from, to);
    }
  });
  return layOut(drawn);
}

const shape = (graph) => JSON.stringify([graph.version, graph.nodes.map((node) => [node.node, node.tiers]), graph.edges, graph.channels.map((gate) => gate.channel)]);

function figures(node) {
  if (!node.live) return "";
  const waits = node.live.lag_rows ? `${count(node.live.lag_rows)} rows wait` : node.live.lag_bytes ? `${bytes(node.live.lag_bytes)} wait` : "";
  return [rate(node.live.rows_per_s), waits].filter(Boolean).join(", ");
}

function Node({node, box, flow, slow, dead, chosen, bare}) {
  const outer = node.kind === "source" || node.kind === "sink", name = cut(node.node), about = cut(outer ? `${node.kind}: ${node.about}` : node.about, 26);
  const now = cut([figures(node), slow ? "bottleneck" : "", dead ? `${count(dead)} dead` : ""].filter(Boolean).join(", "), 26), look = dead ? "bad" : slow ? "slow" : "";
  // a graph may have hundreds of nodes, and figures change often: what is as before is not compared again
  const fixed = useMemo(() => html`<rect width=${WIDE} height=${HIGH} rx="7"/><text x="10" y="20" font-weight="600">${name}</text>${" "}<text x="10" y="37" class="small">${about}</text>${" "}`, [name, about]);
  return useMemo(() => html`<a class=${`node ${look}`} href=${bare ? undefined : link(flow, `/node/${encodeURIComponent(node.node)}`)} aria-current=${chosen ? "true" : undefined} transform=${corner(box)}>
    ${fixed}<text x="10" y="53" class="small">${now}</text></a>`, [fixed, now, look, chosen, bare, box, flow, node.node]);
}

function Gate({gate, box}) {
  const live = gate.live;
  const says = live ? (live.rows ? `${count(live.rows)} rows wait` : "empty") : "–";
  return html`<g class="gate" transform=${corner(box)}><title>${gate.channel}: ${gate.place}${live ? `, in ${rate(live.in_per_s)}, out ${rate(live.out_per_s)}` : ""}</title>
    <rect width="150" height=${GATE} rx="3"/><text x="8" y="18">${cut(gate.channel, 20)}</text>
    <text x="8" y="35" class="small">${cut(says + (live?.rows ? `, ${duration(live.age_s)} old` : "") + (live?.paused ? ", full" : ""), 21)}</text></g>`;
}

/** The drawing of a graph; `bare`: of one that does not run, whose nodes are no links. */
export function Graph({graph, flow, slow, dead, chosen, bare}) {
  const form = shape(graph);
  const placed = useMemo(() => place(graph), [form]);
  const {boxes} = placed, [drawn, near] = useSight(), unlessFar = useNear(placed);
  const tiers = graph.tiers.length > 1 && graph.tiers.map((tier) => {
    const box = boxes.get(`t ${tier.tier}`);
    return html`<g class="tier" transform=${corner(box)}><rect width=${box.width} height=${box.height} rx="9"/><text x="8" y="16" class="small">tier ${tier.tier}, ${tier.state || "created"}</text></g>`;
  });
  return html`<${Drawing} label=${`graph of ${flow}`} placed=${placed} below=${tiers} drawn=${drawn}>
    ${graph.channels.map((gate) => html`<${Gate} key=${gate.channel} gate=${gate} box=${boxes.get(`c ${gate.channel}`)}/>`)}
    ${graph.nodes.map((node) => {
      const name = node.node, box = boxes.get(`n ${name}`), letters = dead.get(name) || 0;
      return unlessFar(name, near(box), [flow, slow.has(name), letters, chosen === name].join(" "), () => html`<${Node} key=${name} node=${node} box=${box} flow=${flow} slow=${slow.has(name)} dead=${letters} chosen=${chosen === name} bare=${bare}/>`);
    })}
  </${Drawing}>`;
}

/** The lines of a node in the flow file: from its own to the next that is not deeper. */
function section(text, line) {
  const lines = text.split("\n"), depth = (each) => each.search(/\S/);
  let end = line;
  while (end < lines.length && (depth(lines[end]) > depth(lines[line - 1]) || depth(lines[end]) < 0)) end += 1;
  return lines.slice(line - 1, end).join("\n").trimEnd();
}

function Configuration({flow, version, node}) {
  const file = useAnswer(path`flows/${flow}/versions/${version}/text`);
  return html`<${Answer} of=${file}>${({file: name, text, lines}) => lines[node] && html`<h3>${name}, line ${lines[node]}</h3><pre class="text">${section(text, lines[node])}</pre>`}</${Answer}>`;
}

/** Spark's own page about a worker, if its session has one. It listens only on the machine of the worker. */
function SparkPage({of, node}) {
  if (!of?.queries.length) return null;
  if (!/^https?:\/\//.test(of.spark_page ?? "")) return html`<p class="quiet">Spark's page is off; a tier turns it on with <code>resources: {spark: {spark.ui.enabled: "true"}}</code>.</p>`;
  return html`<p><a href=${of.spark_page} target="_blank" rel="noreferrer">Spark's page of tier ${of.tier}</a> <span class="quiet">${of.spark_page}, on ${node || "the host of the worker"}</span></p>`;
}

function Panel({flow, graph, node, view, metrics}) {
  const shown = graph.nodes.find((each) => each.node === node);
  if (!shown) return html`<section aria-label="node"><h2>${node}</h2><p>The flow has no node of this name in version ${graph.version}.</p></section>`;
  const reads = graph.edges.filter((edge) => edge.node === node), feeds = graph.edges.filter((edge) => edge.reads.split(".")[0] === node);
  const to = (name) => html`<a href=${link(flow, `/node/${encodeURIComponent(name.split(".")[0])}`)}>${name}</a> `;
  const tiers = view.tiers.filter((tier) => shown.tiers.includes(tier.tier));
  const queries = queriesOf(metrics).filter((query) => shown.queries.includes(query.query));
  return html`<section class="panel" aria-label=${`node ${node}`}><h2 dir="auto">${node}</h2>
    <${Facts} pairs=${[["kind", shown.kind], ["does", shown.about], ["reads", reads.length > 0 && reads.map((edge) => to(edge.reads))], ["feeds", feeds.length > 0 && feeds.map((edge) => to(edge.node))],
      ["runs in", shown.stage], ["keeps state between Batches", shown.stateful && "yes"], ["rows by this process", shown.live && count(shown.live.rows)], ["rate", shown.live && rate(shown.live.rows_per_s)],
      ["rows that wait", shown.live?.lag_rows && count(shown.live.lag_rows)], ["bytes that wait", shown.live?.lag_bytes && bytes(shown.live.lag_bytes)], ["oldest that waits", shown.live?.lag_seconds && duration(shown.live.lag_seconds)]]}/>
    <${Configuration} flow=${flow} version=${graph.version} node=${node}/>
    <${Sample} key=${`${graph.version} ${node}`} flow=${flow} node=${node}/>
    ${queries.length > 0 && html`<${Table} caption="queries" rows=${queries} keyOf=${(query) => query.tier + query.query} columns=${[
      {name: "query", of: (query) => query.query}, {name: "state", of: (query) => html`<${State} state=${query.state} look=${query.state === "waiting" ? "quiet" : undefined}/>`}, {name: "Batches", kind: "number", of: (query) => count(query.batches)},
      {name: "rows in", kind: "number", of: (query) => count(query.rows.in)}, {name: "out", kind: "number", of: (query) => count(query.rows.out)}, {name: "filtered", kind: "number", of: (query) => count(query.rows.filtered)},
      {name: "dead", kind: "number", of: (query) => html`<a href=${link(flow, `/dead`)}>${count(query.rows.dead)}</a>`}, {name: "message", of: (query) => query.message}]}/>`}
    ${tiers.map((tier) => html`<${SparkPage} key=${tier.tier} of=${metrics?.tiers.find((each) => each.tier === tier.tier)} node=${tier.node}/>`)}
    ${tiers.map((tier) => html`<p key=${tier.tier}>tier ${tier.tier}: <${State} state=${tier.state}/> worker ${tier.worker ?? "–"} on ${tier.node ?? "–"}; <a href=${link(flow, "/workers")}>attempts</a>, <a href=${link(flow, "/logs")}>logs</a>${tier.cause && html`; ${tier.cause}`}</p>`)}
  </section>`;
}

function Parts({flow, view, node}) {
  const graph = useFlowAnswer(flow, path`flows/${flow}/graph`);
  const metrics = useFlowAnswer(flow, `${path`flows/${flow}/metrics`}?step=60`);
  const counts = useAnswer(metrics.data?.now?.dead ? path`flows/${flow}/dead-letters/counts` : null, {stamp: metrics.data?.now?.dead});
  const said = metrics.data?.now?.bottleneck || "";
  const slow = new Set(queriesOf(metrics.data).map((query) => query.slowest?.node).filter((each) => each && said.includes(`${each} takes `)));
  const dead = new Map();
  (counts.data?.groups || []).forEach((group) => dead.set(group.step, (dead.get(group.step) || 0) + group.count - group.replayed));
  const delay = metrics.data?.now?.delay_s;
  return html`${metrics.data?.going && html`<p class="now">${metrics.data.going}${delay ? html`; the oldest came at <${Moment} at=${metrics.at / 1000 - delay}/>` : ""}</p>`}
    <${Answer} of=${graph}>${(shown) => html`<${Graph} graph=${shown} flow=${flow} slow=${slow} dead=${dead} chosen=${node}/>
      ${node && html`<${Panel} flow=${flow} graph=${shown} node=${node} view=${view} metrics=${metrics.data}/>`}`}</${Answer}>`;
}

export default function Flow({flow, node}) {
  return html`<${FlowFrame} flow=${flow} now="Graph">${(view) => html`<${Answer} of=${view}>${(data) => html`<${Parts} flow=${flow} view=${data} node=${node}/>`}</${Answer}>`}</${FlowFrame}>`;
}

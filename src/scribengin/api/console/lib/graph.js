// What drawings of graphs share: where boxes are, the lines between them, texts that fit.
import dagre from "../vendor/dagre.js";
import {html, useMemo} from "./html.js";

/** A graph to fill with `setNode(name, {width, height})` and `setEdge(from, to)`. */
export const newGraph = (options = {}) =>
  new dagre.graphlib.Graph(options).setGraph({rankdir: "LR", nodesep: 26, ranksep: 70, marginx: 16, marginy: 16}).setDefaultEdgeLabel(() => ({}));

/** Where everything of a graph is drawn: {boxes: name → box, lines, width, height}. */
export function layOut(graph) {
  dagre.layout(graph);
  const boxes = new Map(graph.nodes().map((name) => [name, graph.node(name)]));
  const lines = graph.edges().map((edge) => ({from: edge.v, to: edge.w, points: graph.edge(edge).points}));
  return {boxes, lines, width: graph.graph().width || 0, height: graph.graph().height || 0};
}

/** The text, cut to so many characters as fit. */
export const cut = (text, most = 25) => text.length > most ? `${text.slice(0, most - 1)}…` : text;

/** The transform of a box. */
export const corner = (box) => `translate(${box.x - box.width / 2} ${box.y - box.height / 2})`;

const curve = (points) => `M${points.map(({x, y}) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;

/** The drawing: `below` the lines, the lines, and above them `children`. Lines are drawn again only when places change. */
export function Drawing({label, placed, below, children}) {
  const lines = useMemo(() => placed.lines.map((line) => html`<path class="edge" d=${curve(line.points)} marker-end="url(#arrow)"/>`), [placed]);
  return html`<div class="graph" role="group" aria-label=${label} tabindex="0"><svg width=${placed.width} height=${placed.height} viewBox=${`0 0 ${placed.width} ${placed.height}`}>
    <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>
    ${below}${lines}${children}</svg></div>`;
}

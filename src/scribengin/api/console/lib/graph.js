// What drawings of graphs share: where boxes are, the lines between them, texts that fit.
import dagre from "../vendor/dagre.js";
import {html, useLayoutEffect, useMemo, useRef, useState} from "./html.js";

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

const AROUND = 400;  // pixels around what is in sight, and the step in which that is followed

/** What of a drawing is in sight: [a ref for `Drawing`, box => whether it is in sight or near it]. */
export function useSight() {
  const drawn = useRef(null), [sight, see] = useState({top: 0, left: 0, bottom: innerHeight, right: innerWidth});
  useLayoutEffect(() => {
    const look = () => {
      const place = drawn.current.getBoundingClientRect(), step = (pixels) => Math.round(pixels / AROUND) * AROUND;
      const now = {top: step(-place.top), left: step(-place.left), bottom: step(innerHeight - place.top), right: step(innerWidth - place.left)};
      see((before) => Object.keys(now).every((side) => now[side] === before[side]) ? before : now);
    };
    look();
    addEventListener("scroll", look, {capture: true, passive: true});
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look, {capture: true});
      removeEventListener("resize", look);
    };
  }, []);
  const near = (box) => box.y + box.height > sight.top - AROUND && box.y - box.height < sight.bottom + AROUND && box.x + box.width > sight.left - AROUND && box.x - box.width < sight.right + AROUND;
  return [drawn, near];
}

const REST_MS = 1000;

/**
 * A function: (name, near, same, draw) => what `draw` returns. For what is not near, it is what was returned before, for about a second, so that it costs little;
 * unless `same`, a text of what must be seen at once everywhere, has changed, or the places have.
 */
export function useNear(placed) {
  const kept = useMemo(() => new Map(), [placed]);
  return (name, near, same, draw) => {
    const before = kept.get(name), now = performance.now();
    if (before && !near && before.same === same && now < before.due) return before.drawn;
    const drawn = draw();
    kept.set(name, {drawn, same, due: now + REST_MS * (0.5 + Math.random())});  // not all at the same moment
    return drawn;
  };
}

/** The drawing: `below` the lines, the lines, and above them `children`; `drawn`: see `useSight`. Lines are drawn again only when places change. */
export function Drawing({label, placed, below, children, drawn}) {
  const lines = useMemo(() => placed.lines.map((line) => html`<path class="edge" d=${curve(line.points)} marker-end="url(#arrow)"/>`), [placed]);
  return html`<div class="graph" role="group" aria-label=${label} tabindex="0"><svg ref=${drawn} width=${placed.width} height=${placed.height} viewBox=${`0 0 ${placed.width} ${placed.height}`}>
    <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>
    ${below}${lines}${children}</svg></div>`;
}

"""A flow as boxes, arrows with row counts, and frames; and its forms: SVG, characters, Mermaid."""

from __future__ import annotations

import itertools
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import escape, quoteattr

from scribengin.plan.graph_layout import Box, GraphLayout, layered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.plan.graph_layout import Edge


# A picture for Mermaid: each node once, tiers as boxes.


_SHAPES = {"source": ("([", "])"), "sink": ("[/", "/]"), "state": ("{{", "}}"), "step": ("[", "]"), "flow": ("[", "]")}


def as_mermaid(picture: GraphPicture) -> str:
    """The picture as a Mermaid flowchart. Names end in `_`, because some words, such as `end`, are reserved."""
    lines = ["flowchart LR"]
    for frame, title in picture.frames.items():
        lines.append(f'  subgraph t_{frame} ["{_escaped(title)}"]')
        lines += [f"    {_node(node)}" for node in picture.nodes if node.frame == frame]
        lines.append("  end")
    lines += [f"  {_node(node)}" for node in picture.nodes if node.frame not in picture.frames]
    for edge in picture.edges:
        arrow = "-.->" if edge.channel else "-->"
        text = f'|"{_escaped(edge.text)}"|' if edge.text else ""
        lines.append(f"  {edge.start}_ {arrow}{text} {edge.end}_")
    return "\n".join(lines) + "\n"


def _node(node: PictureNode) -> str:
    begin, end = _SHAPES[node.kind]
    text = "<br>".join(_escaped(line) for line in (f"<b>{node.id}</b>", *node.lines, node.dead) if line)
    text = text.replace("&lt;b&gt;", "<b>", 1).replace("&lt;/b&gt;", "</b>", 1)
    return f'{node.id}_{begin}"{text}"{end}'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


Kind = Literal["source", "step", "state", "sink", "flow"]
"""`state`: a step that keeps rows between Batches"""
_MOST = 34
"""the most characters of a line in a box"""


@dataclass(frozen=True, slots=True)
class PictureNode:
    """A box. `about` is the full text, `lines` the text below the name; `dead` is the text on dead letters, shown separately."""

    id: str
    kind: Kind
    about: str = ""
    lines: tuple[str, ...] = ()
    dead: str = ""
    frame: str = ""


@dataclass(frozen=True, slots=True)
class PictureEdge:
    """An arrow. `label` is the branch that it reads, `count` its row count, `channel` its channel if it connects two tiers."""

    start: str
    end: str
    label: str = ""
    count: str = ""
    channel: str = ""

    @property
    def text(self) -> str:
        """The text at the arrow."""
        return " · ".join(filter(None, [self.label, self.count, self.channel]))


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """A graph to draw. `frames`: id → title. `caption` is the time of the counts; empty without counts."""

    title: str
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...]
    frames: Mapping[str, str]
    caption: str = ""


def picture_of(graph: Mapping[str, Any], counts: Mapping[str, Any] | None = None) -> GraphPicture:
    """The picture of a graph of `graph_as_json` or the API. `counts`: from `local.edge_counts`. Without counts, the live rates of the graph
    (`live`) are shown, if there are any."""
    graph_nodes = {node["node"]: node for node in graph["nodes"]}
    of_node = {each["node"]: each for each in (counts or {}).get("nodes", ())}
    of_edge = {(each["reads"], each["node"]): each["rows"] for each in (counts or {}).get("edges", ())}
    tiers = graph["tiers"] if len(graph["tiers"]) > 1 else []
    frames = {tier["tier"]: f"tier {tier['tier']}" + (f" on {tier['group']}" if tier["group"] else "") for tier in tiers}
    nodes = []
    for id_, node in graph_nodes.items():
        own = of_node.get(id_)
        lines = [_cut(node["about"])]
        lines += [_cut(text) for text in (_counted(own) if own else _going(node))]
        dead = _dead(own) if own else ""
        frame = node["tiers"][0] if len(node["tiers"]) == 1 and frames else ""
        nodes.append(PictureNode(id_, _kind(node), node["about"], tuple(lines), dead, frame))
    edges = []
    for edge in graph["edges"]:
        start, _, branch = edge["reads"].partition(".")
        count = of_edge.get((edge["reads"], edge["node"]), "")
        if not counts:
            count = _passing(graph_nodes[start], graph_nodes[edge["node"]])
        edges.append(PictureEdge(start, edge["node"], branch, count, f"by {edge['channel']}" if edge["channel"] else ""))
    return GraphPicture(graph["flow"], tuple(nodes), tuple(edges), frames, (counts or {}).get("caption", ""))


def picture_of_workflow(workflow: Mapping[str, Any], waits: Mapping[tuple[str, str, str], str]) -> GraphPicture:
    """The picture of connected flows, as the API describes a workflow. `waits`: (feeding, reading, place) → its backlog, as text."""
    nodes = tuple(PictureNode(node["flow"], "flow", node["state"], (node["state"],)) for node in workflow["nodes"])
    edges = tuple(
        PictureEdge(edge["feeding"], edge["reading"], "", waits.get((edge["feeding"], edge["reading"], edge["place"]), ""), edge["place"])
        for edge in workflow["edges"]
    )
    return GraphPicture(" + ".join(node.id for node in nodes), nodes, edges, {})


def _kind(node: Mapping[str, Any]) -> Kind:
    if node["kind"] in ("source", "sink"):
        return "source" if node["kind"] == "source" else "sink"
    return "state" if node.get("stateful") else "step"


def _counted(own: Mapping[str, Any]) -> list[str]:
    """`20 in, 5 dropped`, for a node or for a Spark SQL stage that is counted as one."""
    parts = [f"{own['in']:,} in"]
    parts += [f"{own[name]:,} {name}" for name in ("dropped", "late", "held") if own.get(name)]
    return [*([f"with {own['run'].partition('+')[2]}, as one:"] if own.get("run") else []), ", ".join(parts)]


def _dead(own: Mapping[str, Any]) -> str:
    return f"{own['dead']:,} dead" if own["dead"] else ""


def _going(node: Mapping[str, Any]) -> list[str]:
    """The live text of a source or a sink, from its worker."""
    live = node.get("live")
    if not live:
        return []
    waits = f", {live['lag_rows']:,} waiting" if live.get("lag_rows") else ""
    return [f"{live['rows_per_s']:,.0f} rows/s{waits}"]


def _passing(start: Mapping[str, Any], end: Mapping[str, Any]) -> str:
    live = start.get("live") if start["kind"] == "source" else end.get("live")
    return f"{live['rows']:,}" if live else ""


def width_of(text: str) -> int:
    """The width in columns of a terminal: a wide East Asian character takes two."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)


def cut(text: str, most: int) -> str:
    """Cut a text to a maximum width."""
    if width_of(text) <= most:
        return text
    while width_of(text) > most - 1:
        text = text[:-1]
    return text + "…"


def _cut(text: str) -> str:
    return cut(text, _MOST)


# A picture as SVG, from left to right; tiers are frames. It follows the reader's light or dark mode, and needs no special font.


_CHAR = 6.7
"""width of a character at font size 12, in pixels, with a margin because fonts differ"""
_LINE = 17
_PAD = 12
_BETWEEN = 26
_BEND = 26
_MARGIN = 24
_HEAD = 26
"""the height of a frame's title"""
_STYLE = """
  svg { background: #ffffff; }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-size: 12px; fill: #1f2328; }
  .back { fill: #ffffff; }
  .name { font-weight: 600; font-size: 13px; }
  .about { fill: #57606a; }
  .dead { fill: #c62828; font-weight: 600; }
  .title { font-weight: 600; font-size: 15px; }
  .box { stroke-width: 1.4; }
  .source { fill: #e8f5e9; stroke: #2e7d32; }
  .step, .flow { fill: #f3f4f6; stroke: #57606a; }
  .state { fill: #fff3e0; stroke: #b26a00; }
  .sink { fill: #e3f2fd; stroke: #1565c0; }
  .frame { fill: #8080801a; stroke: #8c959f; stroke-dasharray: 5 4; }
  .frametitle { fill: #57606a; font-weight: 600; }
  .arrow { fill: none; stroke: #6e7781; stroke-width: 1.4; }
  .cut { stroke-dasharray: 6 3; stroke-width: 2; }
  .head { fill: #6e7781; }
  .label { font-size: 11px; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; }
    text { fill: #e6edf3; }
    .back { fill: #0d1117; }
    .about, .frametitle { fill: #9da7b3; }
    .dead { fill: #ff7b72; }
    .source { fill: #12261a; stroke: #3fb950; }
    .step, .flow { fill: #1c2128; stroke: #8b949e; }
    .state { fill: #2b1f0c; stroke: #d29922; }
    .sink { fill: #0c2138; stroke: #58a6ff; }
    .arrow { stroke: #8b949e; }
    .head { fill: #8b949e; }
    .label { stroke: #0d1117; }
  }
"""


def as_svg(picture: GraphPicture) -> str:
    """The SVG file."""
    return _Drawing(picture).text()


@dataclass(slots=True)
class _Group:
    """The nodes of a frame, or all nodes outside frames, with their own layout."""

    nodes: list[PictureNode]
    layout: GraphLayout = field(default_factory=GraphLayout)
    left: float = 0.0
    top: float = 0.0
    framed: bool = False


def _box_size(node: PictureNode) -> Box:
    lines = [*node.lines, *([node.dead] if node.dead else [])]
    width = max(len(node.id) * (_CHAR + 1.2), *(width_of(line) * _CHAR for line in lines), 60.0) + 2 * _PAD
    return Box(width, _LINE * (1 + len(lines)) + 2 * _PAD - 4)


def _room(edges: Sequence[PictureEdge]) -> float:
    """The space between two layers, for the longest text of an arrow."""
    return max([len(edge.text) * 6.2 + 34 for edge in edges if edge.text], default=52.0)


class _Drawing:
    def __init__(self, picture: GraphPicture) -> None:
        self._picture = picture
        self._edges: dict[Edge, list[PictureEdge]] = defaultdict(list)
        for edge in picture.edges:
            self._edges[edge.start, edge.end].append(edge)
        self._frame_of = {node.id: node.frame or node.id if picture.frames else "" for node in picture.nodes}
        self._groups = self._laid_out()
        self._outer = self._put_together()

    def _laid_out(self) -> dict[str, _Group]:
        groups: dict[str, _Group] = {}
        for node in self._picture.nodes:
            frame = self._frame_of[node.id]
            groups.setdefault(frame, _Group([], framed=frame in self._picture.frames)).nodes.append(node)
        for name, group in groups.items():
            boxes = {node.id: _box_size(node) for node in group.nodes}
            inside = [edge for edge in self._edges if self._frame_of[edge[0]] == self._frame_of[edge[1]] == name]
            ins = [edge for edge in self._edges if self._frame_of[edge[0]] != name == self._frame_of[edge[1]]]
            outs = [edge for edge in self._edges if self._frame_of[edge[0]] == name != self._frame_of[edge[1]]]
            ports = {_in(edge): Box(0, 1) for edge in ins} | {_out(edge): Box(0, 1) for edge in outs}
            ways = [*((_in(edge), edge[1]) for edge in ins), *inside, *((edge[0], _out(edge)) for edge in outs)]
            group.layout = layered(boxes | ports, ways, between=_BETWEEN, bend=_BEND, gap=self._gap, last=[_out(edge) for edge in outs])
        return groups

    def _gap(self, pieces: Sequence[Edge]) -> float:
        inner = [edge for edge in pieces if edge in self._edges]
        return _room([each for edge in inner for each in self._edges[edge]]) if inner else 14.0

    def _put_together(self) -> GraphLayout:
        boxes = {}
        for name, group in self._groups.items():
            pad = _PAD + 4 if group.framed else 0
            head = _HEAD if group.framed else 0
            boxes[name] = Box(group.layout.along + 2 * pad, group.layout.across + 2 * pad + head)
        outer = dict.fromkeys((self._frame_of[a], self._frame_of[b]) for a, b in self._edges if self._frame_of[a] != self._frame_of[b])

        def gap(pieces: Sequence[Edge]) -> float:
            between = [each for (a, b), found in self._edges.items() for each in found if (self._frame_of[a], self._frame_of[b]) in pieces]
            return _room(between)

        layout = layered(boxes, list(outer), between=_BETWEEN, bend=_BEND, gap=gap)
        for name, group in self._groups.items():
            group.left, group.top = layout.at[name]
        return layout

    # --- drawing ---

    def text(self) -> str:
        picture = self._picture
        top = _MARGIN + _LINE + (_LINE if picture.caption else 0) + 10
        width = max(self._outer.along + 2 * _MARGIN, len(picture.title) * 9 + 2 * _MARGIN, len(picture.caption) * _CHAR + 2 * _MARGIN)
        height = self._outer.across + top + _MARGIN
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label={quoteattr("flow " + picture.title)}>',
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
            '<rect class="back" width="100%" height="100%"/>',
            f'<text class="title" x="{_MARGIN}" y="{_MARGIN + 8}">{escape(picture.title)}</text>',
        ]
        if picture.caption:
            parts.append(f'<text class="about" x="{_MARGIN}" y="{_MARGIN + 8 + _LINE}">{escape(picture.caption)}</text>')
        parts.append(f'<g transform="translate({_MARGIN},{top})">')
        parts += [self._frame(name, group) for name, group in self._groups.items() if group.framed]
        arrows = [self._arrow(edge) for edge in self._edges]
        parts += [path for path, _ in arrows]
        parts += [self._box(group, node) for group in self._groups.values() for node in group.nodes]
        parts += [label for _, label in arrows if label]
        return "\n".join([*parts, "</g>", "</svg>"]) + "\n"

    def _frame(self, name: str, group: _Group) -> str:
        pad = _PAD + 4
        width, height = group.layout.along + 2 * pad, group.layout.across + 2 * pad + _HEAD
        title = escape(self._picture.frames[name])
        return (
            f'<rect class="frame" x="{group.left:.1f}" y="{group.top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="10"/>'
            f'<text class="frametitle" x="{group.left + pad:.1f}" y="{group.top + 20:.1f}">{title}</text>'
        )

    def _inside(self, group: _Group) -> tuple[float, float]:
        """The origin of the group's coordinates."""
        pad = _PAD + 4 if group.framed else 0
        return group.left + pad, group.top + pad + (_HEAD if group.framed else 0)

    def _box(self, group: _Group, node: PictureNode) -> str:
        left, top = self._inside(group)
        x, y = group.layout.at[node.id]
        size = _box_size(node)
        x, y = x + left, y + top
        round_ = {"source": 18, "sink": 2}.get(node.kind, 7)
        lines = [("name", node.id), *(("about", line) for line in node.lines), *([("dead", node.dead)] if node.dead else [])]
        texts = [
            f'<text class="{style}" x="{x + _PAD:.1f}" y="{y + _PAD + 8 + index * _LINE:.1f}">{escape(line)}</text>'
            for index, (style, line) in enumerate(lines)
        ]
        return (
            f"<g><title>{escape(f'{node.kind} {node.id}: {node.about}')}</title>"
            f'<rect class="box {node.kind}" x="{x:.1f}" y="{y:.1f}" width="{size.along:.1f}" height="{size.across:.1f}" rx="{round_}"/>'
            f"{''.join(texts)}</g>"
        )

    def _arrow(self, edge: Edge) -> tuple[str, str]:
        """(the arrow's path, its text)"""
        points = self._points(edge)
        path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            middle = (x0 + x1) / 2
            path += f" L{x1:.1f},{y1:.1f}" if abs(y0 - y1) < 0.5 else f" C{middle:.1f},{y0:.1f} {middle:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
        found = self._edges[edge]
        cut = " cut" if any(each.channel for each in found) else ""
        drawn = f'<path class="arrow{cut}" d="{path}" marker-end="url(#head)"/>'
        text = " + ".join(filter(None, [each.text for each in found]))
        if not text:
            return drawn, ""
        x, y = self._label_place(edge, points)
        return drawn, f'<text class="label" text-anchor="middle" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'

    def _label_place(self, edge: Edge, points: list[tuple[float, float]]) -> tuple[float, float]:
        """The position of the text, above the line: in the first gap between layers that the arrow crosses, or in the last, whichever has
        fewer arrows that begin or end at the same node."""
        begins = sum(other[0] == edge[0] for other in self._edges)
        ends = sum(other[1] == edge[1] for other in self._edges)
        gaps = [(one, other) for one, other in itertools.pairwise(points) if other[0] - one[0] > 30]
        (x0, y0), (x1, y1) = gaps[0] if ends > begins else gaps[-1]
        share = 0.5 if begins == ends else 0.38 if ends > begins else 0.62
        bent = 3 * share**2 - 2 * share**3
        return x0 + (x1 - x0) * share, y0 + (y1 - y0) * bent - 5

    def _points(self, edge: Edge) -> list[tuple[float, float]]:
        start, end = self._groups[self._frame_of[edge[0]]], self._groups[self._frame_of[edge[1]]]
        first, last = self._side(start, edge[0], right=True), self._side(end, edge[1], right=False)
        if start is end:
            return [first, *self._moved(start, start.layout.bends[edge]), last]
        frames = self._frame_of[edge[0]], self._frame_of[edge[1]]
        port_out, port_in = self._port(start, _out(edge), right=True), self._port(end, _in(edge), right=False)
        return [
            first,
            *self._moved(start, start.layout.bends[edge[0], _out(edge)]),
            port_out,
            *self._outer.bends[frames],
            port_in,
            *self._moved(end, end.layout.bends[_in(edge), edge[1]]),
            last,
        ]

    def _side(self, group: _Group, id_: str, *, right: bool) -> tuple[float, float]:
        left, top = self._inside(group)
        x, y = group.layout.at[id_]
        size = next(_box_size(node) for node in group.nodes if node.id == id_)
        return x + left + (size.along if right else 0), y + top + size.across / 2

    def _port(self, group: _Group, port: str, *, right: bool) -> tuple[float, float]:
        """The position at the frame's edge, at the height of the port inside."""
        _, top = self._inside(group)
        pad = _PAD + 4 if group.framed else 0
        return group.left + (group.layout.along + 2 * pad if right else 0), group.layout.at[port][1] + top

    def _moved(self, group: _Group, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        left, top = self._inside(group)
        return [(x + left, y + top) for x, y in points]


def _in(edge: Edge) -> str:
    return f"in {edge[0]} {edge[1]}"


def _out(edge: Edge) -> str:
    return f"out {edge[0]} {edge[1]}"


# A picture in characters, from top to bottom: for terminals, logs and mail.


_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = {
    _UP: "│",
    _DOWN: "│",
    _UP | _DOWN: "│",
    _LEFT: "─",
    _RIGHT: "─",
    _LEFT | _RIGHT: "─",
    _DOWN | _RIGHT: "╭",
    _DOWN | _LEFT: "╮",
    _UP | _RIGHT: "╰",
    _UP | _LEFT: "╯",
    _UP | _DOWN | _RIGHT: "├",
    _UP | _DOWN | _LEFT: "┤",
    _DOWN | _LEFT | _RIGHT: "┬",
    _UP | _LEFT | _RIGHT: "┴",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
}
_CORNERS = {"source": "╭╮╰╯", "state": "╔╗╚╝"}
_WIDEST = 28
"""the most characters of a line in a box"""


def as_text(picture: GraphPicture) -> str:
    """The picture as lines without trailing blanks. The tier of a node is in the upper border of its box."""
    return _Canvas(picture).text()


def _lines_of(node: PictureNode) -> list[str]:
    kind = f"{node.kind} " if node.kind in ("source", "sink") else ""
    lines = [kind + node.id, *node.lines, *([node.dead] if node.dead else [])]
    return [cut(line, _WIDEST) for line in lines]


def _size(node: PictureNode, title: str) -> Box:
    lines = _lines_of(node)
    return Box(len(lines) + 2, max(max(map(width_of, lines)) + 4, width_of(title) + 6 if title else 0))


def _places(line: str) -> Iterator[str]:
    """A character for each column; an empty one after a character that takes two."""
    for char in line:
        yield char
        if width_of(char) > 1:
            yield ""


class _Canvas:
    def __init__(self, picture: GraphPicture) -> None:
        self._picture = picture
        self._edges: dict[Edge, list[PictureEdge]] = defaultdict(list)
        for edge in picture.edges:
            self._edges[edge.start, edge.end].append(edge)
        self._boxes = {node.id: _size(node, picture.frames.get(node.frame, "")) for node in picture.nodes}
        self._layout = layered(self._boxes, list(self._edges), between=3, bend=self._bend(), gap=self._gap)
        self._layers = {id_: index for index, ids in enumerate(self._layout.layers) for id_ in ids}
        self._strokes: dict[tuple[int, int], int] = defaultdict(int)
        self._chars: dict[tuple[int, int], str] = {}
        self._heads: dict[tuple[int, int], list[str]] = defaultdict(list)

    def _bend(self) -> int:
        return max([1, *(len(self._text(edge)) + 1 for edge in self._edges)])

    def _text(self, edge: Edge) -> str:
        """The text at its head; with the name of its start if several arrows end there, since these share one head."""
        several = sum(other[1] == edge[1] for other in self._edges) > 1
        name = f"{edge[0]} " if several else ""
        return " + ".join(f"{name}{each.text}" for each in self._edges[edge] if each.text)

    def _gap(self, pieces: Sequence[Edge]) -> float:
        """A line for each node whose arrows turn there, one for heads and texts, and one on each side; a single arrow is straight."""
        return len({start for start, _ in pieces}) + 3 if len(pieces) > 1 else 2

    def text(self) -> str:
        """Draw the whole picture."""
        for edge in self._edges:
            self._arrow(edge)
        drawn = {at: _LINES[strokes] for at, strokes in self._strokes.items()}
        for (row, column), texts in self._heads.items():
            drawn |= {(row, column + 2 + offset): char for offset, char in enumerate(", ".join(texts))}
        drawn |= self._chars
        for node in self._picture.nodes:
            drawn |= self._box(node)
        height = max((row for row, _ in drawn), default=0) + 1
        lines = [[" "] * (max((column for at, column in drawn if at == row), default=-1) + 1) for row in range(height)]
        for (row, column), char in drawn.items():
            lines[row][column] = char
        head = [f"flow {self._picture.title}" if self._picture.nodes and self._picture.nodes[0].kind != "flow" else self._picture.title]
        head += [self._picture.caption] if self._picture.caption else []
        return "\n".join([*head, "", *("".join(line).rstrip() for line in lines)]) + "\n"

    def _box(self, node: PictureNode) -> dict[tuple[int, int], str]:
        row, column = self._corner(node.id)
        size = self._boxes[node.id]
        width, height = round(size.across), round(size.along)
        one, two, three, four = tuple(_CORNERS.get(node.kind, "┌┐└┘"))
        level, upright = ("═", "║") if node.kind == "state" else ("─", "│")
        title = self._picture.frames.get(node.frame, "")
        upper = f"{level} {title} ".ljust(width - 2, level) if title else level * (width - 2)
        lines = [one + upper + two]
        lines += [f"{upright} {line}{' ' * (width - 4 - width_of(line))} {upright}" for line in _lines_of(node)]
        lines.append(three + level * (width - 2) + four)
        assert len(lines) == height, "a box is as high as its lines"
        return {(row + down, column + right): char for down, line in enumerate(lines) for right, char in enumerate(_places(line))}

    def _corner(self, id_: str) -> tuple[int, int]:
        """(line, column) of a box; the boxes of a layer begin on one line."""
        return round(self._layout.begins[self._layer(id_)]), round(self._layout.at[id_][1])

    def _arrow(self, edge: Edge) -> None:
        """Draw an arrow: down from the middle of its box, across on a line that only arrows of the same start use, and down to the middle
        of the other box."""
        start, end = edge
        row, column = self._corner(start)
        down, right = round(self._boxes[start].along), round(self._boxes[start].across)
        points = [(row + down, column + right // 2)]
        points += [(round(along), round(across)) for along, across in self._layout.bends[edge]]
        row, column = self._corner(end)
        to = column + round(self._boxes[end].across) // 2
        alone = sum(other[1] == end for other in self._edges) == 1
        points.append((row - 1, points[-1][1] if alone and abs(points[-1][1] - to) <= 2 else to))
        layer = self._layer(start)
        below = round(self._layout.begins[layer] + self._layout.depths[layer])
        self._down(row=points[0][0], to=below, column=points[0][1])
        points[0] = (below, points[0][1])
        for index, (one, other) in enumerate(pairwise(points)):
            if index % 2 == 0:
                self._piece(one, other, self._track(start, one[0]))
            else:
                self._down(one[0], other[0], one[1])
        self._chars[points[-1]] = "▼"
        if text := self._text(edge):
            self._heads[points[-1]].append(text)

    def _track(self, start: str, row: int) -> int:
        """The line below `row` on which the arrows of `start` turn."""
        layer = max(index for index, begin in enumerate(self._layout.begins) if begin + self._layout.depths[index] <= row)
        starts = list(dict.fromkeys(edge[0] for edge in self._edges if self._layer(edge[0]) <= layer < self._layer(edge[1])))
        return row + 1 + starts.index(start)

    def _layer(self, id_: str) -> int:
        return self._layers[id_]

    def _piece(self, one: tuple[int, int], other: tuple[int, int], track: int) -> None:
        (row, column), (to, across) = one, other
        if column == across:
            self._down(row, to, column)
            return
        self._down(row, track, column)
        self._strokes[track, column] |= _UP | (_RIGHT if across > column else _LEFT)
        for between in range(min(column, across) + 1, max(column, across)):
            self._strokes[track, between] |= _LEFT | _RIGHT
        self._strokes[track, across] |= _DOWN | (_LEFT if across > column else _RIGHT)
        self._down(track + 1, to, across)

    def _down(self, row: int, to: int, column: int) -> None:
        for each in range(row, to):
            self._strokes[each, column] |= _UP | _DOWN

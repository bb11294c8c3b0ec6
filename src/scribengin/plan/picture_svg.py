"""A picture as SVG, from left to right; tiers are frames. It follows the reader's choice of light or dark, and needs no font of its own."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from scribengin.plan.layered import Box, GraphLayout, layered
from scribengin.plan.picture import width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.plan.layered import Edge
    from scribengin.plan.picture import GraphPicture, PictureEdge, PictureNode

_CHAR = 6.7
"""pixels of a character of 12, widely measured: fonts differ"""
_LINE = 17
_PAD = 12
_BETWEEN = 26
_BEND = 26
_MARGIN = 24
_HEAD = 26
"""of a frame, for its title"""
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
    """The whole file."""
    return _Drawing(picture).text()


@dataclass(slots=True)
class _Group:
    """A frame's nodes, or all that is in none, laid out by themselves. `ins` and `outs` are places where arrows come in and leave."""

    nodes: list[PictureNode]
    layout: GraphLayout = field(default_factory=GraphLayout)
    left: float = 0.0
    top: float = 0.0
    framed: bool = False


def _size(node: PictureNode) -> Box:
    lines = [*node.lines, *([node.dead] if node.dead else [])]
    width = max(len(node.id) * (_CHAR + 1.2), *(width_of(line) * _CHAR for line in lines), 60.0) + 2 * _PAD
    return Box(width, _LINE * (1 + len(lines)) + 2 * _PAD - 4)


def _room(edges: Sequence[PictureEdge]) -> float:
    """Between two layers: for the longest text of an arrow."""
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
            boxes = {node.id: _size(node) for node in group.nodes}
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
        """Where the group's own places begin."""
        pad = _PAD + 4 if group.framed else 0
        return group.left + pad, group.top + pad + (_HEAD if group.framed else 0)

    def _box(self, group: _Group, node: PictureNode) -> str:
        left, top = self._inside(group)
        x, y = group.layout.at[node.id]
        size = _size(node)
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
        """(its path, its text)"""
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
        """In the first room that the arrow crosses, or the last, where fewer others begin or end with it; above its line."""
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
        size = next(_size(node) for node in group.nodes if node.id == id_)
        return x + left + (size.along if right else 0), y + top + size.across / 2

    def _port(self, group: _Group, port: str, *, right: bool) -> tuple[float, float]:
        """At the frame's edge, as high as the port lies inside."""
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

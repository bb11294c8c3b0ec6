"""A picture in characters, from top to bottom: for terminals, logs and mail."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from scribengin.plan.layered import Box, layered
from scribengin.plan.picture import cut, width_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scribengin.plan.layered import Edge
    from scribengin.plan.picture import GraphPicture, PictureEdge, PictureNode

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
"""characters of a line in a box"""


def as_text(picture: GraphPicture) -> str:
    """The lines, without blanks at their ends. The tier of a node stands in the upper side of its box."""
    return _Canvas(picture).text()


def _lines_of(node: PictureNode) -> list[str]:
    kind = f"{node.kind} " if node.kind in ("source", "sink") else ""
    lines = [kind + node.id, *node.lines, *([node.dead] if node.dead else [])]
    return [cut(line, _WIDEST) for line in lines]


def _size(node: PictureNode, title: str) -> Box:
    lines = _lines_of(node)
    return Box(len(lines) + 2, max(max(map(width_of, lines)) + 4, width_of(title) + 6 if title else 0))


def _places(line: str) -> Iterator[str]:
    """A character for each place; none behind one that takes two."""
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
        """What stands at its head; with its beginning's name where several end there, for these have one head."""
        several = sum(other[1] == edge[1] for other in self._edges) > 1
        name = f"{edge[0]} " if several else ""
        return " + ".join(f"{name}{each.text}" for each in self._edges[edge] if each.text)

    def _gap(self, pieces: Sequence[Edge]) -> float:
        """A line for each node whose arrows turn there, one for heads and texts, and one on each side; one arrow alone goes straight."""
        return len({start for start, _ in pieces}) + 3 if len(pieces) > 1 else 2

    def text(self) -> str:
        """Draw all of it."""
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
        """Boxes of a layer begin on one line."""
        return round(self._layout.begins[self._layer(id_)]), round(self._layout.at[id_][1])

    def _arrow(self, edge: Edge) -> None:
        """Down from the middle of its box, aside on a line of its beginning's own, down to the middle of the other."""
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
        """Which line of the room below `row` the arrows of `start` turn on."""
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

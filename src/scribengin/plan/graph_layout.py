"""Places the boxes of a graph: in layers along the stream, with few crossings, each box near its neighbours.

The method is Sugiyama's. The layer of a box is its longest distance from a beginning. An arrow over several layers gets a place in each of
them, so that it passes between boxes. The order in a layer follows the mean position of the neighbours, in several passes up and down; then
the positions are computed in the same way. Sizes are in any unit, a character or a pixel. *Along* is the direction of the stream, *across*
the other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence


_SWEEPS = 8

Edge = tuple[str, str]
Bend = tuple[str, str, int]
"""a place of an arrow in a layer between its ends: start, end, layer"""


@dataclass(frozen=True, slots=True)
class Box:
    """The size of a node, along the stream and across it."""

    along: float
    across: float


@dataclass(slots=True)
class GraphLayout:
    """The layout. `at`: node → (along, across) of its first corner. `bends`: arrow → the points that it passes, in the direction of the
    stream."""

    at: dict[str, tuple[float, float]] = field(default_factory=dict)
    bends: dict[Edge, list[tuple[float, float]]] = field(default_factory=dict)
    layers: list[list[str]] = field(default_factory=list)
    """the nodes of each layer"""
    begins: list[float] = field(default_factory=list)
    """where each layer begins, along"""
    depths: list[float] = field(default_factory=list)
    """the depth of each layer, along"""
    along: float = 0.0
    across: float = 0.0


def layered(
    boxes: Mapping[str, Box],
    edges: Sequence[Edge],
    *,
    between: float,
    bend: float,
    gap: Callable[[Sequence[Edge]], float],
    last: Collection[str] = (),
) -> GraphLayout:
    """Place the boxes.

    Args:
        boxes: Node → its size.
        edges: The arrows; they have no cycle.
        between: The space, across, between two boxes.
        bend: The space, across, that a passing arrow takes in a layer.
        gap: Returns the space, along, between two layers for the arrows there.
        last: Nodes to put in a layer after all others.
    """
    layer = _layers(boxes, edges, last)
    rows: list[list[str | Bend]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for id_ in boxes:
        rows[layer[id_]].append(id_)
    up: dict[str | Bend, list[str | Bend]] = defaultdict(list)
    down: dict[str | Bend, list[str | Bend]] = defaultdict(list)
    ways: dict[Edge, list[str | Bend]] = {}
    for start, end in dict.fromkeys(edges):
        bends: list[str | Bend] = [(start, end, index) for index in range(layer[start] + 1, layer[end])]
        for each in bends:
            rows[each[2]].append(each)  # type: ignore[index]
        ways[start, end] = [start, *bends, end]
        for one, other in pairwise(ways[start, end]):
            down[one].append(other)
            up[other].append(one)
    _order(rows, up, down)
    sizes: dict[str | Bend, float] = {each: boxes[each].across if isinstance(each, str) else bend for row in rows for each in row}
    across = _places(rows, sizes, up, down, between)
    return _laid(boxes, rows, ways, sizes, across, layer, gap)


def _layers(boxes: Mapping[str, Box], edges: Sequence[Edge], last: Collection[str]) -> dict[str, int]:
    parents: dict[str, list[str]] = {id_: [] for id_ in boxes}
    for start, end in edges:
        parents[end].append(start)
    layer: dict[str, int] = {}

    def of(id_: str) -> int:
        if id_ not in layer:
            layer[id_] = max((of(parent) + 1 for parent in parents[id_]), default=0)
        return layer[id_]

    deepest = max((of(id_) for id_ in boxes if id_ not in last), default=-1)
    layer.update(dict.fromkeys(last, deepest + 1))
    # a beginning is placed in the layer before its first reader, not in the first layer
    for id_ in boxes:
        below = [layer[end] for start, end in edges if start == id_]
        if not parents[id_] and below and id_ not in last:
            layer[id_] = max(0, min(below) - 1)
    return layer


def _order(rows: list[list[str | Bend]], up: Mapping[str | Bend, list[str | Bend]], down: Mapping[str | Bend, list[str | Bend]]) -> None:
    """Sort each row by the mean position of the neighbours, downwards and upwards in turn; keep the result with the fewest crossings."""
    best, fewest = [list(row) for row in rows], _crossings(rows, down)
    for sweep in range(_SWEEPS):
        near, order = (up, range(1, len(rows))) if sweep % 2 == 0 else (down, range(len(rows) - 2, -1, -1))
        for index in order:
            beside = {each: place for place, each in enumerate(rows[index + (-1 if near is up else 1)])}
            own = {each: place for place, each in enumerate(rows[index])}

            def mean(
                each: str | Bend, near: Mapping[str | Bend, list[str | Bend]] = near, beside: Mapping[str | Bend, int] = beside
            ) -> float:
                found = [beside[other] for other in near.get(each, ()) if other in beside]
                return sum(found) / len(found) if found else -1.0

            means = {each: mean(each) for each in rows[index]}
            rows[index].sort(key=lambda each: (means[each] if means[each] >= 0 else own[each], own[each]))
        crossings = _crossings(rows, down)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    rows[:] = best


def _crossings(rows: list[list[str | Bend]], down: Mapping[str | Bend, list[str | Bend]]) -> int:
    total = 0
    for row, below in pairwise(rows):
        place = {each: index for index, each in enumerate(below)}
        ends = [place[other] for each in row for other in sorted(down.get(each, ()), key=place.__getitem__)]
        total += sum(one > other for index, one in enumerate(ends) for other in ends[index + 1 :])
    return total


def _places(
    rows: list[list[str | Bend]],
    sizes: Mapping[str | Bend, float],
    up: Mapping[str | Bend, list[str | Bend]],
    down: Mapping[str | Bend, list[str | Bend]],
    between: float,
) -> dict[str | Bend, float]:
    """The middle of each member, across: as close to the mean of its neighbours as the order allows."""
    middle: dict[str | Bend, float] = {}
    for row in rows:
        at = 0.0
        for each in row:
            middle[each] = at + sizes[each] / 2
            at += sizes[each] + between
    for sweep in range(2 * _SWEEPS):
        near = (up, down)[sweep % 2]
        for row in rows if near is up else reversed(rows):
            wanted = []
            for each in row:
                found = [middle[other] for other in near.get(each, ())]
                wanted.append(sum(found) / len(found) if found else middle[each])
            _settle(row, wanted, sizes, between, middle)
    least = min((middle[each] - sizes[each] / 2 for each in middle), default=0.0)
    return {each: place - least for each, place in middle.items()}


def _settle(
    row: list[str | Bend], wanted: list[float], sizes: Mapping[str | Bend, float], between: float, middle: dict[str | Bend, float]
) -> None:
    """Set middles close to `wanted` that keep the order and the space. Members that would overlap are placed side by side, around the mean
    of what they want."""
    blocks: list[tuple[list[int], float]] = []
    offset = [0.0] * len(row)
    for index in range(1, len(row)):
        offset[index] = offset[index - 1] + (sizes[row[index - 1]] + sizes[row[index]]) / 2 + between
    for index in range(len(row)):
        members, at = [index], wanted[index] - offset[index]
        while blocks and blocks[-1][1] > at:
            before, _ = blocks.pop()
            members = before + members
            at = sum(wanted[each] - offset[each] for each in members) / len(members)
        blocks.append((members, at))
    for members, at in blocks:
        for each in members:
            middle[row[each]] = at + offset[each]


def _laid(
    boxes: Mapping[str, Box],
    rows: list[list[str | Bend]],
    ways: Mapping[Edge, list[str | Bend]],
    sizes: Mapping[str | Bend, float],
    across: Mapping[str | Bend, float],
    layer: Mapping[str, int],
    gap: Callable[[Sequence[Edge]], float],
) -> GraphLayout:
    out = GraphLayout(layers=[[each for each in row if isinstance(each, str)] for row in rows])
    pieces: dict[int, list[Edge]] = defaultdict(list)
    for start, end in ways:
        for index in range(layer[start], layer[end]):
            pieces[index].append((start, end))
    at = 0.0
    for index, row in enumerate(rows):
        depth = max((boxes[each].along for each in row if isinstance(each, str)), default=0.0)
        out.begins.append(at)
        out.depths.append(depth)
        at += depth + (gap(pieces[index]) if index < len(rows) - 1 else 0.0)
    out.along = at
    out.across = max((across[each] + sizes[each] / 2 for each in across), default=0.0)
    for id_, box in boxes.items():
        begin, depth = out.begins[layer[id_]], out.depths[layer[id_]]
        out.at[id_] = (begin + (depth - box.along) / 2, across[id_] - box.across / 2)
    for edge, way in ways.items():
        points: list[tuple[float, float]] = []
        for each in way[1:-1]:
            begin, depth = out.begins[each[2]], out.depths[each[2]]  # type: ignore[index]
            points += [(begin, across[each]), (begin + depth, across[each])]
        out.bends[edge] = points
    return out

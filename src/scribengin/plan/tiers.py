"""Assigns the nodes of a flow to tiers: the nodes that `tiers` names, and the others by what they read and what reads them. Works on flows
with errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.plan.graph import base, inputs_of
from scribengin.spec.model import Source, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.plan.graph import Graph

MAIN = "main"
"""the only tier of a flow without tiers"""
RESERVED = {MAIN: "it is the tier of a flow without `tiers`", "channels": "the state folder uses it for channels"}
"""reserved names of tiers, with the reason"""


@dataclass(frozen=True, slots=True)
class CutEdge:
    """An edge between two tiers: `reader`, of tier `reading`, reads `reference` (`a`, `r.big`), of tier `feeding`."""

    reference: str
    reader: str
    feeding: str
    reading: str

    @property
    def name(self) -> str:
        """The edge as written in a flow file."""
        return f"{self.reference} -> {self.reader}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Node → tier. A source that no tier names has no tier: each tier that uses it reads it itself."""

    tier_of: Mapping[str, str]
    torn: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """nodes that no tier names and whose tier is ambiguous → the possible tiers, in the flow's order"""
    cut: tuple[CutEdge, ...] = ()
    """the edges from one tier to another, in the flow's order"""

    def order(self, tiers: Iterable[str]) -> tuple[str, ...]:
        """The tiers, each after those upstream of it; tiers in a cycle are in the given order."""
        feeding: dict[str, set[str]] = {tier: set() for tier in tiers}
        for edge in self.cut:
            feeding[edge.reading].add(edge.feeding)
        placed: dict[str, None] = {}
        while len(placed) < len(feeding):
            ready = [tier for tier, before in feeding.items() if tier not in placed and before <= placed.keys()]
            placed |= dict.fromkeys(ready or [tier for tier in feeding if tier not in placed])
        return tuple(placed)


def assign(graph: Graph) -> Assignment:
    """Assign every node to a tier. A node belongs to the tier that names it; else to that of its inputs, or, if it reads only sources, to
    that of its readers. Each tier reads static nodes itself."""
    if not graph.flow.tiers:
        return Assignment(dict.fromkeys(graph.nodes, MAIN))
    named = {id_: tier.id for tier in reversed(list(graph.flow.tiers.values())) for id_ in tier.steps if id_ in graph.nodes}
    placed = dict(named)
    before = -1
    while before != len(placed):
        before = len(placed)
        _place(graph, placed, graph.order, graph.parents)
        _place(graph, placed, reversed(graph.order), graph.readers)
    order = list(graph.flow.tiers)
    torn = {}
    for id_, node in graph.nodes.items():
        if id_ not in placed and not isinstance(node, Source):
            near = {placed[other] for other in (*graph.parents[id_], *graph.readers[id_]) if other in placed}
            torn[id_] = tuple(sorted(near, key=order.index)) or tuple(order)
    cut = tuple(
        CutEdge(reference, id_, placed[base(reference)], placed[id_])
        for id_, node in graph.nodes.items()
        if id_ in placed
        for reference in dict.fromkeys(inputs_of(node))
        if placed.get(base(reference), placed[id_]) != placed[id_] and not is_static(graph, base(reference))
    )
    return Assignment({id_: placed[id_] for id_ in graph.nodes if id_ in placed}, torn, cut)


def is_static(graph: Graph, id_: str) -> bool:
    """True if all sources upstream of the node are static: each tier reads the node itself."""
    sources = [node for above in graph.upstream([id_]) if isinstance(node := graph.nodes[above], Source)]
    return bool(sources) and all(source.static for source in sources)


def _place(graph: Graph, placed: dict[str, str], ids: Iterable[str], near: Mapping[str, tuple[str, ...]]) -> None:
    """Assign nodes whose neighbours on one side are all in one tier. A node that reads a step is not assigned by its readers."""
    for id_ in ids:
        if id_ in placed or isinstance(graph.nodes[id_], Source):
            continue
        if near is graph.readers and any(isinstance(graph.nodes[parent], Step) for parent in graph.parents[id_]):
            continue
        tiers = {placed.get(other) for other in near[id_] if not (isinstance(graph.nodes[other], Source) and other not in placed)}
        if len(tiers) == 1 and (tier := tiers.pop()) is not None:
            placed[id_] = tier

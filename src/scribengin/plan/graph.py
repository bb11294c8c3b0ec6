"""The graph of a Flow: readers and inputs, their order, upstream and downstream nodes. Also works on flows with errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from scribengin.spec.model import Python, Route, Sink, Source, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.spec.model import Flow, Node


def base(reference: str) -> str:
    """The node of a reference: `r` for `r.big`.

    >>> base("r.big")
    'r'
    """
    return reference.partition(".")[0]


def flat_name(reference: str) -> str:
    """A reference as one word: the name of a branch in SQL, and in a tier that reads it from a channel; the same in a flow without tiers.

    >>> flat_name("r.big")
    'r_big'
    """
    return reference.replace(".", "_")


def branches(node: Node) -> tuple[str, ...]:
    """The names that may follow the dot: a route's cases and `otherwise`, a python step's `branches`."""
    if not isinstance(node, Step):
        return ()
    match node.action:
        case Route(cases, otherwise):
            return (*(name for name, _ in cases), *([otherwise] if otherwise else []))
        case Python():
            return node.action.branches
        case _:
            return ()


def inputs_of(node: Node) -> tuple[str, ...]:
    """The references that `node` reads, in order; empty for a source."""
    return () if isinstance(node, Source) else node.inputs


def query_sinks(flow: Flow) -> dict[str, list[Sink]]:
    """Name of a query → its sinks. The name is the sink's own id, or the one after `together:`."""
    groups: dict[str, list[Sink]] = {}
    for sink in flow.sinks.values():
        groups.setdefault(sink.together or sink.id, []).append(sink)
    return groups


@dataclass(frozen=True)
class Graph:
    """The graph of one Flow. Unknown inputs are left out; `cycles` has the circular dependencies."""

    flow: Flow

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Every node, sources first, in the file's order."""
        return {**self.flow.sources, **self.flow.steps, **self.flow.sinks}

    @property
    def reading(self) -> Iterator[Step | Sink]:
        """Every node that reads others, in the file's order."""
        yield from self.flow.steps.values()
        yield from self.flow.sinks.values()

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """Node → the nodes that it reads, each once, in the order of its inputs."""
        known = self.nodes
        return {
            id_: tuple(dict.fromkeys(parent for parent in map(base, inputs_of(node)) if parent in known and parent not in self.flow.sinks))
            for id_, node in known.items()
        }

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Node → the nodes that read it or a branch of it, in the file's order."""
        readers: dict[str, list[str]] = {id_: [] for id_ in self.nodes}
        for id_, parents in self.parents.items():
            for parent in parents:
                readers[parent].append(id_)
        return {id_: tuple(found) for id_, found in readers.items()}

    @cached_property
    def references(self) -> frozenset[str]:
        """Every reference that some node reads: `a`, `r.big`."""
        return frozenset(reference for node in self.nodes.values() for reference in inputs_of(node))

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Every node after all that it reads, otherwise in the file's order as far as possible; nodes of a cycle are in any order."""
        placed: dict[str, None] = {}
        for start in self.nodes:
            waiting = [(start, iter(self.parents[start]))]
            open_ = {start}
            while waiting:
                id_, parents = waiting[-1]
                parent = next((p for p in parents if p not in placed and p not in open_), None)
                if parent is None:
                    waiting.pop()
                    placed.setdefault(id_)
                else:
                    open_.add(parent)
                    waiting.append((parent, iter(self.parents[parent])))
        return tuple(placed)

    @cached_property
    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Each cycle once, in the direction of the stream, as `(a, b)` for a -> b -> a; it begins with its first node in the file."""
        found: dict[frozenset[str], tuple[str, ...]] = {}
        for start in self.nodes:
            path = self._way_back(start)
            if path and frozenset(path) not in found and not any(start in cycle for cycle in found):
                found[frozenset(path)] = path
        return tuple(found.values())

    def _way_back(self, start: str) -> tuple[str, ...] | None:
        """The shortest path, in the direction of the stream, from `start` to itself; None if there is none."""
        ways: list[tuple[str, ...]] = [(start,)]
        seen: set[str] = set()
        while ways:
            way = ways.pop(0)
            for reader in self.readers[way[-1]]:
                if reader == start:
                    return way
                if reader not in seen:
                    seen.add(reader)
                    ways.append((*way, reader))
        return None

    def upstream(self, ids: Iterable[str]) -> frozenset[str]:
        """`ids` and all nodes upstream of them; ids that the flow does not have are left out."""
        return _reach(ids, self.parents)

    def downstream(self, ids: Iterable[str]) -> frozenset[str]:
        """`ids` and all nodes downstream of them; ids that the flow does not have are left out."""
        return _reach(ids, self.readers)

    def sinks_of(self, id_: str) -> tuple[Sink, ...]:
        """The sinks downstream of `id_`, in the file's order."""
        below = self.downstream([id_])
        return tuple(sink for sink in self.flow.sinks.values() if sink.id in below)


def _reach(start: Iterable[str], arrows: dict[str, tuple[str, ...]]) -> frozenset[str]:
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        id_ = waiting.pop()
        if id_ in arrows and id_ not in reached:
            reached.add(id_)
            waiting.extend(arrows[id_])
    return frozenset(reached)

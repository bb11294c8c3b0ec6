"""Connections between nodes of the ledger: the output of one node must equal the input of the next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from scribengin.plan.graph import base, branches
from scribengin.spec.model import Source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from scribengin.plan.model import QueryPlan
    from scribengin.spec.model import Flow


_MOST = 1_000
"""the most paths that are followed; each union in a chain doubles their number"""


def feeders(ledger: Collection[str], query: QueryPlan, flow: Flow) -> dict[str, tuple[str, ...]]:
    """Node of the ledger → the nodes of the ledger that it reads, for `balance`. A node whose rows are read twice, such as a stream that a
    union reads both directly and after a dedupe, is listed twice.

    A Spark SQL stage is one node of the ledger (`known+hot`): its inputs are those of its steps that are not in the stage itself, and its
    output is that of its last step. Before a stateful step the inputs of a union are separate, each with the steps after the union, and so
    are paths with and without an earlier stateful step. The inputs of a stage with state are the stages that end at its late-row counters.
    Nodes that read only a part of another node's output are left out: readers of a step with branches, whose counts cover all branches, and
    stages that only some of a union's inputs enter.
    """
    reading = _Reading(tuple(ledger), query, flow)
    found: dict[str, tuple[str, ...]] = {}
    for name in ledger:
        members = name.split("+")
        fed_by = reading.of_state(name, members) if reading.keeps_state(members) else reading.of_steps(members)
        if fed_by:
            found[name] = fed_by
    return found


@dataclass(frozen=True)
class _Way:
    """A path of rows. `steps` are Spark SQL steps without state; `begin` is the node before them, which keeps state or is counted
    separately. `part`: True if the path takes one branch of it."""

    begin: str
    steps: tuple[str, ...]
    part: bool


@dataclass(frozen=True)
class _Reading:
    ledger: tuple[str, ...]
    query: QueryPlan
    flow: Flow

    @cached_property
    def _order(self) -> dict[str, int]:
        return {node.id: index for index, node in enumerate(self.query.nodes)}

    @cached_property
    def _runs(self) -> dict[str, list[str]]:
        """Step → the ledger's nodes that end with it."""
        found: dict[str, list[str]] = {}
        for name in self.ledger:
            found.setdefault(self._last(name.split("+")), []).append(name)
        return found

    def _last(self, members: list[str]) -> str:
        # if several inputs of a union ran together, the name lists the steps of one input after those of the other
        return max(members, key=self._order.__getitem__)

    @cached_property
    def _kinds(self) -> dict[str, frozenset[bool]]:
        """Node → whether the paths of its streams contain state; both values if only some do."""
        found: dict[str, frozenset[bool]] = {}
        for node in self.query.nodes:  # in topological order
            above = frozenset(kind for ref in node.inputs for kind in found[base(ref)])
            begins = frozenset() if node.id in self.query.static_sources else frozenset({False})
            found[node.id] = frozenset({True}) if node.stateful else above if node.inputs else begins
        return found

    def keeps_state(self, members: Collection[str]) -> bool:
        return any(self.query.node(id_).stateful for id_ in members)

    def of_steps(self, members: list[str]) -> tuple[str, ...]:
        """The inputs of a stage without state, or of a node that is counted separately; empty if unknown."""
        last = self._last(members)
        if len(self._runs[last]) > 1:
            return ()
        read = [ref for id_ in members for ref in self.query.node(id_).inputs if base(ref) not in members]
        ends = [self._runs.get(base(ref), []) for ref in dict.fromkeys(read)]
        if not all(ends) or any(self._is_part(ref) for ref in read):
            return ()
        if self._is_native(last) and len(frozenset(kind for ref in read for kind in self._kinds[base(ref)])) > 1:
            return ()
        return tuple(dict.fromkeys(other for others in ends for other in others))

    def of_state(self, name: str, members: list[str]) -> tuple[str, ...]:
        """The inputs of a stage with state; empty if unknown."""
        found: dict[tuple[str | None, str], None] = {}
        for id_ in (id_ for id_ in members if self.query.node(id_).stateful):
            for ref in self.query.node(id_).inputs:
                ways = tuple(islice(self._ways(ref), _MOST))
                if self._is_part(ref) or len(ways) == _MOST:
                    return ()
                for way in ways:
                    feeder = self._at_gate(name, members, way)
                    found[feeder, "" if way.steps and feeder == way.begin else id_] = None
        last = self._last(members)
        if not self.query.node(last).stateful:
            # rows that have not passed state: a union after it reads them directly
            apart = [set(run.split("+")) for run in self._runs[last]]
            for way in islice(self._ways(last), _MOST):
                found["" if set(way.steps) in apart else self._uncut(members, way), ""] = None
        return () if any(feeder is None for feeder, _ in found) else tuple(feeder for feeder, _ in found if feeder)

    def _at_gate(self, name: str, members: list[str], way: _Way) -> str | None:
        """The stage whose rows enter a stateful step on that path; "" if the path has state inside this stage, None if unknown."""
        if self.query.node(way.begin).stateful:
            return "" if way.begin in members else None
        if not way.steps:
            return way.begin if way.begin in self.ledger else None
        if len(self._kinds[way.begin]) > 1:
            return None
        ending = {run: set(run.split("+")) for run in self._runs.get(way.steps[-1], []) if run != name}
        ending = {run: steps for run, steps in ending.items() if not self.keeps_state(steps)}
        if whole := [run for run, steps in ending.items() if steps == set(way.steps)]:
            return whole[0]
        if holding := [run for run, steps in ending.items() if steps >= set(way.steps)]:
            return holding[0] if len(holding) == 1 else None
        # rows that failed a `require` were removed on the way, where another stage began
        begun = [set(way.steps[first:]) for first in range(1, len(way.steps))]
        return next((run for part in begun for run, steps in ending.items() if steps == part), None) or self._uncut(members, way)

    def _uncut(self, members: list[str], way: _Way) -> str | None:
        """The start of the path, if all its steps are in the stage; values as in `_at_gate`."""
        if self.query.node(way.begin).stateful:
            return "" if way.begin in members else None
        known = set(way.steps) <= set(members) and way.begin in self.ledger and not way.part and len(self._kinds[way.begin]) < 2
        return way.begin if known else None

    def _ways(self, ref: str, behind: tuple[str, ...] = ()) -> Iterator[_Way]:
        """All paths by which rows reach `ref`, from the node where they were last counted separately or passed state."""
        id_ = base(ref)
        if not self._is_native(id_) or self.query.node(id_).stateful:
            yield _Way(id_, behind, self._is_part(id_))
            return
        if isinstance(self.flow.node(id_), Source):  # Spark parses it: it is the first step of its stage
            yield _Way(id_, (id_, *behind), part=False)
        for above in dict.fromkeys(map(base, self.query.node(id_).inputs)):
            yield from self._ways(above, (id_, *behind))

    def _is_native(self, id_: str) -> bool:
        return self.query.node(id_).stage == "native"

    def _is_part(self, ref: str) -> bool:
        return bool(branches(self.flow.node(base(ref))))

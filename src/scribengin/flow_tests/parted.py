"""Where expectation and result parted: the flow is played once more, with a look behind every step and the way of every record kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import ScribenginError
from scribengin.flow_tests.compare import canonical
from scribengin.flow_tests.play import Play
from scribengin.flow_tests.twin import Scratch
from scribengin.formats.json_types import MisfitError
from scribengin.formats.origins import without_ways
from scribengin.formats.written_values import typed_value
from scribengin.plan.graph import Graph, base, inputs_of
from scribengin.plan.resolve import resolve
from scribengin.spec.model import Filter, Python, Route, Sink, Step, Utilities
from scribengin.state.trails import find_arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.core.problems import Place
    from scribengin.core.types import Schema
    from scribengin.flow_tests.contract import Difference, Pair, Result, Row
    from scribengin.plan.resolve import Resolved
    from scribengin.spec.flow_tests import FlowTest
    from scribengin.spec.model import Flow
    from scribengin.state.contract import DeadLetter

_RECORD = re.compile(r"(?P<source>[a-z][a-z0-9_]*)/(?:.*/)?(?P<batch>\d{6})-rows\.[a-z]+.*\+(?P<index>\d+)(?:\.\d+)?\Z", re.DOTALL)
_EXPLAINED = 5
_PROBE = "look_behind_"


@dataclass(frozen=True, slots=True)
class Record:
    """A row that a test gives: the `index`-th of a Batch (from 1) of a source, from 0."""

    source: str
    batch: int
    index: int

    @staticmethod
    def of(id_: str) -> Record | None:
        """The row behind a record's id; None of one that came by a file of the test, or of a row that was made of several."""
        found = _RECORD.match(without_ways(id_))
        return Record(found["source"], int(found["batch"]), int(found["index"])) if found else None

    def text(self, *, batches: int) -> str:
        """`row 2 of tweets`, and in which Batch where there are several."""
        return f"row {self.index + 1} of {self.source}" + (f" in Batch {self.batch}" if batches > 1 else "")


def where_parted(
    file: Path, flow: Flow, test: FlowTest, differences: tuple[Difference, ...], scratch: Scratch, spark: SparkSession,
    place_of: Callable[[Sequence[str | int]], Place],
) -> tuple[Difference, ...]:  # fmt: skip
    """The differences with sentences that say at which step rows were lost or became others; as they are where nobody can tell."""
    sinks = {difference.node for difference in differences if difference.node and difference.pairs}
    if not sinks or test.changes:
        return differences
    graph = Graph(flow)
    above = graph.upstream(sinks)
    references = [reference for reference in _references(graph) if base(reference) in above]
    probes = {reference: f"{_PROBE}{number}" for number, reference in enumerate(references)}
    watched = {
        **flow.sinks,
        **{id_: Sink(id_, (reference,), "files", {"path": id_, "format": "parquet"}) for reference, id_ in probes.items()},
    }
    looked = replace(flow, sinks=watched, defaults=replace(flow.defaults, trace=1.0), tiers={}, edges={}, groups={})
    play = Play(file, {1: looked}, replace(test, crash=None), Scratch(scratch.root / "look"), place_of=place_of)
    try:
        result = play.run(spark)
    except ScribenginError:
        return differences
    view = _View(graph, resolve(graph), test, result, probes, dict(arrivals(play)), _buried(result.dead))
    return tuple(replace(each, parted=tuple(view.sentences(each))) if each.node else each for each in differences)


def _references(graph: Graph) -> list[str]:
    """Each step, or each of its branches that somebody reads, along the stream."""
    found = []
    for id_ in graph.order:
        if isinstance(graph.nodes[id_], Step):
            found += sorted(reference for reference in graph.references if base(reference) == id_)
    return found


def arrivals(play: Play) -> Iterator[tuple[str, set[Record]]]:
    """Sink → the given rows of which something arrived there."""
    found: dict[str, set[Record]] = {}
    for tier in play.prepared.tiers:
        for query in tier.plan.queries:
            for arrival in find_arrivals(tier.folder.query(query.name), ""):
                record = Record.of(arrival.id)
                if record is not None:
                    found.setdefault(arrival.sink, set()).add(record)
    yield from found.items()


def _buried(letters: Sequence[DeadLetter]) -> dict[Record, DeadLetter]:
    return {record: letter for letter in letters if letter.record and (record := Record.of(letter.record)) is not None}


@dataclass(frozen=True, slots=True)
class _View:
    """What the second play has seen."""

    graph: Graph
    resolved: Resolved
    test: FlowTest
    result: Result
    probes: Mapping[str, str]
    arrived: Mapping[str, set[Record]]
    buried: Mapping[Record, DeadLetter]

    def sentences(self, difference: Difference) -> Iterator[str]:
        """One for each of the first pairs, where something can be said."""
        told: dict[str, None] = {}
        for pair in difference.pairs[:_EXPLAINED]:
            if sentence := self._of(pair, difference):
                told[sentence] = None
        yield from told

    def _of(self, pair: Pair, difference: Difference) -> str:
        if pair.expected is not None and pair.got is not None:
            return self._made(pair, difference)
        row = pair.expected if pair.expected is not None else pair.got
        record = self._likest(row or {}, difference) if row else None
        if record is None:
            return ""
        steps = [id_ for id_ in self.graph.order if id_ in self.graph.upstream([difference.node]) and id_ in self.graph.flow.steps]
        name = record.text(batches=self.test.batches)
        if pair.expected is None:
            passed = [id_ for id_ in steps if self._is_behind(id_, record)]
            return f"{name} is most like the row that came; it went through {', '.join(passed)}" if passed else ""
        return self._lost(name, record, steps)

    def _lost(self, name: str, record: Record, steps: list[str]) -> str:
        letter = self.buried.get(record)
        if letter is not None:
            return f'{name} is most like what is missing; "{letter.step}" made it a dead letter: {letter.reason}: {letter.message}'
        last = record.source
        for id_ in steps:
            step = self.graph.flow.steps[id_]
            came = any(base(ref) == record.source or self._is_behind_reference(ref, record) for ref in inputs_of(step))
            if came and not self._is_behind(id_, record):
                if id_ in self.resolved.stateful:
                    return f'{name} is most like what is missing; it came as far as step "{id_}", which makes rows of several'
                return f'{name} is most like what is missing; it came as far as "{last}", and step "{id_}"{_does(step)} let it go'
            last = id_ if came else last
        return ""

    def _made(self, pair: Pair, difference: Difference) -> str:
        """The first step behind which the row that came has the values that differ."""
        assert pair.got is not None
        schema = self.result.columns[difference.node]
        for id_ in self.graph.order:
            if id_ not in self.graph.upstream([difference.node]) or id_ not in self.graph.flow.steps:
                continue
            for reference in (ref for ref in self.probes if base(ref) == id_):
                probe = self.probes[reference]
                columns = [name for name in difference.columns if name in self.result.columns[probe]]
                if not set(pair.differ) <= set(columns):
                    continue
                wanted = _values(pair.got, columns, schema)
                if any(_values(row, columns, schema) == wanted for row in self.result.outputs[probe]):
                    if self._is_given(pair, columns, schema):
                        return f"{_named(pair.differ)} of the row that came {_is(pair.differ)} as the test gives it"
                    does = _does(self.graph.flow.steps[id_])
                    return f'{_named(pair.differ)} of the row that came {_is(pair.differ)} what step "{id_}"{does} made'
        return ""

    def _is_given(self, pair: Pair, columns: Sequence[str], schema: Schema) -> bool:
        assert pair.got is not None
        wanted = {name: canonical(pair.got.get(name), schema[name].type) for name in columns}
        return any(
            all(name in row and _canonical(row[name], name, schema) == wanted[name] for name in pair.differ)
            and any(name in row for name in columns)
            for _, row in self._given()
        )

    def _likest(self, row: Row, difference: Difference) -> Record | None:
        """The given row that shares most values with `row`; None where none does."""
        schema = self.result.columns[difference.node]
        above = self.graph.upstream([difference.node])
        best: tuple[int, Record] | None = None
        for record, given in self._given():
            if record.source not in above:
                continue
            shared = sum(
                name in schema and _canonical(value, name, schema) == canonical(row.get(name), schema[name].type) and value is not None
                for name, value in given.items()
                if name in row
            )
            if shared and (best is None or shared > best[0]):
                best = (shared, record)
        return None if best is None else best[1]

    def _given(self) -> Iterator[tuple[Record, Mapping[str, Any]]]:
        for source, batches in self.test.given.items():
            for number, rows in enumerate(batches, 1):
                for index, row in enumerate(rows.rows):
                    if not isinstance(row, str):
                        yield Record(source, number, index), row

    def _is_behind(self, id_: str, record: Record) -> bool:
        return any(record in self.arrived.get(probe, ()) for reference, probe in self.probes.items() if base(reference) == id_)

    def _is_behind_reference(self, reference: str, record: Record) -> bool:
        return reference in self.probes and record in self.arrived.get(self.probes[reference], ())


def _values(row: Row, columns: Sequence[str], schema: Schema) -> list[Any]:
    return [canonical(row.get(name), schema[name].type) for name in columns]


def _canonical(value: Any, name: str, schema: Schema) -> Any:
    """Of a value as the test writes it; something that equals nothing where it is none of the column's type."""
    try:
        return canonical(typed_value(value, schema[name].type), schema[name].type)
    except MisfitError:
        return object()


def _does(step: Step) -> str:
    match step.action:
        case Filter(predicate):
            return f" ({predicate})"
        case Python():
            return f" ({step.action.reference})"
        case Utilities(references):
            return f" ({', '.join(references)})"
        case Route(cases):
            return f" ({', '.join(f'{name}: {predicate}' for name, predicate in cases)})"
    return ""


def _named(columns: Sequence[str]) -> str:
    return " and ".join(f'"{name}"' for name in columns)


def _is(columns: Sequence[str]) -> str:
    return "is" if len(columns) == 1 else "are"

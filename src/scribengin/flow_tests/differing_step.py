"""Finds the step at which the result began to differ: runs the flow again, with a probe after every step and a trace of every record."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import ScribenginError
from scribengin.flow_tests.judge import canonical
from scribengin.flow_tests.play import Play
from scribengin.flow_tests.twin import Scratch
from scribengin.formats.json_types import MisfitError
from scribengin.formats.row_ids import without_ways
from scribengin.formats.written_values import typed_value
from scribengin.plan.graph import Graph, base, inputs_of
from scribengin.plan.resolve import resolve
from scribengin.spec.model import Aggregate, Filter, Python, Route, Sink, Step, Utilities
from scribengin.state.provenance import find_arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
class GivenRecord:
    """A row that a test gives: the `index`-th of a Batch (from 1) of a source, from 0."""

    source: str
    batch: int
    index: int

    @staticmethod
    def of(id_: str) -> GivenRecord | None:
        """The row of a record id; None for a record from a file of the test, or a row made from several."""
        found = _RECORD.match(without_ways(id_))
        return GivenRecord(found["source"], int(found["batch"]), int(found["index"])) if found else None

    def text(self, *, batches: int) -> str:
        """The row as a text such as `row 2 of tweets`, with the Batch if there are several."""
        return f"row {self.index + 1} of {self.source}" + (f" in Batch {self.batch}" if batches > 1 else "")


def where_parted(
    file: Path, flow: Flow, test: FlowTest, differences: tuple[Difference, ...], scratch: Scratch, spark: SparkSession,
    place_of: Callable[[Sequence[str | int]], Place],
) -> tuple[Difference, ...]:  # fmt: skip
    """Add to the differences the step at which rows were lost or changed.

    Args:
        file: The flow file.
        flow: The flow.
        test: The test.
        differences: The differences that were found.
        scratch: The scratch folder of the test.
        spark: A session.
        place_of: The place of a part of the test.

    Returns:
        The differences, unchanged if the step cannot be found.
    """
    sinks = {difference.node for difference in differences if difference.node and difference.pairs and difference.matched}
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
    ways = arrivals(play)
    blind = {sink for sink, rows in result.outputs.items() if len(rows) > len(ways.get(sink, ()))}
    arrived = {sink: {record for record in records if record} for sink, records in ways.items()}
    view = _View(graph, resolve(graph), test, result, probes, arrived, blind, _buried(result.dead))
    return tuple(replace(each, parted=tuple(view.sentences(each))) if each.node in sinks and each.matched else each for each in differences)


def _references(graph: Graph) -> list[str]:
    """Each step, or each of its branches with a reader, in topological order."""
    found = []
    for id_ in graph.order:
        if isinstance(graph.nodes[id_], Step):
            found += sorted(reference for reference in graph.references if base(reference) == id_)
    return found


def arrivals(play: Play) -> dict[str, list[GivenRecord | None]]:
    """Sink → for each traced row, the given row it was made from; None if that is not a row written in the test."""
    found: dict[str, list[GivenRecord | None]] = {}
    for tier in play.prepared.tiers:
        for query in tier.plan.queries:
            for arrival in find_arrivals(tier.folder.query(query.name), ""):
                found.setdefault(arrival.sink, []).append(GivenRecord.of(arrival.id))
    return found


def _buried(letters: Sequence[DeadLetter]) -> dict[GivenRecord, DeadLetter]:
    return {record: letter for letter in letters if letter.record and (record := GivenRecord.of(letter.record)) is not None}


@dataclass(frozen=True, slots=True)
class _View:
    """The observations of the second run."""

    graph: Graph
    resolved: Resolved
    test: FlowTest
    result: Result
    probes: Mapping[str, str]
    arrived: Mapping[str, set[GivenRecord]]
    blind: set[str]
    """probes whose rows have no known origin: after a join, an aggregation, SQL of the user, a function over batches.
    There a row is identified by its values"""
    buried: Mapping[GivenRecord, DeadLetter]

    def sentences(self, difference: Difference) -> Iterator[str]:
        """One sentence for each of the first pairs, if the step is known; then rows that steps still keep, or have treated as late."""
        told: dict[str, None] = {}
        for pair in difference.pairs[:_EXPLAINED]:
            if sentence := self._of(pair, difference):
                told[sentence] = None
        yield from told
        if any(pair.expected is not None for pair in difference.pairs):
            yield from self._kept_back(difference)

    def _kept_back(self, difference: Difference) -> Iterator[str]:
        for id_ in self._steps(difference):
            counts = self.result.ledger.get(id_)
            step = self.graph.flow.steps[id_]
            if counts is None or id_ not in self.resolved.stateful:
                continue
            if late := counts.late + counts.late_dead:
                yield f'step "{id_}" treated {_rows(late)} as late: behind the watermark'
            if counts.held and isinstance(step.action, Aggregate) and step.emit == "append":
                yield f'step "{id_}" still holds {_rows(counts.held)}: a window is written once the watermark has passed its end'

    def _steps(self, difference: Difference) -> list[str]:
        """The steps upstream of the sink, in topological order."""
        above = self.graph.upstream([difference.node])
        return [id_ for id_ in self.graph.order if id_ in above and id_ in self.graph.flow.steps]

    def _of(self, pair: Pair, difference: Difference) -> str:
        if pair.expected is not None and pair.got is not None:
            return self._made(pair, difference)
        row = pair.expected if pair.expected is not None else pair.got
        found = self._likest(row or {}, difference) if row else None
        if found is None:
            return ""
        record, given = found
        name = record.text(batches=self.test.batches)
        if pair.expected is None:
            seen = {ref: base(ref) for id_ in self._steps(difference) for ref in self._of_step(id_) if self._is_behind(ref, record, given)}
            it = self._it(seen, record, given)
            return (
                f"{name} is the row most similar to the found row; {it} went through {', '.join(dict.fromkeys(seen.values()))}"
                if seen
                else ""
            )
        told = self._lost(record, given, difference)
        return f"{name} is the row most similar to the missing row; {told}" if told else ""

    def _lost(self, record: GivenRecord, given: Row, difference: Difference) -> str:
        letter = self.buried.get(record)
        if letter is not None:
            return f'"{letter.step}" made it a dead letter: {letter.reason}: {letter.message}'
        steps = self._steps(difference)
        flow = self.graph.flow
        read = {*inputs_of(flow.sinks[difference.node]), *(ref for id_ in steps for ref in inputs_of(flow.steps[id_]))}
        last = record.source
        seen: list[str] = []
        for id_ in steps:
            step = flow.steps[id_]
            before = [ref for ref in inputs_of(step) if ref == record.source or self._is_behind(ref, record, given)]
            if not before:
                continue
            passed = [ref for ref in self._of_step(id_) if self._is_behind(ref, record, given)]
            seen += [*before, *passed]
            it = self._it(seen, record, given)
            if any(ref in read for ref in passed):
                last = id_
            elif passed:
                return f'step "{id_}"{_does(step)} sent {it} to "{passed[0]}"'
            elif id_ in self.resolved.stateful:
                return f'{it} reached step "{id_}", which combines several rows'
            elif not isinstance(step.action, Filter | Route) and any(self.probes[ref] in self.blind for ref in self._of_step(id_)):
                return f'{it} reached step "{id_}"; no output row of that step is similar to it'
            else:
                return f'{it} reached "{last}", and step "{id_}"{_does(step)} dropped it'
        return ""

    def _made(self, pair: Pair, difference: Difference) -> str:
        """The first step after which the found row has the values that differ."""
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
                    if of := self._giving(pair, columns, schema):
                        return f"{_named(pair.differ)} of the found row {_is(pair.differ)} as in {of}"
                    does = _does(self.graph.flow.steps[id_])
                    return f'{_named(pair.differ)} of the found row {_is(pair.differ)} the output of step "{id_}"{does}'
        return ""

    def _giving(self, pair: Pair, columns: Sequence[str], schema: Schema) -> str:
        """The given row with the values that differ, or `the test` if several have them; empty if none has."""
        assert pair.got is not None
        wanted = {name: canonical(pair.got.get(name), schema[name].type) for name in columns}
        found = [
            record
            for record, row in self._given()
            if all(name in row and _canonical(row[name], name, schema) == wanted[name] for name in pair.differ)
        ]
        return found[0].text(batches=self.test.batches) if len(found) == 1 else "the test" if found else ""

    def _likest(self, row: Row, difference: Difference) -> tuple[GivenRecord, Row] | None:
        """The given row with the most values in common with `row`; None if there is none."""
        schema = self.result.columns[difference.node]
        above = self.graph.upstream([difference.node])
        best: tuple[int, GivenRecord, Row] | None = None
        for record, given in self._given():
            if record.source not in above:
                continue
            shared = sum(
                name in schema and _canonical(value, name, schema) == canonical(row.get(name), schema[name].type) and value is not None
                for name, value in given.items()
                if name in row
            )
            if shared and (best is None or shared > best[0]):
                best = (shared, record, given)
        return None if best is None else (best[1], best[2])

    def _given(self) -> Iterator[tuple[GivenRecord, Mapping[str, Any]]]:
        for source, batches in self.test.given.items():
            for number, rows in enumerate(batches, 1):
                for index, row in enumerate(rows.rows):
                    if not isinstance(row, str):
                        yield GivenRecord(source, number, index), row

    def _of_step(self, id_: str) -> list[str]:
        """The references of a step that have a probe."""
        return [reference for reference in self.probes if base(reference) == id_]

    def _is_behind(self, reference: str, record: GivenRecord, given: Row) -> bool:
        """True if the record passed the reference: by its trace, or, if traces end there, by its values in the columns there."""
        probe = self.probes.get(reference)
        if probe is None or record in self.arrived.get(probe, ()):
            return probe is not None
        schema = self.result.columns[probe]
        wanted = _known(given, schema)
        if probe not in self.blind or not wanted:
            return False
        return any(_values(row, list(wanted), schema) == list(wanted.values()) for row in self.result.outputs[probe])

    def _it(self, behind: Iterable[str], record: GivenRecord, given: Row) -> str:
        """The word for the record after these references: `it`, or `a similar row` if it was identified by values that others
        have too."""
        for probe in (self.probes[reference] for reference in behind if reference in self.probes):
            if record in self.arrived.get(probe, ()):
                continue
            schema = self.result.columns[probe]
            wanted = _known(given, schema)
            if any(other != record and wanted.items() <= _known(row, schema).items() for other, row in self._given()):
                return "a similar row"
        return "it"


def _known(given: Row, schema: Schema) -> dict[str, Any]:
    """The values of the row that are columns of `schema`."""
    return {name: _canonical(value, name, schema) for name, value in given.items() if name in schema and value is not None}


def _values(row: Row, columns: Sequence[str], schema: Schema) -> list[Any]:
    return [canonical(row.get(name), schema[name].type) for name in columns]


def _canonical(value: Any, name: str, schema: Schema) -> Any:
    """The canonical form of a value as the test writes it; an object that equals nothing if the value is not of the column's type."""
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


def _it(columns: Sequence[str]) -> str:
    return "it" if len(columns) == 1 else "them"


def _rows(number: int) -> str:
    return f"{number} row" + "s" * (number != 1)


def _is(columns: Sequence[str]) -> str:
    return "is" if len(columns) == 1 else "are"

"""`--from-run STATE`: makes a test from real rows. Records that a run has read, by its logs, are re-read from the sources and run through
the flow; the output is what the test expects. If the run traced records, those that now reach other sinks are reported."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import Refused
from scribengin.core.problems import Place
from scribengin.core.storage import remove_tree, rewrite
from scribengin.core.time_text import now_text
from scribengin.flow_tests.differing_step import arrivals
from scribengin.flow_tests.play import Play
from scribengin.flow_tests.report import flow_text
from scribengin.flow_tests.twin import Scratch
from scribengin.formats.row_ids import without_ways
from scribengin.formats.written_values import written_value
from scribengin.local.prepare import open_sources, prepare, static_streams
from scribengin.plan.test_files import beside, read_test_files
from scribengin.plan.tier_flows import CHANNEL
from scribengin.spec.dump import dump_test
from scribengin.spec.flow_tests import Expected, FlowTest, GivenRows
from scribengin.spec.yaml_document import Document
from scribengin.spec.yaml_document import Sequence as ListNode
from scribengin.state.provenance import find_arrivals
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import SourceConnector, SourceStream
    from scribengin.flow_tests.contract import Result
    from scribengin.flow_tests.session import LazySpark
    from scribengin.local.prepare import PreparedFlow
    from scribengin.spec.model import Flow

_STREAMS = 8
"""the most streams of a source that are sampled, evenly distributed over all that the run has read"""
_LOOKED_AT = 20_000
"""the most records of a stream that are examined"""
_NO_RAW = ("parquet", "avro")


@dataclass(frozen=True, slots=True)
class AddedTest:
    """The test that was added to a file."""

    name: str
    file: Path
    text: str
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Kinds:
    """Records of a source by their outcome, a sample of each; an entry is (id, row or raw record)."""

    arrived: list[tuple[str, Any]] = field(default_factory=list)
    others: list[tuple[str, Any]] = field(default_factory=list)
    bad: list[tuple[str, Any]] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)

    def offer(self, kept: list[tuple[str, Any]], entry: tuple[str, Any], most: int, dice: random.Random) -> None:
        """Reservoir sampling: each offered entry is kept with the same probability."""
        count = self.seen[id(kept)] = self.seen.get(id(kept), 0) + 1
        if len(kept) < most:
            kept.append(entry)
        elif (at := dice.randrange(count)) < most:
            kept[at] = entry

    def chosen(self, most: int) -> list[tuple[str, Any]]:
        """The sample of at most `most` records. If there are enough, half of them reached a sink and a fifth could not be read."""
        bad = self.bad[: max(1, most // 5)]
        arrived = self.arrived[: max(1, most // 2)]
        others = self.others[: most - len(bad) - len(arrived)]
        return [*arrived, *others, *bad][:most]


def add_test(file: Path, state: Path, session: LazySpark, *, rows: int) -> AddedTest:
    """Sample records of a run, play them, and append the test to `FLOW.test.yaml`.

    Args:
        file: The flow file.
        state: The state folder of the run.
        session: Starts Spark.
        rows: The most records of each source.

    Raises:
        Refused: The run has read nothing, the flow fails on the records, or the file is not a list.
    """
    prepared = prepare(file, state=state)
    flow = prepared.plan.flow
    target = beside(file)
    before = target.read_bytes().decode() if target.is_file() else ""
    _check_list(target, before)
    ways = _ways(prepared)
    sources = open_sources(flow)
    picked = {id_: _picked(prepared, id_, sources[id_], ways, rows) for id_ in flow.sources}
    if not any(picked.values()):
        raise Refused(
            f'flow "{flow.name}" has not read any record in {prepared.root}', remedy="run the flow first, or pass the right state folder"
        )
    given = {id_: (GivenRows(tuple(row for _, row in entries)),) for id_, entries in picked.items() if entries}
    name = _free_name(flow, file, f"rows of a run, {now_text()[:10]}")
    scratch = Scratch(session.folder / "from-run")
    try:
        play = Play(
            file,
            {1: replace(flow, defaults=replace(flow.defaults, trace=1.0))},
            FlowTest(name, given),
            scratch,
            place_of=lambda _: Place(str(file)),
        )
        result = play.run(session.spark)
        reached = arrivals(play)
    finally:
        remove_tree(scratch.root)
    if result.problems:
        raise Refused(f"the flow fails on these rows: {result.problems[0].message}", remedy=result.problems[0].remedy)
    test = FlowTest(name, given, {sink: Expected(_written(result, sink)) for sink in result.outputs}, _dead(result))
    text = _layout(test)
    rewrite(target, f"{before}{'' if not before or before.endswith(chr(10)) else chr(10)}{text}".encode())
    now = {
        id_: {sink for sink, records in reached.items() if any(each and (each.source, each.index) == at for each in records)}
        for id_, at in _at(picked)
    }
    return AddedTest(name, target, text, tuple(_notes(flow, ways, now)))


def _ways(prepared: PreparedFlow) -> dict[str, set[str]]:
    """Record → the sinks that it reached in the run, for traced records."""
    found: dict[str, set[str]] = {}
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            for arrival in find_arrivals(tier.folder.query(query.name), ""):
                found.setdefault(without_ways(arrival.id).rpartition("+")[0] + "+" + _number(arrival.id), set()).add(arrival.sink)
    return found


def _number(id_: str) -> str:
    """The number of a record in its id, without the suffix of a row made from it."""
    return id_.rpartition("+")[2].partition(".")[0]


def _picked(prepared: PreparedFlow, id_: str, source: SourceConnector, ways: Mapping[str, set[str]], most: int) -> list[tuple[str, Any]]:
    flow = prepared.plan.flow
    if flow.sources[id_].type == "sequence":
        return []
    dice = random.Random(1)
    kinds = _Kinds()
    static = flow.sources[id_].static
    streams = list(static_streams(source)) if static else _taken(prepared, id_)
    for stream in streams if static else _spread(streams):
        for record, row, is_bad in _records(source, stream, id_, raw=flow.sources[id_].options.get("format") not in _NO_RAW):
            kept = kinds.bad if is_bad else kinds.arrived if record in ways else kinds.others
            kinds.offer(kept, (record, row), most, dice)
    return kinds.chosen(most)


def _taken(prepared: PreparedFlow, source: str) -> list[SourceStream]:
    """The log entries of a source that one query has read, in order."""
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            if source in query.sources and tier.plan.flow.sources[source].type != CHANNEL:
                entries = SourceLog(tier.folder.query(query.name).sources, source).entries()
                if taken := [stream for entry in entries for stream in entry if not stream.skipped]:
                    return taken
    return []


def _spread(streams: Sequence[SourceStream]) -> list[SourceStream]:
    if len(streams) <= _STREAMS:
        return list(streams)
    return [streams[number * (len(streams) - 1) // (_STREAMS - 1)] for number in range(_STREAMS)]


def _records(source: SourceConnector, stream: SourceStream, id_: str, *, raw: bool) -> Iterator[tuple[str, Any, bool]]:
    """Yields (id, row or raw record, True if it could not be read) for the first records of a stream."""
    decoder, sequence = source.decoder(), 0
    for block in source.read(stream):
        found = decoder.rows(block)
        for row, ordinal in zip(found.rows, found.ordinals, strict=True):
            plain = {name: written_value(value) for name, value in row.items() if value is not None}
            yield f"{id_}/{stream.label}+{sequence + ordinal}", plain, False
        for bad in found.bad if raw else ():
            with suppress(UnicodeDecodeError):  # a text file cannot contain it, nor a record of several lines
                if "\n" not in (text := block.payload(bad.ordinal).decode()):
                    yield f"{id_}/{stream.label}+{sequence + bad.ordinal}", text, True
        sequence += len(block)
        if sequence >= _LOOKED_AT:
            return


def _at(picked: Mapping[str, Sequence[tuple[str, Any]]]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yields (record of the run, (source, index) in the test)."""
    for source, entries in picked.items():
        for index, (record, _) in enumerate(entries):
            yield record, (source, index)


def _written(result: Result, sink: str) -> tuple[dict[str, Any], ...]:
    return tuple({name: written_value(value) for name, value in row.items()} for row in result.outputs[sink])


def _dead(result: Result) -> dict[str, Expected]:
    steps = [letter.step for letter in result.dead]
    return {step: Expected(count=steps.count(step)) for step in dict.fromkeys(steps)}


def _notes(flow: Flow, ways: Mapping[str, set[str]], now: Mapping[str, set[str]]) -> Iterator[str]:
    if not ways:
        yield "the run traced no record (`defaults: {trace: …}`), so the expected rows are the flow's present output"
        return
    for record, sinks in now.items():
        if record in ways and ways[record] != sinks:
            was, are = (", ".join(sorted(each)) or "no sink" for each in (ways[record], sinks & set(flow.sinks)))
            yield f"{record} reached {was} in the run, but reaches {are} now: check the expected rows of the test"


def _free_name(flow: Flow, file: Path, name: str) -> str:
    taken = {test.name for test in flow.tests} | {placed.test.name for placed in read_test_files(flow, file)[0]}
    return next(each for each in (name, *(f"{name} ({number})" for number in range(2, 10_000))) if each not in taken)


def _check_list(file: Path, text: str) -> None:
    document = Document(text, str(file))
    root = document.root
    if document.problems or (root is not None and (not isinstance(root, ListNode) or root.flow or document.place(root.start).column != 1)):
        raise Refused(f"{file} is not a list of tests that starts in the first column", remedy="write - name: … for each test")


def _layout(test: FlowTest) -> str:
    """The test as YAML, with each row on a line of its own."""
    data = dump_test(test)
    lines = [f"- name: {flow_text(data['name'])}"]
    for part in ("given", "expect"):
        lines.append(f"  {part}:")
        for node, value in data[part].items():
            if isinstance(value, list) and value:
                lines += [f"    {node}:", *(f"      - {flow_text(row)}" for row in value)]
            else:
                lines.append(f"    {node}: {flow_text(value)}")
    return "\n".join(lines) + "\n"

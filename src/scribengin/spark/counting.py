"""Computes the counts of a Batch's nodes from the reports of its stages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from scribengin.connectors.catalog import source_types
from scribengin.formats.added_columns import AddedColumns, own_decoder
from scribengin.formats.column_notices import MOST, Noticer
from scribengin.formats.lenient import LearnedAvro, LenientDecoder
from scribengin.formats.notice import FormatNotice
from scribengin.plan.graph import base
from scribengin.spark.program import DIED_IN, EXIT, LANE, LATE, MADE_IN, ParseNode, PersonsNode
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.contract import SourceConnector, SourceStream
    from scribengin.formats.contract import Decoder
    from scribengin.spark.compiled_query import Compiled
    from scribengin.spark.late_rows import LateRowCounter
    from scribengin.spark.native import NativeFrame
    from scribengin.spark.program import RowsEntry, SourceRef, StageNode, StreamsEntry
    from scribengin.spark.task_report import TaskReport

    Skip = Mapping[tuple[str, int], Mapping[int, tuple[str, str]]]


# Collects what tasks noticed about the columns of their data, for the decision.


_ENOUGH = 10
"""the fewest records of a Batch in which a column that is always null is reported"""


def noticing(ref: SourceRef, source: SourceConnector, there: dict[str, Noticer]) -> tuple[Noticer, Decoder]:
    """The noticer and the decoder of a source.

    Args:
        ref: The source; its `evolve` selects the decoder.
        source: The connector of the source.
        there: node → noticer; one per source for all its streams in a task. The noticer is added if it is missing.
    """
    whole = source.decoder()
    decoder = own_decoder(whole)
    noticer, decoder = _noticing(ref, decoder, there)
    return noticer, whole.over(decoder) if isinstance(whole, AddedColumns) else decoder


def _noticing(ref: SourceRef, decoder: Decoder, there: dict[str, Noticer]) -> tuple[Noticer, Decoder]:
    if ref.node not in there:
        there[ref.node] = Noticer(ref.node, decoder.schema, ref.place.options.get("format") or "", ref.learned)
    noticer = there[ref.node]
    if ref.evolve == "lenient":
        return noticer, LenientDecoder(decoder, noticer, ref.place.options)
    if (
        ref.learned and "lenient" in source_types(internal=True)[ref.type].abilities
    ):  # the columns are inferred, not declared: a record that is valid without them stays valid
        match ref.place.options.get("format"):
            case "json":
                return noticer, LenientDecoder(decoder, noticer, ref.place.options, only=ref.learned)
            case "avro":
                return noticer, LearnedAvro(decoder.schema, noticer, ref.learned, truncate=ref.place.options.get("time") == "truncate")
    return noticer, decoder


def gather_notices(
    reports: Iterable[TaskReport], known: Collection[tuple[str, str, str]], more: Iterable[FormatNotice] = ()
) -> tuple[FormatNotice, ...]:
    """The notices of all task outputs of a Batch: those that are new, and those that are counted each time.

    At most 100 of each kind are kept per source of a query, so that a source with endless new names does not fill the ledger.

    Args:
        reports: The reports of the Batch's tasks.
        known: The keys of the notices that earlier Batches recorded.
        more: Further notices.
    """
    found: dict[tuple[str, str, str], FormatNotice] = {}
    kept = Counter((source, kind) for source, _, kind in known)
    reports = list(reports)
    for notice in chain(*(report.noticed for report in reports), more):
        if notice.key in found:
            found[notice.key] = replace(notice, records=found[notice.key].records + notice.records)
        elif notice.key in known:
            if notice.kind == "nulled":
                found[notice.key] = notice
        elif kept[notice.source, notice.kind] < MOST:
            kept[notice.source, notice.kind] += 1
            found[notice.key] = notice
    for notice in _always_null(reports):
        explained = any((notice.source, notice.column, kind) in {*known, *found} for kind in ("null", "renamed", "missing"))
        if not explained and kept[notice.source, "null"] < MOST:
            kept[notice.source, "null"] += 1
            found[notice.key] = notice
    return tuple(found[key] for key in sorted(found))


def _always_null(reports: Iterable[TaskReport]) -> Iterator[FormatNotice]:
    """A notice for each column that is null in all records of a Batch, if the Batch has enough records."""
    records = Counter[str]()
    columns: dict[str, dict[str, str]] = {}
    for report in reports:
        for source, each in report.nulls.items():
            records[source] += each.records
            before = columns.get(source, each.columns)
            columns[source] = {name: type_ for name, type_ in each.columns.items() if name in before}
    for source, names in columns.items():
        if records[source] >= _ENOUGH:
            yield from (FormatNotice(source, name, "null", type_, "", records=records[source]) for name, type_ in names.items())


def ways_behind(
    before: NativeFrame | None, entry: StreamsEntry | RowsEntry, nodes: Sequence[StageNode]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """See `NativeFrame.behind`; the value for the output of a stage that `before`, or sources, enter."""
    own = tuple(node.node for node in nodes if isinstance(node, PersonsNode | ParseNode))
    if before is None:
        return tuple((source, own) for source in entry.sources)
    run = ("+".join(before.run),) if before.run else ()
    return tuple((source, (*ids, *run, *own)) for source, ids in before.behind)


def gather_counts(compiled: Compiled, skip: Skip, reports: Iterable[TaskReport]) -> dict[str, Counts]:
    """Node → counts. A Spark SQL stage is one node (`known+hot`): in is what entered it, out is what the next stage read.

    If a stage distinguishes rows by MADE_OF, made and filtered rows are counted separately; otherwise only the difference is known.

    A record in `skip` (see StreamsEntry) is removed at its source, and counted as if it had reached the step that fails on it.
    """
    counts: dict[str, Counts] = {}
    for report in reports:
        for id_, data in report.counts.items():
            counts.setdefault(id_, Counts()).add(Counts.from_json(data))
    for run in compiled.runs:
        node = counts.setdefault(run.name, Counts())
        died = sum(counts[key].dead for step in run.name.split("+") if (key := DIED_IN + step) in counts)
        gate = Counts()
        for step in run.name.split("+"):
            gate.add(counts.get(LATE + step, Counts()))
        own = [exit_ for exit_ in run.fed_by if base(exit_.removesuffix(EXIT).partition(LANE)[0]) == run.name]
        if own:  # what Spark does for the node itself: `parse: spark` of a source, `require` of a Python step
            node.out -= sum(counts[exit_].out for exit_ in own if exit_ in counts)
            node.dead += gate.dead + died
            node.late_dead += gate.late_dead
            if any(source == run.name for source, _ in run.behind):
                node.filtered = node.rows_in - node.out - node.dead
            else:
                node.rows_in += died
            continue
        node.rows_in += sum(counts[exit_].out for exit_ in run.fed_by if exit_ in counts) + died - gate.late
        node.dead += died + gate.dead
        node.late += gate.late
        node.late_dead += gate.late_dead
        if not run.stateful:
            surplus = node.out + node.dead - node.rows_in
            made = counts[MADE_IN + run.name].out if MADE_IN + run.name in counts else 0
            node.made = max(made, surplus)
            node.filtered = node.made - surplus
    for (source, _), records in skip.items():
        for step, _ in records.values():
            for id_ in _way(compiled, source, step):
                counts.setdefault(id_, Counts()).rows_in += 1
                counts[id_].out += 1
    return {node: count for node, count in counts.items() if not node.endswith(EXIT) and not node.startswith((DIED_IN, LATE, MADE_IN))}


def add_losses(counts: dict[str, Counts], lost: Mapping[str, Sequence[SourceStream]]) -> None:
    """Count the records that were gone before they were read. `lost`: source → the entries of its log that record a loss."""
    for source, streams in lost.items():
        for stream in streams:
            node = counts.setdefault(source, Counts())
            node.lost += stream.rows or 0
            node.lost_unknown += stream.rows is None


def newest_of(gates: Iterable[tuple[str, LateRowCounter]]) -> dict[str, tuple[int, int | None]]:
    """Node with a watermark → (the newest event time in µs that its late-row counters saw, the AT value of that row)."""
    newest: dict[str, tuple[int, int | None]] = {}
    for origin, gate in gates:
        if gate.newest_us is not None and (origin not in newest or gate.newest_us > newest[origin][0]):
            newest[origin] = (gate.newest_us, gate.newest_at)
    return newest


def _way(compiled: Compiled, source: str, step: str) -> tuple[str, ...]:
    """The ledger's nodes between a source and the Spark SQL stage of a step."""
    runs = [run for run in compiled.runs if step in run.name.split("+")]
    ways = (tuple(node for node in ids if node != run.name) for run in runs for origin, ids in run.behind if origin == source)
    return next(ways, ())

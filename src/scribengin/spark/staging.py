"""Runs one part of a Batch on Spark, from its frames to the reports of its tasks. Used by the deciding worker and by helpers."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.abilities import spark_writes
from scribengin.core.errors import StateError, StepError
from scribengin.spark.failures import find_ours, message_of
from scribengin.spark.program import RowsEntry, SinkNode, StreamsEntry
from scribengin.spark.stage import middle_function, tail_function
from scribengin.spark.task_report import StageReport
from scribengin.spark.unit_commits import at_members, with_unit_commits
from scribengin.spark.without_pandas import map_in_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.contract import SourceStream, SparkSink
    from scribengin.spark.compiled_query import Compiled, Middle, QueryParts
    from scribengin.spark.program import Program
    from scribengin.spark.task_report import Reports, TaskReport
    from scribengin.state.intents import Intent


# A Batch that Spark's own sink writes: the task pipelines make the rows, Spark's write is the one action, and reports come by the
# accumulator.


def write_tails(compiled: Compiled, sink: SparkSink, reports: Reports, number: int) -> list[StageReport]:
    """Write a Batch with Spark's own sink. A task that failed after its pipeline may have written some rows; it runs again, and the report
    of its last run counts, as for middle stages.

    Args:
        compiled: The frames.
        sink: The sink.
        reports: Receives the reports.
        number: The Batch's number.

    Returns:
        The reports of the task pipelines.
    """
    frames = [map_in_arrow(tail.frame, middle_function(tail.program, reports), sink.columns) for tail in compiled.tails]
    if not frames:
        return []
    rows = reduce(lambda a, b: a.unionAll(b), frames)
    try:
        rows.write.format(sink.format).options(**sink.spark_options()).mode("append").save()
    except Exception as error:
        told = None if find_ours(error) is not None else sink.fault(message_of(error))
        if told is None:
            raise
        raise told from error
    stages = {tail.program.index for tail in compiled.tails}
    return [
        StageReport(stage, key, report)
        for (of_batch, stage, key), report in reports.value.items()
        if of_batch == number and stage in stages
    ]


def committing(compiled: Compiled, parts: QueryParts, intent: Intent | None, behind: Mapping[str, Mapping[str, Any]]) -> Compiled:
    """The frames with the sinks of the chosen members, and with commits by task output if these were agreed on."""
    compiled = at_members(compiled, parts, behind)
    if intent is None or not intent.units:
        return compiled
    (said,) = behind.values()
    return with_unit_commits(compiled, intent, said, parts.query.fingerprint)


def run_action(compiled: Compiled, parts: QueryParts, reports: Reports, number: int) -> list[StageReport]:
    """Run the part's one action; returns the reports of all its task pipelines."""
    by_spark = [sink for sink in parts.sinks.values() if spark_writes(sink)]
    return write_tails(compiled, by_spark[0], reports, number) if by_spark else _run_tails(compiled)


def _run_tails(compiled: Compiled) -> list[StageReport]:
    """Run the task pipelines, which write their output themselves; returns their reports."""
    frames = [map_in_arrow(tail.frame, tail_function(tail.program), "receipt BINARY") for tail in compiled.tails]
    if not frames:
        return []
    return [msgspec.json.decode(bytes(row.receipt), type=StageReport) for row in reduce(lambda a, b: a.unionAll(b), frames).collect()]


def read_what_is_left(compiled: Compiled, reports: Reports, number: int) -> None:
    """Run the stages that Spark has skipped because their rows cannot have a result: the other side of a join is empty, or a condition
    never holds. Their records are counted, and the bad ones become dead letters, as if Spark had read them."""
    for middle in reversed(compiled.middles):  # the last one runs those before it
        if not middle.is_read(_reported(reports, number, middle)):
            middle.frame.write.format("noop").mode("append").save()


def _reported(reports: Reports, number: int, middle: Middle) -> set[str]:
    """The keys of a stage's task outputs that have reported in Batch `number`."""
    return {key for batch, stage, key in reports.value if (batch, stage) == (number, middle.program.index)}


def middle_reports(compiled: Compiled, reports: Reports, number: int) -> list[TaskReport]:
    """The reports of the stages before Spark SQL steps. Removes the reports of Batch `number` and of earlier ones from `reports`."""
    tails = {tail.program.index for tail in compiled.tails}
    middle = [report for (batch, stage, _), report in reports.value.items() if batch == number and stage not in tails]
    for key in [key for key in reports.value if key[0] <= number]:
        del reports.value[key]
    return middle


def check_whole(query: str, compiled: Compiled, reports: Sequence[StageReport]) -> None:
    """Check that every task output of the part was reported exactly once. Spark guarantees it, but the ledger must not depend on that.
    Raises StateError."""
    seen = [(report.stage, report.key) for report in reports]
    expected = {
        (tail.program.index, f"{source}/{index}")
        for tail in compiled.tails
        if isinstance(tail.program.entry, StreamsEntry)
        for source, index in tail.program.entry.own
    }
    expected |= {(tail.program.index, str(unit)) for tail in compiled.tails for unit in _rows_units(tail.program)}
    missing = expected - set(seen)
    if missing or len(set(seen)) != len(seen):
        twice = len(seen) - len(set(seen))
        raise StateError(f"Query {query}: {len(missing)} of {len(expected)} task outputs were not reported, {twice} were reported twice")


def _rows_units(program: Program) -> range:
    """The task outputs that a stage with rows as input must report, if they are known: if task outputs commit one by one."""
    commits = [node.commit for node in program.nodes if isinstance(node, SinkNode) and node.commit is not None]
    if not commits or not isinstance(program.entry, RowsEntry):
        return range(0)
    return range(program.entry.first, commits[0].units if program.entry.end is None else program.entry.end)


def check_read(compiled: Compiled, streams: Mapping[str, Sequence[SourceStream]], reports: Reports, number: int) -> None:
    """Check that every stream of the part that enters Spark SQL steps was read. What Spark's optimiser leaves out would be in no count.

    Args:
        streams: Those of the whole Batch, without tables.

    Raises:
        StepError: Spark has skipped a stream.
    """
    for middle in compiled.middles:
        entry = middle.program.entry
        if not isinstance(entry, StreamsEntry):
            continue
        keys = _reported(reports, number, middle)
        for source in entry.sources:
            read = sum(key.startswith(f"{source}/") for key in keys)
            expected = len(streams.get(source, ())) if entry.part is None else sum(name == source for name, _ in entry.own)
            if read < expected:
                raise StepError(
                    f'Spark has not read {expected - read} of {expected} parts of source "{source}": it skipped them '
                    "because a table has no rows or a condition is never true",
                    remedy="add rows to the table or correct the condition, then restart",
                    node=source,
                )

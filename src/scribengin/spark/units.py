"""The function for `mapInArrow`: runs a task's units, each in its own Stage, and yields their reports."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from scribengin.connectors.contract import BatchId, SourceStream
from scribengin.connectors.unit_contract import AlreadyCommitted
from scribengin.core import faults
from scribengin.spark.program import PART, UNIT_STRIDE, ExitNode, RowsEntry, StreamsEntry
from scribengin.spark.stage import Stage
from scribengin.spark.task_report import report_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from scribengin.spark.program import Program
    from scribengin.spark.task_report import TaskReport


def run_program(
    program: Program, batches: Iterator[pa.RecordBatch], partition: int, number: int
) -> Iterator[tuple[pa.RecordBatch | None, str, TaskReport | None]]:
    """What `mapInArrow` runs: yields (rows, "", None) on the way and (None, key, report) once per unit."""
    batch = program.batch or BatchId("", program.letters.query, "", number, 0)
    entry = program.entry
    if isinstance(entry, RowsEntry):
        partition += entry.first
        key = str(partition)
        if any(isinstance(node, ExitNode) for node in program.nodes):
            key, batches = _own_part(batches, partition)
        yield from _one(program, batch, partition, partial(Stage.read_rows, batches=batches, entry=entry), key)
        return
    for rows in batches:
        for unit, node, index, stream in _units(entry, rows):
            feed = partial(Stage.read_stream, ref_node=node, index=index, stream=stream, entry=entry)
            yield from _one(program, batch, unit, feed, f"{node}/{index}")


def _own_part(batches: Iterator[pa.RecordBatch], partition: int) -> tuple[str, Iterator[pa.RecordBatch]]:
    """(key of the report, the same batches): the partition's own number, the same each time that Spark runs it; one that has no rows has
    none, and must not stand in another's place."""
    for first in batches:
        if first.num_rows:
            return str(first.column(PART)[0].as_py()), chain([first], batches)
    return f"empty {partition}", iter(())


def _units(entry: StreamsEntry, rows: pa.RecordBatch) -> Iterator[tuple[int, str, int, SourceStream]]:
    """(unit, source, index in the source's streams, stream)"""
    if entry.units:
        for unit in rows.column("id").to_pylist():
            node, index = entry.units[unit]
            yield unit, node, index, entry.streams[node][index]
        return
    for row in rows.to_pylist():
        yield row["index"], row["source"], row["index"], SourceStream.from_json(msgspec.json.decode(row["stream"]))


def _one(
    program: Program, batch: BatchId, unit: int, feed: partial[Iterator[pa.RecordBatch]], key: str
) -> Iterator[tuple[pa.RecordBatch | None, str, TaskReport | None]]:
    faults.reached("stage.before")
    stage = Stage(program, batch, program.index * UNIT_STRIDE + unit)
    try:
        for rows in feed(stage):
            yield rows, "", None
        last, report = stage.finish()
        for rows in last:
            yield rows, "", None
    except AlreadyCommitted as found:
        stage.forget()
        report = report_of(found.report)
        if isinstance(program.entry, RowsEntry):
            # the stages before this one count what they have read only when they are through
            for _ in feed.keywords["batches"]:
                pass
    except BaseException:
        stage.abort()
        raise
    yield None, key, report

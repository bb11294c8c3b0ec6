"""What Spark calls on executors: a Program as a function for `mapInArrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from scribengin.spark.offset_log import batch_of_task
from scribengin.spark.stage import RECEIPT_SCHEMA
from scribengin.spark.task_report import StageReport
from scribengin.spark.units import run_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.spark.program import Program
    from scribengin.spark.task_report import Reports

    ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def tail_function(program: Program) -> ArrowFunction:
    """A tail stage: one row per unit, its report."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, key, report in run_program(program, batches, *_partition()):
            if report is not None:
                line = msgspec.json.encode(StageReport(program.index, key, report))
                yield pa.RecordBatch.from_arrays([pa.array([line], pa.binary())], schema=RECEIPT_SCHEMA)

    return run


def middle_function(program: Program, reports: Reports) -> ArrowFunction:
    """A stage before SQL steps: it yields its rows, and adds its reports to the accumulator when the partition ends."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, number = _partition()
        if program.batch is not None:  # a helper's Spark knows of no Batch
            number = program.batch.number
        for rows, key, report in run_program(program, batches, partition, number):
            if rows is not None:
                yield rows
            if report is not None:
                reports.add({(number, program.index, key): report})

    return run


def _partition() -> tuple[int, int]:
    """(partition, Batch number; -1 where Spark knows of none)"""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), batch_of_task()

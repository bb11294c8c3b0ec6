"""A Batch that a sink of Spark's own writes: the tails make the rows, Spark's write is the one action, reports come by the accumulator."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from scribengin.spark.arrow_functions import middle_function
from scribengin.spark.failures import find_ours, message_of
from scribengin.spark.task_report import StageReport
from scribengin.spark.without_pandas import map_in_arrow

if TYPE_CHECKING:
    from scribengin.connectors.spark_contract import SparkSink
    from scribengin.spark.compiled import Compiled
    from scribengin.spark.task_report import Reports


def write_tails(compiled: Compiled, sink: SparkSink, reports: Reports, number: int) -> list[StageReport]:
    """Write Batch `number`; what its tails report. A task that failed behind its tail has written some rows and runs again: the report of
    its last run stands, as for middle stages."""
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

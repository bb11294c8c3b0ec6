"""Prepares in advance what the first Batch would wait for: Spark's Python daemon with our modules, a Python worker, and the code paths of a
Batch."""

from __future__ import annotations

import threading
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from scribengin.spark.source_input import clock
from scribengin.spark.without_pandas import map_in_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_BATCH_S = 120.0


def warm_up(spark: SparkSession) -> None:
    """Run a job of one row through Python. Raises nothing: the flow's own jobs report problems of Spark better."""
    with suppress(Exception):
        map_in_arrow(spark.newSession().range(1), _same, "id BIGINT").collect()


def begin_warm_up(spark: SparkSession) -> None:
    """Start `warm_up` in a thread, in parallel with the work before the first Batch."""
    threading.Thread(target=warm_up, args=(spark,), name="warm up", daemon=True).start()


def warm_up_streams(spark: SparkSession) -> bool:
    """Do the same, and run one Batch of a separate query, which reads and keeps nothing; for a caller that has the time. True if the Batch
    succeeded."""
    warm_up(spark)
    through = threading.Event()

    def batch(frame: DataFrame, _number: int) -> None:
        map_in_arrow(frame.select("value"), _same, "value BIGINT").collect()
        through.set()

    with suppress(Exception), TemporaryDirectory(prefix="scribengin-warm-") as folder:
        query = clock(spark.newSession()).writeStream.foreachBatch(batch).option("checkpointLocation", folder).start()
        try:
            through.wait(_BATCH_S)
        finally:
            query.stop()
    return through.is_set()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches

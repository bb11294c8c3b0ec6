"""What the first Batch would wait for, done before: Spark's Python daemon with our modules, a Python worker, the code paths of a job."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession


def warm_up(spark: SparkSession) -> None:
    """Run a job of one row through Python. Raises nothing: what is wrong with Spark the flow's own jobs tell better."""
    with suppress(Exception):
        spark.newSession().range(1).mapInArrow(_same, "id BIGINT").collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches

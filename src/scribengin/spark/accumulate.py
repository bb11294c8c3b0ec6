"""How middle stages report: an accumulator of (Batch number, stage, key) → report.

A partition that ran twice reports the same key twice; the last report counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession


class _Merge(AccumulatorParam[dict[Any, Any]]):
    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: dict[Any, Any], value2: dict[Any, Any]) -> dict[Any, Any]:  # noqa: N802
        value1.update(value2)
        return value1


def new_reports(spark: SparkSession) -> Accumulator[dict[Any, Any]]:
    """A new, empty accumulator. Its value is readable in the driver after the job that feeds it has ended."""
    return spark.sparkContext.accumulator({}, _Merge())

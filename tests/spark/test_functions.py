"""The list of functions that `plan` knows without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.sql.functions import AGGREGATES, FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_function_of_this_spark_is_known_and_every_aggregate_as_one(spark: SparkSession) -> None:
    names = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    words = {name for name in names if name.isidentifier()}
    assert words - FUNCTIONS == set()
    said = {name: spark.sql(f"DESCRIBE FUNCTION {name}").collect()[1][0] for name in sorted(words - AGGREGATES)}
    assert [name for name, text in said.items() if ".expressions.aggregate." in text] == []

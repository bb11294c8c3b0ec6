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
    # DESCRIBE FUNCTION says the same by a query each, twenty times as dear
    classes = {name: spark.catalog.getFunction(name).className or "" for name in sorted(words - AGGREGATES)}
    assert [name for name, of in classes.items() if ".expressions.aggregate." in of] == []

"""Spark starts without pandas, and still takes NumPy's values."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: shop
sources:
  old: {type: files, path: old, format: json, schema: "id BIGINT NOT NULL, name STRING"}
  new: {type: files, path: new, format: json, schema: "id BIGINT NOT NULL, name STRING"}
steps:
  same: {from: old, python: "steps:same"}
  some: {from: same, filter: id > 1}
  all: {from: [some, new], merge: {origin: origin}}
sinks: {kept: {from: all, type: files, path: out, format: json}}
"""


def test_a_run_imports_no_pandas(folder: FlowFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pandas", "pyspark.testing", "pyspark.testing.utils"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises
    folder.steps("from scribengin import record\n\n@record\ndef same(row):\n    return row\n")
    folder.flow(FLOW)
    folder.data("old/a.jsonl", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, '{"id": "none"}']).data("new/a.jsonl", [{"id": 3}])
    assert folder.run().balanced
    assert sorted((row["id"], row["origin"]) for row in folder.read("out")) == [(2, "some"), (3, "new")]


def test_values_of_numpy_are_taken_as_before(spark: SparkSession) -> None:
    java = spark._jvm.java  # type: ignore[union-attr]
    assert java.lang.Long.valueOf(numpy.int64(2)) == 2
    assert java.util.Arrays.toString(numpy.array([1, 2])) == "[1, 2]"


def test_a_plain_function_of_a_person_runs_in_spark_and_nothing_warns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession as Sessions
    from pyspark.sql.functions import udf

    monkeypatch.setattr(Sessions, "_instantiatedSession", spark)  # PySpark asks this one, where it has one, whether Arrow is wanted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [row[0] for row in spark.range(3).select(udf(lambda value: value + 1, "long")("id")).collect()] == [1, 2, 3]

"""The sieve lets pass whatever Spark's filter lets pass, and says nothing where Python and Spark could differ."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.types import parse_schema
from scribengin.formats.structs import StructForm
from scribengin.spark.predicate_pushdown import compiled, sieve_of
from scribengin.spec.model import Filter, Select, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import FlowFolder

DDL = "n BIGINT, small TINYINT, text STRING, ok BOOLEAN, ratio DOUBLE"
SCHEMA = parse_schema(DDL)
ROWS = [
    dict(zip(SCHEMA.names, values, strict=True))
    for values in itertools.product(
        (None, -(2**63), -1, 0, 5000, 5001, 2**63 - 1), (None, -128, 5), (None, "", "a", "A", "xay", "é\x00"), (None, True, False), (0.5,)
    )
]
WHOLE = [
    "n > 5000",
    "n >= 5000 AND n < 5001",
    "5000 < n",
    "n = -1",
    "-9223372036854775807 >= n",
    "n <= 9223372036854775807",
    "small < 100",
    "small > 300",
    "ok",
    "ok AND NOT text IS NULL",
    "text IS NOT NULL",
    "text = 'a'",
    "'a' = text",
    "contains(text, 'a')",
    "startswith(text, 'x') OR endswith(text, 'y')",
    "(n > 0 OR n = -1) AND (ok OR text = 'é')",
    "((n > 0)) AND (((text = 'a')))",
    "`n` = 0",
]
IN_PART = ["n > 5000 AND upper(text) = 'A'", "ok AND ratio > 0.1 AND n > 0", "n = 0 AND (ok OR length(text) > 1)"]
NOTHING = [
    "NOT ok",
    "n <> 5",
    "n = 5.0",
    "n > '5'",
    "n > ratio",
    "ratio > 0.1",
    "text > 'a'",
    "text LIKE '%a%'",
    r"text = '\n'",
    "text IN ('a', 'b')",
    "n <=> 5",
    "text = 'a''b'",
    "contains(text, '')",
    'text = "a"',
    "n IS NULL",
    "coalesce(ok, false)",
    "n > 9223372036854775808",
    "n + 1 > 5",
    "upper(text) = 'A' AND n > 5000",
    "ok OR length(text) > 1",
]


def step(predicate: str, id_: str = "s") -> Step:
    return Step(id_, ("a",), Filter(predicate))


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Any:
    return spark.createDataFrame([tuple(row.values()) for row in ROWS], DDL).coalesce(1).cache()


def passing(predicate: str) -> list[bool]:
    sieve = sieve_of([step(predicate)], SCHEMA)
    assert sieve is not None, predicate
    form = StructForm(SCHEMA)
    return compiled(sieve)([form.type(**{f"f{index}": value for index, value in enumerate(row.values())}) for row in ROWS])


def test_the_sieve_agrees_with_spark(table: Any) -> None:
    answers = table.selectExpr(*[f"coalesce({predicate}, false) AS p{i}" for i, predicate in enumerate([*WHOLE, *IN_PART])]).collect()
    for index, predicate in enumerate(WHOLE):
        assert passing(predicate) == [row[index] for row in answers], predicate
    for index, predicate in enumerate(IN_PART, len(WHOLE)):
        found, asked = passing(predicate), [row[index] for row in answers]
        assert all(passed for passed, wanted in zip(found, asked, strict=True) if wanted), predicate
        assert not all(found), predicate


def test_where_python_and_spark_could_differ_nothing_is_said() -> None:
    for predicate in NOTHING:
        assert sieve_of([step(predicate)], SCHEMA) is None, predicate
    assert sieve_of([step("N > 5")], SCHEMA) is None, "no such column"


def test_steps_that_follow_each_other_are_one_sieve_up_to_the_first_that_is_not_known() -> None:
    first, second = step("n > 0"), step("ok")
    assert sieve_of([first, second], SCHEMA) == "(row.f0 is not None and row.f0 > 0) and row.f3 is True"
    assert sieve_of([first, step("n + 1 > 5"), second], SCHEMA) == sieve_of([first], SCHEMA)
    assert sieve_of([first, Step("s", ("a",), Select((("n", "n"),))), second], SCHEMA) == sieve_of([first], SCHEMA)
    assert sieve_of([replace(first, require=(("known", "text IS NOT NULL"),)), second], SCHEMA) == sieve_of([first], SCHEMA)
    assert sieve_of([], SCHEMA) is None


def test_what_the_sieve_keeps_back_is_counted_where_the_filter_would_have_dropped_it(folder: FlowFolder) -> None:
    folder.flow(
        """
version: 1
name: sieved
sources:
  numbers: {type: files, path: data, format: json, schema: "n BIGINT, text STRING"}
steps:
  known: {from: numbers, filter: n > 5, require: {named: text IS NOT NULL}}
  few:   {from: known, filter: n < 8}
sinks:
  kept: {from: few, type: files, path: out, format: parquet}
"""
    )
    folder.data("data/a.jsonl", [*({"n": n, "text": f"t{n}"} for n in range(10)), {"n": 9, "text": None}, {"n": 1, "text": None}, "{"])
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    assert sorted(row["n"] for row in folder.read("out")) == [6, 7]
    rows = result.queries[0].rows
    # the letters: the broken line, and the row that fails its `require` although the next filter would have dropped it
    assert (rows.rows_in, rows.out, rows.filtered, rows.dead) == (13, 2, 9, 2)

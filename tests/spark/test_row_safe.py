"""The rows that one pass finds are those that Spark's ANSI mode fails for, each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.spark import native
from scribengin.spark.bad_record_search import Unsupported, failing_rows
from scribengin.spark.failures import is_data_error
from scribengin.spark.native import NativeFrame
from scribengin.spec.model import Filter, Select, Sql, Step
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from scribengin.spec.model import Action
    from tests.conftest import FlowFolder

ROWS = [
    *[
        (0, "1", 1, None),
        (1, "x", 0, "2026-01-01"),
        (2, None, None, "no day"),
        (3, "2147483648", 2147483647, "2026-02-30"),
        (4, "", -1, "x"),
    ],
    *[(5, " 7 ", 7, "9"), (6, "1.5", 2, "2026-01-02"), (7, "-3", 0, None), (8, "9", 3, "2026"), (9, "NaN", 5, "7")],
]
CAST = "CAST(x AS INT)"
CHAINS: tuple[tuple[Action, ...], ...] = (
    (Select((("v", CAST),)),),
    (Select((("v", CAST), ("q", "10 / n"), ("d", "CAST(d AS DATE)"))),),
    (Filter(f"{CAST} > 0 AND 10 / n > 1"),),
    (Filter(f"n > 0 AND {CAST} > 0"),),
    (Filter(f"d IS NOT NULL AND {CAST} > 0"),),
    (Filter(f"{CAST} > 0 OR n = 0"),),
    (Select((("v", f"CASE WHEN n > 1 THEN {CAST} ELSE 0 END"), ("w", f"coalesce(n, {CAST})"), ("same", f"{CAST} + {CAST}"))),),
    (Select((("v", CAST), ("n", "n"))), Filter("n > 1")),
    (Select((("v", CAST), ("n", "n"))), Select((("m", "n + 1"),))),
    (Select((("v", CAST), ("n", "n"))), Filter("v > 1"), Select((("p", "100 / (v - 7)"), ("o", "n * n")))),
    (Sql("SELECT element_at(split(x, ''), n) AS e, to_date(d) AS t FROM step WHERE n <> 3"),),
    (Sql(f"SELECT n FROM step WHERE n = 5 UNION ALL SELECT {CAST} FROM step WHERE n <> 5"),),
    (Sql(f"SELECT n, p FROM (SELECT n, {CAST} AS v FROM step) LATERAL VIEW explode(sequence(0, v % 3)) AS p"),),
    (Sql("SELECT IF(n = 7, raise_error('seven'), make_date(2026, n, 30)) AS e, bigint(x) AS b FROM step"),),
)


@pytest.fixture(scope="module")
def kept(spark: SparkSession) -> Iterator[DataFrame]:
    frame = spark.createDataFrame(ROWS, "_sg_at BIGINT, x STRING, n INT, d STRING").persist()
    yield frame
    frame.unpersist()


def through(spark: SparkSession, actions: tuple[Action, ...], df: DataFrame) -> DataFrame:
    frame = NativeFrame(df, at=True)
    for action in actions:
        frame = native.apply(spark, Step("step", ("step",), action), [("step", frame)], stateful=False)[""]
    return frame.df


def fails(df: DataFrame) -> bool:
    try:
        df.write.format("noop").mode("overwrite").save()
    except Exception as error:
        if not is_data_error(error):
            raise
        return True
    return False


@pytest.mark.parametrize("actions", CHAINS)
def test_one_pass_finds_the_rows_that_fail_by_themselves(spark: SparkSession, kept: DataFrame, actions: tuple[Action, ...]) -> None:
    alone = {at for at, *_ in ROWS if fails(through(spark, actions, kept.where(f"_sg_at = {at}")))}
    assert set(failing_rows(spark, through(spark, actions, kept))) == alone


def test_each_row_says_which_column_fails_and_of_what(spark: SparkSession, kept: DataFrame) -> None:
    found = failing_rows(spark, through(spark, (Select((("v", CAST), ("q", "10 / n"))),), kept))
    assert {at: (fault.column, fault.value) for at, fault in found.items()} == {
        **{at: ("v", text) for at, text in ((1, "x"), (3, "2147483648"), (4, ""), (6, "1.5"), (9, "NaN"))},
        7: ("q", None),
    }


def test_a_plan_with_other_nodes_is_left_to_the_search(spark: SparkSession, kept: DataFrame) -> None:
    with pytest.raises(Unsupported, match="Aggregate"):
        failing_rows(spark, kept.groupBy("n").count())


FLOW = """
version: 1
name: dirty
sources:
  rows: {type: files, path: data, format: json, schema: "i INT, x STRING"}
  names: {type: files, path: names, format: json, schema: "i INT, name STRING", static: true}
steps:
  named: {from: [rows, names], join: {key: [i], how: left}}
  typed: {from: named, select: {i: i, x: cast(x AS INT), name: name}}
  share: {from: typed, sql: "SELECT i, x, name, 100 / (i - 7) AS part FROM typed"}
sinks:
  kept: {from: share, type: files, path: out, format: json}
"""


def test_thousands_of_bad_rows_are_dead_letters_with_their_own_message(folder: FlowFolder) -> None:
    folder.flow(FLOW).data("names/a.jsonl", [{"i": 4, "name": "four"}])
    folder.data("data/a.jsonl", [{"i": i, "x": str(i) if i % 2 else f"n/{i}"} for i in range(3000)])
    ran(folder)

    died: list[Any] = letters(folder, "dirty", "kept")
    assert len(folder.read("out")) == 1499
    assert [letter.step for letter in died] == ["share"] + ["typed"] * 1500
    assert (died[0].line, died[0].message[:17]) == (8, "[DIVIDE_BY_ZERO] ")
    assert [letter.line for letter in died[1:]] == list(range(1, 3000, 2))
    assert "The value 'n/2998' of the type" in died[-1].message
    assert died[-1].message.endswith('(column "x": cast(x AS INT))')


def test_where_the_optimiser_is_another_than_was_known_the_search_finds_the_rows(
    folder: FlowFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_another_spark(*_: object) -> None:
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr("scribengin.spark.bad_record_search.failing_rows", of_another_spark)
    folder.flow(FLOW).data("names/a.jsonl", [{"i": 4, "name": "four"}])
    folder.data("data/a.jsonl", [{"i": i, "x": "n/a" if i == 3 else str(i)} for i in range(6)])
    ran(folder)
    assert [(letter.step, letter.line) for letter in letters(folder, "dirty", "kept")] == [("typed", 4)]
    assert len(folder.read("out")) == 5

"""A summary is the same however its rows were cut into parts, and whatever it keeps is whole."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.summary.question import QuestionError, read_question
from scribengin.connectors.summary.reduced import Reduced
from scribengin.connectors.summary.sink import PART_BYTES
from scribengin.connectors.summary.table import SummaryTable
from scribengin.core.errors import StepError

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("i", pa.int64()),
        ("d", pa.decimal128(38, 2)),
        ("b", pa.binary()),
    ]
)
SQL = "SELECT k, t, count(*) AS n, count(i) AS c, sum(i) AS s, min(i) AS low, max(d) AS high, avg(i) AS mean, sum(d) AS money, min(b) AS b "
SQL += "FROM rows GROUP BY k, t"
WIDE = Context(prec=100)
TIMES = st.sampled_from([dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC) for hour in range(3)])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.none() | st.sampled_from(["a", "b", "", "ü"]),
            "t": st.none() | TIMES,
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "d": st.none() | st.integers(-(10**37), 10**37).map(lambda cents: Decimal(cents).scaleb(-2, WIDE)),
            "b": st.none() | st.binary(max_size=2),
        }
    ),
    max_size=20,
)


def table(rows: list[dict[str, Any]], sql: str = SQL, keep: int = 100) -> SummaryTable:
    made = SummaryTable(read_question(sql), keep)
    made.add(pa.RecordBatch.from_pylist(rows, SCHEMA))
    return made


def sent(part: SummaryTable) -> SummaryTable:
    """As it goes through a receipt."""
    return SummaryTable.from_json(json.loads(json.dumps(part.as_json())), part.question, part.keep)


def added(decimals: list[Decimal]) -> Decimal | None:
    """With all digits."""
    return Decimal(sum(int(each.scaleb(2, WIDE)) for each in decimals)).scaleb(-2, WIDE) if decimals else None


def by_hand(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["k"], row["t"]), []).append(row)

    def given_(part: list[dict[str, Any]], name: str) -> list[Any]:
        return [row[name] for row in part if row[name] is not None]

    made = []
    for (k, t), part in groups.items():
        i, d, b = (given_(part, name) for name in "idb")
        made.append(
            {"k": k, "t": t, "n": len(part), "c": len(i), "s": sum(i) if i else None, "low": min(i, default=None)}
            | {
                "high": max(d, default=None),
                "mean": sum(i) / len(i) if i else None,
                "money": Decimal(sum(int(each.scaleb(2, WIDE)) for each in d)).scaleb(-2, WIDE) if d else None,
            }
            | {"b": min(b, default=None)}
        )
    return sorted(made, key=lambda row: ((row["k"] is not None, row["k"] or ""), (row["t"] is not None, row["t"] or 0)))


@given(parts=st.lists(ROWS, max_size=5))
def test_parts_put_together_are_what_all_rows_come_to(parts: list[list[dict[str, Any]]]) -> None:
    whole = SummaryTable(read_question(SQL), 100)
    for rows in parts:
        whole.merge(sent(table(rows)))
    assert sent(whole).result() == by_hand([row for rows in parts for row in rows])


@given(
    keys=st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=8), order=st.sampled_from(["", "ORDER BY k DESC", "ORDER BY n DESC"])
)
def test_of_more_groups_than_are_kept_each_that_is_kept_is_whole(keys: list[list[int]], order: str) -> None:
    sql = f"SELECT k, count(*) AS n FROM rows GROUP BY k {order}"
    whole = SummaryTable(read_question(sql), 4)
    for part in keys:
        whole.merge(sent(table([{"k": f"{key:02}"} for key in part], sql, keep=4)))
    everything = [f"{key:02}" for part in keys for key in part]
    found = {row["k"]: row["n"] for row in whole.result()}
    assert found == {key: everything.count(key) for key in found}
    assert len(found) == min(4, len(set(everything)))
    assert whole.left_out == (len(set(everything)) > 4)
    assert whole.rows_left_out == len(everything) - sum(found.values())
    if order == "ORDER BY k DESC":
        assert list(found) == sorted(set(everything), reverse=True)[:4]


def test_nothing_is_a_row_of_zeros_without_groups_and_nan_is_passed_over() -> None:
    assert table([], "SELECT count(*) AS n, sum(i) AS s FROM rows").result() == [{"n": 0, "s": None}]
    made = SummaryTable(read_question("SELECT min(x) AS low, max(x) AS high FROM rows"), 10)
    for values in ([math.nan, 1.0], [math.nan], [3.0]):
        part = SummaryTable(made.question, 10)
        part.add(pa.record_batch({"x": values}))
        made.merge(sent(part))
    assert made.result() == [{"low": 1.0, "high": 3.0}]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT count(DISTINCT k) AS n FROM rows", "DISTINCT"),
        ("SELECT median(i) AS m FROM rows", "only count, sum, min, max and avg"),
        ("SELECT k, count(*) AS n FROM rows WHERE i > 1 GROUP BY k", "WHERE"),
        ("SELECT k, count(*) AS n FROM rows GROUP BY k HAVING count(*) > 1", "HAVING"),
        ("SELECT upper(k) AS u, count(*) AS n FROM rows GROUP BY upper(k)", "is not a column"),
        ("SELECT k, count(*) AS n FROM rows", "nor in GROUP BY"),
        ("SELECT count(*) AS n FROM rows GROUP BY k", "not selected"),
        ("SELECT count(*) FROM rows", "name"),
        ("SELECT count(*) AS n FROM orders", "does not read"),
        ("SELECT count(*) AS n FROM rows JOIN rows AS b ON true", "join"),
        ("SELECT sum(i + 1) AS s FROM rows", "not of a single column"),
        ("SELECT k, count(*) AS n FROM rows GROUP BY k ORDER BY i", "ORDER BY"),
        ("SELECT k, count(*) AS n FROM rows TABLESAMPLE (10 PERCENT) GROUP BY k", "TABLESAMPLE"),
        ("SELECT k, count(*) AS n FROM rows GROUP BY k ORDER BY n NULLS LAST", "NULLS"),
        ("SELECT k, count(*) AS n FROM rows GROUP BY k ORDER BY n DESC NULLS FIRST", "NULLS"),
        ("SELECT k, count(*) AS n FROM rows GROUP BY k SORT BY n", "SORT BY"),
        ("SELECT k, count(*) AS n FROM rows GROUP BY k DISTRIBUTE BY k", "DISTRIBUTE BY"),
        ("SELECT /*+ BROADCAST(rows) */ k, count(*) AS n FROM rows GROUP BY k", "BROADCAST"),
        ("SELECT k, count(*) AS n FROM other.rows GROUP BY k", "other"),
        ("SELECT place.k, count(*) AS n FROM rows GROUP BY place.k", "place.k is not a column"),
        ("SELECT max(place.k) AS n FROM rows", "place.k is not a column"),
        ("DROP TABLE rows", "not one SELECT"),
        ("SELECT (", "not valid SQL"),
    ],
)
def test_what_cannot_be_put_together_is_refused_with_the_reason(sql: str, why: str) -> None:
    with pytest.raises(QuestionError, match=why) as refused:
        read_question(sql)
    assert refused.value.remedy


class Holds:
    def __init__(self) -> None:
        self.held: Any = None

    def add(self, record: dict[str, Any]) -> None:
        self.held = record["k"]

    def merge(self, other: Holds) -> None:
        self.held = other.held

    def result(self) -> dict[str, Any]:
        return {"held": self.held}


def reduced(value: Any) -> Reduced:
    part = Reduced("steps:Holds", Holds, 10)
    part.add(pa.record_batch({"k": ["x"]}))
    part._instance.held = value
    return part


def test_what_a_class_holds_is_read_again_without_running_code() -> None:
    held = {"a": {1, 2}, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "d": Decimal("1.5"), "t": (1, None)}
    again = Reduced.from_json(json.loads(json.dumps(reduced(held).as_json())), "steps:Holds", Holds, 10)
    assert (again.result(), again.rows) == ([{"held": held}], 1)
    for value, why in ((Holds(), "cannot be stored"), (len, "cannot be stored"), ("x" * 300_000, "300,")):
        with pytest.raises(StepError, match=why) as refused:
            reduced(value).as_json(PART_BYTES)
        assert refused.value.remedy


def test_the_table_of_one_question_is_named_or_not_and_both_zeros_are_one() -> None:
    for sql in (
        "SELECT rows.k, count(rows.k) AS n FROM rows GROUP BY rows.k ORDER BY n DESC",
        "SELECT r.k, count(1) AS n FROM rows r GROUP BY k",
    ):
        assert table([{"k": "a"}], sql).result() == [{"k": "a", "n": 1}]
    made = SummaryTable(read_question("SELECT x, count(*) AS n FROM rows GROUP BY x"), 10)
    made.add(pa.record_batch({"x": [0.0, -0.0, None, math.nan, math.nan]}))
    assert [row["n"] for row in made.result()] == [1, 2, 2]


@pytest.mark.parametrize("far", [253_402_300_800_000_000, -62_135_596_800_000_001, 2**62])
def test_a_row_with_a_moment_that_no_table_can_show_is_given_back(far: int) -> None:
    at = pa.array([0, far, None], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"t": at, "k": ["a", "b", "c"], "day": pa.array([0, 1, 2], pa.date32())})
    made = SummaryTable(read_question("SELECT max(t) AS t, count(*) AS n FROM rows"), 10)
    assert [(bad.ordinal, bad.reason) for bad in made.add(batch)] == [(1, "out-of-range")]
    assert made.result() == [{"t": dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "n": 2}]
    part = Reduced("steps:Holds", Holds, 10)
    assert [(bad.ordinal, bad.reason) for bad in part.add(batch)] == [(1, "out-of-range")]
    assert (part.rows, part.result()) == (2, [{"held": "c"}])
    days = pa.record_batch({"day": pa.array([2**30, 5], pa.date32())})
    assert [bad.ordinal for bad in SummaryTable(read_question("SELECT min(day) AS d FROM rows"), 10).add(days)] == [0]

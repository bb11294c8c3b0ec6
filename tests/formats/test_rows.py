"""What a person's function gave becomes Arrow strictly, or is refused with the key's name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from scribengin.core.types import parse_schema
from scribengin.formats.rows import batch_to_rows, column_to_values, rows_to_batch

NAIVE = dt.datetime(2026, 1, 1)
CET = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("type_", "value", "reason"),
    [
        ("BIGINT", True, "wrong-type"),
        ("BIGINT", 1.0, "wrong-type"),
        ("BIGINT", "1", "wrong-type"),
        ("BIGINT", 2**63, "out-of-range"),
        ("TINYINT", 128, "out-of-range"),
        ("DOUBLE", "1", "wrong-type"),
        ("DOUBLE", True, "wrong-type"),
        ("DOUBLE", 10**400, "out-of-range"),
        ("FLOAT", 1e39, "out-of-range"),
        ("BOOLEAN", 1, "wrong-type"),
        ("STRING", 1, "wrong-type"),
        ("STRING", b"x", "wrong-type"),
        ("STRING", "\ud800", "invalid-utf8"),
        ("BINARY", "x", "wrong-type"),
        ("DATE", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "wrong-type"),
        ("TIMESTAMP", NAIVE, "naive-datetime"),
        ("TIMESTAMP", dt.date(2026, 1, 1), "wrong-type"),
        ("TIMESTAMP", 1767225600, "wrong-type"),
        ("TIMESTAMP", "2026-01-01T00:00:00Z", "wrong-type"),
        ("TIMESTAMP", dt.datetime(1, 1, 1, tzinfo=CET), "out-of-range"),
        ("DECIMAL(5,2)", 1.5, "wrong-type"),
        ("DECIMAL(5,2)", Decimal("1.234"), "out-of-range"),
        ("DECIMAL(5,2)", Decimal("NaN"), "out-of-range"),
        ("ARRAY<INT>", {1}, "wrong-type"),
        ("ARRAY<INT>", [1, "x"], "wrong-type"),
        ("MAP<STRING, INT>", {None: 1}, "missing"),
        ("MAP<STRING, INT>", {"a": 1.0}, "wrong-type"),
        ("STRUCT<a: INT>", {"a": "x"}, "wrong-type"),
        ("STRUCT<a: INT>", {"b": 1}, "surplus-key"),
        ("STRUCT<a: INT NOT NULL>", {}, "missing"),
        ("INT NOT NULL", None, "missing"),
    ],
)
def test_value_is_refused_and_its_neighbours_are_kept(type_: str, value: Any, reason: str) -> None:
    schema = parse_schema(f"id BIGINT, v {type_}")
    good = {"id": 7, "v": _some(schema["v"].type.name)}
    batch, bad = rows_to_batch([good, {"id": 1, "v": value}, good], schema, [10, 11, 12])
    assert [(each.ordinal, each.reason) for each in bad] == [(11, reason)]
    assert bad[0].message.startswith('key "v')
    assert batch.column(0).to_pylist() == [7, 7]


def _some(type_: str) -> Any:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    known: dict[str, Any] = {
        "DOUBLE": 1.0, "FLOAT": 1.0, "BOOLEAN": True, "STRING": "x", "BINARY": b"x", "DATE": at.date(), "TIMESTAMP": at,
        "DECIMAL": Decimal(1), "ARRAY": [], "MAP": {}, "STRUCT": {"a": 1},
    }  # fmt: skip
    return known.get(type_, 1)


@pytest.mark.parametrize(
    ("type_", "value", "kept"),
    [
        ("DOUBLE", 1, 1.0),
        ("FLOAT", 1, 1.0),
        ("DOUBLE", float("inf"), float("inf")),
        ("DECIMAL(5,2)", 3, Decimal("3.00")),
        ("TIMESTAMP", dt.datetime(2026, 1, 1, 1, tzinfo=CET), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        ("ARRAY<INT>", (1, 2), [1, 2]),
        ("MAP<STRING, STRUCT<at: TIMESTAMP>>", {"a": {"at": None}}, {"a": {"at": None}}),
    ],
)
def test_value_that_loses_nothing_is_taken(type_: str, value: Any, kept: Any) -> None:
    batch, bad = rows_to_batch([{"v": value}], parse_schema(f"v {type_}"), [0])
    assert (batch_to_rows(batch), bad) == ([{"v": kept}], [])


def test_a_key_left_out_is_null() -> None:
    batch, bad = rows_to_batch([{}, {"a": 1}], parse_schema("a INT"), range(2))
    assert (batch_to_rows(batch), bad) == ([{"a": None}, {"a": 1}], [])


def test_a_surplus_key_is_named_with_the_remedy() -> None:
    _, bad = rows_to_batch([{"a": 1, "tag": "x"}], parse_schema("a INT, b INT"), [4])
    assert bad[0].message == 'key "tag": is not in the schema (a, b); add it to the step\'s `schema:` or leave it out'


def test_a_surplus_key_does_not_hide_behind_a_missing_one() -> None:
    _, bad = rows_to_batch([{"a": 1, "tag": "x"}, {"a": 1, "b": 2}], parse_schema("a INT, b INT"), [0, 1])
    assert [each.reason for each in bad] == ["surplus-key"]
    _, bad = rows_to_batch([{"a": 1, "tag": "x"}, {}], parse_schema("a INT, b INT"), [0, 1])
    assert [each.reason for each in bad] == ["surplus-key"]


def test_a_naive_datetime_is_refused_with_the_remedy() -> None:
    _, bad = rows_to_batch([{"t": NAIVE}], parse_schema("t TIMESTAMP"), [0])
    assert "write value.replace(tzinfo=datetime.timezone.utc) if it is UTC" in bad[0].message


def test_rows_are_not_changed() -> None:
    rows = [{"v": 1}, {"v": "x"}, {}]
    rows_to_batch(rows, parse_schema("v DOUBLE"), range(3))
    assert rows == [{"v": 1}, {"v": "x"}, {}]


def test_datetimes_have_pythons_own_utc() -> None:
    at = dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)
    for type_ in (pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us")):
        values = column_to_values(pa.array([at.replace(microsecond=0), None], pa.timestamp("us", "UTC")).cast(type_))
        assert values == [at.replace(microsecond=0), None]
        assert values[0].tzinfo is dt.UTC
    nested = batch_to_rows(pa.RecordBatch.from_pylist([{"a": [{"t": at}]}]))
    assert nested[0]["a"][0]["t"].tzinfo is dt.UTC


def test_a_sliced_batch_gives_its_own_rows() -> None:
    batch = pa.RecordBatch.from_pylist([{"n": n, "t": dt.datetime(2026, 1, n + 1, tzinfo=dt.UTC)} for n in range(5)])
    assert [row["n"] for row in batch_to_rows(batch.slice(2, 2))] == [2, 3]
    assert batch_to_rows(batch.slice(0, 0)) == []

"""What a person's function gave becomes Arrow strictly, or is refused with the key's name."""

from __future__ import annotations

import copy
import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_rows import flat_schemas, values

from scribengin.core.types import parse_schema
from scribengin.formats.rows import batch_to_rows, column_to_values, rows_to_batch, settle_rows

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
        ("DOUBLE", 2**53 + 1, "out-of-range"),
        ("FLOAT", 2**24 + 1, "out-of-range"),
        ("ARRAY<DOUBLE>", [-(2**53) - 1], "out-of-range"),
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


@settings(max_examples=300)
@given(st.data())
def test_rows_that_settle_are_those_that_go_through_arrow(data: st.DataObject) -> None:
    schema = data.draw(flat_schemas)
    odd = st.sampled_from([None, 1, 1.5, "x", b"x", True, 2**63, NAIVE, NAIVE.replace(tzinfo=CET), "\ud800", Decimal("1.5")])
    rows = [
        {field.name: data.draw(st.one_of(values(field.type), values(field.type), odd)) for field in schema.fields}
        for _ in range(data.draw(st.integers(0, 4)))
    ]
    for row in rows:
        if data.draw(st.integers(0, 3)) == 0:
            row.pop(data.draw(st.sampled_from(schema.names)))
        if data.draw(st.integers(0, 5)) == 0:
            row["surplus"] = 1
    before = copy.deepcopy(rows)
    settled, bad = settle_rows(rows, schema)
    batch, expected = rows_to_batch(rows, schema, range(len(rows)))
    assert (repr(settled), bad) == (repr(_in_order(batch_to_rows(batch), settled)), expected)
    assert rows == before


def _in_order(rows: list[dict[str, Any]], like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with their keys as they stand in `like`."""
    return [{key: row[key] for key in other} if row.keys() == other.keys() else row for row, other in zip(rows, like, strict=True)]


def test_rows_that_are_right_already_are_not_made_anew() -> None:
    rows = [{"a": 1, "s": "x", "t": NAIVE.replace(tzinfo=dt.UTC)}, {"t": None, "s": None, "a": None}]
    settled, bad = settle_rows(rows, parse_schema("a BIGINT, s STRING, t TIMESTAMP"))
    assert settled is rows
    assert bad == []

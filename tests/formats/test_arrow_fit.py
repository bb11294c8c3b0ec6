"""Columns that pandas, Spark and others write, as those that a flow declares: no value changes, and one that cannot stay is marked."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed_rows import schemas, typed

from scribengin.core.types import Schema, arrow_schema, parse_schema
from scribengin.formats.catalog import decoder_for
from scribengin.formats.parquet import ColumnMismatchError, conform, conformed, fitted, never_fits
from scribengin.formats.rows import column_to_values, rows_to_batch

DAY = dt.date(2026, 3, 2)
NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)
MIDNIGHT = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
NANOS = 1_772_452_800_000_000_001
"""a nanosecond behind noon"""
BAD = "does not fit"


def struct(*rows: Any, **types: pa.DataType) -> pa.Array:
    return pa.array(rows, pa.struct(list(types.items())))


# ruff: noqa: E501 (a case a line)
CASES: list[tuple[str, pa.Array, list[Any]]] = [
    ("STRING", pa.nulls(2), [None, None]),
    ("BOOLEAN", pa.nulls(1), [None]),
    ("STRUCT<a: INT>", pa.nulls(1), [None]),
    ("DECIMAL(5,2)", pa.nulls(1), [None]),
    ("STRING", pa.nulls(2).dictionary_encode(), [None, None]),
    ("STRING", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    ("STRING", pa.array(["a"], pa.large_string()), ["a"]),
    ("STRING", pa.array(["a"], pa.string_view()), ["a"]),
    ("BINARY", pa.array([b"a"], pa.large_binary()), [b"a"]),
    ("BINARY", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    ("DOUBLE", pa.array([7, None, 2**53, -(2**53) - 2, 2**53 + 1, 2**63 - 1, -(2**63)]), [7.0, None, 2.0**53, -(2.0**53) - 2, BAD, BAD, -(2.0**63)]),
    ("DOUBLE", pa.array([2**64 - 1, 2**63], pa.uint64()), [BAD, 2.0**63]),
    ("DOUBLE", pa.array([0.5, None], pa.float32()), [0.5, None]),
    ("FLOAT", pa.array([2**24, 2**24 + 1, None, 2**24 + 2]), [2.0**24, BAD, None, 2.0**24 + 2]),
    ("BIGINT", pa.array([7.0, None, 0.5, float("nan"), float("inf"), 2.0**63, -(2.0**63)]), [7, None, BAD, BAD, BAD, BAD, -(2**63)]),
    ("TINYINT", pa.array([127.0, 128.0]), [127, BAD]),
    ("INT", pa.array([2**31, -(2**31), None]), [BAD, -(2**31), None]),
    ("BIGINT", pa.array([2**63, 1], pa.uint64()), [BAD, 1]),
    ("BIGINT", pa.array([1, 2], pa.int8()), [1, 2]),
    ("DECIMAL(5,2)", pa.array([999, 1000, None]), [Decimal("999.00"), BAD, None]),
    ("DECIMAL(38,20)", pa.array([10**17, 10**18]), [Decimal(10**17), BAD]),
    ("DECIMAL(5,2)", pa.array([Decimal("1.500"), Decimal("1.234"), Decimal("1000.000")]), [Decimal("1.50"), BAD, BAD]),
    ("DECIMAL(5,2)", pa.array([Decimal("1.5")], pa.decimal256(50, 3)), [Decimal("1.50")]),
    ("TIMESTAMP", pa.array([NANOS, NANOS - 1, None, -1, -1000], pa.timestamp("ns", "UTC")), [BAD, NOON, None, BAD, dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)]),
    ("TIMESTAMP", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), [NOON]),
    ("TIMESTAMP", pa.array([NOON], pa.timestamp("us", "Europe/Berlin")), [NOON]),
    ("TIMESTAMP", pa.array([NANOS - 1], pa.timestamp("ns", "Europe/Berlin")), [NOON]),
    ("TIMESTAMP", pa.array([DAY, None]), [MIDNIGHT, None]),
    ("TIMESTAMP", pa.array([DAY], pa.date64()), [MIDNIGHT]),
    ("DATE", pa.array([MIDNIGHT, NOON, None]), [DAY, BAD, None]),
    ("DATE", pa.array([NANOS - 43_200 * 10**9 - 1], pa.timestamp("ns")), [DAY]),
    ("DATE", pa.array([DAY], pa.date64()), [DAY]),
    ("ARRAY<STRING>", pa.array([[], None]), [[], None]),
    ("ARRAY<DOUBLE>", pa.array([[1], None, [], [2**53 + 1, 2], [3, None]]), [[1.0], None, [], BAD, [3.0, None]]),
    ("ARRAY<INT>", pa.array([[1], [2, 3]], pa.large_list(pa.int64())), [[1], [2, 3]]),
    ("ARRAY<INT>", pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), [[1, 2], None, [3, 4]]),
    ("ARRAY<ARRAY<TIMESTAMP>>", pa.array([[[NANOS - 1]], [[NANOS], None], None], pa.list_(pa.list_(pa.timestamp("ns")))), [[[NOON]], BAD, None]),
    ("MAP<STRING, DOUBLE>", pa.array([[("a", 1)], None, [("b", 2**53 + 1)], []], pa.map_(pa.string(), pa.int64())), [{"a": 1.0}, None, BAD, {}]),
    ("MAP<STRING, STRUCT<x: INT, y: INT>>", pa.array([[("a", {"y": 1})]], pa.map_(pa.string(), pa.struct([("y", pa.int8())]))), [{"a": {"x": None, "y": 1}}]),
    ("STRUCT<name: STRING, age: INT>", struct({"age": 7, "name": "Dan", "mail": "x"}, None, age=pa.int64(), name=pa.string(), mail=pa.string()), [{"name": "Dan", "age": 7}, None]),
    ("STRUCT<name: STRING, age: INT>", struct({"name": "Cyd"}, name=pa.string()), [{"name": "Cyd", "age": None}]),
    ("STRUCT<age: INT, at: TIMESTAMP>", struct({"age": 2**31}, {"age": 1, "at": NANOS}, age=pa.int64(), at=pa.timestamp("ns")), [BAD, BAD]),
    ("STRUCT<a: INT NOT NULL>", struct({"a": None}, {"a": 1}, None, a=pa.int64()), [BAD, {"a": 1}, None]),
    ("STRUCT<s: STRUCT<a: INT NOT NULL>>", struct({"s": None}, {"s": {"a": None}}, s=pa.struct([("a", pa.int64())])), [{"s": None}, BAD]),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "column", "expected"), CASES, ids=[f"{asked}-{column.type}" for asked, column, _ in CASES])
def test_a_column_keeps_its_values_and_marks_the_others(asked: str, column: pa.Array, expected: list[Any]) -> None:
    type_ = parse_schema(f"v {asked}").fields[0].type
    form = arrow_schema(parse_schema(f"v {asked}")).field(0).type
    assert not never_fits(column.type, type_)
    padded = pa.concat_arrays([column, column])
    for given_ in (column, padded.slice(len(column)), padded.slice(1, len(column) - 1)):
        first = 1 if len(given_) < len(column) else 0
        made, marks = fitted(given_, type_)
        assert made.type == form
        made.validate(full=True)
        found = [BAD if marks is not None and marks[index] else value for index, value in enumerate(column_to_values(made))]
        assert found == expected[first:]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("STRING", pa.int64()),
        ("STRING", pa.binary()),
        ("BIGINT", pa.string()),
        ("BOOLEAN", pa.int8()),
        ("INT", pa.bool_()),
        ("DOUBLE", pa.decimal128(5, 2)),
        ("FLOAT", pa.float64()),
        ("TIMESTAMP", pa.int64()),
        ("DATE", pa.int32()),
        ("DECIMAL(5,2)", pa.float64()),
        ("ARRAY<INT>", pa.list_(pa.string())),
        ("STRUCT<a: INT NOT NULL>", pa.struct([("b", pa.int64())])),
        ("STRUCT<a: INT>", pa.struct([("a", pa.string())])),
        ("MAP<STRING, INT>", pa.struct([("a", pa.int64())])),
        ("STRING", pa.dictionary(pa.int8(), pa.int64())),
    ],
)
def test_a_type_of_which_no_value_fits_is_told_as_a_whole(asked: str, found: pa.DataType) -> None:
    schema = parse_schema(f"v {asked}")
    assert never_fits(found, schema.fields[0].type)
    with pytest.raises(ColumnMismatchError, match=r'column "v" as .*; expected'):
        conformed("f", pa.record_batch([pa.nulls(1, found)], ["v"]), schema)


def test_a_row_that_does_not_fit_is_dead_with_the_value_and_the_others_go_on() -> None:
    at = pa.array([NANOS - 1, NANOS], pa.timestamp("ns", "UTC"))
    batch = pa.record_batch({"id": [1, 2], "at": at, "n": [1, 2**53 + 1]})
    schema = parse_schema("n DOUBLE, at TIMESTAMP, id INT")
    block = conformed("f", batch, schema, first_row=10)
    found = decoder_for("parquet", schema, {}).rows(block)
    assert found.rows == [{"n": 1.0, "at": NOON, "id": 1}]
    assert [(bad.ordinal, bad.reason) for bad in found.bad] == [(1, "out-of-range")]
    assert found.bad[0].message == 'field "n": found 9007199254740993; expected DOUBLE'
    assert block.payload(1) == b'{"n":"9007199254740993","at":"2026-03-02 12:00:00.000000001Z","id":2}'
    assert block.place(1).row == 11
    with pytest.raises(ColumnMismatchError, match="9007199254740993"):
        conform(batch, schema)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_truncate_cuts_nanoseconds_off_downwards(values: list[int | None]) -> None:
    column = pa.array(values, pa.timestamp("ns"))
    (type_,) = (field.type for field in parse_schema("at TIMESTAMP").fields)
    made, marks = fitted(column, type_, truncate=True)
    assert marks is None
    assert made.cast(pa.int64()).to_pylist() == [None if value is None else value // 1000 for value in values]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**54), 2**54)))
def test_whole_numbers_become_a_double_if_and_only_if_it_is_the_same_number(values: list[int | None]) -> None:
    (type_,) = (field.type for field in parse_schema("n DOUBLE").fields)
    made, marks = fitted(pa.array(values, pa.int64()), type_)
    for index, value in enumerate(values):
        fits = value is None or int(float(value)) == value
        assert made[index].as_py() == (value if fits else None)
        assert (marks is not None and marks[index]) is not fits


@given(typed(schemas))
def test_any_rows_come_back_whatever_their_fields_order(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    batch, _ = rows_to_batch(rows, schema, range(len(rows)))
    turned = pa.RecordBatch.from_arrays(batch.columns[::-1], schema=pa.schema(list(batch.schema)[::-1]))
    assert conform(turned, schema).columns == batch.columns

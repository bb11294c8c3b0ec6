"""What the sink makes of values and row keys, the source reads back; without a server."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.connectors.hbase.cell_names import CellNames
from scribengin.connectors.hbase.cells import values_of
from scribengin.connectors.hbase.gateway_contract import Value, ValueRow
from scribengin.connectors.hbase.reader import HBaseRowParser, column_of
from scribengin.connectors.hbase.row_keys import Template
from scribengin.core.types import INTEGER_BITS, Field, arrow_type, parse_schema
from scribengin.formats.rows import column_to_values
from scribengin.formats.table_blocks import TableDecoder

MOMENTS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), timezones=st.just(dt.UTC))
WORDS = st.text(st.characters(codec="utf-8"), min_size=1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    **{name: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in INTEGER_BITS.items()},
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "STRING": WORDS,
    "BINARY": st.binary(min_size=1),
    "DATE": st.dates(),
    "TIMESTAMP": MOMENTS,
    "DECIMAL(9,2)": st.decimals(-9_999_999, 9_999_999, places=2),
    "ARRAY<INT>": st.lists(st.none() | st.integers(-5, 5)),
    "MAP<STRING, DOUBLE>": st.dictionaries(WORDS, st.floats(allow_nan=False, allow_infinity=False)),
    "STRUCT<a: STRING, b: ARRAY<TIMESTAMP>>": st.fixed_dictionaries({"a": WORDS, "b": st.lists(MOMENTS)}),
}


def field(type_: str) -> Field:
    return parse_schema(f"v {type_}").fields[0]


def read(cells: list[bytes | None], type_: str, form: Any = "text") -> tuple[list[Any], dict[int, str]]:
    found, unfit = column_of(pa.array(cells, pa.binary()), field(type_), form)
    assert found.type == arrow_type(field(type_).type)
    return column_to_values(found), unfit


@pytest.mark.parametrize("form", ["text", "binary"])
@pytest.mark.parametrize("type_", VALUES)
@settings(max_examples=8)
@given(data=st.data())
def test_what_the_sink_writes_the_source_reads(data: st.DataObject, type_: str, form: Any) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type_], max_size=5))
    if type_ == "TIMESTAMP" and form == "binary":  # it is in milliseconds
        values = [value and value.replace(microsecond=value.microsecond // 1000 * 1000) for value in values]
    column = pa.array(values, arrow_type(field(type_).type))
    found, unfit = column_of(values_of(column, form), field(type_), form)
    assert (column_to_values(found), unfit) == (column_to_values(column), {})


def test_numbers_that_are_none_and_an_empty_text_come_back() -> None:
    column = pa.array([float("nan"), float("-inf"), 1.0], pa.float64())
    found, _ = column_of(values_of(column, "text"), field("DOUBLE"), "text")
    assert str(found.to_pylist()) == "[nan, -inf, 1.0]"
    assert read([b"", None, b"x"], "STRING") == ([None, None, "x"], {})
    assert read([b"", None, b"x"], "STRING NOT NULL") == (["", None, "x"], {})


@pytest.mark.parametrize(
    ("cell", "type_", "form", "shown"),
    [
        (b"1.5", "INT", "text", "1.5"),
        (b"300", "TINYINT", "text", "300"),
        (b"9007199254740993", "DOUBLE", "text", "9007199254740993"),
        (b"16777217", "FLOAT", "text", "16777217"),
        (b"\xff", "STRING", "text", "0xff"),
        (b"\xff", "INT", "text", "0xff"),
        (b"1.234", "DECIMAL(9,2)", "text", "1.234"),
        (b"yesterday", "TIMESTAMP", "text", "yesterday"),
        (b"[1", "ARRAY<INT>", "text", "[1"),
        (b'["x"]', "ARRAY<INT>", "text", '["x"]'),
        (b"7", "BIGINT", "binary", "0x37, not 8 bytes"),
        (b"\0\0", "BOOLEAN", "binary", "0x0000, not 1 bytes"),
        (b"\x7f" + b"\xff" * 7, "TIMESTAMP", "binary", "9223372036854775807 milliseconds from 1970"),
    ],
)
def test_a_value_that_does_not_fit_is_told_and_the_others_are_read(cell: bytes, type_: str, form: Any, shown: str) -> None:
    values, unfit = read([cell, None, cell], type_, form)
    assert values == [None, None, None]
    assert unfit == {0: shown, 2: shown}


def test_times_without_a_zone_are_in_utc() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
    cells = [b"2026-01-02T03:04:00", b"2026-01-02 03:04:00.000", b"2026-01-02T04:04:00+01:00", b"2026-01-02T03:04:00Z"]
    assert read([*cells], "TIMESTAMP") == ([at] * 4, {})


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="/"), max_size=5),
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.text(st.characters(codec="utf-8"), max_size=5),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_row_keys_are_read_as_they_were_made(rows: list[tuple[str, int, str]]) -> None:
    template = Template.of("{a:reverse}/({n:20})→{b}.")
    columns = dict(zip("anb", zip(*rows, strict=True), strict=True))
    batch = pa.RecordBatch.from_pydict({name: list(values) for name, values in columns.items()})
    found = template.columns(template.keys(batch))
    read = [
        column_of(found[name], field(type_), "text", of_key=True) for name, type_ in zip("anb", ("STRING", "BIGINT", "STRING"), strict=True)
    ]
    assert [(values.to_pylist(), unfit) for values, unfit in read] == [(list(values), {}) for values in columns.values()]


def test_columns_come_from_cells_and_row_keys_and_what_is_not_made_so_costs_its_own_row() -> None:
    schema = parse_schema("customer STRING, id INT NOT NULL, amount DOUBLE, note STRING")
    parser = HBaseRowParser("t", schema, CellNames("d", {"amount": "m:a"}), Template.of("{customer}/{id:4}"), "text")
    rows = [
        ValueRow(b"ada/0007", [Value(b"d:note", b"x"), Value(b"d:other", b"y"), Value(b"m:a", b"2.5")]),
        ValueRow(b"bob/-008", [Value(b"m:a", b"")]),
        ValueRow(b"\xff", [Value(b"d:note", b"z")]),
        ValueRow(b"bob/x", [Value(b"d:note", b"z")]),
        ValueRow(b"/0009", [Value(b"d:note", b""), Value(b"m:a", b"2,5")]),
        ValueRow(b"c/0010", []),
    ]
    block = parser.block(rows)
    found = TableDecoder(schema).columns(block)
    assert found.batch.to_pylist() == [
        {"customer": "ada", "id": 7, "amount": 2.5, "note": "x"},
        {"customer": "bob", "id": -8, "amount": None, "note": None},
        {"customer": "c", "id": 10, "amount": None, "note": None},
    ]
    assert [(each.ordinal, each.message) for each in found.bad] == [
        (2, "the row key \\xFF does not match `row`"),
        (3, 'field "id" is x, which INT cannot hold'),
        (4, 'field "amount" is 2,5, which DOUBLE cannot hold'),
    ]
    assert block.payload(2) == b'{"row key":"0xff","customer":null,"id":null,"amount":null,"note":"z"}'
    assert block.payload(4) == b'{"row key":"/0009","customer":"","id":9,"amount":"2,5","note":""}'
    assert parser.block(rows).first_row == 6


def test_decimals_of_other_scales_are_read_where_nothing_is_lost() -> None:
    assert read([b"1e2", b"-0.5"], "DECIMAL(9,2)") == ([Decimal("100.00"), Decimal("-0.50")], {})

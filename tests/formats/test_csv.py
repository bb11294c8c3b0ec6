"""CSV by the same contract: cells typed by the schema, quotes by RFC 4180."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.core.types import parse_schema
from scribengin.formats.contract import Bad
from scribengin.formats.csv import CsvDecoder
from scribengin.formats.csv_records import RFC_4180, CsvBlock, join_cells, split_cells, split_records, whole_records_end
from scribengin.formats.dialect import Dialect
from scribengin.formats.rows import rows_to_batch


def one(type_: str, cell: str, **options: Any) -> Any:
    """The value of a cell, the same alone and among good ones, as rows and as columns; or its Bad."""
    schema = parse_schema(f"v {type_}, n INT")
    decoder = CsvDecoder(schema, Dialect.of(options))
    block = CsvBlock("f", f"{cell},1\n".encode("utf-8", "surrogateescape"))
    rows, columns = decoder.rows(block), decoder.columns(block)
    assert columns.bad == rows.bad
    assert columns.batch == rows_to_batch(rows.rows, schema, rows.ordinals)[0]
    return rows.bad[0] if rows.bad else rows.rows[0]["v"]


@pytest.mark.parametrize(
    ("type_", "cell", "value"),
    [
        ("BIGINT", "9223372036854775807", 2**63 - 1), ("BIGINT", " 7", 7), ("BIGINT", "", None),
        ("DOUBLE", "1", 1.0), ("BOOLEAN", "true", True),
        ("STRING", "null", "null"), ("STRING", '""', ""), ("STRING", '"a ""b"""', 'a "b"'), ("STRING", " a ", " a "),
        ("BINARY", "YQ==", b"a"),
        ("ARRAY<INT>", '"[1,null]"', [1, None]), ("STRUCT<a: STRING>", '"{""a"":""x,y""}"', {"a": "x,y"}),
    ],
)  # fmt: skip
def test_cell_is_read(type_: str, cell: str, value: Any) -> None:
    assert one(type_, cell) == value


@pytest.mark.parametrize(
    ("type_", "cell", "reason"),
    [
        ("BIGINT", "1.0", "wrong-type"), ("BIGINT", "1e2", "wrong-type"),
        ("BIGINT", "01", "wrong-type"), ("BIGINT", "+1", "wrong-type"),
        ("BIGINT", "null", "wrong-type"), ("BIGINT", '"1,2"', "wrong-type"),
        ("BIGINT", '""', "wrong-type"), ("BIGINT", "1_000", "wrong-type"),
        ("BIGINT", "9223372036854775808", "out-of-range"), ("TINYINT", "128", "out-of-range"), ("DOUBLE", "nan", "wrong-type"),
        ("DOUBLE", "1e400", "out-of-range"), ("FLOAT", "1e39", "out-of-range"), ("BOOLEAN", "True", "wrong-type"),
        ("BOOLEAN", "1", "wrong-type"), ("DATE", "2026-02-30", "wrong-type"), ("TIMESTAMP", "1767225600", "wrong-type"),
        ("TIMESTAMP", '"a"",""b"', "wrong-type"), ("DOUBLE", "9007199254740993", "out-of-range"), ("FLOAT", "16777217", "out-of-range"),
        ("TIMESTAMP", "2026-01-01T23:59:59.9999999Z", "out-of-range"), ("TIMESTAMP", "2026-01-01T23:59:59.000000001+01:00", "out-of-range"),
        ("DOUBLE", '"""NaN"""', "wrong-type"), ("ARRAY<DOUBLE>", "[9007199254740993]", "out-of-range"),
        ("DECIMAL(5,2)", "1.234", "out-of-range"), ("DECIMAL(5,2)", "NaN", "wrong-type"),

        ("DECIMAL(5,2)", "1_0", "wrong-type"), ("STRING NOT NULL", "", "missing"), ("STRING", 'a"b', "malformed"),
        ("STRING", '"a"b', "malformed"),
        ("STRING", '"a', "malformed"), ("STRING", "\udcff", "invalid-utf8"), ("STRING", "a,b", "ragged"), ("ARRAY<INT>", "1", "wrong-type"),
    ],
)  # fmt: skip
def test_cell_is_dead(type_: str, cell: str, reason: str) -> None:
    bad = one(type_, cell)
    assert isinstance(bad, Bad), bad
    assert bad.reason == reason


def test_a_bad_cell_names_its_column_and_costs_no_other_record() -> None:
    block = CsvBlock("f", b"1,a\n1.0,b\n\n3,c\n4\n", header=("id", "name"))
    found = CsvDecoder(parse_schema("name STRING, id BIGINT")).rows(block)
    assert found.rows == [{"name": "a", "id": 1}, {"name": "c", "id": 3}]
    assert (list(found.ordinals), found.skipped) == ([0, 3], 1)
    assert found.bad == [Bad(1, "wrong-type", 'column "id": found "1.0"; expected BIGINT'), Bad(4, "ragged", "found 1 cells; expected 2")]


def test_a_column_that_the_header_lacks_is_null_or_dead() -> None:
    block = CsvBlock("f", b"1\n", header=("id",))
    assert CsvDecoder(parse_schema("id INT, x INT")).rows(block).rows == [{"id": 1, "x": None}]
    assert [bad.reason for bad in CsvDecoder(parse_schema("id INT, x INT NOT NULL")).rows(block).bad] == ["missing"]


def test_null_text_and_delimiter_are_as_told() -> None:
    block = CsvBlock("f", b'NA|"NA"|\n', dialect=Dialect(delimiter="|"))
    found = CsvDecoder(parse_schema("a STRING, b STRING, c STRING"), Dialect(delimiter="|", nulls=("NA",))).rows(block)
    assert found.rows == [{"a": None, "b": "NA", "c": ""}]
    with pytest.raises(ValueError, match="contains a line end"):
        Dialect.of({"delimiter": "\n"})


def test_a_parse_step_takes_values() -> None:
    found = CsvDecoder(parse_schema("a INT, b STRING")).decode_values(['1,"x\ny"', b"2,", None, "", "3", "x,y"])
    assert found.rows == [{"a": 1, "b": "x\ny"}, {"a": 2, "b": None}, {"a": None, "b": None}]
    assert (list(found.ordinals), found.skipped, [bad.ordinal for bad in found.bad]) == ([0, 1, 2], 1, [4, 5])


cells = st.text(st.sampled_from('a1 ,;"\n\r\\é'), max_size=6)


@given(st.lists(st.lists(cells, min_size=2, max_size=2), max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_what_pythons_csv_module_writes_is_read(table: list[list[str]], end: str) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(table)
    found = CsvDecoder(parse_schema("a STRING, b STRING")).rows(CsvBlock("f", file.getvalue().encode()))
    assert ([[row["a"], row["b"]] for row in found.rows], found.bad) == (table, [])


@given(st.lists(st.sampled_from(["a", '"', ",", "\n", "\r\n", '""', '"x"']), max_size=25).map("".join), st.integers(0, 25))
def test_records_are_the_same_wherever_the_data_are_cut(text: str, at: int) -> None:
    data = text.encode()
    whole = list(split_records(data, RFC_4180))
    assert b"".join(whole) == data
    end = whole_records_end(data[:at], RFC_4180)
    if '"' not in text or all(record.count(b'"') % 2 == 0 for record in whole):
        assert list(split_records(data[:end], RFC_4180)) + list(split_records(data[end:], RFC_4180)) == whole


def test_a_value_holds_one_record_and_perhaps_its_line_end() -> None:
    found = CsvDecoder(parse_schema("a INT, b STRING")).decode_values(["1,x\n", b"2,y\r\n", "3,x\n4,y", '5,"x\ny"\n', "6,x\n\n"])
    assert found.rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 5, "b": "x\ny"}]
    assert [(bad.ordinal, bad.reason) for bad in found.bad] == [(2, "malformed"), (4, "malformed")]


@pytest.mark.parametrize(
    ("options", "value", "row"),
    [
        ({"quote": "none"}, '5,"x', {"a": 5, "b": '"x'}),
        ({"escape": "\\"}, "5,a\\,b\\n\\N", {"a": 5, "b": "a,b\nN"}),
        ({"escape": "\\"}, "\\N,\\N", {"a": None, "b": None}),
        ({"escape": "^"}, '5,"a^"b^^""c"', {"a": 5, "b": 'a"b^"c'}),
        ({"trim": True}, ' 5 ,\t" x " ', {"a": 5, "b": " x "}),
        ({"null": ["-", "?"]}, "-,?", {"a": None, "b": None}),
        ({"null": ["-", ""]}, '"5",""', {"a": 5, "b": ""}),
        ({"quoted_null": "typed"}, '"",""', {"a": None, "b": ""}),
        ({"quoted_null": "always"}, '"",""', {"a": None, "b": None}),
        ({"extra_cells": "empty"}, "5,x,,", {"a": 5, "b": "x"}),
        ({"extra_cells": "drop"}, "5,x,y", {"a": 5, "b": "x"}),
        ({"delimiter": "::"}, "5::x:y", {"a": 5, "b": "x:y"}),
        ({"encoding": "utf-16-le"}, "5,ä".encode("utf-16-le"), {"a": 5, "b": "ä"}),
        ({"encoding": "windows-1252"}, b"5,\xe4", {"a": 5, "b": "ä"}),
        ({"encoding": "windows-1252"}, "5,ä", {"a": 5, "b": "ä"}),  # a text has no encoding any more
    ],
)
def test_a_value_is_read_by_the_options_of_its_dialect(options: dict[str, Any], value: bytes | str, row: dict[str, Any]) -> None:
    found = CsvDecoder(parse_schema("a INT, b STRING"), Dialect.of(options)).decode_values([value])
    assert (found.rows, found.bad) == ([row], [])


@given(
    st.lists(st.none() | st.text(st.sampled_from(["a", '"', ",", "\n", "\\", " ", "N", "|"]), max_size=6), min_size=1, max_size=4),
    st.sampled_from([{}, {"quote": "none"}, {"escape": "\\"}, {"quote": "none", "escape": "\\"}, {"trim": True}, {"delimiter": "||"}]),
)
def test_cells_that_are_joined_are_split_again(cells: list[str | None], options: dict[str, Any]) -> None:
    dialect = Dialect.of(options)
    joined = join_cells(cells, dialect)
    if joined is None:
        assert dialect.quote is None
    else:
        assert split_cells(joined, dialect) == cells

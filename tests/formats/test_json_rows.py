"""Rows straight to JSON: byte for byte what the way over Arrow writes, or nothing."""

import datetime as dt
from enum import IntEnum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scribengin.core.types import parse_schema
from scribengin.formats.blocks import LineBlock
from scribengin.formats.json import JsonDecoder
from scribengin.formats.json_out import json_lines, json_rows
from scribengin.formats.rows import rows_to_batch

SCHEMA = parse_schema("id BIGINT NOT NULL, small TINYINT, `näme` STRING, ok BOOLEAN, amount DOUBLE, at TIMESTAMP, until TIMESTAMP")
NAME = "näme"
NEEDS = (NAME, "at")
PLAIN = json_rows(SCHEMA, NEEDS)


class Colour(IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


class Row(dict):
    pass


zones = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=2))])
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-5, 5),
    st.floats(),
    st.text(),
    st.binary(max_size=3),
    st.datetimes(timezones=zones),
    st.dates(),
    st.sampled_from([Colour.RED, Text("t"), 10**400, "\ud800", "2026-01-01T00:00:00Z", "1", b"x", [1], {"a": 1}, ()]),
)
instants = st.none() | st.datetimes(timezones=st.just(dt.UTC))
fitting = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "small": st.none() | st.integers(-128, 127),
        NAME: st.none() | st.text(),
        "ok": st.none() | st.booleans(),
        "amount": st.none() | st.floats(-(2.0**52), 2.0**52) | st.integers(-(2**52), 2**52),
        "at": instants,
        "until": instants,
    },
)
names = st.sampled_from([*SCHEMA.names, "surplus"])
odd = st.builds(lambda row, name, value: {**row, name: value}, fitting, names, anything)
rows_of = st.lists(fitting | odd, max_size=5)


@pytest.fixture(scope="module")
def made():
    assert PLAIN is not None
    return PLAIN


@example([{"id": Colour.RED}])
@example([{"id": 1, NAME: Text("t")}])
@example([{"id": 1, "amount": 10**400}])
@example([{"id": 1, "amount": 2**53 + 1}])
@example([{"id": True}])
@example([{"id": 1, "at": "2026-01-01T00:00:00Z"}])
@example([{"id": 1, "at": dt.datetime(2026, 1, 1)}])
@example([{"id": 1, "at": dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))}])
@example([Row(id=1, amount=5, at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))])
@given(rows_of)
def test_what_is_written_is_what_arrow_would_have_written(rows):
    found = PLAIN.of_rows(rows)
    if found is None:
        return
    batch, bad = rows_to_batch(rows, SCHEMA, range(len(rows)))
    assert bad == []
    lines, columns = found
    assert lines == json_lines(batch)
    assert set(columns) == set(NEEDS)
    assert all(column.equals(batch.column(name)) for name, column in columns.items())


@given(st.lists(fitting, min_size=1, max_size=5))
def test_rows_that_fit_take_the_short_way(rows):
    assert PLAIN.of_rows(rows) is not None


@given(st.lists(fitting, min_size=1, max_size=5))
def test_structs_of_a_decoder_are_written_as_rows_are_and_are_not_changed(rows):
    lines, columns = PLAIN.of_rows(rows)
    decoded = JsonDecoder(SCHEMA).structs(LineBlock("rows", lines))
    before = decoded.form.rows(decoded.structs)
    assert PLAIN.of_structs(decoded.structs) == (lines, columns)
    assert decoded.form.rows(decoded.structs) == before


@pytest.mark.parametrize("row", [{"id": 1, "amount": float("nan")}, {"id": 1, "amount": float("-inf")}, {}, {"id": 1, "surplus": None}])
def test_what_is_not_plain_is_left_to_the_other_way(made, row):
    assert made.of_rows([row]) is None


def test_names_that_have_to_be_escaped_are_left_to_the_other_way():
    assert json_rows(parse_schema('id BIGINT, `a "b"` STRING'), ()) is None


def test_types_that_json_has_no_plain_word_for_are_left_to_the_other_way():
    for type_ in ("FLOAT", "DECIMAL(5, 2)", "BINARY", "DATE", "ARRAY<INT>", "STRUCT<a: INT>", "MAP<STRING, INT>"):
        assert json_rows(parse_schema(f"id BIGINT, x {type_}"), ()) is None

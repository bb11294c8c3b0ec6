"""The parse contract, line by line, and that every way through the decoder tells the same."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed_rows import flat_schemas, schemas, typed

from scribengin.core.types import Schema, parse_schema
from scribengin.formats.blocks import DamageBlock, LineBlock
from scribengin.formats.contract import Bad
from scribengin.formats.encoders import json_lines
from scribengin.formats.json import JsonDecoder
from scribengin.formats.rows import rows_to_batch

UTC = dt.UTC


def one(ddl: str, line: bytes) -> dict[str, Any] | Bad:
    """What becomes of one line; it must be the same alone, among good ones, and as columns."""
    schema = parse_schema(ddl)
    decoder = JsonDecoder(schema)
    assert_agreement(schema, line + b"\n")
    found = decoder.rows(LineBlock("f", line))
    assert len(found.rows) + len(found.bad) == 1
    return found.rows[0] if found.rows else found.bad[0]


def assert_agreement(schema: Schema, data: bytes) -> None:
    """`rows`, `structs`, `columns`, `decode_values` and a decoder that sees one line at a time give the same records."""
    decoder = JsonDecoder(schema)
    block = LineBlock("f", data)
    rows = decoder.rows(block)
    columns = decoder.columns(block)
    assert (list(columns.ordinals), columns.bad, columns.skipped) == (list(rows.ordinals), rows.bad, rows.skipped)
    assert columns.batch == rows_to_batch(rows.rows, schema, rows.ordinals)[0]
    assert len(block) == len(rows.rows) + len(rows.bad) + rows.skipped
    if decoder.structs is not None:
        found = decoder.structs(block)
        assert (list(found.ordinals), found.bad, found.skipped) == (list(rows.ordinals), rows.bad, rows.skipped)
        assert found.form.rows(found.structs) == rows.rows
        assert found.form.batch(found.structs) == columns.batch
    alone = [decoder.rows(LineBlock("f", line + b"\n")) for line in block.lines()]
    assert rows.rows == [row for each in alone for row in each.rows]
    assert [(bad.reason, bad.message) for bad in rows.bad] == [(bad.reason, bad.message) for each in alone for bad in each.bad]
    values = decoder.decode_values(block.lines())
    assert (values.rows, list(values.ordinals), values.bad, values.skipped) == (rows.rows, list(rows.ordinals), rows.bad, rows.skipped)


ACCEPTED: list[tuple[str, bytes, Any]] = [
    ("BIGINT", b"9223372036854775807", 2**63 - 1),
    ("BIGINT", b"-9223372036854775808", -(2**63)),
    ("TINYINT", b"-128", -128),
    ("DOUBLE", b"1", 1.0),
    ("DOUBLE", b"1e2", 100.0),
    ("DOUBLE", b"123456789012345680000000000000.0", 1.2345678901234568e29),
    ("DOUBLE", b"-9007199254740992", -9007199254740992.0),
    ("DOUBLE", b"9007199254740994", 9007199254740994.0),
    ("DOUBLE", b'"Infinity"', math.inf),
    ("FLOAT", b'"-Infinity"', -math.inf),
    ("FLOAT", b"16777216", 16777216.0),
    ("FLOAT", b"16777217.0", 16777216.0),
    ("ARRAY<DOUBLE>", b'[9007199254740992,0.1,"Infinity"]', [9007199254740992.0, 0.1, math.inf]),
    ("FLOAT", b"0.1", 0.10000000149011612),
    ("BOOLEAN", b"true", True),
    ("STRING", rb'"\ud83d\ude00\u0000"', "😀\x00"),
    ("BINARY", b'"YQ=="', b"a"),
    ("DATE", b'"2026-02-28"', dt.date(2026, 2, 28)),
    ("TIMESTAMP", b'"2026-01-01T00:00:00Z"', dt.datetime(2026, 1, 1, tzinfo=UTC)),
    ("TIMESTAMP", b'"2026-01-01 00:00:00.5"', dt.datetime(2026, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)),
    ("TIMESTAMP", b'"2026-01-01T01:00:00+01:00"', dt.datetime(2026, 1, 1, tzinfo=UTC)),
    ("TIMESTAMP", b'"2026-01-01T23:59:59.999999000Z"', dt.datetime(2026, 1, 1, 23, 59, 59, 999999, tzinfo=UTC)),
    ("TIMESTAMP", b'"2026-01-01T10:00:00+0530"', dt.datetime(2026, 1, 1, 4, 30, tzinfo=UTC)),
    ("TIMESTAMP", b'"2026-01-01T00:00:00.250-01"', dt.datetime(2026, 1, 1, 1, 0, 0, 250000, tzinfo=UTC)),
    ("TIMESTAMP", b'"2026-01-01 00:00:00,250"', dt.datetime(2026, 1, 1, 0, 0, 0, 250000, tzinfo=UTC)),
    ("TIMESTAMP", b'"0001-01-01T00:00:00Z"', dt.datetime(1, 1, 1, tzinfo=UTC)),
    ("DECIMAL(5,2)", b"1.5", Decimal("1.50")),
    ("DECIMAL(5,2)", b"-1e2", Decimal("-100.00")),
    ("DECIMAL(5,2)", b"1.500", Decimal("1.50")),
    ("DECIMAL(5,2)", b"0.000", Decimal("0.00")),
    ("ARRAY<BIGINT>", b"[1,null]", [1, None]),
    ("MAP<BIGINT, STRING>", b'{"1":"x","2":null}', {1: "x", 2: None}),
    ("STRUCT<a: INT, b: STRING>", b'{"b":"x","c":[{}]}', {"a": None, "b": "x"}),
    ("BIGINT", b"null", None),
    ("DECIMAL(5,2)", b"null", None),
]


@pytest.mark.parametrize(("type_", "text", "value"), ACCEPTED)
def test_value_is_read(type_: str, text: bytes, value: Any) -> None:
    found = one(f"v {type_}", b'{"v":' + text + b"}")
    assert found == {"v": value}
    assert not isinstance(value, dt.datetime) or found["v"].tzinfo is UTC  # type: ignore[index]


REFUSED: list[tuple[str, bytes, str]] = [
    ("BIGINT", b"1.0", "wrong-type"),
    ("BIGINT", b"1e2", "wrong-type"),
    ("BIGINT", b'"1"', "wrong-type"),
    ("BIGINT", b"true", "wrong-type"),
    ("BIGINT", b"9223372036854775808", "out-of-range"),
    ("BIGINT", b"-9223372036854775809", "out-of-range"),
    ("TINYINT", b"128", "out-of-range"),
    ("SMALLINT", b"-32769", "out-of-range"),
    ("INT", b"2147483648", "out-of-range"),
    ("BIGINT", b"01", "malformed"),
    ("DOUBLE", b'"1"', "wrong-type"),
    ("DOUBLE", b"1e400", "out-of-range"),
    ("DOUBLE", b"NaN", "malformed"),
    ("DOUBLE", b"Infinity", "malformed"),
    ("FLOAT", b"1e39", "out-of-range"),
    ("BOOLEAN", b"1", "wrong-type"),
    ("STRING", b"1", "wrong-type"),
    ("STRING", b"{}", "wrong-type"),
    ("STRING", rb'"\ud800"', "malformed"),
    ("STRING", b'"a\x00b"', "malformed"),
    ("STRING", b'"\xff"', "invalid-utf8"),
    ("STRING", b'"\xed\xa0\x80"', "invalid-utf8"),
    ("BINARY", b'"YQ"', "invalid-value"),
    ("DATE", b'"2026-02-30"', "invalid-value"),
    ("DATE", b'"2026-01-01T00:00:00Z"', "invalid-value"),
    ("TIMESTAMP", b"1767225600", "wrong-type"),
    ("TIMESTAMP", b'"yesterday"', "invalid-value"),
    ("TIMESTAMP", b'"2026-01-01T24:00:00Z"', "invalid-value"),
    ("TIMESTAMP", b'"2026-02-29T00:00:00Z"', "invalid-value"),
    ("TIMESTAMP", b'"2026-01-01T00:00:00+1"', "invalid-value"),
    ("TIMESTAMP", b'"2026-01-01T23:59:59.9999999Z"', "out-of-range"),
    ("TIMESTAMP", b'"2026-01-01T23:59:59.000000001+0100"', "out-of-range"),
    ("ARRAY<TIMESTAMP>", b'["2026-01-01T23:59:59.9999999Z"]', "out-of-range"),
    ("MAP<TIMESTAMP, INT>", b'{"2026-01-01T23:59:59.9999999Z":1}', "out-of-range"),
    ("DOUBLE", b"9007199254740993", "out-of-range"),
    ("DOUBLE", b"-9007199254740993", "out-of-range"),
    ("DOUBLE", b"123456789012345678901234567890", "out-of-range"),
    ("ARRAY<DOUBLE>", b"[0.5,9007199254740993]", "out-of-range"),
    ("MAP<STRING, STRUCT<d: DOUBLE>>", b'{"a":{"d":9007199254740993}}', "out-of-range"),
    ("DOUBLE", b'"nan"', "wrong-type"),
    ("FLOAT", b"16777217", "out-of-range"),
    ("STRUCT<f: FLOAT>", b'{"f":16777217}', "out-of-range"),
    ("TIMESTAMP", b'"2026-01-01T00:00Z"', "invalid-value"),
    ("TIMESTAMP", b'"0000-01-01T00:00:00Z"', "invalid-value"),
    ("TIMESTAMP", b'"0001-01-01T00:00:00+01:00"', "out-of-range"),
    ("DECIMAL(5,2)", b'"1.5"', "wrong-type"),
    ("DECIMAL(5,2)", b"1.234", "out-of-range"),
    ("DECIMAL(5,2)", b"1000", "out-of-range"),
    ("DECIMAL(5,2)", b"1e999999999", "out-of-range"),
    ("DECIMAL(5,2)", b"true", "wrong-type"),
    ("ARRAY<BIGINT>", b'[1,"2"]', "wrong-type"),
    ("MAP<BIGINT, STRING>", b'{"x":"y"}', "wrong-type"),
    ("BIGINT NOT NULL", b"null", "missing"),
    ("DECIMAL(5,2) NOT NULL", b"null", "missing"),
    ("STRUCT<a: INT NOT NULL>", b"{}", "missing"),
]


@pytest.mark.parametrize(("type_", "text", "reason"), REFUSED)
def test_value_is_dead_and_the_message_names_the_field(type_: str, text: bytes, reason: str) -> None:
    bad = one(f"v {type_}", b'{"v":' + text + b"}")
    assert isinstance(bad, Bad), bad
    assert bad.reason == reason
    assert '"v' in bad.message or reason in ("malformed", "invalid-utf8")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":1}{"a":2}', "malformed"),
        (b'{"a":1} x', "malformed"),
        (b"{'a':1}", "malformed"),
        (b'{"a":1,}', "malformed"),
        (b'{"a":1', "malformed"),
        (b"\x00", "malformed"),
        (b'\xef\xbb\xbf{"a":1}', "malformed"),
        (b"[1]", "wrong-type"),
        (b"null", "wrong-type"),
        (b'"a"', "wrong-type"),
        (b'{"z":"\xff"}', "invalid-utf8"),
        (b'{"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "malformed"),
    ],
)
def test_line_is_dead(line: bytes, reason: str) -> None:
    bad = one("a BIGINT", line)
    assert isinstance(bad, Bad)
    assert bad.reason == reason


def test_messages_say_field_finding_and_what_is_asked() -> None:
    assert one("id BIGINT", b'{"id":"7"}') == Bad(0, "wrong-type", 'field "id": found a string; expected BIGINT')
    assert one("u STRUCT<age: INT>", b'{"u":{"age":1.5}}') == Bad(
        0, "wrong-type", 'field "u.age": found a number with decimals or an exponent; expected INT'
    )
    assert one("d DECIMAL(5,2)", b'{"d":1.234}') == Bad(
        0, "out-of-range", 'field "d": found 1.234, which has more than 2 decimals; expected DECIMAL(5,2)'
    )
    assert one("id BIGINT NOT NULL", b"{}") == Bad(0, "missing", 'field "id" is missing or null; expected BIGINT NOT NULL')
    assert one("d INT, e DECIMAL(5,2) NOT NULL", b"{}") == Bad(0, "missing", 'field "e" is missing or null; expected DECIMAL(5,2) NOT NULL')
    assert one("m MAP<INT, INT>", b'{"m":{"x":1}}') == Bad(
        0, "wrong-type", 'field "m": found a key of the wrong type; expected MAP<INT, INT>'
    )


def test_missing_is_null_surplus_is_dropped_and_the_last_of_two_wins() -> None:
    assert one("a BIGINT, b STRING", b'{"b":"x","A":1,"z":{},"b":"y"}') == {"a": None, "b": "y"}


def test_names_are_exact() -> None:
    assert one('`a.b` BIGINT, `q"` STRING, ключ INT', '{"a.b":1,"q\\"":"x","ключ":2,"КЛЮЧ":3}'.encode()) == {"a.b": 1, 'q"': "x", "ключ": 2}


def test_records_never_go_over_a_line_end_even_where_the_counts_agree() -> None:
    data = b'{"a":1}{"a":2}\n{"a":\n3}\n{"a":4}\n'
    found = JsonDecoder(parse_schema("a BIGINT")).rows(LineBlock("f", data))
    assert (found.rows, list(found.ordinals)) == ([{"a": 4}], [3])
    assert [bad.ordinal for bad in found.bad] == [0, 1, 2]
    data = b'{"a":1}{"a":2}\n{"a":3,"z":{}\n,"y":4}\n{"a":5}\n'
    assert_agreement(parse_schema("a BIGINT"), data)
    assert JsonDecoder(parse_schema("a BIGINT")).rows(LineBlock("f", data)).rows == [{"a": 5}]


def test_empty_lines_are_skipped_and_counted() -> None:
    found = JsonDecoder(parse_schema("a BIGINT")).rows(LineBlock("f", b'\n{"a":1}\n \t\r\n{"a":2}\r\n\n'))
    assert (found.rows, list(found.ordinals), found.skipped, found.bad) == ([{"a": 1}, {"a": 2}], [1, 3], 3, [])


def test_place_and_payload_of_a_bad_line() -> None:
    block = LineBlock("f", b'{"a":1}\r\nx\xff\r\n{"a":2}', offset=100, first_line=7)
    (bad,) = JsonDecoder(parse_schema("a BIGINT")).rows(block).bad
    place = block.place(bad.ordinal)
    assert (place.file, place.line, place.offset, block.payload(bad.ordinal)) == ("f", 8, 109, b"x\xff")


def test_damage_is_one_bad_record() -> None:
    block = DamageBlock("f", "truncated", "the file ends too early", 7, head=b"{")
    decoder = JsonDecoder(parse_schema("a BIGINT"))
    for found in (decoder.rows(block), decoder.columns(block)):
        assert found.bad == [Bad(0, "truncated", "the file ends too early")]
        assert list(found.ordinals) == []


def test_a_parse_step_takes_values_of_any_kind() -> None:
    decoder = JsonDecoder(parse_schema("a BIGINT"))
    found = decoder.decode_values(['{"a":1}', b'{"a":\n2}', None, "", "x", '{"a":"\ud800"}', '{"a":1}\n{"a":2}', ""])
    assert (found.rows, list(found.ordinals), found.skipped) == ([{"a": 1}, {"a": 2}, {"a": None}], [0, 1, 2], 2)
    assert [(bad.ordinal, bad.reason) for bad in found.bad] == [(4, "malformed"), (5, "invalid-utf8"), (6, "malformed")]


def test_a_value_of_two_records_and_an_empty_one_do_not_make_up_for_each_other() -> None:
    found = JsonDecoder(parse_schema("a BIGINT")).decode_values(['{"a":1}\n{"a":2}', ""])
    assert (found.rows, found.skipped, len(found.bad)) == ([], 1, 1)


def test_a_column_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="keys of a JSON object"):
        JsonDecoder(parse_schema("m MAP<DOUBLE, INT>"))


pieces = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b":",
        b",",
        b"\n",
        b"\r\n",
        b" ",
        b"\\",
        b"1",
        b"1.0",
        b"-",
        b"e5",
        b"null",
        b"true",
        b"\x00",
        b"\xff",
        b'"a"',
        b'{"a":1}',
        b'{"a":2,"t":"2026-01-01T00:00:00Z"}',
        b'{"a":',
        b'}\n{"a":3}',
        b'"t":"0000-01-01T00:00:00Z"',
        b'"2026-01-01T00:00:00.123456789Z"',
    ]
)


@given(st.lists(pieces, max_size=30).map(b"".join))
def test_all_ways_agree_on_nonsense(data: bytes) -> None:
    assert_agreement(parse_schema("a BIGINT, t TIMESTAMP, s STRING"), data)


@given(typed(schemas | flat_schemas), st.data())
def test_all_ways_agree_on_damaged_records(case: tuple[Schema, list[dict[str, Any]]], data: st.DataObject) -> None:
    schema, rows = case
    text = bytearray(json_lines(rows_to_batch(rows, schema, range(len(rows)))[0]))
    for _ in range(data.draw(st.integers(0, 3)) if text else 0):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b"\n", b'"', b"0", b"}{", b"\xc3", b".", b"null", b"-"])
        )
    assert_agreement(schema, bytes(text))


near_times = st.from_regex(
    r"\A[0-9]{4}-[0-9]{2}-[0-3][0-9][T t_][0-2][0-9]:[0-5][0-9]:[0-6][0-9](\.[0-9]{1,9})?(Z|z|[+-][0-9]{2}:?[0-9]{2})?\Z"
)
odd_times = st.from_regex(r"\A[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9](:?[0-5][0-9](:?[0-6][0-9]([.,][0-9]{0,9})?)?)?)?Z\Z")


@given(st.lists(near_times | odd_times | st.text("0129-:.TZ+ ", min_size=18, max_size=28), min_size=1, max_size=3))
def test_arrow_and_msgspec_agree_on_timestamps(times: list[str]) -> None:
    for batch in (times, *[[time] for time in times]):
        assert_agreement(parse_schema("t TIMESTAMP"), "".join(f'{{"t":"{time}"}}\n' for time in batch).encode())


@given(st.floats(), st.floats(width=32))
def test_any_float_is_written_so_that_it_reads_back(wide: float, narrow: float) -> None:
    schema = parse_schema("v DOUBLE, f FLOAT, a ARRAY<DOUBLE>")
    row = {"v": wide, "f": narrow, "a": [wide]}
    found = JsonDecoder(schema).rows(LineBlock("f", json_lines(rows_to_batch([row], schema, [0])[0])))
    assert not found.bad
    assert repr(found.rows) == repr([row]), "repr tells -0.0 from 0.0, and NaN equals itself"


@pytest.mark.parametrize(
    ("ddl", "good", "lost"),
    [
        ("v TIMESTAMP", '"2026-03-02T10:00:00.123456Z"', '"2026-03-02T23:59:59.999999999Z"'),
        ("v TIMESTAMP", '"2026-03-02T10:00:00Z"', '"2026-03-02 23:59:59.0000001"'),
        ("v ARRAY<TIMESTAMP>", '["2026-03-02T10:00:00Z",null]', '[null,"2026-03-02T10:00:00.1234567+01:00"]'),
        ("v DOUBLE", "1.2345678901234567", "9007199254740993"),
        ("v DOUBLE", "9007199254740992", "-36028797018963969"),
        ("v STRUCT<d: ARRAY<DOUBLE>>", '{"d":[1,2.5]}', '{"d":[1,9007199254740993]}'),
        ("v FLOAT", "0.1", "16777217"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 777, 2999])
def test_the_one_record_that_would_lose_a_digit_is_found_wherever_it_stands(ddl: str, good: str, lost: str, at: int) -> None:
    """Whatever its place in a piece, and among long numbers of columns that keep them."""
    lines = [f'{{"id":{10**17 + n},"v":{lost if n == at else good},"at":"12:30.5555555"}}\n' for n in range(3000)]
    decoder = JsonDecoder(parse_schema(f"id BIGINT, {ddl}"))
    block = LineBlock("f", "".join(lines).encode())
    ways = [decoder.rows(block), decoder.columns(block), *([] if decoder.structs is None else [decoder.structs(block)])]
    for found in ways:
        assert [(bad.ordinal, bad.reason) for bad in found.bad] == [(at, "out-of-range")]
        assert 'field "v' in found.bad[0].message
        assert max(re.findall(r"[-:T0-9.]+", lost), key=len) in found.bad[0].message
        assert len(found.ordinals) == 2999


_TIMES = st.builds(
    "2026-03-0{}{}{:02}:59:5{}{}{}".format,
    st.integers(1, 9),
    st.sampled_from("T t"),
    st.integers(0, 24),
    st.integers(0, 9),
    st.one_of(st.just(""), st.from_regex(r"[.,][0-9]{1,12}", fullmatch=True)),
    st.sampled_from(["Z", "z", "", "+00:00", "-0530", "+01", "+1", " UTC"]),
)


@given(
    st.lists(
        st.tuples(
            _TIMES, st.integers(-(2**70), 2**70) | st.integers(2**53 - 5, 2**53 + 5) | st.floats(allow_infinity=False, allow_nan=False)
        )
    )
)
def test_every_way_says_the_same_of_any_time_and_any_number(values: list[tuple[str, float]]) -> None:
    schema = parse_schema("ts TIMESTAMP, d DOUBLE")
    data = "".join(f'{{"ts":"{time}","d":{number!r}}}\n' for time, number in values).encode()
    assert_agreement(schema, data)
    found = JsonDecoder(schema).rows(LineBlock("f", data))
    for row, ordinal in zip(found.rows, found.ordinals, strict=True):
        time, number = values[ordinal]
        assert row["d"] == number, "Python compares a whole number with a float exactly"
        fraction = "".join(itertools.takewhile(str.isdigit, time[20:])) if time[19:20] in tuple(".,") else ""
        assert f"{row['ts'].microsecond:06}".ljust(12, "0") == fraction.ljust(12, "0")


def test_truncate_cuts_a_time_off_and_never_rounds_it() -> None:
    schema = parse_schema("ts TIMESTAMP, all ARRAY<TIMESTAMP>")
    for flat in (True, False):
        asked = parse_schema("ts TIMESTAMP") if flat else schema
        decoder = JsonDecoder(asked, truncate=True)
        for text in ("2026-03-02T23:59:59.999999999Z", "2026-03-02T23:59:59.9999999+0000", "1969-12-31T23:59:59.9999999Z"):
            block = LineBlock("f", f'{{"ts":"{text}","all":["{text}"]}}\n'.encode() * 100)
            rows, columns = decoder.rows(block), decoder.columns(block)
            assert not rows.bad
            assert not columns.bad
            assert columns.batch.column("ts").to_pylist() == [row["ts"] for row in rows.rows]
            assert {row["ts"] for row in rows.rows} == {dt.datetime.fromisoformat(f"{text[:10]}T23:59:59.999999+00:00")}
            assert flat or rows.rows[0]["all"] == [rows.rows[0]["ts"]]


def test_one_bad_line_among_many_costs_no_other() -> None:
    lines = [b'{"a":%d}' % n for n in range(1000)]
    lines[500] = b'{"a":"x"}'
    found = JsonDecoder(parse_schema("a BIGINT")).rows(LineBlock("f", b"\n".join(lines)))
    assert [row["a"] for row in found.rows] == [n for n in range(1000) if n != 500]
    assert [bad.ordinal for bad in found.bad] == [500]


@pytest.mark.parametrize("bad", [1, 2, 8, 9, 40])
def test_bad_lines_cost_their_neighbours_nothing_however_many_there_are(bad: int) -> None:
    kinds = [b'{"a":"no number"}', b'{"a":', b'{"a":1}{"a":2}', b'{"a":"\xff"}', b"", b"[]", b'{"a":1', b'{"a":\t\x01}']
    lines = [b'{"a":%d,"t":"2026-01-01T00:00:00Z"}' % number for number in range(500)]
    places = [number * 500 // bad for number in range(bad)]
    for number, place in enumerate(places):
        lines[place] = kinds[number % len(kinds)]
    data = b"\n".join(lines) + b"\n"
    schema = parse_schema("a BIGINT, t TIMESTAMP")
    assert_agreement(schema, data)
    found = JsonDecoder(schema).rows(LineBlock("f", data))
    assert [row["a"] for row in found.rows] == list(found.ordinals) == [n for n in range(500) if n not in places]
    assert [each.ordinal for each in found.bad] == [place for place in places if lines[place]]


@pytest.mark.parametrize(
    ("line", "reasons"),
    [
        (b'{"s":"","t":"2026-01-01T00:00:00.0000001Z"}', ["out-of-range"]),
        (b'{"s":"","t":\n"2026-01-01T00:00:00Z"}', ["malformed", "wrong-type"]),
    ],
)
def test_what_stands_over_the_edge_of_a_part_is_seen(line: bytes, reasons: list[str]) -> None:
    decoder = JsonDecoder(parse_schema("s STRING, t TIMESTAMP"))
    for begin in range(2**16 - len(line) - 1, 2**16 + 1):
        before = b'{"s":"' + b"a" * (begin - 9) + b'"}\n'
        assert len(before) == begin
        block = LineBlock("f", before + line + b'\n{"s":"behind"}\n')
        for read in (decoder.rows, decoder.columns):
            found = read(block)
            assert [bad.reason for bad in found.bad] == reasons
            assert len(found.ordinals) == 2

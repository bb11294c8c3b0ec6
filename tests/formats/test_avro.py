"""Avro values: every type into every column it fits, what does not fit told by its field, bytes that are no record told as such."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import json
import sys
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed_rows import schemas, typed

from scribengin.core.errors import EnvironmentFault
from scribengin.core.types import Field, Schema, Type, parse_schema
from scribengin.formats.avro import AvroDecoder, UnknownSchemaError
from scribengin.formats.avro_out import AvroMessages, derive_schema
from scribengin.formats.avro_schema import AvroSchemaError, parse_writer, read_schema_file
from scribengin.formats.encoders import UnwritableError
from scribengin.formats.messages import MessageBlock, MessageDecoder
from scribengin.formats.rows import batch_to_rows, rows_to_batch

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.formats.avro_schema import WriterSchema

AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC)
AT_MS = int(AT.timestamp() * 1000)
ONE = {"type": "record", "name": "One", "fields": [{"name": "x", "type": "int"}]}
TWO = {"type": "record", "name": "Two", "fields": [{"name": "x", "type": "string"}]}


def logical(type_: str, logical_type: str, /, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": logical_type, **more}


def record(**fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": type_} for name, type_ in fields.items()]})


def plain(text: str) -> Any:
    """Without logical types: values are given as Avro stores them, and nothing of ours is between."""
    return fastavro.parse_schema(json.loads(text.replace('"logicalType"', '"was"')))


def encoded(schema: str, **values: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, plain(schema), values)
    return out.getvalue()


class Known:
    """Schemas by id, as a registry has them."""

    def __init__(self, **texts: str) -> None:
        self.texts = {int(name.removeprefix("s")): text for name, text in texts.items()}
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> WriterSchema:
        self.asked.append(schema_id)
        if schema_id not in self.texts:
            raise UnknownSchemaError(f"no schema {schema_id}")
        return parse_writer(self.texts[schema_id])


def wire(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


FITS: list[tuple[Any, Any, str, Any]] = [
    ("boolean", True, "BOOLEAN", True),
    ("int", -5, "INT", -5),
    ("int", 127, "TINYINT", 127),
    ("int", 5, "BIGINT", 5),
    ("long", 2**63 - 1, "BIGINT", 2**63 - 1),
    ("long", 32767, "SMALLINT", 32767),
    ("int", 3, "DOUBLE", 3.0),
    ("long", 3, "FLOAT", 3.0),
    ("long", 2**53 + 2, "DOUBLE", float(2**53 + 2)),
    ("int", 7, "DECIMAL(3,1)", Decimal("7.0")),
    ("float", 0.5, "FLOAT", 0.5),
    ("float", 0.5, "DOUBLE", 0.5),
    ("double", 0.1, "DOUBLE", 0.1),
    ("double", 0.1, "FLOAT", 0.10000000149011612),
    ("double", float("inf"), "DOUBLE", float("inf")),
    ("string", "ü\U0001f600", "STRING", "ü\U0001f600"),
    ("bytes", b"\0\xff", "BINARY", b"\0\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab", "BINARY", b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "STRING", "B"),
    (logical("string", "uuid"), "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "STRING", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
    (logical("fixed", "uuid", name="U", size=16), uuid.UUID(int=7).bytes, "STRING", str(uuid.UUID(int=7))),
    (logical("fixed", "uuid", name="U", size=16), uuid.UUID(int=7).bytes, "BINARY", uuid.UUID(int=7).bytes),
    (logical("int", "date"), -1, "DATE", dt.date(1969, 12, 31)),
    (logical("int", "date"), 2_932_896, "DATE", dt.date(9999, 12, 31)),
    (logical("long", "timestamp-millis"), AT_MS, "TIMESTAMP", AT),
    (logical("long", "timestamp-micros"), AT_MS * 1000 + 1, "TIMESTAMP", AT + dt.timedelta(microseconds=1)),
    (logical("long", "timestamp-nanos"), AT_MS * 1_000_000, "TIMESTAMP", AT),
    (logical("long", "local-timestamp-millis"), AT_MS, "TIMESTAMP", AT),
    (logical("long", "timestamp-millis"), -62_135_596_800_000, "TIMESTAMP", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    (logical("bytes", "decimal", precision=5, scale=2), (-123).to_bytes(2, "big", signed=True), "DECIMAL(7,3)", Decimal("-1.230")),
    (logical("fixed", "decimal", name="D", size=4, precision=5, scale=2), (1200).to_bytes(4, "big"), "DECIMAL(3,0)", Decimal("12")),
    (logical("bytes", "decimal", precision=5), b"\x07", "DECIMAL(5,0)", Decimal("7")),
    (logical("int", "timestamp-millis"), 5, "INT", 5),  # on an int that word means nothing
    ({"type": "array", "items": "long"}, [1, 2], "ARRAY<INT>", [1, 2]),
    ({"type": "array", "items": ["null", logical("int", "date")]}, [0, None], "ARRAY<DATE>", [dt.date(1970, 1, 1), None]),
    ({"type": "map", "values": "int"}, {"a": 1}, "MAP<STRING, BIGINT>", {"a": 1}),
    (
        {"type": "map", "values": ["null", logical("long", "timestamp-millis")]},
        {"a": AT_MS, "b": None},
        "MAP<STRING, TIMESTAMP>",
        {"a": AT, "b": None},
    ),
    (ONE, {"x": 5}, "STRUCT<x: BIGINT>", {"x": 5}),
    (ONE, {"x": 5}, "STRUCT<x: INT NOT NULL, y: STRING>", {"x": 5, "y": None}),
    ({"type": "array", "items": ONE}, [{"x": 5}], "ARRAY<STRUCT<x: INT>>", [{"x": 5}]),
    (["null", "string"], None, "STRING", None),
    (["string", "null"], "a", "STRING", "a"),
    (["null", ONE], {"x": 1}, "STRUCT<x: INT>", {"x": 1}),
    (["null", {"type": "enum", "name": "E", "symbols": ["A"]}], "A", "STRING", "A"),
    (["int", "long"], 2**40, "BIGINT", 2**40),
    (["null", "float", "double"], 0.1, "FLOAT", 0.10000000149011612),
    (["null", "string", "long"], 7, "BIGINT", 7),
    (["null", ONE, TWO], ("Two", {"x": "a"}), "STRUCT<x: STRING>", {"x": "a"}),
    ("null", None, "BIGINT", None),
]


@pytest.mark.parametrize(("type_", "value", "asked", "expected"), FITS)
def test_a_value_becomes_what_its_column_asks(type_: Any, value: Any, asked: str, expected: Any) -> None:
    text = record(v=type_)
    decoder = AvroDecoder(parse_schema(f"v {asked}"), parse_writer(text))
    rows, columns = decoder.rows([encoded(text, v=value)]), decoder.columns([encoded(text, v=value)])
    assert (rows.rows, rows.bad, list(rows.ordinals)) == ([{"v": expected}], [], [0])
    assert batch_to_rows(columns.batch) == rows.rows
    if isinstance(expected, dt.datetime):
        assert rows.rows[0]["v"].tzinfo is dt.UTC


@pytest.mark.parametrize(("type_", "value", "asked", "expected"), FITS)
def test_a_value_is_the_same_beside_a_record_that_does_not_fit(type_: Any, value: Any, asked: str, expected: Any) -> None:
    text = record(v=type_, n="int")
    decoder = AvroDecoder(parse_schema(f"v {asked}, n TINYINT"), parse_writer(text))
    found = decoder.columns([encoded(text, v=value, n=300), encoded(text, v=value, n=1)])
    assert batch_to_rows(found.batch) == [{"v": expected, "n": 1}]
    assert [(bad.ordinal, bad.reason) for bad in found.bad] == [(0, "out-of-range")]


MISFITS: list[tuple[Any, Any, str, str, str]] = [
    ("int", 5, "STRING", "wrong-type", 'field "v": found a whole number; expected STRING'),
    ("string", "5", "BIGINT", "wrong-type", "found a string; expected BIGINT"),
    ("string", "2026-01-01", "TIMESTAMP", "wrong-type", "found a string"),
    ("string", "true", "BOOLEAN", "wrong-type", "found a string"),
    ("string", "YQ==", "BINARY", "wrong-type", "found a string"),
    ("bytes", b"a", "STRING", "wrong-type", "found bytes"),
    ("bytes", b"a", "DECIMAL(3,0)", "wrong-type", "found bytes"),
    ("double", 1.0, "BIGINT", "wrong-type", "found a floating-point number"),
    ("double", 1.5, "DECIMAL(3,1)", "wrong-type", "found a floating-point number"),
    ("boolean", True, "INT", "wrong-type", "found true or false"),
    ("long", AT_MS, "TIMESTAMP", "wrong-type", "found a whole number"),
    ("int", 5, "DATE", "wrong-type", "found a whole number"),
    (logical("long", "timestamp-millis"), AT_MS, "BIGINT", "wrong-type", "found a timestamp; expected BIGINT"),
    (logical("int", "date"), 5, "TIMESTAMP", "wrong-type", "found a date"),
    (logical("int", "time-millis"), 5, "INT", "wrong-type", "found a time of day"),
    (ONE, {"x": 1}, "MAP<STRING, INT>", "wrong-type", "found a record"),
    ({"type": "map", "values": "int"}, {"1": 1}, "MAP<BIGINT, INT>", "wrong-type", "found a map"),
    (["null", "string", "long"], "x", "BIGINT", "wrong-type", "found a string"),
    (["null", ONE, TWO], ("One", {"x": 1}), "STRUCT<x: STRING>", "wrong-type", 'field "v.x": found a whole number; expected STRING'),
    (["null", logical("int", "date"), "long"], 5, "BIGINT", "wrong-type", "cannot be distinguished"),
    ("int", 128, "TINYINT", "out-of-range", 'field "v": found 128; expected TINYINT'),
    ("long", 2**31, "INT", "out-of-range", "found 2147483648"),
    ("double", 1e39, "FLOAT", "out-of-range", "found 1e+39"),
    (logical("int", "date"), 2_932_897, "DATE", "out-of-range", "outside the years 1 to 9999"),
    (logical("long", "timestamp-millis"), 253_402_300_800_000, "TIMESTAMP", "out-of-range", "outside the years 1 to 9999"),
    (logical("long", "timestamp-micros"), 2**63 - 1, "TIMESTAMP", "out-of-range", "outside the years 1 to 9999"),
    ("long", 9007199254740993, "DOUBLE", "out-of-range", "9007199254740993"),
    ("int", 16777217, "FLOAT", "out-of-range", "16777217"),
    (logical("long", "timestamp-nanos"), 1001, "TIMESTAMP", "out-of-range", "not a whole number of microseconds"),
    (logical("bytes", "decimal", precision=5, scale=2), b"\x7b", "DECIMAL(5,1)", "out-of-range", "which has more than 1 decimals"),
    (logical("bytes", "decimal", precision=5, scale=0), b"\x7f" * 2000, "DECIMAL(5,0)", "out-of-range", "a decimal of 2000 bytes"),
    ("null", None, "BIGINT NOT NULL", "missing", 'field "v" is missing or null; expected BIGINT NOT NULL'),
    (["null", "int"], None, "INT NOT NULL", "missing", "is missing or null"),
    ({"type": "array", "items": "int"}, [1, 300], "ARRAY<TINYINT>", "out-of-range", 'field "v[1]": found 300; expected TINYINT'),
    ({"type": "map", "values": "string"}, {"a": "x"}, "MAP<STRING, INT>", "wrong-type", "field \"v['a']\": found a string"),
    (ONE, {"x": 5}, "STRUCT<x: INT, y: STRING NOT NULL>", "missing", 'field "v.y" is missing or null'),
]


@pytest.mark.parametrize(("type_", "value", "asked", "reason", "told"), MISFITS)
def test_a_value_that_does_not_fit_is_told_by_its_field(type_: Any, value: Any, asked: str, reason: str, told: str) -> None:
    text = record(v=type_)
    decoder = AvroDecoder(parse_schema(f"v {asked}"), Known(s1=text))
    for found in (decoder.rows([wire(1, encoded(text, v=value))]), decoder.columns([wire(1, encoded(text, v=value))])):
        (bad,) = found.bad
        assert (bad.ordinal, bad.reason, list(found.ordinals)) == (0, reason, [])
        assert told in bad.message


def test_names_are_exact_and_a_surplus_field_is_dropped() -> None:
    text = record(id="long", Name="string", surplus={"type": "map", "values": "string"}, deep=ONE)
    decoder = AvroDecoder(parse_schema("id BIGINT, name STRING, deep STRUCT<y: INT>"), parse_writer(text))
    found = decoder.rows([encoded(text, id=1, Name="a", surplus={"a": "b"}, deep={"x": 1})])
    assert found.rows == [{"id": 1, "name": None, "deep": {"y": None}}]


GOOD = record(id="long", s="string", kind={"type": "enum", "name": "E", "symbols": ["A"]}, u=["null", "int"])
ROW = {"id": 1, "s": "abc", "kind": "A", "u": 3}


def test_bytes_that_are_no_record_are_told_and_their_neighbours_kept() -> None:
    good = encoded(GOOD, **ROW)
    assert good == b"\x02\x06abc\x00\x02\x06"
    values = [
        good,
        good[:-1],
        good + b"\0\0",
        b"",
        None,
        b"\x02\x06a\xffc\x00\x02\x06",
        b"\x02\x06abc\x00\x08\x06",
        b"\x02\x06abc\x04\x02\x06",
        b"\x02\x03abc",
        b"\xff" * 30,
        good,
    ]
    decoder = AvroDecoder(parse_schema("id BIGINT NOT NULL, s STRING"), parse_writer(GOOD))
    for found in (decoder.rows(values), decoder.columns(values)):
        assert (list(found.ordinals), found.skipped) == ([0, 10], 1)
        told = {bad.ordinal: (bad.reason, bad.message) for bad in found.bad}
        assert {ordinal: reason for ordinal, (reason, _) in told.items()} == {
            1: "truncated",
            2: "malformed",
            3: "truncated",
            5: "invalid-utf8",
            6: "malformed",
            7: "malformed",
            8: "truncated",
            9: "truncated",
        }
        assert "2 bytes follow it" in told[2][1]
        assert 'field "s": byte 1 of the text is not UTF-8' in told[5][1]
    for end in range(len(good)):
        assert [bad.reason for bad in decoder.rows([good[:end]]).bad] == ["truncated"]


def test_the_field_of_a_text_that_is_no_utf8_is_found_wherever_it_is() -> None:
    text = record(a={"type": "array", "items": ["null", ONE, TWO]}, m={"type": "map", "values": "string"})
    decoder = AvroDecoder(parse_schema("a ARRAY<STRUCT<x: STRING>>"), parse_writer(text))
    value = encoded(text, a=[None, ("Two", {"x": "Q"})], m={})
    assert 'field "a[1].x"' in decoder.rows([value.replace(b"Q", b"\xff")]).bad[0].message
    value = encoded(text, a=[], m={"k": "Q"})
    assert 'field "m.k"' in decoder.rows([value.replace(b"Q", b"\xff")]).bad[0].message
    value = encoded(text, a=[], m={"Q": "v"})
    assert decoder.rows([value.replace(b"Q", b"\xff")]).bad[0].reason == "invalid-utf8"


def test_the_wire_format_names_each_values_schema() -> None:
    old, new = record(id="int"), record(id="long", s="string")
    known = Known(s1=old, s70000=new, s9=record(id="string"))
    decoder = AvroDecoder(parse_schema("id BIGINT NOT NULL, s STRING"), known)
    values = [
        wire(70000, encoded(new, id=0, s="a")),
        wire(1, encoded(old, id=1)),
        b'{"id": 2}',
        wire(5, b"\0"),
        None,
        wire(70000, encoded(new, id=5, s="b")),
        b"\0\0\0\0",
        b"",
        wire(9, encoded(record(id="string"), id="8")),
        wire(1, encoded(old, id=9)),
        wire(5, b"\0"),
        wire(1, b""),
    ]
    for found in (decoder.rows(values), decoder.columns(values)):
        assert (list(found.ordinals), found.skipped) == ([0, 1, 5, 9], 1)
        assert [(bad.ordinal, bad.reason) for bad in found.bad] == [
            (2, "malformed"),
            (3, "unknown-schema"),
            (6, "malformed"),
            (7, "malformed"),
            (8, "wrong-type"),
            (10, "unknown-schema"),
            (11, "truncated"),
        ]
        assert "begins with the bytes 7b 22 69 64 22" in found.bad[0].message
        assert found.bad[1].message == "no schema 5"
    rows = [{"id": 0, "s": "a"}, {"id": 1, "s": None}, {"id": 5, "s": "b"}, {"id": 9, "s": None}]
    assert decoder.rows(values).rows == rows == batch_to_rows(decoder.columns(values).batch)
    assert sorted(known.asked) == [1, 5, 9, 70000]


def test_no_value_at_all_gives_no_row() -> None:
    decoder = AvroDecoder(parse_schema("id BIGINT, at TIMESTAMP"), Known())
    for values in ([], [None], [b"x"]):
        assert (decoder.rows(values).rows, decoder.columns(values).batch.num_rows) == ([], 0)


def test_one_misfit_among_many_costs_only_itself() -> None:
    text = record(id="long", at=logical("long", "timestamp-millis"), tags={"type": "array", "items": "string"})
    values = [encoded(text, id=n, at=AT_MS + n if n != 500 else 2**62, tags=[str(n)]) for n in range(1024)]
    decoder = AvroDecoder(parse_schema("id INT, at TIMESTAMP, tags ARRAY<STRING>"), parse_writer(text))
    rows, columns = decoder.rows(values), decoder.columns(values)
    assert [(bad.ordinal, bad.reason) for bad in rows.bad] == [(500, "out-of-range")]
    assert [row["id"] for row in rows.rows] == list(rows.ordinals) == [n for n in range(1024) if n != 500]
    assert rows.rows[7] == {"id": 7, "at": AT + dt.timedelta(milliseconds=7), "tags": ["7"]}
    assert batch_to_rows(columns.batch) == rows.rows


def test_columns_may_come_from_key_and_offset_beside_avro() -> None:
    text = record(id="long")
    made = MessageDecoder("avro", parse_schema("k STRING, id BIGINT, o BIGINT"), {}, {"k": "key", "o": "offset"}, parse_writer(text))
    block = MessageBlock("t", 0, [encoded(text, id=7), b"", encoded(text, id=8)], [10, 11, 12], [b"a", b"b", b"\xff"])
    assert made.rows(block).rows == [{"k": "a", "id": 7, "o": 10}] == made.columns(block).batch.to_pylist()
    assert [(bad.ordinal, bad.reason) for bad in made.rows(block).bad] == [(1, "truncated"), (2, "invalid-utf8")]
    assert made.structs is None
    alone = MessageDecoder("avro", parse_schema("k STRING"), {}, {"k": "key"}, parse_writer(text))
    assert alone.rows(MessageBlock("t", 0, [encoded(text, id=7)], [10], [b"a"])).rows == [{"k": "a"}]


@pytest.mark.parametrize(
    ("schema", "text", "told"),
    [
        ("v BIGINT", record(v="string"), 'this Avro schema does not fit the columns: field "v": found a string; expected BIGINT'),
        ("v BIGINT", record(v=["null", "string"]), 'this Avro schema does not fit the columns: field "v": found a string; expected BIGINT'),
        ("w BIGINT NOT NULL", record(v="string"), 'field "w" is missing or null'),
        ("v STRUCT<x: STRING>", record(v=ONE), 'field "v.x": found a whole number'),
        ("v ARRAY<STRING>", record(v={"type": "array", "items": "int"}), "found a whole number; expected STRING"),
    ],
)
def test_a_schema_of_all_values_of_which_a_column_takes_none_is_refused_though_it_may_be_null(schema: str, text: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (its text is looked at)
        AvroDecoder(parse_schema(schema), parse_writer(text))
    assert told in str(caught.value)


TREE = {"type": "record", "name": "Tree", "fields": [{"name": "below", "type": {"type": "array", "items": "Tree"}}]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON"),
        ("5", "not a valid Avro schema"),
        ('"string"', 'the schema of "string"; expected a record'),
        ("string", 'the schema of "string"; expected a record'),
        ("[]", "expected a record"),
        (record(v="nothing"), "not a valid Avro schema: nothing"),
        (json.dumps(TREE), "its type Tree is recursive"),
        (record(v=["null", TREE]), "its type Tree is recursive"),
        (record(v={"type": "array", "items": "null"}), "values of zero bytes"),
        (record(v={"type": "map", "values": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}}), "of zero bytes"),
        (record(v={"type": "array", "items": {"type": "record", "name": "E", "fields": []}}), "values of zero bytes"),
    ],
)
def test_what_is_no_schema_to_decode_by_is_refused(text: str, told: str) -> None:
    with pytest.raises(AvroSchemaError, match=told):
        parse_writer(text)


def test_a_schema_may_name_others_and_have_defaults_that_do_not_fit(tmp_path: Path) -> None:
    other = json.dumps({"type": "record", "name": "a.Other", "fields": [{"name": "day", "type": logical("int", "date")}]})
    text = json.dumps(
        {
            "type": "record",
            "name": "R",
            "namespace": "a",
            "fields": [{"name": "o", "type": "Other"}, {"name": "s", "type": ["string", "null"], "default": 5}],
        }
    )
    decoder = AvroDecoder(parse_schema("o STRUCT<day: DATE>, s STRING"), parse_writer(text, (other,)))
    assert decoder.rows([b"\x04\x00\x02a"]).rows == [{"o": {"day": dt.date(1970, 1, 3)}, "s": "a"}]

    (tmp_path / "a.Other.avsc").write_text(other)
    (tmp_path / "r.avsc").write_text(text.replace('"default": 5', '"default": "x"'))
    decoder = AvroDecoder(parse_schema("o STRUCT<day: DATE>, s STRING"), parse_writer(read_schema_file(tmp_path / "r.avsc")))
    assert decoder.rows([b"\x04\x02"]).rows == [{"o": {"day": dt.date(1970, 1, 3)}, "s": None}]


def test_a_schema_file_that_cannot_be_used_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "broken.avsc").write_text("{")
    (tmp_path / "text.avsc").write_text('"string"')
    for name in ("missing.avsc", "broken.avsc", "text.avsc"):
        with pytest.raises(AvroSchemaError, match=name):
            read_schema_file(tmp_path / name)


# --- the other way ---


def named_for_avro(schema: Schema) -> Schema:
    """The schema with names and keys of maps that Avro allows."""
    return Schema(_renamed(schema.fields))


def _renamed(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(Field(f"f{index}", _with_text_keys(field.type), field.nullable) for index, field in enumerate(fields))


def _with_text_keys(type_: Type) -> Type:
    parts = tuple(map(_with_text_keys, type_.parts))
    if type_.name == "MAP":
        parts = (Type("STRING"), parts[1])
    return dataclasses.replace(type_, parts=parts, fields=_renamed(type_.fields))


@given(typed(schemas.map(named_for_avro)))
def test_what_is_encoded_is_decoded_as_it_was(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    batch, bad = rows_to_batch(rows, schema, range(len(rows)))
    assert not bad
    writer = parse_writer(derive_schema(schema))
    messages = AvroMessages(schema, writer).encode(batch)
    decoder = AvroDecoder(schema, writer)
    again = decoder.columns(messages)
    assert again.bad == []
    assert again.batch.equals(batch)
    assert decoder.rows(messages).rows == rows
    wired = AvroMessages(schema, writer, 258).encode(batch)
    assert wired == [b"\0\0\0\1\2" + message for message in messages]


@given(st.binary(max_size=40))
def test_no_bytes_at_all_raise(value: bytes) -> None:
    decoder = AvroDecoder(parse_schema("id BIGINT, s STRING, u INT"), parse_writer(GOOD))
    found = decoder.columns([value])
    assert len(found.bad) + found.batch.num_rows == 1


def test_derived_schemas_are_what_others_read() -> None:
    text = derive_schema(parse_schema("id BIGINT NOT NULL, at TIMESTAMP, d DECIMAL(5,2), day DATE, deep STRUCT<a: ARRAY<INT>>"), "Order")
    batch = pa.RecordBatch.from_pylist(
        [{"id": 1, "at": AT, "d": Decimal("-1.5"), "day": AT.date(), "deep": {"a": [1, None]}}],
        pa.schema(
            [
                ("id", pa.int64()),
                ("at", pa.timestamp("us", "UTC")),
                ("d", pa.decimal128(5, 2)),
                ("day", pa.date32()),
                ("deep", pa.struct([("a", pa.list_(pa.int32()))])),
            ]
        ),
    )
    schema = parse_schema("id BIGINT NOT NULL, at TIMESTAMP, d DECIMAL(5,2), day DATE, deep STRUCT<a: ARRAY<INT>>")
    (message,) = AvroMessages(schema, parse_writer(text)).encode(batch)
    theirs = fastavro.schemaless_reader(io.BytesIO(message), fastavro.parse_schema(json.loads(text)), None)
    assert theirs == {"id": 1, "at": AT, "d": Decimal("-1.50"), "day": AT.date(), "deep": {"a": [1, None]}}


@pytest.mark.parametrize(
    ("schema", "text", "told"),
    [
        ("a BIGINT, b STRING", record(a=["null", "long"]), 'no field for the column "b"'),
        ("a BIGINT", record(a=["null", "long"], b="string"), 'the field "b", which is not nullable, but no column has that name'),
        ("a STRING", record(a="long"), 'the column "a" is STRING, which does not fit long in the Avro schema'),
        ("a TIMESTAMP", record(a="long"), "which does not fit long in the Avro schema"),
        ("a BIGINT", record(a=["null", "int", "string"]), "a union of several types"),
        ("a ARRAY<INT>", record(a={"type": "array", "items": "string"}), 'an item of the column "a" is INT'),
    ],
)
def test_columns_that_a_schema_cannot_hold_are_refused(schema: str, text: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (its text is looked at)
        AvroMessages(parse_schema(schema), parse_writer(text))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "type_", "row", "told"),
    [
        ("a BIGINT", "int", 2**31, 'column "a" has 2147483648'),
        ("a TIMESTAMP", logical("long", "timestamp-millis"), AT + dt.timedelta(microseconds=1), "not a whole number of milliseconds"),
        ("a DECIMAL(5,2)", logical("bytes", "decimal", precision=5, scale=1), Decimal("1.25"), "has 1.25"),
        ("a DECIMAL(5,2)", logical("bytes", "decimal", precision=3, scale=2), Decimal("10.25"), "has 10.25"),
        ("a STRING", {"type": "enum", "name": "E", "symbols": ["A"]}, "B", 'has "B"'),
        ("a BINARY", {"type": "fixed", "name": "F", "size": 2}, b"abc", "has 3 bytes"),
        ("a INT", "int", None, "has null"),
        (
            "a STRUCT<b: INT>",
            {"type": "record", "name": "S", "fields": [{"name": "b", "type": "int"}]},
            {"b": None},
            'column "a.b" has null',
        ),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_told_by_its_column(schema: str, type_: Any, row: Any, told: str) -> None:
    columns = parse_schema(schema)
    batch, _ = rows_to_batch([{"a": row}], columns, [0])
    with pytest.raises(UnwritableError) as caught:
        AvroMessages(columns, parse_writer(record(a=type_))).encode(batch)
    assert told in str(caught.value)


def test_values_fit_narrower_and_wider_types_where_they_stay_what_they_are() -> None:
    columns = parse_schema("a BIGINT, t TIMESTAMP, d DECIMAL(5,2), n STRING")
    text = record(
        a="int", t=["null", logical("long", "timestamp-millis")], d=logical("fixed", "decimal", name="D", size=3, precision=5, scale=1),
        n={"type": "enum", "name": "E", "symbols": ["A"]}, left_out=["null", "string"],
    )  # fmt: skip
    rows = [{"a": -(2**31), "t": AT, "d": Decimal("-12.50"), "n": "A"}, {"a": 0, "t": None, "d": Decimal("0.00"), "n": "A"}]
    batch, _ = rows_to_batch(rows, columns, [0, 1])
    messages = AvroMessages(columns, parse_writer(text)).encode(batch)
    assert AvroDecoder(columns, parse_writer(text)).rows(messages).rows == rows


@pytest.mark.parametrize(("schema", "told"), [("`a-b` INT", '"a-b" is not a valid Avro name'), ("m MAP<INT, INT>", "only texts as keys")])
def test_columns_that_avro_has_no_schema_for_are_told(schema: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        derive_schema(parse_schema(schema))


def test_without_fastavro_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(EnvironmentFault) as caught:
        parse_writer(record(without="string"))
    assert (caught.value.code, caught.value.remedy) == ("avro-missing", "run: pip install 'scribengin[avro]'")

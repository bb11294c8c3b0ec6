"""Packs: what goes in comes out, rows and coordinates; and what is no whole pack of ours is one bad record, whatever its bytes are."""

from __future__ import annotations

import base64
import datetime as dt
import random
import struct
import sys
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_rows import schemas, typed

from scribengin.core.errors import EnvironmentFault, SinkError, SourceError, Unreachable
from scribengin.core.types import Field, Schema, Type, arrow_schema, parse_schema
from scribengin.formats.contract import Bad, RecordPlace
from scribengin.formats.keyring import Keyring
from scribengin.formats.origins import Origins
from scribengin.formats.pack_frame import PREFIX_BYTES, RAW_BYTES, bind, compress, disclose, enclose, encrypt
from scribengin.formats.packs import PackDecoder, PackMaker, damaged_block, read_header, read_pack
from scribengin.formats.parquet import ColumnMismatchError
from scribengin.formats.row_ids import Hop
from scribengin.formats.rows import batch_to_rows, rows_to_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.formats.packs import PackBlock

CODECS = ("none", "gzip", "lz4", "snappy", "zstd")
KEYS = Keyring.of({"k1": base64.b64encode(bytes(range(32))).decode(), "k0": base64.b64encode(bytes(16)).decode()}, "k1")
AT = RecordPlace("hot-2", row=77)
TRAILS = [
    (Hop("edge", "kept", 3, "h1", 1_700_000_000_000),),
    (Hop("edge", "kept", 4, "h2", 1_700_000_000_500, "m1"), Hop("core", "all", 9, "h3", 1_700_000_001_000)),
    (),
]
ABOUT = {"tier": "edge", "query": "hot", "batch": 12, "host": "h1", "time_ms": 1_700_000_000_000}
PLAIN = parse_schema("id BIGINT NOT NULL, user STRING, tags ARRAY<STRING>")


def batch_of(rows: list[dict[str, Any]], schema: Schema) -> pa.RecordBatch:
    batch, bad = rows_to_batch(rows, schema, range(len(rows)))
    assert bad == []
    return batch


def origins_of(count: int, labels: int = 3, *, nth: bool = True) -> Origins:
    names = [f"src/topic-{n}@" for n in range(labels)]
    at = np.arange(count)
    return Origins(
        names,
        (at % max(labels, 1)).astype(np.int32),
        at + 10**12,
        (at % 2 if nth else at * 0).astype(np.int32),
        [TRAILS[n % 3] for n in range(labels)],
    )


def plain_rows(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "user": None if n % 7 == 0 else f"user_{n:05}", "tags": ["a", None][: n % 3]} for n in range(count)]


def maker(schema: Schema = PLAIN, **options: Any) -> PackMaker:
    return PackMaker(schema, **{"codec": "none", "keyring": None, "sign": "hot -> tagged", "about": ABOUT} | options)


def one_pack(count: int = 5, *, labels: int = 3, nth: bool = True, **options: Any) -> bytes:
    (packed,), bad = maker(**options).make(batch_of(plain_rows(count), PLAIN), origins_of(count, labels, nth=nth))
    assert bad == []
    return packed.value


def told(block: PackBlock, schema: Schema = PLAIN) -> tuple[str, str]:
    """The reason and message of a bad block; every way of decoding must say it, and none may give rows."""
    decoder = PackDecoder(schema)
    assert len(block) == 1
    (bad,) = decoder.columns(block).bad
    assert decoder.columns(block).batch.num_rows == 0
    assert decoder.rows(block).bad == [bad]
    assert decoder.rows(block).rows == []
    assert bad.ordinal == 0
    return bad.reason, bad.message


# what goes in comes out


@settings(max_examples=150)
@given(typed(schemas), st.sampled_from(CODECS), st.booleans(), st.integers(1, 4), st.booleans(), st.integers(1, 7))
def test_a_pack_gives_back_its_rows_and_where_they_came_from(
    case: tuple[Schema, list[dict[str, Any]]], codec: str, locked: bool, labels: int, nth: bool, most_rows: int
) -> None:
    schema, rows = case
    keyring = KEYS if locked else None
    origins = origins_of(len(rows), labels, nth=nth)
    batch = batch_of(rows, schema)
    made, bad = maker(schema, codec=codec, keyring=keyring, rows=most_rows).make(batch, origins)
    blocks = [read_pack(packed.value, keyring, AT) for packed in made]
    decoder = PackDecoder(schema)
    assert bad == []
    assert [row for block in blocks for row in decoder.rows(block).rows] == rows
    assert [id_ for block in blocks for id_ in block.origins(range(len(block))).ids()] == origins.ids()
    for packed, block in zip(made, blocks, strict=True):
        found = decoder.columns(block)
        assert (found.batch.schema, found.bad, found.ordinals) == (arrow_schema(schema), [], range(len(block)))
        assert len(block) == packed.rows <= most_rows
        assert block.header is not None
        assert (block.header.schema, block.header.codec, block.header.key) == (str(schema), codec, "k1" if locked else None)
        assert (block.header.digest, block.header.raw_bytes) == (packed.digest, packed.raw_bytes)
    assert sum(packed.digest for packed in made) % 2**64 == origins.digest()
    if blocks:
        joined = Origins.joined([block.origins(range(len(block))) for block in blocks])
        assert [joined.trails[stream] for stream in joined.streams] == [origins.trails[stream] for stream in origins.streams]


def test_the_columns_are_parts_of_the_value_and_no_copies() -> None:
    value = one_pack(1000)
    start = pa.py_buffer(value).address
    columns = PackDecoder(PLAIN).columns(read_pack(value, None, AT)).batch.columns
    buffers = [buffer for column in columns for buffer in column.buffers() if buffer is not None and buffer.size]
    assert len(buffers) > 4
    for buffer in buffers:
        assert start <= buffer.address < start + len(value)
        assert (buffer.address - start) % 8 == 0


def test_the_header_says_who_made_the_pack_and_needs_no_key() -> None:
    value = one_pack(codec="zstd", keyring=KEYS)
    header = read_header(value)
    assert header is not None
    assert (header.sign, header.about, header.rows, header.codec, header.key) == ("hot -> tagged", {**ABOUT, "row": 0}, 5, "zstd", "k1")
    assert read_header(value[:-1]) is None


def test_an_encrypted_pack_shows_no_value_and_no_two_are_alike() -> None:
    one, two = one_pack(keyring=KEYS), one_pack(keyring=KEYS)
    assert b"user_00001" in one_pack()
    assert b"user_00001" not in one
    assert disclose(one).header.nonce != disclose(two).header.nonce
    assert bytes(disclose(one).body) != bytes(disclose(two).body)


def test_only_labels_that_rows_of_the_pack_use_stand_in_its_table() -> None:
    count = 6
    origins = Origins(
        [f"src/{n}@" for n in range(100)],
        np.array([70, 70, 3, 99, 99, 3], np.int32),
        np.arange(count),
        np.zeros(count, np.int32),
        [TRAILS[n % 2] for n in range(100)],
    )
    made, _ = maker(rows=2).make(batch_of(plain_rows(count), PLAIN), origins)
    headers = [read_header(packed.value) for packed in made]
    assert [header.labels for header in headers if header] == [["src/70@"], ["src/3@", "src/99@"], ["src/3@", "src/99@"]]
    assert [len(header.stops) for header in headers if header] == [1, 1, 1]
    assert [id_ for packed in made for id_ in read_pack(packed.value, None, AT).origins([0, 1]).ids()] == origins.ids()


def test_a_column_of_origins_that_says_nothing_is_left_out() -> None:
    def raw(**options: Any) -> int:
        header = read_header(one_pack(1000, **options))
        assert header is not None
        return header.raw_bytes

    one, several, nth = raw(labels=1, nth=False), raw(labels=2, nth=False), raw(labels=1, nth=True)
    assert several - one >= 4000
    assert nth - one >= 4000
    assert raw(labels=2, nth=True) - one >= 8000


@given(st.lists(st.integers(0, 3000), max_size=40), st.integers(1, 9), st.integers(1000, 4000))
def test_packs_keep_to_their_bounds_and_to_the_order(sizes: list[int], most_rows: int, most_bytes: int) -> None:
    schema = parse_schema("id BIGINT, text STRING")
    batch = batch_of([{"id": n, "text": "x" * size} for n, size in enumerate(sizes)], schema)
    origins = origins_of(len(sizes), nth=False)
    made, bad = maker(schema, rows=most_rows, bytes=most_bytes).make(batch, origins)
    assert bad == []
    start = 0
    for packed in made:
        assert packed.rows <= most_rows
        assert packed.rows == 1 or batch.slice(start, packed.rows).nbytes <= most_bytes
        start += packed.rows
    assert start == len(sizes)
    assert [row["id"] for packed in made for row in PackDecoder(schema).rows(read_pack(packed.value, None, AT)).rows] == list(range(start))


def test_even_rows_are_cut_into_as_few_packs_as_fit() -> None:
    schema = parse_schema("id BIGINT NOT NULL, a BIGINT NOT NULL")
    batch = batch_of([{"id": n, "a": n} for n in range(10_000)], schema)
    made, _ = maker(schema, bytes=100_000).make(batch, origins_of(10_000, nth=False))
    assert [packed.rows for packed in made] == [2500] * 4
    assert [packed.rows for packed in maker(schema, rows=3400).make(batch, origins_of(10_000))[0]] == [3334, 3333, 3333]


@settings(max_examples=30)
@given(st.lists(st.sampled_from([0, 10, 500, 3000, 9000]), min_size=1, max_size=20), st.sampled_from(CODECS), st.booleans())
def test_a_row_that_fits_no_pack_is_bad_and_the_others_go(sizes: list[int], codec: str, locked: bool) -> None:
    schema = parse_schema("id BIGINT, data BINARY")
    noise = random.Random(len(sizes))
    batch = batch_of([{"id": n, "data": noise.randbytes(size)} for n, size in enumerate(sizes)], schema)
    keyring = KEYS if locked else None
    made, bad = maker(schema, codec=codec, keyring=keyring, most=5000).make(batch, origins_of(len(sizes)))
    large = [n for n, size in enumerate(sizes) if size == 9000]
    assert [(each.ordinal, each.reason) for each in bad] == [(n, "too-large") for n in large]
    assert all("the limit is 5,000" in each.message for each in bad)
    assert all(len(packed.value) <= 5000 for packed in made)
    blocks = [read_pack(packed.value, keyring, AT) for packed in made]
    ids = [row["id"] for block in blocks for row in PackDecoder(schema).rows(block).rows]
    assert ids == [n for n in range(len(sizes)) if n not in large]


def test_a_header_full_of_labels_is_made_smaller_by_smaller_packs() -> None:
    count = 500
    origins = origins_of(count, labels=count)
    made, bad = maker(most=9000).make(batch_of(plain_rows(count), PLAIN), origins)
    assert bad == []
    assert max(len(packed.value) for packed in made) <= 9000
    assert [id_ for packed in made for id_ in read_pack(packed.value, None, AT).origins(range(packed.rows)).ids()] == origins.ids()


def test_no_rows_are_no_pack() -> None:
    assert maker().make(batch_of([], PLAIN), origins_of(0)) == ([], [])


def test_a_slice_of_a_batch_takes_no_more_than_its_rows() -> None:
    batch = batch_of(plain_rows(5000), PLAIN)
    (packed,), _ = maker().make(batch.slice(4000, 3), origins_of(3))
    assert len(packed.value) < 2500
    assert PackDecoder(PLAIN).rows(read_pack(packed.value, None, AT)).rows == plain_rows(5000)[4000:4003]


def test_a_batch_in_another_form_of_arrow_is_taken_and_one_with_other_columns_is_not() -> None:
    schema = parse_schema("id BIGINT, user STRING")
    batch = pa.record_batch({"user": pa.array(["a", "a"]).dictionary_encode(), "id": pa.array([1, 2], pa.int32())})
    (packed,), _ = maker(schema).make(batch, origins_of(2))
    assert PackDecoder(schema).rows(read_pack(packed.value, None, AT)).rows == [{"id": 1, "user": "a"}, {"id": 2, "user": "a"}]
    with pytest.raises(ColumnMismatchError):
        maker(schema).make(pa.record_batch({"id": pa.array(["x"]), "user": pa.array(["y"])}), origins_of(1))


def test_what_a_maker_cannot_do_is_told_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="at least one row and one byte; found rows=0"):
        maker(rows=0)
    with pytest.raises(ValueError, match="cannot be written in the header"):
        maker(Schema((Field("n", Type("DECIMAL", precision=3, scale=9)),)))
    with pytest.raises(ValueError, match="there are 2 rows and 3 origins"):
        maker().make(batch_of(plain_rows(2), PLAIN), origins_of(3))


def test_a_broken_keyring_stops_the_making(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="does not exist"):
        maker(keyring=Keyring(tmp_path / "none")).make(batch_of(plain_rows(2), PLAIN), origins_of(2))


# places and payloads


def test_a_row_stands_where_its_record_first_stood_and_its_payload_is_its_json() -> None:
    block = read_pack(one_pack(4), None, AT)
    assert block.place(1) == RecordPlace("src/topic-1", row=10**12 + 1)
    assert block.payload(1) == b'{"id":1,"user":"user_00001","tags":["a"]}'
    assert block.origins([3, 0]).ids() == ["src/topic-0@1000000000003.1", "src/topic-0@1000000000000"]
    assert block.origins(range(3, 0, -2)).ids() == [block.origins(range(4)).ids()[n] for n in (3, 1)]
    assert block.origins(range(4)) is block.whole


@pytest.mark.parametrize("type_", ["TIMESTAMP", "ARRAY<TIMESTAMP>", "DATE"])
def test_a_time_that_python_cannot_hold_is_bad_for_rows_and_no_matter_for_columns(type_: str) -> None:
    schema = parse_schema(f"id BIGINT, at {type_}")
    form = arrow_schema(schema)
    far = pa.array([0, 2**31 - 1, 0], pa.int32()) if type_ == "DATE" else pa.array([0, 2**62, 0], pa.int64())
    column = far.cast(form.field("at").type if "<" not in type_ else form.field("at").type.value_type)
    if "<" in type_:
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), column)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), column], schema=form)
    (packed,), _ = maker(schema).make(batch, origins_of(3))
    block = read_pack(packed.value, None, AT)
    assert PackDecoder(schema).columns(block).batch.equals(batch)
    found = PackDecoder(schema).rows(block)
    assert ([row["id"] for row in found.rows], found.ordinals) == ([1, 3], [0, 2])
    assert [(bad.ordinal, bad.reason) for bad in found.bad] == [(1, "out-of-range")]
    assert block.payload(1)


# the reader's columns


def decoded(given: str, asked: str, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[tuple[int, str]], str]:
    """(rows, bad ordinals and reasons, first message), the same by columns and by rows."""
    writer, reader = parse_schema(given), parse_schema(asked)
    (packed,), _ = maker(writer).make(batch_of(rows, writer), origins_of(len(rows)))
    block, decoder = read_pack(packed.value, None, AT), PackDecoder(reader)
    by_rows, by_columns = decoder.rows(block), decoder.columns(block)
    assert by_columns.batch.schema == arrow_schema(reader)
    assert (batch_to_rows(by_columns.batch), by_columns.bad) == (by_rows.rows, by_rows.bad)
    assert list(by_columns.ordinals) == list(by_rows.ordinals)
    assert len(by_rows.ordinals) == len(by_rows.rows)
    return by_rows.rows, [(bad.ordinal, bad.reason) for bad in by_rows.bad], by_rows.bad[0].message if by_rows.bad else ""


def test_columns_are_matched_by_name() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert decoded("a BIGINT, b STRING", "b STRING, c DOUBLE, a BIGINT", rows) == (
        [{"b": "x", "c": None, "a": 1}, {"b": None, "c": None, "a": 2}],
        [],
        "",
    )
    assert decoded("a BIGINT, b STRING", "a BIGINT", rows)[0] == [{"a": 1}, {"a": 2}]


def test_a_column_that_is_not_there_and_not_null_makes_every_row_missing() -> None:
    found = decoded("a BIGINT", "a BIGINT, c DOUBLE NOT NULL", [{"a": 1}, {"a": 2}])
    assert found == ([], [(0, "missing"), (1, "missing")], 'field "c" is not in the pack, whose fields are a; expected NOT NULL')


def test_a_null_where_none_may_be_makes_its_row_missing() -> None:
    found = decoded("a BIGINT, b STRING", "b STRING NOT NULL, a BIGINT", [{"a": 1, "b": None}, {"a": 2, "b": "x"}])
    assert found == ([{"b": "x", "a": 2}], [(0, "missing")], 'field "b" is null; expected NOT NULL')


@pytest.mark.parametrize(
    ("given", "asked", "value"),
    [
        ("TINYINT", "SMALLINT", -128),
        ("SMALLINT", "INT", 32767),
        ("INT", "BIGINT", -(2**31)),
        ("TINYINT", "BIGINT", 127),
        ("FLOAT", "DOUBLE", 0.10000000149011612),
        ("ARRAY<INT>", "ARRAY<BIGINT>", [1, None, 3]),
        ("MAP<INT, FLOAT>", "MAP<BIGINT, DOUBLE>", {1: 0.5, 2: None}),
        ("STRUCT<a: INT NOT NULL, b: STRING>", "STRUCT<a: BIGINT, b: STRING>", {"a": 1, "b": None}),
    ],
)
def test_a_type_is_widened_where_it_loses_nothing(given: str, asked: str, value: object) -> None:
    assert decoded(f"x {given}", f"x {asked}", [{"x": value}, {"x": None}]) == ([{"x": value}, {"x": None}], [], "")


def test_a_decimal_is_widened_on_both_sides_of_the_point() -> None:
    from decimal import Decimal

    rows = [{"x": Decimal("99.99")}]
    assert decoded("x DECIMAL(4,2)", "x DECIMAL(7,4)", rows) == ([{"x": Decimal("99.9900")}], [], "")
    assert decoded("x DECIMAL(4,2)", "x DECIMAL(5,4)", rows)[1] == [(0, "type")]


@pytest.mark.parametrize(
    ("given", "asked", "value"),
    [
        ("BIGINT", "INT", 1),
        ("INT", "DOUBLE", 1),
        ("BIGINT", "STRING", 1),
        ("STRING", "BINARY", "x"),
        ("DOUBLE", "FLOAT", 0.5),
        ("DATE", "TIMESTAMP", dt.date(2026, 1, 1)),
        ("ARRAY<BIGINT>", "ARRAY<INT>", [1]),
        ("STRUCT<a: INT>", "STRUCT<a: INT NOT NULL>", {"a": 1}),
        ("STRUCT<a: INT>", "STRUCT<b: INT>", {"a": 1}),
        ("STRUCT<a: INT>", "STRUCT<a: INT, b: INT>", {"a": 1}),
        ("MAP<STRING, INT>", "ARRAY<STRING>", {"a": 1}),
    ],
)
def test_another_type_makes_every_row_bad(given: str, asked: str, value: object) -> None:
    found = decoded(f"x {given}", f"x {asked}", [{"x": value}, {"x": None}])
    assert found == ([], [(0, "type"), (1, "type")], f'field "x" is {given} in the pack; expected {asked}')


# what is no whole pack


@pytest.mark.parametrize("value", [None, b"", b"{}", b"SG", b"S", b"\x00" * 100, b"PAR1" + bytes(40), b'{"id":1}'])
def test_foreign_bytes_are_one_bad_record_with_its_bytes(value: bytes | None) -> None:
    block = read_pack(value, KEYS, AT)
    reason, _ = told(block)
    assert reason == ("truncated" if value in (b"S", b"SG") else "foreign")
    assert (block.place(0), block.payload(0), block.header) == (AT, value or b"", None)
    assert block.origins([0]).ids() == ["hot-2@77"]


def test_of_a_long_bad_record_64_kib_are_kept() -> None:
    block = read_pack(b"x" * 200_000, None, RecordPlace("f", offset=4096))
    assert told(block)[0] == "foreign"
    assert len(block.payload(0)) == 64 * 1024
    assert block.origins(range(1)).ids() == ["f@4096"]


PAIRED = [
    pytest.param(
        codec, keyring, id=f"{codec}-{'sealed' if keyring else 'open'}", marks=[pytest.mark.long] * (bool(keyring) != bool(nth % 2))
    )
    for nth, codec in enumerate(CODECS)
    for keyring in (None, KEYS)
]
"""each codec once, every other one sealed; the others are `long`: seal and codec know nothing of one another"""


@pytest.mark.parametrize(("codec", "keyring"), PAIRED)
def test_every_truncation_is_noticed(codec: str, keyring: Keyring | None) -> None:
    value = one_pack(codec=codec, keyring=keyring)
    for size in range(1, len(value)):
        assert told(read_pack(value[:size], keyring, AT))[0] == "truncated"
    assert told(read_pack(value + b"\0", keyring, AT))[0] == "damaged"
    assert told(read_pack(value + value, keyring, AT))[0] == "damaged"


@pytest.mark.parametrize(("codec", "keyring"), PAIRED)
def test_flipping_any_one_byte_is_noticed(codec: str, keyring: Keyring | None) -> None:
    value = one_pack(codec=codec, keyring=keyring)
    reasons = set()
    for at in range(len(value)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(value)
            changed[at] ^= flip
            reasons.add(told(read_pack(bytes(changed), keyring, AT))[0])
    assert reasons == {"foreign", "truncated", "damaged", "pack-version"}


@settings(max_examples=300)
@given(st.data())
def test_random_changes_never_raise_and_never_give_rows(data: st.DataObject) -> None:
    keyring = data.draw(st.sampled_from([None, KEYS]))
    value = one_pack(codec=data.draw(st.sampled_from(CODECS)), keyring=keyring)
    changed = bytearray(value)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)))
        piece = data.draw(st.binary(max_size=6))
        changed[at : at + data.draw(st.integers(0, 6))] = piece
    if bytes(changed) != value:
        told(read_pack(bytes(changed), keyring, AT))


def test_a_newer_version_is_told_as_one() -> None:
    value = bytearray(one_pack())
    value[3] = 2
    assert told(read_pack(bytes(value), None, AT)) == (
        "pack-version",
        "not a valid pack: it is a pack of version 2; this Scribengin reads version 1",
    )


# what was made to deceive: the checksum is right


def forged(value: bytes, *, lock: bytes | None = None, body: Callable[[bytes], bytes] | None = None, **changes: Any) -> bytes:
    """The pack with another header or body, its checksum made anew, and encrypted anew where `lock` is given."""
    opened = disclose(value)
    header = msgspec.structs.replace(opened.header, **changes)
    data = bytes(opened.body) if body is None else body(bytes(opened.body))
    if lock is not None:
        bound = bind(header, len(data) + 16)
        return enclose(bound, encrypt(lock, bound, header.nonce, pa.py_buffer(data)).to_pybytes())
    return enclose(bind(header, len(data)), data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 4}, "it has 5 rows; its header declares 4"),
        ({"rows": 2**27}, "rows in"),
        ({"rows": 2**40}, "header cannot be read"),
        ({"rows": -1}, "header cannot be read"),
        ({"raw_bytes": 10 * 2**30}, "header cannot be read"),
        ({"raw_bytes": RAW_BYTES}, f"does not have the {RAW_BYTES} bytes"),
        ({"digest": 1}, "the digest of its rows is"),
        ({"schema": "id BIGINT, user STRING"}, ""),
        ({"schema": "user STRING, tags ARRAY<STRING>, id BIGINT"}, ""),
        ({"schema": "id BIGINT, user"}, "its schema cannot be read"),
        ({"schema": ""}, "its schema cannot be read"),
        ({"schema": "a " + "ARRAY<" * 100_000}, "its schema cannot be read"),
        ({"schema": "a INT," * 300_000}, "its schema cannot be read"),
        ({"codec": "zstd"}, "its body is not valid zstd"),
        ({"codec": "gzip"}, "its body is not valid gzip"),
        ({"codec": "lz4"}, "its body is not valid lz4"),
        ({"codec": "snappy"}, "its body"),
        ({"codec": "brotli"}, "header cannot be read"),
        ({"nth": False}, ""),
        ({"labels": ["a@", "b@"]}, "names a stream that is not one of 2"),
        ({"labels": []}, ""),
        ({"labels": ["a@"] * 4}, "ways for 4 streams"),
        ({"ways": [0, 1, 7]}, "the way of its rows"),
        ({"ways": [0, 1, -1]}, "the way of its rows"),
        ({"stops": []}, "the way of its rows"),
        ({"stops": [[["edge"]]]}, "header cannot be read"),
        ({"sign": 1}, "header cannot be read"),
    ],
)
def test_a_header_that_does_not_fit_its_body_is_noticed(changes: dict[str, Any], message: str) -> None:
    reason, found = told(read_pack(forged(one_pack(), **changes), None, AT))
    assert reason == "damaged"
    assert message in found
    assert len(found) < 700


@pytest.mark.parametrize(
    "junk", [b"", b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x81\xa1a" * 100_000, b"\x80", b"\xff" * 40]
)
def test_a_header_that_is_no_header_is_noticed(junk: bytes) -> None:
    bound = struct.pack("<3sBII", b"SGP", 1, len(junk), 0) + junk + bytes(-len(junk) % 8)
    assert told(read_pack(enclose(bound, b""), None, AT))[0] == "damaged"


def test_a_header_cannot_be_put_before_another_body() -> None:
    value = one_pack(keyring=KEYS)
    other = one_pack(keyring=KEYS)
    for changed in (
        forged(value, sign="someone else"),
        forged(value, about={}),
        forged(value, labels=["x@", "y@", "z@"]),
        forged(value, nonce=disclose(other).header.nonce),
        forged(value, nonce=b""),
        forged(value, key="k0"),
        forged(value, body=lambda _: bytes(disclose(other).body)),
        forged(value, body=lambda data: data[:10]),
        forged(value, body=lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        forged(value, body=lambda data: data[::-1]),
    ):
        assert told(read_pack(changed, KEYS, AT))[0] == "not-authentic"


def test_a_pack_that_lost_its_encryption_is_told_where_only_encrypted_ones_may_come() -> None:
    value = one_pack()
    assert len(read_pack(value, KEYS, AT)) == 5
    assert told(read_pack(value, KEYS, AT, plain=False))[0] == "not-authentic"
    assert len(read_pack(one_pack(keyring=KEYS), KEYS, AT, plain=False)) == 5


def test_a_missing_key_is_tried_again_and_not_a_bad_record(tmp_path: Path) -> None:
    value = one_pack(keyring=KEYS)
    for keyring in (None, Keyring(tmp_path / "none"), Keyring.of({"k9": base64.b64encode(bytes(16)).decode()})):
        with pytest.raises(Unreachable) as caught:
            read_pack(value, keyring, AT)
        assert "no data is lost" in caught.value.remedy
        assert caught.value.code == "key-missing"
    (tmp_path / "bad").write_text("bad\n")
    with pytest.raises(SourceError, match="line 1"):
        read_pack(value, Keyring(tmp_path / "bad"), AT)


def test_packs_of_the_old_key_are_read_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"a {base64.b64encode(bytes(32)).decode()}\n")
    ring = Keyring(path)
    keeper = maker(keyring=ring)
    rows, origins = batch_of(plain_rows(3), PLAIN), origins_of(3)
    ((before,), _) = keeper.make(rows, origins)
    with path.open("a") as file:
        file.write(f"b {base64.b64encode(bytes(range(24))).decode()}\n")
    ((after,), _) = keeper.make(rows, origins)
    assert (before.key_id, after.key_id) == ("a", "b")
    for packed in (before, after):
        assert PackDecoder(PLAIN).rows(read_pack(packed.value, ring, AT)).rows == plain_rows(3)


@settings(max_examples=300)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8), st.booleans())
def test_a_body_with_any_bytes_under_a_right_checksum_never_raises(at: int, piece: bytes, flips: bool) -> None:
    def change(data: bytes) -> bytes:
        start = at % len(data)
        now = bytearray(data)
        now[start : start + len(piece)] = bytes(a ^ b for a, b in zip(piece, data[start:], strict=False)) if flips else piece
        return bytes(now[: len(data)])

    block = read_pack(forged(one_pack(), body=change), None, AT)
    found = PackDecoder(PLAIN).rows(block)
    assert len(found.rows) + len(found.bad) == len(block)
    for ordinal in range(len(block)):
        block.payload(ordinal)
        block.place(ordinal)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("more", [-8, -1, 1, 8, 4096])
def test_a_size_before_compression_that_is_not_that_of_the_body_is_noticed(codec: str, more: int) -> None:
    value = one_pack(codec=codec)
    size = disclose(value).header.raw_bytes
    assert told(read_pack(forged(value, raw_bytes=size + more), None, AT))[0] == "damaged"


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused_without_its_size_in_memory(codec: str) -> None:
    bomb = compress(codec, pa.py_buffer(bytes(RAW_BYTES + 8))).to_pybytes()
    before = pa.total_allocated_bytes()
    for says in (1000, 2**20):
        value = forged(one_pack(), body=lambda _: bomb, codec=codec, raw_bytes=says)
        assert told(read_pack(value, None, AT))[0] == "damaged"
    assert told(read_pack(forged(one_pack(), body=lambda _: bomb, codec=codec, raw_bytes=RAW_BYTES + 8), None, AT))[0] == "damaged"
    assert pa.total_allocated_bytes() == before


def test_a_body_that_is_compressed_inside_is_refused_before_arrow_believes_its_sizes() -> None:
    opened = disclose(one_pack())
    fields = [*arrow_schema(PLAIN), pa.field("", pa.int64()), pa.field("", pa.int32()), pa.field("", pa.int32())]
    batch = pa.ipc.read_record_batch(pa.py_buffer(opened.body), pa.schema(fields))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    inner = reader.read_next_message().serialize().to_pybytes()
    value = forged(one_pack(), body=lambda _: inner, raw_bytes=len(inner))
    assert told(read_pack(value, None, AT)) == ("damaged", "not a valid pack: its record batch is compressed twice")


def test_a_batch_that_says_more_rows_than_its_buffers_hold_is_noticed() -> None:
    value = one_pack(labels=1, nth=False)
    body = bytearray(disclose(value).body)
    at = body.index(struct.pack("<q", 5))
    body[at : at + 8] = struct.pack("<q", 2**20)
    header_rows = {"rows": 2**20, "raw_bytes": 2**24}
    padded = bytes(body).ljust(2**24, b"\0")
    assert told(read_pack(forged(value, body=lambda _: padded, **header_rows), None, AT))[0] == "damaged"


def test_a_text_that_is_no_utf8_under_a_right_checksum_is_noticed() -> None:
    value = forged(one_pack(), body=lambda data: data.replace(b"user_00001", b"user_\xff0001"))
    reason, message = told(read_pack(value, None, AT))
    assert reason == "damaged"
    assert "UTF8" in message


def test_a_pack_of_another_writer_that_lies_about_its_rows_is_noticed_though_it_is_encrypted() -> None:
    inside = disclose(one_pack()).body
    value = forged(one_pack(keyring=KEYS), lock=bytes(range(32)), body=lambda _: bytes(inside), rows=4)
    reason, message = told(read_pack(value, KEYS, AT))
    assert (reason, "its header declares 4" in message) == ("damaged", True)


def test_reading_what_says_to_be_large_takes_no_memory_for_it() -> None:
    values = [
        struct.pack("<3sBIII", b"SGP", 1, 2**31, 2**31, 0) + bytes(100),
        forged(one_pack(), rows=2**25, raw_bytes=2**28),
        forged(one_pack(codec="zstd"), codec="zstd", raw_bytes=2**28, rows=2**25),
    ]
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    for value in values:
        told(read_pack(value, None, AT))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert pa.total_allocated_bytes() == before


def test_the_checksum_is_over_all_but_itself() -> None:
    value = one_pack()
    (said,) = struct.unpack_from("<I", value, 12)
    assert said == zlib.crc32(value[:12] + value[PREFIX_BYTES:])


# without the package


def test_without_the_package_that_encrypts_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    value = one_pack(keyring=KEYS)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    for ask in (lambda: maker(keyring=KEYS), lambda: read_pack(value, KEYS, AT)):
        with pytest.raises(EnvironmentFault) as caught:
            ask()
        assert (caught.value.code, caught.value.remedy) == ("encryption-missing", "run: pip install 'scribengin[encryption]'")
    assert len(read_pack(one_pack(), KEYS, AT)) == 5


def test_a_damaged_block_that_another_makes_is_decoded_alike() -> None:
    assert told(damaged_block(AT, Bad(0, "truncated", "cut off"), b"xyz")) == ("truncated", "cut off")

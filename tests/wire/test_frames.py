"""Frames: what is encoded is decoded, damage is found and told, and format 1 stays what it is."""

from __future__ import annotations

import gzip
import struct
from contextlib import suppress
from typing import get_args

import google_crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scribengin.core.zstd import compress
from scribengin.wire.frames import (
    CODECS,
    HEAD_BYTES,
    MAGIC,
    MOST_BYTES,
    BadFrame,
    FrameCodec,
    FrameHead,
    FrameKind,
    FrameOrigin,
    encode_frame,
    find_frames,
    mark_for,
    payload_of,
)

PROFILE = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
TEXT = st.text(max_size=20)
NUMBER = st.integers(0, 2**63 - 1)
ORIGINS = st.builds(
    FrameOrigin,
    host=TEXT,
    file=TEXT,
    identity=TEXT,
    offset=NUMBER,
    end=NUMBER,
    line=NUMBER,
    lines=NUMBER,
    tags=st.dictionaries(TEXT, TEXT, max_size=3),
)
PAYLOADS = st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=5).map(lambda part: part * 1000))
HEADS = st.builds(
    FrameHead,
    kind=st.sampled_from(get_args(FrameKind)),
    codec=st.sampled_from(CODECS),
    sequence=st.integers(0, 2**64 - 1),
    count=st.integers(0, 2**32 - 1),
    raw_bytes=st.just(0),
    time_ms=st.integers(0, 2**64 - 1),
    mark=st.binary(max_size=255),
    origin=ORIGINS,
)


def with_raw_bytes(head: FrameHead, payload: bytes) -> FrameHead:
    return FrameHead(head.kind, head.codec, head.sequence, head.count, len(payload), head.time_ms, head.mark, head.origin)


def frame(sequence: int = 0, payload: bytes = b"one\ntwo\n", codec: FrameCodec = "none") -> bytes:
    return encode_frame(FrameHead("records", codec, sequence, 2, 0, 5), payload)


def summed(body: bytes) -> bytes:
    """A frame with a correct checksum, whatever is in it."""
    return struct.pack("<4sII", MAGIC, 4 + len(body), google_crc32c.value(body)) + body


def with_payload(codec: FrameCodec, raw_bytes: int, packed: bytes, origin: bytes = b"{}", origin_bytes: int | None = None) -> bytes:
    rest = struct.pack(
        "<BBBBQIIQH", 0, CODECS.index(codec), 1, 0, 0, 1, raw_bytes, 0, len(origin) if origin_bytes is None else origin_bytes
    )
    return summed(rest + b"\n" + origin + packed)


@given(st.lists(st.tuples(HEADS, PAYLOADS), max_size=5))
@settings(PROFILE, max_examples=60)
def test_what_is_encoded_is_decoded(frames: list[tuple[FrameHead, bytes]]) -> None:
    data = b"".join(encode_frame(head, payload) for head, payload in frames)
    for view in (data, memoryview(data), bytearray(data)):
        found = list(find_frames(view))
        assert [each.head for each in found] == [with_raw_bytes(*each) for each in frames]
        assert [payload_of(view, each) for each in found] == [payload for _, payload in frames]
        assert [each.start for each in found[1:]] == [each.end for each in found[:-1]]
        assert not any(each.fault or each.torn for each in found)
    assert sum(each.end - each.start for each in find_frames(data)) == len(data)


def test_next_is_the_number_after_the_last_record() -> None:
    assert FrameHead("records", "none", 5, 3, 0, 0).next == 8


GOLDEN: dict[tuple[FrameKind, FrameCodec], str] = {
    ("records", "none"): "534746312a00000081fcf8c80000000007000000000000000100000006000000010000000000000002007b7d616263616263",
    ("records", "gzip"): "534746313e0000003b53acb90001000007000000000000000100000006000000010000000000000002007b7d1f8b08000000"
    "000004034b4c4a4e4c4a06004c996e7206000000",
    ("records", "zstd"): "53474631330000001598080e0002000007000000000000000100000006000000010000000000000002007b7d28b52ffd2006"
    "310000616263616263",
    ("records", "lz4"): "5347463141000000736f30450003000007000000000000000100000006000000010000000000000002007b7d04224d186840"
    "0600000000000000590600008061626361626300000000",
    ("lost", "none"): "534746312a000000a15c778b0100000007000000000000000100000006000000010000000000000002007b7d616263616263",
    ("lost", "gzip"): "534746313e000000cf8dd90c0101000007000000000000000100000006000000010000000000000002007b7d1f8b08000000"
    "000004034b4c4a4e4c4a06004c996e7206000000",
    ("lost", "zstd"): "5347463133000000499f00410102000007000000000000000100000006000000010000000000000002007b7d28b52ffd2006"
    "310000616263616263",
    ("lost", "lz4"): "53474631410000003fa5e98d0103000007000000000000000100000006000000010000000000000002007b7d04224d186840"
    "0600000000000000590600008061626361626300000000",
    ("too_long", "none"): "534746312a000000c1bce74f0200000007000000000000000100000006000000010000000000000002007b7d616263616263",
    ("too_long", "gzip"): "534746313e0000002298abd60201000007000000000000000100000006000000010000000000000002007b7d1f8b08000000"
    "000004034b4c4a4e4c4a06004c996e7206000000",
    ("too_long", "zstd"): "5347463133000000ad9618900202000007000000000000000100000006000000010000000000000002007b7d28b52ffd2006"
    "310000616263616263",
    ("too_long", "lz4"): "53474631410000001a8d6fd10203000007000000000000000100000006000000010000000000000002007b7d04224d186840"
    "0600000000000000590600008061626361626300000000",
}


def test_format_1_is_as_it_was() -> None:
    """Logs and channels of older releases have such frames: other bytes need another magic."""
    origin = FrameOrigin(host="web-1", file="/var/log/a.log", identity="1:2:3", offset=10, end=24, line=2, lines=4, tags={"k": "v"})
    head = FrameHead("records", "none", 0x0102030405060708, 3, 14, 1_767_225_600_000, b"\n", origin)
    origin_json = b'{"host":"web-1","file":"/var/log/a.log","id":"1:2:3","at":10,"end":24,"n":2,"lines":4,"tags":{"k":"v"}}'
    fields = ["53474631", "98000000", "120f00f7", "00", "00", "01", "00", "0807060504030201", "03000000", "0e000000"]
    data = b"".join([bytes.fromhex("".join([*fields, "00a8da769b010000", "6700"])), b"\n", origin_json, b"one\ntwo\nthree\n"])
    assert encode_frame(head, b"one\ntwo\nthree\n") == data
    (found,) = find_frames(data)
    assert (found.head, payload_of(data, found)) == (head, b"one\ntwo\nthree\n")


@pytest.mark.parametrize(("kind", "codec"), GOLDEN)
def test_every_kind_and_codec_of_format_1_is_read(kind: FrameKind, codec: FrameCodec) -> None:
    data = bytes.fromhex(GOLDEN[kind, codec])
    (found,) = find_frames(data)
    assert found.head == FrameHead(kind, codec, 7, 1, 6, 1, b"", FrameOrigin())
    assert payload_of(data, found) == b"abcabc"


@given(st.integers(0, 2**32))
@settings(PROFILE, max_examples=100)
def test_a_torn_frame_is_told(cut: int) -> None:
    whole = frame(0) + frame(2, b"x" * 50)
    end = len(frame(0)) + cut % (len(whole) - len(frame(0)))
    found = list(find_frames(whole[:end]))
    assert found[0].head is not None
    if end == len(frame(0)):
        assert len(found) == 1
    else:
        assert [(each.head, each.torn, each.start, each.end) for each in found[1:]] == [(None, True, len(frame(0)), end)]
        assert found[1].fault


@given(st.integers(0, 2**32), st.integers(1, 255))
@settings(PROFILE, max_examples=300)
def test_reading_goes_on_after_a_damaged_frame(at: int, change: int) -> None:
    first, middle, last = frame(0), frame(2, b"SGF1" * 10), frame(4)
    at = len(first) + at % len(middle)
    data = bytearray(first + middle + last)
    data[at] ^= change
    found = list(find_frames(bytes(data)))
    assert [each.head.sequence for each in found if each.head is not None] == [0, 4]
    damaged = [each for each in found if each.head is None]
    assert damaged[0].start == len(first)
    assert damaged[-1].end == len(first) + len(middle)
    assert all(each.fault and not each.torn for each in damaged)


@given(st.binary(max_size=200), st.booleans())
@settings(PROFILE, max_examples=200)
def test_no_bytes_are_an_error_of_the_program(garbage: bytes, magic: bool) -> None:
    data = (MAGIC if magic else b"") + garbage + frame()
    found = list(find_frames(data))
    assert [each.head is not None for each in found][-1]
    assert found[0].start == 0
    assert [each.end for each in found] == [each.start for each in found[1:]] + [len(data)]


@given(st.binary(min_size=30, max_size=80))
@settings(PROFILE, max_examples=200)
def test_a_head_that_nobody_knows_is_damage_though_its_sum_is_right(body: bytes) -> None:
    """A gateway reads what anyone with a token sends."""
    data = summed(body) + frame()
    found = list(find_frames(data))
    for each in found:
        if each.head is not None:
            with suppress(BadFrame):
                payload_of(data, each)
    assert found[-1].head is not None


@pytest.mark.parametrize("beyond", [1, 5, 1000])
def test_a_head_never_reaches_into_the_next_frame(beyond: int) -> None:
    damaged, whole = find_frames(with_payload("none", 0, b"", b"{}", origin_bytes=2 + beyond) + frame())
    assert damaged.fault == "the mark and the origin of a frame are longer than the frame"
    assert whole.head is not None


@pytest.mark.parametrize("origin", [b'{"host": "\xff"}', b"{", b"[]", b'{"at": "x"}', b""])
def test_an_origin_that_is_not_valid_is_damage(origin: bytes) -> None:
    damaged, whole = find_frames(with_payload("none", 0, b"", origin) + frame())
    assert damaged.head is None
    assert "a head that this version does not know" in damaged.fault
    assert whole.head is not None


@pytest.mark.parametrize("place", [12, 13], ids=["kind", "codec"])
def test_a_kind_or_codec_of_a_later_release_is_told(place: int) -> None:
    data = bytearray(frame())
    data[place] = 9
    data[8:12] = google_crc32c.value(bytes(data[12:])).to_bytes(4, "little")
    damaged, whole = find_frames(bytes(data) + frame())
    assert damaged.head is None
    assert damaged.fault.startswith("a head that this version does not know")
    assert whole.head is not None


def test_a_codec_that_is_not_known_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="unknown codec 'snappy'"):
        encode_frame(FrameHead("records", "snappy", 0, 1, 0, 0), b"x")  # type: ignore[arg-type]


def test_a_frame_that_is_too_large_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="larger than 8,388,608"):
        frame(0, bytes(MOST_BYTES))
    assert len(frame(0, bytes(MOST_BYTES - HEAD_BYTES - 3))) == MOST_BYTES


def test_a_frame_that_says_that_it_is_too_large_is_damage() -> None:
    data = MAGIC + struct.pack("<II", MOST_BYTES, 0) + bytes(60) + frame()
    damaged, whole = find_frames(data)
    assert "expected at most 8,388,608" in damaged.fault
    assert not damaged.torn
    assert whole.head is not None


def bomb(codec: FrameCodec) -> bytes:
    import lz4.frame

    zeros = bytes(64 * 2**20)
    return {"gzip": gzip.compress, "zstd": compress, "lz4": lz4.frame.compress}[codec](zeros)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_a_payload_never_becomes_more_than_its_head_says(codec: FrameCodec) -> None:
    import tracemalloc

    data = with_payload(codec, 1000, bomb(codec))
    (found,) = find_frames(data)
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame, match="the payload has 1,001 bytes; its head says 1,000"):
            payload_of(data, found)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
@pytest.mark.parametrize("packed", [b"", b"no such data", b"torn"])
def test_a_payload_that_cannot_be_decompressed_is_told(codec: FrameCodec, packed: bytes) -> None:
    if packed == b"torn":
        packed = bomb(codec)[:40]
    data = with_payload(codec, 2**20, packed)
    (found,) = find_frames(data)
    with pytest.raises(BadFrame, match="the payload"):
        payload_of(data, found)


def test_a_payload_of_another_size_is_told() -> None:
    data = with_payload("none", 5, b"four")
    (found,) = find_frames(data)
    with pytest.raises(BadFrame, match="the payload has 4 bytes; its head says 5"):
        payload_of(data, found)


@given(st.lists(st.binary(max_size=8), max_size=10))
@settings(PROFILE, max_examples=100)
def test_a_mark_is_in_no_record(records: list[bytes]) -> None:
    mark = mark_for(records)
    assert not any(mark in record for record in records)
    assert b"".join(record + mark for record in records).split(mark)[:-1] == records


def test_a_mark_is_found_when_records_have_all_usual_ones() -> None:
    assert len(mark_for([b"\n", b"\x1e", b"\x00", b"\x1d"])) == 8

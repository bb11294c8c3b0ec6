"""Frames: runs of records from one origin, numbered, compressed and summed. One format serves an agent's write-ahead log, the requests to a
gateway, and the channel behind it, so that a frame is encoded once, by the agent, and decoded once, by the task that reads the channel.

A frame, all numbers little-endian::

    0   4  the bytes SGF1
    4   4  length: the bytes after this field
    8   4  CRC32C of the bytes after this field
    12  1  kind: 0 records, 1 lost, 2 too long
    13  1  codec of the payload: 0 none, 1 gzip, 2 zstd, 3 lz4
    14  1  length of the mark
    15  1  0
    16  8  sequence: the number of the first record, from 0, without gaps for one incarnation of one lane
    24  4  count: the number of records
    28  4  bytes of the payload before compression
    32  8  time at which the last record was read, in milliseconds since 1970
    40  2  bytes of the origin
    42  .. the mark, the origin as JSON, the payload

The payload of *records* is the records, each followed by the mark, which is a line feed, or other bytes that no record contains. A *lost*
frame stands for records that no longer exist, and its payload says why: so that the numbers have no gap, and losses are counted where the
records are read. A *too long* frame is one record of more than the agent's `max_record`; its payload is the first bytes.
"""

from __future__ import annotations

import gzip
import secrets
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import google_crc32c
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAGIC = b"SGF1"
HEAD_BYTES = 42
"""bytes before the mark"""
MOST_BYTES = 8 * 2**20
"""the largest frame that is accepted, in bytes; topics of channels allow messages of this size"""
_START = struct.Struct("<4sII")
_REST = struct.Struct("<BBBBQIIQH")

FrameKind = Literal["records", "lost", "too_long"]
FrameCodec = Literal["none", "gzip", "zstd", "lz4"]
_KINDS: tuple[FrameKind, ...] = ("records", "lost", "too_long")
CODECS: tuple[FrameCodec, ...] = ("none", "gzip", "zstd", "lz4")
LINE_FEED = b"\n"
_MARKS = (LINE_FEED, b"\x1e", b"\x00", b"\x1d")


class FrameOrigin(msgspec.Struct, omit_defaults=True, rename={"identity": "id", "offset": "at", "line": "n"}):
    """Where the records of a frame come from. For a file, offsets and lines are those of its decompressed content."""

    host: str = ""
    file: str = ""
    """the path of the file when it was read; for other inputs, the sender or the command"""
    identity: str = ""
    """the identity of the file (`agent.sources.tail`): positions are restored by it"""
    offset: int = 0
    """where the first record begins, in bytes"""
    end: int = 0
    """where the record after the last one begins, in bytes; the position of the source after this frame"""
    line: int = 0
    """the line number of the first record, from 1; 0: unknown"""
    lines: int = 0
    """the lines of all records; 0: one each"""
    tags: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class FrameHead:
    """A frame without its payload. `sequence` is the number of the first record, `time_ms` when the last one was read."""

    kind: FrameKind
    codec: FrameCodec
    sequence: int
    count: int
    raw_bytes: int
    time_ms: int
    mark: bytes = LINE_FEED
    origin: FrameOrigin = field(default_factory=FrameOrigin)

    @property
    def next(self) -> int:
        """The number of the record after the last one."""
        return self.sequence + self.count


@dataclass(frozen=True, slots=True)
class FoundFrame:
    """A frame in a stretch of bytes. `head` is None if the bytes are damaged: `fault` then says how, and `end` is where the next frame may
    begin (the next magic), or the end of the bytes."""

    start: int
    end: int
    head: FrameHead | None
    fault: str = ""
    torn: bool = False
    """True if the bytes end before the frame does: what remains after a crash while it was written"""


class BadFrame(Exception):
    """The payload of a frame cannot be decompressed, or has another size or number of records than its head says."""


_encode_origin = msgspec.json.Encoder().encode
_decode_origin = msgspec.json.Decoder(FrameOrigin).decode


def mark_for(records: Sequence[bytes]) -> bytes:
    """Bytes that no record contains, to be written after each: a line feed if that is possible."""
    joined = b"".join(records)
    for mark in _MARKS:
        if mark not in joined:
            return mark
    while (mark := secrets.token_bytes(8)) in joined:
        pass
    return mark


def encode_frame(head: FrameHead, payload: bytes | memoryview) -> bytes:
    """The bytes of a frame.

    Args:
        head: Its head; `raw_bytes` is set from the payload.
        payload: The payload before compression.

    Raises:
        ValueError: The codec is not installed here, or the frame is larger than MOST_BYTES.
    """
    origin = _encode_origin(head.origin)
    packed = payload if head.codec == "none" else _compressor(head.codec)(payload)
    rest = _REST.pack(
        _KINDS.index(head.kind),
        CODECS.index(head.codec),
        len(head.mark),
        0,
        head.sequence,
        head.count,
        len(payload),
        head.time_ms,
        len(origin),
    )
    length = 4 + len(rest) + len(head.mark) + len(origin) + len(packed)
    if length + 8 > MOST_BYTES:
        raise ValueError(f"a frame of {length + 8:,} bytes, larger than {MOST_BYTES:,}")
    body = b"".join((rest, head.mark, origin, packed))
    return b"".join((_START.pack(MAGIC, length, google_crc32c.value(body)), body))


def find_frames(data: bytes | memoryview, start: int = 0) -> Iterator[FoundFrame]:
    """The frames of a stretch of bytes, which begins with a frame. After damaged bytes it continues at the next whole frame."""
    whole = memoryview(data)
    end = len(whole)
    while start < end:
        found = _frame_at(whole, start)
        yield found
        start = found.end


def payload_of(data: bytes | memoryview, found: FoundFrame) -> bytes:
    """The payload of a frame of `data`, decompressed. Raises BadFrame."""
    head = found.head
    assert head is not None
    origin_bytes = int.from_bytes(data[found.start + 40 : found.start + 42], "little")
    packed = bytes(data[found.start + HEAD_BYTES + len(head.mark) + origin_bytes : found.end])
    try:
        raw = packed if head.codec == "none" else _decompress(head.codec, packed, head.raw_bytes)
    except Exception as error:
        raise BadFrame(f"the payload is not valid {head.codec}: {error}") from error
    if len(raw) != head.raw_bytes:
        raise BadFrame(f"the payload has {len(raw):,} bytes; its head says {head.raw_bytes:,}")
    return raw


def _frame_at(data: memoryview, start: int) -> FoundFrame:
    left = len(data) - start
    if left < HEAD_BYTES:
        return _damaged(data, start, "the bytes end in the head of a frame", torn=data[start : start + 4] == MAGIC[:left])
    magic, length, crc = _START.unpack_from(data, start)
    if magic != MAGIC:
        return _damaged(data, start, "no frame begins here")
    end = start + 8 + length
    if not HEAD_BYTES - 8 <= length <= MOST_BYTES - 8:
        return _damaged(data, start, f"a frame of {length + 8:,} bytes; expected at most {MOST_BYTES:,}")
    if end > len(data):
        return _damaged(data, start, f"a frame of {length + 8:,} bytes, of which {left:,} are there", torn=True)
    if google_crc32c.value(bytes(data[start + 12 : end])) != crc:
        return _damaged(data, start, "the checksum of a frame differs")
    kind, codec, mark_bytes, _, sequence, count, raw_bytes, time_ms, origin_bytes = _REST.unpack_from(data, start + 12)
    at = start + HEAD_BYTES
    if at + mark_bytes + origin_bytes > end:
        return _damaged(data, start, "the mark and the origin of a frame are longer than the frame")
    mark = bytes(data[at : at + mark_bytes])
    try:
        origin = _decode_origin(data[at + mark_bytes : at + mark_bytes + origin_bytes])
        head = FrameHead(_KINDS[kind], CODECS[codec], sequence, count, raw_bytes, time_ms, mark, origin)
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        return _damaged(data, start, f"a head that this version does not know: {error}")
    return FoundFrame(start, end, head)


def _damaged(data: memoryview, start: int, fault: str, *, torn: bool = False) -> FoundFrame:
    """The stretch from `start` to the next whole frame. A stretch that is torn reaches to the end, as no frame follows it."""
    rest = bytes(data[start + 1 :])
    at = rest.find(MAGIC)
    while at >= 0:
        begin = start + 1 + at
        if len(data) - begin >= HEAD_BYTES:
            _, length, crc = _START.unpack_from(data, begin)
            end = begin + 8 + length
            if length >= HEAD_BYTES - 8 and end <= len(data) and google_crc32c.value(bytes(data[begin + 12 : end])) == crc:
                return FoundFrame(start, begin, None, fault)
        at = rest.find(MAGIC, at + 1)
    return FoundFrame(start, len(data), None, fault, torn)


def _compressor(codec: FrameCodec) -> Any:
    match codec:
        case "gzip":
            return lambda raw: gzip.compress(raw, 1, mtime=0)
        case "zstd":
            from scribengin.core.zstd import compress

            return lambda raw: compress(bytes(raw), 1)
        case "lz4":
            import lz4.frame

            return lz4.frame.compress
    raise ValueError(f"unknown codec {codec!r}")


def _decompress(codec: FrameCodec, packed: bytes, raw_bytes: int) -> bytes:
    match codec:
        case "gzip":
            import zlib

            # never more than announced: a small frame must not become gigabytes
            return zlib.decompressobj(31).decompress(packed, raw_bytes + 1)
        case "zstd":
            from scribengin.core.zstd import ZstdDecompressor

            return ZstdDecompressor().decompress(packed, raw_bytes + 1)
        case "lz4":
            import lz4.frame

            return bytes(lz4.frame.LZ4FrameDecompressor().decompress(packed, raw_bytes + 1))
    raise ValueError(f"unknown codec {codec!r}")

"""Bodies of clients that are not agents: Fluent Bit, Vector, rsyslog, curl and others. They become records: JSON objects or lines."""

from __future__ import annotations

import json
import math
import struct
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.gateway.lane_writer import RecordPiece
from scribengin.gateway.otlp import BadLogs, records_of_json, records_of_protobuf
from scribengin.wire.frames import LINE_FEED, mark_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MOST_RECORDS_BYTES = 64 * 2**20
"""the largest body after decompression"""
_MOST_FRAME = 4 * 2**20
"""frames are not larger than this before compression, whatever a lane says"""
_MOST_DEPTH = 64


class BadRecords(ValueError):
    """A body cannot be read; the text says why."""


class UnknownBody(BadRecords):
    """Its type or its encoding is not known here."""


class LargeBody(BadRecords):
    """It has too many bytes after decompression."""


def records_of(content_type: str, body: bytes) -> list[bytes]:
    """The records of a body.

    Args:
        content_type: The value of `Content-Type`, which may be empty: lines of text.
        body: The body after decompression.

    Raises:
        BadRecords: It is not what its type says.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        return _of_json(body)
    if kind in ("application/msgpack", "application/x-msgpack"):
        return _of_msgpack(body)
    if kind.startswith("text/") or kind in _LINES:
        return [line.rstrip(b"\r") for line in body.split(LINE_FEED) if line.strip()]
    known = "application/x-ndjson, application/json, application/msgpack or text/plain"
    raise UnknownBody(f'the content type "{content_type}" is not supported; expected {known}')


_LINES = {
    "",
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/stream+json",
    "application/json-seq",
    "application/octet-stream",
    "application/x-www-form-urlencoded",  # what curl sends if no type is named
}


def otlp_records_of(content_type: str, body: bytes) -> list[bytes]:
    """The records of a body of OTLP logs. Raises BadRecords."""
    kind = content_type.partition(";")[0].strip().lower()
    readers: dict[str, Callable[[bytes], list[bytes]]] = {
        "application/json": records_of_json,
        "application/x-protobuf": records_of_protobuf,
        "application/protobuf": records_of_protobuf,
    }
    if kind not in readers:
        raise UnknownBody(f'the content type "{content_type}" is not supported; expected application/x-protobuf or application/json')
    try:
        return readers[kind](body)
    except BadLogs as error:
        raise BadRecords(str(error)) from error


def decompressed(encoding: str, body: bytes) -> bytes:
    """A body after decompression.

    Args:
        encoding: The value of `Content-Encoding`, which may be empty.
        body: The bytes.

    Raises:
        UnknownBody: The encoding is not known here.
        LargeBody: There are more than MOST_RECORDS_BYTES.
        BadRecords: The bytes are not of that encoding.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    try:
        match name:
            case "gzip" | "x-gzip":
                return _inflated(body, 31)
            case "deflate":
                # RFC 9110 says zlib; some clients send the bare stream
                return _inflated(body, 15 if body[:1] and body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0 else -15)
            case "zstd":
                return _unzstd(body)
    except BadRecords:
        raise
    except Exception as error:
        raise BadRecords(f"the body is not valid {name}: {error}") from error
    raise UnknownBody(f'the encoding "{encoding}" is not supported; expected gzip, deflate or zstd')


def _inflated(body: bytes, window: int) -> bytes:
    made: list[bytes] = []
    left = MOST_RECORDS_BYTES
    while body:  # a gzip body may have several members
        reader = zlib.decompressobj(window)
        made.append(reader.decompress(body, left + 1))
        left -= len(made[-1])
        if left < 0:
            raise _too_large()
        if not reader.eof:
            raise BadRecords("the compressed body ends too early")
        body = reader.unused_data
    return b"".join(made)


def _unzstd(body: bytes) -> bytes:
    from scribengin.core.zstd import ZstdDecompressor

    made: list[bytes] = []
    left = MOST_RECORDS_BYTES
    while body:
        reader = ZstdDecompressor()
        made.append(reader.decompress(body, left + 1))
        left -= len(made[-1])
        if left < 0:
            raise _too_large()
        if not reader.eof:
            raise BadRecords("the compressed body ends too early")
        body = reader.unused_data
    return b"".join(made)


def _too_large() -> LargeBody:
    return LargeBody(f"the body has more than {MOST_RECORDS_BYTES:,} bytes after decompression")


def pieces_of(records: Sequence[bytes], *, most_rows: int, most_bytes: int, max_record: int) -> list[RecordPiece]:
    """Records in pieces that become a frame each. A record that is longer than `max_record` becomes a piece with its first bytes.

    Args:
        records: The records.
        most_rows: The most records of a frame.
        most_bytes: The most bytes of a frame before compression.
        max_record: The most bytes of a record.
    """
    most_bytes = min(most_bytes, _MOST_FRAME)
    pieces: list[RecordPiece] = []
    waiting: list[bytes] = []
    size = 0
    for record in records:
        if waiting and (len(waiting) >= most_rows or size + len(record) > most_bytes or len(record) > max_record):
            pieces.append(_piece(waiting))
            waiting, size = [], 0
        if len(record) > max_record:
            pieces.append(RecordPiece(record[: min(max_record, _MOST_FRAME)], 1, kind="too_long"))
        else:
            waiting.append(record)
            size += len(record)
    if waiting:
        pieces.append(_piece(waiting))
    return pieces


def _piece(records: Sequence[bytes]) -> RecordPiece:
    mark = mark_for(records)
    return RecordPiece(mark.join([*records, b""]), len(records), mark)


# JSON.


def _of_json(body: bytes) -> list[bytes]:
    """An array of records, one record, or records one after another, with or without line feeds between them."""
    text = body.strip()
    if text[:1] == b"[":
        try:
            return [_in_a_line(bytes(each)) for each in msgspec.json.decode(text, type=list[msgspec.Raw])]
        except msgspec.MsgspecError as error:
            raise BadRecords(f"the body is not a valid JSON array: {error}") from error
    lines = [line.rstrip(b"\r") for line in text.split(LINE_FEED) if line.strip()]
    if all(_is_json(line) for line in lines):
        return lines
    return list(_values_of(text))


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return False
    return True


def _in_a_line(record: bytes) -> bytes:
    return msgspec.json.format(record, indent=-1) if LINE_FEED in record else record


def _values_of(body: bytes) -> Iterator[bytes]:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BadRecords(f"the body is not valid UTF-8: {error}") from error
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        try:
            _, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            raise BadRecords(f"the body is not valid JSON: {error}") from error
        yield _in_a_line(text[at:end].encode())
        while end < len(text) and text[end] in " \t\r\n,":
            end += 1
        at = end


# MessagePack, as Fluent Bit sends it: entries one after another, each [time, record] or [[time, metadata], record].


def _of_msgpack(body: bytes) -> list[bytes]:
    records = []
    at = 0
    try:
        while at < len(body):
            value, at = _unpacked(body, at, 0)
            records.append(msgspec.json.encode(_entry(value)))
    except (IndexError, struct.error) as error:
        raise BadRecords("the body is not valid MessagePack: it ends in a value") from error
    except (TypeError, ValueError) as error:
        raise BadRecords(f"the body is not valid MessagePack of records: {error}") from error
    return records


def _entry(value: Any) -> Any:
    match value:
        case [[int() | float() as time, dict()], dict() as record] | [int() | float() as time, dict() as record]:
            return {"date": time, **record}
        case _:
            return value


_SCALARS: dict[int, str] = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS: dict[int, tuple[str, int]] = {
    0xC4: ("binary", 1),
    0xC5: ("binary", 2),
    0xC6: ("binary", 4),
    0xC7: ("extension", 1),
    0xC8: ("extension", 2),
    0xC9: ("extension", 4),
    0xD9: ("text", 1),
    0xDA: ("text", 2),
    0xDB: ("text", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}


def _unpacked(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """(value, where the next one begins)."""
    if depth > _MOST_DEPTH:
        raise BadRecords(f"values are nested more than {_MOST_DEPTH} deep")
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _SCALARS:
        form = _SCALARS[first]
        value = struct.unpack_from(form, data, at)[0]
        return None if isinstance(value, float) and not math.isfinite(value) else value, at + struct.calcsize(form)
    if 0xD4 <= first <= 0xD8:
        kind, length = "extension", 1 << (first - 0xD4)
    elif first < 0xC0:
        kind, length = ("map", first & 0x0F) if first < 0x90 else ("list", first & 0x0F) if first < 0xA0 else ("text", first & 0x1F)
    elif first in _LENGTHS:
        kind, size = _LENGTHS[first]
        length = int.from_bytes(data[at : at + size])
        at += size
    else:
        raise BadRecords("the body is not valid MessagePack: the byte 0xC1")
    if kind == "list":
        values = []
        for _ in range(length):
            value, at = _unpacked(data, at, depth + 1)
            values.append(value)
        return values, at
    if kind == "map":
        pairs = {}
        for _ in range(length):
            key, at = _unpacked(data, at, depth + 1)
            value, at = _unpacked(data, at, depth + 1)
            pairs[key if isinstance(key, str) else str(key)] = value
        return pairs, at
    code = data[at] if kind == "extension" else 0
    at += kind == "extension"
    held = data[at : at + length]
    if len(held) < length:
        raise IndexError
    if kind == "extension" and code == 0 and length == 8:  # the event time of Fluent Bit
        seconds, nanoseconds = struct.unpack(">II", held)
        return seconds + nanoseconds / 1e9, at + length
    return held.decode("utf-8", "replace"), at + length

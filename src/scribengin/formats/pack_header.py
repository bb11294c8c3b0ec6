"""The frame of a pack: the bytes around its body, and the check that it is complete and unchanged.

    SGP | version, 1 byte | bytes of the header, u32 | bytes of the body, u32 | CRC-32 of all else, u32 | header | zeros up to 8 | body

Numbers are little-endian. The header is MessagePack, readable without a key; it is never secret. An encrypted body is bound to it: all in
front of the body but the checksum is AES-GCM's associated data, so that no header can be put before another body.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from scribengin.formats.origins import Hop, Trail

Codec = Literal["none", "gzip", "lz4", "snappy", "zstd"]
RAW_BYTES = 256 * 2**20
"""maximum size of a body before compression, in bytes; a header with a larger value is rejected"""
VERSION = 1
NONCE_BYTES = 12
_MAGIC = b"SGP"
_START = struct.Struct("<3sBII")
_CRC = struct.Struct("<I")
PREFIX_BYTES = _START.size + _CRC.size
"""minimum length of a pack, in bytes"""

_Count = Annotated[int, msgspec.Meta(ge=0, le=RAW_BYTES)]
_Stop = tuple[str, str, int, str, int, str]


class DamagedPackError(ValueError):
    """Bytes that are not a valid pack. `reason` is `foreign`, `truncated`, `damaged`, `not-authentic` or `pack-version`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class PackHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a pack's body. `digest` is `Origins.digest()` of its rows, `sign` identifies the writer of the channel."""

    schema: str
    """DDL"""
    rows: _Count
    raw_bytes: _Count
    """the body's size before compression and encryption"""
    digest: Annotated[int, msgspec.Meta(ge=0)]
    sign: str
    labels: list[str]
    """of the rows of this pack, each once for each trail"""
    stops: list[list[_Stop]]
    """the different trails, hop by hop"""
    ways: list[int] = []
    """for each label the index in `stops`; empty if there is only one"""
    nth: bool = False
    """whether the body has the column of `Origins.nth`; without, all are 0"""
    codec: Codec = "none"
    key: str | None = None
    """the id of the key; None for a body that is not encrypted"""
    nonce: bytes = b""
    about: dict[str, str | int] = {}
    """who made it, when: for people and displays"""

    def trails(self) -> list[Trail]:
        """Of each label. Raises IndexError for ways that lead nowhere."""
        found = [tuple(Hop(*stop) for stop in stops) for stops in self.stops]
        if any(way < 0 for way in self.ways):
            raise IndexError("a way has a negative number")
        return [found[way] for way in self.ways] if self.ways else [found[0]] * len(self.labels)


@dataclass(frozen=True, slots=True)
class Opened:
    """A pack whose checksum is right. `bound` is what the body is bound to by its encryption."""

    header: PackHeader
    bound: bytes
    body: memoryview


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(PackHeader)


def bind(header: PackHeader, body_bytes: int) -> bytes:
    """What stands in front of a body of that size, without the checksum."""
    text = _ENCODER.encode(header)
    return _START.pack(_MAGIC, VERSION, len(text), body_bytes) + text + bytes(-len(text) % 8)


def enclose(bound: bytes, body: bytes | memoryview) -> bytes:
    """The pack: what `bind` gave, the checksum, the body."""
    crc = zlib.crc32(body, zlib.crc32(bound))
    return b"".join((bound[: _START.size], _CRC.pack(crc), bound[_START.size :], body))


def disclose(value: bytes | None) -> Opened:
    """Remove the frame. Raises DamagedPackError, and nothing else, whatever the bytes are."""
    if not value:
        raise DamagedPackError("foreign", "the value is missing")
    if value[:3] != _MAGIC[: len(value)]:
        raise DamagedPackError("foreign", f"it begins with {value[:8]!r}; expected {_MAGIC!r}")
    if len(value) < PREFIX_BYTES:
        raise DamagedPackError("truncated", f"it has only {len(value)} bytes; expected at least {PREFIX_BYTES}")
    _, version, header_bytes, body_bytes = _START.unpack_from(value)
    if version != VERSION:
        raise DamagedPackError("pack-version", f"it is a pack of version {version}; this Scribengin reads version {VERSION}")
    header_end = PREFIX_BYTES + header_bytes
    begin = header_end + -header_bytes % 8
    if len(value) < begin + body_bytes:
        raise DamagedPackError("truncated", f"it ends after {len(value)} of {begin + body_bytes} bytes")
    if len(value) > begin + body_bytes:
        raise DamagedPackError("damaged", f"it has {len(value) - begin - body_bytes} bytes more than its header states")
    body = memoryview(value)[begin:]
    bound = value[: _START.size] + value[PREFIX_BYTES:begin]
    (said,) = _CRC.unpack_from(value, _START.size)
    if (found := zlib.crc32(body, zlib.crc32(bound))) != said:
        raise DamagedPackError("damaged", f"its checksum is {found:08x}; its header states {said:08x}")
    try:
        return Opened(_DECODER.decode(value[PREFIX_BYTES:header_end]), bound, body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamagedPackError("damaged", f"its header cannot be read: {error}") from None

"""The frame of a pack: the bytes around its body, and the check that it is complete and unchanged.

    SGP | version, 1 byte | bytes of the header, u32 | bytes of the body, u32 | CRC-32 of all else, u32 | header | zeros up to 8 | body

Numbers are little-endian. The header is MessagePack, readable without a key; it is never secret. An encrypted body is bound to its header:
all bytes before the body except the checksum are AES-GCM's associated data, so that no header can be put before another body.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from scribengin.core.errors import EnvironmentFault
from scribengin.formats.row_ids import Hop, Trail

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
    """the labels of this pack's rows, each once for each provenance"""
    stops: list[list[_Stop]]
    """the different provenances, hop by hop"""
    ways: list[int] = []
    """for each label the index in `stops`; empty if there is only one"""
    nth: bool = False
    """True if the body has the column of `Origins.nth`; otherwise all are 0"""
    codec: Codec = "none"
    key: str | None = None
    """the id of the key; None for a body that is not encrypted"""
    nonce: bytes = b""
    about: dict[str, str | int] = {}
    """who made the pack, and when: for people and displays"""

    def trails(self) -> list[Trail]:
        """The provenance of each label. Raises IndexError for an index in `ways` that is not in `stops`."""
        found = [tuple(Hop(*stop) for stop in stops) for stops in self.stops]
        if any(way < 0 for way in self.ways):
            raise IndexError("a way has a negative number")
        return [found[way] for way in self.ways] if self.ways else [found[0]] * len(self.labels)


@dataclass(frozen=True, slots=True)
class Opened:
    """A pack whose checksum is correct. `bound` are the bytes to which the body is bound by its encryption."""

    header: PackHeader
    bound: bytes
    body: memoryview


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(PackHeader)


def bind(header: PackHeader, body_bytes: int) -> bytes:
    """The bytes before a body of that size, without the checksum."""
    text = _ENCODER.encode(header)
    return _START.pack(_MAGIC, VERSION, len(text), body_bytes) + text + bytes(-len(text) % 8)


def enclose(bound: bytes, body: bytes | memoryview) -> bytes:
    """The pack: the bytes of `bind`, the checksum, the body."""
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


# The body of a pack: one Arrow record batch, compressed, then encrypted; and the reverse, for bytes that are not trusted. The batch is
# stored as Arrow's IPC message of a record batch, without its schema, which the header has as DDL. The codec compresses the message as a
# whole: gzip (level 1), lz4 (the frame format), snappy (one block, no framing), zstd (level 1). Encryption is AES-GCM with a random nonce
# of 12 bytes; NIST SP 800-38D allows 2^32 nonces per key, which are some 3 PiB of packs: rotate the key before.


TAG_BYTES = 16
"""the number of bytes AES-GCM adds to a body"""
_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_MESSAGE_HEADER, _BATCH_COMPRESSION = 2, 3
"""the indexes of these fields in the tables `Message` and `RecordBatch` of Arrow's format/Message.fbs"""


def compress(codec: Codec, raw: pa.Buffer) -> pa.Buffer:
    """Compress the bytes. Never raises, whatever they are."""
    return raw if codec == "none" else _codec(codec).compress(raw)


def decompress(codec: Codec, data: pa.Buffer, raw_bytes: int) -> pa.Buffer:
    """Decompress to exactly `raw_bytes` bytes; no more are ever allocated. Raises DamagedPackError."""
    try:
        match codec:
            case "none":
                found = data
            case "gzip" | "lz4":
                # as a stream: decompressed at once, data that is too short would leave the rest of the buffer uninitialised
                found = pa.CompressedInputStream(pa.BufferReader(data), codec).read_buffer(raw_bytes + 1)
            case "snappy":
                # likewise: a snappy block begins with its size, and Arrow only checks that it is not larger
                found = data if _snappy_bytes(data) != raw_bytes else _codec(codec).decompress(data, raw_bytes)
            case "zstd":
                found = _codec(codec).decompress(data, raw_bytes)
    except (OSError, ValueError, IndexError, MemoryError) as error:
        raise DamagedPackError("damaged", f"its body is not valid {codec} data of {raw_bytes} bytes: {error}") from None
    if len(found) != raw_bytes:
        raise DamagedPackError("damaged", f"its body does not have the {raw_bytes} bytes that its header states")
    return found


def _snappy_bytes(data: pa.Buffer) -> int:
    size = 0
    for shift in range(5):
        byte: int = data[shift]
        size |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return size
    raise ValueError("its size is not complete")


@lru_cache(maxsize=8)
def _codec(codec: Codec) -> pa.Codec:
    return pa.Codec(codec, 1) if codec in ("gzip", "zstd") else pa.Codec(codec)


def encrypt(key: bytes, bound: bytes, nonce: bytes, data: pa.Buffer) -> pa.Buffer:
    """Encrypt and bind to `bound`."""
    # into Arrow's memory, which the process reuses: a `bytes` of that size is allocated from the system, which takes longer than AES
    sealed = pa.allocate_buffer(len(data) + TAG_BYTES)
    aesgcm()(key).encrypt_into(nonce, memoryview(data).cast("B"), bound, memoryview(sealed).cast("B"))
    return sealed


def decrypt(key: bytes, bound: bytes, nonce: bytes, data: memoryview) -> pa.Buffer:
    """Decrypt. Raises DamagedPackError if key, nonce, `bound` and data do not belong together."""
    if len(nonce) != NONCE_BYTES:
        raise DamagedPackError("not-authentic", f"its nonce has {len(nonce)} bytes; expected {NONCE_BYTES}")
    if len(data) < TAG_BYTES:
        raise DamagedPackError("not-authentic", f"its body has {len(data)} bytes, too few for an encrypted body")
    cipher = aesgcm()(key)
    from cryptography.exceptions import InvalidTag

    opened = pa.allocate_buffer(len(data) - TAG_BYTES)
    try:
        cipher.decrypt_into(nonce, data, bound, memoryview(opened).cast("B"))
    except InvalidTag:
        raise DamagedPackError("not-authentic", "it was not encrypted with the key that it names, or was changed afterwards") from None
    return opened


def new_nonce() -> bytes:
    """12 random bytes."""
    return os.urandom(NONCE_BYTES)


def aesgcm() -> Any:
    """The class AESGCM. Raises EnvironmentFault if its package is not installed, or is older than 47, the first that writes into given
    memory."""
    try:
        found = import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
        lack = "" if hasattr(found, "encrypt_into") else "the installed version is older than 47"
    except ImportError as error:
        found, lack = None, str(error)
    if lack:
        raise EnvironmentFault(
            f"encryption needs the package cryptography: {lack}",
            remedy="run: pip install 'scribengin[encryption]'",
            code="encryption-missing",
        )
    return found


def read_batch(raw: pa.Buffer, form: pa.Schema) -> pa.RecordBatch:
    """The record batch in `raw`: its buffers are parts of `raw`, and every offset and text in it was checked. Raises DamagedPackError."""
    try:
        if _is_compressed_inside(memoryview(raw)):
            # each compressed buffer states its own size, which Arrow trusts
            raise DamagedPackError("damaged", "its record batch is compressed twice")
        batch = pa.ipc.read_record_batch(raw, form)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error, MemoryError) as error:
        if isinstance(error, DamagedPackError):
            raise
        raise DamagedPackError("damaged", f"its body is not a record batch of its schema: {str(error)[:300]}") from None
    return batch


def _is_compressed_inside(data: memoryview) -> bool:
    """True if the message's record batch has a `compression`. Raises struct.error and ValueError for bytes that are not a message."""
    if _U32.unpack_from(data)[0] != 0xFFFFFFFF:
        raise ValueError("it is not a message in Arrow IPC format")
    size = _I32.unpack_from(data, 4)[0]
    if not 8 <= size <= len(data) - 8:
        raise ValueError("its metadata extend past its end")
    table = data[8 : 8 + size]
    message = _U32.unpack_from(table)[0]
    header = _at(table, message, _MESSAGE_HEADER)
    if not header:
        raise ValueError("the message is empty")
    return bool(_at(table, header + _U32.unpack_from(table, header)[0], _BATCH_COMPRESSION))


def _at(data: memoryview, table: int, field: int) -> int:
    """The offset of a field of the table at `table` in a flatbuffer; 0 if the table does not have it."""
    vtable = table - _I32.unpack_from(data, table)[0]
    if vtable < 0:
        raise ValueError("a table is not allowed")
    entry = 4 + 2 * field
    if entry + 2 > _U16.unpack_from(data, vtable)[0]:
        return 0
    offset = _U16.unpack_from(data, vtable + entry)[0]
    return table + offset if offset else 0

"""The body of a pack: one Arrow record batch, compressed, then encrypted; and the reverse, without trust in the bytes.

The batch stands as Arrow's IPC message of a record batch, without its schema, which the header says in DDL. Codecs go over the message as a
whole: gzip (level 1), lz4 (the frame format), snappy (one block, no framing), zstd (level 1). Encryption is AES-GCM with a random nonce
of 12 bytes; NIST SP 800-38D allows 2^32 of these for one key, which are some 3 PiB of packs: rotate before.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.core.errors import EnvironmentFault
from scribengin.formats.pack_header import NONCE_BYTES, DamagedPackError

if TYPE_CHECKING:
    from scribengin.formats.pack_header import Codec

TAG_BYTES = 16
"""the number of bytes AES-GCM adds to a body"""
_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_MESSAGE_HEADER, _BATCH_COMPRESSION = 2, 3
"""the places of these fields in the tables `Message` and `RecordBatch` of Arrow's format/Message.fbs and in what it makes of them"""


def compress(codec: Codec, raw: pa.Buffer) -> pa.Buffer:
    """Never raises, whatever the bytes are."""
    return raw if codec == "none" else _codec(codec).compress(raw)


def decompress(codec: Codec, data: pa.Buffer, raw_bytes: int) -> pa.Buffer:
    """Exactly `raw_bytes` bytes; not more is ever allocated. Raises DamagedPackError."""
    try:
        match codec:
            case "none":
                found = data
            case "gzip" | "lz4":
                # as a stream: taken at once, what is too short would leave the rest of the buffer as it lay in memory
                found = pa.CompressedInputStream(pa.BufferReader(data), codec).read_buffer(raw_bytes + 1)
            case "snappy":
                # likewise: snappy's block begins with its size, and Arrow only minds that it is not larger
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
    # into Arrow's memory, which stays with the process: a `bytes` of that size is fetched from the system anew, which takes longer than AES
    sealed = pa.allocate_buffer(len(data) + TAG_BYTES)
    aesgcm()(key).encrypt_into(nonce, memoryview(data).cast("B"), bound, memoryview(sealed).cast("B"))
    return sealed


def decrypt(key: bytes, bound: bytes, nonce: bytes, data: memoryview) -> pa.Buffer:
    """Raises DamagedPackError if key, nonce, `bound` and data do not belong together."""
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
    """The class. Raises EnvironmentFault where its package is not installed, or is older than 47, which first writes into given memory."""
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
    """The record batch in `raw`: its buffers are parts of `raw`, every offset and text in it was checked. Raises DamagedPackError."""
    try:
        if _is_compressed_inside(memoryview(raw)):
            # each buffer says there how large it becomes, and Arrow believes it
            raise DamagedPackError("damaged", "its record batch is compressed twice")
        batch = pa.ipc.read_record_batch(raw, form)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error, MemoryError) as error:
        if isinstance(error, DamagedPackError):
            raise
        raise DamagedPackError("damaged", f"its body is not a record batch of its schema: {str(error)[:300]}") from None
    return batch


def _is_compressed_inside(data: memoryview) -> bool:
    """Whether the message's record batch has a `compression`. Raises struct.error and ValueError for what is no message."""
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

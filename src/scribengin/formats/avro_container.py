"""Reads Avro's object container files: a header with the writer's schema, then blocks of records, each ended by the file's sync marker.

fastavro decodes records and the header. The block structure is read here, so that a damaged block loses only its own records, and every
record has its number.
"""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from binascii import crc32
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from scribengin.core.types import arrow_schema
from scribengin.formats.avro import AvroForm, read_record
from scribengin.formats.avro_schema import fastavro, parse_writer
from scribengin.formats.blocks import DamageBlock, FileFacts
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows, RecordPlace
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.core.types import Schema
    from scribengin.formats.avro_schema import WriterSchema
    from scribengin.formats.contract import Block

CODECS = ("null", "deflate", "bzip2", "xz", "zstandard", "snappy")
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": len(_MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": _SYNC_BYTES}},
    ],
}
_LENGTHS = {"type": "record", "name": "Lengths", "fields": [{"name": "count", "type": "long"}, {"name": "size", "type": "long"}]}
_LENGTHS_BYTES = 20
"""maximum length of two 64-bit numbers, in bytes"""
_BLOCK_BYTES = 256 * 2**20
"""maximum size of a decompressed block, in bytes: a larger one counts as damaged"""
_RECORDS = 16_384
"""the most records that are passed on together"""


class ContainerError(ValueError):
    """The rest of the file cannot be read. `reason` is that of a dead letter; empty if the data are not the cause."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Container:
    """The content of a file's header. `begin` is the byte after it, where the first block begins."""

    writer: WriterSchema
    codec: str
    sync: bytes
    begin: int


@dataclass(slots=True)
class AvroBlock:
    """Records of one file, decoded by its schema and not yet converted to columns. `rows_before` returns the number of records that precede
    the stream in the file, from which `first_row` counts; it is called for dead letters only."""

    file: str
    writer: WriterSchema
    records: list[Any]
    first_row: int
    rows_before: Callable[[], int]
    unclean: dict[int, Bad] = field(default_factory=dict)
    """ordinal → the error of a record with a text that is not UTF-8"""
    facts: FileFacts | None = None

    def place(self, ordinal: int) -> RecordPlace:
        """The record's number in its file."""
        return RecordPlace(self.file, row=self.rows_before() + self.first_row + ordinal)

    def payload(self, ordinal: int) -> bytes:
        """The record as JSON, with its writer's names and types."""
        if ordinal in self.unclean:
            return json.dumps(self.records[ordinal], default=repr, ensure_ascii=True).encode()
        return msgspec.json.encode(self.records[ordinal])

    def __len__(self) -> int:
        """The number of records."""
        return len(self.records)


class AvroFileDecoder:
    """Decodes `AvroBlock`s. Build one per task."""

    def __init__(self, schema: Schema, *, truncate: bool = False) -> None:
        self.schema = schema
        self._truncate = truncate
        self._forms: dict[int, tuple[WriterSchema, AvroForm]] = {}

    def rows(self, block: Block) -> DecodedRows:
        """One dict for each record."""
        found = self.columns(block)
        return DecodedRows(batch_to_rows(found.batch), found.ordinals, found.bad)

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        if isinstance(block, DamageBlock):
            return DecodedColumns(pa.RecordBatch.from_pylist([], arrow_schema(self.schema)), [], block.bad())
        assert isinstance(block, AvroBlock)
        bad = list(block.unclean.values())
        clean = [ordinal for ordinal in range(len(block)) if ordinal not in block.unclean]
        batch, ordinals = self._form(block.writer).batch([block.records[ordinal] for ordinal in clean], clean, bad)
        return DecodedColumns(batch, ordinals, sorted(bad, key=lambda each: each.ordinal))

    def _form(self, writer: WriterSchema) -> AvroForm:
        known = self._forms.get(id(writer))
        if known is None:
            known = self._forms[id(writer)] = (writer, AvroForm(writer, self.schema, truncate=self._truncate))
        return known[1]


def read_header(file: IO[bytes]) -> Container:
    """Read the header. Raises ContainerError, and AvroSchemaError for a schema that cannot be used."""
    file.seek(0)
    try:
        header = fastavro().schemaless_reader(file, _HEADER, None)
    except (EOFError, IndexError):
        raise ContainerError("truncated", "the file ends inside its header: it is not a complete Avro file") from None
    except UnicodeDecodeError:
        header = {"magic": b""}
    if header["magic"] != _MAGIC:
        raise ContainerError("corrupt", "the file does not begin with the Avro file signature")
    codec = header["meta"].get("avro.codec", b"null").decode("ascii", "replace") or "null"
    if codec not in CODECS:
        raise ContainerError("", f"is compressed with {codec}; supported codecs are {', '.join(CODECS)}")
    text = header["meta"].get("avro.schema", b"").decode("utf-8", "replace")
    return Container(parse_writer(text), codec, header["sync"], file.tell())


def block_lengths(file: IO[bytes], container: Container, start: int, size: int) -> Iterator[tuple[int, int, int]]:
    """The blocks of a file from byte `start` on, of which nothing is decoded.

    Args:
        file: The file.
        container: Its header.
        start: The byte at which a block begins.
        size: The size of the file, in bytes.

    Returns:
        Yields (first byte, number of records, byte after the block).

    Raises:
        ContainerError: The next block is damaged.
    """
    read = fastavro().schemaless_reader
    while start < size:
        file.seek(start)
        head = BytesIO(file.read(_LENGTHS_BYTES))
        try:
            lengths = read(head, _LENGTHS, None)
        except (EOFError, IndexError):
            raise ContainerError("truncated", f"the file ends inside the block that begins at byte {start}") from None
        end = start + head.tell() + lengths["size"] + _SYNC_BYTES
        if lengths["size"] < 0 or lengths["count"] < 0:
            raise ContainerError("corrupt", f"byte {start} is not the start of a block; the rest of the file is not read")
        if end > size:
            raise ContainerError("truncated", f"the file ends inside the block that begins at byte {start} and should end at {end}")
        file.seek(end - _SYNC_BYTES)
        if file.read(_SYNC_BYTES) != container.sync:
            raise ContainerError(
                "corrupt", f"the block at byte {start} does not end with the sync marker of this file; the rest of the file is not read"
            )
        yield start, lengths["count"], end
        start = end


def read_blocks(
    file: IO[bytes], label: str, container: Container, start: int, end: int, size: int, rows_before: Callable[[], int]
) -> Iterator[AvroBlock | DamageBlock]:
    """Read the records of the blocks that begin at byte `start` or later, and before `end`.

    Args:
        file: The file.
        label: Its name in places and messages.
        container: Its header.
        start: The byte at which the first block begins.
        end: The byte before which the last block begins.
        size: The size of the file, in bytes.
        rows_before: Returns the number of records before `start`.

    Returns:
        Yields blocks of records. A block with damaged content gives a DamageBlock after its good records; if the block structure is
            damaged, a DamageBlock is the last.
    """
    row = 0
    blocks = block_lengths(file, container, start, size)
    while True:
        try:
            begin, count, behind = next(blocks, (end, 0, 0))
        except ContainerError as error:
            yield DamageBlock(label, error.reason, str(error), start)
            return
        if begin >= end:
            return
        file.seek(begin)
        for found in _records(file.read(behind - begin - _SYNC_BYTES), container, count, begin):
            if isinstance(found, Bad):
                yield DamageBlock(label, found.reason, found.message, begin)
            else:
                first, records, unclean = found
                yield AvroBlock(label, container.writer, records, row + first, rows_before, unclean)
        row += count
        start = behind


def _records(block: bytes, container: Container, count: int, begin: int) -> Iterator[tuple[int, list[Any], dict[int, Bad]] | Bad]:
    """(number of the first record in the block, records, errors of those that are not UTF-8), some records at a time; a Bad is last if the
    rest cannot be read."""
    head = BytesIO(block)
    fastavro().schemaless_reader(head, _LENGTHS, None)
    try:
        data = _decompressed(block[head.tell() :], container.codec)
    except Exception as error:  # each codec has errors of its own
        yield Bad(0, "corrupt", f"the block of {count} records at byte {begin} cannot be decompressed ({container.codec}): {error}")
        return
    body = BytesIO(data)
    records: list[Any] = []
    unclean: dict[int, Bad] = {}
    first = 0
    damage = ""
    # a record without fields takes no bytes: a damaged number of such records could fill all memory
    most = max(len(data), _RECORDS)
    for number in range(min(count, most)):
        try:
            record, told = read_record(body, container.writer)
        except Exception as error:  # EOFError, IndexError and others
            damage = "they end too early" if isinstance(error, EOFError) else str(error)
            break
        if told:
            unclean[len(records)] = Bad(len(records), "invalid-utf8", told)
        records.append(record)
        if len(records) == _RECORDS:
            yield first, records, unclean
            records, unclean, first = [], {}, number + 1
    if records:
        yield first, records, unclean
    if not damage and (body.tell() != len(data) or count > most):
        damage = f"{len(data) - body.tell()} bytes follow"
    if damage:
        read = first + len(records)
        yield Bad(0, "corrupt", f"of the block of {count} records at byte {begin} only the first {read} can be read: {damage}")


def _decompressed(data: bytes, codec: str) -> bytes:
    if codec == "snappy":
        plain = _snappy(data[:-4])
        if crc32(plain) != int.from_bytes(data[-4:], "big"):
            raise ValueError("its checksum does not match")
        return plain
    if codec == "zstandard":
        from scribengin.core.zstd import ZstdDecompressor

        plain = ZstdDecompressor().decompress(data, _BLOCK_BYTES + 1)
    elif codec == "deflate":
        plain = zlib.decompressobj(wbits=-15).decompress(data, _BLOCK_BYTES + 1)
    elif codec == "bzip2":
        plain = bz2.BZ2Decompressor().decompress(data, _BLOCK_BYTES + 1)
    elif codec == "xz":
        plain = lzma.LZMADecompressor().decompress(data, _BLOCK_BYTES + 1)
    else:
        plain = data
    if len(plain) > _BLOCK_BYTES:
        raise ValueError(f"it has more than {_BLOCK_BYTES} bytes")
    return plain


def _snappy(data: bytes) -> bytes:
    """Decompress Snappy's raw format: the length as a number of 7 bits per byte, then what Arrow decompresses."""
    length = shift = 0
    for byte in data[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length > _BLOCK_BYTES:
        raise ValueError(f"it has more than {_BLOCK_BYTES} bytes")
    plain: bytes = pa.Codec("snappy").decompress(data, length, asbytes=True)
    return plain

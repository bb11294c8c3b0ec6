"""Packs: the record batches of a channel between two tiers of a flow. A pack is one message, with many rows and the origin of each.

`PackMaker` makes packs of Arrow batches, `read_pack` makes a block of each, `PackDecoder` decodes the blocks. `pack_frame` reads and writes
the body and the bytes around it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.errors import Unreachable
from scribengin.core.types import INTEGER_BITS, Schema, arrow_schema, parse_schema
from scribengin.formats.constants import PAYLOAD_BYTES
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows, Handed, RecordPlace
from scribengin.formats.json_out import json_lines
from scribengin.formats.origins import Origins
from scribengin.formats.pack_frame import (
    PREFIX_BYTES,
    RAW_BYTES,
    TAG_BYTES,
    DamagedPackError,
    PackHeader,
    aesgcm,
    bind,
    compress,
    decompress,
    decrypt,
    disclose,
    enclose,
    encrypt,
    new_nonce,
    read_batch,
)
from scribengin.formats.parquet import conform
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.core.types import Schema, Type
    from scribengin.formats.contract import Block
    from scribengin.formats.keyring import Keyring
    from scribengin.formats.pack_frame import Codec


SCHEMA_TEXT_LENGTH = 1024 * 1024
"""maximum number of characters of the DDL of a pack's schema"""
_ORIGIN_BYTES = 16
"""maximum number of bytes of the coordinates of a row: sequence, stream, nth"""
_SEQUENCE = pa.field("", pa.int64(), nullable=False)
_NUMBER = pa.field("", pa.int32(), nullable=False)


@dataclass(frozen=True, slots=True)
class Packed:
    """One pack. `raw_bytes` is the size of its body before compression, `digest` that of its rows' origins."""

    value: bytes
    rows: int
    raw_bytes: int
    key_id: str | None
    digest: int


class PackMaker:
    """Makes packs of batches of one schema. Built once per task; for one thread.

    A pack has at most `rows` rows and `bytes` bytes of columns and coordinates before compression (a single row may have more), and its
    value has at most `most` bytes: the default is the limit of a Kafka broker. `sign` and `about` are in each header, and as `row` the
    number of rows that the maker has put into earlier packs. Raises ValueError for bounds below one and for a schema that cannot be read
    back from its text, EnvironmentFault for a keyring if the encryption package is missing.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        codec: Codec,
        keyring: Keyring | None,
        rows: int = 16_384,
        bytes: int = 768 * 1024,
        most: int = 1_000_000,
        sign: str,
        about: Mapping[str, str | int] | None = None,
    ) -> None:
        if min(rows, bytes, most) < 1:
            raise ValueError(f"a pack needs at least one row and one byte; found rows={rows}, bytes={bytes}, most={most}")
        self.schema = schema
        self._text = _text_of(schema)
        self._form = arrow_schema(schema)
        self._codec, self._keyring = codec, keyring
        self._rows, self._most = rows, most
        # data that no codec compresses is divided at once so that the value fits
        self._bytes = bytes if codec != "none" else min(bytes, max(1, most - most // 16))
        self._sign, self._about = sign, dict(about or {})
        self._made_rows = 0
        if keyring is not None:
            aesgcm()

    def make(self, batch: pa.RecordBatch, origins: Origins) -> tuple[list[Packed], list[Bad]]:
        """The rows as packs, in their order, and a Bad by its index for each row that is too large for a separate pack.

        Raises ColumnMismatchError if `batch` has neither the schema's columns nor ones that `conform` can convert, ValueError if the number
        of `origins` differs, and the errors of `Keyring.writing`.
        """
        if len(origins) != batch.num_rows:
            raise ValueError(f"there are {batch.num_rows} rows and {len(origins)} origins")
        if not batch.schema.equals(self._form):
            batch = conform(batch, self.schema)
        writing = None if self._keyring is None else self._keyring.writing()
        made: list[Packed] = []
        bad: list[Bad] = []
        start = 0
        while start < batch.num_rows:
            stop = self._cut(batch, start)
            self._pack(batch, origins, start, stop, writing, made, bad)
            start = stop
        return made, bad

    def _cut(self, batch: pa.RecordBatch, start: int) -> int:
        """The end of the pack that begins at `start`: the remaining rows are divided evenly into as few packs as the bounds allow."""
        left = int(batch.num_rows) - start
        size = _size(batch.slice(start))
        take: int = -(-left // max(-(-left // self._rows), -(-size // self._bytes)))
        while take > 1 and (size := _size(batch.slice(start, take))) > self._bytes:
            take = max(1, min(take - 1, take * self._bytes // size))
        return start + take

    def _pack(
        self,
        batch: pa.RecordBatch,
        origins: Origins,
        start: int,
        stop: int,
        writing: tuple[str, bytes] | None,
        made: list[Packed],
        bad: list[Bad],
    ) -> None:
        """Make one pack of rows `start` to `stop`, or divide them into halves until each pack fits. Adds to `made` and `bad`."""
        packed = self._packed(batch.slice(start, stop - start), _own(origins, start, stop), writing)
        if packed.raw_bytes <= RAW_BYTES and len(packed.value) <= self._most:
            made.append(packed)
            self._made_rows += packed.rows
        elif stop - start > 1:
            middle = (start + stop) // 2
            self._pack(batch, origins, start, middle, writing, made, bad)
            self._pack(batch, origins, middle, stop, writing, made, bad)
        else:
            size, limit = (len(packed.value), self._most) if packed.raw_bytes <= RAW_BYTES else (packed.raw_bytes, RAW_BYTES)
            bad.append(Bad(start, "too-large", f"the row takes {size:,} bytes as a separate pack; the limit is {limit:,}"))

    def _packed(self, batch: pa.RecordBatch, own: Origins, writing: tuple[str, bytes] | None) -> Packed:
        has_nth = bool(own.nth.any())
        columns, fields = [*batch.columns, pa.array(own.sequences)], [*self._form, _SEQUENCE]
        if len(own.labels) > 1:
            columns.append(pa.array(own.streams))
            fields.append(_NUMBER)
        if has_nth:
            columns.append(pa.array(own.nth))
            fields.append(_NUMBER)
        raw = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)).serialize()
        if len(raw) > RAW_BYTES:
            return Packed(b"", batch.num_rows, len(raw), None, 0)  # `_pack` halves it, without the work for a value
        digest = own.digest()
        stops, ways = _stops(own)
        header = PackHeader(
            schema=self._text,
            rows=batch.num_rows,
            raw_bytes=len(raw),
            digest=digest,
            sign=self._sign,
            labels=list(own.labels),
            stops=stops,
            ways=ways,
            nth=has_nth,
            codec=self._codec,
            key=None if writing is None else writing[0],
            nonce=b"" if writing is None else new_nonce(),
            about=self._about | {"row": self._made_rows},
        )
        body = compress(self._codec, raw)
        if writing is None:
            value = enclose(bind(header, len(body)), memoryview(body))
        else:
            bound = bind(header, len(body) + TAG_BYTES)
            value = enclose(bound, memoryview(encrypt(writing[1], bound, header.nonce, body)))
        return Packed(value, batch.num_rows, len(raw), header.key, digest)


def _text_of(schema: Schema) -> str:
    """The text of the schema for headers, after a check that it can be read back. Raises ValueError."""
    text = str(schema)
    try:
        if len(text) > SCHEMA_TEXT_LENGTH:
            raise ValueError(f"it has {len(text)} characters")
        if parse_schema(text) != schema:
            raise ValueError("its text is the text of another type")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this schema cannot be written in the header of a pack: {text[:200]}: {error}") from None
    return text


def _size(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes) + _ORIGIN_BYTES * int(batch.num_rows)


def _own(origins: Origins, start: int, stop: int) -> Origins:
    """The origins of these rows, with only the labels that they use."""
    streams, sequences, nth = origins.streams[start:stop], origins.sequences[start:stop], origins.nth[start:stop]
    if len(origins.labels) == 1:
        return Origins(origins.labels, streams, sequences, nth, origins.trails)
    used = np.bincount(streams, minlength=len(origins.labels)) > 0
    numbers = np.cumsum(used, dtype=np.int32) - np.int32(1)
    kept = np.flatnonzero(used).tolist()
    return Origins([origins.labels[at] for at in kept], numbers[streams], sequences, nth, [origins.trails[at] for at in kept])


def _stops(own: Origins) -> tuple[list[list[tuple[str, str, int, str, int, str]]], list[int]]:
    """(the different provenances, for each label the index of its own; empty if there is only one)."""
    numbers = {trail: number for number, trail in enumerate(dict.fromkeys(own.trails))}
    stops = [[(hop.tier, hop.query, hop.batch, hop.host, hop.time_ms, hop.member) for hop in trail] for trail in numbers]
    return stops, [] if len(stops) == 1 else [numbers[trail] for trail in own.trails]


@dataclass(slots=True)
class PackBlock:
    """The rows of one pack; or one record, `bad`, for bytes that are not a valid pack.

    `at` is the place of the message or frame. For an invalid pack `header` is None, the batch has no rows, `head` has the first bytes, and
    the origins are the place itself, so that a dead letter has an id.
    """

    at: RecordPlace
    header: PackHeader | None
    schema: Schema | None
    batch: pa.RecordBatch
    whole: Origins
    bad: Bad | None = None
    head: bytes = b""

    def place(self, ordinal: int) -> RecordPlace:
        """The record's first coordinates: the label without the separator at its end, and the sequence as its row."""
        if self.bad is not None:
            return self.at
        return RecordPlace(self.whole.labels[self.whole.streams[ordinal]][:-1], row=int(self.whole.sequences[ordinal]))

    def payload(self, ordinal: int) -> bytes:
        """The row as JSON, or in Arrow's text form if it has a time that Python cannot represent; for an invalid pack its first 64 KiB."""
        if self.bad is not None:
            return self.head
        row = self.batch.slice(ordinal, 1)
        try:
            return json_lines(row).rstrip(b"\n")
        except (ValueError, OverflowError):  # a time that Python cannot represent
            cells = (f"{name}: {column.to_string(skip_new_lines=True)}" for name, column in zip(row.schema.names, row.columns, strict=True))
            return ", ".join(cells).encode()

    def origins(self, ordinals: Sequence[int]) -> Origins:
        """The origins of these records."""
        if not isinstance(ordinals, range):
            return self.whole.taken(ordinals)
        if ordinals == range(len(self.whole)):
            return self.whole
        return self.whole.taken(np.arange(ordinals.start, ordinals.stop, ordinals.step, dtype=np.int64))

    @property
    def handed(self) -> Handed | None:
        """The task output that the pack's header names, and the digest that the rows were checked against; None without a valid header."""
        if self.header is None:
            return None
        about = self.header.about
        lineage, batch, unit = about.get("lineage"), about.get("batch"), about.get("unit", -1)
        if not isinstance(lineage, str) or not isinstance(batch, int) or not isinstance(unit, int):
            return None
        return Handed(lineage, batch, self.header.rows, self.header.digest, unit)

    @property
    def first_row(self) -> int | None:
        """The number of rows that its task output has put into earlier packs; None if the pack does not contain it."""
        row = None if self.header is None else self.header.about.get("row")
        return row if isinstance(row, int) else None

    def __len__(self) -> int:
        """The number of rows; one for an invalid pack."""
        return 1 if self.bad is not None else int(self.batch.num_rows)


def read_pack(value: bytes | None, keyring: Keyring | None, place: RecordPlace, *, plain: bool = True) -> PackBlock:
    """The block of the bytes at `place`. Every byte is checked; an invalid pack becomes a block of one bad record.

    Never raises because of the bytes.

    Args:
        value: The bytes; None counts as invalid.
        keyring: The keys; None if the channel has none.
        place: The place of the pack.
        plain: False: a pack that is not encrypted is `not-authentic`.

    Raises:
        Unreachable: The key is missing (`Keyring.key`: the Batch is retried).
        SourceError: The keyring is invalid.
        EnvironmentFault: The encryption package is missing.
    """
    try:
        return _read(value, keyring, place, plain=plain)
    except DamagedPackError as error:
        return damaged_block(place, Bad(0, error.reason, f"not a valid pack: {error.message}"), bytes(value or b""))


def damaged_block(place: RecordPlace, bad: Bad, data: bytes) -> PackBlock:
    """The block of an invalid pack; it keeps the first 64 KiB of `data`."""
    return PackBlock(place, None, None, _NO_ROWS, _of_place(place), bad, data[:PAYLOAD_BYTES])


_NO_ROWS = pa.RecordBatch.from_arrays([], names=[])


def _of_place(place: RecordPlace) -> Origins:
    number = next((n for n in (place.row, place.offset, place.line) if n is not None), 0)
    zero = np.zeros(1, np.int32)
    return Origins([f"{place.file}@"], zero, np.array([number], np.int64), zero, [()])


def _read(value: bytes | None, keyring: Keyring | None, place: RecordPlace, *, plain: bool) -> PackBlock:
    opened = disclose(value)
    header = opened.header
    if header.rows * 8 > header.raw_bytes:
        raise DamagedPackError("damaged", f"its header declares {header.rows} rows in {header.raw_bytes} bytes")
    schema, form = _form_of(header.schema)
    data = pa.py_buffer(opened.body)
    if header.key is not None:
        data = decrypt(_key(keyring, header.key), opened.bound, header.nonce, opened.body)
    elif not plain:
        raise DamagedPackError("not-authentic", "it is not encrypted, but this channel accepts only encrypted packs")
    fields = [*form, _SEQUENCE, *[_NUMBER] * ((len(header.labels) > 1) + header.nth)]
    batch = read_batch(decompress(header.codec, data, header.raw_bytes), pa.schema(fields))
    if batch.num_rows != header.rows:
        raise DamagedPackError("damaged", f"it has {batch.num_rows} rows; its header declares {header.rows}")
    origins = _origins_of(header, batch, len(form))
    if (digest := origins.digest()) != header.digest:
        raise DamagedPackError("damaged", f"the digest of its rows is {digest:016x}; its header declares {header.digest:016x}")
    columns = pa.RecordBatch.from_arrays(batch.columns[: len(form)], schema=form)
    return PackBlock(place, header, schema, columns, origins)


def _key(keyring: Keyring | None, id: str) -> bytes:
    if keyring is None:
        raise Unreachable(
            f"a pack is encrypted with the key {id[:64]}, but the channel has no keyring",
            remedy="add the keyring under `encryption:`; no data is lost: the pack stays in the channel, and the Batch is retried",
            code="key-missing",
        )
    return keyring.key(id)


@lru_cache(maxsize=64)
def _form_of(text: str) -> tuple[Schema, pa.Schema]:
    """The schema of a DDL text, in both forms. Raises DamagedPackError for invalid DDL."""
    try:
        if len(text) > SCHEMA_TEXT_LENGTH:
            raise ValueError(f"it has {len(text)} characters")
        schema = parse_schema(text)
        return schema, arrow_schema(schema)
    except (ValueError, RecursionError, pa.ArrowException) as error:
        raise DamagedPackError("damaged", f"its schema cannot be read: {str(error)[:200]}") from None


def _origins_of(header: PackHeader, batch: pa.RecordBatch, first: int) -> Origins:
    """The origins, from the columns after the first `first` ones. Raises DamagedPackError."""
    arrays = batch.columns[first:]
    if any(array.null_count for array in arrays):
        raise DamagedPackError("damaged", "a row has no origin")
    numbers = [array.to_numpy() for array in arrays]
    zeros = np.zeros(batch.num_rows, np.int32)
    streams = numbers[1] if len(header.labels) > 1 else zeros
    nth = numbers[-1] if header.nth else zeros
    if batch.num_rows and not (streams.min() >= 0 and streams.max() < len(header.labels) and nth.min() >= 0):
        raise DamagedPackError(
            "damaged",
            f"a row names a stream that is not one of {len(header.labels)}, or its number is less than that of the first row of its record",
        )
    if header.ways and len(header.ways) != len(header.labels):
        raise DamagedPackError("damaged", f"it declares {len(header.ways)} ways for {len(header.labels)} streams")
    try:
        return Origins(header.labels, streams, numbers[0], nth, header.trails())
    except IndexError:
        raise DamagedPackError("damaged", "it does not declare the way of its rows") from None


def read_header(value: bytes) -> PackHeader | None:
    """The header of a pack, without its rows and without a key; None for an invalid pack."""
    try:
        return disclose(value).header
    except DamagedPackError:
        return None


# Decodes packs to the reader's columns: matches the writer's schema by name with the expected one.


class PackDecoder:
    """Decodes `PackBlock`s.

    If the pack's schema equals the expected one, its columns are passed on unchanged. Otherwise they are matched by name: a column that the
    pack does not have is null, or makes every row `missing` if it is NOT NULL; a column that is not expected is left out; a column of
    another type makes every row `type`, unless the expected type represents each of its values unchanged:

    - an integer in a wider one (TINYINT, SMALLINT, INT, BIGINT),
    - FLOAT in DOUBLE,
    - DECIMAL in one with at least as many digits on both sides of the point,
    - ARRAY, MAP and STRUCT of such types, if a STRUCT's fields have the same names in the same order.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._form = arrow_schema(schema)
        self._needed = [index for index, field in enumerate(schema.fields) if not field.nullable]
        self._misfits: dict[Schema, tuple[str, str] | None] = {}

    def rows(self, block: Block) -> DecodedRows:
        """The records as dicts with exactly the columns of the schema."""
        found = self.columns(block)
        try:
            return DecodedRows(batch_to_rows(found.batch), found.ordinals, found.bad)
        except (ValueError, OverflowError):
            return _one_by_one(found)

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        assert isinstance(block, PackBlock)
        if block.bad is not None or block.schema is None:
            return DecodedColumns(pa.RecordBatch.from_pylist([], self._form), [], [] if block.bad is None else [block.bad])
        batch = block.batch
        if block.schema != self.schema:
            if block.schema not in self._misfits:
                self._misfits[block.schema] = _misfit(block.schema, self.schema)
            misfit = self._misfits[block.schema]
            if misfit is not None:
                bad = [Bad(ordinal, *misfit) for ordinal in range(len(block))]
                return DecodedColumns(pa.RecordBatch.from_pylist([], self._form), [], bad)
            names = set(block.schema.names)
            arrays = [
                batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
                for field in self._form
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._form)
        return self._without_nulls(batch)

    def _without_nulls(self, batch: pa.RecordBatch) -> DecodedColumns:
        bad: dict[int, Bad] = {}
        for index in self._needed:
            column = batch.column(index)
            if column.null_count:
                for ordinal in pc.indices_nonzero(column.is_null()).to_pylist():
                    bad.setdefault(ordinal, Bad(ordinal, "missing", f'field "{self.schema.fields[index].name}" is null; expected NOT NULL'))
        if not bad:
            return DecodedColumns(batch, range(batch.num_rows))
        kept = [ordinal for ordinal in range(batch.num_rows) if ordinal not in bad]
        return DecodedColumns(batch.take(pa.array(kept, pa.int64())), kept, [bad[ordinal] for ordinal in sorted(bad)])


def _one_by_one(found: DecodedColumns) -> DecodedRows:
    """Convert rows one by one, for a batch with a value that Python cannot represent: a time outside of the years 1 to 9999."""
    rows: list[dict[str, Any]] = []
    ordinals: list[int] = []
    bad = list(found.bad)
    for index, ordinal in enumerate(found.ordinals):
        try:
            rows += batch_to_rows(found.batch.slice(index, 1))
        except (ValueError, OverflowError) as error:
            bad.append(Bad(ordinal, "out-of-range", f"a value that Python cannot represent: {error}"))
        else:
            ordinals.append(ordinal)
    return DecodedRows(rows, ordinals, sorted(bad, key=lambda each: each.ordinal))


def _misfit(found: Schema, asked: Schema) -> tuple[str, str] | None:
    """(reason, message) of an error that all rows have; None if there is none."""
    for field in asked.fields:
        if field.name not in found.names:
            if not field.nullable:
                return (
                    "missing",
                    f'field "{field.name}" is not in the pack, whose fields are {", ".join(found.names)[:300]}; expected NOT NULL',
                )
        elif not _holds(field.type, has := found[field.name].type):
            return "type", f'field "{field.name}" is {has} in the pack; expected {field.type}'
    return None


def _holds(asked: Type, found: Type) -> bool:
    """True if each value of `found` is a value of `asked`; NOT NULL inside of structs must not become stricter."""
    if asked == found:
        return True
    if asked.name in INTEGER_BITS and found.name in INTEGER_BITS:
        return INTEGER_BITS[asked.name] > INTEGER_BITS[found.name]
    if (asked.name, found.name) == ("DOUBLE", "FLOAT"):
        return True
    if asked.name != found.name:
        return False
    match asked.name:
        case "DECIMAL":
            return asked.scale >= found.scale and asked.precision - asked.scale >= found.precision - found.scale
        case "ARRAY" | "MAP":
            return all(map(_holds, asked.parts, found.parts))
        case "STRUCT":
            return [field.name for field in asked.fields] == [field.name for field in found.fields] and all(
                _holds(ours.type, theirs.type) and (ours.nullable or not theirs.nullable)
                for ours, theirs in zip(asked.fields, found.fields, strict=True)
            )
    return False


# A file of packs, for channels that are folders: frames of a length (u32, little-endian) and a pack. The file has no end mark, so that a
# crash while it is written costs only the last frame. Frames cannot be found from the middle: a range must begin where a frame begins.


SUFFIX = ".packs"
FRAME_BYTES = 256 * 2**20
"""maximum length of the pack of one frame, in bytes"""
_LENGTH = struct.Struct("<I")


class PackFileEncoder:
    """Writes packs to one open file, without buffering: the file always has whole frames."""

    suffix = SUFFIX

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, value: bytes) -> int:
        """Append one pack; returns the number of bytes written. Raises OSError, and ValueError for more than 256 MiB."""
        if not PREFIX_BYTES <= len(value) <= FRAME_BYTES:
            raise ValueError(f"a frame has a pack of {PREFIX_BYTES} to {FRAME_BYTES} bytes; found {len(value)}")
        self._file.write(_LENGTH.pack(len(value)))
        self._file.write(value)
        return _LENGTH.size + len(value)

    def close(self) -> None:
        """Do nothing: the format has no end. The caller flushes and syncs the file."""


class PackFrame(NamedTuple):
    """A frame. `offset` is where it begins, `value` its pack. If it cannot be read, `fault` gives the reason, `value` has at most 64 KiB
    from `offset` on, and nothing after it can be read."""

    offset: int
    value: bytes
    fault: Bad | None = None


def pack_frames(file: IO[bytes], start: int, end: int) -> Iterator[PackFrame]:
    """The frames between the bytes `start`, at which one begins, and `end`. Never allocates more than the range has. Raises OSError."""
    offset = start
    while offset < end:
        file.seek(offset)
        head = file.read(min(_LENGTH.size, end - offset))
        if len(head) < _LENGTH.size:
            fault = Bad(0, "truncated", f"the file ends inside the length field of the frame at byte {offset}")
            break
        (length,) = _LENGTH.unpack(head)
        if not PREFIX_BYTES <= length <= FRAME_BYTES:
            fault = Bad(0, "damaged", f"the frame at byte {offset} declares {length} bytes; a pack has {PREFIX_BYTES} to {FRAME_BYTES}")
            break
        value = file.read(min(length, end - offset - _LENGTH.size))
        if len(value) < length:
            fault = Bad(0, "truncated", f"the frame at byte {offset} declares {length} bytes; found {len(value)}")
            break
        yield PackFrame(offset, value)
        offset += _LENGTH.size + length
    else:
        return
    file.seek(offset)
    yield PackFrame(offset, file.read(min(PAYLOAD_BYTES, end - offset)), fault)

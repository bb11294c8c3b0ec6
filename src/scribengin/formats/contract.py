"""The interfaces between sources, decoders and encoders.

The data flow: a source stream yields *blocks* (some MiB each). A block is either text (`LineBlock`: whole records, still undecoded) or
Arrow (`ArrowBlock`: the file's format had types of its own). A decoder turns a block into rows (dicts, for record functions) or into one
Arrow batch (for SQL and batch functions), and collects the records that it could not read. Nothing becomes null silently: a record is
decoded by the contract of docs/flow-file.md, or it is in `bad`.

An *ordinal* is a record's index in its block, from 0. It is kept through every step, so that a dead letter can name its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from scribengin.core.types import Schema
    from scribengin.formats.origins import Origins
    from scribengin.formats.structs import StructForm


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The place of a record: `line` counts from 1 (text), `row` from 0 (Parquet, sequence), `offset` is in bytes of the decompressed
    content. None if unknown."""

    file: str
    line: int | None = None
    row: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that could not be decoded. `reason` is a stable word (see docs), `message` names the field, the found and the expected
    value."""

    ordinal: int
    reason: str
    message: str


class Block(Protocol):
    """Some records of one file in their order."""

    def place(self, ordinal: int) -> RecordPlace:
        """The place of that record."""

    def payload(self, ordinal: int) -> bytes:
        """The record's own bytes (text), or its row as JSON (Arrow)."""

    def __len__(self) -> int:
        """The number of records in the block, empty lines included."""


@dataclass(frozen=True, slots=True)
class Handed:
    """The origin of a block of a channel: task output, Batch and lineage of the writing query, number of rows, and the digest of their ids.
    `unit` is -1 if the record batch does not contain it."""

    lineage: str
    batch: int
    rows: int
    digest: int
    unit: int = -1


class TracedBlock(Block, Protocol):
    """A block whose records keep the coordinates from their first source, because it comes from a channel."""

    @property
    def handed(self) -> Handed | None:
        """The origin of the block; None for bytes that are not a whole record batch."""

    def origins(self, ordinals: Sequence[int]) -> Origins:
        """The origins of the records with these ordinals."""


@dataclass(slots=True)
class DecodedRows:
    """Decoded records as dicts: `rows[i]` is the record with ordinal `ordinals[i]`. `skipped` counts empty lines."""

    rows: list[dict[str, Any]]
    ordinals: Sequence[int]
    bad: list[Bad] = field(default_factory=list)
    skipped: int = 0


@dataclass(slots=True)
class DecodedColumns:
    """Decoded records as one Arrow batch with the schema's columns; for the other fields see `DecodedRows`."""

    batch: pa.RecordBatch
    ordinals: Sequence[int]
    bad: list[Bad] = field(default_factory=list)
    skipped: int = 0


@dataclass(slots=True)
class Structs:
    """Decoded records as Structs of `form`; for the other fields see `DecodedRows`."""

    form: StructForm
    structs: list[Any]
    ordinals: Sequence[int]
    bad: list[Bad] = field(default_factory=list)
    skipped: int = 0


class Decoder(Protocol):
    """Decodes blocks. Built once per task from a Schema; may be used for any number of blocks, by one thread."""

    schema: Schema

    def rows(self, block: Block) -> DecodedRows:
        """Decode for record functions. Never raises because of the data."""

    def columns(self, block: Block) -> DecodedColumns:
        """Decode for SQL and batch functions. Never raises because of the data."""


class StructDecoder(Decoder, Protocol):
    """An optional ability of a decoder: the same records as Structs, for functions that only read columns."""

    structs: Callable[[Block], Structs] | None
    """Decodes a block; never raises because of the data. None if this schema has no such form."""


class ValueDecoder(Protocol):
    """The ability of a decoder that a `parse` step needs; decoders of text formats have it."""

    def decode_values(self, values: Sequence[bytes | str | None]) -> DecodedRows:
        """One record for each value; the ordinals are the values' indexes. Never raises because of the values."""


class Encoder(Protocol):
    """Writes Arrow batches of one schema to one open file; `close` ends the file's format, not the file."""

    suffix: str
    """the suffix of the file's name, compression included: `.parquet`, `.jsonl.gz`"""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows. Raises OSError."""

    def close(self) -> None:
        """Write the end of the format (a footer, the last block). The caller flushes and syncs the file."""


class EncoderFactory(Protocol):
    """Makes an Encoder for one file; `encoder_for(format, …)` returns a factory."""

    def __call__(self, file: IO[bytes], schema: Schema) -> Encoder:
        """An encoder that writes to `file`."""


def is_traced(block: Block) -> TypeGuard[TracedBlock]:
    """True if the block is a TracedBlock."""
    return hasattr(block, "origins")

"""What sources hand to decoders, what decoders hand on, and what encoders take.

The way of the data: a source stream yields *blocks* (some MiB each). A block is either text (`LineBlock`: whole records, still
undecoded) or Arrow (`ArrowBlock`: the file's format had types of its own). A decoder turns a block into rows (dicts, for
record functions) or into one Arrow batch (for SQL and batch functions), and gathers the records that it could not read.
Nothing is ever silently null: a record is decoded by the contract of docs/flow-file.md, or it is in `bad`.

An *ordinal* is a record's index in its block, from 0. It survives every step, so that a dead letter can name its place.
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
    """Where a record stood: `line` counts from 1 (text), `row` from 0 (Parquet, sequence), `offset` is in bytes of the
    decompressed content. None where it cannot be known."""

    file: str
    line: int | None = None
    row: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that could not be decoded. `reason` is a stable word (see docs), `message` names field, found and wanted."""

    ordinal: int
    reason: str
    message: str


class Block(Protocol):
    """Some records of one file in their order."""

    def place(self, ordinal: int) -> RecordPlace:
        """Where that record stood."""

    def payload(self, ordinal: int) -> bytes:
        """The record's own bytes (text), or its row as JSON (Arrow)."""

    def __len__(self) -> int:
        """How many records the block holds, empty lines included."""


@dataclass(frozen=True, slots=True)
class Handed:
    """What a block was handed over by: which unit of which Batch of which lineage of the feeding Query, how many rows, and the digest of
    their ids. `unit` is -1 where the pack does not say it."""

    lineage: str
    batch: int
    rows: int
    digest: int
    unit: int = -1


class TracedBlock(Block, Protocol):
    """A block whose records have first coordinates of their own, from before they came here."""

    @property
    def handed(self) -> Handed | None:
        """By what it came; None of what is no whole pack."""

    def origins(self, ordinals: Sequence[int]) -> Origins:
        """Those of the records with these ordinals."""


@dataclass(slots=True)
class DecodedRows:
    """Decoded records as dicts: `rows[i]` is the record with ordinal `ordinals[i]`. `skipped` counts empty lines."""

    rows: list[dict[str, Any]]
    ordinals: Sequence[int]
    bad: list[Bad] = field(default_factory=list)
    skipped: int = 0


@dataclass(slots=True)
class DecodedColumns:
    """Decoded records as one Arrow batch with the schema's columns; else as `DecodedRows`."""

    batch: pa.RecordBatch
    ordinals: Sequence[int]
    bad: list[Bad] = field(default_factory=list)
    skipped: int = 0


@dataclass(slots=True)
class Structs:
    """Decoded records as Structs of `form`; else as `DecodedRows`."""

    form: StructForm
    structs: list[Any]
    ordinals: Sequence[int]
    bad: list[Bad] = field(default_factory=list)
    skipped: int = 0


class Decoder(Protocol):
    """Built once per task from a Schema; may be used for any number of blocks, by one thread."""

    schema: Schema

    def rows(self, block: Block) -> DecodedRows:
        """Decode for record functions. Never raises for what the data hold."""

    def columns(self, block: Block) -> DecodedColumns:
        """Decode for SQL and batch functions. Never raises for what the data hold."""


class StructDecoder(Decoder, Protocol):
    """What a decoder may have besides: the same records as Structs, for functions that only look at columns."""

    structs: Callable[[Block], Structs] | None
    """Never raises for what the data hold. None where this schema has no such form."""


class ValueDecoder(Protocol):
    """What a `parse` step needs of a decoder; those of the text formats have it."""

    def decode_values(self, values: Sequence[bytes | str | None]) -> DecodedRows:
        """One record a value; the ordinals are the values' indexes. Never raises for what the values hold."""


class Encoder(Protocol):
    """Writes Arrow batches of one schema to one open file; `close` ends the file's format, not the file."""

    suffix: str
    """what ends the file's name, compression included: `.parquet`, `.jsonl.gz`"""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows. Raises OSError."""

    def close(self) -> None:
        """Write what ends the format (a footer, the last block). The caller flushes and syncs the file."""


class EncoderFactory(Protocol):
    """`encoder_for(format, …)` gives one."""

    def __call__(self, file: IO[bytes], schema: Schema) -> Encoder:
        """An encoder that writes to `file`."""


def is_traced(block: Block) -> TypeGuard[TracedBlock]:
    """True for a TracedBlock."""
    return hasattr(block, "origins")

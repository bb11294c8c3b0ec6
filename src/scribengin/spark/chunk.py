"""What travels through a tail: some rows, where each of them came from, and how to tell it in a dead letter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import compress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.core.types import arrow_schema
from scribengin.formats.contract import RecordPlace
from scribengin.formats.rows import batch_to_rows, rows_to_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad, Block


class Origin(ABC):
    """Where the rows of one chunk came from: ordinal → place and bytes."""

    source = ""
    first_at = 0
    """what an ordinal lacks to be an AT value"""

    @abstractmethod
    def place(self, ordinal: int) -> RecordPlace:
        """Where that record stood."""

    @abstractmethod
    def payload(self, ordinal: int) -> bytes | None:
        """The record's own bytes, or None where they are gone (then the row as JSON stands for them)."""


class BlockOrigin(Origin):
    """A block that the tail has read and decoded itself: place and bytes are at hand."""

    def __init__(self, source: str, block: Block, first_at: int) -> None:
        self.source = source
        self.first_at = first_at
        self.block = block

    def place(self, ordinal: int) -> RecordPlace:
        """The block knows."""
        return self.block.place(ordinal)

    def payload(self, ordinal: int) -> bytes | None:
        """The block knows."""
        return self.block.payload(ordinal)


class UnknownOrigin(Origin):
    """Rows that a join, an aggregation or free SQL made: no single record stands behind them."""

    def place(self, ordinal: int) -> RecordPlace:  # noqa: ARG002
        """Nowhere."""
        return RecordPlace("")

    def payload(self, ordinal: int) -> bytes | None:  # noqa: ARG002
        """Gone."""
        return None


class Chunk:
    """Rows in one of two forms, made from each other when asked: dicts for record functions, Arrow for all others.

    `ordinals[i]` is row i's ordinal in `origin`; None where rows have no single origin.
    """

    __slots__ = ("_batch", "_rows", "ordinals", "origin")

    def __init__(
        self,
        origin: Origin,
        ordinals: Sequence[int] | None,
        *,
        rows: list[dict[str, Any]] | None = None,
        batch: pa.RecordBatch | None = None,
    ) -> None:
        self.origin = origin
        self.ordinals = ordinals
        self._rows = rows
        self._batch = batch

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else self._batch.num_rows  # type: ignore[union-attr]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts; a step may keep and change them."""
        if self._rows is None:
            self._rows = batch_to_rows(self._batch)
            self._batch = None  # a step may change the dicts: they are the truth from here on
        return self._rows

    @property
    def is_rows(self) -> bool:
        """True where the rows are dicts now."""
        return self._rows is not None

    def batch(self, schema: Schema) -> tuple[pa.RecordBatch, list[Bad]]:
        """The rows as Arrow, and the rows (by index, not ordinal) that do not fit `schema`."""
        if self._rows is None:
            return _fitted(self._batch, schema), []
        return rows_to_batch(self._rows, schema, range(len(self._rows)))

    def selected(self, keep: Sequence[object]) -> Chunk:
        """The rows whose `keep` is true."""
        ordinals = None if self.ordinals is None else list(compress(self.ordinals, keep))
        if self._batch is not None:
            return Chunk(self.origin, ordinals, batch=self._batch.filter(pa.array(keep)))
        return Chunk(self.origin, ordinals, rows=list(compress(self.rows, keep)))

    def copied(self) -> Chunk:
        """The same rows, for a second reader that may change its dicts."""
        if self._rows is None:
            return Chunk(self.origin, self.ordinals, batch=self._batch)
        return Chunk(self.origin, self.ordinals, rows=[dict(row) for row in self._rows])

    def ordinal(self, index: int) -> int | None:
        """The ordinal of row `index`, or None."""
        return None if self.ordinals is None else self.ordinals[index]


def _fitted(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The same columns in the schema's order: inputs of a union agree in names and types only."""
    form = arrow_schema(schema)
    return batch if batch.schema.equals(form) else batch.select(form.names).cast(form)

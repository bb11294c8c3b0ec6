"""A chunk of rows in a task pipeline, the origin of each row, and how a dead letter names it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import compress, islice
from operator import eq
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from scribengin.core.types import arrow_schema
from scribengin.formats.contract import RecordPlace, is_traced
from scribengin.formats.messages import MessageBlock
from scribengin.formats.origins import Origins
from scribengin.formats.rows import batch_to_rows, rows_to_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from scribengin.connectors.contract import SourceStream
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad, Block
    from scribengin.formats.json_out import JsonRows
    from scribengin.formats.row_ids import Trail
    from scribengin.formats.structs import StructForm
    from scribengin.state.contract import DeadLetter


class Origin(ABC):
    """The origin of a chunk's rows: maps an ordinal to the record's place and bytes."""

    source = ""
    first_at = 0
    """the offset to add to an ordinal to get an AT value"""

    @abstractmethod
    def place(self, ordinal: int) -> RecordPlace:
        """The place of the record in its source."""

    @abstractmethod
    def payload(self, ordinal: int) -> bytes | None:
        """The record's own bytes; None if they are not available (a dead letter then contains the row as JSON)."""

    def ids(self, ordinals: Sequence[int]) -> list[str] | None:  # noqa: ARG002 (of an origin that knows)
        """The id of each record, the same whenever it is read again; None if rows do not come from single records."""
        return None

    def origins(self, ordinals: Sequence[int]) -> Origins | None:  # noqa: ARG002 (of an origin that knows)
        """The origin of each record as numbers; None if rows do not come from single records."""
        return None

    def block_at(self, ordinal: int) -> tuple[Block, int] | None:  # noqa: ARG002 (of an origin that knows)
        """(the source's block that contains the record, the record's ordinal in it); None if there is no such block."""
        return None

    def letter(self, ordinal: int) -> DeadLetter | None:  # noqa: ARG002
        """The dead letter of the record if the record is a replay, else None."""
        return None

    def stream(self, ordinal: int) -> tuple[str, SourceStream] | None:  # noqa: ARG002 (of an origin that knows)
        """(source, stream) of the record, without reading anything; None if unknown."""
        return None

    @property
    def has_replays(self) -> bool:
        """False if `replayed` is False for every ordinal."""
        return False

    def replayed(self, ordinals: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each record that is a replayed dead letter. Reads nothing."""
        return np.zeros(len(ordinals), bool)

    def way(self, ordinal: int) -> tuple[str, Trail]:
        """(the record's id in all tiers, its provenance so far); empty if unknown."""
        found = self.origins([ordinal])
        return ("", ()) if found is None else (found.ids()[0], found.trails[found.streams[0]])


class BlockOrigin(Origin):
    """A block that the task has read and decoded itself: place and bytes are in memory. `label` names the stream, `first` is the sequence
    number of the block's first record in it."""

    def __init__(
        self, source: str, block: Block, first_at: int, label: str = "", first: int = 0, stream: SourceStream | None = None
    ) -> None:
        self._stream = stream
        self.source = source
        self.first_at = first_at
        self.block = block
        self._label = label
        self._first = first

    def place(self, ordinal: int) -> RecordPlace:
        """See `Origin.place`; read from the block."""
        return self.block.place(ordinal)

    def payload(self, ordinal: int) -> bytes | None:
        """See `Origin.payload`; read from the block."""
        return self.block.payload(ordinal)

    def block_at(self, ordinal: int) -> tuple[Block, int]:
        """See `Origin.block_at`; this block."""
        return self.block, ordinal

    def stream(self, ordinal: int) -> tuple[str, SourceStream] | None:  # noqa: ARG002 (all of a block are of one)
        """See `Origin.stream`; the stream of the block."""
        return None if self._stream is None else (self.source, self._stream)

    def ids(self, ordinals: Sequence[int]) -> list[str] | None:
        """`source/topic-0@17` for messages, else `source/stream+17`."""
        if is_traced(self.block):
            return self.block.origins(ordinals).ids()
        begin, first = f"{self.source}/", self._first
        if isinstance(self.block, MessageBlock):
            begin += f"{self.block.topic}-{self.block.partition}@"
            offsets = self.block.offsets
            return [f"{begin}{offsets[ordinal]}" for ordinal in ordinals]
        begin = f"{begin}{self._label}+"
        return [f"{begin}{first + ordinal}" for ordinal in ordinals]

    def origins(self, ordinals: Sequence[int]) -> Origins | None:
        """See `Origin.origins`."""
        if is_traced(self.block):
            return self.block.origins(ordinals)
        at = np.asarray(ordinals, np.int64)
        if isinstance(self.block, MessageBlock):
            label = f"{self.source}/{self.block.topic}-{self.block.partition}@"
            return Origins.of(label, np.asarray(self.block.offsets, np.int64)[at])
        return Origins.of(f"{self.source}/{self._label}+", at + self._first)


class UnknownOrigin(Origin):
    """The origin of rows that a join, an aggregation or free SQL made: they do not come from single records."""

    def place(self, ordinal: int) -> RecordPlace:  # noqa: ARG002
        """An unknown place."""
        return RecordPlace("")

    def payload(self, ordinal: int) -> bytes | None:  # noqa: ARG002
        """None: there is no record."""
        return None


class Chunk:
    """Rows in one of three forms, converted on demand: Structs for record functions that only read, dicts for the other record functions,
    Arrow for everything else.

    `ordinals[i]` is row i's ordinal in `origin`; None if the rows do not come from single records.
    """

    __slots__ = ("_batch", "_form", "_rows", "_structs", "ordinals", "origin", "way")

    def __init__(
        self,
        origin: Origin,
        ordinals: Sequence[int] | None,
        *,
        rows: list[dict[str, Any]] | None = None,
        batch: pa.RecordBatch | None = None,
        structs: tuple[StructForm, list[Any]] | None = None,
    ) -> None:
        self.origin = origin
        self.ordinals = ordinals
        self.way = ""
        """the input by which the rows reach a sink that has several; else empty"""
        self._rows = rows
        self._batch = batch
        self._form: StructForm | None = None
        self._structs: list[Any] = []
        if structs is not None:
            self._form, self._structs = structs

    def __len__(self) -> int:
        if self._batch is not None:
            return int(self._batch.num_rows)
        return len(self._structs if self._rows is None else self._rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts; a step may keep and change them. The chunk's other forms are dropped."""
        if self._rows is None:
            self._rows = batch_to_rows(self._batch) if self._form is None else self._form.rows(self._structs)
            # a step may change the dicts, so the other forms are no longer valid
            self._batch, self._form, self._structs = None, None, []
        return self._rows

    @property
    def is_arrow(self) -> bool:
        """True if the rows are Arrow now."""
        return self._batch is not None

    @property
    def arrow(self) -> pa.RecordBatch | None:
        """The rows if they are Arrow now, else None."""
        return self._batch

    @property
    def form(self) -> StructForm | None:
        """The form of the Structs; None if the rows are in another form."""
        return self._form

    def structs(self, schema: Schema) -> list[Any] | None:
        """The rows as Structs; None if they are in another form or have other columns than `schema`."""
        return self._structs if self._form is not None and self._form.schema.names == schema.names else None

    def batch(self, schema: Schema) -> tuple[pa.RecordBatch, list[Bad]]:
        """(the rows as Arrow, the rows that do not fit `schema`, by index and not by ordinal)."""
        return (_fitted(self._batch, schema), []) if self._batch is not None else together([self], schema)

    def one(self, index: int) -> Chunk:
        """Row `index` alone, in its present form; this chunk does not change."""
        ordinals = None if self.ordinals is None else [self.ordinals[index]]
        if self._batch is not None:
            return Chunk(self.origin, ordinals, batch=self._batch.slice(index, 1))
        if self._form is not None:
            return Chunk(self.origin, ordinals, structs=(self._form, [self._structs[index]]))
        return Chunk(self.origin, ordinals, rows=[self.rows[index]])

    def selected(self, keep: Sequence[object]) -> Chunk:
        """The rows whose `keep` is true."""
        ordinals = None if self.ordinals is None else list(compress(self.ordinals, keep))
        if self._batch is not None:
            return Chunk(self.origin, ordinals, batch=self._batch.filter(pa.array(keep)))
        if self._form is not None:
            return Chunk(self.origin, ordinals, structs=(self._form, list(compress(self._structs, keep))))
        return Chunk(self.origin, ordinals, rows=list(compress(self.rows, keep)))

    def taken(self, indexes: Sequence[int]) -> Chunk:
        """The rows at `indexes`, which are ascending."""
        ordinals = None if self.ordinals is None else [self.ordinals[index] for index in indexes]
        if self._batch is not None:
            return Chunk(self.origin, ordinals, batch=self._batch.take(pa.array(indexes, pa.int64())))
        if self._form is not None:
            return Chunk(self.origin, ordinals, structs=(self._form, [self._structs[index] for index in indexes]))
        return Chunk(self.origin, ordinals, rows=[self.rows[index] for index in indexes])

    def with_column(self, name: str, value: str) -> Chunk:
        """The rows with one column more, which has the same text in all rows. Structs become dicts."""
        if self._batch is not None:
            column = pa.repeat(pa.scalar(value, pa.string()), self._batch.num_rows)
            return Chunk(self.origin, self.ordinals, batch=self._batch.append_column(pa.field(name, pa.string(), nullable=False), column))
        return Chunk(self.origin, self.ordinals, rows=[row | {name: value} for row in self.rows])

    def copied(self) -> Chunk:
        """A copy with the same rows, for a second reader that may change its dicts."""
        if self._batch is not None:
            return Chunk(self.origin, self.ordinals, batch=self._batch)
        if self._form is not None:
            return Chunk(self.origin, self.ordinals, structs=(self._form, self._structs))
        return Chunk(self.origin, self.ordinals, rows=[dict(row) for row in self.rows])

    def ids(self, batch: int) -> list[str] | None:
        """The id of each row: the id of its record; then `~` and the input, for a sink with several; then `~` and the Batch number, if the
        record is a replay, so that it differs from the id of an earlier row of the same record; then `.1`, `.2`… for a second or later row
        of the record.

        Args:
            batch: The number of the Batch.

        Returns:
            The ids; None if the rows do not come from single records.
        """
        ordinals = self.ordinals
        ids = None if ordinals is None else self.origin.ids(ordinals)
        if ids is None or ordinals is None:
            return None
        if self.way:
            ids = [f"{id_}~{self.way}" for id_ in ids]
        if self.origin.has_replays:
            again = self.origin.replayed(ordinals).tolist()
            ids = [f"{id_}~{batch}" if replayed else id_ for id_, replayed in zip(ids, again, strict=True)]
        if any(map(eq, ordinals, islice(ordinals, 1, None))):
            nth = 0
            for index in range(1, len(ids)):
                nth = nth + 1 if ordinals[index] == ordinals[index - 1] else 0
                if nth:
                    ids[index] = f"{ids[index]}.{nth}"
        return ids

    def origins(self) -> Origins | None:
        """The origin of each row as numbers; None if unknown."""
        ordinals = self.ordinals
        found = None if ordinals is None else self.origin.origins(ordinals)
        if found is None or ordinals is None:
            return None
        if self.way:
            found = replace(found, labels=[f"{self.way}~{label}" for label in found.labels])
        return found.numbered(ordinals)

    def ordinal(self, index: int) -> int | None:
        """The ordinal of row `index`, or None."""
        return None if self.ordinals is None else self.ordinals[index]


def chunks_of(rows: pa.RecordBatch, ordinals: Sequence[int | None] | None, origin: Origin) -> Iterator[Chunk]:
    """Arrow rows as one chunk. As two chunks if only some rows come from a single record (ordinal None: no record), such as those of a
    union with a `@batch` function's output.

    Args:
        rows: The rows.
        ordinals: The ordinal of each row; None if no row has one.
        origin: The origin of the rows that have an ordinal.
    """
    if ordinals is None or None not in ordinals:
        if rows.num_rows:
            yield Chunk(origin, cast("Sequence[int] | None", ordinals), batch=rows)
        return
    known = [ordinal for ordinal in ordinals if ordinal is not None]
    mask = [ordinal is not None for ordinal in ordinals]
    if known:
        yield Chunk(origin, known, batch=rows.filter(pa.array(mask)))
    yield Chunk(UnknownOrigin(), None, batch=rows.filter(pa.array([not each for each in mask])))


def together(chunks: Sequence[Chunk], schema: Schema) -> tuple[pa.RecordBatch, list[Bad]]:
    """(the rows of chunks that are not Arrow as one record batch, the rows that do not fit `schema`, by index among all rows)."""
    forms = {chunk.form for chunk in chunks}
    if len(forms) == 1 and (form := forms.pop()) is not None and form.schema == schema:
        # the decoder has checked the types already
        return form.batch([struct for chunk in chunks for struct in chunk.structs(schema) or ()]), []
    rows = [row for chunk in chunks for row in chunk.rows]
    return rows_to_batch(rows, schema, range(len(rows)))


def json_together(chunks: Sequence[Chunk], made: JsonRows) -> tuple[bytes, Mapping[str, pa.Array]] | None:
    """The rows of chunks that are not Arrow as JSON, and the columns that are needed besides; None if they must be converted to Arrow
    first."""
    forms = {chunk.form for chunk in chunks}
    if len(forms) == 1 and (form := forms.pop()) is not None and form.schema == made.schema:
        return made.of_structs([struct for chunk in chunks for struct in chunk.structs(made.schema) or ()])
    return made.of_rows([row for chunk in chunks for row in chunk.rows])


def _fitted(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The same columns in the schema's order: the inputs of a union have equal names and types, but may differ in order."""
    form = arrow_schema(schema)
    return batch if batch.schema.equals(form) else batch.select(form.names).cast(form)

"""Rows that already have types (from Parquet or tables of stores), and their decoders: a value that does not fit its column affects only
its own row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import arrow_schema
from scribengin.formats.blocks import ArrowBlock, DamageBlock
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block


Unfit = dict[int, str]
"""index → the value that does not fit, as text for messages"""


def fitting(column: pa.Array, form: pa.DataType) -> tuple[pa.Array, Unfit]:
    """(the column as that type, with null for values that do not fit; these values)."""
    try:
        return column.cast(form), {}
    except pa.ArrowInvalid:
        pass
    parts: list[pa.Array] = []
    unfit: Unfit = {}
    for index, value in enumerate(column):
        try:
            parts.append(column.slice(index, 1).cast(form))
        except pa.ArrowInvalid:
            parts.append(pa.nulls(1, form))
            shown = value.as_py()
            unfit[index] = f"0x{shown.hex()}" if isinstance(shown, bytes) else str(shown)
    return pa.concat_arrays(parts), unfit


@dataclass(slots=True)
class TableBlock(ArrowBlock):
    """Rows of a table. `bad` has the errors of rows that do not fit, `texts` all values as the server sent them."""

    bad: list[Bad] = field(default_factory=list)
    texts: pa.RecordBatch | None = None

    def payload(self, ordinal: int) -> bytes:
        """The row as JSON; if a value does not fit, as the server sent it.

        The values that fit keep their types, so that a replay reads the row when those that do not fit are corrected.
        """
        if self.texts is None or all(each.ordinal != ordinal for each in self.bad):
            return ArrowBlock.payload(self, ordinal)
        sent = self.texts.slice(ordinal, 1)
        fit = {name: self.batch.column(name).slice(ordinal, 1) for name in self.batch.schema.names}
        values = {name: fit[name] if name in fit and fit[name].null_count == 0 else sent.column(name) for name in sent.schema.names}
        return ArrowBlock(self.file, pa.RecordBatch.from_arrays(list(values.values()), names=list(values))).payload(0)


class ArrowDecoder:
    """Decodes `ArrowBlock`s whose batches have the schema's columns already (see `conform`): only NOT NULL is checked."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._needed = [field.name for field in schema.fields if not field.nullable]
        self._form = arrow_schema(schema)

    def rows(self, block: Block) -> DecodedRows:
        """The rows as dicts."""
        columns = self.columns(block)
        return DecodedRows(batch_to_rows(columns.batch), columns.ordinals, columns.bad)

    def columns(self, block: Block) -> DecodedColumns:
        """The block's own batch, without rows that have null in a NOT NULL column."""
        if isinstance(block, DamageBlock):
            return DecodedColumns(pa.RecordBatch.from_pylist([], self._form), [], block.bad())
        assert isinstance(block, ArrowBlock)
        batch = block.batch
        bad: dict[int, Bad] = {}
        for name in self._needed:
            column = batch.column(name)
            if column.null_count:
                for ordinal in pc.indices_nonzero(column.is_null()).to_pylist():
                    bad.setdefault(ordinal, Bad(ordinal, "missing", f'field "{name}" is null; expected NOT NULL'))
        if not bad:
            return DecodedColumns(pa.RecordBatch.from_arrays(batch.columns, schema=self._form), range(batch.num_rows))
        kept = [ordinal for ordinal in range(batch.num_rows) if ordinal not in bad]
        good = batch.take(pa.array(kept, pa.int64()))
        return DecodedColumns(pa.RecordBatch.from_arrays(good.columns, schema=self._form), kept, [bad[ordinal] for ordinal in sorted(bad)])


class TableDecoder(ArrowDecoder):
    """An ArrowDecoder that leaves out rows that did not fit the schema."""

    def columns(self, block: Block) -> DecodedColumns:
        """The block's own batch, without its bad rows."""
        if not isinstance(block, TableBlock) or not block.bad:
            return ArrowDecoder.columns(self, block)
        unfit = {each.ordinal: each for each in block.bad}
        kept = [ordinal for ordinal in range(len(block)) if ordinal not in unfit]
        fit = block.batch.take(pa.array(kept, pa.int64()))
        found = ArrowDecoder.columns(self, ArrowBlock(block.file, fit))
        null = {kept[each.ordinal]: Bad(kept[each.ordinal], each.reason, each.message) for each in found.bad}
        bad = unfit | null
        return DecodedColumns(found.batch, [kept[ordinal] for ordinal in found.ordinals], [bad[ordinal] for ordinal in sorted(bad)])

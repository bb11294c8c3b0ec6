"""Blocks of a store's tables: Arrow, in which a value that its column cannot hold costs its own row only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from scribengin.formats.blocks import ArrowBlock
from scribengin.formats.contract import Bad, Columns
from scribengin.formats.parquet import ArrowDecoder

if TYPE_CHECKING:
    from scribengin.formats.contract import Block


Unfit = dict[int, str]
"""index → the value that does not fit, for people"""


def fitting(column: pa.Array, form: pa.DataType) -> tuple[pa.Array, Unfit]:
    """The column as that type, null where a value does not fit."""
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
    """Rows of a table. Where a value does not fit, `bad` says so, and `texts` holds what the server sent of all."""

    bad: list[Bad] = field(default_factory=list)
    texts: pa.RecordBatch | None = None

    def payload(self, ordinal: int) -> bytes:
        """The row as JSON; one with a value that does not fit as texts."""
        if self.texts is None or all(each.ordinal != ordinal for each in self.bad):
            return ArrowBlock.payload(self, ordinal)
        return ArrowBlock(self.file, self.texts).payload(ordinal)


class TableDecoder(ArrowDecoder):
    """As ArrowDecoder, without the rows that did not fit."""

    def columns(self, block: Block) -> Columns:
        """The block's own batch, without what is bad in it."""
        if not isinstance(block, TableBlock) or not block.bad:
            return ArrowDecoder.columns(self, block)
        unfit = {each.ordinal: each for each in block.bad}
        kept = [ordinal for ordinal in range(len(block)) if ordinal not in unfit]
        fit = block.batch.take(pa.array(kept, pa.int64()))
        found = ArrowDecoder.columns(self, ArrowBlock(block.file, fit))
        null = {kept[each.ordinal]: Bad(kept[each.ordinal], each.reason, each.message) for each in found.bad}
        bad = unfit | null
        return Columns(found.batch, [kept[ordinal] for ordinal in found.ordinals], [bad[ordinal] for ordinal in sorted(bad)])

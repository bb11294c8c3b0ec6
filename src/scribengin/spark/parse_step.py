"""The `parse` step: decodes the text of one column to fields, with the same decoders as the lines of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from scribengin.formats.catalog import decoder_for
from scribengin.spark.chunk import Chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.formats.contract import Bad, ValueDecoder
    from scribengin.spark.dead_letter_writer import DeadLetterWriter
    from scribengin.spark.program import ParseNode
    from scribengin.state.contract import Counts


class ParseStep:
    """Decodes `column` of each row. Rows whose text cannot be decoded become dead letters."""

    def __init__(self, node: ParseNode, counts: Counts, letters: DeadLetterWriter) -> None:
        self._node = node
        self._decoder = cast("ValueDecoder", decoder_for(node.format, node.fields, node.options))
        self._counts = counts
        self._letters = letters

    def __call__(self, chunk: Chunk) -> Chunk:
        """The rows that were decoded, with the new fields and without the column."""
        rows = chunk.rows
        column = self._node.column
        self._counts.rows_in += len(rows)
        decoded = self._decoder.decode_values([row.get(column) for row in rows])
        if decoded.bad:
            self._bury(chunk, decoded.bad)
        self._counts.dead += len(decoded.bad)
        self._counts.filtered += decoded.skipped
        parsed = [
            {name: value for name, value in rows[i].items() if name != column} | fields
            for i, fields in zip(decoded.ordinals, decoded.rows, strict=True)
        ]
        self._counts.out += len(parsed)
        ordinals = None if chunk.ordinals is None else [chunk.ordinals[index] for index in decoded.ordinals]
        return Chunk(chunk.origin, ordinals, rows=parsed)

    def _bury(self, chunk: Chunk, dead: Sequence[Bad]) -> None:
        came = self._node.schema_in
        arrived, unfit = chunk.taken([bad.ordinal for bad in dead]).batch(came)
        for at, bad in enumerate(dead):
            message = f'column "{self._node.column}": {bad.message}'
            rows = {} if unfit else {"arrived": arrived, "arrived_at": at}
            self._letters.bury(self._node.node, chunk, bad.ordinal, bad.reason, message, came=came, **rows)

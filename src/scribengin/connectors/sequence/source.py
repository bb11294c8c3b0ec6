"""Generated rows: the row of an id is always the same, however often it is read."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

from scribengin.connectors.contract import Backlog, BatchLimits, SourceStream
from scribengin.connectors.sequence.options import SOURCE, rows_fault, start_fault, start_us
from scribengin.core.errors import SourceError
from scribengin.core.types import Field, Schema, Type, arrow_schema
from scribengin.formats.blocks import ArrowBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scribengin.connectors.contract import ConnectorContext
    from scribengin.formats.contract import Decoder

SCHEMA = Schema((Field("id", Type("BIGINT"), nullable=False), Field("ts", Type("TIMESTAMP"), nullable=False)))
_BLOCK_ROWS = 65_536


class SequenceSource:
    """A `type: sequence` source: `id` from 0, and `ts`, which is `start` plus id times `step`. Raises SourceError for contradictory
    options."""

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = SCHEMA
        options = SOURCE.filled(place.options)
        self._node = place.node
        self._rows: int | None = options["rows"]
        self._rate: int | None = options["rate"]
        self._max_rows: int = options["max_rows"]
        self._splits: int = options["splits"]
        if (fault := start_fault(options["start"])) is not None:
            raise SourceError(f'source "{place.node}": start {fault[0]}', remedy=fault[1])
        if (together := rows_fault(options)) is not None:
            raise SourceError(f'source "{place.node}" {together[1]}', remedy=together[2])
        self._start_us = start_us(options["start"])
        self._step_us = round(options["step"] * 1e6)

    def resolve_schema(self) -> Schema:
        """The fixed columns: `id BIGINT NOT NULL, ts TIMESTAMP NOT NULL`."""
        return SCHEMA

    def reader(self) -> SequenceReader:
        """A new reader that has handed out nothing."""
        return SequenceReader(self._node, rows=self._rows, rate=self._rate, max_rows=self._max_rows, splits=self._splits)

    def decoder(self) -> Decoder:
        """A decoder that passes the rows on unchanged."""
        from scribengin.formats.table_blocks import ArrowDecoder

        return ArrowDecoder(SCHEMA)

    def read(self, stream: SourceStream) -> Iterator[ArrowBlock]:
        """The rows with ids from `start` to `end` (exclusive) of the stream's place."""
        import numpy as np
        import pyarrow as pa

        form = arrow_schema(SCHEMA)
        first, end = stream.place["start"], stream.place["end"]
        for start in range(first, end, _BLOCK_ROWS):
            ids = np.arange(start, min(end, start + _BLOCK_ROWS), dtype=np.int64)
            times = pa.array(self._start_us + ids * self._step_us).cast(form.field("ts").type)
            yield ArrowBlock(self._node, pa.RecordBatch.from_arrays([pa.array(ids), times], schema=form), start)


class SequenceReader:
    """Hands out ranges of ids; with a rate, as many as are due since the first `split`."""

    def __init__(self, node: str, *, rows: int | None, rate: int | None, max_rows: int, splits: int) -> None:
        self._node = node
        self._rows = rows
        self._rate = rate
        self._max_rows = max_rows
        self._splits = splits
        self._next = 0
        self._began: tuple[float, int] | None = None
        self._over = False
        """True after an endless sequence was asked to finish"""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Continue after the last row that was handed out."""
        for streams in entries:
            self._next = max([self._next, *(stream.place["end"] for stream in streams)])

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next rows, divided into `splits` streams of similar size. With `final`, an endless sequence ends at its current position."""
        self._over = self._over or (final and self._rows is None)
        if self._over:
            return []
        end = min(self._next + self._max_rows, self._next + (limits.max_rows or self._max_rows), self._due(final=final))
        count = end - self._next
        if count <= 0:
            return []
        parts = min(self._splits, count)
        bounds = [self._next + count * index // parts for index in range(parts + 1)]
        self._next = end
        return [SourceStream(f"{self._node}[{low}:{high}]", {"start": low, "end": high}, rows=high - low) for low, high in pairwise(bounds)]

    def backlog(self) -> Backlog:
        """The number of rows that are due; without a rate, all remaining rows, if the sequence has an end."""
        if self._over:
            return Backlog(rows=0)
        rows = max(0, self._due(final=False) - self._next) if self._rate or self._rows is not None else None
        return Backlog(rows=rows, more=self._rows is None)

    def notices(self) -> list[str]:
        """Returns no notices."""
        return []

    def _due(self, *, final: bool) -> int:
        """The id before which all rows may be handed out now."""
        end = _ENDLESS if self._rows is None else self._rows
        if self._rate is None or final:
            return end
        now_s = time.monotonic()
        if self._began is None:
            self._began = (now_s, self._next)
        began_s, first = self._began
        return min(end, first + int((now_s - began_s) * self._rate))


_ENDLESS = 1 << 62

"""Where rows leave a stage: into a sink's stream, or as Arrow for the native part behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.connectors.contract import gives_rows
from scribengin.spark.chunk import together
from scribengin.spark.program import AT, BRANCH
from scribengin.spark.sieve import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.contract import Receipt, SinkStream
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad
    from scribengin.spark.chunk import Chunk
    from scribengin.spark.letters import Letters
    from scribengin.spark.program import ExitNode, SinkNode
    from scribengin.state.contract import Counts

_ROWS = 16_384
_CHUNKS = 64  # blocks held back at most: a selective filter keeps a row of each, and a row keeps its block


class _Typed:
    """Gathers chunks until they are worth a conversion to Arrow; a row that does not fit is a dead letter of the step it left."""

    def __init__(self, schema: Schema, step: str | None, counts: dict[str, Counts], letters: Letters) -> None:
        self.schema = schema
        self._step = step
        self._counts = counts
        self._letters = letters
        self._waiting: list[Chunk] = []
        self._rows = 0

    def take(self, chunk: Chunk) -> list[tuple[pa.RecordBatch, Chunk, list[int] | None]]:
        """What is ready now: (rows, their chunk, indexes of the rows that stayed where some did not)."""
        if chunk.is_arrow:
            return [*self.rest(), (chunk.batch(self.schema)[0], chunk, None)]
        self._waiting.append(chunk)
        self._rows += len(chunk)
        return self.rest() if self._rows >= _ROWS or len(self._waiting) >= _CHUNKS else []

    def rest(self) -> list[tuple[pa.RecordBatch, Chunk, list[int] | None]]:
        """What waited."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if not waiting:
            return []
        batch, bad = together(waiting, self.schema)
        if not bad and len(waiting) == 1:
            return [(batch, waiting[0], None)]
        failed = {each.ordinal: each for each in bad}
        ready: list[tuple[pa.RecordBatch, Chunk, list[int] | None]] = []
        first = done = 0
        for chunk in waiting:
            stayed = [index for index in range(len(chunk)) if first + index not in failed] if failed else None
            for index in range(len(chunk)) if failed else ():
                if first + index in failed:
                    self._bury(chunk, index, failed[first + index].reason, failed[first + index].message)
            size = len(chunk) if stayed is None else len(stayed)
            ready.append((batch.slice(done, size), chunk, stayed))
            first += len(chunk)
            done += size
        return ready

    def _bury(self, chunk: Chunk, index: int, reason: str, message: str) -> None:
        assert self._step is not None, "rows that no step touched were typed by their decoder"
        self._letters.bury(self._step, chunk, index, reason, message)
        counts = self._counts[self._step]
        counts.out -= 1
        counts.dead += 1


class SinkExit:
    """Writes rows to a sink's stream; those that the sink can never take are its dead letters. `unit` names rows of no single record."""

    def __init__(
        self,
        node: SinkNode,
        stream: SinkStream,
        unit: str,
        counts: Counts,
        all_counts: dict[str, Counts],
        letters: Letters,
        step: str | None,
    ) -> None:
        self._node = node.node
        self._several = len(node.inputs) > 1
        self._commits = node.commit is not None
        self._stream = stream
        self._unit = unit
        self._counts = counts
        self._letters = letters
        self._typed = _Typed(node.schema, step, all_counts, letters)

    def __call__(self, chunk: Chunk, way: str = "") -> None:
        """Take a chunk, which came by the input `way`; it may wait for others."""
        if self._several:
            chunk.way = way
        self._write(self._typed.take(chunk))

    def flush(self) -> None:
        """Write what waited."""
        self._write(self._typed.rest())

    def _write(self, ready: list[tuple[pa.RecordBatch, Chunk, list[int] | None]]) -> None:
        ready = [each for each in ready if each[0].num_rows]
        if not ready:
            return
        rows = pa.concat_batches([batch for batch, _, _ in ready]) if len(ready) > 1 else ready[0][0]
        bad = self._stream.write(rows, self._ids(ready) if self._stream.wants_ids else None)
        for each in bad:
            self._bury(ready, each)
        self._counts.rows_in += rows.num_rows
        self._counts.out += rows.num_rows - len(bad)
        self._counts.dead += len(bad)

    def _ids(self, ready: list[tuple[pa.RecordBatch, Chunk, list[int] | None]]) -> list[str]:
        ids: list[str] = []
        for batch, chunk, stayed in ready:
            known = chunk.ids()
            if known is None:
                first = self._counts.rows_in + len(ids)
                ids += [f"{self._unit}/{first + index}" for index in range(batch.num_rows)]
            else:
                ids += known if stayed is None else [known[index] for index in stayed]
        return ids

    def _bury(self, ready: list[tuple[pa.RecordBatch, Chunk, list[int] | None]], bad: Bad) -> None:
        index = bad.ordinal
        for batch, chunk, stayed in ready:
            if index < batch.num_rows:
                self._letters.bury(self._node, chunk, index if stayed is None else stayed[index], bad.reason, bad.message)
                return
            index -= batch.num_rows

    def take(self) -> Sequence[pa.RecordBatch]:
        """What Spark's own sink is to write, where that writes."""
        return self._stream.take() if gives_rows(self._stream) else ()

    def close(self) -> Receipt:
        """Make the rows durable."""
        return self._stream.close()

    def commit(self, report: Mapping[str, Any]) -> None:
        """Make the rows visible with the report, where the unit commits by itself."""
        if self._commits:
            stream: Any = self._stream
            stream.commit(report)

    def abort(self) -> None:
        """Remove what was staged."""
        self._stream.abort()


class ArrowExit:
    """Collects Arrow rows, with the AT column where it is wanted, for the generator to yield."""

    def __init__(
        self, node: ExitNode, out: list[pa.RecordBatch], counts: Counts, all_counts: dict[str, Counts], letters: Letters, step: str | None
    ) -> None:
        self._at = node.at
        self._branch = node.branch
        self._schema = node.schema
        self._sieve = None if node.sieve is None else compiled(node.sieve)
        self._out = out
        self._counts = counts
        self._typed = _Typed(node.schema, step, all_counts, letters)

    def __call__(self, chunk: Chunk) -> None:
        """Take a chunk; it may wait for others."""
        if self._sieve is not None and (structs := chunk.structs(self._schema)) is not None:
            kept = chunk.selected(self._sieve(structs))
            # they count as handed on: the native step behind has dropped them
            self._counts.out += len(chunk) - len(kept)
            chunk = kept
        if len(chunk):
            self._give(self._typed.take(chunk))

    def flush(self) -> None:
        """Give what waited."""
        self._give(self._typed.rest())

    def _give(self, ready: list[tuple[pa.RecordBatch, Chunk, list[int] | None]]) -> None:
        for batch, chunk, stayed in ready:
            if batch.num_rows:
                self._counts.out += batch.num_rows
                rows = self._with_at(batch, chunk, stayed) if self._at else batch
                self._out.append(rows if self._branch is None else rows.append_column(BRANCH, pa.repeat(self._branch, rows.num_rows)))

    @staticmethod
    def _with_at(batch: pa.RecordBatch, chunk: Chunk, stayed: list[int] | None) -> pa.RecordBatch:
        if chunk.ordinals is None:
            ats = pa.nulls(batch.num_rows, pa.int64())
        else:
            ordinals = chunk.ordinals if stayed is None else [chunk.ordinals[index] for index in stayed]
            first = chunk.origin.first_at
            ats = pa.array([first + ordinal for ordinal in ordinals], pa.int64())
        return batch.append_column(AT, ats)

"""The exits of a stage: into a sink's stream, or as Arrow to the Spark SQL steps after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from scribengin.connectors.abilities import passes_rows_to_spark, takes_json, takes_origins
from scribengin.formats.json_out import json_rows
from scribengin.formats.origins import Origins
from scribengin.spark.chunk import json_together, together
from scribengin.spark.predicate_pushdown import compiled
from scribengin.spark.program import AT, BRANCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.contract import OriginStream, Receipt, SinkStream
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad
    from scribengin.formats.json_out import JsonRows
    from scribengin.spark.chunk import Chunk
    from scribengin.spark.dead_letter_writer import DeadLetterWriter, Trails
    from scribengin.spark.program import ExitNode, SinkNode
    from scribengin.state.contract import Counts


_ROWS = 16_384
_CHUNKS = 64  # the most chunks that wait: after a selective filter a chunk has few rows, but each keeps its block in memory


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one chunk in a conversion: their number, and their indexes in the chunk if some were removed."""

    chunk: Chunk
    size: int
    stayed: list[int] | None = None


@dataclass(frozen=True, slots=True)
class _Ready:
    """Rows of some chunks, in their order: as Arrow, or as JSON with the columns that the sink needs besides."""

    parts: list[_Part]
    batch: pa.RecordBatch | None = None
    json: tuple[bytes, Mapping[str, pa.Array]] | None = None

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class _Typed:
    """Collects chunks until there are enough rows for a conversion. A row that does not fit the schema becomes a dead letter of the step
    that made it. `as_json`: converts rows that are Python objects to JSON, if the sink accepts that."""

    def __init__(
        self, schema: Schema, step: str | None, counts: dict[str, Counts], letters: DeadLetterWriter, as_json: JsonRows | None = None
    ) -> None:
        self.schema = schema
        self._step = step
        self._counts = counts
        self._letters = letters
        self._as_json = as_json
        self._waiting: list[Chunk] = []
        self._rows = 0

    def take(self, chunk: Chunk) -> list[_Ready]:
        """Add a chunk; returns the rows that are ready."""
        if chunk.is_arrow:
            return [*self.rest(), _Ready([_Part(chunk, len(chunk))], chunk.batch(self.schema)[0])]
        self._waiting.append(chunk)
        self._rows += len(chunk)
        return self.rest() if self._rows >= _ROWS or len(self._waiting) >= _CHUNKS else []

    def rest(self) -> list[_Ready]:
        """Convert and return the rows that are still waiting."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if not waiting:
            return []
        whole = [_Part(chunk, len(chunk)) for chunk in waiting]
        if self._as_json is not None and (json := json_together(waiting, self._as_json)) is not None:
            return [_Ready(whole, json=json)]
        batch, bad = together(waiting, self.schema)
        if not bad:
            return [_Ready(whole, batch)]
        failed = {each.ordinal: each for each in bad}
        parts: list[_Part] = []
        first = 0
        for chunk in waiting:
            stayed = [index for index in range(len(chunk)) if first + index not in failed]
            for index in range(len(chunk)):
                if first + index in failed:
                    self._bury(chunk, index, failed[first + index].reason, failed[first + index].message)
            parts.append(_Part(chunk, len(stayed), stayed))
            first += len(chunk)
        return [_Ready(parts, batch)]

    def _bury(self, chunk: Chunk, index: int, reason: str, message: str) -> None:
        assert self._step is not None, "rows that no step changed have the types of their decoder"
        self._letters.bury(self._step, chunk, index, reason, message)
        counts = self._counts[self._step]
        counts.out -= 1
        counts.dead += 1


class SinkExit:
    """Writes rows of a Batch to a sink's stream; rows that the sink can never accept become its dead letters. `unit` is the id prefix of
    rows that do not come from single records."""

    def __init__(
        self,
        node: SinkNode,
        stream: SinkStream | OriginStream,
        batch: int,
        unit: str,
        counts: Counts,
        all_counts: dict[str, Counts],
        letters: DeadLetterWriter,
        step: str | None,
        trails: Trails,
    ) -> None:
        self._node = node.node
        self._several = len(node.inputs) > 1
        self._commits = node.commit is not None
        self._stream = stream
        self._batch = batch
        self._unit = unit
        # rows that go on to another tier have not arrived yet
        self._trails = trails if trails.wanted and not takes_origins(stream) else None
        self._counts = counts
        self._letters = letters
        as_json = json_rows(node.schema, stream.json_needs or ()) if takes_json(stream) else None
        self._typed = _Typed(node.schema, step, all_counts, letters, as_json)

    def __call__(self, chunk: Chunk, way: str = "") -> None:
        """Add a chunk, which came by the input `way`; its rows may wait for others."""
        if self._several:
            chunk.way = way
        for ready in self._typed.take(chunk):
            self._write(ready)

    def flush(self) -> None:
        """Write the rows that are still waiting."""
        for ready in self._typed.rest():
            self._write(ready)

    def _write(self, ready: _Ready) -> None:
        size = ready.size
        if not size:
            return
        if takes_origins(self._stream):
            assert ready.batch is not None
            bad = self._stream.write_from(ready.batch, self._origins(ready))
        else:
            bad = self._written(self._stream, ready)
        if self._trails is not None:
            self._trails.note(self._node, self._origins(ready), {each.ordinal for each in bad})
        for each in bad:
            self._bury(ready, each)
        self._counts.rows_in += size
        self._counts.out += size - len(bad)
        self._counts.dead += len(bad)

    def _written(self, stream: SinkStream, ready: _Ready) -> Sequence[Bad]:
        ids = self._ids(ready) if stream.wants_ids else None
        if ready.json is None:
            return stream.write(ready.batch, ids)
        json: Any = stream
        lines, columns = ready.json
        found: Sequence[Bad] = json.write_json(lines, ready.size, columns, ids)
        return found

    def _ids(self, ready: _Ready) -> list[str]:
        ids: list[str] = []
        for part in ready.parts:
            known = part.chunk.ids(self._batch)
            if known is None:
                first = self._counts.rows_in + len(ids)
                ids += [f"{self._unit}/{first + index}" for index in range(part.size)]
            else:
                ids += known if part.stayed is None else [known[index] for index in part.stayed]
        return ids

    def _origins(self, ready: _Ready) -> Origins:
        found = []
        first = self._counts.rows_in
        for part in ready.parts:
            known = part.chunk.origins()
            if known is None:
                found.append(Origins.of(f"{self._unit}/", np.arange(first, first + part.size)))
            else:
                found.append(known if part.stayed is None else known.taken(part.stayed))
            first += part.size
        return Origins.joined(found)

    def _bury(self, ready: _Ready, bad: Bad) -> None:
        index = bad.ordinal
        for part in ready.parts:
            if index < part.size:
                at = index if part.stayed is None else part.stayed[index]
                self._letters.bury(self._node, part.chunk, at, bad.reason, bad.message, came=self._typed.schema)
                return
            index -= part.size

    def take(self) -> Sequence[pa.RecordBatch]:
        """The rows for Spark's own sink, if it does the writing."""
        return self._stream.take() if passes_rows_to_spark(self._stream) else ()

    def close(self) -> Receipt:
        """Make the rows durable; returns the write receipt."""
        return self._stream.close()

    def commit(self, report: Mapping[str, Any]) -> None:
        """Make the rows visible together with the report, if the task output commits by itself."""
        if self._commits:
            stream: Any = self._stream
            stream.commit(report)

    def abort(self) -> None:
        """Remove what was staged."""
        self._stream.abort()


class ArrowExit:
    """Collects Arrow rows, with the AT column if the next steps need it, in `out`, from which the task yields them."""

    def __init__(
        self,
        node: ExitNode,
        out: list[pa.RecordBatch],
        counts: Counts,
        all_counts: dict[str, Counts],
        letters: DeadLetterWriter,
        step: str | None,
    ) -> None:
        self._at = node.at
        self._branch = node.branch
        self._schema = node.schema
        self._sieve = None if node.sieve is None else compiled(node.sieve)
        self._out = out
        self._counts = counts
        self._typed = _Typed(node.schema, step, all_counts, letters)

    def __call__(self, chunk: Chunk) -> None:
        """Add a chunk; its rows may wait for others."""
        if self._sieve is not None and (structs := chunk.structs(self._schema)) is not None:
            kept = chunk.selected(self._sieve(structs))
            # they count as passed on, and as filtered by the Spark SQL step after this stage
            self._counts.out += len(chunk) - len(kept)
            chunk = kept
        if len(chunk):
            self._give(self._typed.take(chunk))

    def flush(self) -> None:
        """Convert the rows that are still waiting."""
        self._give(self._typed.rest())

    def _give(self, several: list[_Ready]) -> None:
        for ready in several:
            rows = ready.batch
            if rows is None or not rows.num_rows:
                continue
            self._counts.out += rows.num_rows
            if self._at:
                rows = rows.append_column(AT, pa.concat_arrays([_ats(part) for part in ready.parts]))
            self._out.append(rows if self._branch is None else rows.append_column(BRANCH, pa.repeat(self._branch, rows.num_rows)))


def _ats(part: _Part) -> pa.Array:
    chunk = part.chunk
    if chunk.ordinals is None:
        return pa.nulls(part.size, pa.int64())
    ordinals = chunk.ordinals if part.stayed is None else [chunk.ordinals[index] for index in part.stayed]
    first = chunk.origin.first_at
    return pa.array([first + ordinal for ordinal in ordinals], pa.int64())

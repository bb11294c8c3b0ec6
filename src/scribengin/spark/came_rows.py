"""Input rows of a step, as JSON: for the dead letters of a chunk at once, since one by one each costs as much as a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.formats.json_lines import json_lines
from scribengin.spark.chunk import Chunk, UnknownOrigin

if TYPE_CHECKING:
    from scribengin.core.types import Schema

LONGEST = 64 * 1024
_NOWHERE = UnknownOrigin()


class CameRows:
    """Rows that are no longer changed, gathered until `texts` is called; all of one kind, which `takes` checks."""

    def __init__(self) -> None:
        self._schema: Schema | None = None
        self._kind: Any = None
        """the RecordBatch in which they stand, or the form of their Structs; None before the first"""
        self._rows: list[Any] = []
        """indexes in the RecordBatch, or Structs"""

    def __len__(self) -> int:
        return len(self._rows)

    def takes(self, rows: Chunk | pa.RecordBatch, schema: Schema) -> bool:
        """Whether a row of these, which are fixed, goes with those that are there."""
        return not self._rows or (_kind(rows) is self._kind and schema is self._schema)

    def add(self, rows: Chunk | pa.RecordBatch, index: int, schema: Schema) -> None:
        """Add a row for which `takes` is true."""
        self._kind, self._schema = _kind(rows), schema
        if isinstance(rows, Chunk):
            structs = None if rows.form is None else rows.structs(rows.form.schema)
            self._rows.append(index if structs is None else structs[index])
        else:
            self._rows.append(index)

    def texts(self) -> list[str]:
        """Each as JSON, by which the same row can be had again, empty if it cannot, or is long; then there are none any more."""
        kind, schema, rows, self._rows = self._kind, self._schema, self._rows, []
        if not rows:
            return []
        assert schema is not None
        if isinstance(kind, pa.RecordBatch):
            return _texts(Chunk(_NOWHERE, None, batch=kind.take(pa.array(rows, pa.int64()))), schema)
        return _texts(Chunk(_NOWHERE, None, structs=(kind, rows)), schema)


def is_fixed(rows: Chunk | pa.RecordBatch) -> bool:
    """False for dicts: a step behind may change them."""
    return _kind(rows) is not None


def text_of(chunk: Chunk, index: int, schema: Schema) -> str:
    """One row alone, as `texts`."""
    return _texts(chunk.one(index), schema)[0]


def _kind(rows: Chunk | pa.RecordBatch) -> Any:
    if not isinstance(rows, Chunk):
        return rows
    return rows.arrow if rows.form is None else rows.form


def _texts(rows: Chunk, schema: Schema) -> list[str]:
    try:
        batch, bad = rows.batch(schema)
        lines = [] if bad else json_lines(batch).split(b"\n")[:-1]
    except Exception:  # a value of the user's own that no column can hold
        lines = []
    if len(lines) == len(rows):
        return [line.decode() if len(line) <= LONGEST else "" for line in lines]
    if len(rows) == 1:
        return [""]
    return [text for index in range(len(rows)) for text in _texts(rows.one(index), schema)]

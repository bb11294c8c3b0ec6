"""Requests of one task output in a file of the state folder, already split as they will be sent: an Arrow stream with a checksum and one
batch per request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.http.options import TEMPLATE
from scribengin.connectors.staged_file import StagedFile, open_staged
from scribengin.core import faults
from scribengin.core.storage import explained
from scribengin.formats.contract import Bad
from scribengin.formats.json_out import json_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import Receipt

_FORM = pa.schema([("of", pa.string()), ("url", pa.string()), ("doc", pa.binary())])
"""for each row: its origin; its address, null if all rows have the same; the row as a JSON object"""


@dataclass(frozen=True, slots=True)
class RequestCut:
    """How rows are split into requests: the address, and the maximum number of rows and bytes in a request."""

    url: str
    rows: int
    bytes: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in the address."""
        return tuple(dict.fromkeys(TEMPLATE.findall(self.url)))


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """Consecutive rows of a task output in one request. `first` is the position of its first row in the task output."""

    unit: int
    first: int
    made_of: pa.StringArray
    url: str | None
    docs: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.docs)

    def halves(self) -> tuple[RowsRequest, RowsRequest]:
        """The two halves of the request. They are always the same, and so are their keys."""
        half = len(self) // 2
        first = RowsRequest(self.unit, self.first, self.made_of[:half], self.url, self.docs[:half])
        return first, RowsRequest(self.unit, self.first + half, self.made_of[half:], self.url, self.docs[half:])


class StagedRequests:
    """A stream that stages requests; see the contract. No file is created before the first row."""

    wants_ids = True

    def __init__(self, sink: str, folder: Path, unit: int, attempt: str, cut: RequestCut) -> None:
        self.json_needs: tuple[str, ...] | None = cut.columns
        self._sink = sink
        self._folder = folder
        self._cut = cut
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._file = StagedFile(folder, unit, attempt, _FORM)

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Stage the rows. Rows whose values do not give a valid address are refused."""
        if not batch.num_rows:
            return ()
        return self._stage(json_lines(batch), {name: batch.column(name) for name in self._cut.columns}, ids)

    def write_json(self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Stage rows in JSON form."""
        return self._stage(lines, columns, ids) if rows else ()

    def close(self) -> Receipt:
        """Make the file durable, and return the write receipt."""
        with explained(self._doing):
            if self._held_rows:
                self._flush(everything=True)
            return self._file.close(self._sink)

    def abort(self) -> None:
        """Delete the file."""
        self._file.abort()

    @property
    def _doing(self) -> str:
        return f'sink "{self._sink}" cannot stage in {self._folder}; no row of the batch is sent, and the batch is run again'

    def _stage(self, lines: bytes, columns: Mapping[str, pa.Array], made_of: Sequence[str] | None) -> Sequence[Bad]:
        assert made_of is not None, "the sink requires ids"
        refused: list[Bad] = []
        docs = pa.array(lines.splitlines(), pa.binary())
        urls = pa.array(addresses(self._cut, columns, refused), pa.string()) if self._cut.columns else pa.nulls(len(docs), pa.string())
        batch = pa.RecordBatch.from_arrays([pa.array(made_of, pa.string()), urls, docs], schema=_FORM)
        if refused:
            batch = batch.filter(pc.is_valid(urls))
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += len(lines)
        if self._held_rows >= self._cut.rows or self._held_bytes >= self._cut.bytes:
            with explained(self._doing):
                self._flush(everything=False)
        faults.reached("stage.mid_write")
        return refused

    def _flush(self, *, everything: bool) -> None:
        """Write complete requests. The rest is kept, or also written if `everything` is set."""
        rows = pa.Table.from_batches(self._held).combine_chunks().to_batches()[0] if self._held_rows else self._held[0]
        ends = np.cumsum(pc.binary_length(rows.column(2)).to_numpy(zero_copy_only=False), dtype=np.int64)
        first, before = 0, 0
        while first < rows.num_rows:
            fits = int(np.searchsorted(ends, before + self._cut.bytes, side="right"))
            end = max(first + 1, min(fits, first + self._cut.rows))  # a row that is too large is sent alone
            if end == rows.num_rows and end - first < self._cut.rows and not everything:
                break
            self._file.write(rows.slice(first, end - first))
            first, before = end, int(ends[end - 1])
        rest = rows.slice(first)
        self._held = [rest] if rest.num_rows else []
        self._held_rows, self._held_bytes = rest.num_rows, int(ends[-1]) - before if rest.num_rows else 0


def addresses(cut: RequestCut, columns: Mapping[str, pa.Array], refused: list[Bad]) -> Iterator[str | None]:
    """The address of each row, with escaped values; None if a value is not a valid part of a path. The error is then added to `refused`.

    Args:
        cut: How rows are split, with the address.
        columns: The columns that the address names.
        refused: Receives the error of each row without a valid address.
    """
    texts = [pc.cast(columns[name], pa.string()).to_pylist() for name in cut.columns]
    for ordinal, values in enumerate(zip(*texts, strict=True)):
        wrong = next(((name, value) for name, value in zip(cut.columns, values, strict=True) if value in (None, "", ".", "..")), None)
        if wrong is not None:
            shown = "null" if wrong[1] is None else f'"{wrong[1]}"'
            refused.append(Bad(ordinal, "url-value", f'the column "{wrong[0]}" is {shown}, which does not give a valid address in `url`'))
            yield None
            continue
        given = dict(zip(cut.columns, (quote(value, safe="") for value in values), strict=True))
        yield TEMPLATE.sub(lambda found, given=given: given[found.group(1)], cut.url)  # type: ignore[misc]


def read_requests(folder: Path, segment: Mapping[str, Any], unit: int, sink: str) -> Iterator[RowsRequest]:
    """The requests of a segment, in order. Raises StateError if the file is missing, truncated or changed.

    Args:
        folder: The folder of the Batch.
        segment: The segment, from a write receipt.
        unit: The number of the task output.
        sink: The id of the sink, for messages.
    """
    first = 0
    with open_staged(folder, segment, sink) as reader:
        for batch in reader:
            of, urls, docs = batch.columns
            yield RowsRequest(unit, first, of, urls[0].as_py(), docs)
            first += batch.num_rows

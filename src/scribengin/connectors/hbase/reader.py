"""The driver's side of the source: which ranges of row keys are read next.

The table is read in row key order; regions may split and move meanwhile. A range ends with a row. Its number of rows and a digest of them
are logged: whoever reads the range later compares them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Backlog, SourceStream
from scribengin.connectors.hbase.gateway import ValueRow
from scribengin.connectors.hbase.scan import HBaseScan, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.contract import BatchLimits
    from scribengin.connectors.hbase.gateway import Gateway
    from scribengin.connectors.hbase.table import ExpectedTable, HBaseDigest


class TableReader:
    """One per source and Query; used by one thread."""

    def __init__(self, cluster: Gateway, wanted: ExpectedTable, options: Mapping[str, Any]) -> None:
        self._wanted = wanted
        self._compares = options["on_change"] == "stop"
        self._max_rows: int = options["max_rows"]
        self._split: int = options["split"]
        self._scan = HBaseScan(
            cluster,
            wanted.table,
            ValueRow,
            page=options["page"],
            columns=wanted.columns,
            part="all" if self._compares and wanted.cells else "first",
        )
        self._after = b""
        self._done = False

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Continue after the restored entries."""
        for streams in entries:
            for stream in streams:
                self._after, self._done = b64decode(stream.place["upto"]), stream.place["last"]

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (nothing is waited for)
        """The next ranges. Raises SourceError if the table does not exist any more, Unreachable if the cluster is unavailable."""
        if self._done:
            return []
        streams = list(self._ranges(min(self._max_rows, limits.max_rows or self._max_rows)))
        self._done = not streams or streams[-1].place["last"]
        return streams

    def backlog(self) -> Backlog:
        """Empty when all rows are read; unknown before that: HBase does not count rows."""
        return Backlog(rows=0 if self._done else None)

    def notices(self) -> list[str]:
        """Returns no notices."""
        return []

    def _ranges(self, most: int) -> Iterator[SourceStream]:
        """Ranges of at most that many rows; a range is complete when the next row, or the end of the table, was seen."""
        rows, taken, last = 0, 0, self._after
        digest = self._wanted.digest()
        for page in self._scan.pages(self._after, rows=most + 1):
            at = 0
            while at < len(page):
                room = min(self._split, most - taken) - rows
                if not room:
                    yield self._range(last, rows, digest, is_last=False)
                    taken += rows
                    if taken >= most:
                        return
                    rows, digest = 0, self._wanted.digest()
                    continue
                part = page[at : at + room]
                if self._compares:
                    digest.add(part)
                rows, last, at = rows + len(part), part[-1].key, at + len(part)
        if rows:
            yield self._range(last, rows, digest, is_last=True)

    def _range(self, upto: bytes, rows: int, digest: HBaseDigest, *, is_last: bool) -> SourceStream:
        place = {
            "after": b64encode(self._after).decode(),
            "upto": b64encode(upto).decode(),
            "digest": digest.text if self._compares else None,
            "last": is_last,
        }
        label = f"{self._wanted.table}[{shown(self._after)} to {shown(upto)}]"
        self._after = upto
        return SourceStream(label, place, rows=rows)

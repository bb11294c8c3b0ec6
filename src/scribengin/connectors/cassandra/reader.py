"""The driver's side of the source: which ranges of tokens come next.

The table is gone through in the order of tokens. A range ends where it has enough rows, behind a whole partition. It is logged with how
many rows it has and a digest of them: whoever reads it later looks whether they are still the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scribengin.connectors.cassandra.table import LEAST_TOKEN, MOST_TOKEN, CassandraDigest
from scribengin.connectors.contract import Backlog, SourceStream
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.cassandra.client import CassandraCluster
    from scribengin.connectors.cassandra.table import CassandraScan, CassandraTable
    from scribengin.connectors.contract import BatchLimits

_INSTEAD = f"restore it; or say on_change: ignore to go on with what is there now, at least once; or {start_over()}"


def changed(cluster: CassandraCluster, what: str, how: str) -> Exception:
    """What was handed out once cannot be handed out again."""
    return cluster.error(f"{what} changed after it was taken, and is not yet committed: {how}", _INSTEAD, "cassandra-changed")


class CassandraReader:
    """One per source and Query; used by one thread. `scan` reads what the tasks will, or the tokens alone where nothing is compared."""

    def __init__(self, cluster: CassandraCluster, table: CassandraTable, scan: CassandraScan, options: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._table = table
        self._scan = scan
        self._compares = options["on_change"] == "stop"
        self._max_rows: int = options["max_rows"]
        self._split: int = options["split"]
        self._after = LEAST_TOKEN
        self._read_id: str | None = None
        """the table that `_after` was read of"""
        self._rows = 0
        self._done = False

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Go on behind what was handed out."""
        for streams in entries:
            for stream in streams:
                self._after, self._read_id = stream.place["upto"], stream.place["table"]
                self._rows += stream.rows or 0

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (nothing is waited for)
        """The next ranges. Raises SourceError where it is another table than before, Unreachable where the cluster is away."""
        if self._done or self._after == MOST_TOKEN:
            return []
        if self._compares and self._read_id not in (None, self._table.id):
            raise self._cluster.error(
                f"{self._table} changed while it was read: it is another table by that name",
                _INSTEAD,
                "cassandra-changed",
            )
        streams = list(self._ranges(min(self._max_rows, limits.max_rows or self._max_rows)))
        self._done = not streams
        return streams

    def backlog(self) -> Backlog:
        """About so many as the tokens that are left have, if all have as many as those before; nothing before the first."""
        if self._done or self._after == MOST_TOKEN:
            return Backlog(rows=0)
        if self._after == LEAST_TOKEN:
            return Backlog(rows=None)
        return Backlog(rows=self._rows * (MOST_TOKEN - self._after) // (self._after - LEAST_TOKEN))

    def notices(self) -> list[str]:
        """None."""
        return []

    def _ranges(self, most: int) -> Iterator[SourceStream]:
        """Of so many rows together, but for the last partition."""
        rows, taken = 0, 0
        digest = CassandraDigest()
        last = self._after
        for page in self._scan.pages(self._after, MOST_TOKEN):
            tokens = np.frombuffer(b"".join(row[0] or b"" for row in page), ">i8")
            at = 0
            while at < len(page):
                room = min(self._split, most - taken) - rows
                if room >= len(page) - at:
                    end = len(page)
                else:
                    token = tokens[at + room - 1] if room > 0 else last
                    end = at + int(np.searchsorted(tokens[at:], token, "right"))
                if end > at:
                    if self._compares:
                        digest.add(page[at:end])
                    rows, last, at = rows + end - at, int(tokens[end - 1]), end
                if at < len(page) and rows:  # another partition follows
                    yield self._range(last, rows, digest)
                    taken += rows
                    if taken >= most:
                        return
                    rows, digest = 0, CassandraDigest()
        if rows or self._after != LEAST_TOKEN:
            yield self._range(MOST_TOKEN, rows, digest)

    def _range(self, upto: int, rows: int, digest: CassandraDigest) -> SourceStream:
        place = {"table": self._table.id, "after": self._after, "upto": upto, "digest": digest.text if self._compares else None}
        label = f"{self._table}[{self._after} to {upto}]"
        self._after, self._rows, self._read_id = upto, self._rows + rows, self._table.id
        return SourceStream(label, place, rows=rows)

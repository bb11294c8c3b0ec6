"""The source: creates the reader for the driver, and reads blocks of rows on executors, in token order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.cassandra.client import CassandraCluster
from scribengin.connectors.cassandra.options import SOURCE
from scribengin.connectors.cassandra.table import LEAST_TOKEN, MOST_TOKEN, CassandraDigest, CassandraScan, columns_of, describe
from scribengin.connectors.contract import Backlog, SourceStream
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.cassandra.table import CassandraTable
    from scribengin.connectors.contract import BatchLimits, ConnectorContext
    from scribengin.core.types import Schema
    from scribengin.formats.table_blocks import TableBlock, TableDecoder


# The driver's part of the source determines the next token ranges to read.
#
# The table is read in token order. A range ends after a whole partition, when it has enough rows. The number of its rows and a digest of
# them are logged; a task that reads the range compares both.


_INSTEAD = f"restore it; or, to continue with the current data at least once, set on_change: ignore; or {start_over()}"


def changed(cluster: CassandraCluster, what: str, how: str) -> Exception:
    """The error for rows that were assigned to a Batch and cannot be read again unchanged.

    Args:
        cluster: The cluster, for the message.
        what: What cannot be read again.
        how: How it differs.
    """
    return cluster.error(f"{what} changed after it was assigned to a Batch that is not yet committed: {how}", _INSTEAD, "cassandra-changed")


class CassandraReader:
    """The reader of a source and query; used by one thread. `scan` reads the columns that the tasks will read, or only the tokens if no
    digest is compared."""

    def __init__(self, cluster: CassandraCluster, table: CassandraTable, scan: CassandraScan, options: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._table = table
        self._scan = scan
        self._compares = options["on_change"] == "stop"
        self._max_rows: int = options["max_rows"]
        self._split: int = options["split"]
        self._after = LEAST_TOKEN
        self._read_id: str | None = None
        """the id of the table that `_after` refers to"""
        self._rows = 0
        self._done = False

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Continue after the restored entries."""
        for streams in entries:
            for stream in streams:
                self._after, self._read_id = stream.place["upto"], stream.place["table"]
                self._rows += stream.rows or 0

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (nothing is waited for)
        """The next ranges. Raises SourceError if the table was replaced by another one, Unreachable if the cluster is unavailable."""
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
        """Estimate the number of remaining rows from the remaining tokens and the density of the rows read so far; None before the first
        range."""
        if self._done or self._after == MOST_TOKEN:
            return Backlog(rows=0)
        if self._after == LEAST_TOKEN:
            return Backlog(rows=None)
        return Backlog(rows=self._rows * (MOST_TOKEN - self._after) // (self._after - LEAST_TOKEN))

    def notices(self) -> list[str]:
        """Returns no notices."""
        return []

    def _ranges(self, most: int) -> Iterator[SourceStream]:
        """Ranges with at most `most` rows in total, plus the rest of the last partition."""
        import numpy as np

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


class CassandraSource:
    """A table as a source; picklable."""

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = place.schema
        self._options = SOURCE.filled(place.options)
        self._cluster = CassandraCluster(place.node, self._options, "source")
        self._compares = self._options["on_change"] == "stop"
        self._known: Schema | None = None

    def resolve_schema(self) -> Schema:
        """The declared columns, or those of the table. Raises SourceError if the table does not exist or does not match the declared
        columns; Unreachable if the cluster does not answer."""
        if self._known is None:
            self._known = columns_of(self._cluster, self._describe(), self.schema)
        return self._known

    def reader(self) -> CassandraReader:
        """A new reader. Raises as `resolve_schema`."""
        table = self._describe()
        schema = columns_of(self._cluster, table, self.schema)
        return CassandraReader(self._cluster, table, self._scan(table, schema if self._compares else None), self._options)

    def decoder(self) -> TableDecoder:
        """A decoder for typed rows, which only reports the values that did not fit."""
        from scribengin.formats.table_blocks import TableDecoder

        return TableDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[TableBlock]:
        """The rows of the range. Raises SourceError after the last row if they differ from the logged ones."""
        from scribengin.connectors.cassandra.rows import CassandraRowParser

        place, rows, digest = stream.place, 0, CassandraDigest()
        table = self._describe()
        schema = columns_of(self._cluster, table, self.schema)
        scan = self._scan(table, schema)
        parser = CassandraRowParser(str(table), schema, table.columns, scan.types()[1:])
        for page in scan.pages(place["after"], place["upto"]):
            if self._compares:
                digest.add(page)
            rows += len(page)
            yield parser.block(page)
        if self._compares and digest.text != place["digest"]:
            how = (
                f"found {rows} rows, expected {stream.rows}"
                if rows != stream.rows
                else "the number of rows is the same, but the rows differ"
            )
            raise changed(self._cluster, stream.label, how)

    def _describe(self) -> CassandraTable:
        return describe(self._cluster, self._options["keyspace"], self._options["table"])

    def _scan(self, table: CassandraTable, schema: Schema | None) -> CassandraScan:
        return CassandraScan(self._cluster, table, schema.names if schema else (), self._options["page"])

"""The source: options become a reader (driver) and blocks of rows (executors), which COPY returns in key order."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres.client import PostgresServer, driver
from scribengin.connectors.postgres.options import SOURCE
from scribengin.connectors.postgres.reader import OURS, PostgresReader, oldest_running
from scribengin.connectors.postgres.table import columns_of, describe
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection

    from scribengin.connectors.contract import ConnectorContext, SourceStream
    from scribengin.connectors.postgres.table import PostgresTable
    from scribengin.core.types import Schema
    from scribengin.formats.table_blocks import TableBlock, TableDecoder

_BLOCK_BYTES = 1 << 20
_ALONE = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresSource:
    """One table; picklable."""

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = place.schema
        self._options = SOURCE.filled(place.options)
        self._server = PostgresServer(place.node, self._options, "source")
        self._table: str = self._options["table"]
        self._compares = self._options["on_change"] == "stop"
        self._known: Schema | None = None

    def resolve_schema(self) -> Schema:
        """The declared columns, or the table's. Raises SourceError if the table does not exist or does not match the declared columns;
        Unreachable if the server does not answer."""
        if self._known is None:
            with self._server.connected("did not return its columns") as connection:
                self._known = columns_of(self._server, self._table, self._describe(connection), self.schema)
        return self._known

    def reader(self) -> PostgresReader:
        """A fresh reader. Raises as `resolve_schema`."""
        with self._server.connected("cannot be read") as connection:
            table = self._describe(connection)
            columns_of(self._server, self._table, table, self.schema)
        return PostgresReader(self._server, table, self._options)

    def decoder(self) -> TableDecoder:
        """A decoder for typed rows: it only reports values that did not fit."""
        from scribengin.formats.table_blocks import TableDecoder

        return TableDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[TableBlock]:
        """The rows of the range. Raises SourceError after the last row if they differ from the logged ones."""
        from scribengin.connectors.postgres.rows import PostgresRowParser, written_since

        place, rows = stream.place, 0
        with self._server.connected("cannot be read") as connection, self._as_of(connection, place) as is_same:
            table = self._describe(connection)
            schema = columns_of(self._server, self._table, table, self.schema)
            changed = table.oid != place["table"]
            compares = self._compares and not is_same
            parser = PostgresRowParser(self._table, schema, with_xmin=compares)
            oldest, now = oldest_running(place["as_of"]), _next_transaction(connection) if compares else 0
            where, bounds = table.between(place["after"], place["upto"])
            what = table.selected(schema) + (", xmin" if compares else "")
            query = f"COPY (SELECT {what} FROM {table.quoted} WHERE {where} ORDER BY {table.key}) TO STDOUT (FORMAT csv)"
            for data in _pieces(connection, query, bounds):
                block, xmin = parser.block(data)
                rows += len(block)
                changed = changed or (xmin is not None and written_since(xmin, oldest, now))
                yield block
        if self._compares and (changed or rows != stream.rows):
            found = f"found {rows} rows, expected {stream.rows}" if rows != stream.rows else "rows were written since then"
            raise self._server.error(
                f"{self._server.called}: {stream.label} changed after it was assigned to a Batch that is not yet committed: {found}",
                f"restore it; or, to continue with the current data at least once, set on_change: ignore; or {start_over()}",
                "postgres-changed",
            )

    @contextmanager
    def _as_of(self, connection: Connection[Any], place: Any) -> Iterator[bool]:
        """Import the snapshot that the reader had when it made the range, if that transaction still holds it; returns whether it did."""
        is_same = False
        if place["shared"] is not None:
            try:
                connection.execute(_ALONE)
                connection.execute(f"SET TRANSACTION SNAPSHOT '{place['shared']}'")
                found = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
                is_same = found is not None and found[0] == place["as_of"]  # names repeat after a restart of the server
            except driver().OperationalError:
                raise
            except driver().Error:
                pass  # its holder has ended
            if not is_same:
                connection.execute("ROLLBACK")
        if not is_same:
            connection.execute(_ALONE)
        connection.execute(f"SELECT pg_advisory_xact_lock_shared({OURS})")
        yield is_same

    def _describe(self, connection: Connection[Any]) -> PostgresTable:
        options = self._options
        return describe(connection, self._server, self._table, options["by"], options["key"])


def _next_transaction(connection: Connection[Any]) -> int:
    found = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").fetchone()
    return int(found[0]) if found else 0


def _pieces(connection: Connection[Any], query: str, bounds: list[str]) -> Iterator[bytes]:
    """The output of COPY, whole rows, about a block at a time."""
    parts: list[Any] = []
    size = 0
    with connection.cursor() as cursor, cursor.copy(query, bounds) as copy:
        for row in copy:
            parts.append(row)
            size += len(row)
            if size >= _BLOCK_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)

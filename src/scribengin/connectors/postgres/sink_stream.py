"""One unit's writes: a staging table of its own, which no other attempt knows, filled by COPY."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Receipt
from scribengin.connectors.postgres.binary import as_binary
from scribengin.connectors.postgres.client import driver, quoted
from scribengin.connectors.postgres.columns import as_csv, made
from scribengin.core import faults
from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from psycopg import Connection

    from scribengin.connectors.contract import BatchId
    from scribengin.connectors.postgres.client import Server
    from scribengin.connectors.postgres.commits import Commits
    from scribengin.core.types import Schema

_DATA = ("22", "23", "54")
"""classes of SQLSTATE that a row is at fault for: a value that does not fit, a rule of the table that it breaks, a row that is too large"""

_TYPES = (
    "SELECT attname, typname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid AND typnamespace = 'pg_catalog'::regnamespace "
    "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)
_CHANGE = "text NOT NULL CONSTRAINT \"a change is insert, update or delete\" CHECK (lower({}) IN ('insert', 'update', 'delete'))"


@dataclass(frozen=True, slots=True)
class Target:
    """The table, and how rows of it are told apart."""

    schema: str
    name: str
    key: tuple[str, ...] = ()
    change: str | None = None

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """For PostgreSQL's parser."""
        return quoted(self.schema, self.name)


class PostgresSinkStream:
    """See the contract. The staging table is made at the first row, and the table itself where it is not there."""

    wants_ids = False

    def __init__(
        self, sink: str, server: Server, commits: Commits, target: Target, batch: BatchId, unit: int, attempt: str, schema: Schema
    ) -> None:
        self._sink = sink
        self._server = server
        self._commits = commits
        self._target = target
        self._batch = batch
        self._unit = unit
        # sinks that commit together have the attempt in common; and a name may be 63 bytes long
        whose = blake2b(f"{target} {batch.lineage} {attempt}".encode(), digest_size=12).hexdigest()
        self._name = f"rows_{batch.number}_{unit}_{whose}"
        self._schema = schema
        self._rows = 0
        self._bytes = 0
        self._connection: Connection[Any] | None = None
        columns = ", ".join(quoted(name) for name in schema.names)
        self._copy = f"COPY {quoted(commits.schema, self._name)} ({columns}) FROM STDIN"
        self._types: dict[str, str] = {}
        """column of the staging table → its type's name"""

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Stage the rows. Those are refused that the table's types and rules do not take, as the server words it."""
        if not batch.num_rows:
            return ()
        connection = self._begun()
        refused: list[Bad] = []
        try:
            self._stage(connection, batch, 0, refused)
        except driver().Error as error:
            raise self._server.fault(error, f"did not take rows for {self._target}") from error
        faults.reached("stage.mid_write")
        return sorted(refused, key=lambda bad: bad.ordinal)

    def close(self) -> Receipt:
        """Make the rows durable: a commit that the server waits for brings all that were before it to its disk."""
        if self._connection is None:
            return Receipt(self._sink, self._unit, 0, 0)
        try:
            self._commits.confirm(self._connection, self._name)
        except driver().Error as error:
            raise self._server.fault(error, f"did not keep rows for {self._target}") from error
        self._connection.close()
        segment = {"staged": self._name, "rows": self._rows, "columns": list(self._schema.names)}
        return Receipt(self._sink, self._unit, self._rows, self._bytes, (segment,) if self._rows else ())

    def abort(self) -> None:
        """Remove what was staged."""
        if self._connection is None:
            return
        with suppress(driver().Error):
            self._commits.drop_staged(self._connection, "AND name = %s", (self._name,))
        self._connection.close()

    def _begun(self) -> Connection[Any]:
        if self._connection is not None:
            return self._connection
        connection = self._server.connect()
        target, staged = self._target, quoted(self._commits.schema, self._name)
        try:
            with connection.transaction():
                self._make(connection)
                self._commits.stage(connection, self._name, self._batch.lineage, self._batch.number)
                connection.execute(f"CREATE TABLE {staged} (LIKE {target.quoted} INCLUDING CONSTRAINTS INCLUDING DEFAULTS)")
                if target.change is not None:
                    self._take_changes(connection, staged, quoted(target.change))
                self._types = dict(connection.execute(_TYPES, (staged,)).fetchall())
        except driver().Error as error:
            connection.close()
            raise self._server.fault(error, f"has no room to stage rows for {target}") from error
        self._connection = connection
        return connection

    def _take_changes(self, connection: Connection[Any], staged: str, change: str) -> None:
        """The column that says the change; and of a row that is to be deleted the key is enough."""
        connection.execute(f"ALTER TABLE {staged} ADD COLUMN {change} {_CHANGE.format(change)}")
        found = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnotnull AND attnum > 0 AND NOT attisdropped",
            (self._target.quoted,),
        )
        for (name,) in found.fetchall():
            if name not in self._target.key:
                column, rule = quoted(name), quoted(f"{name} is given unless the row is deleted"[:63])
                connection.execute(f"ALTER TABLE {staged} ALTER COLUMN {column} DROP NOT NULL")
                connection.execute(f"ALTER TABLE {staged} ADD CONSTRAINT {rule} CHECK (lower({change}) = 'delete' OR {column} IS NOT NULL)")

    def _make(self, connection: Connection[Any]) -> None:
        """The table itself, where it is not there. One that is there was compared with the columns before the run."""
        target = self._target
        there = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (target.quoted,)).fetchone()
        if there and there[0]:
            return
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"scribengin {target}",))
        connection.execute(f"CREATE TABLE IF NOT EXISTS {target.quoted} ({made(self._schema, target.key, without=target.change)})")

    def _stage(self, connection: Connection[Any], batch: pa.RecordBatch, first: int, refused: list[Bad]) -> None:
        """All rows in one COPY; where one is refused, each half by itself."""
        data, form = as_binary(batch, self._types), "binary"
        if data is None:
            data, form = as_csv(batch), "csv"
        try:
            with connection.transaction(), connection.cursor() as cursor:
                # nobody waits for this commit alone; for the transaction only, as a pool may give the session to others
                cursor.execute("SET LOCAL synchronous_commit = off")
                with cursor.copy(f"{self._copy} (FORMAT {form})") as copy:
                    copy.write(data)
        except driver().Error as error:
            state = error.sqlstate or ""
            if not state.startswith(_DATA):
                raise
            if batch.num_rows == 1:
                refused.append(Bad(first, "refused", _words(error, self._target)))
                return
            half = batch.num_rows // 2
            self._stage(connection, batch.slice(0, half), first, refused)
            self._stage(connection, batch.slice(half), first + half, refused)
            return
        self._rows += batch.num_rows
        self._bytes += len(data)


def _words(error: Any, target: Target) -> str:
    said = " ".join(str(error.diag.message_primary or error).split()).replace(error.diag.table_name or "\0", target.name)
    column = f' (column "{error.diag.column_name}")' if error.diag.column_name else ""
    return f"{target} does not take it: {said}{column}"

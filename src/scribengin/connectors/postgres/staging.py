"""A staging table, made like the target; and COPY, which fills it, or the target itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres.binary import as_binary
from scribengin.connectors.postgres.client import driver, quoted
from scribengin.connectors.postgres.columns import as_csv
from scribengin.connectors.sql.contract import NotTaken

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import Connection

    from scribengin.connectors.sql.contract import Target
    from scribengin.core.types import Schema

_DATA = ("22", "23", "54")
"""classes of SQLSTATE that a row is at fault for: a value that does not fit, a rule of the table that it breaks, a row that is too large"""

_TYPES = (
    "SELECT attname, typname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid AND typnamespace = 'pg_catalog'::regnamespace "
    "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)
_CHANGE = "text NOT NULL CONSTRAINT \"a change is insert, update or delete\" CHECK (lower({}) IN ('insert', 'update', 'delete'))"


class PostgresStaging:
    """See `Staging`. Made in the transaction that this is called in."""

    def __init__(self, connection: Connection[Any], place: str, target: Target, schema: Schema) -> None:
        like = quoted(*target.names)
        connection.execute(f"CREATE TABLE {place} (LIKE {like} INCLUDING CONSTRAINTS INCLUDING DEFAULTS)")
        if target.change is not None:
            _take_changes(connection, place, like, target, quoted(target.change))
        self._connection = connection
        self._copying = Copying(connection, place, target, schema)

    def put(self, batch: pa.RecordBatch) -> int:
        """By one COPY, in a transaction of its own."""
        with self._connection.transaction():
            # nobody waits for this commit alone; for the transaction only, as a pool may give the session to others
            self._connection.execute("SET LOCAL synchronous_commit = off")
            return self._copying.put(batch)


class Copying:
    """See `Staging`. COPY into the table `place`, in whatever transaction is open."""

    def __init__(self, connection: Connection[Any], place: str, target: Target, schema: Schema) -> None:
        self._connection = connection
        self._table = target.names[-1]
        self._types: dict[str, str] = dict(connection.execute(_TYPES, (place,)).fetchall())
        """column → its type's name"""
        columns = ", ".join(quoted(name) for name in schema.names)
        self._copy = f"COPY {place} ({columns}) FROM STDIN"

    def put(self, batch: pa.RecordBatch) -> int:
        """By one COPY."""
        data, form = as_binary(batch, self._types), "binary"
        if data is None:
            data, form = as_csv(batch), "csv"
        try:
            with self._connection.cursor() as cursor, cursor.copy(f"{self._copy} (FORMAT {form})") as copy:
                copy.write(data)
        except driver().Error as error:
            if (error.sqlstate or "").startswith(_DATA):
                raise NotTaken(self._words(error)) from error
            raise
        return len(data)

    def _words(self, error: Any) -> str:
        said = " ".join(str(error.diag.message_primary or error).split()).replace(error.diag.table_name or "\0", self._table)
        return said + (f' (column "{error.diag.column_name}")' if error.diag.column_name else "")


def _take_changes(connection: Connection[Any], place: str, like: str, target: Target, change: str) -> None:
    """The column that says the change; and of a row that is to be deleted the key is enough."""
    connection.execute(f"ALTER TABLE {place} ADD COLUMN {change} {_CHANGE.format(change)}")
    found = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnotnull AND attnum > 0 AND NOT attisdropped", (like,)
    )
    for (name,) in found.fetchall():
        if name not in target.key:
            column, rule = quoted(name), quoted(f"{name} is given unless the row is deleted"[:63])
            connection.execute(f"ALTER TABLE {place} ALTER COLUMN {column} DROP NOT NULL")
            connection.execute(f"ALTER TABLE {place} ADD CONSTRAINT {rule} CHECK (lower({change}) = 'delete' OR {column} IS NOT NULL)")

"""A staging table with the columns of the target; and COPY, which fills it, or the target itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres.binary import as_binary
from scribengin.connectors.postgres.client import driver, quoted
from scribengin.connectors.postgres.columns import as_csv
from scribengin.connectors.postgres.table import columns_there
from scribengin.connectors.postgres.types import changed
from scribengin.connectors.sql.contract import NotTaken

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from psycopg import Connection

    from scribengin.connectors.sql.contract import Target
    from scribengin.core.types import Schema

_DATA = ("22", "23", "54")
"""SQLSTATE classes of errors caused by a row: a value that does not fit, a constraint that it violates, a row that is too large"""

_COLUMNS = """
SELECT attname, attnotnull, attgenerated <> '', pg_get_expr(adbin, adrelid) IS NULL OR pg_get_expr(adbin, adrelid) LIKE 'nextval(%%'
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_RULES_OF = """
SELECT DISTINCT conname FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
WHERE conrelid = to_regclass(%s) AND contype = 'c' AND attname = ANY (%s)
"""
_PARTITIONS = """
SELECT pg_get_partition_constraintdef(relid), pg_get_expr(relpartbound, relid) = 'DEFAULT' AND parentrelid = to_regclass(%s)
FROM pg_partition_tree(to_regclass(%s)) JOIN pg_class ON pg_class.oid = relid WHERE isleaf
"""
_PARTED_BY = """
SELECT attname FROM pg_partitioned_table JOIN pg_attribute ON attrelid = partrelid AND attnum = ANY (partattrs)
WHERE partrelid IN (SELECT relid FROM pg_partition_tree(to_regclass(%s)) UNION SELECT pg_partition_ancestors(to_regclass(%s)))
"""
_MOST_PARTITIONS = 200
"""the constraint that each change is checked against"""
_CHANGE = "text NOT NULL CONSTRAINT \"a change is insert, update or delete\" CHECK (lower({}) IN ('insert', 'update', 'delete'))"


class PostgresStaging:
    """See `Staging`. Created in the current transaction."""

    def __init__(self, connection: Connection[Any], place: str, target: Target, schema: Schema) -> None:
        like = quoted(*target.names)
        connection.execute(f"CREATE TABLE {place} (LIKE {like} INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING GENERATED)")
        found = connection.execute(_COLUMNS, (like,)).fetchall()
        # columns that the flow does not have are filled in by the server when the rows are moved: by a default, an identity, a trigger
        left = [name for name, asked, generated, _ in found if name not in schema.names and (asked or not generated)]
        blank = [name for name, _, generated, empty in found if name in left and empty and not generated]
        may_lack = [name for name, asked, generated, _ in found if asked and name in left and (not generated or target.change is not None)]
        _leave_out(connection, place, may_lack, blank)
        if target.change is not None:
            asked = [name for name, asked, *_ in found if asked and name in schema.names]
            _take_changes(connection, place, target, quoted(target.change), asked)
        _take_partitions(connection, place, like, schema)
        self._connection = connection
        self._copying = Copying(connection, place, target, schema)

    def put(self, batch: pa.RecordBatch) -> int:
        """By one COPY, in a transaction of its own."""
        self._copying.check(batch)
        with self._connection.transaction():
            # nothing waits for this commit alone; only for this transaction, because a pool may give the session to others
            self._connection.execute("SET LOCAL synchronous_commit = off")
            return self._copying.copy(batch)


class Copying:
    """See `Staging`. COPY into the table `place`, in the current transaction."""

    def __init__(self, connection: Connection[Any], place: str, target: Target, schema: Schema) -> None:
        self._connection = connection
        self._table = target.names[-1]
        found = connection.execute("SELECT to_regclass(%s)::oid", (place,)).fetchone()
        self._columns = columns_there(connection, found[0] if found else 0)
        self._types = {name: column.base for name, column in self._columns.items() if column.is_plain}
        columns = ", ".join(quoted(name) for name in schema.names)
        self._copy = f"COPY {place} ({columns}) FROM STDIN"

    def put(self, batch: pa.RecordBatch) -> int:
        """By one COPY."""
        self.check(batch)
        return self.copy(batch)

    def check(self, batch: pa.RecordBatch) -> None:
        """Raises NotTaken if the server would silently change a value of a row."""
        import pyarrow.compute as pc

        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            column = self._columns.get(name)
            unlike = None if column is None else changed(values, column.base, column.modifier)
            if column is not None and unlike is not None and pc.any(unlike).as_py():
                value = values.filter(unlike)[0].as_py()
                raise NotTaken(f'"{value}" does not fit into {column.type} unchanged (column "{name}")')

    def copy(self, batch: pa.RecordBatch) -> int:
        """Without a check of the values."""
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


def _take_changes(connection: Connection[Any], place: str, target: Target, change: str, asked: Sequence[str]) -> None:
    """Add the column of the change; a row to be deleted needs only the key."""
    connection.execute(f"ALTER TABLE {place} ADD COLUMN {change} {_CHANGE.format(change)}")
    for name in asked:
        if name not in target.key:
            column, rule = quoted(name), quoted(f"{name} is given unless the row is deleted"[:63])
            connection.execute(f"ALTER TABLE {place} ALTER COLUMN {column} DROP NOT NULL")
            connection.execute(f"ALTER TABLE {place} ADD CONSTRAINT {rule} CHECK (lower({change}) = 'delete' OR {column} IS NOT NULL)")


def _leave_out(connection: Connection[Any], place: str, left: Sequence[str], blank: Sequence[str]) -> None:
    """`left` columns may be null, because the server fills them in later. So `blank` ones are null, and constraints on them cannot be
    checked."""
    for name in left:
        connection.execute(f"ALTER TABLE {place} ALTER COLUMN {quoted(name)} DROP NOT NULL")
    for name in blank:
        connection.execute(f"ALTER TABLE {place} ALTER COLUMN {quoted(name)} DROP DEFAULT")
    for (rule,) in connection.execute(_RULES_OF, (place, list(blank))).fetchall():
        connection.execute(f"ALTER TABLE {place} DROP CONSTRAINT {quoted(rule)}")


def _take_partitions(connection: Connection[Any], place: str, like: str, schema: Schema) -> None:
    """For a partitioned table: a row that no partition accepts must be refused here, not after the Batch is decided."""
    parted_by = [name for (name,) in connection.execute(_PARTED_BY, (like, like)).fetchall()]
    found = connection.execute(_PARTITIONS, (like, like)).fetchall()
    if not parted_by or not set(parted_by) <= set(schema.names) or len(found) > _MOST_PARTITIONS or any(whole for _, whole in found):
        return
    rules = " OR ".join(f"({rule})" for rule, _ in found if rule) or "false"
    connection.execute(f'ALTER TABLE {place} ADD CONSTRAINT "a partition takes the row" CHECK (({rules}) IS TRUE)')

"""A table to read: its columns as columns of a flow, the key that orders its rows, and properties that make reading it costly or unsafe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres.client import escaped, quoted
from scribengin.connectors.postgres.types import digits_of, read_as
from scribengin.core.errors import SourceMissing
from scribengin.core.problems import did_you_mean
from scribengin.core.types import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import Connection

    from scribengin.connectors.postgres.client import PostgresServer

_MOST_DIGITS = 38
_TEXTS = ("text", "varchar")
_TIMES = ("timestamptz", "timestamp")

_DESCRIBED = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, t.mod, a.attnotnull, t.plain
FROM pg_attribute a
CROSS JOIN LATERAL (
    SELECT coalesce(b.typname, d.typname) AS typname, CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE d.typtypmod END AS mod,
        b.oid IS NULL AND d.typnamespace = 'pg_catalog'::regnamespace AS plain
    FROM pg_type d LEFT JOIN pg_type b ON b.oid = d.typbasetype AND d.typtype = 'd' WHERE d.oid = a.atttypid
) t
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_INDEXES = """
SELECT array_agg(a.attname::text ORDER BY k.place), i.indisunique, i.indisprimary
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisunique, i.indisprimary ORDER BY i.indisprimary DESC
"""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """`type` is in SQL's form, `base` is the name of a domain's base type, `modifier` is the server's number for length or digits."""

    name: str
    type: str
    base: str
    modifier: int
    not_null: bool
    is_plain: bool
    """whether it is a built-in type, and not a domain over one"""

    @property
    def field(self) -> Field:
        """The flow type if the flow does not declare it."""
        if self.base == "numeric" and (digits := self.digits) is not None and digits[0] <= _MOST_DIGITS and 0 <= digits[1] <= digits[0]:
            return Field(self.name, Type("DECIMAL", *digits), nullable=not self.not_null)
        read = "STRING" if self.base == "numeric" else next(iter(read_as(self.base)), "STRING")
        return Field(self.name, Type(read), nullable=not self.not_null)

    @property
    def digits(self) -> tuple[int, int] | None:
        """(precision, scale) of a numeric column; None if it has none."""
        return digits_of(self.modifier) if self.modifier >= 0 else None

    def expression(self, asked: Type) -> str:
        """The expression for COPY that returns it as text of the required type."""
        name = escaped(self.name)
        match asked.name:
            case "BINARY":
                return f"encode({name}, 'hex')"
            case "TIMESTAMP" if self.base == "timestamp":
                return f"({name} AT TIME ZONE 'UTC')"
            case "STRING" if self.base not in _TEXTS:
                return f"{name}::text"
        return name


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """An existing table. `order` are the columns by which rows are ordered on reading; the last of them are the key. SQL texts are for
    statements with parameters, in which `%` is doubled."""

    oid: int
    """the server's number for it: a recreated table has another one"""
    quoted: str
    columns: Mapping[str, TableColumn]
    order: tuple[TableColumn, ...]
    is_indexed: bool
    """whether an index has that order"""

    @property
    def key(self) -> str:
        """The ordering columns, for SQL."""
        return ", ".join(escaped(column.name) for column in self.order)

    @property
    def key_texts(self) -> str:
        """Their values as texts, for SQL, under separate names: ORDER BY would otherwise use the texts instead of the columns."""
        return ", ".join(f"{escaped(column.name)}::text AS text_{number}" for number, column in enumerate(self.order))

    @property
    def values(self) -> str:
        """Placeholders of a row of texts that is compared with `key`."""
        return ", ".join(f"%s::{column.type.replace('%', '%%')}" for column in self.order)

    @property
    def is_by_time(self) -> bool:
        """Whether the first ordering column is a timestamp."""
        return self.order[0].base in _TIMES

    def between(self, after: Sequence[str] | None, upto: Sequence[str] | None) -> tuple[str, list[str]]:
        """The condition for rows after `after` and up to `upto`, inclusive, and its parameters. None means no bound."""
        wanted = [(sign, bound) for sign, bound in ((">", after), ("<=", upto)) if bound is not None]
        conditions = [f"({self.key}) {sign} ({self.values})" for sign, _ in wanted]
        return " AND ".join(conditions) or "true", [text for _, bound in wanted for text in bound]

    def selected(self, schema: Schema) -> str:
        """The expressions for COPY, for these columns."""
        return ", ".join(self.columns[field.name].expression(field.type) for field in schema.fields)


def columns_there(connection: Connection[Any], oid: int) -> dict[str, TableColumn]:
    """The columns of a table by the server's number for it."""
    return {row[0]: TableColumn(*row) for row in connection.execute(_DESCRIBED, (oid,)).fetchall()}


def describe(connection: Connection[Any], server: PostgresServer, name: str, by: str | None, key: Sequence[str]) -> PostgresTable:
    """The table, ordered by `by`, if any, and by `key`, or its primary key. Raises SourceError if it cannot be read in an order that skips
    no row."""
    schema, _, plain = name.rpartition(".")
    place = quoted(schema or "public", plain)
    found = connection.execute("SELECT oid, relkind FROM pg_class WHERE oid = to_regclass(%s)", (place,)).fetchone()
    if found is None:
        raise SourceMissing(
            f"{server.called}: there is no table {name} at {server}, or this user is not allowed to see it",
            remedy="correct `table`, or grant the user USAGE on its schema",
            code="postgres-table",
            node=server.node,
        )
    oid, kind = found
    if kind not in ("r", "p"):
        remedy = "read its base table: changes of rows can only be detected in a table"
        raise server.error(f"{server.called}: {name} at {server} is not a table", remedy, "postgres-table")
    columns = columns_there(connection, oid)
    indexes = connection.execute(_INDEXES, (oid,)).fetchall()
    keyed = tuple(key) or next((tuple(names) for names, _, primary in indexes if primary), ())
    if not keyed:
        raise server.error(
            f"{server.called}: table {name} at {server} has no primary key, and the source has no `key`",
            "name the columns that identify a row: key: [id]",
            "postgres-key",
        )
    order = tuple(dict.fromkeys((by, *keyed) if by else keyed))
    for each in order:
        _check_ordering_column(server, name, columns, each)
    if not any(unique and set(names) == set(keyed) for names, unique, _ in indexes):
        said = f"{server.called}: no primary key or unique index of table {name} at {server} is on ({', '.join(keyed)})"
        raise server.error(said, "name the columns that identify a row in `key`, or create the index", "postgres-key")
    if by is not None:
        if (connection.execute("SELECT pg_is_in_recovery()").fetchone() or (False,))[0]:
            said = f"{server.called}: {server} is a standby, which does not know the open transactions of its primary"
            raise server.error(said, "name the primary in `server`", "postgres-order")
        if columns[by].base == "date":
            said = f'{server.called}: "{by}" of table {name} at {server} is a date, and rows of one day have no order'
            raise server.error(said, "use an increasing number, or a timestamp", "postgres-order")
        _check_sequence(connection, server, place, name, by)
    indexed = any(tuple(names[: len(order)]) == order or names[0] == by for names, _, _ in indexes)
    return PostgresTable(oid, escaped(schema or "public", plain), columns, tuple(columns[each] for each in order), indexed)


def columns_of(server: PostgresServer, name: str, table: PostgresTable, declared: Schema | None) -> Schema:
    """The flow's columns: the declared ones, or the table's. Raises SourceError if the table does not match them."""
    if declared is None:
        return Schema(tuple(column.field for column in table.columns.values()))
    wrong = []
    for field in declared.fields:
        column = table.columns.get(field.name)
        if column is None:
            wrong.append(f'the table has no column "{field.name}"{_near(field.name, table)}')
        elif field.type.name != "STRING" and field.type.name not in read_as(column.base):
            wrong.append(f'column "{field.name}" is {column.type} in the table, but {field.type} in the flow')
    if wrong:
        raise server.error(
            f"{server.called}: {name} at {server}: {'; '.join(wrong)}",
            "correct `schema`: STRING reads any column, and a `parse` step parses JSON in it; or remove `schema`",
            "table-columns",
        )
    return declared


def _near(name: str, table: PostgresTable) -> str:
    near = did_you_mean(name, table.columns)
    return f" ({near})" if near else ""


def _check_ordering_column(server: PostgresServer, table: str, columns: Mapping[str, TableColumn], name: str) -> None:
    if name not in columns:
        remedy = did_you_mean(name, columns) or f"its columns are {', '.join(columns)}"
        raise server.error(f'{server.called}: table {table} at {server} has no column "{name}"', remedy, "postgres-key")
    if not columns[name].not_null:
        raise server.error(
            (
                f'{server.called}: column "{name}" of table {table} at {server} may be null, and a row without a value there would never '
                "be read"
            ),
            f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} SET NOT NULL, or name another column",
            "postgres-key",
        )


def _check_sequence(connection: Connection[Any], server: PostgresServer, place: str, table: str, by: str) -> None:
    """A sequence of which sessions cache values returns small ones long after greater ones."""
    found = connection.execute(
        "SELECT s.seqrelid::regclass::text, s.seqcache FROM pg_sequence s WHERE s.seqrelid = to_regclass(pg_get_serial_sequence(%s, %s))",
        (place, by),
    ).fetchone()
    if found is not None and found[1] > 1:
        raise server.error(
            f'{server.called}: "{by}" of table {table} at {server} uses the sequence {found[0]}, of which each session caches {found[1]} '
            "values: a small value may appear long after greater ones, and would never be read",
            f"ALTER SEQUENCE {found[0]} CACHE 1, and end sessions with cached values; or use a timestamp",
            "postgres-order",
        )

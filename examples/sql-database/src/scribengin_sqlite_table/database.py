"""SQLite as the SQL layer asks for it. One process writes to a file at a time, and the others wait: that is its lock of a claim."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.sql.contract import NotTaken
from scribengin.core.errors import SinkError, Unreachable
from scribengin.core.storage import make_folder
from scribengin.formats.rows import column_to_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.sql.contract import Target
    from scribengin.core.types import Schema, Type

WAIT_S = 30.0
"""how long one waits for others before it says that the file is locked"""
_CHANGE = "TEXT NOT NULL CONSTRAINT \"a change is insert, update or delete\" CHECK (lower({}) IN ('insert', 'update', 'delete'))"
_TAKES = {"INTEGER": ("INTEGER", "NUMERIC"), "REAL": ("REAL", "NUMERIC"), "TEXT": ("TEXT",), "BLOB": ("BLOB",)}
"""our type → kinds of columns ("affinities") that keep its values as they are"""
_OWN = """
CREATE TABLE IF NOT EXISTS _scribengin_claims (
    target TEXT PRIMARY KEY, owner TEXT NOT NULL, lineage TEXT NOT NULL, sink TEXT NOT NULL, flow TEXT NOT NULL,
    earlier TEXT NOT NULL, folded_rows INTEGER NOT NULL DEFAULT 0, had_rows INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS _scribengin_commits (
    target TEXT, lineage TEXT, number INTEGER, hash TEXT NOT NULL, term INTEGER NOT NULL, receipts TEXT NOT NULL, rows INTEGER NOT NULL,
    xid INTEGER NOT NULL, PRIMARY KEY (target, lineage, number));
CREATE TABLE IF NOT EXISTS _scribengin_staged (name TEXT PRIMARY KEY, target TEXT NOT NULL, lineage TEXT NOT NULL, number INTEGER NOT NULL)
"""


class SqliteSession:
    """A connection; see `SqlSession`."""

    def __init__(self, path: Path, wait_s: float) -> None:
        self._connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = FULL")

    def execute(self, statement: str, values: Sequence[Any] | None = None, /) -> sqlite3.Cursor:
        return self._connection.execute(statement, values or ())

    def execute_for_each(self, statement: str, rows: Iterator[Sequence[Any]]) -> None:
        self._connection.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """IMMEDIATE: it waits for other writers here, and sees what they have committed."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class SqliteStaging:
    """A staging table with the flow's columns; see `Staging`. Of the target's rules it has NOT NULL: a CHECK is asked when the Batch is
    published, and stops it as a whole."""

    def __init__(self, session: SqliteSession, place: str, target: Target, schema: Schema) -> None:
        table = session.execute('SELECT name, type, "notnull" FROM pragma_table_info(?)', target.names)
        held = {name: (type_, bool(must)) for name, type_, must in table.fetchall()}
        lines, rules = [], []
        for name in schema.names:
            column = quoted(name)
            if name == target.change:
                lines.append(f"{column} {_CHANGE.format(column)}")
                continue
            type_, must = held[name]
            if must and target.change and name not in target.key:
                rule = quoted(f"{name} is given unless the row is deleted")
                rules.append(f"CONSTRAINT {rule} CHECK (lower({quoted(target.change)}) = 'delete' OR {column} IS NOT NULL)")
                must = False
            lines.append(f"{column} {type_}{' NOT NULL' * (must or name in target.key)}")
        session.execute(f"CREATE TABLE {place} ({', '.join([*lines, *rules])})")
        self._session = session
        self._insert = f"INSERT INTO {place} VALUES ({', '.join('?' * len(schema.names))})"

    def put(self, batch: pa.RecordBatch) -> int:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                raise NotTaken(f'SQLite would store NaN as NULL (column "{name}")')
        columns = [map(_value, column_to_values(column)) for column in batch.columns]
        try:
            with self._session.transaction():
                self._session.execute_for_each(self._insert, zip(*columns, strict=True))
        except (sqlite3.IntegrityError, sqlite3.DataError) as error:
            raise NotTaken(str(error)) from error
        return int(batch.nbytes)


class SqliteDatabase:
    """One file; see `Database`."""

    mark = "?"
    for_update = ""
    row_place = "_rowid_"
    this_transaction = "0"  # rows do not tell

    def __init__(self, node: str, path: Path, wait_s: float = WAIT_S) -> None:
        self._node = node
        self._path = path
        self._wait_s = wait_s

    def __str__(self) -> str:
        return str(self._path)

    def connect(self) -> SqliteSession:
        make_folder(self._path.parent)
        with self.explained("cannot be opened"):
            return SqliteSession(self._path, self._wait_s)

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            remedy = "rows break a rule of the table: correct the rule or the data, or write mode: upsert"
            raise SinkError(self._said(what, error), remedy=remedy, code="sqlite-rule", node=self._node) from error
        except sqlite3.OperationalError as error:
            remedy = "see who else writes to the file, and whether its disk has room; a flow that runs tries again by itself"
            raise Unreachable(self._said(what, error), remedy=remedy, code="sqlite-away", node=self._node) from error
        except sqlite3.Error as error:
            raise SinkError(self._said(what, error), remedy="correct the table or the flow", code="sqlite", node=self._node) from error

    def _said(self, what: str, error: sqlite3.Error) -> str:
        return f'sink "{self._node}": {self} {what}: {error}'

    # --- names and types ---

    def quoted(self, *names: str) -> str:
        return quoted(*names)

    def escaped(self, *names: str) -> str:
        """The same: marks are `?`, and not looked for in names."""
        return quoted(*names)

    def own(self, name: str) -> tuple[str, ...]:
        return (f"_scribengin_{name}",)

    def packed(self, texts: Sequence[str]) -> str:
        return json.dumps(list(texts))

    def unpacked(self, value: str) -> Sequence[str]:
        texts: list[str] = json.loads(value)
        return texts

    def type_of(self, type_: Type, *, in_key: bool) -> str:  # noqa: ARG002 (the contract's)
        """The same in a key: a text of any length can be there, and texts compare by their bytes."""
        match type_.name:
            case "BOOLEAN" | "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
                return "INTEGER"
            case "FLOAT" | "DOUBLE":
                return "REAL"
            case "BINARY":
                return "BLOB"
        return "TEXT"

    def takes(self, type_: Type, there: str) -> bool:
        kind = _affinity(there)
        return kind == "" or kind in _TAKES[self.type_of(type_, in_key=False)]

    # --- tables ---

    def alone(self, session: SqliteSession, what: str) -> None:
        """Each transaction has the file to itself."""

    def is_there(self, session: SqliteSession, *names: str) -> bool:
        found = session.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", names)
        return found.fetchone() is not None

    def make_own(self, session: SqliteSession) -> None:
        for statement in _OWN.split(";"):
            session.execute(statement)

    def make(self, session: SqliteSession, target: Target, columns: str) -> None:
        session.execute(f"CREATE TABLE IF NOT EXISTS {quoted(*target.names)} ({columns})")

    def columns(self, session: SqliteSession, *names: str) -> Mapping[str, tuple[str, bool]]:
        counts_by_itself = "pk AND upper(type) = 'INTEGER'"
        found = session.execute(
            f'SELECT name, type, "notnull" AND dflt_value IS NULL AND NOT ({counts_by_itself}) FROM pragma_table_info(?) ORDER BY cid',
            names,
        )
        return {name: (type_, bool(must)) for name, type_, must in found.fetchall()}

    def has_key(self, session: SqliteSession, target: Target) -> bool:
        keys = [session.execute("SELECT name FROM pragma_table_info(?) WHERE pk", target.names)]
        indexes = session.execute('SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', target.names).fetchall()
        keys += [session.execute("SELECT name FROM pragma_index_info(?)", index) for index in indexes]
        return any({name for (name,) in key.fetchall()} == set(target.key) for key in keys)

    def stage(self, session: SqliteSession, name: str, target: Target, schema: Schema) -> SqliteStaging:
        return SqliteStaging(session, quoted(*self.own(name)), target, schema)

    def drop(self, session: SqliteSession, name: str) -> None:
        session.execute(f"DROP TABLE IF EXISTS {quoted(*self.own(name))}")

    # --- rows of one key ---

    def newest(self, every: str, columns: Sequence[str], key: Sequence[str], version: str | None, place: Sequence[str]) -> str:
        """Nulls are the last of a descending order."""
        order = ", ".join(f"{name} DESC" for name in (*([quoted(version)] if version else []), *place))
        rank = f"row_number() OVER (PARTITION BY {_listed(key)} ORDER BY {order})"
        return f"SELECT {_listed(columns)} FROM (SELECT *, {rank} AS _scribengin_rank FROM ({every})) WHERE _scribengin_rank = 1"

    def set_aside(self, name: str, query: str) -> str:
        return f"CREATE TEMPORARY TABLE {name} AS {query}"

    def delete(self, target: Target, gone: str, version: str | None) -> str:
        same = " AND ".join(f"held.{quoted(name)} = gone.{quoted(name)}" for name in target.key)
        older = f" AND (held.{quoted(version)} IS NULL OR held.{quoted(version)} <= gone.{quoted(version)})" if version else ""
        return f"DELETE FROM {quoted(*target.names)} AS held WHERE EXISTS (SELECT 1 FROM ({gone}) gone WHERE {same}{older})"

    def replace(self, target: Target, rows: str, columns: Sequence[str], version: str | None) -> str:
        """`WHERE true` tells the ON behind it from that of a join."""
        sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in columns if name not in target.key)
        older = f" WHERE held.{quoted(version)} IS NULL OR held.{quoted(version)} <= excluded.{quoted(version)}" if version else ""
        return (
            f"INSERT INTO {quoted(*target.names)} AS held ({_listed(columns)}) SELECT {_listed(columns)} FROM ({rows}) WHERE true "
            f"ON CONFLICT ({_listed(target.key)}) DO {f'UPDATE SET {sets}{older}' if sets else 'NOTHING'}"
        )

    # --- for audit ---

    def rows_by_transaction(self, session: SqliteSession, target: Target) -> None:
        """Rows of SQLite do not tell who has written them."""


def quoted(*names: str) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def _affinity(type_: str) -> str:
    """What SQLite makes of a declared type (its documentation, "Datatypes In SQLite", 3.1); empty where a column takes all as it is."""
    declared = type_.upper()
    for kind, words in (("INTEGER", ("INT",)), ("TEXT", ("CHAR", "CLOB", "TEXT")), ("BLOB", ("BLOB",)), ("REAL", ("REAL", "FLOA", "DOUB"))):
        if any(word in declared for word in words):
            return kind
    return "" if declared in ("", "ANY") else "NUMERIC"


def _value(value: Any) -> Any:
    """What SQLite can hold: times as ISO 8601, decimals as texts, nested values as JSON."""
    match value:
        case None | int() | float() | str() | bytes():
            return value
        case list() | dict():
            return json.dumps(value, default=str)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)

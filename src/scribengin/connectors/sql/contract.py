"""What a database must support, so that `SqlSink` makes a sink of it that writes each record once.

A task puts the rows of its task output into a *staging table* of its own, which has the target's columns and its constraints on single
rows. So the database decides which rows it never accepts, before the Batch is decided. Then one transaction locks the claim of the target,
compares, moves the rows of the decided staging tables into the target, and records the Batch. To add a database, write a `Database`, and a
`SqlSession` if its client's connections do not have this interface. The sink relies on the following:

- A transaction takes effect as a whole or not at all, and survives a crash once its commit has returned.
- Of two transactions that lock one row of `claims` the second waits, and then sees all commits of the first. READ COMMITTED suffices.
- Rows of `Staging.put` survive a crash of the database after the session's next commit that the client waits for.
- A session suspended in a transaction does not keep its locks for ever, if the database has a limit for that: a driver suspended
  while it publishes would block its successor.

DDL need not be part of a transaction: `make_own`, `make`, `stage` and `drop` may commit the open one. The sink writes nothing before them
that must be undone with them: a staging table is recorded before it is created, and its record is deleted after it is dropped. `set_aside`
must not commit: it is called while the claim is locked.

The sink itself uses plain SQL: SELECT, INSERT, UPDATE, DELETE with `count`, `max`, `sum`, `coalesce`, `lower`, EXISTS and UNION ALL. For
statements that differ between databases it calls methods, which execute them or return their texts. A *name* below is unquoted; only
`quoted` makes it a part of a statement. Names of a table are a sequence: its schema first, if there are schemas.

Own tables, which `make_own` creates, each named by `own`; the database chooses the types:

- `claims`: target (the key), owner, lineage, sink, flow: texts; earlier: a list of texts, as `packed` makes it; folded_rows: a whole
  number, 0 by default; had_rows: a boolean
- `commits`: target, lineage: texts, number: a whole number (the key, all three); hash: a text; term: a whole number; receipts: a text of
  any length; rows, xid: whole numbers of 64 bits; in this order
- `staged`: name (the key), target, lineage: texts; number: a whole number; in this order

A database in whose tables the task outputs of a Batch may also commit one by one is a `LoadingDatabase`, with two more own tables:

- `units`: target, lineage: texts, number, unit: whole numbers (the key, all four); hash: a text; term, rows: whole numbers; report: a
  text of any length; in this order
- `parts`: target, lineage: texts, number, unit: whole numbers, attempt: a text, part: a whole number (the key, all six); rows: a whole
  number; in this order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from scribengin.core.types import Schema, Type

OWN = ("claims", "commits", "staged")
"""arguments of `Database.own`, beside staging tables"""
SQL_ABILITIES = frozenset({"exactly_once", "append", "compares_columns", "finds_unaccounted", "checks_place"})
"""what a sink type declares whose sinks are `SqlSink`"""
SQL_UNIT_ABILITIES = frozenset({"commits_units", "chains_batches"})
"""what it declares beside these for those that are `SqlUnitSink`"""
UNIT_OWN = ("units", "parts")
"""additional arguments for a LoadingDatabase"""


class NotTaken(Exception):
    """A row causes the error: the database will never accept it. The text is for people, in the database's own words."""


class HeldByOthers(Exception):
    """Another session uses the table, and is not waited for."""


@dataclass(frozen=True, slots=True)
class Target:
    """The table, and how its rows are identified."""

    names: tuple[str, ...]
    """its schema, if there are schemas, and its own name"""
    key: tuple[str, ...] = ()
    """empty if rows are only appended"""
    change: str | None = None
    """the column with `insert`, `update` or `delete`; the table does not have it"""

    def __str__(self) -> str:
        return ".".join(self.names)


class SqlResult(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that it wrote or deleted."""

    def fetchone(self) -> Any:
        """The next row, a sequence; None if there are no more."""

    def fetchall(self) -> Sequence[Any]:
        """All rows."""


class SqlSession(Protocol):
    """A connection. Outside `transaction` each statement is its own transaction. Raises its client's errors."""

    def execute(self, statement: str, values: Sequence[Any] | None = None, /) -> SqlResult:
        """`values`: the values of its placeholders."""

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction that is committed at the end of the block, and rolled back if the block raises. They are not nested."""

    def close(self) -> None:
        """Close it; uncommitted changes are lost."""


class Staging(Protocol):
    """A table for the task that fills it: a newly created staging table, or, with a LoadingDatabase, the target itself."""

    def put(self, batch: pa.RecordBatch) -> int:
        """Append all rows in one step; returns the number of bytes. Raises NotTaken if a row causes the error. After any error, no row of
        `batch` is stored. Called for each batch of rows: it should be as fast as the database allows."""


S = TypeVar("S", bound=SqlSession)


class Database(Protocol[S]):
    """One database, and its statements. Must be picklable: executors get a copy."""

    mark: str
    """the placeholder for a value in a statement: `%s`, `?`"""
    for_update: str
    """the end of a SELECT of a row that no other session may lock until the transaction ends; empty if a transaction has the database
    exclusively"""
    row_place: str
    """a column of each staging table, unquoted, that increases with its rows in the order in which they were put: `ctid`, `rowid`"""
    this_transaction: str
    """in a statement, the number of its transaction, as `rows_by_transaction` returns it later; any number if that is not supported"""

    def __str__(self) -> str:
        """Its place, for messages; contains no secret."""

    def connect(self) -> S:
        """A new session. Raises Unreachable if a retry may succeed, else SinkError, with remedies."""

    def explained(self, what: str) -> AbstractContextManager[None]:
        """Converts the client's errors to those of `connect`; others are unchanged. `what`: the action that failed, such as "cannot be
        prepared"."""

    # --- names and types ---

    def quoted(self, *names: str) -> str:
        """A name quoted for a statement, whatever characters it contains."""

    def escaped(self, *names: str) -> str:
        """The same for a statement with values, in which a client may interpret placeholders: `%` is doubled if the placeholder is `%s`."""

    def own(self, name: str) -> tuple[str, ...]:
        """The names of an own table, one of OWN or a staging table: `rows_…`, at most 52 letters, digits and `_`, so that a
        prefix of 12 fits into 64."""

    def packed(self, texts: Sequence[str]) -> Any:
        """A list of texts as a value to write."""

    def unpacked(self, value: Any) -> Sequence[str]:
        """A list of texts from a value that was read."""

    def type_of(self, type_: Type, *, in_key: bool) -> str:
        """The type of a column that is created for a flow type. `in_key`: it is one of the columns of the primary key, for which some
        databases need a text of limited length. Texts must compare by their bytes."""

    def takes(self, type_: Type, there: str) -> bool:
        """Whether an existing column, of a type as returned by `columns`, accepts values of the flow's type, except perhaps for some."""

    # --- tables ---

    def alone(self, session: S, what: str) -> None:
        """Wait until no other transaction holds this lock, and hold it until this transaction ends. It may be a lock of the session that is
        released at the end of `SqlSession.transaction`; nothing, if each transaction has the database exclusively."""

    def is_there(self, session: S, *names: str) -> bool:
        """Whether the table exists, the user's or one of ours."""

    def make_own(self, session: S) -> None:
        """Create missing ones of our three tables, and their schema. In a transaction; uses `alone`."""

    def make(self, session: S, target: Target, columns: str) -> None:
        """Create the table if it does not exist. In a transaction; uses `alone`. `columns` is the column list."""

    def columns(self, session: S, *names: str) -> Mapping[str, tuple[str, bool]]:
        """Column of a table → (its type, whether each row must have a value), in order; empty if there is no table."""

    def has_key(self, session: S, target: Target) -> bool:
        """Whether the table enforces one row per `target.key`, by the same columns in any order."""

    def stage(self, session: S, name: str, target: Target, schema: Schema) -> Staging:
        """Create the staging table of that name (see `own`), with at least the columns of `schema`, and those constraints of the target
        that concern single rows. `target.change` may only contain one of its three words, in any case; for `delete` the key is enough. In a
        transaction."""

    def drop(self, session: S, name: str) -> None:
        """Drop a staging table, if it exists. In a transaction. Raises HeldByOthers, soon, if another session uses it: that of a suspended
        task."""

    # --- rows of one key ---

    def newest(self, every: str, columns: Sequence[str], key: Sequence[str], version: str | None, place: Sequence[str]) -> str:
        """A query of `columns` of the query `every`, one row per key: the one with the greatest `version`, null being the least, and of
        equal ones the last by the columns `place`, which need no quotes."""

    def set_aside(self, name: str, query: str) -> str:
        """A statement that stores the result of `query` as a table of that name, only for this session, until the transaction ends."""

    def delete(self, target: Target, gone: str, version: str | None) -> str:
        """A statement that deletes the target's rows with a key in the query `gone`, except those whose `version` is greater than the one
        there."""

    def replace(self, target: Target, rows: str, columns: Sequence[str], version: str | None) -> str:
        """A statement that adds the rows of the query `rows`, which has each key once, to `columns` of the target. An existing row with the
        key is replaced, unless its `version` is greater. A row that is equal in another unique index never is: then the statement fails, or
        see `ComparingDatabase`."""

    # --- for audit ---

    def rows_by_transaction(self, session: S, target: Target) -> Mapping[int, int] | None:
        """`this_transaction` of each transaction with rows in the current table → their number; None if rows do not show it. Then an audit
        compares only records, and `clear` does not find rows that others added later. The table exists."""


class ComparingDatabase(Database[S], Protocol[S]):
    """A database that sees more in an existing table that the sink must not write to, such as a second unique index if `replace` would
    replace rows by that too."""

    def unlike(self, session: S, target: Target) -> list[str]:
        """Why the sink must not write to the existing table, a sentence per reason: see `SqlSink.unlike`."""


class LoadingDatabase(Database[S], Protocol[S]):
    """A database whose tables also accept rows directly from tasks, each in a transaction of its own. It supports INSERT … ON CONFLICT DO
    NOTHING, which waits for another session that is about to insert the same key, and its `rowcount` shows whether it inserted."""

    for_share: str
    """the end of a SELECT of a row that others may lock in the same way, but not lock or change otherwise until the transaction ends"""
    row_transaction: str
    """in a SELECT from an own table, the number of the transaction or step that wrote the row, as `rows_by_transaction` returns it"""

    @property
    def silence_s(self) -> float:
        """How long a session may be silent within a transaction before the database ends it, in seconds; infinite if there is no limit."""

    def step(self, session: S) -> AbstractContextManager[Any]:
        """A part of the session's open transaction: rolled back if the block raises. Steps are not nested."""

    def load(self, session: S, target: Target, schema: Schema) -> Staging:
        """The existing target table, for rows with the columns of `schema`. Its `put` is called in a `step` of its own, and need not undo
        partial work by itself."""

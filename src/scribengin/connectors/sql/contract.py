"""What a database must be able to do, so that `SqlSink` makes a sink of it that writes each record once.

A task puts the rows of its unit into a *staging table* of its own, which has the target's columns and its rules about single rows. So it
is the database that says which rows it never takes, before the Batch is decided. Then one transaction locks the claim of the target,
compares, moves the rows of the decided staging tables into the target, and records the Batch. To add a database, write a `Database`, and
a `SqlSession` where the connections of its client are none. What the sink relies on:

- A transaction is there as a whole or not at all, also after a crash, once its commit has returned.
- Of two transactions that lock one row of `claims` the second waits, and then sees all that the first has committed. READ COMMITTED does.
- What `Staging.put` has put stays after a crash of the database, from the next commit of the session on that the client waits for.
- A session that sleeps in a transaction does not keep its locks for ever, where the database has a limit for that: a driver that sleeps
  while it publishes would hold up its successor.

DDL need not be part of a transaction: a staging table is noted before it is made, and forgotten after it is dropped.

The sink speaks plain SQL itself: SELECT, INSERT, UPDATE, DELETE with `count`, `max`, `sum`, `coalesce`, `lower`, EXISTS and UNION ALL. What
databases word differently it asks for, as methods that do it or as texts of statements. A *name* below is as people write it; `quoted`
makes it a part of a statement, and is the only thing that does. Names of a table come as several: its schema first, where there are
schemas.

Own tables, which `make_own` makes, each called as `own` says; types are for the database to choose:

claims      target (the key), owner, lineage, sink, flow: texts; earlier: a list of texts, as `packed` makes it; folded_rows: a whole
            number, 0 where nobody says; had_rows: a boolean
commits     target, lineage: texts, number: a whole number (the key, all three); hash: a text; term: a whole number; receipts: a text of
            any length; rows, xid: whole numbers of 64 bits; in this order
staged      name (the key), target, lineage: texts; number: a whole number; in this order

A database in whose tables the units of a Batch may also commit one by one is a `LoadingDatabase`, with two own tables more:

units       target, lineage: texts, number, unit: whole numbers (the key, all four); hash: a text; term, rows: whole numbers; report: a
            text of any length; in this order
parts       target, lineage: texts, number, unit: whole numbers, attempt: a text, part: a whole number (the key, all six); rows: a whole
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
"""what `Database.own` is asked for, beside staging tables"""
UNIT_OWN = ("units", "parts")
"""and what that of a LoadingDatabase is asked for as well"""


class NotTaken(Exception):
    """A row is at fault: the database will never take it. The text is for people, in the database's own words."""


class HeldByOthers(Exception):
    """Somebody uses the table, and is not waited for."""


@dataclass(frozen=True, slots=True)
class Target:
    """The table, and how rows of it are told apart."""

    names: tuple[str, ...]
    """its schema, where there are schemas, and its own"""
    key: tuple[str, ...] = ()
    """empty where rows are only added"""
    change: str | None = None
    """the column that says `insert`, `update` or `delete`; the table does not have it"""

    def __str__(self) -> str:
        return ".".join(self.names)


class SqlResult(Protocol):
    """What a statement has found, or done."""

    @property
    def rowcount(self) -> int:
        """How many rows it has written or deleted."""

    def fetchone(self) -> Any:
        """The next row, a sequence; None where there is no more."""

    def fetchall(self) -> Sequence[Any]:
        """All of them."""


class SqlSession(Protocol):
    """A connection. Outside of `transaction` each statement is a transaction of its own. Raises its client's errors."""

    def execute(self, statement: str, values: Sequence[Any] | None = None, /) -> SqlResult:
        """`values`: what its marks stand for."""

    def transaction(self) -> AbstractContextManager[Any]:
        """One that is committed where the block ends, and rolled back where it raises. They are not nested."""

    def close(self) -> None:
        """Give it up; what is not committed is gone."""


class Staging(Protocol):
    """A table as the task sees it that fills it: a staging table that was just made, or, of a LoadingDatabase, the person's own."""

    def put(self, batch: pa.RecordBatch) -> int:
        """All rows in one step, behind those that are there; how many bytes. Raises NotTaken where a row is at fault. Whatever it raises,
        nothing of `batch` is there then. The one call that comes for each batch of rows: as quick as the database can."""


S = TypeVar("S", bound=SqlSession)


class Database(Protocol[S]):
    """One database, and its words. Must be picklable: executors get a copy."""

    mark: str
    """what stands for a value in a statement: `%s`, `?`"""
    for_update: str
    """ends a SELECT of a row that nobody else may lock until the transaction ends; empty where a transaction has the database to itself"""
    row_place: str
    """a column of each staging table, unquoted, that grows with its rows in the order in which they were put: `ctid`, `rowid`"""
    this_transaction: str
    """in a statement, the number of the transaction that it runs in, as `rows_by_transaction` tells it later; any where that cannot"""

    def __str__(self) -> str:
        """Where it is, for messages; nothing secret."""

    def connect(self) -> S:
        """A fresh session. Raises Unreachable where a later try may do, else SinkError, with remedies."""

    def explained(self, what: str) -> AbstractContextManager[None]:
        """The client's errors come out of it as `connect` raises them; all others as they are. `what` was tried: "cannot be prepared"."""

    # --- names and types ---

    def quoted(self, *names: str) -> str:
        """A name as a part of a statement, whatever it holds."""

    def escaped(self, *names: str) -> str:
        """The same for a statement that comes with values, out of which a client may read marks: `%` doubled, where the mark is `%s`."""

    def own(self, name: str) -> tuple[str, ...]:
        """The names of an own table, one of OWN or a staging table (`rows_…`, below 60 letters, figures and `_`)."""

    def packed(self, texts: Sequence[str]) -> Any:
        """A list of texts as a value that is written."""

    def unpacked(self, value: Any) -> Sequence[str]:
        """And as it is read."""

    def type_of(self, type_: Type) -> str:
        """The type of a column that is made for one of the flow."""

    def takes(self, type_: Type, there: str) -> bool:
        """Whether a column that is there, of a type as `columns` tells it, takes values of the flow's type, but perhaps for some."""

    # --- tables ---

    def alone(self, session: S, what: str) -> None:
        """Wait until nobody else is in a transaction that asked for the same, and be that one until this transaction ends."""

    def is_there(self, session: S, *names: str) -> bool:
        """Whether there is such a table, that one of the person or of ours."""

    def make_own(self, session: S) -> None:
        """Make what is not there of our three tables, and their schema. In a transaction; `alone` in there."""

    def make(self, session: S, target: Target, columns: str) -> None:
        """Make the table where it is not there. In a transaction; `alone` in there. `columns` is what stands in the brackets."""

    def columns(self, session: S, *names: str) -> Mapping[str, tuple[str, bool]]:
        """Column of a table → (its type, whether each row must give it), in their order; empty where there is no table."""

    def has_key(self, session: S, target: Target) -> bool:
        """Whether the table sees to it that there is one row of each `target.key`, by the same columns in any order."""

    def stage(self, session: S, name: str, target: Target, schema: Schema) -> Staging:
        """Make the staging table of that name (see `own`), with at least the columns of `schema`, and of the target's rules those about
        single rows. `target.change` may only be one of its three words, in any case; where it is `delete` the key is enough. In a
        transaction."""

    def drop(self, session: S, name: str) -> None:
        """Drop a staging table, if it is there. In a transaction. Raises HeldByOthers, soon, where somebody uses it: a task that sleeps."""

    # --- rows of one key ---

    def newest(self, every: str, columns: Sequence[str], key: Sequence[str], version: str | None, place: Sequence[str]) -> str:
        """A query of `columns` of the query `every`, one row of each key: that with the greatest `version`, null being the least of all,
        and of those the last by the columns `place`, which need no quotes."""

    def set_aside(self, name: str, query: str) -> str:
        """A statement that keeps what `query` finds as a table of that name, for this session alone, until the transaction ends."""

    def delete(self, target: Target, gone: str, version: str | None) -> str:
        """A statement that deletes the rows of the target that have a key of the query `gone`, but for those whose `version` is greater
        than the one there."""

    def replace(self, target: Target, rows: str, columns: Sequence[str], version: str | None) -> str:
        """A statement that adds the rows of the query `rows`, which has each key once, to `columns` of the target. A row that stands
        there under the key is replaced, unless its `version` is greater."""

    # --- for audit ---

    def rows_by_transaction(self, session: S, target: Target) -> Mapping[int, int] | None:
        """`this_transaction` of each that has written rows which stand in the table now → how many; None where rows do not tell. Then an
        audit compares records alone, and `clear` does not find rows of others that came later. The table is there."""


class LoadingDatabase(Database[S], Protocol[S]):
    """A database whose tables take rows straight from tasks too, each in a transaction of its own. It knows INSERT … ON CONFLICT DO
    NOTHING, which waits for another that is about to insert the same key, and tells by `rowcount` whether it has inserted."""

    for_share: str
    """ends a SELECT of a row that others may lock so too, and nobody may lock or change otherwise until the transaction ends"""
    row_transaction: str
    """in a SELECT from an own table, the number of the transaction or step that wrote the row, as `rows_by_transaction` tells it"""

    @property
    def silence_s(self) -> float:
        """How long a session may be silent within a transaction before the database ends it, in seconds; infinite where it does not."""

    def step(self, session: S) -> AbstractContextManager[Any]:
        """A part of the session's transaction, which is open: undone where the block raises. Steps are not nested."""

    def load(self, session: S, target: Target, schema: Schema) -> Staging:
        """The table itself, which is there, for rows with the columns of `schema`. Its `put` is called in a `step` of its own, and need not
        undo by itself what it has not put as a whole."""

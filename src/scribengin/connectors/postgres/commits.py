"""Our own tables beside the rows: who writes to a table, what was committed there, and what tasks have staged.

claims      one row a table: owner, lineage and sink that may write; it is locked by whoever publishes
commits     one row a Batch: input hash, Term, receipts, rows, and the transaction that wrote them
staged      one row a table that a task has staged rows in; the table lies beside
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres.client import driver, escaped, quoted

if TYPE_CHECKING:
    from psycopg import Connection

    from scribengin.connectors.contract import Decided

_XIDS = 2**32
"""`xmin` of a row counts transactions so far, and begins anew"""
_HELD_MS = 200
DETAILED = 1_000
"""newest Batches of which `commits` keeps a row each; of older ones the number of rows stays, in `claims`"""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who may write to a table."""

    owner: str
    lineage: str
    sink: str
    flow: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What was committed as one Batch; `xid` is the transaction, as rows show it in `xmin`."""

    number: int
    input_hash: str
    term: int
    receipts: str
    rows: int
    xid: int


class Commits:
    """The three tables in the schema `schema`, asked about one `table` (schema.name)."""

    def __init__(self, schema: str, table: str) -> None:
        self.schema = schema
        self.table = table
        self._ours = escaped(schema)

    def make(self, connection: Connection[Any]) -> None:
        """Make what is not there. Two that do so at once wait for each other."""
        place = quoted(self.schema)
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"scribengin {self.schema}",))
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {place}")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {place}.claims (target text PRIMARY KEY, owner text NOT NULL, lineage text NOT NULL, "
                "sink text NOT NULL, flow text NOT NULL, earlier text[] NOT NULL DEFAULT '{}', folded_rows bigint NOT NULL DEFAULT 0, "
                "had_rows boolean NOT NULL)"
            )
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {place}.commits (target text, lineage text, number bigint, hash text NOT NULL, "
                "term bigint NOT NULL, receipts text NOT NULL, rows bigint NOT NULL, xid bigint NOT NULL, "
                "PRIMARY KEY (target, lineage, number))"
            )
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {place}.staged (name text PRIMARY KEY, target text NOT NULL, lineage text NOT NULL, "
                "number bigint NOT NULL)"
            )

    def there(self, connection: Connection[Any]) -> bool:
        """Whether our tables are."""
        found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (quoted(self.schema, "staged"),)).fetchone()
        return bool(found and found[0])

    def claim(self, connection: Connection[Any], *, lock: bool = False) -> tuple[Claim, tuple[str, ...]] | None:
        """Whose the table is, and which lineages wrote there before; None where it is nobody's. `lock`: nobody else changes or locks it
        until the transaction ends."""
        found = connection.execute(
            f"SELECT owner, lineage, sink, flow, earlier FROM {self._ours}.claims WHERE target = %s {'FOR UPDATE' * lock}",
            (self.table,),
        ).fetchone()
        return None if found is None else (Claim(*found[:4]), tuple(found[4]))

    def take(self, connection: Connection[Any], claim: Claim, *, had_rows: bool) -> None:
        """Make it that one's; the lineage before stays known. `had_rows`: of nobody's table, whether it holds rows."""
        connection.execute(
            f"INSERT INTO {self._ours}.claims AS held (target, owner, lineage, sink, flow, had_rows) "
            "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (target) DO UPDATE SET earlier = held.earlier || held.lineage, "
            "owner = excluded.owner, lineage = excluded.lineage, sink = excluded.sink, flow = excluded.flow",
            (self.table, claim.owner, claim.lineage, claim.sink, claim.flow, had_rows),
        )

    def had_rows(self, connection: Connection[Any]) -> bool:
        """Whether the table held rows when it was claimed first."""
        found = connection.execute(f"SELECT had_rows FROM {self._ours}.claims WHERE target = %s", (self.table,)).fetchone()
        return bool(found and found[0])

    def commit_of(self, connection: Connection[Any], lineage: str, number: int) -> Commit | None:
        """What was committed as that Batch."""
        return self._one(connection, "AND lineage = %s AND number = %s", (lineage, number))

    def newest(self, connection: Connection[Any], lineage: str) -> Commit | None:
        """The last one."""
        return self._one(connection, "AND lineage = %s ORDER BY number DESC LIMIT 1", (lineage,))

    def of_lineage(self, connection: Connection[Any], lineage: str) -> dict[int, Commit]:
        """Number → each that is still told."""
        return {each.number: each for each in self._all(connection, "AND lineage = %s", (lineage,))}

    def xids(self, connection: Connection[Any]) -> tuple[list[int], int]:
        """(the transactions of all Batches, of every lineage; rows of Batches that are told no more)."""
        held = connection.execute(f"SELECT folded_rows FROM {self._ours}.claims WHERE target = %s", (self.table,)).fetchone()
        return [each.xid for each in self._all(connection, "", ())], held[0] if held else 0

    def note(self, connection: Connection[Any], decided: Decided, rows: int) -> None:
        """Record the Batch that this transaction writes, and fold old ones."""
        batch = decided.batch
        connection.execute(
            f"INSERT INTO {self._ours}.commits VALUES (%s, %s, %s, %s, %s, %s, %s, "
            f"mod(pg_current_xact_id()::text::numeric, {_XIDS})::bigint)",
            (self.table, batch.lineage, batch.number, decided.input_hash, batch.term, receipts_of(decided), rows),
        )
        connection.execute(
            f"WITH old AS (DELETE FROM {self._ours}.commits WHERE target = %s AND lineage = %s AND number <= %s RETURNING rows) "
            f"UPDATE {self._ours}.claims SET folded_rows = folded_rows + (SELECT coalesce(sum(rows), 0) FROM old) WHERE target = %s",
            (self.table, batch.lineage, batch.number - DETAILED, self.table),
        )

    def forget(self, connection: Connection[Any]) -> None:
        """Who has written to the table, and what; not what is staged."""
        for name in ("commits", "claims"):
            connection.execute(f"DELETE FROM {self._ours}.{name} WHERE target = %s", (self.table,))

    def stage(self, connection: Connection[Any], name: str, lineage: str, number: int) -> None:
        """Say that a staging table of that name is about to be there."""
        connection.execute(f"INSERT INTO {self._ours}.staged VALUES (%s, %s, %s, %s)", (name, self.table, lineage, number))

    def confirm(self, connection: Connection[Any], name: str) -> None:
        """Wait until what was committed before, into the staging table of that name, is durable. It takes a transaction that writes."""
        connection.execute(f"UPDATE {self._ours}.staged SET number = number WHERE name = %s", (name,))

    def drop_staged(self, connection: Connection[Any], where: str = "", values: tuple[Any, ...] = ()) -> None:
        """Delete staging tables, all of the table or those of `where`. Outside of a transaction: one that somebody holds, such as a task
        that sleeps in its COPY, is not waited for; it stays for the next time."""
        names = connection.execute(f"SELECT name FROM {self._ours}.staged WHERE target = %s {where}", (self.table, *values))
        for (name,) in names.fetchall():
            with suppress(driver().errors.LockNotAvailable), connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {_HELD_MS}")
                connection.execute(f"DROP TABLE IF EXISTS {quoted(self.schema, name)}")
                connection.execute(f"DELETE FROM {self._ours}.staged WHERE name = %s", (name,))

    def _one(self, connection: Connection[Any], where: str, values: tuple[Any, ...]) -> Commit | None:
        return next(iter(self._all(connection, where, values)), None)

    def _all(self, connection: Connection[Any], where: str, values: tuple[Any, ...]) -> list[Commit]:
        found = connection.execute(
            f"SELECT number, hash, term, receipts, rows, xid FROM {self._ours}.commits WHERE target = %s {where}",
            (self.table, *values),
        )
        return [Commit(*row) for row in found.fetchall()]


def receipts_of(decided: Decided) -> str:
    """The receipts as a text that is the same for the same decision."""
    return json.dumps([receipt.as_json() for receipt in decided.receipts], sort_keys=True)

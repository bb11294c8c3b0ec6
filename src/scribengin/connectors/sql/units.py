"""Commits of single task outputs: two more own tables, beside those of `commits`.

units       one row per task output: the input hash of its Batch, the Term, rows, and the report of its task
parts       one row for each step in which a task output has put rows into the table; that step writes it, so it shows its transaction.
            The attempt is in its key: attempts at once do not wait for one another here
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.sql.contract import UNIT_OWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import BatchId
    from scribengin.connectors.sql.contract import LoadingDatabase, SqlSession


class Units:
    """Both tables, for one `table`."""

    def __init__(self, database: LoadingDatabase[Any], table: str) -> None:
        self.table = table
        self._database = database
        self._units, self._parts = (database.escaped(*database.own(name)) for name in UNIT_OWN)
        self._number, self._rows = database.quoted("number"), database.quoted("rows")

    def there(self, session: SqlSession) -> bool:
        """False if no sink of this version has claimed a table yet."""
        return self._database.is_there(session, *self._database.own(UNIT_OWN[-1]))

    def put(self, session: SqlSession, batch: BatchId, unit: int, attempt: str, part: int, rows: int) -> None:
        """Record that this step of the transaction, the `part`th, has put that many rows into the table."""
        marks = ", ".join([self._database.mark] * 7)
        values = (self.table, batch.lineage, batch.number, unit, attempt, part, rows)
        session.execute(f"INSERT INTO {self._parts} VALUES ({marks})", values)

    def commit(self, session: SqlSession, batch: BatchId, unit: int, input_hash: str, rows: int, report: Mapping[str, Any]) -> bool:
        """Record the task output that this transaction writes. Returns False if another attempt has committed it; waits for one that is
        about to."""
        marks = ", ".join([self._database.mark] * 8)
        said = msgspec.json.encode(report).decode()
        done = session.execute(
            f"INSERT INTO {self._units} VALUES ({marks}) ON CONFLICT DO NOTHING",
            (self.table, batch.lineage, batch.number, unit, input_hash, batch.term, rows, said),
        )
        return done.rowcount == 1

    def report(self, session: SqlSession, batch: BatchId, unit: int) -> tuple[str, Mapping[str, Any]] | None:
        """(input hash, report of its task) of a committed task output."""
        m = self._database.mark
        found = session.execute(
            f"SELECT hash, report FROM {self._units} WHERE target = {m} AND lineage = {m} AND {self._number} = {m} AND unit = {m}",
            (self.table, batch.lineage, batch.number, unit),
        ).fetchone()
        return None if found is None else (found[0], msgspec.json.decode(found[1]))

    def of_batch(self, session: SqlSession, lineage: str, number: int) -> dict[int, tuple[str, int]]:
        """Unit → (input hash, rows), of the committed ones."""
        m = self._database.mark
        found = session.execute(
            f"SELECT unit, hash, {self._rows} FROM {self._units} WHERE target = {m} AND lineage = {m} AND {self._number} = {m}",
            (self.table, lineage, number),
        )
        return {unit: (hash_, rows) for unit, hash_, rows in found.fetchall()}

    def transactions(self, session: SqlSession) -> dict[tuple[str, int], list[int]]:
        """(lineage, number) of each Batch → the transactions of its parts, as shown by rows; of Batches that are not folded."""
        found = session.execute(
            f"SELECT lineage, {self._number}, {self._database.row_transaction} FROM {self._parts} WHERE target = {self._database.mark}",
            (self.table,),
        )
        told: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for lineage, number, xid in found.fetchall():
            told[lineage, number].append(xid)
        return told

    def wrote(self, session: SqlSession) -> bool:
        """Whether the table must contain rows of a task output."""
        m = self._database.mark
        some = f"SELECT 1 WHERE EXISTS (SELECT 1 FROM {self._parts} WHERE target = {m})"
        return session.execute(some, (self.table,)).fetchone() is not None

    def fold(self, session: SqlSession, lineage: str, number: int) -> None:
        """Delete those of Batches up to that one."""
        m = self._database.mark
        for place in (self._units, self._parts):
            session.execute(
                f"DELETE FROM {place} WHERE target = {m} AND lineage = {m} AND {self._number} <= {m}", (self.table, lineage, number)
            )

    def forget(self, session: SqlSession) -> None:
        """Delete all of them."""
        for place in (self._units, self._parts):
            session.execute(f"DELETE FROM {place} WHERE target = {self._database.mark}", (self.table,))

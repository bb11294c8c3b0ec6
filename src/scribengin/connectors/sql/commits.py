"""Scribengin's own tables beside the rows: which lineage writes to a table, what was committed there, and what tasks have staged.

claims    one row per table: owner, lineage and sink that may write; a publication locks it
commits   one row per Batch: input hash, Term, write receipts, rows, and the transaction that wrote them
staged    one row per staging table of a task; the table itself is beside them
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.sql.contract import OWN, UNIT_OWN, HeldByOthers
from scribengin.core.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeGuard

    from scribengin.connectors.contract import BatchId, Decided
    from scribengin.connectors.sql.contract import ComparingDatabase, Database, LoadingDatabase, SqlSession


# Commits of single task outputs: two more own tables, beside those of `commits`.
#
# units       one row per task output: the input hash of its Batch, the Term, rows, and the report of its task
# parts       one row for each step in which a task output has put rows into the table; that step writes it, so it shows its transaction.
#             The attempt is in its key: attempts at once do not wait for one another here


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


DETAILED = 1_000
"""number of newest Batches with a row of their own in `commits`; for older ones the number of rows is kept, in `claims`"""


@dataclass(frozen=True, slots=True)
class TableClaim:
    """The claim of a table: which lineage may write to it."""

    owner: str
    lineage: str
    sink: str
    flow: str


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of one Batch; `xid` is the transaction, as shown by rows; if task outputs have committed, no row has it."""

    number: int
    input_hash: str
    term: int
    receipts: str
    rows: int
    xid: int


class Commits:
    """The three tables, for one `table`. `units`: commits of single task outputs, if the database supports that."""

    def __init__(self, database: Database[Any], table: str) -> None:
        self.table = table
        self.database = database
        # each of these statements comes with values
        self._claims, self._commits, self._staged = (database.escaped(*database.own(name)) for name in OWN)
        # reserved words in some databases
        self._number, self._rows = database.quoted("number"), database.quoted("rows")
        self.units = Units(database, table) if loads(database) else None

    def make(self, session: SqlSession) -> None:
        """Create missing tables. Two processes that do so at once wait for each other."""
        with session.transaction():
            self.database.make_own(session)

    def there(self, session: SqlSession) -> bool:
        """Whether our tables exist."""
        return self.database.is_there(session, *self.database.own(OWN[-1]))

    def claim(self, session: SqlSession, *, lock: bool = False) -> tuple[TableClaim, tuple[str, ...]] | None:
        """The claim of the table, and the lineages that wrote there before; None if it is not claimed. `lock`: no other session changes or
        locks it until the transaction ends."""
        return self._claim(session, self.database.for_update if lock else "")

    def claim_to_share(self, session: SqlSession) -> TableClaim | None:
        """The claim of the table, with a shared lock: it does not change until the transaction ends, but other task outputs may lock it
        too."""
        assert loads(self.database)
        held = self._claim(session, self.database.for_share)
        return None if held is None else held[0]

    def _claim(self, session: SqlSession, locks: str) -> tuple[TableClaim, tuple[str, ...]] | None:
        m = self.database.mark
        found = session.execute(
            f"SELECT owner, lineage, sink, flow, earlier FROM {self._claims} WHERE target = {m} {locks}", (self.table,)
        ).fetchone()
        return None if found is None else (TableClaim(*found[:4]), tuple(self.database.unpacked(found[4])))

    def take(self, session: SqlSession, claim: TableClaim, held: tuple[TableClaim, tuple[str, ...]] | None, *, had_rows: bool) -> None:
        """Set the claim; `held`, as returned by `claim`, is kept in the history. `had_rows`: for an unclaimed table, whether it contains
        rows."""
        m, packed = self.database.mark, self.database.packed
        if held is None:
            session.execute(
                f"INSERT INTO {self._claims} (target, owner, lineage, sink, flow, earlier, had_rows) "
                f"VALUES ({m}, {m}, {m}, {m}, {m}, {m}, {m})",
                (self.table, claim.owner, claim.lineage, claim.sink, claim.flow, packed(()), had_rows),
            )
            return
        session.execute(
            f"UPDATE {self._claims} SET owner = {m}, lineage = {m}, sink = {m}, flow = {m}, earlier = {m} WHERE target = {m}",
            (claim.owner, claim.lineage, claim.sink, claim.flow, packed((*held[1], held[0].lineage)), self.table),
        )

    def had_rows(self, session: SqlSession) -> bool:
        """Whether the table contained rows when it was first claimed."""
        found = session.execute(f"SELECT had_rows FROM {self._claims} WHERE target = {self.database.mark}", (self.table,)).fetchone()
        return bool(found and found[0])

    def wrote(self, session: SqlSession) -> bool:
        """Whether the table must contain rows, of a Batch or from before."""
        m = self.database.mark
        held = session.execute(f"SELECT had_rows OR folded_rows > 0 FROM {self._claims} WHERE target = {m}", (self.table,)).fetchone()
        some = f"SELECT 1 WHERE EXISTS (SELECT 1 FROM {self._commits} WHERE target = {m} AND {self._rows} > 0)"
        of_units = self.units is not None and self.units.wrote(session)
        return of_units or bool(held and held[0]) or session.execute(some, (self.table,)).fetchone() is not None

    def commit_of(self, session: SqlSession, lineage: str, number: int) -> Commit | None:
        """The commit of that Batch."""
        m = self.database.mark
        return self._one(session, f"AND lineage = {m} AND {self._number} = {m}", (lineage, number))

    def newest(self, session: SqlSession, lineage: str) -> Commit | None:
        """The newest commit."""
        m = self.database.mark
        last = f"SELECT max({self._number}) FROM {self._commits} WHERE target = {m} AND lineage = {m}"
        return self._one(session, f"AND lineage = {m} AND {self._number} = ({last})", (lineage, self.table, lineage))

    def of_lineage(self, session: SqlSession, lineage: str) -> dict[int, Commit]:
        """Number → each commit that still has a row of its own."""
        return {each.number: each for each in self._all(session, f"AND lineage = {self.database.mark}", (lineage,))}

    def rows_by_lineage(self, session: SqlSession) -> dict[str, int]:
        """Lineage → its rows, in Batches that still have a row of their own."""
        lineages = f"SELECT lineage, sum({self._rows}) FROM {self._commits} WHERE target = {self.database.mark} GROUP BY lineage"
        return {lineage: int(rows) for lineage, rows in session.execute(lineages, (self.table,)).fetchall()}

    def xids(self, session: SqlSession) -> tuple[list[int], int]:
        """(the transactions of all Batches, of every lineage; rows of folded Batches)."""
        held = session.execute(f"SELECT folded_rows FROM {self._claims} WHERE target = {self.database.mark}", (self.table,)).fetchone()
        whole = [each.xid for each in self._all(session, "", ())]
        return [*whole, *chain.from_iterable(self.unit_xids(session).values())], held[0] if held else 0

    def unit_xids(self, session: SqlSession) -> dict[tuple[str, int], list[int]]:
        """(lineage, number) → the transactions of its task outputs, for each Batch that has some; also for one that is not decided yet."""
        return {} if self.units is None or not self.units.there(session) else self.units.transactions(session)

    def note(self, session: SqlSession, decided: Decided, rows: int) -> None:
        """Record the Batch that this transaction writes, and fold old ones. The claim is locked."""
        m, batch = self.database.mark, decided.batch
        session.execute(
            f"INSERT INTO {self._commits} VALUES ({m}, {m}, {m}, {m}, {m}, {m}, {m}, {self.database.this_transaction})",
            (self.table, batch.lineage, batch.number, decided.input_hash, batch.term, receipts_of(decided), rows),
        )
        if batch.number < DETAILED:
            return
        old = f"FROM {self._commits} WHERE target = {m} AND lineage = {m} AND {self._number} <= {m}"
        values = (self.table, batch.lineage, batch.number - DETAILED)
        session.execute(
            f"UPDATE {self._claims} SET folded_rows = folded_rows + (SELECT coalesce(sum({self._rows}), 0) {old}) WHERE target = {m}",
            (*values, self.table),
        )
        session.execute(f"DELETE {old}", values)
        if self.units is not None:
            self.units.fold(session, batch.lineage, batch.number - DETAILED)

    def forget(self, session: SqlSession) -> None:
        """Delete the claim and the commits of the table; staged data is kept."""
        for place in (self._commits, self._claims):
            session.execute(f"DELETE FROM {place} WHERE target = {self.database.mark}", (self.table,))
        if self.units is not None and self.units.there(session):
            self.units.forget(session)

    def stage(self, session: SqlSession, name: str, lineage: str, number: int) -> None:
        """Record that a staging table of that name is about to be created."""
        m = self.database.mark
        session.execute(f"INSERT INTO {self._staged} VALUES ({m}, {m}, {m}, {m})", (name, self.table, lineage, number))

    def confirm(self, session: SqlSession, name: str) -> None:
        """Wait until everything committed before, into the staging table of that name, is durable. This needs a transaction that writes."""
        session.execute(f"UPDATE {self._staged} SET {self._number} = {self._number} WHERE name = {self.database.mark}", (name,))

    def drop_staged(self, session: SqlSession) -> None:
        """Drop all staging tables of the table. Outside a transaction: one that another session holds, such as a suspended task that fills
        it, is not waited for, and is kept until the next time."""
        self._drop(session, "", ())

    def drop_staged_of(self, session: SqlSession, lineage: str, number: int) -> None:
        """Like `drop_staged`, for one Batch."""
        m = self.database.mark
        self._drop(session, f"AND lineage = {m} AND {self._number} = {m}", (lineage, number))

    def drop_staged_before(self, session: SqlSession, lineage: str, number: int) -> None:
        """Like `drop_staged`, for the Batches before that one."""
        m = self.database.mark
        self._drop(session, f"AND lineage = {m} AND {self._number} < {m}", (lineage, number))

    def drop_staged_called(self, session: SqlSession, name: str) -> None:
        """Like `drop_staged`, for the one of this name."""
        self._drop(session, f"AND name = {self.database.mark}", (name,))

    def fenced(self, sink: str, part: str, batch: BatchId, why: str) -> FencedError:
        """The error for a writer that is too late with a Batch, or with a `part` of it ("unit 3 of ")."""
        return FencedError(
            f'sink "{sink}" refuses {part}batch {batch.number} of lineage {batch.lineage}: {why} ({self.database}, table {self.table})',
            remedy="another driver writes here, or the state folder was copied or restored; stop this driver",
            node=sink,
        )

    def _drop(self, session: SqlSession, where: str, values: tuple[Any, ...]) -> None:
        m = self.database.mark
        names = session.execute(f"SELECT name FROM {self._staged} WHERE target = {m} {where}", (self.table, *values))
        for (name,) in names.fetchall():
            with suppress(HeldByOthers), session.transaction():
                self.database.drop(session, name)
                session.execute(f"DELETE FROM {self._staged} WHERE name = {m}", (name,))

    def _one(self, session: SqlSession, where: str, values: tuple[Any, ...]) -> Commit | None:
        return next(iter(self._all(session, where, values)), None)

    def _all(self, session: SqlSession, where: str, values: tuple[Any, ...]) -> list[Commit]:
        columns = f"{self._number}, hash, term, receipts, {self._rows}, xid"
        found = session.execute(f"SELECT {columns} FROM {self._commits} WHERE target = {self.database.mark} {where}", (self.table, *values))
        return [Commit(*row) for row in found.fetchall()]


def loads(database: Database[Any]) -> TypeGuard[LoadingDatabase[Any]]:
    """True for a LoadingDatabase."""
    return hasattr(database, "load")


def compares(database: Database[Any]) -> TypeGuard[ComparingDatabase[Any]]:
    """True for a ComparingDatabase."""
    return hasattr(database, "unlike")


def receipts_of(decided: Decided) -> str:
    """The write receipts as a text that is the same for the same decision."""
    return json.dumps([receipt.as_json() for receipt in decided.receipts], sort_keys=True)

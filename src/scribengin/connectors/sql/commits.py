"""Our own tables beside the rows: who writes to a table, what was committed there, and what tasks have staged.

claims      one row a table: owner, lineage and sink that may write; it is locked by whoever publishes
commits     one row a Batch: input hash, Term, receipts, rows, and the transaction that wrote them
staged      one row a table that a task has staged rows in; the table lies beside
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from scribengin.connectors.sql.contract import OWN, HeldByOthers
from scribengin.connectors.sql.units import Units
from scribengin.core.errors import FencedError

if TYPE_CHECKING:
    from typing import TypeGuard

    from scribengin.connectors.contract import BatchId, Decided
    from scribengin.connectors.sql.contract import Database, LoadingDatabase, Session

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
    """What was committed as one Batch; `xid` is the transaction, as rows tell it, of which there are none where units have committed."""

    number: int
    input_hash: str
    term: int
    receipts: str
    rows: int
    xid: int


class Commits:
    """The three tables, asked about one `table`. `units`: what units have committed by themselves, where the database can do that."""

    def __init__(self, database: Database[Any], table: str) -> None:
        self.table = table
        self.database = database
        # each of these statements comes with values
        self._claims, self._commits, self._staged = (database.escaped(*database.own(name)) for name in OWN)
        # words that some databases have for themselves
        self._number, self._rows = database.quoted("number"), database.quoted("rows")
        self.units = Units(database, table) if loads(database) else None

    def make(self, session: Session) -> None:
        """Make what is not there. Two that do so at once wait for each other."""
        with session.transaction():
            self.database.make_own(session)

    def there(self, session: Session) -> bool:
        """Whether our tables are."""
        return self.database.is_there(session, *self.database.own(OWN[-1]))

    def claim(self, session: Session, *, lock: bool = False) -> tuple[Claim, tuple[str, ...]] | None:
        """Whose the table is, and which lineages wrote there before; None where it is nobody's. `lock`: nobody else changes or locks it
        until the transaction ends."""
        return self._claim(session, self.database.for_update if lock else "")

    def claim_to_share(self, session: Session) -> Claim | None:
        """Whose the table is; nobody changes that until the transaction ends, in which units do the same at once."""
        assert loads(self.database)
        held = self._claim(session, self.database.for_share)
        return None if held is None else held[0]

    def _claim(self, session: Session, locks: str) -> tuple[Claim, tuple[str, ...]] | None:
        m = self.database.mark
        found = session.execute(
            f"SELECT owner, lineage, sink, flow, earlier FROM {self._claims} WHERE target = {m} {locks}", (self.table,)
        ).fetchone()
        return None if found is None else (Claim(*found[:4]), tuple(self.database.unpacked(found[4])))

    def take(self, session: Session, claim: Claim, held: tuple[Claim, tuple[str, ...]] | None, *, had_rows: bool) -> None:
        """Make it that one's; `held`, as `claim` has told it, stays known. `had_rows`: of nobody's table, whether it holds rows."""
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

    def had_rows(self, session: Session) -> bool:
        """Whether the table held rows when it was claimed first."""
        found = session.execute(f"SELECT had_rows FROM {self._claims} WHERE target = {self.database.mark}", (self.table,)).fetchone()
        return bool(found and found[0])

    def wrote(self, session: Session) -> bool:
        """Whether rows of a Batch, or those that were there before, must stand in the table."""
        m = self.database.mark
        held = session.execute(f"SELECT had_rows OR folded_rows > 0 FROM {self._claims} WHERE target = {m}", (self.table,)).fetchone()
        some = f"SELECT 1 WHERE EXISTS (SELECT 1 FROM {self._commits} WHERE target = {m} AND {self._rows} > 0)"
        of_units = self.units is not None and self.units.wrote(session)
        return of_units or bool(held and held[0]) or session.execute(some, (self.table,)).fetchone() is not None

    def commit_of(self, session: Session, lineage: str, number: int) -> Commit | None:
        """What was committed as that Batch."""
        m = self.database.mark
        return self._one(session, f"AND lineage = {m} AND {self._number} = {m}", (lineage, number))

    def newest(self, session: Session, lineage: str) -> Commit | None:
        """The last one."""
        m = self.database.mark
        last = f"SELECT max({self._number}) FROM {self._commits} WHERE target = {m} AND lineage = {m}"
        return self._one(session, f"AND lineage = {m} AND {self._number} = ({last})", (lineage, self.table, lineage))

    def of_lineage(self, session: Session, lineage: str) -> dict[int, Commit]:
        """Number → each that is still told."""
        return {each.number: each for each in self._all(session, f"AND lineage = {self.database.mark}", (lineage,))}

    def rows_by_lineage(self, session: Session) -> dict[str, int]:
        """Of each that has written, in Batches that are still told."""
        lineages = f"SELECT lineage, sum({self._rows}) FROM {self._commits} WHERE target = {self.database.mark} GROUP BY lineage"
        return {lineage: int(rows) for lineage, rows in session.execute(lineages, (self.table,)).fetchall()}

    def xids(self, session: Session) -> tuple[list[int], int]:
        """(the transactions of all Batches, of every lineage; rows of Batches that are told no more)."""
        held = session.execute(f"SELECT folded_rows FROM {self._claims} WHERE target = {self.database.mark}", (self.table,)).fetchone()
        whole = [each.xid for each in self._all(session, "", ())]
        return [*whole, *chain.from_iterable(self.unit_xids(session).values())], held[0] if held else 0

    def unit_xids(self, session: Session) -> dict[tuple[str, int], list[int]]:
        """(lineage, number) → the transactions of its units, of each Batch that has some; also of one that is not decided yet."""
        return {} if self.units is None or not self.units.there(session) else self.units.transactions(session)

    def note(self, session: Session, decided: Decided, rows: int) -> None:
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

    def forget(self, session: Session) -> None:
        """Who has written to the table, and what; not what is staged."""
        for place in (self._commits, self._claims):
            session.execute(f"DELETE FROM {place} WHERE target = {self.database.mark}", (self.table,))
        if self.units is not None and self.units.there(session):
            self.units.forget(session)

    def stage(self, session: Session, name: str, lineage: str, number: int) -> None:
        """Say that a staging table of that name is about to be there."""
        m = self.database.mark
        session.execute(f"INSERT INTO {self._staged} VALUES ({m}, {m}, {m}, {m})", (name, self.table, lineage, number))

    def confirm(self, session: Session, name: str) -> None:
        """Wait until what was committed before, into the staging table of that name, is durable. It takes a transaction that writes."""
        session.execute(f"UPDATE {self._staged} SET {self._number} = {self._number} WHERE name = {self.database.mark}", (name,))

    def drop_staged(self, session: Session) -> None:
        """Delete all staging tables of the table. Outside of a transaction: one that somebody holds, such as a task that sleeps while it
        fills it, is not waited for; it stays for the next time."""
        self._drop(session, "", ())

    def drop_staged_of(self, session: Session, lineage: str, number: int) -> None:
        """As `drop_staged`, those of one Batch."""
        m = self.database.mark
        self._drop(session, f"AND lineage = {m} AND {self._number} = {m}", (lineage, number))

    def drop_staged_before(self, session: Session, lineage: str, number: int) -> None:
        """As `drop_staged`, those of the Batches before that one."""
        m = self.database.mark
        self._drop(session, f"AND lineage = {m} AND {self._number} < {m}", (lineage, number))

    def drop_staged_called(self, session: Session, name: str) -> None:
        """As `drop_staged`, that of this name."""
        self._drop(session, f"AND name = {self.database.mark}", (name,))

    def fenced(self, sink: str, part: str, batch: BatchId, why: str) -> FencedError:
        """For who comes too late with a Batch, or with a `part` of it ("unit 3 of ")."""
        return FencedError(
            f'sink "{sink}" refuses {part}batch {batch.number} of lineage {batch.lineage}: {why} ({self.database}, table {self.table})',
            remedy="another driver writes here, or the state folder was copied or restored; stop this driver",
            node=sink,
        )

    def _drop(self, session: Session, where: str, values: tuple[Any, ...]) -> None:
        m = self.database.mark
        names = session.execute(f"SELECT name FROM {self._staged} WHERE target = {m} {where}", (self.table, *values))
        for (name,) in names.fetchall():
            with suppress(HeldByOthers), session.transaction():
                self.database.drop(session, name)
                session.execute(f"DELETE FROM {self._staged} WHERE name = {m}", (name,))

    def _one(self, session: Session, where: str, values: tuple[Any, ...]) -> Commit | None:
        return next(iter(self._all(session, where, values)), None)

    def _all(self, session: Session, where: str, values: tuple[Any, ...]) -> list[Commit]:
        columns = f"{self._number}, hash, term, receipts, {self._rows}, xid"
        found = session.execute(f"SELECT {columns} FROM {self._commits} WHERE target = {self.database.mark} {where}", (self.table, *values))
        return [Commit(*row) for row in found.fetchall()]


def loads(database: Database[Any]) -> TypeGuard[LoadingDatabase[Any]]:
    """True for a LoadingDatabase."""
    return hasattr(database, "load")


def receipts_of(decided: Decided) -> str:
    """The receipts as a text that is the same for the same decision."""
    return json.dumps([receipt.as_json() for receipt in decided.receipts], sort_keys=True)

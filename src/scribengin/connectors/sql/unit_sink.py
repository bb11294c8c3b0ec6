"""The sink whose tasks write directly to the table: each task output of a Batch in its own transaction, with a record of it.

It writes rows once, while `SqlSink` writes them twice, and a reader may see part of a Batch. Each record is still written once, for two
reasons. A task output is the same whenever its Batch is run (see `connectors.contract`), and only one of its attempts can put its record
into `units`. A late attempt finds that record, or that the claim or the newest Batch has changed, under a lock that it shares with other
task outputs and not with a claim. If the engine cannot let task outputs commit, the whole Batch is written as by `SqlSink`.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import AlreadyCommitted, Receipt
from scribengin.connectors.sql.sink import SqlSink
from scribengin.connectors.sql.table_stream import TableStream
from scribengin.core import faults
from scribengin.core.errors import ScribenginError, StateError
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.sql.commits import Commits, TableClaim
    from scribengin.connectors.sql.contract import LoadingDatabase, SqlSession, Staging, Target
    from scribengin.core.errors import FencedError
    from scribengin.core.types import Schema


# Keeps a session from being ended as idle.


class Awake:
    """Sends a query now and then, from a thread of its own, within a session's transaction: databases end sessions that are silent for
    `silence_s`, because a suspended process blocks others, but producing the next row of a task output may take long. A suspended process
    sends no queries. Use the session only inside `with`."""

    def __init__(self, session: SqlSession, silence_s: float) -> None:
        self._session = session
        self._every_s = silence_s / 4
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="awake", daemon=True)
        self._thread.start()

    def __enter__(self) -> SqlSession:
        self._lock.acquire()
        return self._session

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()

    def end(self) -> SqlSession:
        """Stop the queries; the session may be used as before."""
        self._ended.set()
        self._thread.join()
        return self._session

    def _ask(self) -> None:
        while not self._ended.wait(min(self._every_s, threading.TIMEOUT_MAX)):
            with self._lock, suppress(Exception):  # the session's next row reports what is wrong with it
                self._session.execute("SELECT 1")


# One task output that commits by itself: its rows are put into the table as they arrive, in one transaction, which ends with its
# record.


@dataclass(frozen=True, slots=True)
class Unit:
    """A task output, its Batch and its writer. `after`: the newest published Batch that must be recorded, None for none."""

    sink: str
    owner: str
    batch: BatchId
    number: int
    attempt: str
    input_hash: str
    after: int | None


class SqlUnitStream(TableStream):
    """See the contract's UnitStream. Its transaction is open from the first row, or from `close` if there is none."""

    def __init__(self, unit: Unit, database: LoadingDatabase[Any], commits: Commits, target: Target, schema: Schema) -> None:
        super().__init__(unit.sink, database, commits, target, schema)
        self._unit = unit
        self._loading = database
        assert commits.units is not None, "only a LoadingDatabase supports task outputs"
        self._units = commits.units
        self._open = ExitStack()
        """the open transaction; it commits if it ends without an error"""
        self._awake: Awake | None = None
        self._table: Staging | None = None
        self._parts = 0

    def close(self) -> Receipt:
        """All rows are in the table, visible only to this transaction."""
        self._begin_once()
        faults.reached("transaction.sent")
        segment = {"hash": self._unit.input_hash}
        return Receipt(self._sink, self._unit.number, self._rows, self._bytes, (segment,))

    def commit(self, report: Mapping[str, Any]) -> None:
        """Check again, under a lock, whether this task output still has to be written; then record it, and commit."""
        assert self._awake is not None
        unit, session = self._unit, self._awake.end()  # a process suspended from here on blocks others
        with self._database.explained(f"did not commit task output {unit.number} of batch {unit.batch.number} to {self._target}"):
            self._check(session, self._commits.claim_to_share(session))
            if not self._units.commit(session, unit.batch, unit.number, unit.input_hash, self._rows, report):
                raise self._earlier_commit(session) or self._fenced("another attempt committed it, and its report is lost")
            faults.reached("transaction.commit.before")
            self._end(commit=True)
            faults.reached("transaction.commit.after")

    def abort(self) -> None:
        """Roll back."""
        with suppress(ScribenginError), self._database.explained(f"failed to discard rows for {self._target}"):
            self._end(commit=False)

    def _begin_once(self) -> None:
        if self._awake is not None:
            return
        try:
            session = self._database.connect()
            self._open.callback(session.close)
            with self._database.explained(f"cannot accept a task output into {self._target}"):
                held = self._commits.claim(session)
                self._check(session, held[0] if held else None)
                faults.reached("marker.read")
                with session.transaction():
                    self._make_table(session)
                self._open.enter_context(session.transaction())
                self._table = self._loading.load(session, self._target, self._schema)
            self._awake = Awake(session, self._loading.silence_s)
        except BaseException:
            self._end(commit=False)
            raise

    def _put(self, batch: pa.RecordBatch) -> int:
        assert self._awake is not None
        assert self._table is not None
        with self._awake as session, self._loading.step(session):
            size = self._table.put(batch)
            self._units.put(session, self._unit.batch, self._unit.number, self._unit.attempt, self._parts, batch.num_rows)
        self._parts += 1
        return size

    def _end(self, *, commit: bool) -> None:
        if self._awake is not None:
            self._awake.end()
        ending, self._open = self._open, ExitStack()
        if commit:
            ending.close()
        else:
            ending.__exit__(_Undone, _Undone(), None)

    def _check(self, session: SqlSession, held: TableClaim | None) -> None:
        """Returns if this task output still has to be written. Raises AlreadyCommitted if it is committed, else FencedError or
        StateError."""
        unit, batch = self._unit, self._unit.batch
        if held is None or (held.owner, held.lineage) != (unit.owner, batch.lineage):
            raise self._fenced("another lineage has claimed the table")
        if (found := self._earlier_commit(session)) is not None:
            raise found
        newest = self._commits.newest(session, batch.lineage)
        if newest is None and unit.after is None:
            return
        if newest is not None and newest.number == unit.after and newest.number < batch.number and newest.term <= batch.term:
            return
        if newest is None or (unit.after is not None and newest.number < unit.after):
            raise StateError(
                f'sink "{unit.sink}" writes nothing of batch {batch.number}: batch {unit.after} is published, but the newest in '
                f"{self._database} for {self._target} is {('none' if newest is None else newest.number)}",
                remedy=f"the database was reset to an older state: restore it; or {start_over()}",
            )
        raise self._fenced(f"batch {newest.number} already exists, under Term {newest.term}")

    def _earlier_commit(self, session: SqlSession) -> AlreadyCommitted | FencedError | None:
        """The error to raise if the task output is committed."""
        said = self._units.report(session, self._unit.batch, self._unit.number)
        if said is None:
            return None
        hash_, report = said
        return AlreadyCommitted(report) if hash_ == self._unit.input_hash else self._fenced("it already exists, with other input")

    def _fenced(self, why: str) -> FencedError:
        return self._commits.fenced(self._sink, f"unit {self._unit.number} of ", self._unit.batch, why)


class _Undone(Exception):
    """Ends a transaction without a commit."""


_MOST = 1_000


class SqlUnitSink(SqlSink):
    """Like SqlSink, for appended rows."""

    units = _MOST

    def __init__(self, place: ConnectorContext, database: LoadingDatabase[Any], target: Target) -> None:
        super().__init__(place, database, target)
        self._loading = database
        self._after: int | None = None
        """the newest published Batch, None if there is none"""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Like SqlSink; also reads the lineage's newest Batch."""
        super().prepare(owner=owner, lineage=lineage, adopt=adopt)
        with self._connected("cannot be read") as session:
            newest = self._commits.newest(session, lineage)
        self._after = None if newest is None else newest.number

    def behind(self, units: int) -> Mapping[str, Any]:
        """`after`: the number of the newest published Batch."""
        return {"units": units, "after": self._after}

    def unit_stream(
        self, batch: BatchId, unit: int, attempt: str, schema: Schema, *, input_hash: str, behind: Mapping[str, Any]
    ) -> SqlUnitStream:
        """A stream that commits by itself."""
        mine = Unit(self.node, self._owner, batch, unit, attempt, input_hash, behind["after"])
        return SqlUnitStream(mine, self._loading, self._commits, self._target, schema)

    def publish(self, decided: Decided) -> None:
        """Like SqlSink, but only records a Batch whose task outputs have committed."""
        super().publish(decided)
        self._after = decided.batch.number

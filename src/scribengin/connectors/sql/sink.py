"""The sink: tasks fill staging tables of their own; one transaction merges the decided ones, under the lock of the claim."""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Published, Receipt, Unaccounted
from scribengin.connectors.sql.commits import Commits, TableClaim, compares, receipts_of
from scribengin.connectors.sql.table_stream import TableStream, unlike
from scribengin.core import faults
from scribengin.core.errors import Refused, ScribenginError, StateError, Unreachable
from scribengin.core.remedies import add_to_outputs, beside_flow, beside_installation, rename_back, start_over
from scribengin.core.types import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.sql.contract import Database, SqlSession, Staging, Target
    from scribengin.core.errors import FencedError


# Writes of one task output: a staging table of its own, which no other attempt uses.


class SqlSinkStream(TableStream):
    """See the contract. The staging table is created at the first row, and the target table if it does not exist."""

    def __init__(
        self, sink: str, database: Database[Any], commits: Commits, target: Target, batch: BatchId, unit: int, attempt: str, schema: Schema
    ) -> None:
        super().__init__(sink, database, commits, target, schema)
        self._batch = batch
        self._unit = unit
        # sinks that commit together share the attempt; and a name may be 63 bytes long
        whose = blake2b(f"{target} {batch.lineage} {attempt}".encode(), digest_size=12).hexdigest()
        self._name = f"rows_{batch.number}_{unit}_{whose}"
        self._begun: tuple[SqlSession, Staging] | None = None

    def close(self) -> Receipt:
        """Make the rows durable: a synchronous commit makes all earlier ones durable too."""
        if self._begun is None:
            return Receipt(self._sink, self._unit, 0, 0)
        session, _ = self._begun
        with self._database.explained(f"failed to keep rows for {self._target}"):
            self._commits.confirm(session, self._name)
        session.close()
        segment = {"staged": self._name, "rows": self._rows, "columns": list(self._schema.names)}
        return Receipt(self._sink, self._unit, self._rows, self._bytes, (segment,) if self._rows else ())

    def abort(self) -> None:
        """Drop the staging table."""
        if self._begun is None:
            return
        session, _ = self._begun
        with suppress(ScribenginError), self._database.explained(f"failed to discard rows for {self._target}"):
            self._commits.drop_staged_called(session, self._name)
        session.close()

    def _begin_once(self) -> None:
        if self._begun is not None:
            return
        session = self._database.connect()
        try:
            with self._database.explained(f"cannot stage rows for {self._target}"), session.transaction():
                self._make_table(session)
                self._commits.stage(session, self._name, self._batch.lineage, self._batch.number)
                self._begun = session, self._database.stage(session, self._name, self._target, self._schema)
        except BaseException:
            self._begun = None
            session.close()
            raise

    def _put(self, batch: pa.RecordBatch) -> int:
        assert self._begun is not None
        return self._begun[1].put(batch)


# Moves the rows of staging tables into the table, in one statement each.


_PLACE = ("_scribengin_place", "_scribengin_place_row")
"""(task output, row) of a staged row: the original order"""
_CHANGES = "_scribengin_changes"
"""a table of the transaction: the result for each key"""


def add(session: SqlSession, database: Database[Any], target: Target, staged: str, columns: Sequence[str]) -> int:
    """Append the rows of a staging table; returns their number."""
    names = ", ".join(map(database.quoted, columns))
    return session.execute(f"INSERT INTO {database.quoted(*target.names)} ({names}) SELECT {names} FROM {staged}").rowcount


def merge(
    session: SqlSession, database: Database[Any], target: Target, staged: Sequence[str], columns: Sequence[str], version: str | None
) -> None:
    """Merge the rows of `staged`, tables in the order of their task outputs, with `columns`. The newest row of each key replaces the
    existing one, or deletes it."""
    rows = _newest(database, target, staged, columns, version)
    if target.change is not None:
        change = f"lower({database.quoted(target.change)})"
        session.execute(database.set_aside(_CHANGES, rows))
        session.execute(database.delete(target, f"SELECT * FROM {_CHANGES} WHERE {change} = 'delete'", version))
        rows = f"SELECT * FROM {_CHANGES} WHERE {change} <> 'delete'"
    session.execute(database.replace(target, rows, [name for name in columns if name != target.change], version))


def _newest(database: Database[Any], target: Target, staged: Sequence[str], columns: Sequence[str], version: str | None) -> str:
    """The row of each key that is kept: the one with the greatest version, and of equal ones the last."""
    names, (unit_place, row_place) = ", ".join(map(database.quoted, columns)), _PLACE
    every = " UNION ALL ".join(
        f"SELECT {names}, {unit} AS {unit_place}, {database.row_place} AS {row_place} FROM {table}" for unit, table in enumerate(staged)
    )
    return database.newest(every, columns, target.key, version, _PLACE)


class SqlSink:
    """One table of one database. Executors get a pickled copy, from which they take streams.

    `version`: the column by which rows of one key are compared, if any.
    """

    exactly_once = True

    def __init__(self, place: ConnectorContext, database: Database[Any], target: Target, version: str | None = None) -> None:
        self.node = place.node
        self._flow = place.flow
        self._owner = ""
        self._database = database
        self._target = target
        self._version = version
        self._commits = Commits(database, str(target))

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the table, or confirm an existing claim of this lineage. Raises Refused if it holds rows of others, unless `adopt`;
        Unreachable, SinkError if the database denies access."""
        mine = TableClaim(owner, lineage, self.node, self._flow)
        with self._connected("cannot be prepared") as session:
            self._commits.make(session)
            with session.transaction():
                self._database.alone(session, f"scribengin claim {self._target}")  # a row that does not exist yet cannot be locked
                held = self._commits.claim(session, lock=True)
                if held is None or held[0] != mine:
                    if held is not None and lineage in held[1]:
                        raise self._foreign("a newer lineage has taken it over")
                    if not adopt and held is not None:
                        self._check_writer(held[0], owner, self._flow)
                        self._check_sink(held[0].sink)
                    if not adopt and (held is not None or self._has_rows(session)):
                        raise self._foreign("it holds rows that this lineage did not write")
                    self._commits.take(session, mine, held, had_rows=held is None and self._has_rows(session))
        self._owner = owner

    def check_place(self) -> None:
        """See PlaceChecking. A missing table is created by the first run."""
        with self._connected("cannot be read") as session:
            self._columns(session)

    def check_ready(self, *, claimed: bool) -> None:
        """See `group.contract.MemberSink`. Takes the lock of a publication, which a read-only database refuses."""
        with self._connected("cannot be read") as session, session.transaction():
            if claimed and not (self._commits.there(session) and self._commits.claim(session, lock=True)):
                raise Unreachable(
                    f'sink "{self.node}": {self._database} has no claim of {self._target}: the flow claimed another database',
                    remedy="restore it, or connect to the claimed one",
                    node=self.node,
                )

    def unlike(self, schema: Schema) -> list[str]:
        """Why the existing table does not accept the columns, one sentence per reason."""
        with self._connected("cannot be read") as session:
            held = self._columns(session)
            if not held:
                return []
            coming = Schema(tuple(field for field in schema.fields if field.name != self._target.change))
            found = unlike(self._database, self._target, coming, held)
            if self._target.key and not self._database.has_key(session, self._target):
                found.append(f"the table has no primary key or unique index on ({', '.join(self._target.key)}), which mode: upsert needs")
            return [*found, *self._database.unlike(session, self._target)] if compares(self._database) else found

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SqlSinkStream:
        """A stream for one task output."""
        return SqlSinkStream(self.node, self._database, self._commits, self._target, batch, unit, attempt, self._keyed(schema))

    def publish(self, decided: Decided) -> None:
        """Write rows and commit record in one transaction; do nothing if the record exists."""
        batch = decided.batch
        with self._connected(f"did not accept batch {batch.number} into {self._target}") as session:
            with session.transaction():
                if not self._is_done(session, decided):
                    rows = self._take(session, decided)
                    faults.reached("publish.record.before")
                    self._commits.note(session, decided, rows)
            faults.reached("publish.record.after")
            self._commits.drop_staged_of(session, batch.lineage, batch.number)

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, then delete leftovers of tasks of decided Batches."""
        if decided is not None:
            self.publish(decided)
        with self._connected("cannot be cleaned up") as session:
            self._commits.drop_staged_before(session, lineage, before)

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """Compare the decisions with the commit records; if rows are only appended, count those of every transaction again. `since`: see
        `group.contract.MemberSink`."""
        with self._connected("cannot be read") as session:
            commits, of_units = self._commits.of_lineage(session, lineage), self._commits.unit_xids(session)
            found = self._rows_by_transaction(session)
            for each in decided:
                number = each.batch.number
                commit = commits.pop(number, None)
                if commit is None:
                    yield Published(number, 0, (f"batch {number} is decided, but not published; the next run publishes it",))
                    continue
                wrong = []
                if (commit.input_hash, commit.receipts) != (each.input_hash, receipts_of(each)):
                    wrong.append(f"batch {number} was published differently from its decision")
                xids = of_units.get((lineage, number), [commit.xid])
                rows = commit.rows if found is None else sum(found.get(xid, 0) for xid in xids)
                if rows != commit.rows:
                    wrong.append(f"batch {number}: expected {commit.rows} rows in {self._target}, found {rows}")
                yield Published(number, rows, tuple(wrong), counted=found is not None)
            for number in sorted(number for number in commits if since is not None and number >= since):
                yield Published(number, commits[number].rows, (f"batch {number} is published, but there is no decision for it",))
            if found is not None and (strange := self._strange(session, found)) > 0:
                yield Published(-1, 0, (f"{strange} rows in {self._target} belong to no batch",))

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """See `CountingSink`."""
        with self._connected("cannot be read") as session:
            if not self._commits.there(session):
                return []
            by_lineage = self._commits.rows_by_lineage(session)
        return [Unaccounted(f"lineage {lineage}", rows) for lineage, rows in by_lineage.items() if lineage not in known and rows]

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete all rows, the commit records and the claim; returns the number of rows. The table is kept. Raises Refused if the rows may
        include those of others."""
        with self._connected("cannot be cleared") as session:
            if not self._commits.there(session):
                return 0
            with session.transaction():
                held = self._commits.claim(session, lock=True)
                if held is None:
                    return 0
                self._check_writer(held[0], owner, flow)
                if self._commits.had_rows(session):
                    raise self._foreign("it already held rows of other writers when the flow started to write there")
                found = self._rows_by_transaction(session)
                if found is not None and self._strange(session, found) > 0:
                    raise self._foreign("it holds rows that no batch wrote")
                if not self._columns(session):
                    rows = 0
                elif dry_run:
                    rows = self._count(session, f"SELECT count(*) FROM {self._place}")
                else:
                    rows = session.execute(f"DELETE FROM {self._place}").rowcount
                if not dry_run:
                    self._commits.forget(session)
            if not dry_run:
                self._commits.drop_staged(session)
            return rows

    @property
    def _place(self) -> str:
        """The table's name, in statements."""
        return self._database.quoted(*self._target.names)

    @contextmanager
    def _connected(self, what: str) -> Iterator[SqlSession]:
        with closing(self._database.connect()) as session, self._database.explained(what):
            yield session

    # --- inside a transaction ---

    def _is_done(self, session: SqlSession, decided: Decided) -> bool:
        """True if exactly this Batch is committed. Raises FencedError if another one is, or another lineage has the claim now."""
        batch = decided.batch
        held = self._commits.claim(session, lock=True)
        if held is None or (held[0].owner, held[0].lineage) != (self._owner, batch.lineage):
            raise self._fenced(batch, "another lineage has claimed the table")
        commit = self._commits.commit_of(session, batch.lineage, batch.number)
        if commit is not None:
            if (commit.input_hash, commit.receipts) != (decided.input_hash, receipts_of(decided)):
                raise self._fenced(batch, "it already exists with another decision")
            return True
        newest = self._commits.newest(session, batch.lineage)
        if newest is not None and (newest.number > batch.number or newest.term > batch.term):
            raise self._fenced(batch, f"batch {newest.number} already exists, under Term {newest.term}")
        return False

    def _take(self, session: SqlSession, decided: Decided) -> int:
        """Put the decided rows into the table; returns how many were staged, or put there by their task outputs."""
        batch, units = decided.batch, self._commits.units
        done = {} if units is None else units.of_batch(session, batch.lineage, batch.number)
        if done or decided.behind.get("units"):
            return self._taken(decided, done)
        segments = [segment for receipt in decided.receipts for segment in receipt.segments]
        tables = [self._staged(session, segment) for segment in segments]
        for segment, table in zip(segments, tables, strict=True):
            # appended rows are counted by that: the table is read once
            if not self._target.key and add(session, self._database, self._target, table, tuple(segment["columns"])) == segment["rows"]:
                continue
            found = self._count(session, f"SELECT count(*) FROM {table}")  # a trigger may have rejected rows
            if found != segment["rows"]:
                raise self._not_as_staged(segment, found)
        if segments and self._target.key:
            merge(session, self._database, self._target, tables, tuple(segments[0]["columns"]), self._version)
        return sum(segment["rows"] for segment in segments)

    def _taken(self, decided: Decided, done: Mapping[int, tuple[str, int]]) -> int:
        """How many rows task outputs have put into the table themselves; `done`: unit → (input hash, rows), of the recorded ones."""
        said = {each.unit: (segment.get("hash"), each.rows) for each in decided.receipts for segment in each.segments}
        if done != said:
            raise StateError(
                f'sink "{self.node}": batch {decided.batch.number} has the task outputs {sorted(done)} in {self._target} at '
                f"{self._database}; expected {sorted(said)}, by its decision; or their input or numbers of rows differ",
                remedy=f"restore the database or the state folder, whichever was reset to an older state; or {start_over()}",
            )
        return decided.rows

    def _staged(self, session: SqlSession, segment: Mapping[str, Any]) -> str:
        """The name of its staging table, which exists."""
        names = self._database.own(segment["staged"])
        if not self._database.is_there(session, *names):
            raise self._not_as_staged(segment, 0)
        return self._database.quoted(*names)

    def _not_as_staged(self, segment: Mapping[str, Any], found: int) -> StateError:
        place = self._database.quoted(*self._database.own(segment["staged"]))
        return StateError(
            f'''sink "{self.node}": {place} at {self._database} has {found} rows; expected {segment["rows"]}, by its decision''',
            remedy="restore it from a backup, or reset the flow",
        )

    def _has_rows(self, session: SqlSession) -> bool:
        if not self._columns(session):
            return False
        return session.execute(f"SELECT 1 WHERE EXISTS (SELECT 1 FROM {self._place})").fetchone() is not None

    def _columns(self, session: SqlSession) -> Mapping[str, tuple[str, bool]]:
        """Column → (type, whether each row must have a value); empty if there is no table."""
        return self._database.columns(session, *self._target.names)

    def _strange(self, session: SqlSession, found: Mapping[int, int]) -> int:
        """The number of rows that no Batch wrote; `found`: transaction → rows."""
        xids, folded = self._commits.xids(session)
        return sum(found.values()) - sum(found.get(xid, 0) for xid in xids) - folded

    def _rows_by_transaction(self, session: SqlSession) -> Mapping[int, int] | None:
        """None if there is nothing to count again: rows are replaced, or do not show their transaction."""
        if self._target.key:
            return None
        return self._database.rows_by_transaction(session, self._target) if self._columns(session) else {}

    def _count(self, session: SqlSession, query: str) -> int:
        found = session.execute(query).fetchone()
        return int(found[0]) if found else 0

    def _keyed(self, schema: Schema) -> Schema:
        """Key columns are never null: a row without a value is refused when it is staged."""
        return Schema(
            tuple(Field(each.name, each.type, nullable=each.nullable and each.name not in self._target.key) for each in schema.fields)
        )

    def _check_writer(self, writer: TableClaim, owner: str, flow: str) -> None:
        """Raise Refused if the writer is another flow, or another installation: a reset of this one does not delete its rows."""
        if writer.flow != flow:
            raise self._foreign(f'it holds rows of the flow "{writer.flow}"', beside_flow("table", writer.flow))
        if writer.owner != owner:
            raise self._foreign("another installation has written there", beside_installation("table", same_flow=True))

    def _check_sink(self, writer: str) -> None:
        """Raise Refused if another sink of this flow wrote there; a reset deletes its rows too."""
        if writer != self.node:
            remedy = f"{rename_back('sink', writer)}; or {start_over()}; or {add_to_outputs()}"
            raise self._foreign(f'it holds rows of the sink "{writer}"', remedy)

    def _foreign(self, why: str, remedy: str = "") -> Refused:
        return Refused(
            f'sink "{self.node}": table {self._target} at {self._database}: {why}',
            remedy=remedy or f"{start_over()}; or {add_to_outputs()}",
            code="output-foreign",
            node=self.node,
        )

    def _fenced(self, batch: BatchId, why: str) -> FencedError:
        return self._commits.fenced(self.node, "", batch, why)

"""The sink: tasks COPY into staging tables of their own; one transaction takes those that were decided, under the lock of the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Published
from scribengin.connectors.postgres.client import Server, quoted
from scribengin.connectors.postgres.columns import unlike
from scribengin.connectors.postgres.commits import Claim, Commits, receipts_of
from scribengin.connectors.postgres.merge import add, merge
from scribengin.connectors.postgres.sink_stream import PostgresSinkStream, Target
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, StateError
from scribengin.core.types import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from psycopg import Connection

    from scribengin.connectors.contract import BatchId, Decided, Place

_ASKED_FOR = "is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO' AND is_generated = 'NEVER'"


class PostgresSink:
    """One table. Executors get a pickled copy, from which they take streams."""

    exactly_once = True

    def __init__(self, place: Place) -> None:
        options = place.options
        self.node = place.node
        self._flow = place.flow
        self._owner = ""
        self._server = Server(place.node, options)
        schema, _, name = options["table"].rpartition(".")
        mode = options["mode"]
        self._target = Target(schema or "public", name, tuple(options["key"]) if mode != "append" else (), options["change"])
        self._version: str | None = options["version"]
        self._commits = Commits(options["staging"], str(self._target))

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the table, or find it claimed by this lineage. Raises Refused where another's rows stand there, unless `adopt`;
        Unreachable, SinkError where the server does not let us."""
        mine = Claim(owner, lineage, self.node, self._flow)
        with self._server.connected("cannot be prepared") as connection:
            self._commits.make(connection)
            with connection.transaction():
                held = self._commits.claim(connection, lock=True)
                if held is None or held[0] != mine:
                    if held is not None and lineage in held[1]:
                        raise self._foreign("a newer lineage has taken it over")
                    if not adopt and (held is not None or self._has_rows(connection)):
                        raise self._foreign("it holds rows that this lineage has not written")
                    self._commits.take(connection, mine, had_rows=held is None and self._has_rows(connection))
        self._owner = owner

    def unlike(self, schema: Schema) -> list[str]:
        """What the table that is there does not take of the columns, a sentence each."""
        with self._server.connected("cannot be looked at") as connection:
            held = self._columns(connection)
            if not held:
                return []
            coming = Schema(tuple(field for field in schema.fields if field.name != self._target.change))
            found = unlike(coming, held)
            if self._target.key and not self._has_key(connection):
                found.append(f"the table has no primary key or unique index on ({', '.join(self._target.key)}), which mode: upsert needs")
            return found

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> PostgresSinkStream:
        """A stream for one unit."""
        return PostgresSinkStream(self.node, self._server, self._commits, self._target, batch, unit, attempt, self._keyed(schema))

    def publish(self, decided: Decided) -> None:
        """Rows and commit record in one transaction, or, where the record stands there already, nothing."""
        batch = decided.batch
        with self._server.connected(f"did not take batch {batch.number} into {self._target}") as connection:
            with connection.transaction():
                if not self._is_done(connection, decided):
                    rows = self._take(connection, decided)
                    faults.reached("publish.record.before")
                    self._commits.note(connection, decided, rows)
            faults.reached("publish.record.after")
            self._commits.drop_staged(connection, "AND lineage = %s AND number = %s", (batch.lineage, batch.number))

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, then delete what tasks of decided Batches left behind."""
        if decided is not None:
            self.publish(decided)
        with self._server.connected("cannot be tidied up") as connection:
            self._commits.drop_staged(connection, "AND lineage = %s AND number < %s", (lineage, before))

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        """Compare what was decided with the commit records; where rows are only added, count those of every transaction again."""
        with self._server.connected("cannot be read") as connection:
            commits = self._commits.of_lineage(connection, lineage)
            found = None if self._target.key else self._rows_by_transaction(connection)
            for each in decided:
                number = each.batch.number
                commit = commits.get(number)
                if commit is None:
                    yield Published(number, 0, (f"batch {number} is decided, but not published; the next run publishes it",))
                    continue
                wrong = []
                if (commit.input_hash, commit.receipts) != (each.input_hash, receipts_of(each)):
                    wrong.append(f"batch {number} was published otherwise than it was decided")
                rows = commit.rows if found is None else found.get(commit.xid, 0)
                if rows != commit.rows:
                    wrong.append(f"batch {number}: {commit.rows} rows were written to {self._target}, {rows} are there")
                yield Published(number, rows, tuple(wrong))
            if found is not None and (strange := self._strange(connection, found)) > 0:
                yield Published(-1, 0, (f"{strange} rows in {self._target} were written by no batch",))

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete all rows, the commit records and the claim; returns how many rows. The table stays. Refused where rows of others may be
        among them."""
        with self._server.connected("cannot be cleared") as connection:
            if not self._commits.there(connection):
                return 0
            with connection.transaction():
                held = self._commits.claim(connection, lock=True)
                if held is None:
                    return 0
                if (held[0].owner, held[0].flow) != (owner, flow):
                    raise self._foreign("others have written there too")
                if self._commits.had_rows(connection):
                    raise self._foreign("it held rows of others when the flow began to write there")
                if not self._target.key and self._strange(connection, self._rows_by_transaction(connection)) > 0:
                    raise self._foreign("it holds rows that no batch has written")
                if not self._columns(connection):
                    rows = 0
                elif dry_run:
                    rows = self._count(connection, f"SELECT count(*) FROM {self._target.quoted}")
                else:
                    rows = connection.execute(f"DELETE FROM {self._target.quoted}").rowcount
                if not dry_run:
                    self._commits.forget(connection)
            if not dry_run:
                self._commits.drop_staged(connection)
            return rows

    # --- inside a transaction ---

    def _is_done(self, connection: Connection[Any], decided: Decided) -> bool:
        """True where this very Batch is committed. Raises FencedError where another is, or another writes here now."""
        batch = decided.batch
        held = self._commits.claim(connection, lock=True)
        if held is None or (held[0].owner, held[0].lineage) != (self._owner, batch.lineage):
            raise self._fenced(batch, "another lineage has claimed the table")
        commit = self._commits.commit_of(connection, batch.lineage, batch.number)
        if commit is not None:
            if (commit.input_hash, commit.receipts) != (decided.input_hash, receipts_of(decided)):
                raise self._fenced(batch, "it stands there already, decided otherwise")
            return True
        newest = self._commits.newest(connection, batch.lineage)
        if newest is not None and (newest.number > batch.number or newest.term > batch.term):
            raise self._fenced(batch, f"batch {newest.number} stands there already, under term {newest.term}")
        return False

    def _take(self, connection: Connection[Any], decided: Decided) -> int:
        """Put the decided rows into the table; how many were staged."""
        segments = [segment for receipt in decided.receipts for segment in receipt.segments]
        tables = [self._staged(connection, segment) for segment in segments]
        for segment, table in zip(segments, tables, strict=True):
            # what is added is counted by that: the table is read once
            if not self._target.key and add(connection, self._target, table, tuple(segment["columns"])) == segment["rows"]:
                continue
            found = self._count(connection, f"SELECT count(*) FROM {table}")  # a trigger may have kept rows out
            if found != segment["rows"]:
                raise self._not_as_staged(segment, found)
        if segments and self._target.key:
            merge(connection, self._target, tables, tuple(segments[0]["columns"]), self._version)
        return sum(segment["rows"] for segment in segments)

    def _staged(self, connection: Connection[Any], segment: Mapping[str, Any]) -> str:
        """The name of its table, which is there."""
        place = quoted(self._commits.schema, segment["staged"])
        there = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (place,)).fetchone()
        if not there or not there[0]:
            raise self._not_as_staged(segment, 0)
        return place

    def _not_as_staged(self, segment: Mapping[str, Any], found: int) -> StateError:
        place = quoted(self._commits.schema, segment["staged"])
        return StateError(
            f'sink "{self.node}": {place} at {self._server} has {found} rows, and a decision says {segment["rows"]}',
            remedy="restore it from a backup, or reset the flow",
        )

    def _has_rows(self, connection: Connection[Any]) -> bool:
        if not self._columns(connection):
            return False
        return connection.execute(f"SELECT 1 FROM {self._target.quoted} LIMIT 1").fetchone() is not None

    def _columns(self, connection: Connection[Any]) -> dict[str, tuple[str, bool]]:
        """Column → (type, whether a row must give it); empty where there is no table."""
        found = connection.execute(
            f"SELECT column_name, data_type, {_ASKED_FOR} FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (self._target.schema, self._target.name),
        )
        return {name: (type_, must) for name, type_, must in found.fetchall()}

    def _has_key(self, connection: Connection[Any]) -> bool:
        found = connection.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL GROUP BY i.indexrelid",
            (self._target.quoted,),
        )
        return any(set(names) == set(self._target.key) for (names,) in found.fetchall())

    def _strange(self, connection: Connection[Any], found: Mapping[int, int]) -> int:
        """How many rows no Batch has written; `found`: transaction → rows."""
        xids, folded = self._commits.xids(connection)
        return sum(found.values()) - sum(found.get(xid, 0) for xid in xids) - folded

    def _rows_by_transaction(self, connection: Connection[Any]) -> dict[int, int]:
        if not self._columns(connection):
            return {}
        return dict(connection.execute(f"SELECT xmin::text::bigint, count(*) FROM {self._target.quoted} GROUP BY 1").fetchall())

    def _count(self, connection: Connection[Any], query: str) -> int:
        found = connection.execute(query).fetchone()
        return int(found[0]) if found else 0

    def _keyed(self, schema: Schema) -> Schema:
        """Columns of the key are never null: a row without one is refused when it is staged."""
        return Schema(
            tuple(Field(each.name, each.type, nullable=each.nullable and each.name not in self._target.key) for each in schema.fields)
        )

    def _foreign(self, why: str) -> Refused:
        return Refused(
            f'sink "{self.node}": table {self._target} at {self._server}: {why}',
            remedy="begin anew: scribengin reset FLOW --outputs --yes; or add to what is there: run --append-new-lineage",
            code="output-foreign",
            node=self.node,
        )

    def _fenced(self, batch: BatchId, why: str) -> FencedError:
        return FencedError(
            f'sink "{self.node}" refuses batch {batch.number} of lineage {batch.lineage}: {why} ({self._server}, table {self._target})',
            remedy="another driver writes here, or the state folder was copied or restored; stop this one",
            node=self.node,
        )

"""Sinks of SQL tables that are wrong on purpose, each with one fault of a careless author."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres.client import driver, quoted
from scribengin.connectors.postgres.sink import PostgresSink, PostgresUnitSink
from scribengin.connectors.sql.commits import Commits
from scribengin.connectors.sql.unit_sink import SqlUnitStream
from scribengin.core import faults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.sql.contract import SqlSession
    from scribengin.core.types import Schema


class SharedTable(PostgresSink):
    """Stages all attempts at a task output into one table, so that "a retry just overwrites it"."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        self._uri: str = place.options["server"]
        self._schema: str = place.options["staging"]

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: ARG002, D102
        pattern = f"rows\\_{batch.number}\\_{unit}\\_%"
        with driver().connect(self._uri, autocommit=True) as own:
            left = own.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename LIKE %s", (self._schema, pattern))
            for (name,) in left.fetchall():
                own.execute(f"DROP TABLE {quoted(self._schema, name)}")
                own.execute(f"DELETE FROM {quoted(self._schema)}.staged WHERE name = %s", (name,))
        return super().stream(batch, unit, "rows", schema)


class OwnConnection(Commits):
    """Writes the commit record on another connection, outside of the transaction that writes the rows."""

    def claim(self, session: SqlSession, *, lock: bool = False) -> Any:  # noqa: ARG002, D102
        # the other connection would wait for that lock forever
        return super().claim(session)

    def note(self, session: Any, decided: Decided, rows: int) -> None:  # noqa: D102
        batch, writes = decided.batch, session.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        assert writes is not None
        place = self.database.escaped(*self.database.own("commits"))
        with driver().connect(session.info.dsn, password=session.info.password or None, autocommit=True) as own:
            super().note(own, decided, rows)
            # an audit compares the transaction of the rows
            own.execute(
                f"UPDATE {place} SET xid = %s WHERE target = %s AND lineage = %s AND number = %s",
                (writes[0], self.table, batch.lineage, batch.number),
            )


class MarkerOutside(PostgresSink):
    """Records a Batch outside of the transaction that writes its rows."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        self._commits = OwnConnection(self._commits.database, self._commits.table)


class _RowsFirst(SqlUnitStream):
    def commit(self, report: Mapping[str, Any]) -> None:
        self._end(commit=True)
        faults.reached("transaction.commit.before")
        unit = self._unit
        with self._database.connect() as session:
            self._units.commit(session, unit.batch, unit.number, unit.input_hash, self._rows, report)


class _MarkerFirst(SqlUnitStream):
    def commit(self, report: Mapping[str, Any]) -> None:
        unit = self._unit
        with self._database.connect() as session:
            self._units.commit(session, unit.batch, unit.number, unit.input_hash, self._rows, report)
        faults.reached("transaction.commit.before")
        self._end(commit=True)


class _Blind(SqlUnitStream):
    def commit(self, report: Mapping[str, Any]) -> None:
        unit = self._unit
        assert self._awake is not None
        self._units.commit(self._awake.end(), unit.batch, unit.number, unit.input_hash, self._rows, report)
        self._end(commit=True)
        faults.reached("transaction.commit.after")

    def _check(self, session: SqlSession, held: Any) -> None:
        """Does not check for other writers."""


class _UnitsOf(PostgresUnitSink):
    kind: type[SqlUnitStream]

    def unit_stream(self, *given: Any, **named: Any) -> SqlUnitStream:
        stream = super().unit_stream(*given, **named)
        stream.__class__ = self.kind
        return stream


class RowsFirst(_UnitsOf):
    """Commits the rows first, then the record of the task output."""

    kind = _RowsFirst


class RecordFirst(_UnitsOf):
    """Commits the record of the task output first, then the rows."""

    kind = _MarkerFirst


class Blind(_UnitsOf):
    """Does not check whether another attempt has committed the task output."""

    kind = _Blind

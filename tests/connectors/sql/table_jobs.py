"""The commit protocol without Spark over tables: of SQLite, and of whoever brings his own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.sql.contract import Target
from scribengin.connectors.sql.sink import SqlSink
from scribengin.core import faults
from scribengin.testing.checker import Found
from scribengin.testing.protocol import FLOW, SINKS, Driver, Job

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = ("part", "seq")
WAIT_S = 0.5
"""how long a driver waits for one that sleeps in its transaction"""


@dataclass(frozen=True, slots=True)
class SqliteJob(Job):
    """As Job; each sink has a table of its name, in one file. With `by_key` rows replace those of their key."""

    by_key: bool = False

    def read(self, torn: list[str]) -> dict[str, list[Found]]:
        with closing(sqlite3.connect(self.out / "kept.db")) as database:
            database.row_factory = sqlite3.Row
            return {node: [Found(node, dict(row)) for row in database.execute(f"SELECT * FROM {node}")] for node in SINKS}

    def staged(self) -> list[str]:
        """Tables that nobody has taken away."""
        with closing(sqlite3.connect(self.out / "kept.db")) as database:
            return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE name LIKE '%rows_%_%' AND type = 'table'")]


def sqlite_sink(job: Job, node: str, kind: type[SqlSink] = SqlSink) -> SqlSink:
    from scribengin_sqlite_table.database import SqliteDatabase

    assert isinstance(job, SqliteJob)
    database = SqliteDatabase(node, job.out / "kept.db", WAIT_S)
    return kind(ConnectorContext(node, job.out, flow=FLOW), database, Target((node,), KEY if job.by_key else ()))


def sqlite_driver(job: Job) -> Driver:
    return Driver(job, sqlite_sink)


class MarkerOutside(SqlSink):
    """Records a Batch before the transaction that writes its rows: "so that nobody writes it twice"."""

    def publish(self, decided: Any) -> None:
        with self._connected("cannot be marked") as session, session.transaction():
            known = self._is_done(session, decided)
            if not known:
                self._commits.note(session, decided, decided.rows)
        faults.reached("publish.record.after")
        if not known:
            with self._connected("cannot be written") as session, session.transaction():
                self._take(session, decided)


class SharedStaging(SqlSink):
    """Stages under the unit's name alone, so that "a retry just overwrites it"."""

    def stream(self, batch: Any, unit: int, attempt: str, schema: Any) -> Any:
        stream = super().stream(batch, unit, "rows", schema)
        with self._connected("cannot be overwritten") as session:
            self._commits.drop_staged_called(session, stream._name)
        return stream


class CheckedBefore(SqlSink):
    """Looks for the record of a Batch in another transaction than the one that writes it: "the lease keeps others away"."""

    def publish(self, decided: Any) -> None:
        segments = [segment for receipt in decided.receipts for segment in receipt.segments]
        with self._connected("cannot be read") as session, session.transaction():
            if self._is_done(session, decided):
                return
            rows = [session.execute(f"SELECT * FROM {self._staged(session, segment)}").fetchall() for segment in segments]
        faults.reached("publish.record.before")
        with self._connected("cannot be written") as session, session.transaction():
            for row in (row for part in rows for row in part):
                session.execute(f"INSERT INTO {self._place} VALUES ({', '.join('?' * len(row))})", row)
            if self._commits.commit_of(session, decided.batch.lineage, decided.batch.number) is None:
                self._commits.note(session, decided, decided.rows)
        faults.reached("publish.record.after")


def own_sink(place: ConnectorContext, kind: type[SqlSink] = SqlSink) -> SqlSink:
    """For `check_trials`."""
    from scribengin_sqlite_table.database import SqliteDatabase

    return kind(place, SqliteDatabase(place.node, Path(place.options["database"]), WAIT_S), Target((place.node,)))


def marker_outside(job: Job) -> Driver:
    return Driver(job, lambda job, node: sqlite_sink(job, node, MarkerOutside))


def staging_shared(job: Job) -> Driver:
    return Driver(job, lambda job, node: sqlite_sink(job, node, SharedStaging))


BROKEN: Mapping[str, Any] = {make.__name__: make for make in (marker_outside, staging_shared)}

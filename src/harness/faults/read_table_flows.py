"""The flows that read a growing PostgreSQL table."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from harness.faults.flows import CLOSER_PART, DECISIVE, FaultFlow
from harness.faults.grounds import Ground
from harness.faults.kafka_flows import KAFKA_KINDS
from scribengin.connectors.postgres.client import driver, quoted
from scribengin.core.faults import POINTS
from scribengin.embedded.postgres import Postgres
from scribengin.testing.records import SCHEMA

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from psycopg import Connection

    from harness.faults.grounds import Places
    from harness.faults.outcomes import Life

ROUTE = "postgres-to-files"
_READ_AS = {"STRING": "text", "INT": "integer", "BIGINT": "bigint", "TIMESTAMP": "timestamptz"}
_READING = ("source.logged", "stage.before", "stage.mid_write", "decide.after")


@dataclass(kw_only=True)
class ReadTableFlow(FaultFlow):
    """A flow whose input is a table; each part is added in one transaction."""

    server: Postgres
    schema: str = field(default_factory=lambda: f"struck_{uuid4().hex[:12]}")

    def make(self) -> None:
        """Create the input table."""
        columns = ", ".join(f"{name} {_READ_AS[type_.split()[0]]}" for name, type_ in _columns())
        with closing(self._connect()) as connection:
            connection.execute(f"CREATE SCHEMA {quoted(self.schema)}")
            connection.execute(f"CREATE TABLE {self._table} (nr bigserial PRIMARY KEY, {columns})")

    def close(self) -> None:
        """End the input. A Batch does not consist of files: there are more closers than fit into one Batch, so that they fill two."""
        if not self._kind.closers:
            return
        self.closers = self._max_rows + 1
        self._add("data", CLOSER_PART, [self._part(part)[0] for part in range(CLOSER_PART, CLOSER_PART + self.closers)])

    def _input(self, folder: str) -> str:
        return (
            f'type: postgres, server: "{self.server.uri}", table: {self.schema}.{folder}, mode: incremental, by: nr, every: 50ms, '
            f"settle: 50ms, max_rows: {self._max_rows}, split: {max(1, self._max_rows // 2)}"
        )

    def _add(self, source: str, nth: int, rows: list[dict[str, Any]]) -> None:
        if source != "data":
            super()._add(source, nth, rows)
            return
        names = [name for name, _ in _columns()]
        values = [tuple(row.get(name) for name in names) for row in rows]
        with closing(self._connect()) as connection, connection.transaction(), connection.cursor() as cursor:
            marks = ", ".join(["%s"] * len(names))
            cursor.executemany(f"INSERT INTO {self._table} ({', '.join(map(quoted, names))}) VALUES ({marks})", values)

    @property
    def _table(self) -> str:
        return quoted(self.schema, "data")

    @property
    def _max_rows(self) -> int:
        return self._kind.rows * self._kind.max_files

    def _connect(self) -> Connection[Any]:
        connection: Connection[Any] = driver().connect(self.server.uri, autocommit=True)
        return connection


def _columns() -> list[tuple[str, str]]:
    return [(name, type_) for name, type_ in (each.split(maxsplit=1) for each in f"{SCHEMA}, ts TIMESTAMP".split(", "))]


def _flow(life: Life, folder: Path, stack: ExitStack) -> ReadTableFlow:
    server = stack.enter_context(Postgres(folder / "server"))
    flow = ReadTableFlow(folder, life.kind, "json", life.partitioned, server=server)
    flow.make()
    return flow


_RECOVERING = tuple(point for point in POINTS if point.startswith(("recovery.", "publish.")))
_PLACES: Places = {
    "kill": POINTS,
    "die": POINTS,
    "two": POINTS,
    "zombie": ("source.logged", "stage.mid_write", "decide.before", *DECISIVE),
    "recovery": ("lease.taken", "batch.entry", *_RECOVERING, "commit.before"),
    "server": ("lease.taken", "batch.entry", *_READING, *DECISIVE),
}
READ_TABLES = Ground("tables that are read", (ROUTE,), KAFKA_KINDS, DECISIVE, {ROUTE: _PLACES}, _flow)

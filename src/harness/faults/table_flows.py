"""The flows with a PostgreSQL table as sink, in a schema of their own."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from harness.faults.flows import KINDS
from harness.faults.grounds import Ground, store_places
from harness.faults.store_flows import ServedFlow, look_until_told
from scribengin.connectors.postgres.client import driver, quoted
from scribengin.embedded.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from psycopg import Connection

    from harness.faults.outcomes import Life

ROUTES = ("files-to-postgres", "files-to-postgres-by-key")
BY_UNIT = "files-to-postgres-by-unit"
"""the route on which task outputs commit by themselves"""
DECISIVE = ("decide.after", "publish.record.before", "publish.record.after", "commit.before")
_UNIT_POINTS = ("marker.read", "transaction.sent", "transaction.commit.before", "transaction.commit.after")


@dataclass(kw_only=True)
class TableFlow(ServedFlow):
    """A flow that creates its tables itself."""

    server: Postgres
    schema: str = field(default_factory=lambda: f"struck_{uuid4().hex[:12]}")

    def make(self) -> None:
        """Create the schema for the tables."""
        with closing(self._connect()) as connection:
            connection.execute(f"CREATE SCHEMA {quoted(self.schema)}")

    @property
    def decisive(self) -> tuple[str, ...]:
        """The same as for files, without renames."""
        return DECISIVE

    @property
    def by_unit(self) -> bool:
        """True on the route BY_UNIT."""
        return self.route == BY_UNIT

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, self.server.uri, self.schema, sink

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The rows of the table, read by one statement."""
        with closing(self._connect()) as connection:
            return read_table(connection, self.schema, sink)

    def _output(self, sink: str) -> str:
        more = f", mode: upsert, key: [{self.key}]" if self.key else ", visible: unit" if self.by_unit else ""
        return f'type: postgres, server: "{self.server.uri}", table: {self.schema}.{sink}, staging: {self.schema}_staging{more}'

    def _connect(self) -> Connection[Any]:
        connection: Connection[Any] = driver().connect(self.server.uri, autocommit=True)
        return connection


def read_table(connection: Connection[Any], schema: str, table: str) -> list[dict[str, Any]]:
    """The rows of a table; empty if it does not exist."""
    there = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (quoted(schema, table),)).fetchone()
    if not there or not there[0]:
        return []
    cursor = connection.execute(f"SELECT * FROM {quoted(schema, table)}")
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _flow(life: Life, folder: Path, stack: ExitStack) -> TableFlow:
    server = stack.enter_context(Postgres(folder / "server"))
    flow = TableFlow(folder, life.kind, "json", life.partitioned, route=life.format, server=server)
    flow.make()
    return flow


TABLES = Ground("tables", ROUTES, KINDS, DECISIVE, dict.fromkeys(ROUTES, store_places(DECISIVE)), _flow)
TABLES_BY_UNIT = Ground(
    "tables, unit by unit",
    (BY_UNIT,),
    ("tail", "filter"),
    DECISIVE,
    {BY_UNIT: store_places((*_UNIT_POINTS, *DECISIVE), beside=_UNIT_POINTS)},
    _flow,
)


def main(server: str, schema: str, table: str, *flags: str) -> None:
    """See `look_until_told`."""

    def read() -> list[dict[str, Any]]:
        with closing(driver().connect(server, autocommit=True)) as connection:
            return read_table(connection, schema, table)

    look_until_told(read, driver().OperationalError, flags)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])

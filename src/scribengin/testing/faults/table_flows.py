"""The flows with a table of PostgreSQL at their end: the same Queries, records and judge as those over files, in tables of their own."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from scribengin.connectors.postgres.client import driver, quoted
from scribengin.testing.checker import Found
from scribengin.testing.faults.flows import KINDS, FaultFlow
from scribengin.testing.faults.reader import Sight, start_reader_program, told_to_end, whole_key

if TYPE_CHECKING:
    from pathlib import Path

    from psycopg import Connection

    from scribengin.embedded.postgres import Postgres
    from scribengin.testing.faults.flows import FlowKind
    from scribengin.testing.faults.reader import ReaderProcess
    from scribengin.testing.records import Key

TABLE_ROUTES = ("files-to-postgres", "files-to-postgres-by-key")
"""They stand where a flow over files has its format. `by-key`: rows replace those of the same key."""
TABLE_KINDS = KINDS
TABLE_DECISIVE = ("decide.after", "publish.record.before", "publish.record.after", "commit.before")
_KEYS = {"aggregate": "at, bucket", "join": "part, seq", "dedupe": "part, seq"}
_LOOK_S = 0.1


@dataclass(kw_only=True)
class TableFlow(FaultFlow):
    """`route` is one of TABLE_ROUTES. Its tables are in a schema of their own."""

    route: str
    postgres: Postgres
    schema: str = field(default_factory=lambda: f"struck_{uuid4().hex[:12]}")

    def make(self) -> None:
        """Make the schema for the tables; these the flow makes itself."""
        with closing(self._connect()) as connection:
            connection.execute(f"CREATE SCHEMA {quoted(self.schema)}")

    @property
    def ordered(self) -> bool:
        """A table has no order."""
        return False

    @property
    def decisive(self) -> tuple[str, ...]:
        """As over files, but for renames."""
        return TABLE_DECISIVE

    def watch(self, out: Path) -> ReaderProcess:
        """A foreign reader of the sink's table."""
        return start_reader_program(__name__, self.postgres.uri, self.schema, out.name, *(["records"] if self.has_records else []))

    def _output(self, sink: str) -> str:
        by_key = f", mode: upsert, key: [{_KEYS.get(self.kind, 'run, part, seq')}]" if self.route.endswith("by-key") else ""
        return f'type: postgres, server: "{self.postgres.uri}", table: {self.schema}.{sink}, staging: {self._staging}{by_key}'

    def _found(self, out: Path, torn: list[str]) -> list[Found]:  # noqa: ARG002 (nothing can be torn)
        with closing(self._connect()) as connection:
            return [Found(sink, row) for sink in self.sinks for row in read_table(connection, self.schema, sink)]

    @property
    def _kind(self) -> FlowKind:
        """As over files; but no part of a key is null."""
        kind = super()._kind
        return replace(kind, steps=kind.steps.replace("AS at, bucket,", "AS at, coalesce(bucket, '') AS bucket,"))

    @property
    def _staging(self) -> str:
        return f"{self.schema}_staging"

    def _connect(self) -> Connection[Any]:
        connection: Connection[Any] = driver().connect(self.postgres.uri, autocommit=True)
        return connection


def read_table(connection: Connection[Any], schema: str, table: str) -> list[dict[str, Any]]:
    """Its rows; none where it is not there."""
    there = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (quoted(schema, table),)).fetchone()
    if not there or not there[0]:
        return []
    cursor = connection.execute(f"SELECT * FROM {quoted(schema, table)}")
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class TableWatch:
    """Looks at one table. A record that was seen must stay, and be there once."""

    def __init__(self, schema: str, table: str, *, records: bool) -> None:
        self.sight = Sight()
        self._schema, self._table, self._records = schema, table, records
        self._seen: set[Key] = set()
        self._rows = 0

    def look(self, connection: Connection[Any]) -> None:
        """One look at all of it."""
        rows = read_table(connection, self._schema, self._table)
        self.sight.looks += 1
        self.sight.rows = max(self.sight.rows, len(rows))
        if len(rows) < self._rows:
            self.sight.complain(f"{len(rows)} rows, it was {self._rows} before")
        self._rows = len(rows)
        if not self._records:
            return
        keys: set[Key] = set()
        for row in rows:
            try:
                key = whole_key(row)
            except ValueError as error:
                self.sight.complain(str(error))
                continue
            if key in keys:
                self.sight.complain(f"{key} stands there twice")
            keys.add(key)
        if gone := self._seen - keys:
            self.sight.complain(f"gone: {sorted(gone)[:5]}")
        self._seen |= keys


def main(server: str, schema: str, table: str, *flags: str) -> None:
    """Look until standard input closes; a server that is away is waited for. Then one Sight on stdout."""
    watch = TableWatch(schema, table, records="records" in flags)
    last = False
    while not last:
        last = told_to_end(_LOOK_S)
        try:
            with closing(driver().connect(server, autocommit=True)) as connection:
                watch.look(connection)
        except driver().OperationalError:
            last = False  # it comes back: what is there at the end must be seen
            time.sleep(_LOOK_S)
    os.write(1, msgspec.json.encode(asdict(watch.sight)))


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])

"""The flows with a Cassandra table as sink, in a keyspace of their own."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from harness.faults.keyed_flows import Away, KeyedFlow, keyed_ground
from harness.faults.store_flows import look_until_told
from scribengin.connectors.cassandra.client import driver, quoted
from scribengin.embedded.cassandra import Cassandra

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from harness.faults.outcomes import Life

ROUTES = ("files-to-cassandra", "files-to-cassandra-by-key")
_OURS = ("record", "version")
"""the columns that the sink adds"""


@dataclass(kw_only=True)
class CassandraFlow(KeyedFlow):
    """A flow that creates its tables itself."""

    server: Cassandra
    keyspace: str = field(default_factory=lambda: f"struck_{uuid4().hex[:12]}")

    def make(self) -> None:
        """Create the keyspace for the tables."""
        with closing(Foreigner(self.server.address)) as reader:
            reader.ask(f"CREATE KEYSPACE {self.keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, self.server.address, self.keyspace, sink

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The rows of the whole table."""
        with closing(Foreigner(self.server.address)) as reader:
            return reader.table(self.keyspace, sink)

    def _output(self, sink: str) -> str:
        return f'type: cassandra, server: ["{self.server.address}"], keyspace: {self.keyspace}, table: {sink}{self.mode}'


class Foreigner:
    """An independent reader that uses only the client library. It connects at the first request, and again after the server was
    unavailable."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._cluster: Any = None
        self._session: Any = None

    def table(self, keyspace: str, table: str) -> list[dict[str, Any]]:
        """The rows of a table, without the columns that the sink adds; empty if it does not exist. Raises Away."""
        tables = self.ask("SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", keyspace)
        if table not in [row["table_name"] for row in tables]:
            return []
        rows = self.ask(f"SELECT * FROM {quoted(keyspace, table)}")
        return [{name: _aware(value) for name, value in row.items() if name not in _OURS} for row in rows]

    def ask(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """All rows of an answer. Raises Away."""
        try:
            if self._session is None:
                self._connect()
            return list(self._session.execute(statement, values or None))
        except Exception as error:  # the client has many errors for an unavailable server
            self.close()
            raise Away(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        cluster, self._cluster, self._session = self._cluster, None, None
        if cluster is not None:
            with suppress(Exception):
                cluster.shutdown()

    def _connect(self) -> None:
        from cassandra.policies import RoundRobinPolicy
        from cassandra.query import dict_factory

        module = driver()
        profile = module.ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60, row_factory=dict_factory)
        profiles = {module.EXEC_PROFILE_DEFAULT: profile}
        self._cluster = module.Cluster([self._host], self._port, protocol_version=4, execution_profiles=profiles)
        self._session = self._cluster.connect()


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def _flow(life: Life, folder: Path, stack: ExitStack) -> CassandraFlow:
    server = stack.enter_context(Cassandra(folder / "server"))
    flow = CassandraFlow(folder, life.kind, "json", life.partitioned, route=life.format, server=server)
    flow.make()
    return flow


CASSANDRA = keyed_ground("Cassandra", ROUTES, _flow)


def main(address: str, keyspace: str, table: str, *flags: str) -> None:
    """See `look_until_told`."""
    with closing(Foreigner(address)) as reader:
        look_until_told(lambda: reader.table(keyspace, table), Away, flags)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])

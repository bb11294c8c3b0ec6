"""One Cassandra for all tests of this folder: a real one, which asks who we are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from cassandra import DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import RoundRobinPolicy
from cassandra.query import dict_factory

from scribengin.connectors.cassandra import client
from scribengin.core.process import within
from scribengin.embedded.cassandra import Cassandra

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPERUSER = "cassandra"
"""user and password, as the server makes them at its first start"""


@dataclass
class Keyspace:
    """A keyspace of its own, as a person sees it."""

    address: str
    name: str
    session: Session

    @property
    def options(self) -> dict[str, Any]:
        login = {"user": SUPERUSER, "password": SUPERUSER}
        return {"server": [self.address], "config": login, "keyspace": self.name, "table": "kept"}

    def ask(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """`kept` is the table."""
        return list(self.session.execute(statement.replace("kept", f'{self.name}."kept"'), values or None))

    def rows(self, table: str = "kept") -> list[dict[str, Any]]:
        """None where there is no table yet."""
        there = self.session.execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", (self.name,))
        is_there = table in [row["table_name"] for row in there]
        return list(self.session.execute(f'SELECT * FROM {self.name}."{table}"')) if is_there else []


def connected(server: Cassandra) -> Session:
    """As a person connects."""
    host, _, port = server.address.rpartition(":")
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=120, row_factory=dict_factory)
    login = PlainTextAuthProvider(SUPERUSER, SUPERUSER)
    found: list[Session] = []

    def tries() -> bool:
        cluster = Cluster(
            [host],
            int(port),
            auth_provider=login,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=60,
            control_connection_timeout=60,
        )
        try:
            session = cluster.connect()
            session.execute("SELECT role FROM system_auth.roles")
        except (NoHostAvailable, DriverException):  # it makes its first user when it serves already, and may be slow to begin with
            cluster.shutdown()
            return False
        found.append(session)
        return True

    assert within(300, tries)
    return found[0]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow tries again where a server does not answer within the client's time; a test that calls a sink once must not depend on it."""
    for name in ("_CONNECT_S", "_ANSWER_S", "_NOTED_WITHIN_S"):
        monkeypatch.setattr(client, name, 120.0)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    started = Cassandra(tmp_path_factory.mktemp("cassandra"))
    started.start(authenticator="PasswordAuthenticator", authorizer="CassandraAuthorizer", permissions_validity="0ms")
    with started:
        yield started


@pytest.fixture(scope="session")
def session(server: Cassandra) -> Iterator[Session]:
    opened = connected(server)
    yield opened
    opened.cluster.shutdown()


@pytest.fixture
def space(server: Cassandra, session: Session) -> Iterator[Keyspace]:
    own = Keyspace(server.address, f"t{uuid4().hex}", session)
    session.execute(f"CREATE KEYSPACE {own.name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    yield own
    session.execute(f"DROP KEYSPACE {own.name}")

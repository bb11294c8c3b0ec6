"""A real Cassandra: it starts, is killed with what it has just acknowledged, and comes back with it; one that was released is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy

from scribengin.core.process import within
from scribengin.embedded.cassandra import Cassandra

if TYPE_CHECKING:
    from pathlib import Path

_ROWS = 200


def ask(server: Cassandra, *statements: str) -> list[Any]:
    host, _, port = server.address.rpartition(":")
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
    with Cluster([host], int(port), execution_profiles={EXEC_PROFILE_DEFAULT: profile}) as cluster, cluster.connect() as session:
        return [session.execute(statement).one() for statement in statements]


@pytest.mark.long
def test_what_it_has_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    first = Cassandra(tmp_path)
    first.start()
    first.release()
    server = Cassandra(tmp_path)
    try:
        assert (server.pid, server.address, server.answers()) == (first.pid, first.address, True)
        space = "CREATE KEYSPACE kept WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        ask(
            server,
            space,
            "CREATE TABLE kept.rows (id int PRIMARY KEY)",
            *(f"INSERT INTO kept.rows (id) VALUES ({id_})" for id_ in range(_ROWS)),
        )
        server.kill()
        assert not server.answers()
        server.start()
        assert ask(server, "SELECT count(*) FROM kept.rows") == [(_ROWS,)]
    finally:
        server.stop()
    assert within(60.0, lambda: first.pid is None)

"""A Cassandra whose disk is full ends; what it has acknowledged stands there afterwards, and what waits comes once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy

from harness.faults.small_disk import SmallDisk, no_small_disk
from scribengin.connectors.catalog import open_sink, sink_types
from scribengin.connectors.contract import ConnectorContext
from scribengin.core.errors import Unreachable
from scribengin.embedded import cassandra as embedded
from scribengin.embedded.cassandra import Cassandra
from tests.connectors.cassandra.test_sink import decided, offered, rows_of

if TYPE_CHECKING:
    from pathlib import Path

_ROWS, _MOST = 4000, 40
"""of a Batch; and Batches, of which some ten fill the disk"""


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(no_small_disk()), reason=no_small_disk())
def test_a_full_disk_at_the_server_loses_nothing_and_what_waits_comes_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = embedded.start_server
    server = Cassandra(tmp_path / "server")
    with SmallDisk(server.folder / "data" / "commitlog", "40m") as disk:
        monkeypatch.setattr(
            embedded, "start_server", lambda name, command, **more: start(name, disk.wrap(list(map(str, command)), tmp_path), **more)
        )
        try:
            server.start(commitlog_total_space="1GiB")
            sink = sink_into(server, tmp_path)
            sink.prepare(owner="me", lineage="lineage-1")
            batches = []

            def write() -> None:
                for number in range(_MOST):
                    batches.append(decided(sink, number, rows_of(*range(_ROWS), name="x" * 900)))
                    assert not offered(sink, batches[-1])

            with pytest.raises(Unreachable) as told:
                write()
            assert 1 < len(batches) < _MOST
            assert told.value.code == "cassandra-away"
            assert "check that the cluster is up and healthy" in (told.value.remedy or "")
            disk.grow("400m")
            server.kill()
            server.start()
            assert not offered(sink, batches[-1])
            assert sum(map(len, sink._store.versions())) == len(batches) * _ROWS
        finally:
            server.stop()


def sink_into(server: Cassandra, folder: Path) -> Any:
    """Into a keyspace that is made."""
    host, _, port = server.address.rpartition(":")
    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=RoundRobinPolicy())}
    with Cluster([host], int(port), protocol_version=4, execution_profiles=profiles) as cluster, cluster.connect() as session:
        session.execute("CREATE KEYSPACE small WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    options = sink_types()["cassandra"].filled({"server": [server.address], "keyspace": "small", "table": "kept"})
    return open_sink("cassandra", ConnectorContext("out", folder, options, flow="flow", work=folder / "work"))

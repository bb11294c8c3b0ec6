"""A Cassandra that is overloaded, too slow, or lets a user do too little: each row is there once afterwards, or it is told what to do."""

from __future__ import annotations

import gc
import threading
from itertools import groupby
from threading import Timer
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.metadata import KeyspaceMetadata, Metadata
from cassandra.policies import SimpleConvictionPolicy
from cassandra.pool import Host
from cassandra.protocol import OverloadedErrorMessage

from scribengin.connectors.cassandra import client
from scribengin.connectors.cassandra.options import SOURCE
from scribengin.connectors.cassandra.source import CassandraSource
from scribengin.connectors.contract import BatchId, BatchLimits, ConnectorContext
from scribengin.connectors.keyed import sink as sending
from scribengin.core.errors import SinkError, SourceError, Unreachable
from scribengin.core.process import within
from scribengin.core.types import arrow_schema
from tests.connectors.cassandra.frame_door import OVERLOADED, WRITE_TIMEOUT, FrameDoor
from tests.connectors.cassandra.test_sink import SIMPLE, decided, make, offered, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.connectors.cassandra.conftest import Keyspace


@pytest.fixture
def door(space: Keyspace) -> Iterator[FrameDoor]:
    with FrameDoor(int(space.address.rpartition(":")[2])) as opened:
        yield opened


@pytest.mark.parametrize("error", [OVERLOADED, WRITE_TIMEOUT], ids=["overloaded", "write timeout"])
@pytest.mark.parametrize("after", [False, True], ids=["not written", "written"])
def test_what_is_overloaded_or_too_late_is_sent_again(space: Keyspace, tmp_path: Path, door: FrameDoor, error: bytes, after: bool) -> None:
    sink = make(space, tmp_path, server=[door.address], mode="upsert", key=["id"])
    sink.prepare(owner="me", lineage="lineage-1")
    assert offered(sink, decided(sink, 0, rows_of(0))) == []
    door.errors, door.after = [error] * 3, after
    before = len(door.consistencies)
    assert offered(sink, decided(sink, 1, [*rows_of(*range(1, 120)), *rows_of(5, name="bob")])) == []
    assert not door.errors
    assert len(door.consistencies) - before > 6, "three requests, and again what was in three of them"
    sink._store.close()
    assert {row["id"]: row["name"] for row in space.rows()} == {id_: "bob" if id_ == 5 else "ada" for id_ in range(120)}


def test_a_cluster_that_stays_overloaded_is_told_in_its_words(
    space: Keyspace, tmp_path: Path, door: FrameDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PATIENCE_S", 0.3)
    sink = make(space, tmp_path, server=[door.address], mode="upsert", key=["id"])
    sink.prepare(owner="me", lineage="lineage-1")
    door.errors = [OVERLOADED] * 1_000
    batch = decided(sink, 0, rows_of(1, 2))
    with pytest.raises(Unreachable, match=r"has accepted no rows for .*: too busy") as told:
        offered(sink, batch)
    assert told.value.code == "store-overloaded"
    door.errors = []
    assert offered(sink, batch) == []
    sink._store.close()
    assert sorted(row["id"] for row in space.rows()) == [1, 2]


def test_what_the_client_notes_of_the_last_node_after_it_has_given_up_is_waited_for(
    space: Keyspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_NOTED_WITHIN_S", 60.0)
    cluster = make(space, tmp_path)._store._cluster
    given_up = NoHostAvailable("Unable to complete the operation against any hosts", {})
    noted = Timer(0.1, lambda: given_up.errors.update(node=OverloadedErrorMessage(0x1001, "too busy", None)))
    noted.start()
    assert cluster.judge(given_up) == ("again", "overloaded", "too busy")
    noted.join()
    monkeypatch.setattr(client, "_NOTED_WITHIN_S", 0.1)
    with pytest.raises(Unreachable):
        cluster.judge(NoHostAvailable("Unable to complete the operation against any hosts", {}))


@pytest.mark.parametrize("level", ["ONE", "EACH_QUORUM", "ALL"])
def test_rows_are_written_at_the_consistency_that_is_asked_for(space: Keyspace, tmp_path: Path, door: FrameDoor, level: str) -> None:
    sink = make(space, tmp_path, server=[door.address], mode="upsert", key=["id"], consistency=level)
    sink.prepare(owner="me", lineage="lineage-1")
    assert offered(sink, decided(sink, 0, rows_of(*range(60)))) == []
    sink._store.close()
    assert len(door.consistencies) > 1, "batches, and a last row"
    assert set(door.consistencies) == {getattr(ConsistencyLevel, level)}


@pytest.fixture
def role(space: Keyspace) -> Iterator[str]:
    """A user who may log in, and no more; the password is the name."""
    name = f"{space.name}_user"
    space.session.execute(f"CREATE ROLE {name} WITH PASSWORD = '{name}' AND LOGIN = true")
    yield name
    space.session.execute(f"DROP ROLE {name}")


def test_who_may_not_read_or_write_is_told_what_right_it_takes_and_with_it_goes_on(space: Keyspace, tmp_path: Path, role: str) -> None:
    login = {"config": {"user": role, "password": role}}
    space.ask("CREATE TABLE kept (id bigint PRIMARY KEY, name text, at timestamp)")
    space.ask("INSERT INTO kept (id) VALUES (7)")
    reads = CassandraSource(ConnectorContext("in", tmp_path, SOURCE.filled(space.options | login)))
    with pytest.raises(SourceError, match=f"User {role} has no SELECT permission") as by_source:
        list(reads.reader().split(BatchLimits()))
    assert (by_source.value.code, by_source.value.remedy) == ("cassandra-rights", "grant the user SELECT on the table")
    sink = make(space, tmp_path, mode="upsert", key=["id"], **login)
    with pytest.raises(SinkError, match=f"User {role} has no .* permission") as by_sink:
        sink.prepare(owner="me", lineage="lineage-1", adopt=True)
    assert by_sink.value.code == "cassandra-rights"
    assert by_sink.value.remedy == "grant the user CREATE, SELECT and MODIFY on the keyspace, or create the tables"
    space.session.execute(f"GRANT CREATE ON KEYSPACE {space.name} TO {role}")
    space.session.execute(f"GRANT SELECT ON KEYSPACE {space.name} TO {role}")
    batch = decided(sink, 0, rows_of(1))

    def goes_on() -> None:
        sink.prepare(owner="me", lineage="lineage-1", adopt=True)
        offered(sink, batch)

    with pytest.raises(SinkError, match="has no MODIFY permission"):
        goes_on()
    space.session.execute(f"GRANT MODIFY ON KEYSPACE {space.name} TO {role}")
    assert within(120, lambda: allowed(goes_on)), "a server remembers rights for a while"
    assert sorted(row["id"] for row in space.rows()) == [1, 7]


def allowed(act: Callable[[], None]) -> bool:
    """Whether we may; an error of another kind is raised."""
    try:
        act()
    except SinkError as error:
        if error.code != "cassandra-rights":
            raise
        return False
    return True


def test_a_null_in_the_key_is_a_dead_letter_that_names_the_column(space: Keyspace, tmp_path: Path) -> None:
    sink = make(space, tmp_path, mode="upsert", key=["name", "id"])
    stream = sink.stream(BatchId("flow", "query", "lineage-1", 0, 1), 0, "attempt", SIMPLE)
    rows = [*rows_of(1), *rows_of(2, name=None), *rows_of(3)]
    (bad,) = stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SIMPLE)), ["a+1", "a+2", "a+3"])
    assert (bad.ordinal, bad.reason, bad.message) == (1, "null-key", 'the key column "name" is null: the row has no id')
    assert stream.close().rows == 2


def test_rows_go_together_to_a_replica_of_theirs_those_of_a_partition_behind_one_another(space: Keyspace, tmp_path: Path) -> None:
    """As the client's own metadata places them on a ring of three nodes, each row on two."""
    metadata = Metadata()
    hosts = [metadata.add_or_return_host(Host(f"10.0.0.{number}", SimpleConvictionPolicy))[0] for number in range(3)]
    metadata.keyspaces[space.name] = KeyspaceMetadata(space.name, True, "SimpleStrategy", {"replication_factor": "2"})
    width = (1 << 64) // 3
    ring = {host: [str(-(1 << 63) + number * width)] for number, host in enumerate(hosts)}
    metadata.rebuild_token_map("org.apache.cassandra.dht.Murmur3Partitioner", ring)
    store = make(space, tmp_path, batch=8, mode="upsert", key=["id"])._store
    store._cluster._session = SimpleNamespace(cluster=SimpleNamespace(metadata=metadata, shutdown=lambda: None))
    keys = [f"p{number % 40}".encode() for number in range(200)]
    large = 150
    bound = [SimpleNamespace(routing_key=key, values=[key, b"x" * (29_000 if at == large else 10), None]) for at, key in enumerate(keys)]
    parts = list(store._parts(range(200), bound))
    assert sorted(at for part in parts for at in part) == [*range(200)]
    seen: list[bytes] = []
    for part in parts:
        first = {metadata.get_replicas(space.name, keys[at])[0] for at in part}
        assert len(first) == 1, "one node has them all"
        assert len(part) <= 8
        assert large not in part or sum(len(bound[at].values[1]) for at in part) < 30 << 10
        seen += [keys[at] for at in part]
    assert len([*groupby(seen)]) == 40, "rows of a partition are behind one another, also where they go in several requests"
    assert len({metadata.get_replicas(space.name, key)[0] for key in keys}) == 3
    store._cluster._session = None


def test_a_client_that_is_collected_in_the_drivers_thread_is_shut_down_in_another(
    space: Keyspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its own a shutdown waits for requests whose answers come by that thread."""
    shut: list[threading.Thread] = []
    plain = Cluster.shutdown

    def shutdown(self: Cluster) -> None:
        shut.append(threading.current_thread())
        plain(self)

    monkeypatch.setattr(Cluster, "shutdown", shutdown)
    sink = make(space, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    held, dropped_in = [sink], list[threading.Thread]()
    del sink

    def drop(_: object) -> None:
        if threading.current_thread() is not threading.main_thread():  # where the answer was there before it was asked for
            dropped_in.append(threading.current_thread())
            held.clear()
            gc.collect()

    def dropped() -> bool:
        answer = space.session.execute_async("SELECT key FROM system.local")
        answer.add_callback(drop)
        answer.result()
        return not held

    assert within(60, dropped)
    assert within(60, lambda: bool(shut))  # those of tests before may be among them
    assert dropped_in[0] not in shut

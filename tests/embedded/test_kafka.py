"""A real broker, killed and started again; three of them, one lost."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from kafka_tools import read_lines, write_lines

from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import birth_of, within
from scribengin.embedded.kafka import KafkaCluster, read_metadata
from tests.looking import look_until

if TYPE_CHECKING:
    from pathlib import Path

_WITHIN_S = 120.0


def listeners(pid: int) -> set[str]:
    """The addresses on which a process listens."""
    import psutil

    return {connection.laddr.ip for connection in psutil.Process(pid).net_connections("tcp") if connection.status == psutil.CONN_LISTEN}


def test_a_broker_answers_as_the_one_broker_of_its_cluster_on_the_loopback_only(kafka: KafkaCluster) -> None:
    known = kafka.read_metadata()
    assert known.nodes == {1: kafka.bootstrap}
    assert kafka.bootstrap.startswith("127.0.0.1:")
    (pid,) = kafka.brokers_up.values()
    assert {address.removeprefix("::ffff:") for address in listeners(pid)} == {"127.0.0.1"}


@pytest.mark.long
def test_a_killed_broker_comes_back_with_its_topics_and_records_at_its_address(kafka: KafkaCluster) -> None:
    address = kafka.bootstrap
    write_lines(kafka, "kept", ["one", "two", "three"])
    before = kafka.read_metadata()
    kafka.kill(1)
    assert kafka.brokers_up == {}
    with pytest.raises(OSError, match="refused"):
        kafka.read_metadata()
    kafka.restart(1)
    after = kafka.read_metadata()
    assert kafka.bootstrap == address
    assert after.cluster_id == before.cluster_id
    assert [partition.leader for partition in after.topics["kept"]] == [1]
    assert sorted(read_lines(kafka, "kept", 3)) == ["one", "three", "two"]


def test_what_is_up_is_not_started_again(kafka: KafkaCluster) -> None:
    before = kafka.brokers_up
    kafka.start()
    kafka.restart(1)
    assert kafka.brokers_up == before
    assert KafkaCluster(kafka.folder).brokers_up == before


def test_the_log_of_a_broker_can_be_read(kafka: KafkaCluster) -> None:
    log = kafka.log()
    look_until(lambda: "Kafka Server started" in log.read_text(), "the broker, which answers before, writes that it has started", 60)
    assert "ERROR" not in log.read_text()


@pytest.mark.long
def test_three_brokers_go_on_without_one_and_take_it_back(tmp_path: Path) -> None:
    with KafkaCluster(tmp_path, brokers=3, properties={"num.partitions": "3"}) as cluster:
        write_lines(cluster, "copied", ["written before"])
        assert all(sorted(partition.in_sync) == [1, 2, 3] for partition in cluster.read_metadata(2).topics["copied"])
        cluster.kill(1)
        assert sorted(cluster.brokers_up) == [2, 3]
        # brokers 2 and 3 lead what 1 has led, and count on each other only
        assert within(
            _WITHIN_S, lambda: all(p.leader in (2, 3) and sorted(p.in_sync) == [2, 3] for p in cluster.read_metadata(2).topics["copied"])
        )
        write_lines(cluster, "copied", ["written without 1"])
        cluster.restart(1)
        assert within(_WITHIN_S, lambda: all(sorted(p.in_sync) == [1, 2, 3] for p in cluster.read_metadata(1).topics["copied"]))
        assert sorted(read_lines(cluster, "copied", 2)) == ["written before", "written without 1"]
        pids = list(cluster.brokers_up.values())
        assert len(pids) == 3
    assert cluster.brokers_up == {}
    assert [birth_of(pid) for pid in pids] == [None, None, None]


def test_a_port_that_another_has_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path)
    host, _, port = cluster.bootstrap.rpartition(":")
    with (
        socket.create_server((host, int(port))),
        pytest.raises(EnvironmentFault, match=f"listens on its port, {cluster.bootstrap}") as caught,
    ):
        cluster.start()
    assert caught.value.code == "port-taken"
    assert not (tmp_path / "data").exists()


def test_a_broker_that_does_not_take_its_settings_is_told_in_its_own_words(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path, properties={"num.io.threads": "none"})
    with pytest.raises(EnvironmentFault, match=r"num\.io\.threads"):
        cluster.start()
    assert cluster.brokers_up == {}


def test_a_folder_with_another_number_of_brokers_is_refused(tmp_path: Path) -> None:
    KafkaCluster(tmp_path, brokers=3)
    with pytest.raises(EnvironmentFault, match="a cluster with 3 brokers; expected 1"):
        KafkaCluster(tmp_path)
    with pytest.raises(ValueError, match="1 or 3 brokers, not 2"):
        KafkaCluster(tmp_path / "two", brokers=2)


def test_clusters_are_told_apart_by_identity_and_port(tmp_path: Path) -> None:
    one, other = KafkaCluster(tmp_path / "one"), KafkaCluster(tmp_path / "other")
    assert one.bootstrap != other.bootstrap
    assert KafkaCluster(tmp_path / "one").bootstrap == one.bootstrap


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00\x00\x00\x08\x00\x00\x00\x07\x7f\xff\xff\xff"])
def test_something_else_that_answers_is_taken_for_no_broker(said: bytes) -> None:
    from threading import Thread

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(said)

        thread = Thread(target=answer)
        thread.start()
        with pytest.raises((OSError, ValueError)):
            read_metadata("127.0.0.1", port, timeout_s=10.0)
        thread.join()

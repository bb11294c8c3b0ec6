"""A real ZooKeeper, killed and started again."""

from __future__ import annotations

import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import find_java
from scribengin.embedded.jars import pyspark_jars
from scribengin.embedded.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path


def shell(server: ZooKeeper, *words: str) -> str:
    """What ZooKeeper's own shell says to a command."""
    classpath = ":".join(str(path) for path in pyspark_jars("*.jar"))
    command = [find_java().home / "bin" / "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath]
    command += ["org.apache.zookeeper.ZooKeeperMain", "-server", server.address, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_killed_server_comes_back_with_its_nodes_at_its_address(zookeeper: ZooKeeper) -> None:
    address = zookeeper.address
    shell(zookeeper, "create", "/kept", "content")
    zookeeper.kill()
    assert zookeeper.pid is None
    assert not zookeeper.answers()
    zookeeper.start()
    assert zookeeper.address == address
    assert "content" in shell(zookeeper, "get", "/kept")


def test_it_listens_on_the_loopback_only(zookeeper: ZooKeeper) -> None:
    import psutil

    found = psutil.Process(zookeeper.pid).net_connections("tcp")
    listening = {connection.laddr.ip.removeprefix("::ffff:") for connection in found if connection.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_what_is_up_is_not_started_again(zookeeper: ZooKeeper) -> None:
    before = zookeeper.pid
    zookeeper.start()
    assert zookeeper.pid == before
    assert ZooKeeper(zookeeper.folder).pid == before


def test_asking_leaves_no_line_in_its_log(zookeeper: ZooKeeper) -> None:
    before = zookeeper.log.read_text()
    assert zookeeper.answers()
    assert zookeeper.log.read_text() == before
    assert "ERROR" not in before


def test_a_port_that_another_has_taken_is_named(tmp_path: Path) -> None:
    server = ZooKeeper(tmp_path)
    host, _, port = server.address.rpartition(":")
    with socket.create_server((host, int(port))), pytest.raises(EnvironmentFault, match=f"listens on its port, {server.address}"):
        server.start()


def test_after_its_block_nothing_is_left_of_it(tmp_path: Path) -> None:
    import psutil

    with ZooKeeper(tmp_path) as server:
        pid = server.pid
        assert server.answers()
    assert not psutil.pid_exists(pid)
    assert server.pid is None

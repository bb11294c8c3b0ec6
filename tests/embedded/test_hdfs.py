"""A real HDFS: its nodes are killed one by one and come back with the files, and it is a service like the others."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.process import birth_of, within
from scribengin.embedded import services
from scribengin.embedded.hdfs import Hdfs
from scribengin.embedded.jars import jars_of, pyspark_jars

if TYPE_CHECKING:
    from pathlib import Path

_WITHIN_S = 60.0


def test_it_has_the_version_of_sparks_client() -> None:
    (client,) = pyspark_jars("hadoop-client-api-*.jar")
    (jar,) = jars_of("hdfs")
    assert jar.coordinate.rpartition(":")[2] == client.stem.rpartition("-")[2]


@pytest.mark.long
def test_each_node_is_killed_by_itself_and_both_come_back_where_they_were(tmp_path: Path) -> None:
    with Hdfs(tmp_path / "hdfs") as hdfs:
        uri, pids = hdfs.uri, (hdfs.name_node.pid, hdfs.data_node.pid)
        hdfs.data_node.kill()
        assert (hdfs.data_node.pid, hdfs.name_node.pid) == (None, pids[0])
        assert not hdfs.answers()
        hdfs.start()
        assert hdfs.answers()
        hdfs.name_node.kill()
        assert not hdfs.answers()
        hdfs.start()
        assert hdfs.answers()
        assert hdfs.uri == uri
        assert hdfs.name_node.pid not in (None, pids[0])
    assert (hdfs.name_node.pid, hdfs.data_node.pid) == (None, None)


@pytest.mark.long
def test_it_is_a_service_that_is_named_to_be_started(tmp_path: Path) -> None:
    def call(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "scribengin.cli", "dev-services", *words, "--json"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        row: dict[str, Any] = json.loads(ended.stdout)["result"]["services"][-1]
        return row

    try:
        started = call("start", "hdfs")
        assert (started["state"], started["address"].startswith("hdfs://127.0.0.1:")) == ("running", True)
        assert call("status", "hdfs") == started
        found = Hdfs(tmp_path / ".scribengin" / "services" / "hdfs")
        nodes = [found.name_node.pid, found.data_node.pid]
        assert call("stop")["state"] == "stopped"
        assert within(_WITHIN_S, lambda: [pid and birth_of(pid) for pid in nodes] == [None, None])
    finally:
        services.stop(["hdfs"], tmp_path / ".scribengin")

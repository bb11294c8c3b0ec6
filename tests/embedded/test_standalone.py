"""A real Spark standalone cluster: what is killed is noticed and comes back, and it is a service like the others."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.process import birth_of, within
from scribengin.embedded import services
from scribengin.embedded.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pathlib import Path

_WITHIN_S = 240.0


@pytest.mark.long
def test_a_killed_worker_of_the_cluster_is_missed_and_comes_back(tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path / "cluster", cores=1, memory_mib=512) as cluster:
        address, web = cluster.address, cluster.web
        assert (cluster.read_state()["cores"], cluster.read_state()["memory"]) == (1, 512)
        cluster.kill(1)
        assert within(_WITHIN_S, lambda: not cluster.answers())
        cluster.start()
        assert cluster.answers()
        assert (cluster.address, cluster.web) == (address, web)
    assert cluster.pid is None
    assert not cluster.answers()


@pytest.mark.long
def test_a_spark_cluster_is_a_service_that_is_named_to_be_started_and_looked_at_from_then_on(tmp_path: Path) -> None:
    def call(*words: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "scribengin.cli", "dev-services", *words, "--json"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        rows: list[dict[str, Any]] = json.loads(ended.stdout)["result"]["services"]
        return rows

    assert [row["name"] for row in call("status")] == ["kafka", "zookeeper"]
    try:
        (row,) = call("start", "spark")
        assert (row["state"], row["address"].startswith("spark://127.0.0.1:")) == ("running", True)
        assert call("start", "spark") == [row]
        assert [(found["name"], found["state"]) for found in call("status")][2:] == [("spark", "running")]
        assert [found["state"] for found in call("stop")] == ["stopped"] * 3
        assert birth_of(row["pid"]) is None
    finally:
        services.stop(["spark"], tmp_path / ".scribengin")

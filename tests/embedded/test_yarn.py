"""A real YARN: its processes are killed one by one, and it is a service like the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.core.process import within
from scribengin.embedded.jars import jars_of, pyspark_jars
from scribengin.embedded.yarn import Yarn

if TYPE_CHECKING:
    from pathlib import Path


def test_it_has_the_library_that_sparks_hadoop_was_built_with() -> None:
    assert {jar.coordinate.split(":")[1] for jar in jars_of("yarn")} == {"bcprov-jdk18on", "bcpkix-jdk18on", "bcutil-jdk18on"}
    assert pyspark_jars("spark-yarn_*.jar")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_process_is_killed_by_itself_and_comes_back(tmp_path: Path) -> None:
    with Yarn(tmp_path / "yarn", nodes=2) as yarn:
        assert (yarn.conf / "yarn-site.xml").exists()
        yarn.nodes[1].kill()
        metrics = "/ws/v1/cluster/metrics"
        assert within(60.0, lambda: yarn.resource_manager.read(metrics)["clusterMetrics"]["activeNodes"] == 1)
        assert not yarn.answers()
        yarn.start()
        assert yarn.answers()
        uri, before = yarn.uri, yarn.pid
        yarn.resource_manager.kill()
        assert not yarn.answers()
        yarn.start()
        assert (yarn.uri, yarn.answers()) == (uri, True)
        assert yarn.pid != before
        assert [each.pid for each in Yarn(tmp_path / "yarn", nodes=2).nodes] == [each.pid for each in yarn.nodes], "found again"
    assert [each.pid for each in (yarn.resource_manager, *yarn.nodes, yarn.hdfs.name_node)] == [None] * 4

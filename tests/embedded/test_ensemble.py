"""Three real ZooKeepers that vote."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from harness.ensemble import ZooKeeperEnsemble
from scribengin.registry.access import RegistryAddress
from scribengin.registry.contract import Create, RegistryEntry
from scribengin.registry.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
@pytest.mark.timeout(400)
def test_of_three_servers_one_may_be_lost_and_comes_back(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        assert len({server.address for server in ensemble.servers}) == 3
        with_all = open_zookeeper(RegistryAddress.parse(f"zk://{ensemble.address}/here"), insecure=True, wait_s=60)
        with_all.commit(Create("kept", {"n": 1}))
        lost = ensemble.servers[0].pid
        assert lost is not None
        os.kill(lost, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while ensemble.pid is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        others = open_zookeeper(
            RegistryAddress.parse(f"zk://{ensemble.servers[1].address},{ensemble.servers[2].address}/here"), insecure=True, wait_s=60
        )
        found = others.read("kept")
        assert isinstance(found, RegistryEntry)
        assert found.value == {"n": 1}
        others.commit(Create("later", {"n": 2}))
        ensemble.clear()
        ensemble.start()
        assert ensemble.pid not in (None, lost)
        for registry in (with_all, others):
            registry.close()

"""A real ZooKeeper for all tests of this folder, and the two registries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # registry_benches, which the modules here use

from registry_benches import Bench, MemoryBench, ZooKeeperBench

from scribengin.embedded.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(params=["memory", "zookeeper"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made: Bench = MemoryBench() if request.param == "memory" else ZooKeeperBench(request.getfixturevalue("zookeeper"))
    try:
        yield made
    finally:
        made.close()

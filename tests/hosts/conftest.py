"""A real ZooKeeper for all tests of this folder, and a control plane of processes over it for each."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # plane, which the modules here use

from plane import Plane

from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.registry.access import RegistryAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def plane(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Plane]:
    made = Plane(tmp_path, RegistryAddress((zookeeper.address,), f"/plane{next(_NUMBERS)}"))
    try:
        yield made
    finally:
        made.close()

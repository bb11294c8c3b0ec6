"""One object store for all tests of this folder: a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from harness.object_stores import or_skipped
from scribengin.embedded.hdfs import Hdfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.embedded.objects import ObjectServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with or_skipped(tmp_path_factory.mktemp("objects")) as started:
        yield started


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture
def prefix() -> str:
    """Of nobody else."""
    return f"t/{uuid4().hex}"

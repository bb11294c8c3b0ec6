"""Reading Delta tables as others do."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from harness.object_stores import or_skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scribengin.embedded.objects import ObjectServer


def read_table(path: Path) -> list[dict[str, Any]]:
    """Its rows, by pyarrow; none where there is no table."""
    if not DeltaTable.is_deltatable(str(path)):
        return []
    # a file system of Arrow's own: the client's, called back from Arrow's threads, may end the process badly
    files = SubTreeFileSystem(str(path), LocalFileSystem())
    rows = DeltaTable(path).to_pyarrow_dataset(filesystem=files).to_table().to_pylist()
    return [{name: value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for name, value in row.items()} for row in rows]


@pytest.fixture
def read() -> Callable[[Path], list[dict[str, Any]]]:
    return read_table


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with or_skipped(tmp_path_factory.mktemp("objects")) as started:
        yield started


@pytest.fixture
def prefix() -> str:
    """Of nobody else."""
    return f"t/{uuid4().hex}"

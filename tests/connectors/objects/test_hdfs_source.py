"""The source over a folder of an HDFS keeps the contract while files come, go and change there."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.remote_places import opened, options
from scribengin.connectors.catalog import open_source, source_types
from scribengin.connectors.contract import ConnectorContext, SourceConnector
from scribengin.core.types import parse_schema
from scribengin.testing.conformance_sources import Bench, check_changing_source

if TYPE_CHECKING:
    from scribengin.embedded.hdfs import Hdfs


@pytest.mark.parametrize("names", ["any", pytest.param("sorted", marks=pytest.mark.long)])
def test_it_keeps_the_contract_while_its_place_changes(hdfs: Hdfs, prefix: str, names: str) -> None:
    store = opened(hdfs, prefix)
    declared = source_types()["hdfs"]
    given = options(hdfs, prefix, format="text", names=names)
    numbers, files = count(), count()

    def source() -> SourceConnector:
        return open_source("hdfs", ConnectorContext("in", Path("/nowhere"), declared.filled(given), parse_schema("value STRING"), flow="f"))

    def add(rows: int) -> None:
        store.put(f"part-{next(files):04}.txt", b"".join(b"record %d\n" % next(numbers) for _ in range(rows)))

    def remove_newest() -> None:
        store.delete(max(entry.key for entry in store.list()))

    def change() -> None:
        store.delete("part-0000.txt")
        store.put("part-0000.txt", b"another\n")

    check_changing_source(Bench(source, add, declared, given, add, remove_newest, change))

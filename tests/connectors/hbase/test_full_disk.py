"""An HBase over plain files whose disk is full acknowledges what it does not keep (its log takes the error of Java's files, `FSError`, for
none): the audit tells which rows are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from harness.faults.small_disk import SmallDisk, no_small_disk
from scribengin.core.errors import Unreachable
from scribengin.core.process import within
from scribengin.embedded import hbase as embedded
from scribengin.embedded.hbase import HBase
from tests.connectors.hbase.conftest import Table
from tests.connectors.hbase.test_sink import decided, make, offered, rows_of

if TYPE_CHECKING:
    from pathlib import Path

_ROWS, _MOST = 4000, 40
"""of a Batch; and Batches, of which some ten fill the disk"""


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(no_small_disk()), reason=no_small_disk())
def test_rows_that_a_full_disk_did_not_keep_are_told_by_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = embedded.start_server
    server = HBase(tmp_path / "server")
    with SmallDisk(server.folder / "data" / "root", "40m") as disk, httpx2.Client(timeout=60, trust_env=False) as http:
        monkeypatch.setattr(
            embedded, "start_server", lambda name, command, **more: start(name, disk.wrap(list(map(str, command)), tmp_path), **more)
        )
        try:
            server.start()
            table = Table(server.uri, "small", http, server.uri)
            sink = make(table, tmp_path)
            sink.prepare(owner="me", lineage="lineage-1")
            batches = []

            def write() -> None:
                for number in range(_MOST):
                    batches.append(decided(sink, number, rows_of(*range(_ROWS), name="x" * 900)))
                    assert not offered(sink, batches[-1])

            with pytest.raises(Unreachable) as told:
                write()
            assert 1 < len(batches) < _MOST
            assert told.value.code == "hbase-away"
            assert "has free space" in (told.value.remedy or "") or "is up" in (told.value.remedy or "")
            disk.grow("600m")
            server.kill()
            server.start()
            assert within(60, server.answers)
            told_of = list(sink.audit(lineage="lineage-1", decided=batches))
            kept = sum(map(len, sink._store.versions()))
            assert sum(each.rows for each in told_of) <= kept < len(batches) * _ROWS
            lost = [each.number for each in told_of if each.violations]
            assert lost
            assert {each.number for each in told_of if each.rows == _ROWS} == set(range(len(batches))) - set(lost)
        finally:
            server.stop()

"""HDFS whose only DataNode has a full disk: it is told, nothing is lost, and what waits comes once there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from harness.faults.small_disk import SmallDisk, no_small_disk
from harness.remote_places import opened
from scribengin.core.errors import Unreachable
from scribengin.core.process import within
from scribengin.embedded import hdfs as embedded
from scribengin.embedded.hdfs import Hdfs
from tests.connectors.objects.test_hdfs import ROWS, by_manifest, prepared, staged

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.hdfs.store import HdfsStore

ROOMY, FULL = "2g", "32m"
"""a DataNode is given no block where there is less room than one has, 128 MiB, and takes none where a GiB beside is not free"""

SAYS = r"could only be written to 0 of the 1 minReplication nodes|Datanode connection closed while waiting for ack"
"""the NameNode, and before it knows the DataNode"""


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(no_small_disk()), reason=no_small_disk())
def test_a_full_disk_at_the_data_node_loses_nothing_and_what_waits_comes_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdfs, start = Hdfs(tmp_path / "hdfs"), embedded.start_server
    with SmallDisk(hdfs.data_node.folder / "data", ROOMY) as disk:
        monkeypatch.setattr(
            embedded,
            "start_server",
            lambda name, command, **more: start(
                name, disk.wrap(list(map(str, command)), tmp_path) if name == hdfs.data_node.name else command, **more
            ),
        )
        with hdfs:
            store = opened(hdfs, "kept")
            sink = prepared(hdfs, "kept", visible="manifest")
            first = staged(sink, 0, ROWS)
            sink.publish(first)
            waits = staged(sink, 1, ROWS)
            disk.grow(FULL)
            assert within(60, lambda: not takes(store))
            for act in (lambda: sink.publish(waits), lambda: staged(sink, 2, ROWS)):
                with pytest.raises(Unreachable, match=SAYS) as told:
                    act()
                assert told.value.code == "hdfs-away"
                assert "free space" in told.value.remedy
            assert by_manifest(store) == ROWS
            disk.grow(ROOMY)
            assert within(60, lambda: takes(store))
            sink.publish(waits)
            sink.publish(waits)
            assert by_manifest(store) == [*ROWS, *ROWS]
            assert not any(each.violations for each in sink.audit(lineage="one", decided=[first, waits]))


def takes(store: HdfsStore) -> bool:
    """Whether the DataNode has room for another file."""
    try:
        return store.put(f"filler/{uuid4().hex}", b"x")
    except Unreachable:
        return False

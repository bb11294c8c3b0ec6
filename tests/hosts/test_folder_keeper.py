"""A host's part in the upkeep of sinks' folders: in memory, and as real processes of which one sleeps past its session."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import structlog
from plane import until

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.core.records import seal
from scribengin.core.storage import put_if_absent
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.hosts.folder_keeper import FolderKeeper
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import MaintenanceOwner, MaintenanceReport, TierSpec, id_of_folder
from scribengin.registry.tree import KEEPING, UPKEEP_LEASE, UPKEPT

if TYPE_CHECKING:
    from pathlib import Path

    from plane import Plane

    from scribengin.registry.contract import Registry

LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
SESSION_S = 10.0


def sink_folder(path: Path, *, late: int = 0) -> Path:
    """As a sink leaves it after Batch 9: all of it has its names, and `late` attempts have staged something since."""
    lineage = path / "_scribengin" / "l1"
    put_if_absent(path / "_scribengin" / "owner.json", seal("owner", 1, [{"owner": "me", "lineage": "l1", "sink": "s", "since": ""}]))
    (lineage / "staged" / "0000000009").mkdir(parents=True, exist_ok=True)
    (lineage / "published").write_bytes(b"9")
    for number in range(late):
        (lineage / "staged" / "0000000009" / f"late{number}").write_bytes(b"x" * 100)
    return path


def late_ones(path: Path) -> int:
    return len(list((path / "_scribengin/l1/staged").rglob("late*")))


def give(registry: Registry, path: Path, node: str, number: int) -> str:
    id_ = id_of_folder(str(path))
    registry.commit(put(registry, KEEPING(id_), MaintenanceOwner(path=str(path), node=node, number=number)))
    return id_


def told(registry: Registry, path: Path) -> MaintenanceReport | None:
    registry.sync()
    found = read_record(registry, UPKEPT(id_of_folder(str(path))))
    return found.record if isinstance(found, Stored) else None


def holder(registry: Registry, path: Path) -> str:
    found = read_record(registry, UPKEEP_LEASE(id_of_folder(str(path))))
    return found.record.id if isinstance(found, Stored) else ""


def test_the_host_that_was_named_keeps_it_and_says_so_and_the_other_nothing(tmp_path: Path) -> None:
    store = MemoryStore()
    leader = store.client()
    a, b = (FolderKeeper(store.client(), name, {"id": name}, LOG, every_s=0.0) for name in "ab")
    path = sink_folder(tmp_path / "out", late=3)
    give(leader, path, "a", 1)
    b.step()
    assert (late_ones(path), told(leader, path)) == (3, None)
    a.step()
    said = told(leader, path)
    assert said is not None
    assert [(each["path"], each["files"]) for each in a.glance()] == [(str(path), 3)]
    assert b.glance() == []
    assert (late_ones(path), said.node, said.number, said.files, said.bytes, said.error) == (0, "a", 1, 3, 300, "")
    # nothing to do is not told each time
    a.step()
    assert told(leader, path) == said
    # given to another: the first lets it go, the other has it then
    give(leader, path, "b", 2)
    sink_folder(path, late=1)
    b.step()
    assert late_ones(path) == 1, "it waits until the right is free"
    a.step()
    assert holder(leader, path) == ""
    b.step()
    assert (late_ones(path), holder(leader, path)) == (0, "b")
    after = told(leader, path)
    assert after is not None
    assert (after.node, after.number, after.files) == ("b", 2, 1)
    assert after.term > said.term


def test_who_lost_his_session_in_the_middle_does_no_further_step_and_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    leader, client, next_client = store.client(), store.client(), store.client()
    slept = FolderKeeper(client, "a", {"id": "a"}, LOG, every_s=0.0)
    path = sink_folder(tmp_path / "out")
    give(leader, path, "a", 1)
    slept.step()
    assert (said := told(leader, path)) is not None
    sink_folder(path, late=3)
    follows = FolderKeeper(next_client, "b", {"id": "b"}, LOG, every_s=0.0)

    def asleep(point: str) -> None:
        if point == "upkeep.orphan" and holder(leader, path) == "a":
            store.expire(client)  # type: ignore[arg-type]
            give(leader, path, "b", 2)
            follows.step()
            sink_folder(path, late=3)  # what anybody puts there now is the next keeper's

    monkeypatch.setattr("scribengin.core.faults.reached", asleep)
    slept.step()
    assert late_ones(path) == 3, "woken, it has deleted nothing"
    after = told(leader, path)
    assert after is not None
    assert (after.node, after.files) == ("b", 3)
    assert after.term > said.term


def test_what_fails_is_told_until_it_works(tmp_path: Path) -> None:
    store = MemoryStore()
    leader = store.client()
    keeper = FolderKeeper(store.client(), "a", {"id": "a"}, LOG, every_s=0.0)
    path = sink_folder(tmp_path / "out", late=1)
    owner = path / "_scribengin" / "owner.json"
    good = owner.read_bytes()
    owner.write_bytes(b"torn")
    give(leader, path, "a", 1)
    keeper.step()
    said = told(leader, path)
    assert said is not None
    assert "owner.json" in said.error
    owner.write_bytes(good)
    keeper.step()
    said = told(leader, path)
    assert said is not None
    assert (said.error, said.files) == ("", 1)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_folders_keeper_is_started_elsewhere_and_one_that_slept_does_nothing_when_it_is_woken(plane: Plane) -> None:
    """A lost host, and one that was stopped in the middle of a turn for longer than its session."""
    path = sink_folder(plane.folder / "out", late=3)
    gate = plane.folder / "gate"
    plane.master("m1")
    plane.armed_node("a", f"upkeep.orphan:wait={gate}")
    plane.apply("tweets", by={"main": TierSpec(folders=(str(path),))})
    until((plane.folder / "gate.waiting").exists, "a is about to delete the first file")
    assert holder(plane.registry, path) == "a"
    os.kill(plane.processes["a"].pid, signal.SIGSTOP)
    plane.node("b")
    until(lambda: (found := told(plane.registry, path)) is not None and found.node == "b", "b keeps it", 90)
    assert late_ones(path) == 0
    said = told(plane.registry, path)
    plane.says("status", "tweets")
    sink_folder(path, late=3)
    gate.touch()
    os.kill(plane.processes["a"].pid, signal.SIGCONT)
    until(lambda: "upkeep" in (plane.folder / "a" / "node.log").read_text(), "a has found out that it has lost the right")
    assert late_ones(path) == 3
    assert told(plane.registry, path) == said
    assert holder(plane.registry, path) == "b"
    # b is gone for good, and a there again
    plane.kill("b")
    until(lambda: (found := told(plane.registry, path)) is not None and found.node == "a", "a keeps it", 90)
    assert late_ones(path) == 0


def test_segments_that_are_hidden_are_merged_when_they_have_waited_and_not_only_every_minute(tmp_path: Path) -> None:
    store = MemoryStore()
    leader = store.client()
    keeper = FolderKeeper(store.client(), "a", {"id": "a"}, LOG)
    sink = FilesSink(ConnectorContext("s", tmp_path, SINK.filled({"path": "out", "format": "json", "roll": {"size": 2**20, "every": 0.5}})))
    sink.prepare(owner="me", lineage="l1")
    schema = parse_schema("id BIGINT")
    for number in range(2):
        id_ = BatchId("f", "q", "l1", number, 1)
        stream = sink.stream(id_, 0, "a", schema)
        stream.write(pa.RecordBatch.from_pylist([{"id": number}], arrow_schema(schema)))
        sink.publish(Decided(id_, f"h{number}", (stream.close(),)))
    give(leader, tmp_path / "out", "a", 1)
    keeper.step()
    until(lambda: keeper.step() > 0 and len(list((tmp_path / "out").glob("part-*"))) == 1, "the keeper has merged them")

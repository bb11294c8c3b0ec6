"""HDFS as a store: what its renames and creations keep, time limits, errors in our words; the sink's contract over it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.remote_places import opened, options
from scribengin.connectors.addresses import HDFS_URL, store_url_fault
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.hdfs import store as hdfs_store
from scribengin.connectors.hdfs.options import SINK
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.manifests import Manifests, Owners
from scribengin.connectors.objects.orphans import find_orphans, remove
from scribengin.connectors.objects.sink import ObjectsSink
from scribengin.core import faults
from scribengin.core.errors import SinkError, StateError, Unreachable
from scribengin.core.limited import limited
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from tests.connectors.group.alternating import Alternating
from tests.looking import stop_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.connectors.hdfs.store import HdfsStore
    from scribengin.embedded.hdfs import Hdfs

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING, amount DOUBLE")
ROWS = [{"id": n, "name": None if n == 2 else f'a "quoted"\n{n}', "amount": n / 4} for n in range(6)]


@pytest.fixture
def store(hdfs: Hdfs, prefix: str) -> HdfsStore:
    return opened(hdfs, prefix)


def names(store: HdfsStore) -> list[str]:
    return [entry.key for entry in store.list()]


def test_nobody_sees_a_file_before_it_is_whole_and_a_killed_writer_leaves_what_can_be_found(store: HdfsStore) -> None:
    writer = store.writer("a/part-1")
    writer.file.write(b"x" * 3_000_000)
    assert names(store) == []
    (left,) = store.unfinished()
    assert left[0] == "a/part-1"
    store.put("a/part-12", b"1")
    store.abandon("a/part-1")
    assert list(store.unfinished()) == []
    assert names(store) == ["a/part-12"]


def test_a_rename_never_goes_over_a_file_or_into_a_folder(store: HdfsStore) -> None:
    store.put("there", b"theirs")
    store.put("folder/x", b"1")
    writer = store.writer("there")
    writer.file.write(b"ours")
    with pytest.raises(SinkError, match="another writer wrote it"):
        writer.finish()
    writer = store.writer("folder")
    writer.file.write(b"ours")
    with pytest.raises(SinkError) as told:
        writer.finish()
    assert told.value.code == "hdfs-path"
    writer.abort()
    assert [store.get("there"), names(store)] == [b"theirs", ["folder/x", "there"]]
    with pytest.raises(SinkError, match="ParentNotDirectory") as told:
        store.put("there/below", b"1")
    assert told.value.code == "hdfs-path"


def test_an_object_whose_answer_was_lost_is_known_as_ours(store: HdfsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = store._client

    class Deaf:
        """Renames, and hears no answer: so it asks again, as the library does."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def rename(self, *given: Any) -> None:
            real.rename(*given)
            real.rename(*given)

    monkeypatch.setattr(store, "_client", Deaf())
    assert store.put("a", b"ours")
    writer = store.writer("b")
    writer.file.write(b"ours")
    writer.finish()
    assert [store.get("a"), store.get("b")] == [b"ours", b"ours"]
    assert list(store.unfinished()) == []


def test_folders_that_are_empty_go_with_their_last_file(store: HdfsStore) -> None:
    for key in ("a/b/1", "a/b/2", "a/3"):
        store.put(key, b"")
    store.delete("a/b/1")
    assert store._status(f"{store._top}a/b") is not None
    store.delete("a/b/2")
    assert [store._status(f"{store._top}{name}") is None for name in ("a/b", "a")] == [True, False]
    store.delete("a/3")
    assert store._status(f"{store._top}a") is None


def test_what_hadoops_own_tools_are_copying_is_no_file_yet(store: HdfsStore) -> None:
    store.put("a.jsonl._COPYING_", b"1")
    store.put("b.jsonl", b"1")
    assert names(store) == ["b.jsonl"]


def test_a_name_node_that_hangs_is_given_up_after_the_time_limit_and_found_again(
    hdfs: Hdfs, store: HdfsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"1")
    monkeypatch.setattr(hdfs_store, "CALL_S", 2.0)
    monkeypatch.setattr(hdfs_store, "DATA_S", 2.0)
    assert hdfs.pid is not None
    stop_whole(hdfs.pid)
    try:
        begun = time.monotonic()
        calls: list[Callable[[], Any]] = [lambda: store.get("a"), lambda: store.put("b", b"1"), lambda: list(store.list())]
        for call in calls:
            with pytest.raises(Unreachable, match="no answer after 2 s") as told:
                call()
            assert told.value.code == "hdfs-away"
        assert time.monotonic() - begun < 60.0
    finally:
        os.kill(hdfs.pid, signal.SIGCONT)
    monkeypatch.setattr(hdfs_store, "CALL_S", 60.0)
    monkeypatch.setattr(hdfs_store, "DATA_S", 60.0)
    assert store.get("a") == b"1"


def test_the_limit_leaves_a_call_alone_and_hands_on_what_it_gives_or_raises() -> None:
    assert limited(lambda: 3, 60.0) == 3
    with pytest.raises(ZeroDivisionError):
        limited(lambda: 1 // 0, 60.0)
    ended: list[int] = []
    may = Event()
    with pytest.raises(TimeoutError):
        limited(lambda: (may.wait(60), ended.append(1)), 0.05)
    assert not ended
    may.set()
    threads = [Thread(target=limited, args=(lambda: ended.append(2), 60.0)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended.count(2) == 8


def test_an_error_of_the_name_node_that_no_later_try_changes_has_a_code_of_its_own(store: HdfsStore) -> None:
    final = store.fault(OSError('RPCError("org.apache.hadoop.fs.UnresolvedLinkException", "there is no symlink")'), "cannot be read")
    assert (type(final), final.code) == (SinkError, "hdfs")
    passing = store.fault(OSError('RPCError("org.apache.hadoop.ipc.StandbyException", "not active")'), "cannot be read")
    assert passing.code == "hdfs-away"


@pytest.mark.parametrize("url", ["hdfs:///x", "hdfs://host:1", "s3://bucket/x", "hdfs://me@host/x", "hdfs://host/a/../b"])
def test_a_url_that_leads_nowhere_is_told(url: str) -> None:
    assert store_url_fault(url, HDFS_URL) is not None
    with pytest.raises(SinkError) as told:
        ObjectsAddress.of("kept", SINK.filled({"url": url}))
    assert told.value.code == "hdfs-url"


def test_a_server_that_is_away_or_none_is_told(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_store, "CALL_S", 8.0)
    monkeypatch.setattr(hdfs_store, "DATA_S", 8.0)
    for uri in ("hdfs://127.0.0.1:9", f"hdfs://127.0.0.1:{hdfs.name_node.web_port}"):
        with pytest.raises(Unreachable, match='"kept": hdfs://127') as told:
            ObjectsAddress.of("kept", SINK.filled({"url": f"{uri}/x"})).open().get("a")
        assert told.value.code == "hdfs-away"
        assert told.value.message.count("(") == told.value.message.count(")")


def test_what_the_name_node_refuses_is_told_with_what_to_do(
    hdfs: Hdfs, store: HdfsStore, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"1")
    hdfs.admin("-setSpaceQuota", "1m", f"/{prefix}")
    calls: list[tuple[Callable[[], Any], str]] = [(lambda: store.put("b", b"1"), "hdfs-quota")]
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    stranger = opened(hdfs, prefix)
    assert stranger.get("a") == b"1"
    monkeypatch.delenv("HADOOP_USER_NAME")
    calls += [(lambda: stranger.put("c", b"1"), "hdfs-rights"), (lambda: stranger.delete("a"), "hdfs-rights")]
    for call, code in calls:
        with pytest.raises(SinkError) as told:
            call()
        assert told.value.code == code, told.value
        assert told.value.remedy
    assert names(store) == ["a"]
    assert list(store.unfinished()) == []
    hdfs.admin("-safemode", "enter")
    try:
        with pytest.raises(Unreachable, match="SafeModeException"):
            store.delete("a")
    finally:
        hdfs.admin("-safemode", "leave")
    store.delete("a")


def place(hdfs: Hdfs, prefix: str, **more: Any) -> ConnectorContext:
    return ConnectorContext("kept", Path("/nowhere"), SINK.filled(options(hdfs, prefix, format="json") | more), flow="flow")


def rows_of(store: HdfsStore, keys: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for key in keys:
        data = store.get(key)
        assert data is not None, key
        found += (
            pq.read_table(pa.BufferReader(data)).to_pylist()
            if key.endswith(".parquet")
            else [json.loads(line) for line in data.splitlines()]
        )
    return found


def by_listing(store: HdfsStore) -> list[dict[str, Any]]:
    return rows_of(store, [key for key in names(store) if not key.startswith("_")])


def by_manifest(store: HdfsStore) -> list[dict[str, Any]]:
    lineages = {claim["lineage"] for claim in Owners(store).claims()}
    return rows_of(store, [file["name"] for name in sorted(lineages) for _, r in Manifests(store, name).committed() for file in r["files"]])


@pytest.mark.parametrize(
    ("visible", "format"),
    [
        pytest.param("listing", "parquet", marks=pytest.mark.long),
        ("listing", "json"),
        pytest.param("manifest", "json", marks=pytest.mark.long),
    ],
)
def test_the_sink_keeps_the_contract(hdfs: Hdfs, store: HdfsStore, prefix: str, visible: str, format: str) -> None:
    where = place(hdfs, prefix, visible=visible, format=format)
    look = by_listing if visible == "listing" else by_manifest
    check_sink(lambda: ObjectsSink(where), lambda: look(store), schema=SCHEMA, rows=ROWS, declared=SINK, options=where.options)
    assert ObjectsSink(where).clear(owner="conformance", flow="flow") > 4
    assert names(store) == []
    assert list(store.unfinished()) == []


@pytest.mark.long
def test_a_group_of_two_folders_keeps_the_contract_of_one(hdfs: Hdfs, store: HdfsStore, prefix: str, tmp_path: Path) -> None:
    given = tuple(place(hdfs, f"{prefix}/{name}").options for name in ("near", "far"))
    both = [opened(hdfs, f"{prefix}/{name}") for name in ("near", "far")]

    def found() -> list[dict[str, Any]]:
        return [row for each in both for row in by_listing(each)]

    check_sink(lambda: Alternating("hdfs", given, tmp_path), found, schema=SCHEMA, rows=ROWS)
    assert all(map(by_listing, both))
    assert Alternating("hdfs", given, tmp_path).clear(owner="conformance", flow="flow") > 4
    assert names(store) == []


def staged(sink: ObjectsSink, number: int, *units: Sequence[dict[str, Any]], term: int = 1) -> Decided:
    batch = BatchId("flow", "query", "one", number, term)
    receipts = []
    for unit, rows in enumerate(units):
        stream = sink.stream(batch, unit, f"a{number}{unit}{term}", SCHEMA)
        stream.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(SCHEMA)))
        receipts.append(stream.close())
    return Decided(batch, f"hash {number}", tuple(receipts))


def prepared(hdfs: Hdfs, prefix: str, **more: Any) -> ObjectsSink:
    sink = ObjectsSink(place(hdfs, prefix, **more))
    sink.prepare(owner="me", lineage="one")
    return sink


def test_who_lists_sees_nothing_before_the_manifest_and_a_killed_drivers_rest_after_the_next_start(
    hdfs: Hdfs, store: HdfsStore, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = staged(prepared(hdfs, prefix), 0, ROWS[:2], ROWS[2:4], ROWS[4:])
    assert by_listing(store) == []

    class Killed(BaseException):
        pass

    def die(point: str) -> None:
        if point == "publish.record.after":
            assert by_listing(store) == []
        if point == "publish.renamed":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(faults, "reached", die)
        with pytest.raises(Killed):
            prepared(hdfs, prefix).publish(decided)
    assert len(by_listing(store)) == 2
    sink = prepared(hdfs, prefix)
    sink.recover(decided, lineage="one", before=1)
    sink.publish(decided)
    assert sorted(row["id"] for row in by_listing(store)) == [row["id"] for row in ROWS]
    assert list(Manifests(store, "one").notes.staged()) == []
    assert [each.violations for each in sink.audit(lineage="one", decided=[decided])] == [()]


def test_a_staged_file_that_somebody_has_deleted_stops_the_flow(hdfs: Hdfs, store: HdfsStore, prefix: str) -> None:
    sink = prepared(hdfs, prefix)
    decided = staged(sink, 0, ROWS)
    store.abandon(decided.receipts[0].segments[0]["name"])
    with pytest.raises(StateError, match="is missing"):
        sink.publish(decided)


def test_what_nobody_needs_is_found_and_goes(hdfs: Hdfs, store: HdfsStore, prefix: str) -> None:
    sink = prepared(hdfs, prefix)
    sink.publish(staged(sink, 0, ROWS[:1]))
    store.writer("part-0000000000-00000-00000-killed.jsonl")
    store.put("theirs.txt", b"1")
    undecided = staged(sink, 1, ROWS[1:2])
    late = {each.key: each for each in find_orphans(store, now_s=lambda: time.time() + 7200)}
    assert {key: each.kind for key, each in late.items()} == {
        "part-0000000000-00000-00000-killed.jsonl": "upload",
        "theirs.txt": "foreign",
    }
    assert all(each.may_be_used for each in find_orphans(store))
    remove(store, late["part-0000000000-00000-00000-killed.jsonl"])
    sink.publish(undecided)
    assert list(store.unfinished()) == []

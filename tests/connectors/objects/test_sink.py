"""The sink against a real server, without Spark: the contract, both kinds of readers, what rivals and the killed leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.object_stores import opened, options
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.objects import sink_stream
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.manifests import Manifests, Owners
from scribengin.connectors.objects.options import SINK
from scribengin.connectors.objects.s3 import Uploads
from scribengin.connectors.objects.sink import ObjectsSink
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, SinkError, StateError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from tests.connectors.group.alternating import Alternating, Driver
from tests.connectors.group.disks import Clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.core.store import Store
    from scribengin.embedded.objects import ObjectServer

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING, amount DOUBLE")
ROWS = [{"id": n, "name": None if n == 2 else f'a "quoted"\n{n}', "amount": n / 4} for n in range(6)]


@pytest.fixture
def store(server: ObjectServer, prefix: str) -> Store:
    return opened(server, prefix)


def place(server: ObjectServer, prefix: str, **more: Any) -> ConnectorContext:
    return ConnectorContext("kept", Path("/nowhere"), SINK.filled(options(server, prefix, format="json") | more), flow="flow")


def rows_of(store: Store, keys: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for key in keys:
        data = store.get(key)
        assert data is not None, key
        if key.endswith(".parquet"):
            found += pq.read_table(pa.BufferReader(data)).to_pylist()
        else:
            found += [json.loads(line) for line in data.splitlines()]
    return found


def by_manifest(store: Store) -> list[dict[str, Any]]:
    lineages = {claim["lineage"] for claim in Owners(store).claims()}
    return rows_of(store, [file["name"] for name in sorted(lineages) for _, r in Manifests(store, name).committed() for file in r["files"]])


def by_listing(store: Store) -> list[dict[str, Any]]:
    """As somebody sees who lists, and passes over names that begin with _."""
    return rows_of(store, [entry.key for entry in store.list() if not entry.key.startswith("_")])


class Writer:
    """A driver with one sink, and Batches of one unit each."""

    def __init__(self, place: ConnectorContext, *, term: int = 1, lineage: str = "one", adopt: bool = False) -> None:
        self.sink = ObjectsSink(place)
        self.sink.prepare(owner="me", lineage=lineage, adopt=adopt)
        self._lineage = lineage
        self._term = term

    def stage(self, number: int, *units: Sequence[dict[str, Any]], attempt: str = "a") -> Decided:
        batch = BatchId("flow", "query", self._lineage, number, self._term)
        receipts = []
        for unit, rows in enumerate(units):
            stream = self.sink.stream(batch, unit, f"{attempt}{number}{unit}{self._term}{self._lineage}", SCHEMA)
            stream.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(SCHEMA)))
            receipts.append(stream.close())
        return Decided(batch, f"hash {number}", tuple(receipts))

    def write(self, number: int, *units: Sequence[dict[str, Any]]) -> Decided:
        decided = self.stage(number, *units)
        self.sink.publish(decided)
        return decided


@pytest.mark.parametrize(("visible", "format"), [("manifest", "json"), ("manifest", "parquet"), ("listing", "parquet")])
def test_it_keeps_the_contract(server: ObjectServer, store: Store, prefix: str, visible: str, format: str) -> None:
    where = place(server, prefix, visible=visible, format=format)
    look = by_listing if visible == "listing" else by_manifest
    secret = where.options["config"]["secret_access_key"]
    check_sink(
        lambda: ObjectsSink(where), lambda: look(store), schema=SCHEMA, rows=ROWS, secret=secret, declared=SINK, options=where.options
    )
    sink = ObjectsSink(where)
    with pytest.raises(Refused, match='objects of the flow "flow"'):
        sink.clear(owner="conformance", flow="another")
    assert (objects := sink.clear(owner="conformance", flow="flow", dry_run=True)) > 4
    assert sink.clear(owner="conformance", flow="flow") == objects
    assert list(store.list()) == []
    assert list(Uploads(store).unfinished()) == []  # type: ignore[arg-type]
    sink.prepare(owner="another", lineage="after")


@pytest.mark.parametrize("visible", [pytest.param("manifest", marks=pytest.mark.long), "listing"])
def test_a_group_of_two_buckets_keeps_the_contract_of_one(
    server: ObjectServer, store: Store, prefix: str, visible: str, tmp_path: Path
) -> None:
    near = place(server, prefix, visible=visible).options
    far = near | {"url": f"s3://far-{prefix.rpartition('/')[2]}/kept"}
    other = ObjectsAddress.of("kept", far).open()
    Uploads(other).make_bucket()  # type: ignore[arg-type]
    look = by_listing if visible == "listing" else by_manifest
    check_sink(lambda: Alternating("objects", (near, far), tmp_path), lambda: look(store) + look(other), schema=SCHEMA, rows=ROWS)
    assert look(store)
    assert look(other)
    other.put("kept-by-nobody" if visible == "manifest" else "part-of-nobody", b"1")
    Alternating("objects", (near, far), tmp_path).clear(owner="conformance", flow="flow")
    assert list(store.list()) == []
    assert len(list(other.list())) == 1


def test_a_bucket_that_is_emptied_is_another_place(server: ObjectServer, store: Store, prefix: str, tmp_path: Path) -> None:
    options = {name: place(server, f"{prefix}/{name}").options for name in ("near", "far")}
    driver = Driver("objects", options, tmp_path, Clock(), SCHEMA)
    driver.recover()
    assert driver.put(ROWS[:1]) == "near"
    store.delete(*(entry.key for entry in store.list("near")))
    assert driver.put(ROWS[1:2]) == "far"
    (seen, _) = driver.sink.members()
    assert "has no claim: this is not the place that the flow claimed" in seen.reason


@pytest.mark.parametrize("visible", ["manifest", "listing"])
def test_objects_of_several_partitions_are_finished_at_once_and_a_failure_of_one_takes_all_back(
    server: ObjectServer, store: Store, prefix: str, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    """A store may let each wait for half a second: HDFS does."""
    sink = ObjectsSink(place(server, prefix, partition_by=["name"], visible=visible))
    sink.prepare(owner="me", lineage="one")
    both, finish = Barrier(2), sink_stream._Segment.finish

    def together(segment: Any) -> Any:
        both.wait(60)
        return finish(segment)

    monkeypatch.setattr(sink_stream._Segment, "finish", together)
    rows = [{"id": n, "name": name, "amount": None} for n, name in enumerate("abab")]

    def begun(attempt: str) -> Any:
        stream = sink.stream(BatchId("flow", "query", "one", 0, 1), 0, attempt, SCHEMA)
        stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA)))
        return stream

    receipt = begun("a").close()
    assert [(each["name"].partition("part-")[0][-7:], each["rows"]) for each in receipt.segments] == [("name=a/", 2), ("name=b/", 2)]
    sink.publish(Decided(BatchId("flow", "query", "one", 0, 1), "h", (receipt,)))
    assert len(by_listing(store) if visible == "listing" else by_manifest(store)) == 4
    before = {entry.key for entry in store.list()}

    def fails(segment: Any) -> Any:
        if "name=b" in segment._name:
            raise Unreachable("away")
        return finish(segment)

    monkeypatch.setattr(sink_stream._Segment, "finish", fails)
    stream = begun("b")
    with pytest.raises(Unreachable):
        stream.close()
    stream.abort()
    assert {entry.key for entry in store.list()} == before


def test_over_a_folder_it_keeps_the_contract_too(tmp_path: Path) -> None:
    where = ConnectorContext("kept", tmp_path, SINK.filled({"url": f"file://{tmp_path}/out", "format": "parquet"}), flow="flow")
    store = ObjectsSink(where)._store
    wider = (parse_schema(f"{SCHEMA}, colour STRING"), [row | {"colour": "red"} for row in ROWS])
    check_sink(
        lambda: ObjectsSink(where), lambda: by_manifest(store), schema=SCHEMA, rows=ROWS, wider=wider, declared=SINK, options=where.options
    )
    assert ObjectsSink(where).clear(owner="conformance", flow="flow") > 4
    assert list(store.list()) == []


def test_a_segment_in_parts_and_rows_by_partition_come_back(server: ObjectServer, store: Store, prefix: str) -> None:
    many = [{"id": n, "name": f"n{n % 3}" + "x" * 2000 * (n % 3 == 0), "amount": 0.0} for n in range(15_000)]
    writer = Writer(place(server, prefix, partition_by=("name",), visible="listing"))
    decided = writer.write(0, many)
    names = [segment["name"] for segment in decided.receipts[0].segments]
    assert sorted(name.partition("/")[0][:7] for name in names) == ["name=n1", "name=n2"]
    assert sum(segment["rows"] for segment in decided.receipts[0].segments) == 10_000  # the others' folder no disk could name
    big = Writer(place(server, f"{prefix}/big", segment=9 * 2**20))
    decided = big.write(0, *([many[start : start + 5000] for start in (0, 5000)]), many[10_000:])
    assert [each["bytes"] > 2**20 for receipt in decided.receipts for each in receipt.segments] == [True] * 3
    assert sorted(row["id"] for row in by_manifest(opened(server, f"{prefix}/big"))) == list(range(15_000))
    assert [each.violations for each in big.sink.audit(lineage="one", decided=[decided])] == [()]


def test_who_lists_sees_nothing_before_the_manifest_and_then_object_by_object(
    server: ObjectServer, store: Store, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(place(server, prefix, visible="listing"))
    decided = writer.stage(0, ROWS[:2], ROWS[2:4], ROWS[4:])
    assert by_listing(store) == []
    seen: dict[str, int] = {}
    monkeypatch.setattr(faults, "reached", lambda point: seen.setdefault(point, len(by_listing(store))))
    writer.sink.publish(decided)
    assert seen["publish.record.before"] == seen["publish.record.after"] == 0
    assert seen["publish.renamed"] == 2
    assert len(by_listing(store)) == len(ROWS)


def test_a_driver_killed_between_manifest_and_uploads_is_followed_by_one_that_completes_them(
    server: ObjectServer, store: Store, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(place(server, prefix, visible="listing"))
    decided = writer.stage(0, ROWS[:3], ROWS[3:])

    class Killed(BaseException):
        pass

    def die(point: str) -> None:
        if point == "publish.renamed":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(faults, "reached", die)
        with pytest.raises(Killed):
            writer.sink.publish(decided)
    assert len(by_listing(store)) == 3
    Writer(place(server, prefix, visible="listing"), term=2).sink.recover(decided, lineage="one", before=1)
    assert sorted(row["id"] for row in by_listing(store)) == [row["id"] for row in ROWS]
    assert list(Manifests(store, "one").notes.staged()) == []


def test_an_upload_that_the_store_has_deleted_stops_the_flow(server: ObjectServer, store: Store, prefix: str) -> None:
    writer = Writer(place(server, prefix, visible="listing"))
    decided = writer.stage(0, ROWS)
    segment = decided.receipts[0].segments[0]
    Uploads(store).abort(segment["name"], segment["upload"])  # type: ignore[arg-type]
    with pytest.raises(StateError, match="so is its upload"):
        writer.sink.publish(decided)


def test_what_the_killed_have_staged_goes_once_their_batch_is_decided(server: ObjectServer, store: Store, prefix: str) -> None:
    writer = Writer(place(server, prefix))
    writer.stage(0, ROWS[:1], attempt="killed")
    half = writer.sink.stream(BatchId("flow", "query", "one", 0, 1), 0, "half", SCHEMA)
    half.write(pa.RecordBatch.from_pylist(ROWS * 200_000, schema=arrow_schema(SCHEMA)))  # and is killed in the midst of an upload
    undecided = writer.stage(1, ROWS[1:2])
    assert len(list(Uploads(store).unfinished())) == 1  # type: ignore[arg-type]
    writer.write(0, ROWS[2:3])
    assert [row["id"] for row in by_manifest(store)] == [2]
    assert [number for number, _ in Manifests(store, "one").notes.staged()] == [1], "that of the Batch which nobody has decided"
    assert list(Uploads(store).unfinished()) == []  # type: ignore[arg-type]
    late = writer.stage(0, ROWS[:1], attempt="late")
    writer.sink.publish(undecided)
    assert store.head(late.receipts[0].segments[0]["name"]) is not None
    writer.sink.recover(undecided, lineage="one", before=2)
    assert sorted(entry.key for entry in store.list("data")) == sorted(
        file["name"] for _, record in Manifests(store, "one").committed() for file in record["files"]
    )
    assert sorted(row["id"] for row in by_manifest(store)) == [1, 2]


def test_a_driver_that_was_overtaken_writes_nothing_more(server: ObjectServer, store: Store, prefix: str) -> None:
    old, new = Writer(place(server, prefix), term=1), Writer(place(server, prefix), term=2)
    of_old = old.stage(0, ROWS[:1])
    new.write(0, ROWS[1:2])
    with pytest.raises(FencedError, match="already exists with another"):
        old.sink.publish(of_old)
    after = old.stage(1, ROWS[2:3])
    with pytest.raises(FencedError, match="under the newer Term 2"):
        old.sink.publish(after)
    assert [row["id"] for row in by_manifest(store)] == [1]


def test_a_driver_that_sleeps_right_before_its_manifest_loses_to_a_new_lineage(
    server: ObjectServer, store: Store, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Writer(place(server, prefix))
    old.write(0, ROWS[:1])
    sleeping = old.stage(1, ROWS[1:2])

    def other_first(point: str) -> None:
        if point == "publish.record.before":
            monkeypatch.setattr(faults, "reached", lambda _: None)
            Writer(place(server, prefix), lineage="two", adopt=True).write(0, ROWS[2:3])

    monkeypatch.setattr(faults, "reached", other_first)
    with pytest.raises(FencedError):
        old.sink.publish(sleeping)
    assert sorted(row["id"] for row in by_manifest(store)) == [0, 2]
    with pytest.raises(Refused, match="a newer lineage has taken"):
        Writer(place(server, prefix), adopt=True)


def test_objects_of_others_are_refused_and_added_to_where_that_is_said(server: ObjectServer, store: Store, prefix: str) -> None:
    store.put("theirs.csv", b"1")
    with pytest.raises(Refused, match=r"holds theirs\.csv, written by an unknown writer") as told:
        Writer(place(server, prefix))
    assert "--append-new-lineage" in told.value.remedy
    Writer(place(server, prefix), adopt=True).write(0, ROWS[:1])
    sink = ObjectsSink(place(server, prefix))
    with pytest.raises(Refused, match="objects of another installation"):
        sink.prepare(owner="another", lineage="x")
    assert sink.clear(owner="me", flow="flow") == 1
    assert [entry.key for entry in store.list()] == ["theirs.csv"]


def test_an_audit_finds_what_is_changed_gone_or_nobodys(server: ObjectServer, store: Store, prefix: str) -> None:
    writer = Writer(place(server, prefix, visible="listing"))
    decided = [writer.write(n, [ROWS[n]]) for n in range(4)]
    names = [each.receipts[0].segments[0]["name"] for each in decided]
    data = [store.get(name) for name in names]
    store.delete(names[1], names[2], names[3])
    assert data[2] is not None
    assert data[3] is not None
    store.put(names[2], data[2][:-1])
    store.put(names[3], data[3].replace(b"3", b"9"))
    store.put("part-strange.jsonl", b"{}\n")
    told = [text.rpartition(prefix)[2] for each in writer.sink.audit(lineage="one", decided=decided) for text in each.violations]
    expected = ("is missing: 1 rows", "has 33 bytes; expected 34", "was changed after ", "no batch wrote it")
    assert [text.partition(" ")[2][: len(start)] for text, start in zip(told, expected, strict=True)] == [*expected]


def test_old_manifests_are_folded_and_read_all_the_same(
    server: ObjectServer, store: Store, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scribengin.core.numbered_log.CHUNK", 3)
    writer = Writer(place(server, prefix))
    decided = [writer.write(n, [ROWS[n % 6]]) for n in range(9)]
    folder = f"{Manifests(store, 'one').commits.folder}"
    assert [entry.key.rpartition("/")[2] for entry in store.list(folder) if entry.key.endswith(".json")] == [
        f"{n:010d}.json" for n in (6, 7, 8)
    ]
    assert len(by_manifest(store)) == 9
    assert [each.violations for each in writer.sink.audit(lineage="one", decided=decided[5:])] == [()] * 9
    with pytest.raises(FencedError):
        writer.sink.publish(decided[2])


def test_a_store_that_writes_over_what_is_there_is_refused(tmp_path: Path) -> None:
    sink = ObjectsSink(ConnectorContext("kept", tmp_path, SINK.filled({"url": f"file://{tmp_path}/out", "format": "json"}), flow="flow"))
    store: Any = sink._store
    store.put = lambda key, data: True
    with pytest.raises(SinkError, match="ignores If-None-Match") as told:
        sink.prepare(owner="me", lineage="one")
    assert told.value.code == "objects-unable"


def test_a_store_that_is_away_is_waited_for(server: ObjectServer, prefix: str) -> None:
    with pytest.raises(Unreachable):
        Writer(place(server, prefix, endpoint="http://127.0.0.1:9"))
    with pytest.raises(SinkError, match="visible: listing needs multipart uploads"):
        ObjectsSink(place(server, prefix, url="file:///tmp/x", visible="listing"))

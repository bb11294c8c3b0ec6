"""The roller over real stores, without Spark: what it makes, what readers see meanwhile, and that nothing it is struck by loses a row."""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from harness import object_stores, remote_places
from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.hdfs import options as hdfs_options
from scribengin.connectors.objects import compaction as rollers
from scribengin.connectors.objects import maintenance
from scribengin.connectors.objects import options as object_options
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.compaction_log import CompactionLog
from scribengin.connectors.objects.maintenance import StoreKeeper
from scribengin.connectors.objects.orphans import find_orphans
from scribengin.connectors.objects.read_lease import reading
from scribengin.connectors.objects.reading import committed_at, holding
from scribengin.connectors.objects.sink import ObjectsSink
from scribengin.core import faults
from scribengin.core.errors import StateError, Unreachable
from scribengin.embedded.hdfs import Hdfs
from tests.connectors.objects.test_sink import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from scribengin.core.store import Store

    Make = Callable[..., "At"]

MUCH = {"size": 2**20, "every": 3600}
STRUCK = ("roll.draft.writing", "roll.drafts.written", "roll.record.before", "roll.record.after", "roll.renamed", "roll.deleted")


class At:
    """One place with a sink that rolls."""

    def __init__(self, options: dict[str, Any], type_: Any) -> None:
        self.options = type_.filled(options)
        self.place = ConnectorContext("kept", Path("/nowhere"), self.options, flow="flow")
        self.address = ObjectsAddress.of("kept", self.options)
        self.store: Store = self.address.open()

    def keeper(self, **more: Any) -> StoreKeeper:
        return StoreKeeper(self.address, self.options | more)

    def ids(self) -> list[int]:
        """As those see who go by the manifests."""
        found = []
        for key in [each.key for each in committed_at(self.address).objects]:
            found += self.read(key)
        return sorted(found)

    def listed(self) -> list[str]:
        return [entry.key for entry in self.store.list() if not entry.key.startswith("_")]

    def read(self, key: str) -> list[int]:
        data = self.store.get(key)
        assert data is not None, key
        if key.endswith(".parquet"):
            import pyarrow as pa

            return [row["id"] for row in pq.read_table(pa.BufferReader(data)).to_pylist()]
        if ".csv" in key:
            head, *lines = data.decode().splitlines()
            assert head == "id,name,amount"
            return [int(line.partition(",")[0]) for line in lines]
        return [json.loads(line)["id"] for line in data.splitlines()]

    def audit(self) -> tuple[int, list[str]]:
        told = list(ObjectsSink(self.place).audit(lineage="one", decided=[]))
        return sum(each.rows for each in told), [
            text for each in told for text in each.violations if "there is no decision for it" not in text
        ]


# to close a file of HDFS takes half a second: all of these over it are long
@pytest.fixture(params=["s3-manifest", "s3-listing", pytest.param("hdfs-listing", marks=pytest.mark.long), "folder-manifest"])
def at(request: pytest.FixtureRequest, prefix: str, tmp_path: Path) -> Make:
    """A place below a prefix of nobody else, of each kind of store and visibility."""
    kind, _, visible = request.param.partition("-")

    def make(**more: Any) -> At:
        given = {"format": "json", "visible": visible, "roll": MUCH} | more
        if kind == "hdfs":
            return At(remote_places.options(request.getfixturevalue("hdfs"), prefix, **given), hdfs_options.SINK)
        if kind == "folder":
            return At({"url": f"file://{tmp_path}/out", **given}, object_options.SINK)
        return At(object_stores.options(request.getfixturevalue("server"), prefix, **given), object_options.SINK)

    return make


def test_over_hdfs_a_killed_roller_is_followed_and_files_appear_once(
    hdfs: Hdfs, prefix: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    where = At(remote_places.options(hdfs, prefix, format="json", roll=MUCH, partition_by=["name"]), hdfs_options.SINK)
    writer = Writer(where.place)
    writer.write(0, rows(0), rows(2))
    assert where.listed() == []

    def die(reached: str) -> None:
        if reached == "roll.record.after":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reached", die)
        with pytest.raises(KeyboardInterrupt):
            where.keeper().keep(flush=True)
    assert (where.listed(), where.ids()) == ([], [0, 2])
    where.keeper().keep()
    assert [where.read(key) for key in where.listed()] == [[0, 2]]
    writer.write(1, rows(1))
    assert where.audit() == (3, [])
    found = committed_at(where.address).spark(spark).select("id", "name").collect()
    assert sorted((row.id, row.name) for row in found) == [(0, "n0"), (1, "n1"), (2, "n0")], "what is merged, and what waits"


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": id_, "name": f"n{id_ % 2}", "amount": 0.5} for id_ in ids]


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_what_waits_becomes_one_object_and_counts_once(at: Make, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = at(format=format)
    writer = Writer(where.place)
    for number in range(4):
        writer.write(number, rows(2 * number), rows(2 * number + 1))
    hidden = where.options["visible"] == "listing"
    assert where.ids() == list(range(8))
    if hidden:
        assert where.listed() == []
    keeper = where.keeper()
    waits = keeper.keep()
    assert not waits.anything
    assert waits.due_s is not None
    assert 3500 < waits.due_s <= 3600
    done = keeper.keep(flush=True)
    assert (done.merged, done.merged_files) == (8, 1)
    (merged,) = [each.key for each in committed_at(where.address).objects]
    assert where.read(merged) == list(range(8)), "in the order of Batches and tasks"
    assert where.audit() == (8, [])
    if hidden:
        assert where.listed() == [merged]
    assert list(find_orphans(where.store)) == []
    assert not keeper.keep(flush=True).anything
    before = {entry.key for entry in where.store.list()}
    monkeypatch.setattr(rollers, "REPLACED_S", 0.0)
    assert where.keeper().keep().files == 8
    gone = before - {entry.key for entry in where.store.list()}
    assert len([key for key in gone if key.rpartition("/")[2].startswith("part-")]) == 8
    assert where.ids() == list(range(8))
    assert where.audit() == (8, [])
    writer.write(4, rows(8))
    writer.write(5, rows(9))
    assert where.keeper().keep(flush=True).merged == 2
    assert where.ids() == list(range(10))
    assert where.audit() == (10, [])
    assert ObjectsSink(where.place).clear(owner="me", flow="flow") == 2
    assert list(where.store.list()) == []


def test_full_ones_are_made_at_once_and_folders_stay_apart(at: Make) -> None:
    where = at(partition_by=["name"], roll={"size": 40, "every": 3600})
    writer = Writer(where.place)
    for number in range(4):
        writer.write(number, rows(2 * number, 2 * number + 1))
    done = where.keeper().keep()
    assert done.merged == 8
    assert done.merged_files == 4
    keys = [each.key for each in committed_at(where.address).objects]
    assert [where.read(key) for key in sorted(keys)] == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert {key.rpartition("/")[0].rpartition("/")[2] for key in keys} == {"name=n0", "name=n1"}


def test_a_small_one_between_large_ones_holds_nothing_up(tmp_path: Path) -> None:
    where = At({"url": f"file://{tmp_path}/out", "format": "json", "roll": {"size": 100, "every": 3600}}, object_options.SINK)
    writer = Writer(where.place)
    for number, several in enumerate([*([1, 9] * 3), 1, 1]):
        writer.write(number, rows(*(10 * number + each for each in range(several))))
    done = where.keeper().keep(flush=True)
    assert (done.merged, done.merged_files) == (2, 1), "those that stand behind each other"
    _, turn = CompactionLog(where.store, "one").newest()
    assert turn is not None
    assert turn["frontier"]["low"] == 8
    assert len(where.ids()) == 32


PLACES = ("s3-manifest", "s3-listing", "folder-manifest")


@pytest.mark.parametrize(
    ("at", "point"),
    [
        # each point at one of the places in turn; at the others under `long`
        pytest.param(at, point, marks=[pytest.mark.long] * (at == "hdfs-listing" or number % len(PLACES) != nth))
        for number, point in enumerate(STRUCK)
        for nth, at in enumerate((*PLACES, "hdfs-listing"))
    ],
    indirect=["at"],
)
def test_a_roller_that_dies_anywhere_is_followed_by_one_that_ends_its_work(at: Make, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = at()
    writer = Writer(where.place)
    for number in range(3):
        writer.write(number, rows(number))
    if point == "roll.deleted":
        where.keeper().keep(flush=True)
        monkeypatch.setattr(rollers, "REPLACED_S", 0.0)

    class Died(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reached", die)
        patch.setattr(rollers.ObjectCompactor, "_throw_away", lambda *_: None)  # who is killed throws nothing away
        with pytest.raises(Died):
            where.keeper().keep(flush=True)
    assert where.ids() == [0, 1, 2]
    assert where.audit() == (3, [])
    writer.write(3, rows(3))
    where.keeper().keep(flush=True)
    assert where.ids() == [0, 1, 2, 3]
    assert where.audit() == (4, [])
    if where.options["visible"] == "listing":
        assert sorted(id_ for key in where.listed() for id_ in where.read(key)) == [0, 1, 2, 3]
    assert list(find_orphans(where.store)) == []
    assert list(CompactionLog(where.store, "one").notes.staged()) == []


def test_of_two_rollers_one_makes_each_object(at: Make) -> None:
    where = at(roll={"size": 60, "every": 3600})
    writer = Writer(where.place)
    for number in range(12):
        writer.write(number, rows(number))
    gate = Barrier(2)
    done = []

    def roll() -> None:
        keeper = where.keeper()
        gate.wait()
        done.append(keeper.keep(flush=True))

    threads = [Thread(target=roll) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    where.keeper().keep(flush=True)
    assert where.ids() == list(range(12))
    assert where.audit() == (12, [])
    merged = [name for _, output in CompactionLog(where.store, "one").outputs() for _, _, name, _ in output["inputs"]]
    assert len(merged) == len(set(merged))
    assert list(find_orphans(where.store)) == []


def test_a_roller_that_sleeps_before_its_turn_leaves_nothing_and_undoes_nothing(at: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    where = at()
    writer = Writer(where.place)
    writer.write(0, rows(0))
    writer.write(1, rows(1))

    def others_first(reached: str) -> None:
        if reached == "roll.record.before":
            monkeypatch.setattr(faults, "reached", lambda _: None)
            where.keeper().keep(flush=True)
            writer.write(2, rows(2))
            monkeypatch.setattr(rollers, "REPLACED_S", 0.0)
            where.keeper().keep()

    monkeypatch.setattr(faults, "reached", others_first)
    where.keeper().keep(flush=True)
    assert where.ids() == [0, 1, 2]
    assert where.audit() == (3, [])
    assert list(find_orphans(where.store)) == []


def test_segments_stay_while_somebody_reads_them(at: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollers, "REPLACED_S", 0.0)
    where = at()
    writer = Writer(where.place)
    writer.write(0, rows(0))
    writer.write(1, rows(1))
    with reading(where.store, lease_s=600.0):
        found = committed_at(where.address)
        keys = [each.key for each in found.objects]
        where.keeper().keep(flush=True)
        assert where.keeper().keep().files == 0
        assert sorted(id_ for key in keys for id_ in where.read(key)) == [0, 1]
    assert where.keeper().keep().files == 2
    assert where.store.get(keys[0]) is None
    assert where.ids() == [0, 1]


def test_one_who_reads_and_was_killed_holds_nothing_for_long(at: Make) -> None:
    where = at()
    lease = reading(where.store, lease_s=60.0)
    lease.__enter__()
    assert rollers.someone_reads(where.store, 0.0)
    assert not rollers.someone_reads(where.store, time.time() + 61)
    lease.__exit__(None, None, None)
    assert not rollers.someone_reads(where.store, 0.0)


def test_a_segment_that_is_gone_or_changed_stops_the_roller_with_its_name(at: Make) -> None:
    where = at()
    writer = Writer(where.place)
    names = [each["name"] for number in range(2) for each in writer.write(number, rows(number)).receipts[0].segments]
    data = where.store.get(names[1])
    assert data is not None
    where.store.delete(names[1])
    with pytest.raises(StateError, match="lacks a segment that is committed"):
        where.keeper().keep(flush=True)
    where.store.put(names[1], data.replace(b"0.5", b"0.6"))
    with pytest.raises(StateError, match="was changed after it was written"):
        where.keeper().keep(flush=True)
    where.store.delete(names[1])
    where.store.put(names[1], data)
    where.keeper().keep(flush=True)
    assert where.ids() == [0, 1]


def test_what_an_ended_lineage_left_waiting_is_shown(at: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    where = at()
    Writer(where.place).write(0, rows(0))
    keeper = where.keeper()
    keeper.keep()
    Writer(where.place, lineage="two", adopt=True).write(0, rows(1))
    monkeypatch.setattr(maintenance, "LINEAGES_S", 0.0)
    keeper.keep()
    if where.options["visible"] == "listing":
        assert [where.read(key) for key in where.listed()] == [[0]], "that of the lineage that goes on waits"
    asked: list[str] = []
    run = rollers.ObjectCompactor.run
    monkeypatch.setattr(rollers.ObjectCompactor, "run", lambda self, **more: asked.append(self.lineage) or run(self, **more))
    keeper.keep()
    assert asked == ["two"], "nothing can come of the other any more"
    without = where.keeper(roll=None)
    without.keep()
    if where.options["visible"] == "listing":
        assert sorted(id_ for key in where.listed() for id_ in where.read(key)) == [0, 1], "a sink that rolls no more hides nothing"
    assert where.ids() == [0, 1]


def test_who_reads_with_a_lease_reads_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollers, "REPLACED_S", 0.0)
    where = At({"url": f"file://{tmp_path}/out", "format": "parquet", "partition_by": ["name"], "roll": MUCH}, object_options.SINK)
    writer = Writer(where.place)
    writer.write(0, rows(0, 1))
    writer.write(1, rows(2, 3))
    with holding(f"file://{tmp_path}/out") as found:
        dataset = found.dataset()
        where.keeper().keep(flush=True)
        where.keeper().keep()
        assert sorted(dataset.to_table().to_pylist(), key=lambda row: row["id"]) == rows(0, 1, 2, 3)
    assert where.keeper().keep().files == 4
    again = committed_at(where.address)
    assert len(again.objects) == 2
    assert sorted(again.dataset().to_table()["id"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("node", ["name_node", "data_node"])
def test_a_server_of_hdfs_that_is_away_for_a_minute_in_mid_merge_costs_nothing(
    tmp_path: Path, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hdfs(tmp_path / "hdfs") as server:
        where = At(remote_places.options(server, "rolled", format="json", roll=MUCH), hdfs_options.SINK)
        writer = Writer(where.place)
        for number in range(3):
            writer.write(number, rows(number))

        def kill(reached: str) -> None:
            if reached == "roll.draft.writing":
                monkeypatch.setattr(faults, "reached", lambda _: None)
                getattr(server, node).kill()

        monkeypatch.setattr(faults, "reached", kill)
        away_s = time.monotonic()
        with pytest.raises(Unreachable):
            where.keeper().keep(flush=True)
        while time.monotonic() < away_s + 60:
            with pytest.raises(Unreachable):
                where.keeper().keep(flush=True)
            time.sleep(5)
        server.start()
        where.keeper().keep(flush=True)
        assert [where.read(key) for key in where.listed()] == [[0, 1, 2]]
        assert where.audit() == (3, [])
        assert list(CompactionLog(where.store, "one").notes.staged()) == []

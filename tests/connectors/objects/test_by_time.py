"""Folders by event time in stores, without Spark: where rows go, which come too late, what markers say, whatever dies or sleeps."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from harness import object_stores, remote_places
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.hdfs import options as hdfs_options
from scribengin.connectors.objects import options as object_options
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.compaction import ObjectCompactor
from scribengin.connectors.objects.compaction_log import CompactionLog
from scribengin.connectors.objects.maintenance import StoreKeeper
from scribengin.connectors.objects.manifests import Manifests, Owners
from scribengin.connectors.objects.orphans import find_orphans
from scribengin.connectors.objects.reading import committed_at
from scribengin.connectors.objects.retention import OpenFolders
from scribengin.connectors.objects.sink import ObjectsSink
from scribengin.core import faults
from scribengin.core.errors import Refused
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.store import Store

    Make = Callable[..., "At"]

SCHEMA = parse_schema("id BIGINT NOT NULL, ts TIMESTAMP")
HOURLY = {"time": "ts", "path": "dt=%Y-%m-%d/hour=%H"}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HOUR = "dt=2026-01-01/hour=0{}/"
MUCH = {"size": 2**20, "every": 3600}


class Died(BaseException):
    """As a process that is killed."""


class At:
    """One place with a sink that closes its folders."""

    def __init__(self, options: dict[str, Any], type_: Any) -> None:
        given = {"format": "json", "partition_by": [HOURLY], "close": {"delay": 600.0}} | options
        self.options = type_.filled(given)
        self.address = ObjectsAddress.of("kept", self.options)
        self.store: Store = self.address.open()

    def place(self, **more: Any) -> ConnectorContext:
        return ConnectorContext("kept", Path("/nowhere"), self.options | more, flow="flow")

    def keeper(self, **more: Any) -> StoreKeeper:
        return StoreKeeper(self.address, self.options | more)

    def marker(self, hour: int) -> dict[str, Any] | None:
        found = [entry.key for entry in self.store.list() if entry.key.endswith(f"{HOUR.format(hour)}_COMPLETE.json")]
        assert len(found) <= 1
        return json.loads(self.store.get(found[0]) or b"") if found else None

    def ids(self, hour: int | None = None) -> list[int]:
        """As those see who go by the manifests."""
        found: list[int] = []
        for key in (each.key for each in committed_at(self.address).objects):
            if hour is None or HOUR.format(hour) in key:
                found += [json.loads(line)["id"] for line in (self.store.get(key) or b"").splitlines()]
        return sorted(found)

    def counted(self, hour: int) -> tuple[int, int, int]:
        """(rows, files, bytes) of what counts there."""
        found = [each for each in committed_at(self.address).objects if HOUR.format(hour) in each.key]
        return sum(each.rows for each in found), len(found), sum(each.bytes for each in found)

    def wrong(self, *decided: Decided, lineage: str = "one") -> list[str]:
        told = list(ObjectsSink(self.place()).audit(lineage=lineage, decided=decided))
        assert sum(each.rows for each in told) == sum(receipt.rows for each in decided for receipt in each.receipts)
        return [text for each in told for text in each.violations]


class Writer:
    """A driver with one sink, and Batches of one unit each."""

    def __init__(self, at: At, *, lineage: str = "one", adopt: bool = False, **more: Any) -> None:
        self.sink = ObjectsSink(at.place(**more))
        self.sink.prepare(owner="me", lineage=lineage, adopt=adopt)
        self._lineage = lineage

    def stage(self, number: int, *minutes: float | None, attempt: str = "a") -> tuple[Decided, list[int]]:
        """Rows so many minutes after the start, each its own id; and which came too late."""
        batch = BatchId("flow", "query", self._lineage, number, 1)
        stream = self.sink.stream(batch, 0, f"{attempt}{number}{self._lineage}", SCHEMA)
        moments = [None if each is None else START + dt.timedelta(minutes=each) for each in minutes]
        rows = [{"id": 100 * number + nth, "ts": moment} for nth, moment in enumerate(moments)]
        refused = stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA)))
        assert {each.reason for each in refused} <= {"late"}
        return Decided(batch, f"hash {number}", (stream.close(),)), [each.ordinal for each in refused]

    def write(self, number: int, *minutes: float | None) -> Decided:
        decided, late = self.stage(number, *minutes)
        assert late == []
        self.sink.publish(decided)
        return decided


KINDS = ["folder-manifest", "folder-manifest-roll", "s3-listing", "s3-listing-roll", "s3-manifest-roll"]


@pytest.fixture(params=[*KINDS, pytest.param("hdfs-listing", marks=pytest.mark.long)])
def at(request: pytest.FixtureRequest, prefix: str, tmp_path: Path) -> At:
    """A place of each kind of store and visibility, merged or not."""
    kind, visible, *rolls = request.param.split("-")
    given = {"visible": visible} | ({"roll": MUCH} if rolls else {})
    if kind == "hdfs":
        return At(remote_places.options(request.getfixturevalue("hdfs"), prefix, **given), hdfs_options.SINK)
    if kind == "folder":
        return folder(tmp_path, **given)
    return At(object_stores.options(request.getfixturevalue("server"), prefix, **given), object_options.SINK)


def folder(tmp_path: Path, **more: Any) -> At:
    return At({"url": f"file://{tmp_path}/out", **more}, object_options.SINK)


def test_a_folder_gets_its_marker_when_newer_rows_have_come_and_takes_none_after_that(at: At) -> None:
    writer = Writer(at)
    decided = [writer.write(0, 10, 20, 65), writer.write(1, 30, 69)]
    keeper = at.keeper()
    assert keeper.keep().closed == 0
    assert at.marker(0) is None, "no row came 10 minutes past its end"
    decided.append(writer.write(2, 50, 75, None))
    assert keeper.keep().closed == 1
    marker = at.marker(0)
    assert marker is not None
    rows, files, size = at.counted(0)
    assert rows == 4
    assert marker == {
        "folder": HOUR.format(0),
        "version": 1,
        "rows": rows,
        "files": files,
        "bytes": size,
        "until": "2026-01-01T01:00:00+00:00",
        "watermark": "2026-01-01T01:05:00+00:00",
    }
    assert at.marker(1) is None
    staged, late = writer.stage(3, 59, 61, 200)
    assert late == [0]
    writer.sink.publish(staged)
    decided.append(staged)
    keeper.keep()
    assert at.ids(0) == [0, 1, 100, 200], "what has its marker stays as it is"
    assert at.marker(0) == marker
    assert (at.marker(1) or {})["rows"] == 4
    assert at.marker(3) is None, "the newest folder is open"
    assert at.wrong(*decided) == []
    assert list(find_orphans(at.store)) == []
    assert keeper.keep().closed == 0


def test_a_batch_that_is_run_again_judges_the_same(at: At) -> None:
    writer = Writer(at)
    writer.write(0, 10, 100)
    first = writer.stage(1, 20, 110, 200, attempt="b")
    assert first[1] == [0]
    at.keeper().keep()
    again = Writer(at).stage(1, 20, 110, 200, attempt="c")
    assert again[1] == first[1], "whoever has put markers meanwhile"
    writer.sink.publish(again[0])
    assert Writer(at, close={"delay": 10**6}).stage(2, 30, 130)[1] == [0, 1], "what is closed stays closed under a longer delay"
    assert Writer(at, close=None).stage(2, 30, 130, attempt="d")[1] == [0, 1], "and without one"


def test_another_delay_between_a_decision_and_its_publishing_changes_nothing(tmp_path: Path) -> None:
    at = folder(tmp_path)
    decided = Writer(at).write(0, 10, 100)
    for more in ({"close": {"delay": 1.0}}, {"close": None}, {}):
        sink = ObjectsSink(at.place(**more))
        sink.prepare(owner="me", lineage="one")
        sink.recover(decided, lineage="one", before=1)
    (record,) = (record for _, record in Manifests(at.store, "one").committed())
    assert record["closed_us"] == round((START + dt.timedelta(minutes=90)).timestamp() * 1e6)


def test_a_time_ahead_of_the_clock_closes_nothing_that_is_still_to_come(tmp_path: Path) -> None:
    at = folder(tmp_path)
    writer = Writer(at)
    writer.write(0, 10, 60 * 24 * 365 * 5000)
    (record,) = (record for _, record in Manifests(at.store, "one").committed())
    assert record["closed_us"] < dt.datetime.now(dt.UTC).timestamp() * 1e6


def test_folders_that_were_closed_are_named_as_before(tmp_path: Path) -> None:
    at = folder(tmp_path)
    Writer(at).write(0, 10, 100)
    other = {"time": "ts", "path": "dt=%Y-%m-%d/hour=%H", "time_zone": "Europe/Berlin"}
    with pytest.raises(Refused, match=r"found .* in Europe/Berlin") as raised:
        Writer(at, partition_by=[other])
    assert raised.value.code == "output-form"
    Writer(at, partition_by=[other], lineage="two", adopt=True)


@pytest.mark.parametrize("point", ["roll.drafts.written", "roll.record.before", "roll.record.after", "roll.marked"])
def test_a_keeper_that_dies_anywhere_is_followed_by_one_that_puts_the_same_marker(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = folder(tmp_path, roll=MUCH)
    writer = Writer(at)
    decided = [writer.write(0, 10), writer.write(1, 20), writer.write(2, 80, 81)]

    def die(reached: str) -> None:
        if reached == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reached", die)
        with pytest.raises(Died):
            at.keeper().keep()
    decided.append(writer.write(3, 90))
    at.keeper().keep()
    marker = at.marker(0)
    assert marker is not None
    assert (marker["rows"], marker["files"], marker["bytes"]) == at.counted(0)
    assert (marker["rows"], marker["files"]) == (2, 1), "merged before it is closed"
    assert at.wrong(*decided) == []


def test_a_keeper_that_sleeps_before_its_turn_takes_nothing_back(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(at)
    decided = [writer.write(0, 10), writer.write(1, 20, 80)]
    asleep = []

    def others_first(reached: str) -> None:
        if reached == "roll.record.before" and not asleep:
            asleep.append(1)
            at.keeper().keep(flush=True)
            decided.append(writer.write(2, 85, 150))
            at.keeper().keep(flush=True)

    monkeypatch.setattr(faults, "reached", others_first)
    at.keeper().keep(flush=True)
    assert asleep
    for hour, rows in ((0, 2), (1, 2)):
        marker = at.marker(hour)
        assert marker is not None
        assert (marker["rows"], marker["files"], marker["bytes"]) == at.counted(hour)
        assert marker["rows"] == rows
    assert at.wrong(*decided) == []
    assert list(find_orphans(at.store)) == []


def test_a_batch_that_is_published_in_part_closes_nothing(
    request: pytest.FixtureRequest, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue("server")
    at = At(object_stores.options(server, prefix, visible="listing"), object_options.SINK)
    writer = Writer(at)
    writer.write(0, 10)
    decided, _ = writer.stage(1, 20, 80)

    def die(reached: str) -> None:
        if reached == "publish.renamed":
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reached", die)
        with pytest.raises(Died):
            writer.sink.publish(decided)
    keeper = at.keeper()
    assert (keeper.keep().closed, at.marker(0)) == (0, None), "rows of it are not to be seen yet"
    writer.sink.publish(decided)
    assert keeper.keep().closed == 1
    assert (at.marker(0) or {})["rows"] == 2


@pytest.mark.parametrize("visible", ["manifest", "listing"])
def test_rows_that_come_between_two_looks_are_in_the_marker_or_too_late(
    request: pytest.FixtureRequest, tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    if visible == "listing":
        at = At(object_stores.options(request.getfixturevalue("server"), prefix, visible="listing", roll=MUCH), object_options.SINK)
    else:
        at = folder(tmp_path, roll=MUCH)
    writer = Writer(at)
    decided = [writer.write(0, 10)]
    at.keeper().keep(flush=True)
    looks: list[str] = []

    def between(name: str, look: Callable[..., None]) -> Callable[..., None]:
        def looking(self: Any, *given: Any) -> None:
            looks.append(name)
            if len(looks) == 2:  # of whatever is looked at second
                decided.append(writer.write(1, 20, 80))
            look(self, *given)

        return looking

    monkeypatch.setattr(ObjectCompactor, "_read_commits", between("roller", ObjectCompactor._read_commits))
    monkeypatch.setattr(OpenFolders, "count_new", between("counts", OpenFolders.count_new))
    at.keeper().keep()
    at.keeper().keep()
    marker = at.marker(0)
    assert marker is not None
    assert (marker["rows"], marker["files"], marker["bytes"]) == at.counted(0)
    assert marker["rows"] == 2
    if visible == "listing":
        listed = [entry for entry in at.store.list() if HOUR.format(0) in entry.key and not entry.key.startswith("_")]
        assert sum(entry.size for entry in listed if "part-" in entry.key) == marker["bytes"], "all of it is seen"
    assert at.wrong(*decided) == []


# --- the next lineage ---


def test_the_next_lineage_closes_what_the_one_before_left_open_and_adds_to_no_marker(at: At) -> None:
    before = Writer(at)
    decided = [before.write(0, 10, 65), before.write(1, 80, 81)]
    late_keeper = at.keeper()
    late_keeper.keep()
    assert (at.marker(0) or {})["rows"] == 1
    after = Writer(at, lineage="two", adopt=True)
    assert late_keeper.keep().closed == 0
    first, late = after.stage(0, 10, 66)
    assert late == [0], "an earlier lineage has closed it"
    after.sink.publish(first)
    assert at.keeper().keep().closed == 0, "the time of its own rows counts"
    second = after.write(1, 70, 140)
    at.keeper().keep()
    marker = at.marker(1)
    assert marker is not None
    assert marker["rows"] == 5, "those of both"
    assert (marker["rows"], marker["files"], marker["bytes"]) == at.counted(1)
    assert late_keeper.keep().closed == 0
    third, late = Writer(at, lineage="three", adopt=True).stage(0, 10, 70, 125)
    assert late == [0, 1]
    assert at.wrong(*decided) == []
    assert at.wrong(first, second, lineage="two") == []
    del third


def test_a_keeper_of_an_ended_lineage_comes_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = folder(tmp_path)
    before = Writer(at)
    before.write(0, 10, 80)
    heirs: list[Writer] = []

    def heir_first(reached: str) -> None:
        if reached == "roll.record.before" and not heirs:
            heirs.append(Writer(at, lineage="two", adopt=True))
            heirs[0].write(0, 20)

    monkeypatch.setattr(faults, "reached", heir_first)
    at.keeper().keep()
    assert at.marker(0) is None, "rows of the heir have come, which it had not seen"
    heirs[0].write(1, 90)
    at.keeper().keep()
    assert (at.marker(0) or {})["rows"] == 2


def test_who_begins_to_close_counts_what_was_there(tmp_path: Path) -> None:
    at = folder(tmp_path)
    Writer(at, close=None).write(0, 10)
    Writer(at, close=None, lineage="two", adopt=True).write(0, 20)
    third = Writer(at, close=None, lineage="three", adopt=True)
    third.write(0, 30)
    Writer(at, lineage="three").write(1, 80)
    at.keeper().keep()
    assert (at.marker(0) or {})["rows"] == 3
    (_, turn) = CompactionLog(at.store, "one").newest()
    assert turn is not None
    assert turn["frontier"]["ended"]


def test_a_start_that_dies_while_it_takes_over_is_made_good_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = folder(tmp_path)
    Writer(at).write(0, 10, 80)

    def die(reached: str) -> None:
        if reached == "keeping.written":
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reached", die)
        with pytest.raises(Died):
            Writer(at, lineage="two", adopt=True)
    after = Writer(at, lineage="two", adopt=True)
    after.write(0, 20, 90)
    at.keeper().keep()
    assert (at.marker(0) or {})["rows"] == 2


# --- the rest ---


def test_what_is_read_again_and_again_is_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = folder(tmp_path)
    writer = Writer(at)
    for number in range(6):
        writer.write(number, number)
    counted: list[int] = []
    add = OpenFolders._add
    monkeypatch.setattr(OpenFolders, "_add", lambda self, number, record: (counted.append(number), add(self, number, record)))
    keeper = at.keeper()
    for _ in range(3):
        keeper.keep()
    assert counted == list(range(6))
    writer.write(6, 80)
    assert keeper.keep().closed == 1
    assert counted == list(range(7))
    at.keeper().keep()
    assert counted == list(range(7)), "a turn says what came before"


def test_a_small_object_of_a_closed_folder_waits_for_no_other(tmp_path: Path) -> None:
    at = folder(tmp_path, roll=MUCH)
    writer = Writer(at)
    writer.write(0, 10)
    writer.write(1, 80)
    assert at.keeper().keep().closed == 1
    writer.write(2, 150)
    assert at.keeper().keep().closed == 1
    (_, turn) = CompactionLog(at.store, "one").newest()
    assert turn is not None
    assert turn["frontier"]["low"] == 1, "a keeper that begins now does not read the manifest of the first Batch"


def test_the_null_folder_and_what_is_no_folder_by_time_are_never_closed(tmp_path: Path) -> None:
    at = folder(tmp_path, partition_by=["id", HOURLY])
    Writer(at).write(0, None, 10, 2000)
    done = at.keeper().keep()
    assert done.closed == 1
    assert [key for key in (entry.key for entry in at.store.list("data")) if "COMPLETE" in key] == [
        f"data/id=1/{HOUR.format(0)}_COMPLETE.json"
    ]


def test_a_reset_removes_markers_and_brings_them_back(tmp_path: Path) -> None:
    at = folder(tmp_path)
    writer = Writer(at)
    writer.write(0, 10, 80)
    at.keeper().keep()
    before = sorted(entry.key for entry in at.store.list())
    sink = writer.sink
    assert sink.clear(owner="me", flow="flow", dry_run=True) == 3
    sink.move_to_trash("t1", owner="me", flow="flow")
    assert at.marker(0) is None
    sink.move_back("t1")
    assert sorted(entry.key for entry in at.store.list()) == before
    assert sink.clear(owner="me", flow="flow") == 3
    assert list(at.store.list()) == []
    assert Writer(at).stage(0, 10)[1] == []


def test_without_close_nothing_more_is_asked_of_the_store(tmp_path: Path) -> None:
    at = folder(tmp_path, close=None)
    assert not at.keeper().wanted
    Writer(at).write(0, 10, 80)
    (record,) = (record for _, record in Manifests(at.store, "one").committed())
    assert "closed_us" not in record
    assert at.ids(0) == [0]


@pytest.mark.parametrize("kind", ["folder", "s3", pytest.param("hdfs", marks=pytest.mark.long)])
def test_it_keeps_the_contract(request: pytest.FixtureRequest, tmp_path: Path, prefix: str, kind: str) -> None:
    if kind == "s3":
        at = At(object_stores.options(request.getfixturevalue("server"), prefix, visible="listing"), object_options.SINK)
    elif kind == "hdfs":
        at = At(remote_places.options(request.getfixturevalue("hdfs"), prefix), hdfs_options.SINK)
    else:
        at = folder(tmp_path)
    rows = [{"id": n, "ts": START + dt.timedelta(minutes=n)} for n in range(6)]
    rows.append({"id": 7, "ts": None})

    def look() -> list[dict[str, Any]]:
        if not Owners(at.store).claims():
            return []
        at.keeper().keep()
        found = [json.loads(line) for each in committed_at(at.address).objects for line in (at.store.get(each.key) or b"").splitlines()]
        return [{"id": row["id"], "ts": None if row["ts"] is None else dt.datetime.fromisoformat(row["ts"])} for row in found]

    check_sink(lambda: ObjectsSink(at.place()), look, schema=SCHEMA, rows=rows)

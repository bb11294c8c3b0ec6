"""Folders by event time: which one a row goes to, when one is closed, what its marker says, and when it is deleted."""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import shutil
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from file_sinks import LINEAGE, batch, internal, make, visible
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.contract import BatchLimits, ConnectorContext, Decided, Receipt
from scribengin.connectors.files import compaction, retention
from scribengin.connectors.files.audit import count_rows
from scribengin.connectors.files.compaction_state import FileFrontier, newest_turn
from scribengin.connectors.files.maintenance import keep_folder
from scribengin.connectors.files.options import SINK, SOURCE
from scribengin.connectors.files.retention import HOLDS_S, ReadLease, RetentionSettings, going, kept_top, leased
from scribengin.connectors.files.sink import FilesSink
from scribengin.connectors.files.sink_folders import LineageFolder
from scribengin.connectors.files.source import FilesSource
from scribengin.connectors.files.time_path import TimePath, path_fault
from scribengin.core import faults
from scribengin.core.errors import EnvironmentFault, Refused, StateError
from scribengin.core.faults import ROLL_POINTS
from scribengin.core.storage import SummedFile
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.local.background_compaction import folders_with_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.connectors.files.reader import FilesReader

SCHEMA = parse_schema("id BIGINT, ts TIMESTAMP")
HOURLY = {"time": "ts", "path": "dt=%Y-%m-%d/hour=%H"}
CLOSE = {"delay": 600.0}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HOUR = "dt=2026-01-01/hour=0{}/"


def may() -> None:
    """The right is held."""


def hourly(folder: Path, **options: Any) -> FilesSink:
    return make(folder, **({"partition_by": (HOURLY,), "roll": {"size": 10**6, "every": 300.0}, "close": CLOSE} | options))


def stage(sink: FilesSink, number: int, *minutes: float | None, lineage: str = LINEAGE) -> tuple[Receipt, list[Any]]:
    """Rows so many minutes after the start, each its own id; and what the sink did not take."""
    stream = sink.stream(batch(number, lineage=lineage), 0, uuid4().hex, SCHEMA)
    moments = [None if each is None else START + dt.timedelta(minutes=each) for each in minutes]
    refused = stream.write(
        pa.RecordBatch.from_pylist(
            [{"id": 100 * number + nth, "ts": moment} for nth, moment in enumerate(moments)], schema=arrow_schema(SCHEMA)
        )
    )
    return stream.close(), list(refused)


def commit(sink: FilesSink, number: int, *minutes: float | None) -> Decided:
    receipt, _ = stage(sink, number, *minutes)
    decided = Decided(batch(number), f"h{number}", (receipt,))
    sink.publish(decided)
    return decided


def marker(folder: Path, hour: int) -> dict[str, Any] | None:
    path = folder / "out" / HOUR.format(hour) / "_COMPLETE.json"
    return json.loads(path.read_text()) if path.exists() else None


def rows_in(folder: Path, hour: int) -> int:
    return sum(
        len((folder / "out" / name).read_text().splitlines())
        for name in visible(folder)
        if name.startswith(HOUR.format(hour)) and "part-" in name
    )


def wrong(sink: FilesSink, decided: list[Decided]) -> list[str]:
    found = list(sink.audit(lineage=LINEAGE, decided=decided))
    expected = sum(receipt.rows for each in decided for receipt in each.receipts)
    return [said for each in found for said in each.violations] + (
        [] if sum(each.rows for each in found) == expected else [f"not {expected} rows"]
    )


def later(seconds: float) -> Callable[[], float]:
    return lambda: time.time() + seconds


# --- where a row goes ---


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"])
PATHS = st.sampled_from(["y=%Y", "m=%Y-%m", "dt=%Y-%m-%d", "dt=%Y-%m-%d/hour=%H", "year=%Y/month=%m/day=%d/at=%H.%M"])
MOMENTS = st.integers(-(10**15), 10**16).map(lambda us: us // 1000 * 1000)


@given(MOMENTS, st.integers(0, 7200), ZONES, PATHS)
def test_a_folder_ends_behind_all_of_its_moments_and_what_comes_later_is_in_later_ones(us: int, more_s: int, zone: str, path: str) -> None:
    by = TimePath("ts", path, zone)
    folder, other_us = by.folder(us), us + more_s * 10**6
    end_us = by.end_us(folder)
    assert end_us is not None
    assert us < end_us
    if other_us >= end_us:
        assert by.folder(other_us) != folder
    local = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)).astimezone(ZoneInfo(zone))
    assert folder == local.strftime(path.replace("%Y", f"{local.year:04}")) + "/"


@given(st.lists(st.one_of(st.none(), MOMENTS), max_size=20), ZONES, PATHS)
def test_columns_go_where_their_moments_go(moments: list[int | None], zone: str, path: str) -> None:
    by = TimePath("ts", path, zone)
    folders = by.folders(pa.array(moments, pa.timestamp("us", tz="UTC")))
    assert folders.to_pylist() == [by.folder(moment) for moment in moments]


def test_an_hour_that_the_clock_has_twice_ends_with_its_second_time() -> None:
    by = TimePath("ts", "h=%Y-%m-%dT%H", "Europe/Berlin")
    first, second = (dt.datetime(2026, 10, 25, hour, 30, tzinfo=dt.UTC).timestamp() * 1e6 for hour in (0, 1))
    assert by.folder(int(first)) == by.folder(int(second)) == "h=2026-10-25T02/"
    assert by.end_us("h=2026-10-25T02/") == dt.datetime(2026, 10, 25, 2, tzinfo=dt.UTC).timestamp() * 1e6


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("hour=%H", "no %Y"),
        ("dt=%Y-%d", "%d and no %m"),
        ("%Y/%m", 'folder "%Y"'),
        ("dt=%Y-%q", "'%q'"),
        ("dt=%Y%", "'%'"),
        ("dt=all", "no time"),
        ("/dt=%Y", "begins or ends"),
        ("dt=%Y/dt=%m", "two folders"),
        ("../dt=%Y", 'folder ".."'),
        ("dt=%Y//h=%m", 'folder ""'),
        ("dt=%Y%m{x}", "folder"),
    ],
)
def test_a_path_that_names_no_stretch_of_time_is_a_fault(path: str, why: str) -> None:
    fault = path_fault(path)
    assert fault is not None
    assert why in fault[0]


def test_the_sink_refuses_what_a_check_before_the_run_could_not_see(tmp_path: Path) -> None:
    for by, why in (
        ({"time": "at", "path": "dt=%Y"}, "not a column"),
        ({"time": "id", "path": "dt=%Y"}, "BIGINT"),
        ({"time": "ts", "path": "id=%Y"}, "of that name"),
    ):
        with pytest.raises(Refused, match=why):
            make(tmp_path, partition_by=(by,)).stream(batch(0), 0, "a", SCHEMA)


def test_the_time_stays_in_the_files_and_null_has_a_folder(tmp_path: Path) -> None:
    sink = make(tmp_path, partition_by=(HOURLY,))
    decided = commit(sink, 0, 5, 65, None)
    null = "__HIVE_DEFAULT_PARTITION__"
    assert [name.rpartition("/")[0] + "/" for name in visible(tmp_path)] == [HOUR.format(0), HOUR.format(1), f"dt={null}/hour={null}/"]
    assert json.loads((tmp_path / "out" / visible(tmp_path)[0]).read_text())["ts"] == "2026-01-01T00:05:00.000000Z"
    assert wrong(sink, [decided]) == []


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_a_time_that_no_calendar_has_is_in_the_null_folder_and_stops_nothing(tmp_path: Path, format: str) -> None:
    by = HOURLY | {"time_zone": "Europe/Berlin"}
    sink = make(tmp_path, format=format, partition_by=(by,), close=CLOSE)
    stream = sink.stream(batch(0), 0, "a", SCHEMA)
    far = [253402300799 * 10**6, 4 * 10**17, -62135596800 * 10**6, -(10**17), 0]
    columns = [pa.array(range(5), pa.int64()), pa.array(far, pa.timestamp("us", tz="UTC"))]
    stream.write(pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SCHEMA)))
    decided = Decided(batch(0), "h0", (stream.close(),))
    sink.publish(decided)
    null = "__HIVE_DEFAULT_PARTITION__"
    assert [name.rpartition("/")[0] for name in visible(tmp_path)] == [
        "dt=0001-01-01/hour=00",
        "dt=1970-01-01/hour=01",
        f"dt={null}/hour={null}",
    ]
    assert wrong(sink, [decided]) == []


# --- closed ---


def test_a_folder_is_closed_when_rows_so_much_newer_have_come_and_its_marker_counts_all_of_it(tmp_path: Path) -> None:
    sink = hourly(tmp_path)
    decided = [commit(sink, 0, 5, 10), commit(sink, 1, 50, 65)]
    keep_folder(tmp_path / "out", may)
    assert (visible(tmp_path), marker(tmp_path, 0)) == ([], None), "minute 65 is less than 10 minutes behind the hour's end"
    decided.append(commit(sink, 2, 59, 69.99))
    keep_folder(tmp_path / "out", may)
    assert marker(tmp_path, 0) is None
    decided.append(commit(sink, 3, 70))
    done = keep_folder(tmp_path / "out", may)
    assert (done.merged, done.closed) == (3, 1)
    assert rows_in(tmp_path, 0) == 4
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], said["files"], said["version"], said["until"]) == (4, 1, 1, "2026-01-01T01:00:00+00:00")
    assert said["bytes"] == (tmp_path / "out" / next(name for name in visible(tmp_path) if "part-" in name)).stat().st_size
    assert (rows_in(tmp_path, 1), marker(tmp_path, 1)) == (0, None)
    assert keep_folder(tmp_path / "out", may).anything is False
    assert wrong(sink, decided) == []


def test_without_roll_folders_are_closed_too(tmp_path: Path) -> None:
    sink = hourly(tmp_path, roll=None)
    commit(sink, 0, 5, 10)
    commit(sink, 1, 80)
    keep_folder(tmp_path / "out", may)
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], said["files"]) == (2, 1)


def test_a_file_that_a_reader_takes_away_while_its_folder_is_closed_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(hourly(tmp_path, roll=None), 0, 5, 70)
    listed = retention._parts

    def taken(top: Path, folder: str) -> Iterator[str]:
        for name in listed(top, folder):
            (top / folder / name).unlink()
            yield name

    monkeypatch.setattr(retention, "_parts", taken)
    assert keep_folder(tmp_path / "out", may).closed == 1
    assert (marker(tmp_path, 0) or {})["files"] == 0
    assert untrue(tmp_path) == []


def test_a_row_too_late_for_a_closed_folder_is_refused_by_what_was_committed_before_it_whenever_it_is_run(tmp_path: Path) -> None:
    sink = hourly(tmp_path)
    commit(sink, 0, 5, 70)
    receipt, refused = stage(sink, 1, 30, 65, 40, None, 200)
    assert [(bad.ordinal, bad.reason) for bad in refused] == [(0, "late"), (2, "late")]
    assert receipt.rows == 3
    assert stage(sink, 0, 30)[1] == [], "batch 0 follows nothing"
    keep_folder(tmp_path / "out", may)
    said = marker(tmp_path, 0)
    assert said is not None
    assert said["rows"] == 1
    assert [bad.ordinal for bad in stage(hourly(tmp_path), 1, 30, 65)[1]] == [0], "and so it is after a restart"
    (tmp_path / "out" / HOUR.format(0) / "_COMPLETE.json").unlink()
    assert [bad.ordinal for bad in stage(sink, 1, 30, 65)[1]] == [0], "and without the marker"
    assert stage(sink, 0, 30)[1] == []


def test_reopened_folders_get_another_version_of_their_marker(tmp_path: Path) -> None:
    sink = hourly(tmp_path, close=CLOSE | {"late": "reopen"})
    decided = [commit(sink, 0, 5, 70)]
    keep_folder(tmp_path / "out", may)
    decided += [commit(sink, 1, 30), commit(sink, 2, 40)]
    keep_folder(tmp_path / "out", may)
    assert ((marker(tmp_path, 0) or {})["version"], untrue(tmp_path)) == (1, []), "late rows wait as others do, and the marker is true"
    keep_folder(tmp_path / "out", may, now_s=later(301))
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], said["files"], said["version"], untrue(tmp_path)) == (3, 2, 2, [])
    assert wrong(sink, decided) == []


def test_a_time_ahead_of_the_clock_closes_nothing_that_is_still_to_come(tmp_path: Path) -> None:
    sink = hourly(tmp_path)
    commit(sink, 0, 5, 60 * 24 * 365 * 100)
    now = (dt.datetime.now(dt.UTC) - START).total_seconds() / 60
    assert stage(sink, 1, now)[1] == []


def test_a_folder_is_not_closed_while_files_of_a_commit_wait_for_their_names(tmp_path: Path) -> None:
    sink = hourly(tmp_path, roll=None)
    commit(sink, 0, 5)
    faults.arm("publish.record.after:enospc")
    try:
        with pytest.raises(OSError, match="No space"):
            commit(sink, 1, 20, 80)
    finally:
        faults.arm("")
    keep_folder(tmp_path / "out", may)
    assert marker(tmp_path, 0) is None
    record = sink._of(LINEAGE).commits.read(1)
    receipt = Receipt("kept", 0, 2, 0, tuple(record["files"]))
    hourly(tmp_path, roll=None).recover(Decided(batch(1), "h1", (receipt,)), lineage=LINEAGE, before=2)
    keep_folder(tmp_path / "out", may)
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], said["files"]) == (2, 2)


@pytest.mark.parametrize("point", ["roll.record.after", "roll.marked"])
def test_a_keeper_that_fails_on_the_way_to_a_marker_leaves_it_to_the_next(tmp_path: Path, point: str) -> None:
    sink = hourly(tmp_path, roll=None)
    commit(sink, 0, 5, 70)
    faults.arm(f"{point}:enospc")
    try:
        with pytest.raises(OSError, match="No space"):
            keep_folder(tmp_path / "out", may)
    finally:
        faults.arm("")
    keep_folder(tmp_path / "out", may)
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], said["version"]) == (1, 1)


def test_whoever_sees_a_marker_sees_all_the_rows_that_it_counts_and_no_more_come(tmp_path: Path) -> None:
    """Writer, keeper and consumer at once; the writer is made anew now and then, and some of its rows are late."""
    over, wrong_, refused, looks = threading.Event(), list[object](), 0, 0

    def keep() -> None:
        while not over.wait(0.01):
            try:
                keep_folder(tmp_path / "out", may)
            except Exception as error:
                wrong_.append(error)

    def consume() -> None:
        nonlocal looks
        while not over.wait(0.01):
            for path in sorted((tmp_path / "out").glob("dt=*/hour=*/_COMPLETE.json")):
                looks += 1
                said = json.loads(path.read_text())
                rows = sum(len(part.read_text().splitlines()) for part in path.parent.glob("part-*"))
                if (rows, said["version"]) != (said["rows"], 1):
                    wrong_.append((said, rows))

    threads = [threading.Thread(target=what) for what in (keep, consume)]
    sink = hourly(tmp_path, roll={"size": 400, "every": 0.2})
    decided = []
    for thread in threads:
        thread.start()
    for number in range(24):
        if number % 10 == 5:
            sink = hourly(tmp_path, roll={"size": 400, "every": 0.2})
        receipt, late = stage(sink, number, 30 * number, 30 * number + 5, 30 * number - 75, 30 * number - 15)
        refused += len(late)
        decided.append(Decided(batch(number), f"h{number}", (receipt,)))
        sink.publish(decided[-1])
    keep_folder(tmp_path / "out", may, flush=True)
    over.set()
    for thread in threads:
        thread.join()
    markers = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("dt=*/hour=*/_COMPLETE.json")]
    assert wrong_ == []
    assert (len(markers) >= 10, refused > 5, looks > 0) == (True, True, True)
    assert wrong(sink, decided) == []


# --- read again: a new lineage over folders that are closed ---


def rewound(folder: Path, lineage: str = "l2", **options: Any) -> FilesSink:
    sink = FilesSink(
        ConnectorContext("kept", folder, SINK.filled({"path": "out", "format": "json", "partition_by": (HOURLY,)} | REWOUND | options))
    )
    sink.prepare(owner="me", lineage=lineage, adopt=True)
    return sink


REWOUND: dict[str, Any] = {"roll": {"size": 10**6, "every": 300.0}, "close": CLOSE}
REOPEN = CLOSE | {"late": "reopen"}


def commit_to(sink: FilesSink, lineage: str, number: int, *minutes: float | None) -> list[Any]:
    """Commit to a lineage; what was refused."""
    receipt, refused = stage(sink, number, *minutes, lineage=lineage)
    sink.publish(Decided(replace(batch(number), lineage=lineage), f"h{number}", (receipt,)))
    return refused


def untrue(folder: Path) -> list[tuple[str, int, int, int]]:
    """Markers that do not say what a reader counts in their folder: (folder, rows, files, bytes there)."""
    found = []
    for path in sorted((folder / "out").glob("**/_COMPLETE.json")):
        said = json.loads(path.read_text())
        parts = sorted(path.parent.glob("part-*"))
        there = sum(len(part.read_bytes().splitlines()) for part in parts), len(parts), sum(part.stat().st_size for part in parts)
        if there != (said["rows"], said["files"], said["bytes"]):
            found.append((said["folder"], *there))
    return found


@pytest.mark.parametrize("roll", [None, REWOUND["roll"]])
def test_a_rewind_adds_nothing_to_a_folder_that_is_closed_and_its_rows_are_dead_letters(tmp_path: Path, roll: Any) -> None:
    commit(hourly(tmp_path, roll=roll), 0, 5, 10, 70)
    keep_folder(tmp_path / "out", may)
    before = marker(tmp_path, 0)
    sink = rewound(tmp_path, roll=roll)
    refused = commit_to(sink, "l2", 0, 5, 10, 70)
    assert [(bad.ordinal, bad.reason) for bad in refused] == [(0, "late"), (1, "late")]
    assert "before this lineage began" in refused[0].message
    keep_folder(tmp_path / "out", may, flush=True)
    assert (marker(tmp_path, 0), rows_in(tmp_path, 0), rows_in(tmp_path, 1), untrue(tmp_path)) == (before, 2, 2, [])
    assert len(commit_to(rewound(tmp_path, "l3", roll=roll), "l3", 0, 5)) == 1


def test_a_marker_that_was_there_before_refuses_rows_as_long_as_it_stands(tmp_path: Path) -> None:
    commit(hourly(tmp_path), 0, 5, 70)
    keep_folder(tmp_path / "out", may)
    sink = rewound(tmp_path)
    assert [bad.reason for bad in stage(sink, 0, 5, lineage="l2")[1]] == ["late"]
    shutil.rmtree(tmp_path / "out" / HOUR.format(0))
    assert commit_to(sink, "l2", 0, 5) == [], "the Batch was not committed, and is run again"
    commit_to(sink, "l2", 1, 70)
    keep_folder(tmp_path / "out", may)
    assert ((marker(tmp_path, 0) or {})["rows"], untrue(tmp_path)) == (1, [])


@pytest.mark.parametrize("roll", [None, REWOUND["roll"]])
def test_a_rewind_that_reopens_takes_the_marker_away_before_a_row_is_seen_and_counts_both_lineages(tmp_path: Path, roll: Any) -> None:
    commit(hourly(tmp_path, roll=roll, close=REOPEN), 0, 5, 10, 70)
    keep_folder(tmp_path / "out", may)
    sink = rewound(tmp_path, roll=roll, close=REOPEN)
    assert commit_to(sink, "l2", 0, 5, 10, 20) == []
    assert (rows_in(tmp_path, 0), untrue(tmp_path)) == (2, [])
    keep_folder(tmp_path / "out", may, flush=True)
    assert (marker(tmp_path, 0), rows_in(tmp_path, 0)) == (None, 5), "until the rows that are read again have come past its end"
    commit_to(sink, "l2", 1, 70)
    keep_folder(tmp_path / "out", may, flush=True)
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], said["version"], untrue(tmp_path)) == (5, 2, [])


def test_a_folder_that_was_open_when_a_rewind_came_is_closed_by_it_with_the_rows_of_both(tmp_path: Path) -> None:
    commit(hourly(tmp_path), 0, 65, 70, 125)
    sink = rewound(tmp_path)
    assert commit_to(sink, "l2", 0, 65) == []
    commit_to(sink, "l2", 1, 200)
    keep_folder(tmp_path / "out", may)
    said = [marker(tmp_path, hour) for hour in (1, 2)]
    assert [(each["rows"], each["version"]) for each in said if each] == [(3, 1), (1, 1)], "hour 2 has rows of the first lineage only"
    assert untrue(tmp_path) == []


def test_a_marker_counts_what_lies_there_though_files_came_or_went_by_hand(tmp_path: Path) -> None:
    sink = hourly(tmp_path, roll=None)
    commit(sink, 0, 5, 65)
    commit(sink, 1, 6, 7, 66)
    first, *_ = [name for name in visible(tmp_path) if name.startswith(HOUR.format(0))]
    (tmp_path / "out" / first).unlink()
    (tmp_path / "out" / HOUR.format(1) / "part-mine.jsonl").write_text("{}\n" * 5)
    (tmp_path / "out" / HOUR.format(1) / "part-mine.parquet").write_text("no data")
    commit(sink, 2, 200)
    keep_folder(tmp_path / "out", may)
    said = [marker(tmp_path, hour) for hour in (0, 1)]
    assert [(each["rows"], each["files"], each.get("unread")) for each in said if each] == [(2, 1, None), (7, 4, 1)]


def test_a_marker_counts_what_lies_there_though_one_file_was_replaced_by_another(tmp_path: Path) -> None:
    sink = hourly(tmp_path, roll=None)
    commit(sink, 0, 5, 65)
    first, *_ = [name for name in visible(tmp_path) if name.startswith(HOUR.format(0))]
    (tmp_path / "out" / first).unlink()
    (tmp_path / "out" / HOUR.format(0) / "part-mine.jsonl").write_text("{}\n" * 5)
    commit(sink, 1, 200)
    keep_folder(tmp_path / "out", may)
    assert (marker(tmp_path, 0) or {})["rows"] == 5
    assert untrue(tmp_path) == []


@pytest.mark.parametrize("roll", [None, REWOUND["roll"]])
def test_a_file_is_not_read_to_count_its_rows_where_nobody_else_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roll: Any
) -> None:
    monkeypatch.setattr(retention, "count_rows", lambda *_, **__: pytest.fail("was read"))
    sink = hourly(tmp_path, roll=roll, close=REOPEN)
    for number, minutes in enumerate([(5, 6), (7, 65), (200,), (8, 66), (201,)]):
        commit(sink, number, *minutes)
        keep_folder(tmp_path / "out", may, flush=True)
    assert [(marker(tmp_path, hour) or {})["version"] for hour in (0, 1)] == [2, 2]
    assert untrue(tmp_path) == []


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_rows_of_files_that_no_record_counts_are_counted_in_them(tmp_path: Path, format: str, compression: str) -> None:
    text = parse_schema("id STRING, ts TIMESTAMP")
    for lineage in ("l1", "l2"):
        sink = rewound(tmp_path, lineage, format=format, compression=compression, close=None, roll=None)
        stream = sink.stream(replace(batch(0), lineage=lineage), 0, "a", text)
        stream.write(pa.RecordBatch.from_pylist([{"id": 'a "b"\n,c\n', "ts": START}] * 3, schema=arrow_schema(text)))
        sink.publish(Decided(replace(batch(0), lineage=lineage), "h0", (stream.close(),)))
    for path in (tmp_path / "out").glob("dt=*/hour=*/part-*"):
        assert count_rows(path, header=True) == 3


def test_a_folder_deleted_by_hand_is_filled_by_a_rewind_and_closed_again(tmp_path: Path) -> None:
    commit(hourly(tmp_path), 0, 5, 10, 70)
    keep_folder(tmp_path / "out", may)
    shutil.rmtree(tmp_path / "out" / HOUR.format(0))
    keep_folder(tmp_path / "out", may)
    sink = rewound(tmp_path)
    assert commit_to(sink, "l2", 0, 5, 10, 70) == []
    keep_folder(tmp_path / "out", may)
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], untrue(tmp_path)) == (2, [])


CHANGED: list[dict[str, Any]] = [{"close": None}, {"close": {"delay": 7200.0}}, {"close": {"delay": 7200.0, "late": "reopen"}}]


@pytest.mark.parametrize("options", [*CHANGED, {"partition_by": ("dt", "hour")}])
@pytest.mark.parametrize("rewinds", [False, True])
def test_a_marker_stays_true_when_options_change(tmp_path: Path, options: dict[str, Any], rewinds: bool) -> None:
    commit(hourly(tmp_path, roll=None), 0, 5, 70)
    keep_folder(tmp_path / "out", may)
    lineage = "l2" if rewinds else LINEAGE
    schema, columns = SCHEMA, dict[str, Any]()
    if "partition_by" in options:
        options = options | {"close": None}
        schema, columns = parse_schema("id BIGINT, dt STRING, hour STRING"), {"dt": "2026-01-01", "hour": "00"}
    given = {"path": "out", "format": "json", "partition_by": (HOURLY,)} | options
    sink = FilesSink(ConnectorContext("kept", tmp_path, SINK.filled(given)))
    sink.prepare(owner="me", lineage=lineage, adopt=True)
    for number in range(1, 3):
        stream = sink.stream(replace(batch(number), lineage=lineage), 0, "a", schema)
        stream.write(pa.RecordBatch.from_pylist([{"id": number, "ts": START} | columns], schema=arrow_schema(schema)))
        sink.publish(Decided(replace(batch(number), lineage=lineage), f"h{number}", (stream.close(),)))
        assert untrue(tmp_path) == []
        keep_folder(tmp_path / "out", may, flush=True)
        assert untrue(tmp_path) == []
    dead = (options["close"] or {"late": ""}).get("late", "dead") == "dead"
    assert (rows_in(tmp_path, 0), marker(tmp_path, 0) is not None) == ((1, True) if dead else (3, False))


@pytest.mark.parametrize("rewinds", [False, True])
@pytest.mark.parametrize("by", [HOURLY, "country"])
def test_rows_for_a_folder_that_came_with_a_marker_are_shown_though_the_sink_closes_none(tmp_path: Path, by: Any, rewinds: bool) -> None:
    place = HOUR.format(0) if by is HOURLY else "country=DE/"
    lineage = "l1"
    if rewinds:
        make(tmp_path, partition_by=(by,))
        lineage = "l2"
    restored = tmp_path / "out" / place
    restored.mkdir(parents=True)
    (restored / "part-0.jsonl").write_text("{}\n")
    (restored / "_COMPLETE.json").write_text(json.dumps({"folder": place, "version": 1, "rows": 1, "files": 1, "bytes": 3}))
    given = SINK.filled({"path": "out", "format": "json", "partition_by": (by,)})
    schema = parse_schema("id BIGINT, ts TIMESTAMP, country STRING")
    sink = FilesSink(ConnectorContext("kept", tmp_path, given))
    sink.prepare(owner="me", lineage=lineage, adopt=True)
    stream = sink.stream(replace(batch(0), lineage=lineage), 0, "a", schema)
    stream.write(pa.RecordBatch.from_pylist([{"id": 1, "ts": START, "country": "DE"}], schema=arrow_schema(schema)))
    sink.publish(Decided(replace(batch(0), lineage=lineage), "h0", (stream.close(),)))
    assert untrue(tmp_path) == []
    assert folders_with_settings([str(tmp_path / "out")]) == [tmp_path / "out"], "those who roll see that there is something to do"
    keep_folder(tmp_path / "out", may)
    assert (len([*restored.glob("part-*")]), (restored / "_COMPLETE.json").exists()) == (2, False)


@pytest.mark.parametrize("rewinds", [False, True])
def test_a_keeper_that_looked_before_options_changed_or_a_lineage_began_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewinds: bool
) -> None:
    commit(hourly(tmp_path, roll=None), 0, 5, 70)
    put, lineage = compaction.FileCompactor.put_turn, "l2" if rewinds else LINEAGE

    def changed_before(self: compaction.FileCompactor, number: int, record: dict[str, Any]) -> Any:
        assert [each["folder"] for each in record["closed"]] == [HOUR.format(0)]
        monkeypatch.setattr(compaction.FileCompactor, "put_turn", put)
        # the end of a lineage shows all that it can, and here it cannot
        monkeypatch.setattr(compaction.FileCompactor, "run", lambda *_, **__: None)
        sink = rewound(tmp_path, close=REOPEN, roll=None) if rewinds else hourly(tmp_path, close=None, roll=None)
        commit_to(sink, lineage, 1, 30)
        return put(self, number, record)

    run = compaction.FileCompactor.run
    monkeypatch.setattr(compaction.FileCompactor, "put_turn", changed_before)
    keep_folder(tmp_path / "out", may)
    monkeypatch.setattr(compaction.FileCompactor, "run", run)
    assert (rows_in(tmp_path, 0), marker(tmp_path, 0)) == (2, None)
    keep_folder(tmp_path / "out", may, flush=True)
    assert untrue(tmp_path) == []


def test_a_start_killed_before_it_fenced_keepers_does_so_at_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(hourly(tmp_path, roll=None), 0, 5, 70)
    put = compaction.FileCompactor.put_turn
    newest: list[int] = []

    def started_twice_before(self: compaction.FileCompactor, number: int, record: dict[str, Any]) -> Any:
        assert [each["folder"] for each in record["closed"]] == [HOUR.format(0)]
        monkeypatch.setattr(compaction.FileCompactor, "put_turn", put)
        pid = os.fork()
        if pid == 0:
            try:
                faults.arm("keeping.written:die")
                hourly(tmp_path, close=None, roll=None)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        commit(hourly(tmp_path, close=None, roll=None), 1, 30)
        newest.append(newest_turn(self.lineage)[0])
        hourly(tmp_path, close=None, roll=None)
        newest.append(newest_turn(self.lineage)[0])
        return put(self, number, record)

    monkeypatch.setattr(compaction.FileCompactor, "put_turn", started_twice_before)
    keep_folder(tmp_path / "out", may)
    assert (rows_in(tmp_path, 0), marker(tmp_path, 0)) == (2, None)
    assert newest == [0, 0], "a start that finds all as it was puts no turn"


def test_what_an_ended_lineage_still_hides_keeps_its_folder_open_and_no_other(tmp_path: Path) -> None:
    sink = hourly(tmp_path)
    for number in range(2):
        commit(sink, number, 5 + number, 65 + number)
    faults.arm("roll.draft.writing:enospc")
    try:
        sink = rewound(tmp_path)
    finally:
        faults.arm("")
    assert len(internal(tmp_path, "hidden")) == 4, "there was no room when the lineage ended"
    commit_to(sink, "l2", 0, 5)
    commit_to(sink, "l2", 1, 6, 200)
    faults.arm("roll.draft.writing@1:enospc")
    try:
        with pytest.raises(EnvironmentFault, match="No space"):
            keep_folder(tmp_path / "out", may)
    finally:
        faults.arm("")
    assert (rows_in(tmp_path, 0), untrue(tmp_path)) == (2, []), "the other lineage is rolled all the same"
    assert marker(tmp_path, 0) is None
    keep_folder(tmp_path / "out", may)
    said = [marker(tmp_path, hour) for hour in (0, 1)]
    assert [each["rows"] for each in said if each] == [4, 2]
    assert untrue(tmp_path) == []


def test_a_segment_that_is_missing_through_two_rewinds_is_in_the_marker_when_it_is_restored(tmp_path: Path) -> None:
    commit(hourly(tmp_path), 0, 5, 6)
    (segment,) = (tmp_path / "out/_scribengin" / LINEAGE / "hidden").iterdir()
    away = segment.rename(tmp_path / "away")
    sink = rewound(tmp_path)
    commit_to(sink, "l2", 0, 7, 200)
    sink = rewound(tmp_path, "l3")
    assert marker(tmp_path, 0) is None, "the second rewind ends a lineage whose time has come past the folder"
    away.rename(segment)
    commit_to(sink, "l3", 0, 200)
    keep_folder(tmp_path / "out", may)
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], untrue(tmp_path)) == (3, [])


def test_what_an_ended_lineage_opens_again_is_closed_by_the_newest_and_has_the_next_version(tmp_path: Path) -> None:
    sink = hourly(tmp_path, close=REOPEN)
    commit(sink, 0, 5, 70)
    keep_folder(tmp_path / "out", may, flush=True)
    commit(sink, 1, 6)
    (segment,) = (tmp_path / "out/_scribengin" / LINEAGE / "hidden").iterdir()
    away = segment.rename(tmp_path / "away")
    sink = rewound(tmp_path, close=REOPEN)
    commit_to(sink, "l2", 0, 125)
    away.rename(segment)
    assert (marker(tmp_path, 0) or {})["version"] == 1
    keep_folder(tmp_path / "out", may, flush=True)
    commit_to(sink, "l2", 1, 125)
    keep_folder(tmp_path / "out", may, flush=True)
    said = marker(tmp_path, 0)
    assert said is not None
    assert (said["rows"], said["version"], untrue(tmp_path)) == (2, 2, [])
    assert keep_folder(tmp_path / "out", may).anything is False


def test_where_nobody_knows_what_an_earlier_lineage_hides_no_folder_is_closed(tmp_path: Path) -> None:
    sink = hourly(tmp_path)
    for number in range(2):
        commit(sink, number, 5 + number)
    faults.arm("roll.draft.writing:enospc")
    try:
        sink = rewound(tmp_path)
    finally:
        faults.arm("")
    record = LineageFolder(tmp_path / "out/_scribengin" / LINEAGE).commits.folder / "0000000000.json"
    whole = record.read_bytes()
    record.write_bytes(whole[:-9])
    commit_to(sink, "l2", 0, 7, 200)
    with pytest.raises(StateError, match="torn"):
        keep_folder(tmp_path / "out", may)
    assert marker(tmp_path, 0) is None
    record.write_bytes(whole)
    keep_folder(tmp_path / "out", may)
    assert ((marker(tmp_path, 0) or {})["rows"], untrue(tmp_path)) == (3, [])


def test_a_disk_that_is_full_when_a_marker_is_written_leaves_the_folder_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(hourly(tmp_path, roll=None), 0, 5, 65, 140)

    class Full(SummedFile):
        def sync(self) -> None:
            if list(tmp_path.rglob("merged/*"))[1:]:  # there was room for the first
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(retention, "SummedFile", Full)
        with pytest.raises(EnvironmentFault, match="marker of dt=2026-01-01/hour=01/ cannot be written: No space"):
            keep_folder(tmp_path / "out", may)
    assert (marker(tmp_path, 0), marker(tmp_path, 1)) == (None, None)
    keep_folder(tmp_path / "out", may)
    keep_folder(tmp_path / "out", may)
    assert untrue(tmp_path) == []
    assert all(marker(tmp_path, hour) for hour in (0, 1))
    assert internal(tmp_path, "merged") == []


class Consumer:
    """Counts in a loop what lies in folders that have a marker: while that stands it is true."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._over = folder, threading.Event()
        self.wrong: list[object] = []
        self.looks = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.001):
            for path in sorted((self._folder / "out").glob("dt=*/hour=*/_COMPLETE.json")):
                with suppress(FileNotFoundError):
                    before = path.read_bytes()
                    rows = sum(len(part.read_bytes().splitlines()) for part in path.parent.glob("part-*"))
                    if before == path.read_bytes():
                        self.looks += 1
                        if json.loads(before)["rows"] != rows:
                            self.wrong.append((json.loads(before), rows))

    def __enter__(self) -> Consumer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize(
    ("point", "nth", "roll"),
    [
        # each point in the first or the third pass, with and without merges in turn; the other two under `long`
        pytest.param(point, nth, roll, marks=[pytest.mark.long] * ((number + place) % 2 != (nth == 3)))
        for number, point in enumerate(point for point in ROLL_POINTS if point != "roll.draft.writing")
        for nth in (1, 3)
        for place, roll in enumerate((None, {"size": 10**6, "every": 0.0}))
    ],
)
def test_a_keeper_killed_at_any_point_leaves_no_marker_that_is_untrue(tmp_path: Path, point: str, nth: int, roll: Any) -> None:
    options = {"roll": roll, "close": REOPEN}
    sink = hourly(tmp_path, **options)

    def die() -> None:
        faults.arm(f"{point}@{nth}:die")
        for number in range(8):
            commit(sink, number, 60 * number + 5, *((5, 65) if number > 2 else ()))
            keep_folder(tmp_path / "out", may)

    with Consumer(tmp_path) as consumer:
        pid = os.fork()
        if pid == 0:
            try:
                die()
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        assert untrue(tmp_path) == []
        again = rewound(tmp_path, **options)
        for number in range(12):
            commit_to(again, "l2", number, 60 * number + 5, 60 * number + 10)
            keep_folder(tmp_path / "out", may)
        keep_folder(tmp_path / "out", may, flush=True)
        keep_folder(tmp_path / "out", may, flush=True)
    assert consumer.wrong == []
    assert untrue(tmp_path) == []
    assert all(marker(tmp_path, hour) for hour in range(10))


def asleep(folder: Path, point: str) -> Callable[[], int]:
    """A keeper in another process that sleeps at that point; call it to wake it, and have how it ended."""
    gate = folder / "gate"
    pid = os.fork()
    if pid == 0:
        status = 1
        signal.alarm(60)  # where the test fails nobody wakes it
        try:
            faults.arm(f"{point}:wait={gate}")
            keep_folder(folder / "out", may)
            status = 0
        finally:
            os._exit(status)
    while not Path(f"{gate}.waiting").exists():
        time.sleep(0.01)

    def wake() -> int:
        (folder / "out/_scribengin" / LINEAGE / "settled").unlink()  # a hint; nothing may rest on it
        gate.touch()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return wake


def test_a_keeper_that_slept_before_it_gave_a_marker_its_name_puts_no_old_one_back(tmp_path: Path) -> None:
    commit(hourly(tmp_path, roll=None, close=REOPEN), 0, 5, 70)
    wake = asleep(tmp_path, "roll.record.after")
    keep_folder(tmp_path / "out", may)
    assert (marker(tmp_path, 0) or {})["version"] == 1
    commit_to(rewound(tmp_path, roll=None, close=REOPEN), "l2", 0, 30)
    keep_folder(tmp_path / "out", may)
    assert marker(tmp_path, 0) is None
    assert wake() == 0
    assert (marker(tmp_path, 0), rows_in(tmp_path, 0)) == (None, 2)


def test_a_keeper_that_slept_before_it_took_a_marker_away_takes_no_later_one(tmp_path: Path) -> None:
    sink = hourly(tmp_path, roll=None, close=REOPEN)
    commit(sink, 0, 5, 70)
    keep_folder(tmp_path / "out", may)
    commit(sink, 1, 30)
    wake = asleep(tmp_path, "roll.record.after")
    keep_folder(tmp_path / "out", may)
    assert (marker(tmp_path, 0) or {})["version"] == 2
    assert wake() == 0
    assert ((marker(tmp_path, 0) or {})["version"], untrue(tmp_path)) == (2, [])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda turn: turn["frontier"].pop("ended"), "it lacks ended"),
        (lambda turn: turn.pop("frontier"), "it lacks frontier"),
        (lambda turn: turn.pop("reopened"), "it lacks reopened"),
        (lambda turn: turn["frontier"].update(open={"dt=2026-01-01/": [1, 2, 3, 4, 5]}), "arguments"),
        (lambda turn: turn["frontier"].update(done=[]), "items"),
        (lambda turn: turn["frontier"].update(done={"": 7}), "unpack"),
    ],
)
def test_a_turn_of_a_form_that_is_not_known_is_told_with_its_place_and_a_remedy(tmp_path: Path, change: Any, why: str) -> None:
    commit(hourly(tmp_path), 0, 5, 70)
    keep_folder(tmp_path / "out", may, flush=True)
    lineage = LineageFolder(tmp_path / "out/_scribengin" / LINEAGE)
    number, turn = newest_turn(lineage)
    assert turn is not None
    change(turn)
    lineage.merges.amend(number, turn)
    with pytest.raises(StateError, match=why) as caught:
        keep_folder(tmp_path / "out", may)
    assert f"compaction run {number} in {lineage.merges.folder}" in caught.value.message
    assert "run the version" in caught.value.remedy
    with pytest.raises(StateError, match=why):
        rewound(tmp_path)


# --- old ---


def test_folders_older_than_they_are_kept_are_deleted_and_the_audit_balances(tmp_path: Path) -> None:
    sink = hourly(tmp_path, keep=7200.0)
    decided = [commit(sink, 0, 5, 65), commit(sink, 1, 70, 130)]
    strange = tmp_path / "out" / HOUR.format(0) / "notes.txt"
    keep_folder(tmp_path / "out", may)
    assert marker(tmp_path, 0) is not None
    strange.write_text("mine")
    decided.append(commit(sink, 2, 181))
    keep_folder(tmp_path / "out", may, flush=True)
    keep_folder(tmp_path / "out", may)
    assert rows_in(tmp_path, 0) == 0
    assert (strange.exists(), marker(tmp_path, 0)) == (True, None), "what is not ours stays"
    assert rows_in(tmp_path, 1) == 2
    assert wrong(sink, decided) == []
    decided.append(commit(sink, 3, 400))
    keep_folder(tmp_path / "out", may, flush=True)
    keep_folder(tmp_path / "out", may)
    assert not (tmp_path / "out" / HOUR.format(1)).exists()
    assert wrong(sink, decided) == []


def test_the_marker_of_a_folder_that_is_deleted_goes_first_whoever_has_written_there(tmp_path: Path) -> None:
    options: dict[str, Any] = {"roll": None, "keep": 7200.0}
    for number in range(2):
        commit(hourly(tmp_path, **options), number, 5, 6)
    sink = rewound(tmp_path, **options)
    for number in range(2):
        commit_to(sink, "l2", number, 7, 69 + number)
    keep_folder(tmp_path / "out", may)
    assert (marker(tmp_path, 0) or {})["rows"] == 6
    commit_to(sink, "l2", 2, 185)
    left = []

    def look() -> None:
        left.append(rows_in(tmp_path, 0))
        assert untrue(tmp_path) == []

    for _ in range(3):
        keep_folder(tmp_path / "out", look)
    assert ({1, 2, 4, 6} <= set(left), rows_in(tmp_path, 0)) == (True, 0)


@pytest.mark.parametrize("foreign", [False, True])
def test_an_expired_folder_that_a_reader_has_emptied_is_deleted_with_its_marker(tmp_path: Path, foreign: bool) -> None:
    sink = hourly(tmp_path, keep=7200.0, roll=None)
    decided = [commit(sink, 0, 5, 70)]
    keep_folder(tmp_path / "out", may)
    assert marker(tmp_path, 0) is not None
    place = tmp_path / "out" / HOUR.format(0)
    for part in place.glob("part-*"):
        part.unlink()
    if foreign:
        (place / "notes.txt").write_text("mine")
    keep_folder(tmp_path / "out", may)
    assert marker(tmp_path, 0) is not None, "it is not old yet"
    decided.append(commit(sink, 1, 185))
    keep_folder(tmp_path / "out", may)
    assert (place.exists(), marker(tmp_path, 0)) == (foreign, None)
    assert marker(tmp_path, 1) is not None


def test_a_file_that_a_reader_has_still_to_read_is_kept_until_it_is_read_or_the_reader_died(tmp_path: Path) -> None:
    sink = hourly(tmp_path, keep=7200.0, close=None)
    commit(sink, 0, 5)
    keep_folder(tmp_path / "out", may, flush=True)
    source = FilesSource(
        ConnectorContext(
            "s", tmp_path, SOURCE.filled({"path": "out/dt=*/hour=*/*.jsonl", "format": "json", "settle": 0.0}), SCHEMA, flow="other"
        )
    )
    reader = source.reader()
    reader.restore([])
    streams = reader.split(BatchLimits(), final=True)
    assert len(streams) == 1
    commit(sink, 1, 185)
    for _ in range(3):
        keep_folder(tmp_path / "out", may, flush=True)
    assert rows_in(tmp_path, 0) == 1
    assert sum(len(block) for block in source.read(streams[0])) == 1
    reader.let_go(streams)
    keep_folder(tmp_path / "out", may)
    assert rows_in(tmp_path, 0) == 0
    again = reader.split(BatchLimits(), final=True)
    commit(sink, 2, 400)
    keep_folder(tmp_path / "out", may, flush=True)
    keep_folder(tmp_path / "out", may)
    assert rows_in(tmp_path, 3) == 1
    assert len(again) == 1
    keep_folder(tmp_path / "out", may, now_s=later(HOLDS_S + 1))
    assert rows_in(tmp_path, 3) == 0, "nobody has renewed the lease"


@pytest.mark.parametrize("options", [{"keep": 7200.0, "close": None, "roll": None}, {"close": {"delay": 1e6}, "roll": None}])
def test_batches_with_nothing_to_do_are_not_read_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(compaction, "_MOVES", 5)
    sink = hourly(tmp_path, **options)
    lineage = LineageFolder(tmp_path / "out/_scribengin" / LINEAGE)
    decided = []
    for number in range(12):
        decided.append(commit(sink, number, number))
        keep_folder(tmp_path / "out", may)
    frontier = FileFrontier.of(newest_turn(lineage)[1])
    assert frontier.low == 10
    assert frontier.scanned == (9 if options["close"] else -1)
    assert sum(each.rows for each in frontier.open.values()) == (10 if options["close"] else 0)
    assert wrong(sink, decided) == []


def test_an_earlier_lineages_folders_grow_old_too(tmp_path: Path) -> None:
    commit(hourly(tmp_path, keep=7200.0, roll=None), 0, 5)
    sink = make(tmp_path, lineage="l2", prepare=False, partition_by=(HOURLY,), close=CLOSE, keep=7200.0)
    sink.prepare(owner="me", lineage="l2", adopt=True)
    stream = sink.stream(replace(batch(0), lineage="l2"), 0, "a", SCHEMA)
    stream.write(pa.RecordBatch.from_pylist([{"id": 1, "ts": START + dt.timedelta(hours=9)}], schema=arrow_schema(SCHEMA)))
    sink.publish(Decided(replace(batch(0), lineage="l2"), "h0", (stream.close(),)))
    keep_folder(tmp_path / "out", may)
    keep_folder(tmp_path / "out", may)
    assert [name.rpartition("/")[0] for name in visible(tmp_path)] == ["dt=2026-01-01/hour=09"]


@pytest.mark.parametrize("keep", [None, 1e9])
def test_an_earlier_lineage_deletes_as_the_flow_says_now(tmp_path: Path, keep: float | None) -> None:
    commit(hourly(tmp_path, keep=7200.0, roll=None), 0, 5)
    sink = make(tmp_path, lineage="l2", prepare=False, partition_by=(HOURLY,), close=CLOSE, keep=keep)
    sink.prepare(owner="me", lineage="l2", adopt=True)
    stream = sink.stream(replace(batch(0), lineage="l2"), 0, "a", SCHEMA)
    stream.write(pa.RecordBatch.from_pylist([{"id": 1, "ts": START + dt.timedelta(hours=9)}], schema=arrow_schema(SCHEMA)))
    sink.publish(Decided(replace(batch(0), lineage="l2"), "h0", (stream.close(),)))
    for _ in range(3):
        keep_folder(tmp_path / "out", may)
    assert rows_in(tmp_path, 0) == 1


def test_a_folder_that_was_to_be_deleted_is_read_when_it_is_kept_for_longer(tmp_path: Path) -> None:
    top = tmp_path / "out"
    commit(hourly(tmp_path, keep=7200.0, close=None, roll=None), 0, 5)
    (old,) = visible(tmp_path)
    first, second = ReadLease(top, "first"), ReadLease(top, "second")
    first.hold({old})
    sink = hourly(tmp_path, keep=7200.0, close=None, roll=None)
    commit(sink, 1, 185)
    keep_folder(top, may)
    assert second.hold({old}) == {old}
    hourly(tmp_path, close=None, roll=None)
    first.let_go({old})
    keep_folder(top, may)
    assert second.hold({old}) == set()
    keep_folder(top, may)
    assert rows_in(tmp_path, 0) == 1


def test_a_folder_that_a_reader_holds_makes_no_turn_of_each_batch(tmp_path: Path) -> None:
    sink = hourly(tmp_path, keep=7200.0, close=None, roll=None)
    commit(sink, 0, 5)
    ReadLease(tmp_path / "out", "other").hold(set(visible(tmp_path)))
    for number in range(1, 7):
        commit(sink, number, 185)
        keep_folder(tmp_path / "out", may)
    assert newest_turn(LineageFolder(tmp_path / "out/_scribengin" / LINEAGE))[0] == 0


@pytest.mark.parametrize("back", [False, True])
def test_folders_of_an_earlier_path_are_closed_and_deleted_as_before(tmp_path: Path, back: bool) -> None:
    first, second = ({"time": "ts", "path": path} for path in (("dt=%Y-%m-%d", HOURLY["path"])[:: -1 if back else 1]))
    decided = [commit(hourly(tmp_path, partition_by=(first,), keep=86400.0 * 3), 0, 5)]
    sink = hourly(tmp_path, partition_by=(second,), keep=86400.0 * 3)
    decided.append(commit(sink, 1, 60 * 24 + 20))
    keep_folder(tmp_path / "out", may)
    place = "dt=2026-01-01/hour=00" if back else "dt=2026-01-01"
    assert (tmp_path / "out" / place / "_COMPLETE.json").exists()
    decided.append(commit(hourly(tmp_path, partition_by=(second,), keep=86400.0 * 3), 2, 60 * 24 * 4 + 20))
    for _ in range(2):
        keep_folder(tmp_path / "out", may, flush=True)
    assert [name for name in visible(tmp_path) if name.startswith("dt=2026-01-01/")] == []
    assert wrong(sink, decided) == []


def test_a_folder_of_two_zones_ends_with_the_later_one(tmp_path: Path) -> None:
    lineage = LineageFolder(tmp_path / "out/_scribengin" / LINEAGE)
    for zone in ("America/New_York", "UTC", "America/New_York", "UTC"):
        hourly(tmp_path, partition_by=({"time": "ts", "path": "dt=%Y-%m-%d", "time_zone": zone},))
    keeping = RetentionSettings.read(lineage)
    assert keeping is not None
    assert [each.zone for each in keeping.earlier] == ["America/New_York"]
    assert keeping.end_us("dt=2026-01-01/") == dt.datetime(2026, 1, 2, 5, tzinfo=dt.UTC).timestamp() * 1e6


def test_a_flow_that_reads_what_is_kept_for_a_short_while_finds_every_file_that_it_has_taken(tmp_path: Path) -> None:
    """Writer, keeper and reader at once: what was handed out is there when it is read, late as that may be."""
    sink = hourly(tmp_path, keep=7200.0, close=None, roll={"size": 100, "every": 0.1})
    commit(sink, 0, 5)
    over, wrong_, seen, turns = threading.Event(), list[object](), set[int](), 0

    def keep() -> None:
        nonlocal turns
        while not over.wait(0.005):
            try:
                keep_folder(tmp_path / "out", may)
            except Exception as error:
                wrong_.append(error)
            turns += 1

    source = FilesSource(
        ConnectorContext(
            "s", tmp_path, SOURCE.filled({"path": "out/dt=*/hour=*/*.jsonl", "format": "json", "settle": 0.0}), SCHEMA, flow="other"
        )
    )
    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        reader = source.reader()
        reader.restore([])
        for number in range(1, 20):
            streams = reader.split(BatchLimits(), final=True)
            commit(sink, number, *(180 * number + n for n in range(3)))
            begun, deadline = turns, time.monotonic() + 60
            while turns < begun + 3 and time.monotonic() < deadline:  # the keeper has had the time to delete what was taken
                time.sleep(0.001)
            for stream in streams:
                for block in source.read(stream):
                    seen |= {row["id"] for row in source.decoder().rows(block).rows}
            reader.let_go(streams)
    finally:
        over.set()
        keeper.join()
    assert wrong_ == []
    assert len(seen) > 30


def test_a_member_of_a_group_that_was_passed_over_starts_again_behind_an_older_row(tmp_path: Path) -> None:
    options = SINK.filled({"path": "out", "format": "json", "partition_by": (HOURLY,)})

    def started() -> FilesSink:
        sink = FilesSink(ConnectorContext("kept", tmp_path, options, member="a"))
        sink.prepare(owner="me", lineage=LINEAGE)
        return sink

    commit(started(), 0, 300)
    last = commit(started(), 3, 60)
    started().recover(last, lineage=LINEAGE, before=4)
    assert len(visible(tmp_path)) == 2


def test_what_another_flow_is_just_done_with_is_put_off_and_taken_where_it_stays(tmp_path: Path) -> None:
    sink = hourly(tmp_path, close=None, roll=None)
    commit(sink, 0, 5)
    commit(sink, 1, 65)
    top, (one, two) = tmp_path / "out", visible(tmp_path)
    place = ConnectorContext(
        "s", tmp_path, SOURCE.filled({"path": "out/dt=*/hour=*/*.jsonl", "format": "json", "settle": 0.0}), SCHEMA, flow="f"
    )
    reader = FilesSource(place).reader()
    reader.restore([])
    with going(top, {one, two}, "other"):
        assert reader.split(BatchLimits(), final=True) == []
        assert not leased(top, {one, two}, time.time()), "who is done with it need not wait for one who gives way"
        (top / one).unlink()
    (stream,) = reader.split(BatchLimits(), final=True)
    assert (two in str(stream.place), one in str(stream.place), stream.skipped) == (True, False, False)
    assert leased(top, {two}, time.time(), but="other")
    with going(top, {one, two}, "f"):
        assert reader.split(BatchLimits(), final=True) == []


def test_a_file_that_is_going_to_be_deleted_is_told_and_counted_as_lost(tmp_path: Path) -> None:
    sink = hourly(tmp_path, keep=7200.0, close=None, roll=None)
    commit(sink, 0, 5)
    (old,) = visible(tmp_path)
    holder = ReadLease(tmp_path / "out", "another")
    holder.hold({old})
    commit(sink, 1, 185)
    keep_folder(tmp_path / "out", may)
    place = ConnectorContext(
        "s", tmp_path, SOURCE.filled({"path": "out/dt=*/hour=*/*.jsonl", "format": "json", "settle": 0.0}), SCHEMA, flow="f"
    )
    reader = FilesSource(place).reader()
    reader.restore([])
    streams = reader.split(BatchLimits(), final=True)
    assert [(stream.skipped, old in stream.lost) for stream in streams] == [(False, False), (True, True)]
    assert any(old in notice for notice in reader.notices())
    assert reader.split(BatchLimits(), final=True) == []


def reading(folder: Path, path: str, **options: Any) -> FilesReader:
    given = {"path": path, "format": "json", "settle": 0.0} | options
    reader = FilesSource(ConnectorContext("s", folder, SOURCE.filled(given), SCHEMA, flow="other")).reader()
    reader.restore([])
    return reader


@pytest.mark.parametrize("path", ["*/dt=*/hour=*/*.jsonl", "out/**/*", "link/*/*.jsonl"])
def test_a_reader_holds_what_it_takes_wherever_its_path_begins(tmp_path: Path, path: str) -> None:
    commit(hourly(tmp_path, keep=7200.0, close=None, roll=None), 0, 5)
    commit(hourly(tmp_path, node="more", path="more", keep=7200.0, close=None, roll=None), 0, 5)
    (tmp_path / "link").symlink_to(tmp_path / "out/dt=2026-01-01")
    reader = reading(tmp_path, path)
    streams = reader.split(BatchLimits(), final=True)
    assert leased(tmp_path / "out", set(visible(tmp_path)), time.time())
    assert bool(list((tmp_path / "more").glob("_scribengin/readers/*"))) == path.startswith("*")
    reader.let_go(streams)
    assert not leased(tmp_path / "out", set(visible(tmp_path)), time.time())
    assert list(tmp_path.glob("*/_scribengin/readers/*")) == []


def test_a_reader_that_finds_many_files_that_are_being_deleted_goes_on_behind_them(tmp_path: Path) -> None:
    sink = hourly(tmp_path, keep=7200.0, close=None, roll=None)
    commit(sink, 0, 5)
    (old,) = visible(tmp_path)
    with_lease = ReadLease(tmp_path / "out", "first")
    with_lease.hold({old})
    commit(sink, 1, 185)
    keep_folder(tmp_path / "out", may)
    for nth in range(150):
        (tmp_path / "out" / old).with_name(old.rpartition("/")[2].replace("-00000-000", f"-00000-{nth + 1:03d}")).write_bytes(b"{}\n")
    reader = reading(tmp_path, "out/dt=*/hour=*/*.jsonl", max_files=1)
    found = list(iter(lambda: reader.split(BatchLimits(), final=True), []))
    assert ["hour=03" in str(stream) for streams in found for stream in streams if not stream.skipped] == [True]


def test_of_a_reader_and_a_keeper_that_want_one_file_one_gives_way(tmp_path: Path) -> None:
    sink = hourly(tmp_path, keep=7200.0, close=None, roll=None)
    commit(sink, 0, 5)
    top = tmp_path / "out"
    (old,) = visible(tmp_path)
    first = ReadLease(top, "first")
    assert first.hold({old}) == set()
    commit(sink, 1, 185)
    keep_folder(top, may)
    assert ReadLease(top, "second").hold({old}) == {old}, "it is going to be deleted"
    assert kept_top((top / old).parent) == top
    assert leased(top, {old}, time.time())
    assert not leased(top, {old}, time.time(), but="first")
    assert (top / old).exists()
    first.let_go({old})
    keep_folder(top, may)
    assert not (top / old).exists()
    commit(sink, 2, 6)
    (new,) = [name for name in visible(tmp_path) if name.startswith(HOUR.format(0))]
    assert ReadLease(top, "third").hold({new}) == set(), "another file of the same folder"

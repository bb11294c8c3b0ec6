"""Windows by a local clock: Spark's frames, the gate and a plain loop over the tz database agree; late rows are counted over two runs."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from scribengin.core.errors import InputError
from scribengin.core.zones import zone_names
from scribengin.spark.late_rows import window_ends_us, with_local_window
from tests.spark.test_stateless_steps import ran

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import FlowFolder

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana", "Asia/Beirut", "Pacific/Apia", "UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instants() -> list[datetime]:
    """Some of every year, and minutes around the changes of the clocks of 2026 in Berlin, New York, Havana, Beirut and Lord Howe."""
    seeded = random.Random(7)
    spread = [EPOCH + timedelta(days=seeded.randrange(2000, 25_000), seconds=seeded.randrange(86_400)) for _ in range(400)]
    changes = ("2026-03-29T01:00", "2026-10-25T01:00", "2026-11-01T05:00", "2026-11-01T06:00", "2026-03-08T07:00", "2026-03-28T22:00")
    around = [
        datetime.fromisoformat(f"{change}+00:00") + timedelta(minutes=minutes, microseconds=seeded.randrange(10**6))
        for change in (*changes, "2026-10-24T21:00", "2026-04-04T15:00", "2026-10-03T15:30")
        for minutes in range(-200, 200, 7)
    ]
    return [*spread, *around]


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize("hours", [1, 6, 24, 168])
@pytest.mark.parametrize("zone", ZONES)
def test_spark_and_the_gate_see_the_same_window(spark: SparkSession, zone: str, hours: int) -> None:
    moments = instants()
    rows = [(us(moment),) for moment in moments]
    df = spark.createDataFrame(rows, "us BIGINT").selectExpr("us", "timestamp_micros(us) AS ts")
    windowed = with_local_window(df, time="`ts`", size_s=hours * 3600, zone=zone, start="start", end="end")
    found = {
        row["us"]: (row["start"], row["end"])
        for row in windowed.selectExpr("us", "unix_micros(start) AS start", "unix_micros(end) AS end").collect()
    }
    ends = window_ends_us(np.array([us(moment) for moment in moments]), hours * 3600 * 10**6, zone)
    assert [found[us(moment)][1] for moment in moments] == ends.tolist()
    # a row lies in its window, but for the hour that the clock shows twice, of windows that end in it
    assert all(start <= moment for moment, (start, _) in found.items())
    if hours == 24:
        assert all(moment < end for moment, (_, end) in found.items())


@pytest.mark.parametrize("zone", ZONES)
def test_a_day_is_from_midnight_to_midnight_on_the_local_clock(zone: str) -> None:
    region, moments = ZoneInfo(zone), instants()
    ends = window_ends_us(np.array([us(moment) for moment in moments]), 86_400 * 10**6, zone)
    for moment, end in zip(moments, ends.tolist(), strict=True):
        last = (EPOCH + timedelta(microseconds=end - 1)).astimezone(region)
        assert last.date() == moment.astimezone(region).date(), (zone, moment)


def test_a_zone_that_only_python_knows_is_told_at_the_start(folder: FlowFolder) -> None:
    folder.flow(
        """
version: 1
name: days
sources:
  events: {type: files, path: events, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 10m}
steps:
  days: {from: events, aggregate: {window: {time: ts, size: 1d, time_zone: ROC}, columns: {n: count(*)}}}
sinks:
  out: {from: days, type: files, path: out/days, format: json}
"""
    )
    folder.data("events/0.jsonl", [])
    assert "ROC" in zone_names()
    with pytest.raises(InputError, match="does not contain the time zone ROC") as caught:
        ran(folder)
    lines = (folder.path / "flow.yaml").read_text().splitlines()
    assert lines[caught.value.problems[0].place.line - 1].startswith("  days:")


def test_local_days_are_counted_over_batches_and_a_restart_and_added_up_by_the_week(folder: FlowFolder) -> None:
    folder.flow(
        """
version: 1
name: days
sources:
  events: {type: files, path: events, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 10m, max_files: 1}
steps:
  days:
    from: events
    aggregate: {window: {time: ts, size: 1d, time_zone: Europe/Berlin}, columns: {ids: sort_array(collect_list(id))}}
  weeks:
    from: days
    aggregate: {window: {time: window_end, size: 7d, time_zone: Europe/Berlin}, columns: {days: count(*), n: sum(size(ids))}}
sinks:
  out: {from: days, type: files, path: out/days, format: json}
  sums: {from: weeks, type: files, path: out/weeks, format: json}
"""
    )
    files = [
        [(0, "2026-10-24T21:59:00Z"), (1, "2026-10-24T22:00:00Z"), (2, "2026-10-25T00:30:00Z")],
        [(3, "2026-10-25T01:30:00Z"), (4, "2026-10-25T22:59:59Z")],  # the hour that comes twice, and the last second of 25 hours
        [(5, "2026-10-25T23:00:00Z"), (6, "2026-10-24T21:00:00Z")],  # the next day; id 6: its day was closed by 4
        [(7, "2026-10-25T22:30:00Z"), (8, "2026-10-25T23:10:00Z")],
        [(9, "2026-10-25T22:00:00Z"), (10, "2026-10-26T22:50:00Z")],  # id 9: its day was closed by 8
        [(11, "2026-11-30T00:00:00Z")],
        [(12, "2026-11-30T00:00:01Z")],
    ]
    for name, rows in enumerate(files[:4]):
        folder.data(f"events/{name}.jsonl", [{"id": id_, "ts": ts} for id_, ts in rows])
    ran(folder)
    for name, rows in enumerate(files[4:], 4):
        folder.data(f"events/{name}.jsonl", [{"id": id_, "ts": ts} for id_, ts in rows])
    last = ran(folder)

    found = {(row["window_start"][:16], row["window_end"][:16]): row["ids"] for row in folder.read("out/days")}
    held = {id_ for ids in found.values() for id_ in ids}
    assert set(range(11)) - held == {6, 9}, found
    assert {query.name: query.nodes[node].late_dead for query, node in zip(last.queries, ("days", "days+weeks"), strict=True)} == {
        "out": 2,
        "sums": 2,
    }
    assert found[("2026-10-24T22:00", "2026-10-25T23:00")] == [1, 2, 3, 4, 7]
    assert found[("2026-10-25T23:00", "2026-10-26T23:00")] == [5, 8, 10]
    assert sum(row["n"] for row in folder.read("out/weeks")) == len(held)
    assert {row["window_start"][11:16] for row in folder.read("out/weeks")} <= {"22:00", "23:00"}

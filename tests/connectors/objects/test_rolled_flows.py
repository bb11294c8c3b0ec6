"""Flows whose objects are merged, over real stores: what readers see of a run, and lives of kills with a roller in them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from harness.object_stores import address, options, or_skipped
from scribengin.cli.main import main
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.options import SINK
from scribengin.connectors.objects.reading import committed_at

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.objects import ObjectServer
    from tests.conftest import FlowFolder


def test_a_run_that_ends_leaves_large_objects_and_hides_nothing(
    folder: FlowFolder, server: ObjectServer, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = options(server, prefix, format="json", visible="listing", roll={"size": "1MiB", "every": "10m"})
    folder.flow(f"""
version: 1
name: rolled
sources:
  rows: {{type: files, path: data, format: json, schema: "id BIGINT NOT NULL", max_files: 1}}
sinks:
  kept: {json.dumps({"from": "rows", "type": "objects"} | given)}
""")
    for number in range(3):
        folder.data(f"data/{number}.json", [{"id": 10 * number + each} for each in range(10)])
    assert folder.run().balanced
    place = address(server, prefix)
    store = place.open()
    (key,) = [entry.key for entry in store.list() if not entry.key.startswith("_")]
    assert [json.loads(line)["id"] for line in (store.get(key) or b"").splitlines()] == list(range(30))
    assert [each.key for each in committed_at(place).objects] == [key]
    with pytest.raises(SystemExit, match="0"):
        main(["maintain", str(folder.path / "flow.yaml"), "--flush"])
    assert capsys.readouterr().out == f"{given['url']}: nothing to do\n"
    folder.data("data/3.json", [{"id": 30}])
    assert folder.run().balanced
    assert sum(each.rows for each in committed_at(place).objects) == 31
    assert len([entry for entry in store.list() if not entry.key.startswith("_")]) == 2


def test_a_run_closes_folders_by_time_and_late_rows_are_dead_letters_wherever_they_go(folder: FlowFolder) -> None:
    by_time = 'partition_by: [{time: ts, path: "dt=%Y-%m-%d/hour=%H"}], close: {delay: 10m}'
    folder.flow(f"""
version: 1
name: closed
sources:
  rows: {{type: files, path: data, format: json, schema: "id BIGINT NOT NULL, ts TIMESTAMP", max_files: 1}}
sinks:
  there: {{from: rows, type: objects, url: "file://{folder.path}/there", format: json, {by_time}}}
  lake: {{from: rows, type: delta, path: lake, {by_time}}}
""")
    for number, minutes in enumerate([(10, 20), (30, 75), (40, 130)]):
        times = [f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z" for minute in minutes]
        folder.data(f"data/{number}.json", [{"id": 10 * number + nth, "ts": time} for nth, time in enumerate(times)])
    outcome = folder.run()
    assert outcome.balanced
    assert {query.name: query.rows.as_json()["dead"] for query in outcome.queries} == {"there": 1, "lake": 1}
    store = ObjectsAddress.of("there", SINK.filled({"url": f"file://{folder.path}/there", "format": "json"})).open()
    markers = [json.loads(store.get(entry.key) or b"") for entry in store.list("data") if entry.key.endswith("_COMPLETE.json")]
    assert [(each["folder"], each["rows"]) for each in markers] == [("dt=2026-01-01/hour=00/", 3), ("dt=2026-01-01/hour=01/", 1)]
    table = DeltaTable(folder.path / "lake")
    assert datetime.fromtimestamp((table.transaction_version("scribengin.closed") or 0) / 1e6, UTC).isoformat() == markers[1]["watermark"]
    assert table.count() == 5


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("route", ["files-to-objects-rolled", "files-to-hdfs-rolled"])
def test_a_life_of_kills_loses_and_doubles_nothing(public_path: Path, route: str) -> None:
    or_skipped(public_path)
    aims = ("kill@roll.drafts.written", "kill@roll.record.after", "two@roll.record.before", "kill@publish.record.after")
    outcome = run_life(Life("coins", route, False, tuple(Aim(*aim.split("@")) for aim in aims)), 1, public_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome

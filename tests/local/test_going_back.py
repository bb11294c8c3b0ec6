"""Going back to a Batch or a time, and beginning anew: what was said comes twice does, nothing else, and asking twice does it once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from scribengin.control.world import RunId
from scribengin.core.errors import Refused
from scribengin.local.audit import audit_flow, planned_changes
from scribengin.local.positions import decided_ends
from scribengin.local.prepare import prepare
from scribengin.local.rewind import QueryRewind, begin_new_lineage, find_rewinds
from scribengin.registry.memory import MemoryStore
from scribengin.registry.records import Operation, Spec
from scribengin.registry.tree import OPERATION
from scribengin.state.decisions import Decisions
from scribengin.state.lease import take_lease
from scribengin.state.lineage import read_lineage
from scribengin.worker.tasks import Tasks

FLOW = """\
version: 1
name: back
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT", max_files: 1}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""
COUNTED = """\
version: 1
name: back
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, kind STRING, ts TIMESTAMP", watermark: ts 1s, max_files: 1}
steps:
  per: {from: rows, aggregate: {by: [id], window: {time: ts, size: 1m}, columns: {n: count(*)}}}
sinks:
  counts: {from: per, type: files, path: out, format: json}
"""


def prepared_of(folder):
    return prepare(folder.path / "flow.yaml", state=None)


def three_files(folder):
    folder.flow(FLOW)
    for id_, name in enumerate("abc", 1):
        folder.data(f"data/{name}.jsonl", [{"id": id_}])
    assert folder.run().state == "finished"
    return prepared_of(folder)


HOURLY = """\
version: 1
name: back
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", max_files: 1}
sinks:
  kept:
    from: rows
    type: files
    path: out
    format: json
    partition_by: [{time: ts, path: "dt=%Y-%m-%d/hour=%H"}]
    roll: {size: 1MiB, every: 1h}
    close: {delay: 10m, late: LATE}
"""


@pytest.mark.parametrize("late", ["dead", "reopen"])
def test_markers_of_folders_by_time_stay_true_when_a_flow_goes_back(folder, late):
    folder.flow(HOURLY.replace("LATE", late))
    for hour in range(3):
        folder.data(f"data/{hour}.jsonl", [{"id": 10 * hour + n, "ts": f"2026-01-01T0{hour}:{20 + n}:00Z"} for n in range(2)])
    assert folder.run().balanced
    moves = {"moves": [["main", "kept", {"rows": 0}]]}
    tasks_of(folder, Operation(kind="rewind", step="work", version=1, tiers=("main",), arguments=moves))("1")
    result = folder.run()
    assert result.balanced
    said = {}
    for path in (folder.path / "out").glob("dt=*/hour=*/_COMPLETE.json"):
        marker = json.loads(path.read_text())
        said[path.parent.name] = (marker["rows"], marker["version"])
        assert sum(len(part.read_text().splitlines()) for part in path.parent.glob("part-*")) == marker["rows"]
    assert said == dict.fromkeys(("hour=00", "hour=01"), (2, 1) if late == "dead" else (4, 2))
    dead = [row for path in (folder.path / ".scribengin").rglob("dead/**/*.jsonl") for row in path.read_text().splitlines()]
    assert [json.loads(row)["reason"] for row in dead] == (["late"] * 4 if late == "dead" else [])
    assert audit_flow(prepared_of(folder)).balanced


def tasks_of(folder, operation):
    """What a worker does of it, over this folder and a registry in memory."""
    registry = MemoryStore().client()
    registry.commit(OPERATION("back", "1").create(operation))
    spec = Spec(package="p", path="flow.yaml", base=str(folder.path), state=str(prepared_of(folder).root), tiers={})
    packages = SimpleNamespace(get=lambda _: folder.path)
    right = SimpleNamespace(path="r", check=lambda: None)
    return Tasks(registry, RunId("back", "main", 1), spec, packages, right, lambda: folder.spark)


def refused(what):
    with pytest.raises(Refused) as caught:
        what()
    return caught.value.code


@pytest.mark.parametrize(
    ("close", "says"),
    [
        (None, "rows"),
        ({"delay": 1.0}, "rows; rows for closed folders become dead letters (late)"),
        ({"delay": 1.0, "late": "reopen"}, "rows; a closed folder that receives rows loses its completion marker until it is closed again"),
    ],
)
def test_it_says_what_becomes_of_folders_that_are_closed(close, says):
    sink = SimpleNamespace(type="files", place="out", options={"path": "out", "close": close})
    (said,) = QueryRewind("main", "kept", {}, (), {"kept": 2}).says(SimpleNamespace(sinks={"kept": sink}))
    assert said == f"sink kept (out) receives up to 2 rows again, which duplicates existing {says}"


def test_it_says_what_would_repeat_and_then_just_that_does_and_once(folder):
    prepared = three_files(folder)
    (back,) = find_rewinds(prepared, None, batch=0)
    assert (dict(back.starts), dict(back.doubled)) == ({"rows": 1}, {"kept": 2})
    assert back.says(prepared.plan.flow) == [
        "kept reads source rows again from position 1 to 3, 2 files",
        "sink kept (out) receives up to 2 rows again, which duplicates existing rows",
    ]
    operation = Operation(kind="rewind", step="work", version=1, tiers=("main",), arguments={"moves": [["main", "kept", {"rows": 1}]]})
    task = tasks_of(folder, operation)
    task("1")
    query = prepared.tiers[0].folder.query("kept")
    begun = read_lineage(query)
    task("1")
    assert read_lineage(query) == begun, "asked twice, done once"
    assert folder.run().balanced
    assert sorted(row["id"] for row in folder.read("out")) == [1, 2, 2, 3, 3]
    assert audit_flow(prepared_of(folder)).balanced


def test_a_position_forward_is_passed_over_and_the_end_is_all_there_is(folder):
    three_files(folder)
    folder.data("data/d.jsonl", [{"id": 4}])
    operation = Operation(kind="offsets", step="work", version=1, tiers=("main",), arguments={"moves": [["main", "kept", {"rows": None}]]})
    task = tasks_of(folder, operation)
    task("1")
    task("1")
    folder.data("data/e.jsonl", [{"id": 5}])
    assert folder.run().balanced
    assert sorted(row["id"] for row in folder.read("out")) == [1, 2, 3, 5]


def test_a_time_is_the_last_batch_before_it(folder):
    prepared = three_files(folder)
    times = [decision.decided_at for decision in Decisions(prepared.tiers[0].folder.query("kept").decisions).since()]
    at = datetime.fromisoformat(times[-1])
    assert find_rewinds(prepared, None, at=at) == []
    (all_,) = find_rewinds(prepared, None, at=at - timedelta(hours=1))
    assert dict(all_.starts) == {"rows": 0}
    assert find_rewinds(prepared, "kept", at=datetime.now(UTC) + timedelta(days=1)) == []


def test_what_cannot_be_is_refused(folder):
    prepared = three_files(folder)
    assert refused(lambda: find_rewinds(prepared, None, batch=3)) == "batch-unknown"
    assert refused(lambda: find_rewinds(prepared, "other", batch=0)) == "query-unknown"
    (folder.path / "data" / "c.jsonl").unlink()
    assert refused(lambda: find_rewinds(prepared, None, batch=0)) == "rewind-gone"
    (folder.path / "data" / "c.jsonl").touch()
    decisions = Decisions(prepared.tiers[0].folder.query("kept").decisions)
    decisions.fold()
    decisions.prune(datetime.now(UTC) + timedelta(days=1))
    if decisions.pruned_mark() >= 0:
        assert refused(lambda: find_rewinds(prepared, None, batch=0)) == "batch-forgotten"
        assert refused(lambda: find_rewinds(prepared, None, at=datetime(2020, 1, 1, tzinfo=UTC))) == "rewind-nothing"
    operation = Operation(kind="rewind", step="cancelled", version=1, tiers=("main",))
    assert refused(lambda: tasks_of(folder, operation)("1")) == "operation-over"


@pytest.mark.parametrize("how", ["again", "lost"])
def test_a_changed_state_begins_anew_from_the_start_or_from_here(folder, how):
    folder.flow(COUNTED)
    for name, second in (("a", 10), ("b", 20)):
        folder.data(f"data/{name}.jsonl", [{"id": 1, "kind": "x", "ts": f"2026-01-01T10:00:{second}Z"}])
    assert folder.run().state == "finished"
    folder.flow(COUNTED.replace("by: [id]", "by: [kind]"))
    assert planned_changes(prepared_of(folder)).refused
    tier = prepared_of(folder).tiers[0]
    query = tier.folder.query("counts")
    with take_lease(tier.folder) as lease:
        begun = begin_new_lineage(tier, query, how, lease)
        assert begun is not None
        assert begin_new_lineage(tier, query, how, lease) is None, "asked twice, done once"
    assert decided_ends(query) == {"rows": 0 if how == "again" else 2}
    folder.data("data/c.jsonl", [{"id": 1, "kind": "x", "ts": "2026-01-01T10:00:30Z"}])
    for name, minute in (("d", 10), ("e", 20)):
        folder.data(f"data/{name}.jsonl", [{"id": 1, "kind": "end", "ts": f"2026-01-01T10:{minute}:00Z"}])
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True)
    assert [row["n"] for row in folder.read("out") if row["kind"] == "x"] == [3 if how == "again" else 1]
    assert audit_flow(prepared_of(folder)).balanced

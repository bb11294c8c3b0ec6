"""A replay of dead letters that is killed, wherever that may be, and done again: each letter comes through once, and the audit balances."""

import json
import os
import subprocess
import sys

import pytest

from scribengin.core.faults import POINTS, VARIABLE

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

FLOW = """\
version: 1
name: again
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, ok BOOLEAN"}
steps:
  kept_ones: {from: rows, filter: id > 0}
  judged: {from: kept_ones, python: "steps:judge"}
  counted: {from: rows, sql: "SELECT id % 10 AS digit, id FROM rows WHERE id > 0"}
sinks:
  kept: {from: judged, type: files, path: out, format: json}
  digits: {from: counted, type: files, path: digits, format: json}
"""
STRICT = 'def judge(row):\n    row["ok"] = bool(row["ok"])\n    if row["id"] % 5 == 0:\n        raise ValueError("no")\n    return row\n'
MILD = "def judge(row):\n    return row\n"
ASKING = ("replay.asked.before", "replay.asked.after")
RUNNING = tuple(point for point in POINTS if not point.startswith(("lease.", "fold.")))


def scribengin(folder, *arguments, fault=""):
    """(status, result) of a command in a session of its own, which the fault kills as a whole."""
    environment = os.environ | ({VARIABLE: fault} if fault else {})
    command = [sys.executable, "-m", "scribengin.cli", *arguments, "--json"]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, start_new_session=True)
    return ended.returncode, json.loads(ended.stdout)["result"] if ended.stdout else None


def written(folder, path):
    return sorted(json.loads(line)["id"] for part in (folder / path).glob("part-*") for line in part.read_text().splitlines())


@pytest.fixture
def folder(tmp_path):
    """A flow that has run: letters of its source, and of a step behind native ones."""
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "steps.py").write_text(STRICT)
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"id": id_, "ok": True}) for id_ in range(1, 41)]
    (tmp_path / "data" / "a.jsonl").write_text("\n".join([*lines, '{"id": 41, "ok": "yes"}']) + "\n")
    assert scribengin(tmp_path, "run", "flow.yaml", "--once")[0] == 0
    assert written(tmp_path, "out") == [id_ for id_ in range(1, 41) if id_ % 5]
    (tmp_path / "steps.py").write_text(MILD)
    shown = scribengin(tmp_path, "dead-letter", "show", "flow.yaml", "--step", "rows")[1]["letters"]
    status, said = scribengin(tmp_path, "dead-letter", "edit", "flow.yaml", shown[0]["id"], "--set", "ok=true")
    assert (status, said["queries"]) == (0, ["kept", "digits"])
    return tmp_path


def replayed_under_fire(folder, points):
    struck = []
    for point in ASKING:
        scribengin(folder, "dead-letter", "replay", "flow.yaml", "--yes", fault=f"{point}:kill")
    asked = scribengin(folder, "dead-letter", "replay", "flow.yaml", "--yes")[1]
    assert asked["already"] + asked["replayed"] == 8 + 2
    for point in points:
        if scribengin(folder, "run", "flow.yaml", "--once", fault=f"{point}:kill")[0] != 0:
            struck.append(point)
        assert scribengin(folder, "dead-letter", "replay", "flow.yaml", "--yes")[1]["replayed"] == 0
    assert scribengin(folder, "run", "flow.yaml", "--once")[0] == 0
    assert written(folder, "out") == list(range(1, 42))
    assert written(folder, "digits") == list(range(1, 42))
    status, audit = scribengin(folder, "audit", "flow.yaml")
    assert (status, audit["ledger"]["violations"]) == (0, [])
    nodes = {query["name"]: query["nodes"] for query in audit["queries"]}
    assert sum(node.get("replayed", 0) for node in nodes["kept"].values()) == 9
    assert nodes["kept"]["judged"]["in"] == 40 + 1 + 8
    assert sum(group["replayed"] for group in scribengin(folder, "dead-letter", "list", "flow.yaml")[1]["groups"]) == 10
    return struck


@pytest.mark.long
def test_a_replay_that_is_killed_when_asked_when_logged_and_when_decided_comes_through_once(folder):
    assert replayed_under_fire(folder, ("source.logged", "decide.after")) == ["source.logged", "decide.after"]


@pytest.mark.long
def test_a_replay_that_is_killed_at_every_point_comes_through_once(folder):
    struck = replayed_under_fire(folder, RUNNING)
    assert len(struck) > len(RUNNING) / 2, struck

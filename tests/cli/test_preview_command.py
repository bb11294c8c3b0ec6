"""`preview` on the command line: what people see, what programs get, and what `--watch` shows at each save."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from scribengin.cli import preview_view
from scribengin.local.preview_contract import PreviewSettings

FLOW = """\
version: 1
name: small
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE"}
steps:
  some: {from: orders, python: "steps:some"}
sinks:
  kept: {from: some, type: files, path: out, format: json}
"""
STEPS = """\
def some(row):
    if row["id"] == 2:
        raise ValueError("two")
    return row["amount"] > 1 and row | {"amount": row["amount"] * 10}
"""
DEADLINE_S = 120


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text("".join(json.dumps({"id": n, "amount": float(n)}) + "\n" for n in range(4)))
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path / "flow.yaml"


def test_rows_stand_before_and_after_with_those_that_are_dropped_and_dead_marked(command, flow):
    ended = command("preview", flow, "--at", "some")
    assert ended.status == 0, ended.err
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "4 in -> 1 out, 2 dropped, 1 dead" in lines
    assert "- 0 0.0 │" in lines
    assert "x 2 2.0 │" in lines
    assert "3 3.0 │ 30.0" in lines
    assert f"x raised: ValueError: two (steps.py:3, record at {flow.parent}/data/a.jsonl:3)" in lines


def test_json_has_every_node_and_a_mistake_its_place_and_status(command, flow):
    found = command("preview", flow, "--json").object["result"]
    assert [(node["node"], node["in"], node["out"], node["dropped"], node["dead"]) for node in found["nodes"]] == [
        ("orders", 4, {"": 4}, 0, 0),
        ("some", 4, {"": 1}, 2, 1),
        ("kept", 1, {"": 1}, 0, 0),
    ]
    assert found["nodes"][1]["rows"][3]["after"] == [{"branch": "", "row": {"id": 3, "amount": 30.0}}]
    few = command("preview", flow, "--rows", "1", "--json").object["result"]["nodes"][0]
    assert (few["in"], len(few["rows"])) == (4, 1), "few rows are shown of a sample that is no smaller"
    assert command("preview", flow, "--at", "sume", "--json").codes == ["preview-at"]
    (flow.parent / "steps.py").write_text("raise RuntimeError('not today')\ndef some(row): ...\n")
    broken = command("preview", flow, "--json")
    assert (broken.status, broken.codes) == (2, ["step-failed"])
    assert broken.object["problems"][0]["line"] == 6


def test_watch_shows_each_save_and_a_broken_one_leaves_the_last_good_preview(flow, tmp_path):
    said = tmp_path / "said"
    before = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "scribengin.cli", "run", str(flow), "--watch", "--json"], stdout=subprocess.PIPE, stderr=out, env=before
        )

    def wait(text: str, times: int = 1) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while said.read_text().count(text) < times:
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)
        return said.read_text()

    try:
        wait("Ctrl-C ends")
        (tmp_path / "steps.py").write_text(STEPS.replace("* 10", "* 70"))
        wait("210.0", 2)
        flow.write_text(FLOW.replace("from: some", "from: sume"))
        shown = wait("has errors; the last preview without errors is of")
        assert 'reads "sume", which is not defined; did you mean "some"?' in shown
        (tmp_path / "steps.py").write_text("raise RuntimeError('not today')\ndef some(row): ...\n")
        flow.write_text(FLOW)
        assert "not reached" not in wait("RuntimeError: not today")
        (tmp_path / "steps.py").write_text(STEPS.replace("* 10", "* 70"))
        wait("210.0", 4)
        (tmp_path / "steps.py").write_text("raise RuntimeError('nor now')\ndef some(row): ...\n")
        wait("nor now")
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert [node["failure"] for node in json.loads(shown)["result"]["nodes"]] == ["", "", ""], "the last good one"
    finally:
        process.kill()
        process.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "flow.yaml", "said", "steps.py"], "nothing was written"


def test_watch_ends_at_a_signal_whose_exception_was_dropped(flow, monkeypatch):
    """As inside a destructor or a callback of a library, where Python cannot raise it any further."""
    looks = []

    def stamps(_path):
        looks.append(len(looks))
        assert len(looks) < 20, "it goes on"
        if len(looks) == 5:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        return {}

    monkeypatch.setattr(preview_view, "stamps", stamps)
    monkeypatch.setattr(preview_view, "LOOK_S", 0.0)
    monkeypatch.setattr(preview_view, "SETTLED_S", 0.0)
    before = signal.getsignal(signal.SIGINT)
    answer = preview_view.watch_previews(flow, PreviewSettings())
    assert [node["node"] for node in answer.result["nodes"]] == ["orders", "some", "kept"]
    assert signal.getsignal(signal.SIGINT) is before


def test_watch_runs_nothing_and_refuses_what_would(command, flow):
    ended = command("run", flow, "--watch", "--once")
    assert ended.status == 2
    assert "--watch only previews" in ended.err

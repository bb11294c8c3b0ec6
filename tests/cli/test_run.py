"""`init`, `run`, `plan`, `dead`, `source`, `reset` as a person uses them: real processes, real Spark, about three sessions."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scribengin.connectors.files.pieces import FilePiece, streams_of
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import open_lineage
from scribengin.state.source_log import SourceLog

ENDLESS = """
version: 1
name: endless
sources:
  numbers: {type: sequence, rate: 50}
sinks:
  kept: {from: numbers, type: files, path: out, format: json, trigger: 200ms}
"""


def scribengin(*arguments, folder):
    """(status, the one object, stderr)"""
    command = [sys.executable, "-m", "scribengin.cli", *map(str, arguments), "--json"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, json.loads(ended.stdout), ended.stderr


def ran(folder):
    """What the run said of the flow that `init` makes there."""
    status, said, _ = scribengin("init", ".", folder=folder)
    assert (status, said["result"]["flow"]) == (0, "flow.yaml")
    return scribengin("run", "flow.yaml", "--once", folder=folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder whose flow was run once, which no test changes; and what the run said."""
    folder = tmp_path_factory.mktemp("orders")
    return folder, ran(folder)


@pytest.mark.timeout(300)
def test_the_flow_of_init_runs_and_its_ledger_balances(finished):
    folder, (status, said, progress) = finished
    assert status == 0, progress
    assert (said["command"], said["ok"]) == ("run", True)
    result = said["result"]
    assert list(result) == ["flow", "state", "folder", "queries", "ledger"]
    assert (result["flow"], result["state"], result["ledger"]) == ("orders", "finished", {"balanced": True, "violations": []})
    (query,) = result["queries"]
    assert query["rows"] == query["this_run"]
    assert query["rows"]["in"] == 1002
    assert query["rows"]["dead"] == 6
    assert query["rows"]["in"] + query["rows"]["made"] == query["rows"]["out"] + query["rows"]["filtered"] + query["rows"]["dead"]
    written = [json.loads(line) for path in Path(folder, "out/large").rglob("part-*") for line in path.read_text().splitlines()]
    assert len(written) == query["rows"]["out"]
    assert "orders ended" in progress


@pytest.mark.timeout(300)
def test_looking_at_a_finished_flow_needs_no_java(finished, monkeypatch):
    folder, _ = finished
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    status, said, _ = scribengin("plan", "flow.yaml", folder=folder)
    assert (status, [change["fate"] for change in said["result"]["changes"]]) == (0, ["unchanged"])
    status, said, _ = scribengin("audit", "flow.yaml", folder=folder)
    assert (status, said["result"]["ledger"]["balanced"]) == (0, True)
    status, said, _ = scribengin("dead-letter", "list", "flow.yaml", folder=folder)
    assert (status, said["result"]["dead"]) == (0, 6)
    status, said, _ = scribengin("offsets", "show", "flow.yaml", folder=folder)
    assert (status, [row["position"] for row in said["result"]["sources"]]) == (0, [1])


@pytest.mark.timeout(300)
def test_audit_tells_a_file_that_was_taken_away_and_reset_starts_anew(tmp_path):
    folder = tmp_path
    assert ran(folder)[0] == 0
    lost = next(Path(folder, "out/large").rglob("part-*"))
    kept = lost.read_bytes()
    lost.unlink()
    status, said, _ = scribengin("audit", "flow.yaml", folder=folder)
    assert (status, said["result"]["ledger"]["balanced"]) == (1, False)
    lost.write_bytes(kept)

    status, said, _ = scribengin("reset", "flow.yaml", "--outputs", folder=folder)
    assert (status, said["problems"][0]["code"]) == (2, "reset-unsaid")
    assert lost.exists()
    Path(folder, "out/large/mine.txt").write_text("of someone else")
    status, said, _ = scribengin("reset", "flow.yaml", "--outputs", "--yes", folder=folder)
    assert (status, [query["query"] for query in said["result"]["queries"]]) == (0, ["kept"])
    assert [path.name for path in Path(folder, "out/large").glob("*") if path.is_file()] == ["mine.txt"]
    status, said, _ = scribengin("audit", "flow.yaml", folder=folder)
    assert (status, said["problems"][0]["code"]) == (2, "state-missing")


def test_a_file_that_is_gone_before_its_commit_can_be_given_up(tmp_path):
    """The state is that of a run that died after the source had logged what it took."""
    (tmp_path / "flow.yaml").write_text(ENDLESS.replace("{type: sequence, rate: 50}", "{type: files, path: data, format: text}"))
    part = StateFolder(tmp_path / ".scribengin", "endless").query("kept")
    open_lineage(part, owner="o", fingerprint="f", state_fingerprint="", sources=["numbers"])
    pieces = [FilePiece(name, 10, 0, 0, 0, 10, 10) for name in ("a.txt", "b.txt")]
    SourceLog(part.sources, "numbers").append(0, streams_of(pieces, root="data", stream_bytes=1))
    status, said, _ = scribengin("offsets", "skip", "flow.yaml", "c.txt", folder=tmp_path)
    assert (status, said["problems"][0]["code"]) == (2, "skip-unknown")
    status, said, _ = scribengin("offsets", "skip", "flow.yaml", "data/b.txt", folder=tmp_path)
    assert (status, said["result"]["skipped"]) == (0, [{"query": "kept", "source": "numbers", "file": "b.txt", "bytes": 10}])
    assert [stream.label for stream in SourceLog(part.sources, "numbers").read(0)] == ["a.txt"]


@pytest.fixture
def endless(tmp_path):
    """A continuous run that has written something; ended by the test."""
    (tmp_path / "flow.yaml").write_text(ENDLESS)
    command = [sys.executable, "-m", "scribengin.cli", "run", "flow.yaml", "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("out/part-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.timeout(300)
def test_the_first_interrupt_finishes_the_batch_and_says_so(endless, tmp_path):
    status, said, _ = scribengin("run", "flow.yaml", folder=tmp_path)
    assert (status, said["problems"][0]["code"]) == (2, "already-running")
    assert str(endless.pid) in said["problems"][0]["message"]
    os.kill(endless.pid, signal.SIGINT)
    out, err = endless.communicate(timeout=100)
    assert endless.returncode == 0, err
    assert "stopping after the current Batch" in err
    result = json.loads(out)["result"]
    assert (result["state"], result["ledger"]["balanced"]) == ("stopped", True)
    written = [json.loads(line)["id"] for path in sorted(tmp_path.glob("out/part-*")) for line in path.read_text().splitlines()]
    assert written == list(range(len(written)))


@pytest.mark.timeout(300)
def test_the_second_interrupt_leaves_at_once_with_130(endless):
    os.kill(endless.pid, signal.SIGSTOP)  # both signals wait: the second is there before the first is dealt with
    os.kill(endless.pid, signal.SIGINT)
    os.kill(endless.pid, signal.SIGTERM)
    os.kill(endless.pid, signal.SIGCONT)
    endless.communicate(timeout=100)
    assert endless.returncode == 130, "one that finishes its Batch ends with 0"

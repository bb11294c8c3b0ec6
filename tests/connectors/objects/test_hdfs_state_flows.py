"""Flows whose state lies in an HDFS: what is left when they die, and when its NameNode or DataNode is away for a while."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from harness.faults.hdfs_flows import ALL_THERE
from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.core import faults
from scribengin.core.process import within
from scribengin.embedded.hdfs import Hdfs
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark import query

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.contract import RunResult, RunView
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: shop
sources:
  orders:
    type: files
    path: data
    format: json
    settle: 0s
    watermark: at 1m
    on_error: dead_letter
    schema: "id BIGINT NOT NULL, at TIMESTAMP"
steps:
  minutes: {from: orders, sql: "SELECT window.start AS minute, count(*) AS n FROM orders GROUP BY window(at, '1 minute')"}
sinks:
  kept: {from: orders, type: files, path: out, format: json}
  counted: {from: minutes, type: files, path: counts, format: json}
"""


def orders(minute: int, *ids: int) -> list[dict[str, Any]]:
    return [{"id": id_, "at": f"2026-01-01T00:{minute:02}:00Z"} for id_ in ids]


def command(folder: FlowFolder, state: HdfsPath, *words: str) -> list[str]:
    return [sys.executable, "-m", "scribengin.cli", *words, str(folder.path / "flow.yaml"), "--state", str(state)]


def ids(folder: FlowFolder) -> list[int]:
    return sorted(row["id"] for row in folder.read("out"))


@pytest.fixture
def state(hdfs: Hdfs, prefix: str) -> HdfsPath:
    return HdfsPath.of(f"{hdfs.uri}/{prefix}/state")


# long: beside a load of twelve its second run has failed once, and the test did not say why; it does now
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_run_that_was_killed_goes_on_from_what_lies_there_and_its_audit_is_clean(folder: FlowFolder, state: HdfsPath) -> None:
    folder.flow(FLOW).data("data/a.jsonl", [*orders(0, 1, 2), *orders(1, 3), "torn"])
    struck = os.environ | {faults.VARIABLE: "publish.record.after:kill"}
    with subprocess.Popen(command(folder, state, "run", "--once"), env=struck, start_new_session=True, stdout=subprocess.DEVNULL) as driver:
        assert driver.wait(200) == -signal.SIGKILL
    folder.data("data/b.jsonl", [*orders(5, 4)])
    result = folder.run(state=state)
    assert (result.state, result.violations) == ("finished", ()), result.problems
    assert ids(folder) == [1, 2, 3, 4]
    folder.data("data/c.jsonl", orders(9, 5))
    assert folder.run(state=state).violations == ()
    assert ids(folder) == [1, 2, 3, 4, 5]
    assert sorted((row["minute"][14:16], row["n"]) for row in folder.read("counts")) == [("00", 2), ("01", 1), ("05", 1)]
    assert (state / "shop" / "main" / "counted" / "checkpoint" / "offsets").is_dir(), "Spark's own lies there too"
    assert not (folder.path / ".scribengin" / "shop" / "main" / "kept").exists(), "nothing but logs stays on this machine"
    for words, wanted in ((("audit",), b"balances"), (("dead-letter", "show"), b"torn"), (("status",), b"stopped")):
        said = subprocess.run(command(folder, state, *words), capture_output=True, check=False, timeout=60)
        assert said.returncode == 0, said
        assert wanted in said.stdout, said
    said = subprocess.run(command(folder, state, "reset", "--outputs", "--yes"), capture_output=True, check=False, timeout=60)
    assert said.returncode == 0, said
    assert ids(folder) == []


def beside(folder: FlowFolder, state: HdfsPath, stop: threading.Event, views: list[RunView]) -> tuple[threading.Thread, list[RunResult]]:
    """A run that goes on until it is stopped, in this process."""
    results: list[RunResult] = []
    settings = RunSettings(state=state, stop=stop)
    flow = folder.path / "flow.yaml"
    thread = threading.Thread(target=lambda: results.append(run_flow(flow, settings, views.append, spark=folder.spark)))
    thread.start()
    return thread, results


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_flow_waits_for_the_name_node_and_goes_on(
    folder: FlowFolder, hdfs: Hdfs, state: HdfsPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "BACK_OFF_S", (0.0, 1.0, 2.0))
    folder.flow(f"{FLOW.partition('steps:')[0]}sinks: {{kept: {{from: orders, type: files, path: out, format: json}}}}")
    folder.data("data/a.jsonl", orders(0, 1, 2))
    stop, views = threading.Event(), list[Any]()
    thread, results = beside(folder, state, stop, views)
    try:
        assert within(100.0, lambda: ids(folder) == [1, 2])
        hdfs.name_node.kill()
        begun = time.monotonic()
        folder.data("data/b.jsonl", orders(1, 3))
        assert within(60.0, lambda: bool(waiting(views)))
        time.sleep(max(0.0, begun + 10.0 - time.monotonic()))
        assert thread.is_alive()
        recovering = waiting(views)
        hdfs.start()
        assert within(100.0, lambda: ids(folder) == [1, 2, 3])
    finally:
        hdfs.start()
        stop.set()
        thread.join(60)
    assert "hdfs://" in recovering[0].message
    assert "restarts" in recovering[0].message
    (result,) = results
    assert (result.state, result.violations) == ("stopped", ())
    said = subprocess.run(command(folder, state, "audit"), capture_output=True, check=False, timeout=60)
    assert said.returncode == 0, said


def waiting(views: list[Any]) -> list[Any]:
    return [live for view in views for live in view.queries if live.state == "recovering"]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("node", ["name_node", "data_node"])
def test_a_flow_waits_a_minute_for_either_node(folder: FlowFolder, tmp_path: Path, node: str) -> None:
    with Hdfs(tmp_path / "hdfs") as hdfs:
        state = HdfsPath.of(f"{hdfs.uri}/state")
        folder.flow(FLOW).data("data/a.jsonl", orders(0, 1, 2))
        with subprocess.Popen(command(folder, state, "run"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            try:
                assert within(150.0, lambda: ids(folder) == [1, 2])
                getattr(hdfs, node).kill()
                folder.data("data/b.jsonl", orders(5, 3))
                time.sleep(60.0)
                assert driver.poll() is None
                hdfs.start()
                assert within(200.0, lambda: ids(folder) == [1, 2, 3])
                folder.data("data/c.jsonl", orders(9, 4))
                assert within(150.0, lambda: ids(folder) == [1, 2, 3, 4])
            finally:
                driver.send_signal(signal.SIGINT)
                driver.wait(60)
        assert folder.run(state=state).violations == ()
        assert ids(folder) == [1, 2, 3, 4]
        said = subprocess.run([*command(folder, state, "audit"), "--json"], capture_output=True, check=False, timeout=60)
        assert json.loads(said.stdout)["ok"], said


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "aims"),
    [
        ("coins", ("kill@state.drafted", "server@decide.after", "kill@publish.renamed")),
        ("aggregate", ("kill@decide.after", "server@state.drafted", "die@state.renamed")),
    ],
)
def test_a_life_of_kills_with_all_of_it_there_loses_and_doubles_nothing(public_path: Path, kind: str, aims: tuple[str, ...]) -> None:
    life = Life(kind, ALL_THERE, False, tuple(Aim(*aim.split("@")) for aim in aims))
    outcome = run_life(life, 1, public_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome

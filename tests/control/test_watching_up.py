"""What is seen of flows under `scribengin server dev`: real processes, real ZooKeeper, real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import psutil
import pytest

from harness.dev_plane import end_all
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FLOW = """\
version: 1
name: endless
sources: {numbers: {type: sequence, rate: 200}}
steps: {even: {from: numbers, utilities: ["steps:even", "steps:small"], order: free}}
sinks: {kept: {from: even, type: files, path: out, format: json, trigger: 500ms, to: disks}}
groups: {disks: {members: [{at: HERE/near, name: near}, {at: HERE/far, name: far, cost: 2}]}}
max_delay: 5m
alerts:
  loop: {when: restarts over 0 in 10m, command: [sh, -c, 'echo "$SCRIBENGIN_ALERT_NAME $SCRIBENGIN_ALERT_STATE" >> TOLD']}
  stuck: {when: no progress for 10m}
"""
STEPS = """\
def even(row) -> bool:
    if row["id"] % 50 == 0:
        raise ValueError("a fifty")
    return row["id"] % 2 == 0


def small(row) -> bool:
    return row["id"] >= 0
"""


class Bench:
    """A control plane of one machine, with a flow that never ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "flow", folder / "home"
        self.folder.mkdir()
        (self.folder / "flow.yaml").write_text(FLOW.replace("TOLD", str(folder / "told")).replace("HERE", str(folder)))
        for member in ("near", "far"):
            (folder / member).mkdir()
        (self.folder / "steps.py").write_text(STEPS)
        self.environment = os.environ | {"SCRIBENGIN_HOME": str(self.home)}
        self.address = ""

    @contextmanager
    def up(self) -> Iterator[subprocess.Popen[bytes]]:
        """`scribengin server dev`, until it answers; at the end it is killed, and its workers go on."""
        (self.home / "up.json").unlink(missing_ok=True)
        with (self.folder / "up.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "scribengin.cli", "server", "dev"], env=self.environment, stdout=log, stderr=log
            )
        try:
            until(lambda: (self.home / "up.json").exists() or process.poll() is not None, "up", 120)
            assert process.poll() is None, (self.folder / "up.log").read_text()
            self.address = json.loads((self.home / "up.json").read_text())["http"]
            yield process
        finally:
            process.kill()
            process.wait()

    def says(self, *words: str) -> Any:
        command = [sys.executable, "-m", "scribengin.cli", *words, "--json"]
        ended = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600, check=False)
        assert ended.returncode == 0, f"{words}: {ended.stdout} {ended.stderr}"
        return json.loads(ended.stdout)["result"]

    def asks(self, path: str) -> Any:
        answer = httpx2.get(f"{self.address}{path}", timeout=60, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json() if "json" in answer.headers["content-type"] else answer.text


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    end_all(bench.home)


def until(what: Callable[[], Any], said: str, wait_s: float = 240) -> Any:
    return look_until(what, said, wait_s, 0.2)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_rates_lag_and_attempts_of_a_flow_are_seen_over_http_also_when_its_worker_and_its_master_were_killed(
    bench: Bench, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    with bench.up():
        bench.says("apply", "flow.yaml", "--wait", "4m")
        a_worker_is_seen_and_its_successor_too(bench)
        # what the flow file asks for is told, once, and a test is told too
        until(told.exists, "the alert")
        shown = {alert["alert"]: alert["state"] for alert in bench.says("alerts", "list", "endless")}
        assert shown == {"loop": "firing", "stuck": "quiet"}
        assert [each["ok"] for each in bench.says("alerts", "test", "endless", "loop")] == [True, True]
        assert told.read_text() == "loop firing\nloop test\n"
        assert 'scribengin_alert_firing{alert="loop",flow="endless"} 1.0' in bench.asks("/metrics")
        (row,) = bench.says("top", "--once")
        assert (row["flow"], row["now"]["restarts"]) == ("endless", 1)
        until(lambda: bench.asks("/v1/registry/flows/endless/alerts")["value"], "the record of what was told")
    # the master is gone, and with it what it knew: the next one hears it from the worker, and tells nobody anything twice
    with bench.up():
        until(lambda: moves(bench), "the rates, at the next master")
        assert {alert["alert"]: alert["state"] for alert in bench.asks("/v1/flows/endless/alerts")} == {"loop": "firing", "stuck": "quiet"}
        assert told.read_text() == "loop firing\nloop test\n"
        newest, first, *_ = bench.says("describe", "endless", "--attempts")["attempts"]
        assert (newest["state"], first["state"], bool(first["cause"])) == ("running", "ended", True)
        graph = bench.says("graph", "endless", "--steps")
        assert all(node["live"] for node in graph["nodes"] if node["kind"] in ("source", "sink"))
        assert bench.says("dead-letter", "list", "endless")["dead"] > 0
        assert bench.says("dead-letter", "show", "endless", "--limit", "1")["letters"][0]["payload"]
        a_member_is_taken_out_and_let_back(bench, tmp_path)


def a_member_is_taken_out_and_let_back(bench: Bench, folder: Path) -> None:
    def states() -> dict[str, str]:
        return {each["member"]: each["seen"][0]["state"] for each in bench.says("group", "show", "disks")["members"] if each["seen"]}

    def parts(member: str) -> int:
        return len(list((folder / member).glob("out/part-*")))

    until(lambda: states() == {"near": "healthy", "far": "healthy"}, "how its members stand")
    assert (parts("near") > 0, parts("far")) == (True, 0)
    bench.says("groups", "set", "disks", "near", "--out", "--why", "disk is swapped")
    until(lambda: parts("far"), "Batches at the other member")
    until(lambda: states() == {"near": "out", "far": "healthy"}, "that it is out")
    before = parts("near")
    until(lambda: parts("far") > 3, "more of them")
    assert parts("near") == before
    bench.says("groups", "set", "disks", "near", "--back")
    until(lambda: parts("near") > before, "Batches at the first member again")


def moves(bench: Bench, after: str = "") -> Any:
    """What is told of the flow, where another worker than that serves it and rows move; else None. A master that does not lead yet, or has
    just begun to, knows nothing."""
    answer = httpx2.get(f"{bench.address}/v1/flows/endless/metrics", timeout=60, trust_env=False)
    if answer.status_code in (307, 503):
        return None
    assert answer.is_success, answer.text
    found = answer.json()
    there = found["tiers"] and found["tiers"][0]["worker"] != after and found["now"]["rows_in_per_s"] > 50
    return found if there else None


def a_worker_is_seen_and_its_successor_too(bench: Bench) -> None:
    found = until(lambda: moves(bench), "the first worker's rates")
    first = found["tiers"][0]["worker"]
    (query,) = found["tiers"][0]["queries"]
    assert query["state"] == "running"
    assert query["sources"]["numbers"]["rows_per_s"] > 50
    assert query["sinks"]["kept"]["rows_per_s"] > 20
    assert {"process", "decide", "publish"} <= query["phases_s"].keys()
    until(lambda: bench.asks("/v1/flows/endless/metrics")["now"]["dead"], "dead letters")
    assert bench.asks("/v1/flows/endless/intake")["intake"] == "open"
    text = bench.asks("/metrics")
    assert 'scribengin_flow_state{flow="endless",state="running"} 1.0' in text
    assert 'scribengin_source_rows_per_second{flow="endless",query="kept",source="numbers",tier="main"}' in text

    status = bench.says("status", "endless")
    assert status["now"]["rows_in_per_s"] > 50
    (order,) = status["now"]["orders"]
    assert order.startswith("even asks even (")
    (tier,) = status["tiers"]
    psutil.Process(tier["process"]["pid"]).kill()
    found = until(lambda: moves(bench, after=first), "the next worker's rates")
    attempts = bench.asks("/v1/flows/endless/attempts")
    assert [attempt["worker"] for attempt in attempts] == [found["tiers"][0]["worker"], first]
    assert (attempts[1]["pid"], attempts[1]["state"]) == (tier["process"]["pid"], "ended")
    assert attempts[1]["cause"]
    assert found["now"]["restarts"] == 1
    samples = found["series"]["main"]
    assert sum(sample["restarts"] for sample in samples) == 1
    assert sum(sample["rows_in_per_s"] * sample["step_s"] for sample in samples) > 100

"""What is seen of flows under `scribengin up`: real processes, real ZooKeeper, real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx2
import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FLOW = """\
version: 1
name: endless
sources: {numbers: {type: sequence, rate: 200}}
steps: {even: {from: numbers, python: "steps:even"}}
sinks: {kept: {from: even, type: files, path: out, format: json, trigger: 500ms}}
max_delay: 5m
alerts:
  loop: {when: restarts over 0 in 10m, command: [sh, -c, 'echo "$SCRIBENGIN_ALERT_NAME $SCRIBENGIN_ALERT_STATE" >> TOLD']}
  stuck: {when: no progress for 10m}
"""
STEPS = """\
def even(row):
    if row["id"] % 50 == 0:
        raise ValueError("a fifty")
    return row["id"] % 2 == 0
"""


class Bench:
    """A control plane of one machine, with a flow that never ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "flow", folder / "home"
        self.folder.mkdir()
        (self.folder / "flow.yaml").write_text(FLOW.replace("TOLD", str(folder / "told")))
        (self.folder / "steps.py").write_text(STEPS)
        self.environment = os.environ | {"SCRIBENGIN_HOME": str(self.home)}
        self.address = ""

    def says(self, *words: str) -> Any:
        command = [sys.executable, "-m", "scribengin.cli", *words, "--json"]
        ended = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 0, f"{words}: {ended.stdout} {ended.stderr}"
        return json.loads(ended.stdout)["result"]

    def asks(self, path: str) -> Any:
        answer = httpx2.get(f"{self.address}{path}", timeout=30, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def clears(self) -> None:
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("SCRIBENGIN_HOME") == str(self.home)
            except psutil.Error:
                continue
            if mine:
                process.kill()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    with (tmp_path / "up.log").open("w") as log:
        up = subprocess.Popen([sys.executable, "-m", "scribengin.cli", "up"], env=bench.environment, stdout=log, stderr=log)
        try:
            until(lambda: (bench.home / "up.json").exists() or up.poll() is not None, "up", 120)
            assert up.poll() is None, (tmp_path / "up.log").read_text()
            yield bench
        finally:
            up.kill()
            up.wait()
            bench.clears()


def until(what: Callable[[], Any], said: str, wait_s: float = 240) -> Any:
    deadline = time.monotonic() + wait_s
    while not (found := what()):
        assert time.monotonic() < deadline, f"never came: {said}"
        time.sleep(0.2)
    return found


@pytest.mark.timeout(900)
def test_rates_lag_and_attempts_of_a_flow_are_seen_over_http_also_when_its_worker_was_killed(bench: Bench, tmp_path: Path) -> None:
    bench.says("apply", "flow.yaml", "--wait", "4m")
    bench.address = json.loads((bench.home / "up.json").read_text())["http"]

    def moves(worker: str) -> Any:
        found = bench.asks("/v1/flows/endless/metrics")
        there = found["tiers"] and found["tiers"][0]["worker"] == worker and found["now"]["rows_in_per_s"] > 50
        return found if there else None

    found = until(lambda: moves("endless.main-1"), "the first worker's rates")
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
    (tier,) = status["tiers"]
    psutil.Process(tier["process"]["pid"]).kill()
    found = until(lambda: moves("endless.main-2"), "the next worker's rates")
    assert [attempt["worker"] for attempt in found["tiers"][0]["attempts"]] == ["endless.main-2", "endless.main-1"]
    assert found["tiers"][0]["attempts"][1]["cause"]
    assert found["now"]["restarts"] == 1
    samples = found["series"]["main"]
    assert sum(sample["restarts"] for sample in samples) == 1
    assert sum(sample["rows_in_per_s"] * sample["step_s"] for sample in samples) > 100
    # what the flow file asks for is told, once, and a test is told too
    until((tmp_path / "told").exists, "the alert")
    shown = {alert["alert"]: alert["state"] for alert in bench.says("alerts", "endless")}
    assert shown == {"loop": "firing", "stuck": "quiet"}
    assert [each["ok"] for each in bench.says("alerts", "test", "endless", "loop")] == [True, True]
    assert (tmp_path / "told").read_text() == "loop firing\nloop test\n"
    assert 'scribengin_alert_firing{alert="loop",flow="endless"} 1.0' in bench.asks("/metrics")
    (row,) = bench.says("top", "--once")
    assert (row["flow"], row["now"]["restarts"]) == ("endless", 1)

"""A tier with `autoscale` in a real YARN: with a backlog it gets a second executor, and gives it back when it has been calm."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from harness.yarn_plane import YarnControl, parts_in
from scribengin.embedded.yarn import Yarn
from scribengin.embedded.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES, ROWS = 120, 100
WITHIN_S = 1200.0
# the step waits rather than computes: its rate depends on the number of executors, and not on what else the machine does
FLOW = """\
version: 1
name: slow
sources:
  numbers:
    type: files
    path: {data}
    format: json
    settle: 0s
    max_files: 3
    split: 64KiB
    schema: "id BIGINT, text STRING"
steps: {{slowly: {{from: numbers, python: "steps:slowly"}}}}
sinks: {{kept: {{from: slowly, type: hdfs, url: "{out}", format: json}}}}
tiers:
  all:
    steps: [slowly, kept]
    resources:
      cores: 1
      memory: 512MiB
      spark: {{spark.driver.memory: 512m, spark.driver.memoryOverhead: 256m, spark.executor.memoryOverhead: 256m}}
    autoscale: {{lag: 10s, min: 1, max: 2, mode: act}}
"""
STEPS = """\
import time

from scribengin import record


@record
def slowly(row: dict) -> bool:
    time.sleep(0.02)
    return True
"""


class Plane(YarnControl):
    """A control plane with the flow; it notes each number of executors that YARN shows."""

    def __init__(self, folder: Path, yarn: Yarn, keeper: ZooKeeper) -> None:
        super().__init__(folder, yarn, keeper)
        self.seen: list[int] = []

    def shows(self, executors: int) -> bool:
        """True if YARN's own list of containers has so many executors of the flow."""
        found = len(self.executors("slow"))
        if found and (not self.seen or self.seen[-1] != found):
            self.seen.append(found)
        return found == executors

    def until(self, true: Callable[[], bool], said: str) -> None:
        give_up_s = time.monotonic() + WITHIN_S
        while not true():
            assert time.monotonic() < give_up_s, (said, self.seen, self.says("status", "slow"), self.last_words())
            self.pause(1.0)

    def found(self, out: str) -> list[int]:
        return sorted(json.loads(line)["id"] for path in parts_in(out) for line in path.read_bytes().splitlines())

    def sizes(self) -> list[str]:
        """Why `autoscale` has changed the size, newest first, by the events of the flow."""
        events: list[dict[str, Any]] = self.says("events", "slow") or []
        return [event["why"] for event in events if event["by"] == "autoscale"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_backlog_brings_a_second_executor_which_goes_when_the_tier_was_calm(tmp_path: Path) -> None:
    with (
        Yarn(tmp_path / "yarn", nodes=2, memory_mib=3072) as yarn,
        ZooKeeper(tmp_path / "zookeeper") as keeper,
        Plane(tmp_path, yarn, keeper) as plane,
    ):
        out = f"{yarn.hdfs.uri}/slow"
        (tmp_path / "data").mkdir()
        for number in range(FILES):
            rows = ({"id": number * ROWS + nth, "text": "x" * 1500} for nth in range(ROWS))
            (tmp_path / "data" / f"{number:04}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (tmp_path / "flow.yaml").write_text(FLOW.format(data=tmp_path / "data", out=out))
        (tmp_path / "steps.py").write_text(STEPS)
        plane.start_control()
        plane.apply("flow.yaml")
        plane.until(lambda: plane.shows(1), "one executor")
        plane.until(lambda: plane.shows(2), "a second executor")
        plane.until(lambda: plane.shows(1), "one executor again")
        assert plane.says("stop", "slow", "--wait", "8m") is not None, plane.last_words()
        assert plane.found(out) == list(range(FILES * ROWS)), "each once, over both changes"
        assert plane.seen == [1, 2, 1], "it grew once and shrank once"
        shrunk, grown = plane.sizes()
        assert "from 1 to 2: the lag is" in grown
        assert "from 2 to 1: the lag was at most" in shrunk

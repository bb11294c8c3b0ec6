"""Whole flows over a real broker: killed, continued, and each record found once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.test_source import within

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.kafka import KafkaCluster

FLOW = """
version: 1
name: copied
sources:
  numbers:
    type: kafka
    bootstrap: BOOTSTRAP
    topics: [TOPIC]
    format: json
    metadata: {at: timestamp, p: partition, o: offset}
    schema: id BIGINT, at TIMESTAMP, p INT, o BIGINT
    max_rows: 400
    watermark: at 1s
steps:
  slow: {from: numbers, python: "steps:slow"}
  seen: {from: numbers, aggregate: {by: [p], window: {time: at, size: 1d}, emit: append, columns: {n: count(*)}}}
sinks:
  kept: {from: slow, type: files, path: out/kept, format: json}
  windows: {from: seen, type: files, path: out/windows, format: json}
"""
STEPS = """
import time


def slow(row):
    time.sleep(0.001)
    return row["id"] >= 0
"""


def scribengin(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """What it says goes to `said.txt`."""
    command = [sys.executable, "-c", "from scribengin.cli.main import main; main()", *arguments]
    with (folder / "said.txt").open("wb") as said:
        return subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, start_new_session=True)


def committed(folder: Path) -> int:
    return len(list((folder / "out/kept/_scribengin").glob("*/batches/*")))


@pytest.fixture
def flow(tmp_path: Path, cluster: KafkaCluster, topics: Any) -> Any:
    topic = topics.make(3)
    (tmp_path / "flow.yaml").write_text(FLOW.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("TOPIC", topic))
    (tmp_path / "steps.py").write_text(STEPS)
    return tmp_path, topic


def test_a_flow_that_is_killed_and_whose_broker_dies_finds_every_record_once(flow: Any, cluster: KafkaCluster, topics: Any) -> None:
    folder, topic = flow
    for partition in range(3):
        topics.write(topic, range(partition, 3000, 3), partition)
    running = scribengin(folder, "run", "flow.yaml")
    try:
        within(120, lambda: committed(folder) >= 2)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(30)
        running = scribengin(folder, "run", "flow.yaml")
        before = committed(folder)
        within(120, lambda: committed(folder) > before)
        cluster.kill(1)
        cluster.restart(1)
        topics.write(topic, range(3000, 3100))
        within(180, lambda: len(kept(folder)) >= 3100)
        running.send_signal(signal.SIGINT)
        assert running.wait(120) == 0, (folder / "said.txt").read_text()
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait(30)

    rows = kept(folder)
    assert sorted(row["id"] for row in rows) == list(range(3100))
    for partition in range(3):
        offsets = [row["o"] for row in rows if row["p"] == partition]
        assert offsets == list(range(len(offsets)))
    assert scribengin(folder, "audit", "flow.yaml").wait(120) == 0, (folder / "said.txt").read_text()


def kept(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted((folder / "out/kept").glob("part-*")) for line in part.read_text().splitlines()]

"""Whole flows over a real broker: killed, continued, and each record found once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.connectors.kafka.processes import SCRIBENGIN, kill, rows_in, said, scribengin, started, within

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
    with started(folder, *SCRIBENGIN, "run", "flow.yaml") as running:
        within(120, lambda: committed(folder) >= 2)
        kill(running)
    with started(folder, *SCRIBENGIN, "run", "flow.yaml") as running:
        before = committed(folder)
        within(120, lambda: committed(folder) > before)
        cluster.kill(1)
        cluster.restart(1)
        topics.write(topic, range(3000, 3100))
        within(180, lambda: len(rows_in(folder / "out/kept")) >= 3100)
        running.send_signal(signal.SIGINT)
        assert running.wait(120) == 0, said(folder)

    rows = rows_in(folder / "out/kept")
    assert sorted(row["id"] for row in rows) == list(range(3100))
    for partition in range(3):
        offsets = [row["o"] for row in rows if row["p"] == partition]
        assert offsets == list(range(len(offsets)))
    audited = scribengin(folder, "audit", "flow.yaml")
    assert audited.returncode == 0, audited.stdout

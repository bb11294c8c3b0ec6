"""Letters of Kafka messages, replayed: with what stood beside the value, into a topic, each once, though the run is killed in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from scribengin.core.faults import VARIABLE
from tests.connectors.kafka.test_sink import read

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.kafka import KafkaCluster

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

FLOW = """
version: 1
name: again
sources:
  messages:
    type: kafka
    bootstrap: "BOOTSTRAP"
    topics: [TOPIC_IN]
    format: json
    metadata: {who: key, o: offset}
    schema: id BIGINT, who STRING, o BIGINT
steps:
  judged: {from: messages, python: "steps:judge"}
sinks:
  out: {from: judged, type: kafka, bootstrap: "BOOTSTRAP", topic: TOPIC_OUT, format: json}
"""
STEPS = """
def judge(row):
    if row["id"] % 4 == 0 and STRICT:
        raise ValueError("no")
    return row
"""


def scribengin(folder: Path, *arguments: str, fault: str = "") -> Any:
    environment = os.environ | ({VARIABLE: fault} if fault else {})
    command = [sys.executable, "-m", "scribengin.cli", *arguments, "--json"]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, start_new_session=True)
    return ended.returncode, json.loads(ended.stdout)["result"] if ended.stdout else None


def test_messages_that_died_come_to_the_topic_once_with_their_keys_though_the_replay_is_killed(
    tmp_path: Path, cluster: KafkaCluster, topics: Any
) -> None:
    source, sink = topics.make(2), topics.make(2)
    text = FLOW.replace("BOOTSTRAP", cluster.bootstrap).replace("TOPIC_IN", source).replace("TOPIC_OUT", sink)
    (tmp_path / "flow.yaml").write_text(text)
    (tmp_path / "steps.py").write_text("STRICT = True" + STEPS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for id_ in range(20):
        producer.produce(source, json.dumps({"id": id_}), key=f"user {id_}", partition=id_ % 2)
    producer.produce(source, '{"id": "20"}', key="user 20", partition=0)
    producer.flush(30)
    assert scribengin(tmp_path, "run", "flow.yaml", "--once")[0] == 0
    (tmp_path / "steps.py").write_text("STRICT = False" + STEPS)
    shown = scribengin(tmp_path, "dead-letter", "show", "flow.yaml", "--step", "messages")[1]["letters"]
    assert scribengin(tmp_path, "dead-letter", "edit", "flow.yaml", shown[0]["id"], "--set", "id=20")[0] == 0
    said = scribengin(tmp_path, "dead-letter", "replay", "flow.yaml", "--yes")[1]
    assert (said["replayed"], said["repaired"], said["refused"]) == (6, 1, 0), said
    assert scribengin(tmp_path, "run", "flow.yaml", "--once", fault="decide.before:kill")[0] != 0
    assert scribengin(tmp_path, "run", "flow.yaml", "--once")[0] == 0
    rows = [json.loads(message.value()) for message in read(topics, sink)]
    assert sorted(row["id"] for row in rows) == list(range(21))
    assert {row["who"] for row in rows} == {f"user {id_}" for id_ in range(21)}
    assert {row["o"] for row in rows if row["id"] == 20} == {10}
    status, audit = scribengin(tmp_path, "audit", "flow.yaml")
    assert (status, audit["ledger"]["violations"]) == (0, [])

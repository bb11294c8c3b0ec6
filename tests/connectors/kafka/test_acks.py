"""The consumer group of a source hears an offset when the last tier has committed what was read up to there, and not before."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from scribengin.core import faults
from scribengin.local.acks import topology_of
from scribengin.local.prepare import prepare
from scribengin.local.status import read_standing
from scribengin.state.channel_acks import Acks
from scribengin.state.channel_checks import mismatch_of
from tests.connectors.kafka.processes import within

if TYPE_CHECKING:
    import pytest

    from scribengin.embedded.kafka import KafkaCluster

FLOW = """\
version: 1
name: acked
sources:
  numbers: {type: kafka, bootstrap: BOOTSTRAP, topics: [TOPIC], format: json, schema: id BIGINT}
steps:
  even: {from: numbers, filter: id % 2 = 0}
sinks:
  kept: {from: even, type: files, path: out, format: json}
tiers:
  edge: {steps: [even]}
  store: {steps: [kept]}
"""


def test_a_groups_offsets_follow_the_last_tier(folder: Any, cluster: KafkaCluster, topics: Any) -> None:
    topic = topics.make(2)
    topics.write(topic, range(10), 0)
    topics.write(topic, range(10, 14), 1)
    folder.flow(FLOW.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("TOPIC", topic))
    group = "scribengin.acked.even_to_store"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})

    def committed() -> list[int]:
        return [found.offset for found in consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=60)]

    try:
        assert folder.run(tier="edge").state == "finished"
        assert max(committed()) < 0, "the channel has them, nobody behind it"
        (edge,) = read_standing(prepare(folder.path / "flow.yaml", state=None))["edges"]
        assert (edge["written"]["rows"], edge["read"]["rows"], edge["waiting"]["rows"], edge["committed"]["rows"]) == (7, 0, 7, 0)
        assert folder.run(tier="store").state == "finished"
        assert max(committed()) < 0, "the source is the edge's"
        found = read_standing(prepare(folder.path / "flow.yaml", state=None))
        assert [edge["committed"]["rows"] for edge in found["edges"]] == [7]
        assert [(source["read"], source["released"]) for source in found["sources"]] == [(1, 1)]
        assert folder.run(tier="edge").state == "finished"
        assert within(60, lambda: committed() == [10, 4])
    finally:
        consumer.close()
    assert sorted(row["id"] for row in folder.read("out")) == [0, 2, 4, 6, 8, 10, 12]


def test_a_flow_that_is_not_cut_tells_at_each_batch(folder: Any, cluster: KafkaCluster, topics: Any) -> None:
    topic = topics.make(1)
    topics.write(topic, range(10))
    folder.flow(FLOW.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("TOPIC", topic).partition("tiers:")[0])
    assert folder.run().state == "finished"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "scribengin.acked.kept"})
    try:
        assert within(60, lambda: consumer.committed([TopicPartition(topic, 0)], timeout=60)[0].offset == 10)
    finally:
        consumer.close()


def test_a_batch_that_was_read_before_its_feeder_had_decided_it_is_no_mismatch_for_who_begins_to_watch_then(
    folder: Any, cluster: KafkaCluster, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a feeder leaves that is cut off from its lease: units that have committed on the executors, and no decision."""
    topic = topics.make(1)
    topics.write(topic, range(10))
    text = FLOW.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("TOPIC", topic).replace("name: acked", "name: early")
    folder.flow(f'{text}defaults: {{edge: {{channel: {{type: kafka, bootstrap: "{cluster.bootstrap}", partitions: 2}}}}}}\n')
    assert folder.run().state == "finished"
    topics.write(topic, range(10, 20))

    def ids() -> list[int]:
        return sorted(row["id"] for row in folder.read("out"))

    gate = folder.path / "gate"
    faults.arm(f"decide.before:wait={gate}")
    feeding = threading.Thread(target=folder.run, kwargs={"tier": "edge"})
    feeding.start()
    try:
        assert within(120, (folder.path / "gate.waiting").exists)
        faults.arm("")
        # a broker answers a commit before it has told the partitions, so what is committed is readable a little later
        assert within(60, lambda: folder.run(tier="store").state == "finished" and ids() == [*range(0, 20, 2)]), (
            "not read before it is decided"
        )
        prepared = prepare(folder.path / "flow.yaml", state=None)
        acks = Acks(topology_of(prepared.plan, prepared.root))
        acks.read()
    finally:
        faults.arm("")
        gate.touch()
        feeding.join(120)
    read_anew: list[int] = []
    monkeypatch.setattr(
        "scribengin.state.channel_acks.mismatch_of", lambda *given, **more: read_anew.append(given[5]) or mismatch_of(*given, **more)
    )
    found = acks.read()
    assert (found.mismatches, read_anew) == ((), [])
    assert {at.decided for at in found.queries.values()} == {1}
    assert folder.run().state == "finished"

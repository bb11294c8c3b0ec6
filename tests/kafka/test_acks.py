"""The consumer group of a source hears an offset when the last tier has committed what was read up to there, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from scribengin.local.prepare import prepare
from scribengin.local.standing import read_standing
from tests.kafka.processes import within

if TYPE_CHECKING:
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
        return [found.offset for found in consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=20)]

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
        assert within(60, lambda: consumer.committed([TopicPartition(topic, 0)], timeout=20)[0].offset == 10)
    finally:
        consumer.close()

"""A flow over a real broker is cut, fused and cut again: sinks and channels in topics are taken over, and every message is there once."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare

if TYPE_CHECKING:
    from conftest import FlowFolder, Topics

FLOW = """
version: 1
name: moved
defaults: {edge: {channel: {type: kafka, bootstrap: "@AT", partitions: 2}}}
sources: {n: {type: kafka, bootstrap: "@AT", topics: [@IN], format: json, schema: "id BIGINT"}}
steps:
  some: {from: n, filter: id % 2 = 0}
  more: {from: some, python: "steps:double"}
sinks:
  out: {from: more, type: kafka, bootstrap: "@AT", topic: @OUT, format: json}
"""
CUT = "tiers: {a: {steps: [some]}, b: {steps: [more, out]}}\n"


def messages(bootstrap: str, topic: str) -> list[int]:
    """The ids of the committed messages of partition 0, in their order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "isolation.level": "read_committed"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        consumer.assign([TopicPartition(topic, 0, low)])
        found = []
        until_s = time.monotonic() + 60
        while high > low and consumer.position([TopicPartition(topic, 0)])[0].offset < high:
            assert time.monotonic() < until_s
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(json.loads(message.value())["id"])
        return found
    finally:
        consumer.close()


@pytest.mark.timeout(900)
def test_topics_are_taken_over_from_tier_to_tier_and_each_message_stands_there_once(folder: FlowFolder, topics: Topics) -> None:
    into, out = topics.make(2), topics.make()
    folder.steps("def double(row):\n    return row | {'id': row['id'] * 2}\n")
    flow = FLOW.replace("@AT", topics.bootstrap).replace("@IN", into).replace("@OUT", out)
    for number, tiers in enumerate(("", CUT, "", CUT)):
        topics.write(into, range(number * 10, number * 10 + 10), number % 2)
        result = folder.flow(flow + tiers).run()
        assert (result.state, result.balanced) == ("finished", True), result.problems
        audit = audit_flow(prepare(folder.path / "flow.yaml", state=None))
        assert audit.balanced, [violation for report in audit.reports for violation in report.violations]
        assert sorted(messages(topics.bootstrap, out)) == [2 * id_ for id_ in range(number * 10 + 10) if id_ % 2 == 0]

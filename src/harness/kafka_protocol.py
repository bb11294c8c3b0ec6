"""The driver of `testing.protocol` with Kafka sinks: does with topics of a real broker what `protocol` and `trials` do with files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from harness.broker_proxy import END_TXN, INIT_PRODUCER_ID, WRITE_TXN_MARKERS, Rule
from harness.unit_protocol import UnitsDriver
from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.kafka.client import KafkaBrokers
from scribengin.connectors.kafka.options import SINK
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.core.errors import Unreachable
from scribengin.core.process import within
from scribengin.testing import campaign
from scribengin.testing.checker import Found
from scribengin.testing.protocol import FLOW, SINKS, Driver, Job
from scribengin.testing.trials import Outcome, await_file, finished

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.broker_proxy import BrokerProxy
    from scribengin.connectors.contract import StagingSink
    from scribengin.testing.campaign import MakeDriver

PARTITIONS = 2
_SILENT_S = 120.0
_READING = {
    "group.id": "checker",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 10,
}


@dataclass(frozen=True, slots=True)
class KafkaJob(Job):
    """A Job whose sinks write to the topics `<topic>-heads` and `<topic>-tails`, and store their commit markers beside them."""

    bootstrap: str = ""
    topic: str = ""
    transaction_timeout_s: float = 60.0
    one_by_one: bool = False
    """whether the task outputs of a Batch commit one by one, or the Batch as a whole"""
    settled_s: float = 60.0
    """seconds to wait for open transactions: a broken sink may leave one open"""

    def place(self, node: str) -> ConnectorContext:
        """The context of the Kafka sink of that node."""
        options: dict[str, Any] = {
            "bootstrap": self.bootstrap,
            "topic": self.topic_of(node),
            "format": "json",
            "key": "part",
            "markers": f"{self.topic_of(node)}-markers",
            "timeout": 20.0,
            "transaction_timeout": self.transaction_timeout_s,
        }
        return ConnectorContext(node, self.out, SINK.filled(options), flow=FLOW, version="0" * 8, work=self.query.work(node))

    def topic_of(self, node: str) -> str:
        """The topic of the sink of that node."""
        return f"{self.topic}-{node}"

    def make_topics(self) -> None:
        """Create the topics of the sinks."""
        cluster = KafkaBrokers("protocol", {"bootstrap": self.bootstrap, "config": {}, "timeout": 20.0})
        for node in SINKS:
            cluster.make_topic(self.topic_of(node), PARTITIONS)

    def read(self, torn: list[str]) -> dict[str, list[Found]]:
        """The rows that a plain consumer finds with `read_committed`, after the control records of committed transactions have arrived."""
        options = {"bootstrap": self.bootstrap, "config": {}, "timeout": 20.0}
        places = [(self.topic_of(node), partition) for node in SINKS for partition in range(PARTITIONS)]
        ends = [KafkaBrokers("protocol", options | {"isolation": level}) for level in ("read_committed", "read_uncommitted")]
        within(self.settled_s, lambda: ends[0].last(places) == ends[1].last(places))
        return {node: list(read_topic(self.bootstrap, self.topic_of(node), torn)) for node in SINKS}


def kafka_driver(job: Job) -> Driver:
    """A driver with correct sinks, for a KafkaJob."""
    assert isinstance(job, KafkaJob)
    return (UnitsDriver if job.one_by_one else Driver)(job, _kafka_sink)


def _kafka_sink(job: Job, node: str) -> StagingSink:
    assert isinstance(job, KafkaJob)
    return KafkaSink(job.place(node))


def read_topic(bootstrap: str, topic: str, torn: list[str]) -> Iterator[Found]:
    """Every committed record, in the order of its partition; errors are added to `torn`."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, **_READING})
    try:
        partitions = set(consumer.list_topics(topic, timeout=_SILENT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while partitions:
            message = consumer.poll(_SILENT_S)
            if message is None:
                raise Unreachable(f"{topic} does not end within {_SILENT_S:g} s", remedy="look at the broker's log")
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition())
            elif error is None:
                try:
                    yield Found(f"{topic}-{message.partition()}", msgspec.json.decode(message.value() or b""))
                except msgspec.DecodeError as problem:
                    torn.append(f"{topic}-{message.partition()} offset {message.offset()}: {problem}")
    finally:
        consumer.close()


def unanswered(job: KafkaJob, proxy: BrokerProxy, make_driver: MakeDriver = kafka_driver, *, incomplete: bool = False) -> Outcome:
    """Drop the answer to the commit of the second Batch of `heads`, which the broker has received, until another producer fences; then run
    without faults.

    Args:
        job: The job; its brokers must be reached through `proxy`.
        proxy: The proxy.
        make_driver: Creates the driver.
        incomplete: Delay the control records too, so that the commit is not visible until then.
    """
    gate = job.state.parent / f"{job.state.name}.gate"
    # the third publication, between its fence and its first message
    child = campaign.start(job, f"publish.record.before@3:wait={gate}", make_driver=make_driver)
    await_file(gate.with_name(f"{gate.name}.waiting"), child)
    about = job.topic_of(SINKS[0]).encode()
    rules = [proxy.add(Rule("mute", END_TXN, about, until=INIT_PRODUCER_ID))]
    if incomplete:
        rules.append(proxy.add(Rule("hold", WRITE_TXN_MARKERS, about, until=INIT_PRODUCER_ID)))
    gate.touch()
    status = child.wait()
    struck = [rule.struck for rule in rules]
    outcome = finished(job, make_driver, [status])
    proxy.lift(*rules)
    if not all(struck):
        raise AssertionError(f"the commit was not struck: {struck}")
    return outcome


def lineage_lost(job: KafkaJob, again: KafkaJob, faults: str, make_driver: MakeDriver = kafka_driver) -> Outcome:
    """Suspend a driver that is about to publish its first Batch, and start another one with a new state, which opens a new lineage and is
    suspended at the same place. Then resume the first driver with faults, and after it the second one, which runs to its end.

    Args:
        job: The job of the first driver.
        again: The same job with another state; it adopts the topics.
        faults: The faults of the first driver after it is resumed.
        make_driver: Creates the drivers.
    """
    gates: list[Path] = []
    children = []
    for each, armed in ((job, faults), (again, "")):
        gate = each.state.parent / f"{each.state.name}.gate"
        children.append(campaign.start(each, f"publish.before:wait={gate},{armed}", make_driver=make_driver))
        await_file(gate.with_name(f"{gate.name}.waiting"), children[-1])
        gates.append(gate)
    statuses = []
    for gate, child in zip(gates, children, strict=True):
        gate.touch()
        statuses.append(child.wait())
    return finished(again, make_driver, statuses)

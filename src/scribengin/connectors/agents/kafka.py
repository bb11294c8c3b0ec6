"""A channel in Kafka topics.

    TOPIC           a message for each run: its frames; an agent's runs are in one partition
    TOPIC.index     one partition; a message for each append of a gateway: a list of runs, as JSON
    TOPIC.commits   compacted; FLOW.TIER → what that tier has committed, as JSON

The messages of the runs are durable (`acks=all`) before the message of the index is sent, and that before the agents are answered.
"""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.agents.contract import Arrival, CommitReport, StoredRun, WaitingBytes, least_committed
from scribengin.connectors.kafka.client import READER, SILENT, KafkaBrokers, client, fault, passes, settings
from scribengin.connectors.kafka.scan import PartitionScan
from scribengin.core import faults
from scribengin.core.errors import SourceError, Unreachable
from scribengin.core.records import canonical
from scribengin.wire.frames import MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from scribengin.connectors.agents.contract import AgentKey

_ROOM_BYTES = 64 * 1024
"""room for the head of a message beside its frames, in bytes"""


def index_topic(topic: str) -> str:
    """The topic of the index."""
    return f"{topic}.index"


def commits_topic(topic: str) -> str:
    """The topic of what readers have committed."""
    return f"{topic}.commits"


def make_topics(options: Mapping[str, Any], node: str) -> int:
    """Make the topics of a channel that do not exist. Returns the number of partitions. Raises Unreachable, SourceError."""
    brokers, topic = KafkaBrokers(node, options), str(options["topic"])
    kept = {"retention.ms": str(int(options["retention"] * 1000)), "message.timestamp.type": "LogAppendTime"}
    large = {"max.message.bytes": str(MOST_BYTES + _ROOM_BYTES)}
    wanted: dict[str, tuple[int, dict[str, str]]] = {
        topic: (options["partitions"], kept | large),
        index_topic(topic): (1, kept | large),
        commits_topic(topic): (1, {"cleanup.policy": "compact"} | large),
    }
    there = brokers.topics(wanted)
    for name, (partitions, config) in wanted.items():
        if name not in there:
            brokers.make_topic(name, partitions, replication=options["replication"], config=config)
    return (there.get(topic) or brokers.topics([topic])[topic]).partitions


class TopicTail:
    """Reads partition 0 of a topic on from an offset, to its present end at each call. Used by one thread."""

    def __init__(self, node: str, options: Mapping[str, Any], topic: str) -> None:
        self._node, self._options, self._topic = node, options, topic
        self._consumer: Any = None
        self.offset = 0

    def read_new(self) -> Iterator[Any]:
        """The messages that are new. Raises Unreachable, SourceError."""
        kafka = client()
        if self._consumer is None:
            own = READER | {"isolation.level": "read_uncommitted", "fetch.wait.max.ms": 50, "check.crcs": True}
            self._consumer = kafka.Consumer(settings(self._options) | own, logger=SILENT)
        place = kafka.TopicPartition(self._topic, 0)
        try:
            low, end = self._consumer.get_watermark_offsets(place, timeout=self._options["timeout"], cached=False)
        except kafka.KafkaException as unavailable:
            raise self._fault(unavailable) from unavailable
        self.offset = max(low, self.offset)
        if self.offset >= end:
            return
        self._consumer.assign([kafka.TopicPartition(self._topic, 0, self.offset)])
        heard_s = time.monotonic()
        while self.offset < end:
            for message in self._consumer.consume(1024, timeout=0.2):
                heard_s = time.monotonic()
                error = message.error()
                if error is None:
                    self.offset = message.offset() + 1
                    yield message
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    self.offset = max(self.offset, min(end, message.offset()))
                elif not passes(error):
                    raise self._fault(kafka.KafkaException(error))
            if time.monotonic() - heard_s > max(30.0, 2 * self._options["timeout"]):
                raise Unreachable(f"no broker has returned data of {self._topic}", remedy="check that its leader runs", node=self._node)

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _fault(self, error: Exception) -> Exception:
        return fault(self._node, str(self._options["bootstrap"]), error, self._options["timeout"])


def runs_in(message: Any) -> list[StoredRun]:
    """The runs of a message of the index."""
    return [StoredRun.from_json(form) for form in msgspec.json.decode(message.value())]


class KafkaChannelWriter:
    """The writing end, see `ChannelWriter`."""

    def __init__(self, options: Mapping[str, Any], *, name: str, readers: Sequence[str] = ()) -> None:
        """Open the channel.

        Args:
            options: Those of the source, with the topic.
            name: The name of the gateway, for messages.
            readers: The tiers that read it, as `FLOW.TIER`: their reports count, and no others.

        Raises:
            Unreachable: The brokers do not answer.
            SourceError: They refuse, for good.
        """
        self._options, self._node, self._topic = options, name, str(options["topic"])
        self._partitions = make_topics(options, name)
        self._readers = tuple(readers)
        self._reports: dict[str, CommitReport] = {}
        self._waiting = WaitingBytes()
        self._index = TopicTail(name, options, index_topic(self._topic))
        self._commits = TopicTail(name, options, commits_topic(self._topic))
        self._producer = self._connect()
        self._refusal = ""

    def _connect(self) -> Any:
        given = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "message.max.bytes": MOST_BYTES + _ROOM_BYTES,
            "message.timeout.ms": int(2000 * self._options["timeout"]),
            "queue.buffering.max.kbytes": 256 * 1024,
        }
        return client().Producer(settings(self._options) | given, logger=SILENT)

    def append(self, arrivals: Sequence[Arrival]) -> None:
        """See `ChannelWriter`."""
        placed: list[tuple[int, int] | None] = [None] * len(arrivals)
        for number, arrival in enumerate(arrivals):
            partition = zlib.crc32(arrival.agent.encode()) % self._partitions
            self._send(self._topic, arrival.frames, placed, number, partition=partition, key=arrival.agent)
        self._wait(placed)
        faults.reached("gateway.written")
        now_ms = int(time.time() * 1000)
        runs = [StoredRun.of(arrival, now_ms, self._node, place or ()).as_json() for arrival, place in zip(arrivals, placed, strict=True)]
        indexed: list[tuple[int, int] | None] = [None]
        self._send(index_topic(self._topic), canonical(runs), indexed, 0)
        self._wait(indexed)
        faults.reached("gateway.indexed")

    def _send(
        self, topic: str, value: bytes, placed: list[tuple[int, int] | None], number: int, *, partition: int = 0, key: str | None = None
    ) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                placed[number] = message.partition(), message.offset()
            elif not self._refusal:
                self._refusal = str(error)

        self._refusal = ""
        try:
            self._producer.produce(topic, value, key, partition, on_delivery=delivered)
        except (BufferError, client().KafkaException) as error:
            raise self._unreachable(str(error)) from error

    def _wait(self, placed: list[tuple[int, int] | None]) -> None:
        """Wait until all messages are durable, or one of them failed."""
        self._producer.flush(2 * self._options["timeout"] + 1)
        if None in placed:
            # what is left in the queue must not be sent later, beside what the agents send again
            self._producer.purge()
            with suppress(Exception):
                self._producer.flush(0)
            self._producer = self._connect()
            raise self._unreachable(self._refusal or "no answer in time")

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(
            f"topic {self._topic} at {self._options['bootstrap']} cannot be written: {why}",
            remedy="check that the brokers run; agents keep their records",
        )

    def stored(self) -> Mapping[AgentKey, int]:
        """See `ChannelWriter`."""
        for message in self._index.read_new():
            for run in runs_in(message):
                self._waiting.put(run)
        return self._waiting.stored

    def committed(self) -> Mapping[AgentKey, int]:
        """See `ChannelWriter`."""
        for message in self._commits.read_new():
            if message.value() is not None:
                report = msgspec.json.decode(message.value(), type=CommitReport)
                self._reports[report.reader] = report
        committed = least_committed(self._reports.get(reader, CommitReport(reader)) for reader in self._readers)
        self._waiting.settle(committed)
        return committed

    def waiting_bytes(self) -> int:
        """See `ChannelWriter`."""
        return self._waiting.bytes

    def close(self) -> None:
        """See `ChannelWriter`."""
        self._index.close()
        self._commits.close()
        with suppress(Exception):
            self._producer.flush(1)


_reporters: dict[str, Any] = {}
"""bootstrap → the producer of this process for reports"""


def send_report(options: Mapping[str, Any], node: str, report: CommitReport) -> None:
    """Send what a tier has committed. Raises Unreachable."""
    make_topics(options, node)
    key = str(options["bootstrap"])
    if key not in _reporters:
        given = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": int(2000 * options["timeout"])}
        _reporters[key] = client().Producer(settings(options) | given, logger=SILENT)
    wrong: list[str] = ["no answer in time"]

    def delivered(error: Any, _: Any) -> None:
        wrong[:] = [] if error is None else [str(error)]

    _reporters[key].produce(commits_topic(str(options["topic"])), msgspec.json.encode(report), report.reader, on_delivery=delivered)
    _reporters[key].flush(2 * options["timeout"] + 1)
    if wrong:
        del _reporters[key]
        raise Unreachable(
            f"{commits_topic(str(options['topic']))} cannot be written: {wrong[0]}", remedy="check that the brokers run", node=node
        )


def read_runs(options: Mapping[str, Any], node: str, partition: int, wanted: Collection[int]) -> Iterator[tuple[tuple[int, int], bytes]]:
    """The frames of runs in one partition.

    Args:
        options: Those of the source.
        node: Its id.
        partition: The partition.
        wanted: Their offsets.

    Returns:
        ((partition, offset), frames) for each.

    Raises:
        SourceError: A message no longer exists.
        Unreachable: The brokers do not answer.
    """
    left = set(wanted)
    with PartitionScan(node, {**options, "isolation": "read_uncommitted"}, str(options["topic"]), partition, "source") as scan:
        for message in scan.messages(min(wanted), max(wanted) + 1):
            if message.offset() in left:
                left.discard(message.offset())
                yield (partition, message.offset()), message.value()
    if left:
        raise SourceError(
            f'source "{node}": the records at offset {min(left)} of {options["topic"]}-{partition} are not in the log any more',
            remedy="restore them; until then nothing is read, so that no record is skipped",
            code="data-loss",
            node=node,
        )

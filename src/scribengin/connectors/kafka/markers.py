"""The commit markers of a sink: for each slot, the record of its last commit. They are stored in a compacted topic of the sink's own, with
one partition per slot.

A commit marker is written in the same transaction as its rows. Reading ends at the last stable offset, so that markers of open or aborted
transactions are never returned. `harness.kafka_model` defines what follows from a commit marker, and when its absence is conclusive.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.kafka.client import READER, SILENT, KafkaBrokers, client, fault, passes, settings
from scribengin.core.errors import Refused, SinkError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOTS = 33
"""number of partitions of the topic: slot 0 is for the claim and for Batches that commit as a whole, the other slots are for task
outputs"""
OPENING = -1
"""the number in the commit marker that begins a lineage"""
_FORMAT = 1
_CONFIG = {
    "cleanup.policy": "compact",
    # only the newest marker of a slot is needed: with small segments brokers soon delete the others
    "segment.bytes": str(16 * 2**20),
    "segment.ms": str(3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
_LOOK_BACK = 8
_readers: dict[tuple[tuple[str, Any], ...], Any] = {}
"""settings → consumer of this process: a new connection for each request would cost more than the request"""
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Marker:
    """The last commit of a slot. `said` is the write receipt of a Batch, or the report of a task output."""

    owner: str
    flow: str
    sink: str
    lineage: str
    number: int
    hash: str
    term: int
    said: Mapping[str, Any] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The value of the Kafka record."""
        return msgspec.json.encode({"format": _FORMAT, **asdict(self)})

    def same_place(self, owner: str, lineage: str) -> bool:
        """True if the marker was written by this installation (`owner`) and lineage."""
        return (self.owner, self.lineage) == (owner, lineage)


class MarkerTopic:
    """The topic with the commit markers of one sink. Picklable."""

    def __init__(self, node: str, options: Mapping[str, Any], name: str) -> None:
        self.name = name
        self._node = node
        self._options = options
        self._cluster = KafkaBrokers(node, options, "sink")

    def ensure(self) -> None:
        """Create the topic, or check an existing one. Raises Refused if its settings are wrong."""
        found = self._cluster.topics([self.name]).get(self.name)
        if found is None:
            self._cluster.make_topic(self.name, SLOTS, replication=self._options["replication"], config=_CONFIG)
            found = self._cluster.topics([self.name]).get(self.name)
        if found is None:
            raise SinkError(
                f'sink "{self._node}": the topic {self.name} of its commit markers was created, but does not exist', node=self._node
            )
        if found.partitions < SLOTS:
            raise self._refused(f"has {found.partitions} partitions; expected {SLOTS}", "give the sink another: markers: NAME")
        policy = self._cluster.topic_config(self.name)["cleanup.policy"]
        if policy != "compact":
            raise self._refused(
                f"has cleanup.policy={policy}: the brokers would delete the flow's position",
                f"set it: kafka-configs --alter --topic {self.name} --add-config cleanup.policy=compact",
            )

    def delete(self) -> None:
        """Delete the topic with all commit markers."""
        self._cluster.delete_topic(self.name)

    def exists(self) -> bool:
        """True if the topic exists."""
        return self.name in self._cluster.topics([self.name])

    def known_to_be(self, slot: int, number: int) -> Marker | None:
        """The newest commit marker of a slot for which a commit of `number` or later is certain. The commit may become readable only after
        a moment, so this waits up to twice the timeout for it, and then returns the newest existing marker."""
        give_up_s = time.monotonic() + 2 * self._timeout_s
        while True:
            newest = self.newest(slot)
            if (newest is not None and newest.number >= number) or time.monotonic() > give_up_s:
                return newest
            time.sleep(0.05)

    def newest(self, slot: int) -> Marker | None:
        """The newest committed marker of the slot, or None. None is conclusive only after a fence.

        Raises Refused for a record that is not a commit marker, Unreachable if the brokers do not answer.
        """
        kafka = client()
        give_up_s = time.monotonic() + max(10.0, 2 * self._timeout_s)
        with _one_at_a_time:
            while True:
                try:
                    return self._newest(kafka, slot)
                except kafka.KafkaException as error:
                    # a partition that was just created, or has just lost its leader, gets a leader soon
                    if not passes(error.args[0]) or time.monotonic() > give_up_s:
                        raise self._fault(error) from error
                    time.sleep(0.05)

    def _newest(self, kafka: Any, slot: int) -> Marker | None:
        reader = self._reader(kafka)
        low, end = reader.get_watermark_offsets(kafka.TopicPartition(self.name, slot), timeout=self._timeout_s, cached=False)
        back = _LOOK_BACK
        while True:
            # control records, and rows of fenced writers, may follow the marker
            begin = max(low, end - back)
            if begin >= end:
                return None
            last = self._last_between(kafka, reader, slot, begin, end)
            if last is not None:
                return self._decoded(slot, last)
            if begin == low:
                return None
            back *= 4

    def _last_between(self, kafka: Any, reader: Any, slot: int, begin: int, end: int) -> Any | None:
        reader.assign([kafka.TopicPartition(self.name, slot, begin)])
        last, give_up_s = None, time.monotonic() + max(10.0, 2 * self._timeout_s)
        try:
            while True:
                # one message at a time: `consume` would wait for the requested number, and every Batch waits for this call
                message = reader.poll(0.2)
                error = None if message is None else message.error()
                if message is not None and error is None:
                    last = message
                elif error is not None and error.code() == kafka.KafkaError._PARTITION_EOF:
                    if message.offset() >= end:
                        return last
                elif error is not None and not passes(error):
                    raise kafka.KafkaException(error)
                if time.monotonic() > give_up_s:
                    raise Unreachable(
                        f'sink "{self._node}": no broker returned the contents of {self.name}-{slot}',
                        remedy="check that the partition has a leader",
                        node=self._node,
                    )
        finally:
            reader.unassign()

    def _decoded(self, slot: int, message: Any) -> Marker:
        try:
            body = msgspec.json.decode(message.value() or b"")
            form = body.pop("format")
            if form != _FORMAT:
                raise self._refused(
                    f"holds a commit marker of format {form} in partition {slot}; expected format {_FORMAT}", "update Scribengin"
                )
            return Marker(**body)
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
            raise self._refused(
                (
                    f"holds a record that is not a commit marker, in partition {slot} at offset {message.offset()}: another program writes "
                    "there"
                ),
                "find that program, or give the sink a topic of its own: markers: NAME",
            ) from error

    def _refused(self, what: str, remedy: str) -> Refused:
        return Refused(f'sink "{self._node}": the topic {self.name} of its commit markers {what}', remedy=remedy, code="kafka-markers")

    @property
    def _timeout_s(self) -> float:
        return float(self._options["timeout"])

    def _fault(self, error: Exception) -> Exception:
        return fault(self._node, str(self._options["bootstrap"]), error, self._timeout_s, "sink")

    def _reader(self, kafka: Any) -> Any:
        given = settings(self._options) | READER | {"isolation.level": "read_committed", "fetch.wait.max.ms": 5}
        key = tuple(sorted((name, str(value)) for name, value in given.items()))
        if key not in _readers:
            _readers[key] = kafka.Consumer(given, logger=SILENT)
        return _readers[key]

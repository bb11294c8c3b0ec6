"""The Kafka source: creates the reader for the driver, and reads blocks of messages on executors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scribengin.connectors.kafka.client import READER, SILENT, client, fault, passes, settings
from scribengin.connectors.kafka.options import LOSS_REMEDY, SOURCE
from scribengin.connectors.kafka.scan import PartitionScan, id_of
from scribengin.core.errors import SourceError, Unreachable
from scribengin.formats.messages import PARTS, MessageBlock, MessageDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.contract import ConnectorContext, SourceStream
    from scribengin.connectors.kafka.reader import KafkaReader
    from scribengin.core.types import Schema
    from scribengin.formats.avro import Lookup
    from scribengin.formats.avro_schema import WriterSchema

_WAIT_S = 0.05
"""seconds to wait for a block to fill: control records of transactions leave fewer messages than offsets"""

_AHEAD = {"fetch.queue.backoff.ms": 20}
"""a full queue pauses fetching, by default for a second; in that time it becomes empty, and the task would wait"""

_consumers: dict[tuple[tuple[str, Any], ...], Any] = {}
"""settings → consumer of this worker: a new connection for every task would cost more than reading a small Batch"""


class KafkaSource:
    """Topics of one cluster as a source; picklable."""

    messages_at_once = 1024
    """the number of messages in a block: some 256 KiB of small messages, which fit in a core's cache"""
    loss_remedy = LOSS_REMEDY
    """the remedy if unread records are lost"""

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = place.schema
        self._options = SOURCE.filled(place.options)
        self._node = place.node
        self._folder = place.code_folder
        self._parts: dict[str, str] = dict(self._options["metadata"])
        unknown = [part for part in self._parts.values() if part not in PARTS]
        if unknown:
            raise SourceError(
                f'source "{self._node}": metadata has "{unknown[0]}", which is not known',
                remedy=f"use one of {', '.join(PARTS)}",
                node=self._node,
            )

    def resolve_schema(self) -> Schema:
        """The declared columns. Raises SourceError if none are declared, or if `metadata` cannot fill one of them."""
        if self.schema is None:
            remedy = "add `schema:`, such as: id BIGINT, name STRING"
            raise SourceError(
                f'source "{self._node}" reads {self._options["format"]} and declares no columns', remedy=remedy, node=self._node
            )
        self.decoder()
        return self.schema

    def reader(self) -> KafkaReader:
        """A new reader. Raises SourceError if a topic is missing, Unreachable if the brokers do not answer."""
        from scribengin.connectors.kafka.reader import KafkaReader

        reader = KafkaReader(self._node, self._options, self.loss_remedy)
        reader.find_partitions()
        return reader

    def decoder(self) -> MessageDecoder:
        """A new decoder for the source's format. Raises SourceError for contradictory options."""
        assert self.schema is not None
        writer: WriterSchema | Lookup | None = None
        if self._options["format"] == "avro":
            from scribengin.connectors.kafka.writers import open_writers

            writer = open_writers(self._node, self._folder, self._options)
        try:
            return MessageDecoder(self._options["format"], self.schema, self._options, self._parts, writer)
        except ValueError as error:
            raise SourceError(f'source "{self._node}": {error}', remedy="change `schema` or `metadata`", node=self._node) from error

    def read(self, stream: SourceStream) -> Iterator[MessageBlock]:
        """The messages of the stream. Raises SourceError if some of them are lost, Unreachable if the brokers do not return them."""
        place = stream.place
        if place["end"] <= place["start"]:
            return
        kafka = client()
        consumer = self._consumer(kafka)
        topic, partition, end = place["topic"], place["partition"], place["end"]
        consumer.assign([kafka.TopicPartition(topic, partition, place["start"])])
        try:
            yield from self._blocks(kafka, consumer, topic, partition, place["start"], end)
        finally:
            consumer.unassign()

    def numbers_of(self, stream: SourceStream, *, offset: int | None = None, ordinal: int | None = None) -> tuple[int, int] | None:
        """See the contract's TracingSource."""
        place = stream.place
        with PartitionScan(self._node, self._options, place["topic"], place["partition"], "source") as scan:
            if scan.low > place["start"]:
                return None
            for number, message in enumerate(scan.messages(place["start"], place["end"])):
                if message.offset() == offset or number == ordinal:
                    return message.offset(), number
        return None

    def made_of(self, place: str, sequence: int) -> tuple[str, str] | None:
        """See the contract's TracingSource."""
        topic, _, partition = place.rpartition("-")
        with PartitionScan(self._node, self._options, topic, int(partition), "source") as scan:
            message = next(scan.messages(sequence, sequence + 1), None)
        version, _, id_ = ("" if message is None else id_of(message)).partition(" ")
        return (version.rpartition("@")[0], id_) if id_ else None

    def _blocks(self, kafka: Any, consumer: Any, topic: str, partition: int, start: int, end: int) -> Iterator[MessageBlock]:
        heard_s, silent_s = time.monotonic(), max(30.0, 2 * self._options["timeout"])
        reached = False
        while not reached:
            # at most the remaining number: the call waits for the requested number, and the end of the partition counts as one message
            messages = consumer.consume(min(self.messages_at_once, end - start), timeout=_WAIT_S)
            if not messages:
                if time.monotonic() - heard_s > silent_s:
                    raise Unreachable(
                        f'source "{self._node}": no broker has returned data of {topic}-{partition} for {silent_s:g} s',
                        remedy="check that its leader runs",
                        node=self._node,
                    )
                continue
            heard_s = time.monotonic()
            if any(message.error() is not None for message in messages):
                messages, reached = self._without_errors(kafka, messages, end)
            # records after the range belong to the next Batch; the last offsets of a range may be records that readers do not see
            if messages and messages[-1].offset() >= end - 1:
                reached = True
                messages = [message for message in messages if message.offset() < end]
            if messages:
                start = messages[-1].offset() + 1
                yield self._block(topic, partition, messages)

    def _block(self, topic: str, partition: int, messages: list[Any]) -> MessageBlock:
        asked = set(self._parts.values())
        return MessageBlock(
            topic,
            partition,
            [message.value() for message in messages],
            [message.offset() for message in messages],
            [message.key() for message in messages] if "key" in asked else (),
            [_time_ms(message.timestamp()) for message in messages] if "timestamp" in asked else (),
            [message.headers() or () for message in messages] if "headers" in asked else (),
        )

    def _without_errors(self, kafka: Any, messages: list[Any], end: int) -> tuple[list[Any], bool]:
        """Returns the valid messages, and True if the end of the partition shows that the range is complete."""
        reached = False
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.code() == kafka.KafkaError._PARTITION_EOF:
                reached = reached or message.offset() >= end
            elif error.code() in (kafka.KafkaError._AUTO_OFFSET_RESET, kafka.KafkaError.OFFSET_OUT_OF_RANGE):
                # with `continue` a restart helps: KafkaReader.verify then counts the lost records and continues without them
                kind, remedy = (
                    (SourceError, self.loss_remedy)
                    if self._options["on_data_loss"] == "stop"
                    else (Unreachable, "no action is needed: the query restarts, counts them as lost, and continues without them")
                )
                raise kind(
                    (
                        f'source "{self._node}": records up to offset {end} of {message.topic()}-{message.partition()} are not in the '
                        f"log any more: {error.str()}"
                    ),
                    remedy=remedy,
                    code="data-loss",
                    node=self._node,
                )
            elif not passes(error):
                raise fault(self._node, self._options["bootstrap"], kafka.KafkaException(error), self._options["timeout"])
        return [message for message in messages if message.error() is None], reached

    def _consumer(self, kafka: Any) -> Any:
        own = READER | {
            "isolation.level": self._options["isolation"],
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
        given = _AHEAD | settings(self._options) | own
        key = tuple(sorted(given.items()))
        if key not in _consumers:
            _consumers[key] = kafka.Consumer(given, logger=SILENT)
        return _consumers[key]


def _time_ms(timestamp: tuple[int, int]) -> int | None:
    kind, moment_ms = timestamp
    return moment_ms if kind else None

"""A channel in a Kafka topic: record batches as messages, written with the protocol of the Kafka sink and read like any topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.channel.wire import Wire, known_schema, rows_of
from scribengin.connectors.kafka.client import KafkaBrokers
from scribengin.connectors.kafka.markers import OPENING
from scribengin.connectors.kafka.options import SINK, SOURCE
from scribengin.connectors.kafka.outgoing import Outgoing, partitions_of
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.connectors.kafka.source import KafkaSource
from scribengin.connectors.kafka.topics import TargetTopic, TopicBook
from scribengin.core.remedies import start_over
from scribengin.core.storage import remove_tree
from scribengin.formats.packs import PackDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.connectors.contract import BatchId, ConnectorContext, SourceStream
    from scribengin.connectors.kafka.message_stream import OriginMaker
    from scribengin.connectors.kafka.reader import KafkaReader
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad, RecordPlace
    from scribengin.formats.messages import MessageBlock
    from scribengin.formats.origins import Origins
    from scribengin.formats.packs import PackBlock, Packed, PackMaker

KEY_HEADER = "scribengin-key"
"""the header with the id of the key that a record batch is encrypted with"""
_MOST_BYTES = 8 * 2**20
"""the message size that topics of channels allow; larger than in other topics, so that a row that is too large for those still fits"""
_LOOK_S = 3.0
_HEAD_BYTES = 512
"""upper bound of the overhead of a message and its batch, in bytes"""


class KafkaChannelSink(KafkaSink):
    """The writing end of a channel in a Kafka topic."""

    def __init__(self, place: ConnectorContext) -> None:
        options = _connection(place) | {"topic": place.options["topic"], "format": "binary", "missing_topic": "make", "record_id": "none"}
        super().__init__(replace(place, options=options))
        self._wire = Wire(place)
        self._topics = _topics(place, self._options)
        self._patient = place.options["durability"] != "end_to_end"
        self._target: TargetTopic | None = None
        """the partitions as they were when the channel was claimed"""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """See the contract."""
        super().prepare(owner=owner, lineage=lineage, adopt=adopt)
        self._target = self._topics.get(self._options["topic"])

    def _take_back(self, *, dry_run: bool) -> None:
        """Delete the topic with its contents: the topic of a channel belongs to the flow."""
        if not dry_run:
            self._topics.delete(self._options["topic"])

    def behind_published(self, lineage: str) -> Mapping[str, Any]:
        """The `behind` value from the known committed Batches, without a request to the channel."""
        newest = self._published(lineage).newest()
        return {"units": 0, "after": {"0": OPENING if newest is None else newest}}

    def discard(self, batch: BatchId) -> None:
        """Delete the staged files of a dropped Batch."""
        remove_tree(self._staged(batch.lineage) / f"{batch.number:010d}")

    def newest_published(self, lineage: str) -> int:
        """The newest Batch that is known to be written, without a request to the channel; -1: none."""
        newest = self._published(lineage).newest()
        return -1 if newest is None else newest

    def _maker(self, schema: Schema, batch: BatchId, unit: int) -> OriginMaker:
        name = self._options["topic"]
        if self._patient:  # a stream that may have to wait is created without a request to the channel, which may be unavailable
            topic = self._target or TargetTopic(name, "", self._options["partitions"], _MOST_BYTES, compacted=False)
        else:
            topic = self._topics.get(name)
        packs = self._wire.maker(schema, batch, unit, most=topic.max_bytes - _HEAD_BYTES)
        return PackMessages(packs, topic, self._wire.options["key"], unit + batch.number)

    def _rows_in(self, message: Any) -> int:
        return rows_of(message.value(), self._wire.id)


class PackMessages:
    """Converts rows to messages that contain record batches. Without keys the record batches of a task output are distributed over the
    partitions in rotation, starting with `first`."""

    def __init__(self, packs: PackMaker, topic: TargetTopic, key: Sequence[str], first: int) -> None:
        self._packs = packs
        self._topic = topic
        self._key = tuple(key)
        self._next = first

    def make_from(self, rows: pa.RecordBatch, origins: Origins) -> tuple[Outgoing, list[Bad]]:
        """The messages for the rows, and the rows that are in no record batch."""
        made: list[Packed] = []
        partitions: list[int] = []
        bad: list[Bad] = []
        if not self._key:
            made, bad = self._packs.make(rows, origins)
            partitions = [(self._next + index) % self._topic.partitions for index in range(len(made))]
            self._next += len(made)
        else:
            numbers = partitions_of(_keys(rows, self._key), self._topic.partitions)
            for number in np.unique(numbers).tolist():
                stay = np.flatnonzero(numbers == number)
                packed, unfit = self._packs.make(rows.take(pa.array(stay)), origins.taken(stay))
                made += packed
                partitions += [number] * len(packed)
                bad += [replace(each, ordinal=int(stay[each.ordinal])) for each in unfit]
        keyed = any(pack.key_id is not None for pack in made)
        messages = Outgoing(
            [self._topic.name] * len(made),
            np.array(partitions, np.int32),
            [None] * len(made),
            [pack.value for pack in made],
            [0] * len(made),
            None,
            {KEY_HEADER: [(pack.key_id or "").encode() for pack in made]} if keyed else {},
            [pack.rows for pack in made],
            sum(pack.digest for pack in made),
        )
        return messages, sorted(bad, key=lambda each: each.ordinal)


class KafkaChannelSource(KafkaSource):
    """The reading end of a channel in a Kafka topic."""

    handed_over = True
    messages_at_once = 16
    loss_remedy = (
        f"its unread rows are lost: {start_over()}; or continue without them: write durability: best_effort at the edge, run once, and "
        "remove it again: the lost rows are counted, and the present rows are read"
    )

    def __init__(self, place: ConnectorContext) -> None:
        given = {name: place.options[name] for name in ("max_rows", "split")}
        loss = "continue" if place.options["lossy"] else "stop"
        options = _connection(place) | given | {"topics": (place.options["topic"],), "format": "binary", "on_data_loss": loss}
        super().__init__(replace(place, options=SOURCE.filled(options)))
        self._wire = Wire(place)
        self._near = KafkaBrokers(self._node, self._options | {"timeout": min(_LOOK_S, self._options["timeout"])})
        self._book = _topics(place, SINK.filled(_connection(place) | {"topic": place.options["topic"], "missing_topic": "make"}))

    def resolve_schema(self) -> Schema:
        """The columns that the upstream tier writes. Raises SourceError if they are not known yet."""
        return known_schema(self.schema, self._wire.id, self._node)

    def reader(self) -> KafkaReader:
        """A reader of the topic; the topic is created if the upstream tier has not created it yet."""
        self._book.get(self._wire.options["topic"])
        return super().reader()

    def check_ready(self, *, begun: bool) -> None:  # noqa: ARG002 (the reader detects a topic that was created again)
        """See `group.contract.MemberSource`."""
        self._near.topics([self._wire.options["topic"]])

    def decoder(self) -> PackDecoder:  # type: ignore[override]
        """A decoder for record batches."""
        return PackDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[PackBlock]:  # type: ignore[override]
        """The record batches of the stream."""
        return self._wire.packs(_values(super().read(stream)))


def _values(blocks: Iterator[MessageBlock]) -> Iterator[tuple[bytes | None, RecordPlace]]:
    for block in blocks:
        for index, value in enumerate(block.values):
            yield value, block.place(index)


def _keys(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """One key for each row, made of all columns; null if all are null."""
    texts = [
        rows.column(name).cast(pa.binary())
        if pa.types.is_binary(rows.column(name).type)
        else rows.column(name).cast(pa.string()).cast(pa.binary())
        for name in columns
    ]
    if len(texts) == 1:
        return pc.fill_null(texts[0], b"")
    return pc.binary_join_element_wise(*[pc.fill_null(text, b"") for text in texts], b"\x1f")


def _connection(place: ConnectorContext) -> dict[str, Any]:
    names = ("bootstrap", "config", "partitions", "replication")
    return {name: place.options[name] for name in names if place.options[name] is not None}


def _topics(place: ConnectorContext, options: Mapping[str, Any]) -> TopicBook:
    settings = {
        "max.message.bytes": str(_MOST_BYTES),
        "retention.ms": str(int(place.options["retention"] * 1000)),
        "compression.type": "producer",
        # retention uses the broker's clock: an upstream tier with a slow clock would lose the records that it has just written
        "message.timestamp.type": "LogAppendTime",
    }
    return TopicBook(place.node, options, settings)

"""The Kafka sink of `delivery: at_least_once`: tasks make the same messages as for exactly-once, and Spark's own sink writes them.

No commit markers, no transactions, no staging: a Batch that fails or is killed before its decision is written again, and the ids in the
messages' headers are the same again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from scribengin.connectors.contract import Published, Receipt
from scribengin.connectors.kafka.avro_values import AvroValues
from scribengin.connectors.kafka.java_client import java_settings
from scribengin.connectors.kafka.message_stream import MessageStream
from scribengin.connectors.kafka.options import SINK
from scribengin.connectors.kafka.outgoing import MessageMaker
from scribengin.connectors.kafka.publications import published_log
from scribengin.connectors.kafka.topics import TopicBook
from scribengin.core.errors import Refused, SinkError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.kafka.outgoing import Outgoing
    from scribengin.core.errors import ScribenginError
    from scribengin.core.types import Schema

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_ROW = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS),
    ]
)
_SAID = re.compile(r"org\.apache\.kafka\.common\.(?:errors\.)?(\w+Exception)(?:: ([^\n]*))?")
_LOGIN = ("SaslAuthenticationException", "SslAuthenticationException", "AuthenticationException")
_TRANSIENT = (
    "TimeoutException",
    "DisconnectException",
    "NetworkException",
    "NotEnoughReplicasException",
    "NotEnoughReplicasAfterAppendException",
    "NotLeaderOrFollowerException",
    "LeaderNotAvailableException",
    "UnknownTopicOrPartitionException",
    "KafkaStorageException",
    "OutOfOrderSequenceException",
    "InvalidProducerEpochException",
    "UnknownProducerIdException",
    "CoordinatorNotAvailableException",
    "CoordinatorLoadInProgressException",
)


class SparkKafkaSink:
    """One `type: kafka` sink with `delivery: at_least_once`; a SparkSink. Executors get a pickled copy, from which they take streams."""

    exactly_once = False
    format = "kafka"
    columns = "topic STRING, partition INT, key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    jars = "spark-kafka"

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self._options = SINK.filled(place.options)
        self._flow = place.flow
        self._version = place.version
        self._work = place.work
        self._topics = TopicBook(self.node, self._options)
        self._avro = AvroValues(self.node, place.code_folder, self._options) if self._options["format"] == "avro" else None

    def spark_options(self) -> dict[str, str]:
        """See the contract. Raises SinkError. Brokers are asked for the topic's limit if there is anything to write."""
        fixed = "{" not in self._options["topic"] and self._work is not None and self._topics.find(self._options["topic"])
        largest_bytes = fixed.max_bytes if fixed else 0
        return {f"kafka.{name}": value for name, value in java_settings(self.node, self._options, largest_bytes=largest_bytes).items()}

    def look_at_place(self) -> None:
        """See LookedAtSink."""
        self._topics.look_at(str(self._options["topic"]))

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:  # noqa: ARG002 (the contract's)
        """Claims nothing. Checks the settings and the topic, so that errors are reported at the start."""
        java_settings(self.node, self._options)
        if self._avro is not None:
            self._avro.load_schemas()
        if "{" not in self._options["topic"]:
            self._topics.get(self._options["topic"])

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> MessageRows:  # noqa: ARG002 (the contract's)
        """A stream whose messages Spark writes."""
        maker = MessageMaker(self.node, self._options, schema, self._topics, f"{self._flow}@{self._version[:8]}", unit, self._avro)
        return MessageRows(self.node, unit, maker)

    def publish(self, decided: Decided) -> None:
        """Does nothing: Spark wrote the Batch before it was decided. Raises Refused for a Batch that was decided under `exactly_once` and
        is not published yet."""
        if not decided.behind:
            return
        log = None if self._work is None else published_log(self._work, decided.batch.lineage)
        if log is None or log.read(decided.batch.number) is None:
            raise Refused(
                f'sink "{self.node}": batch {decided.batch.number} was decided with delivery: exactly_once and is not published yet',
                remedy="run the unchanged flow once (run --once), then change its delivery",
                code="delivery-changed",
            )

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:  # noqa: ARG002 (the contract's)
        """See `publish`."""
        if decided is not None:
            self.publish(decided)

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:  # noqa: ARG002 (the contract's)
        """Reports only the decided rows: duplicates and the Batch of a message cannot be detected."""
        for each in decided:
            yield Published(each.batch.number, sum(receipt.rows for receipt in each.receipts))

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:  # noqa: ARG002 (the contract's)
        """Messages cannot be removed. Raises Refused if there are any in the topics: their writer cannot be determined."""
        self._topics.refuse_filled()
        return 0

    def fault(self, text: str) -> ScribenginError | None:
        """An error of the Java client, as reported by Spark: Unreachable if a retry may succeed."""
        found = _SAID.findall(text)
        if not found:
            return None
        kind, said = found[-1]
        bootstrap = self._options["bootstrap"]
        told = f"{kind}{': ' if said else ''}{said}"
        if any(name in _LOGIN for name, _ in found):
            return SinkError(
                f'sink "{self.node}": the brokers at {bootstrap} rejected the login of this user ({told})',
                remedy="check `config`: security.protocol, sasl.mechanism, sasl.username, sasl.password, ssl.ca.location",
                code="kafka-login",
                node=self.node,
            )
        if any(name.endswith("AuthorizationException") for name, _ in found):
            return SinkError(
                f'sink "{self.node}": this user is not authorized to write at {bootstrap} ({told})',
                remedy="grant it: Write and Describe on the topics, IdempotentWrite on the cluster",
                code="kafka-forbidden",
                node=self.node,
            )
        if kind in _TRANSIENT:
            return Unreachable(
                f'sink "{self.node}": the brokers at {bootstrap} did not accept all messages ({told}); the batch is written again',
                remedy="check that they run; part of the batch may be duplicated",
                node=self.node,
            )
        return SinkError(
            f'sink "{self.node}": Spark\'s own sink failed at {bootstrap} ({told})',
            remedy="check `config`, and the limits of the topic",
            code="kafka-java-client",
            node=self.node,
        )


class MessageRows(MessageStream):
    """Messages of one task output as rows for Spark; see RowStream."""

    def __init__(self, sink: str, unit: int, maker: MessageMaker) -> None:
        super().__init__(maker)
        self._sink = sink
        self._unit = unit
        self._made: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def keep(self, messages: Outgoing) -> None:
        """Give them to Spark at the next `take`."""
        if len(messages):
            self._made.append(_as_rows(messages))
            self._rows += messages.rows_inside()
            self._bytes += messages.size_bytes()

    def take(self) -> Sequence[pa.RecordBatch]:
        """See the contract."""
        made, self._made = self._made, []
        return made

    def close(self) -> Receipt:
        """Only the counts: Spark writes the messages."""
        return Receipt(self._sink, self._unit, self._rows, self._bytes)

    def abort(self) -> None:
        """Does nothing: messages that Spark has written remain."""


def _as_rows(messages: Outgoing) -> pa.RecordBatch:
    if messages.ids is None and not messages.headers:
        headers = pa.nulls(len(messages), _HEADERS)
    else:
        headers = pa.array([[{"key": name, "value": _bytes(value)} for name, value in each] for each in messages.header_lists()], _HEADERS)
    arrays = [
        pa.array(messages.topics, pa.string()),
        pa.array(messages.partitions, pa.int32()),
        pa.array(messages.keys, pa.binary()),
        pa.array(messages.values, pa.binary()),
        headers,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ROW)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

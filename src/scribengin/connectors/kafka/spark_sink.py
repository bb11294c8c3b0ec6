"""The Kafka sink for `delivery: at_least_once`: tasks make the same messages as for exactly-once, and Spark's own Kafka sink writes them.

It uses no commit markers, transactions or staging: a Batch that fails or is killed before its decision is written again, with the same ids
in the headers of the messages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.connectors.contract import Published, Receipt
from scribengin.connectors.kafka.avro_values import AvroValues
from scribengin.connectors.kafka.message_stream import MessageStream
from scribengin.connectors.kafka.options import SINK
from scribengin.connectors.kafka.outgoing import MessageMaker
from scribengin.connectors.kafka.publications import published_log
from scribengin.connectors.kafka.topics import TopicBook
from scribengin.core.errors import Refused, SinkError, Unreachable
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.kafka.outgoing import Outgoing
    from scribengin.core.errors import ScribenginError
    from scribengin.core.types import Schema


# The settings of a sink for the Java client, which Spark's own sink uses. Some have other names than in librdkafka.


_SAME = frozenset(
    {
        "batch.size",
        "client.dns.lookup",
        "client.id",
        "connections.max.idle.ms",
        "delivery.timeout.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
    }
)
"""settings with the same name and meaning in both clients"""
_RENAMED = {
    "message.timeout.ms": "delivery.timeout.ms",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "ssl.key.password": "ssl.key.password",
}
_PEM = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
    "ssl.key.pem": "ssl.keystore.key",
}
"""names ending in `.location` refer to a file, which is read in the driver: the Java client gets its text"""
_LOGIN_NAMES = ("sasl.username", "sasl.password")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_MEMORY_BYTES = 64 * 2**20
"""memory for waiting messages, and so the upper limit of the largest message"""


def java_settings(node: str, options: Mapping[str, Any], *, largest_bytes: int = 0) -> dict[str, str]:
    """The settings of the Java client's producer, with secrets in plain text. Raises SinkError for a setting that the Java client does not
    have; the message contains no value.

    Args:
        node: The id of the sink.
        options: The options of the sink.
        largest_bytes: The size of the largest possible message, in bytes; 0 if unknown.
    """
    config = {name: value.reveal() if isinstance(value, Secret) else str(value) for name, value in options["config"].items()}
    memory_bytes = max(_MEMORY_BYTES, 2 * largest_bytes)
    found = {
        "bootstrap.servers": str(options["bootstrap"]),
        "client.id": "scribengin",
        "acks": "all",
        "enable.idempotence": "true",
        "compression.type": options["compression"],
        "linger.ms": str(round(options["linger"] * 1000)),
        "max.request.size": str(memory_bytes),
        "buffer.memory": str(memory_bytes),
    }
    for name, value in config.items():
        shown = options["config"][name]
        if isinstance(shown, Secret) and name not in {*_LOGIN_NAMES, *_PEM, "ssl.key.password"}:
            raise _wrong(node, f"config has {name} as a secret, which the Java client's log would show", "write it in plain")
        if name in _SAME:
            found[name] = value
        elif name in _RENAMED:
            found[_RENAMED[name]] = value
        elif name in _PEM:
            found[_PEM[name]] = _pem(node, name, value, shown)
        elif name not in _LOGIN_NAMES:
            known = sorted({*_SAME, *_RENAMED, *_PEM, *_LOGIN_NAMES})
            raise _wrong(node, f'config has "{name}", which the Java client does not know', f"remove it, or use one of {', '.join(known)}")
    for store in ("truststore", "keystore"):
        if any(name.startswith(f"ssl.{store}.") for name in found):
            found[f"ssl.{store}.type"] = "PEM"
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    found["security.protocol"] = found.get("security.protocol", "PLAINTEXT").upper()
    if found["security.protocol"].startswith("SASL"):
        found["sasl.jaas.config"] = _login(node, found.get("sasl.mechanism", "GSSAPI"), config)
    return found


def _login(node: str, mechanism: str, config: Mapping[str, str]) -> str:
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise _wrong(node, f"config has sasl.mechanism {mechanism}", f"use one of {', '.join(_LOGIN_MODULES)}")
    missing = [name for name in _LOGIN_NAMES if name not in config]
    if missing:
        raise _wrong(node, f"config has sasl.mechanism {mechanism} and no {missing[0]}", f"add {missing[0]}: ${{secret:env/NAME}}")
    # the password comes first: in its log, Spark masks everything between the first quote of the password and the last quote of the setting
    return f"{module} required password={_quoted(config['sasl.password'])} username={_quoted(config['sasl.username'])};"


def _quoted(text: str) -> str:
    """Quote a text for Java's StreamTokenizer."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _pem(node: str, name: str, value: str, shown: object) -> str:
    text = value
    if name.endswith(".location"):
        try:
            text = Path(value).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "no text"
            raise _wrong(node, f"config has {name}, whose file {shown} cannot be read as PEM: {reason}", "name a PEM file") from error
    if "-----BEGIN " not in text:
        raise _wrong(node, f"config has {name}, which is not in PEM format", "write it as PEM (-----BEGIN …)")
    if "PRIVATE KEY-----" in text and "BEGIN PRIVATE KEY" not in text and "BEGIN ENCRYPTED PRIVATE KEY" not in text:
        raise _wrong(node, f"config has {name}, a key that is not in PKCS#8", "convert it: openssl pkcs8 -topk8 -in OLD -out NEW")
    return text


def _wrong(node: str, what: str, remedy: str) -> SinkError:
    return SinkError(
        f'''sink "{node}": {what}; with delivery: at_least_once Spark's own sink writes, with the Java client''',
        remedy=f"{remedy}; or write delivery: exactly_once, which uses librdkafka",
        code="kafka-java-client",
        node=node,
    )


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
    """A `type: kafka` sink with `delivery: at_least_once`; a SparkSink. Executors get a pickled copy, from which they create streams."""

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
        """See the contract. If the sink has a work folder and a fixed topic, the brokers are asked for the topic's size limit. Raises
        SinkError."""
        fixed = "{" not in self._options["topic"] and self._work is not None and self._topics.find(self._options["topic"])
        largest_bytes = fixed.max_bytes if fixed else 0
        return {f"kafka.{name}": value for name, value in java_settings(self.node, self._options, largest_bytes=largest_bytes).items()}

    def check_place(self) -> None:
        """See PlaceChecking."""
        self._topics.check_target(str(self._options["topic"]))

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:  # noqa: ARG002 (the contract's)
        """Check the settings and the topic, so that errors are reported at the start. Nothing is claimed."""
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
        """Report the decided rows without reading the topics: duplicates, and the Batch of a message, cannot be detected."""
        for each in decided:
            yield Published(each.batch.number, sum(receipt.rows for receipt in each.receipts), counted=False)

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:  # noqa: ARG002 (the contract's)
        """Messages cannot be removed. Raises Refused if the topics contain any: their writer cannot be determined."""
        self._topics.refuse_filled()
        return 0

    def fault(self, text: str) -> ScribenginError | None:
        """Convert an error of the Java client, as reported by Spark: Unreachable if a retry may succeed; None if `text` is not such an
        error."""
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
    """The messages of one task output as rows for Spark; see RowStream."""

    def __init__(self, sink: str, unit: int, maker: MessageMaker) -> None:
        super().__init__(maker)
        self._sink = sink
        self._unit = unit
        self._made: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def keep(self, messages: Outgoing) -> None:
        """Collect messages, which the next `take` returns."""
        if len(messages):
            self._made.append(_as_rows(messages))
            self._rows += messages.rows_inside()
            self._bytes += messages.size_bytes()

    def take(self) -> Sequence[pa.RecordBatch]:
        """See the contract."""
        made, self._made = self._made, []
        return made

    def close(self) -> Receipt:
        """Return a write receipt with the counts only: Spark writes the messages."""
        return Receipt(self._sink, self._unit, self._rows, self._bytes)

    def abort(self) -> None:
        """Does nothing: messages that Spark has written cannot be removed."""


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

"""The only module that uses the client library: client settings, client errors as Scribengin errors, and the requests of readers and sinks
to the brokers."""

from __future__ import annotations

import re
import time
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.errors import EnvironmentFault, SinkError, SourceError, Unreachable
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.core.errors import ScribenginError

Role = Literal["source", "sink"]
_RIGHTS: Mapping[Role, str] = {
    "source": "Read on the topics; for lag tools, Read on the consumer group too",
    "sink": "Write and DescribeConfigs on the topics; Create, Read, Write and DescribeConfigs on the topic of its commit markers; Write "
    "on the transactional ids that begin with that topic's name; for an audit, Read on the topics",
}
_REFUSED = (
    "INVALID_TRANSACTION_TIMEOUT",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_PARTITIONS",
    "INVALID_CONFIG",
    "TOPIC_EXCEPTION",
    "POLICY_VIOLATION",
)
"""broker errors for settings that a retry will not change"""
LOGIN = ("SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "_SSL")
"""login errors that a retry will not change"""

Partition = tuple[str, int]
"""(topic, partition)"""


@dataclass(frozen=True, slots=True)
class Topic:
    """The current state of a topic. `id` is the broker's id: a topic that was deleted and created again has another one."""

    name: str
    id: str
    partitions: int


def client() -> Any:
    """The module `confluent_kafka`. Raises EnvironmentFault if it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise EnvironmentFault(
            f"type: kafka needs the package confluent-kafka: {error}",
            remedy="install it: pip install 'scribengin[kafka]'",
            code="kafka-client",
        ) from error
    return confluent_kafka


def _admin_module() -> Any:
    client()
    return import_module("confluent_kafka.admin")


def settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of every client of a node with these options. They contain secrets in plain text, so they must not leave the process."""
    given = {name: value.reveal() if isinstance(value, Secret) else value for name, value in options["config"].items()}
    return {
        "bootstrap.servers": options["bootstrap"],
        "client.id": "scribengin",
        "log_level": 0,  # the error that follows a disconnection is reported, with a remedy
        "reconnect.backoff.max.ms": 1000,
    } | given


READER = {
    "group.id": "scribengin",  # required by the library; nothing is committed under it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
"""the settings of every consumer that reads from given offsets up to the current end"""


_ELECTING = frozenset({"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"})
"""errors of a partition that has no leader yet, such as those of a new topic, or whose new leader the client does not know yet: a retry
succeeds"""
_INVALID = -1001
"""the offset that the client library returns, without an error, for a partition whose leader did not answer"""
_ELECTED_AFTER_S = 0.1


class KafkaBrokers:
    """Sends requests to the brokers. Each call takes at most the `timeout` of the node. Picklable, without its connections.

    Every call raises Unreachable if the brokers do not answer, and SourceError or SinkError if a retry cannot succeed.

    Args:
        node: The id of the node, for messages.
        options: The options of the node.
        role: `source` or `sink`: which error is raised, and for messages.
    """

    def __init__(self, node: str, options: Mapping[str, Any], role: Role = "source") -> None:
        self._node = node
        self._role: Role = role
        self._options = options
        self._bootstrap = str(options["bootstrap"])
        self._timeout_s = float(options["timeout"])
        self._committed_only = options.get("isolation", "read_committed") == "read_committed"
        self._told: Any = None

    @cached_property
    def _admin(self) -> Any:
        # created at the first use: most copies that are sent to tasks never need it
        module = _admin_module()
        # the client reports unavailable brokers and rejected logins separately from the call that then times out
        return module.AdminClient(settings(self._options) | {"error_cb": self._hear}, logger=SILENT)

    def __reduce__(self) -> tuple[type[KafkaBrokers], tuple[str, Mapping[str, Any], Role]]:
        # Spark pickles readers: a copy opens its own connection
        return KafkaBrokers, (self._node, self._options, self._role)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Name → topic, for those of the names that exist."""
        asked = list(names)
        if not asked:
            return {}
        found: dict[str, Topic] = {}
        futures = self._asked(lambda: self._admin.describe_topics(client().TopicCollection(asked), request_timeout=self._timeout_s))
        for name, future in futures.items():
            try:
                described = future.result(timeout=self._timeout_s + 1)
            except Exception as error:
                if code_of(error) == "UNKNOWN_TOPIC_OR_PART":
                    continue
                raise self._fault(error, f"topic {name}") from error
            found[name] = Topic(name, str(described.topic_id), len(described.partitions))
        return found

    def matching(self, pattern: str) -> list[str]:
        """The names of all topics whose full name matches the regular expression, sorted, without the cluster's internal ones (`__…`)."""
        listed = self._asked(lambda: self._admin.list_topics(timeout=self._timeout_s))
        return sorted(name for name in listed.topics if re.fullmatch(pattern, name) and not name.startswith("__"))

    def first(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Partition → offset at which its log begins."""
        return self._offsets({partition: _admin_module().OffsetSpec.earliest() for partition in partitions})

    def last(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Partition → offset after the last readable record. With `isolation: read_committed` this is at most the first offset of an open
        transaction."""
        return self._offsets({partition: _admin_module().OffsetSpec.latest() for partition in partitions})

    def since(self, times_ms: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """Partition → (offset, time in milliseconds since 1970) of the first record at or after the given time. Partitions without such a
        record are left out."""
        found = self._listed({partition: _admin_module().OffsetSpec.for_timestamp(time_ms) for partition, time_ms in times_ms.items()})
        return {partition: (int(each.offset), int(each.timestamp)) for partition, each in found.items() if each.offset >= 0}

    def at_time(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        """Partition → offset of the first record at or after a time, in milliseconds since 1970; -1 if there is no such record yet."""
        return self._offsets({partition: _admin_module().OffsetSpec.for_timestamp(time_ms) for partition in partitions})

    def topic_config(self, name: str) -> dict[str, str]:
        """Name → value of the settings of an existing topic, including defaults."""
        module = _admin_module()
        resource = module.ConfigResource(module.ConfigResource.Type.TOPIC, name)
        futures = self._asked(lambda: self._admin.describe_configs([resource], request_timeout=self._timeout_s))
        entries = self._waited(futures[resource], f"DescribeConfigs on topic {name}")
        return {key: entry.value or "" for key, entry in entries.items()}

    def make_topic(self, name: str, partitions: int, *, replication: int | None = None, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, unless another client has just created it, and wait until the brokers know it.

        Args:
            name: The name of the topic.
            partitions: The number of partitions.
            replication: The number of copies; None: three, or the number of brokers if there are fewer.
            config: Settings of the topic.
        """
        copies = replication or min(3, len(self._asked(lambda: self._admin.list_topics(timeout=self._timeout_s)).brokers))
        topic = _admin_module().NewTopic(name, partitions, copies, config=dict(config or {}))
        future = self._asked(lambda: self._admin.create_topics([topic], operation_timeout=self._timeout_s))[name]
        try:
            future.result(timeout=self._timeout_s + 1)
        except Exception as error:
            if code_of(error) != "TOPIC_ALREADY_EXISTS":
                raise self._fault(error, f"Create topic {name}") from error
        give_up_s = time.monotonic() + self._timeout_s
        # a broker may not know yet a topic that another one has just created
        while name not in self.topics([name]) and time.monotonic() < give_up_s:
            time.sleep(0.05)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, unless it is already deleted."""
        future = self._asked(lambda: self._admin.delete_topics([name], operation_timeout=self._timeout_s))[name]
        try:
            future.result(timeout=self._timeout_s + 1)
        except Exception as error:
            if code_of(error) != "UNKNOWN_TOPIC_OR_PART":
                raise self._fault(error, f"Delete topic {name}") from error

    def _waited(self, future: Any, about: str = "") -> Any:
        try:
            return future.result(timeout=self._timeout_s + 1)
        except Exception as error:
            raise self._fault(error, about) from error

    def _offsets(self, asked: Mapping[Partition, Any]) -> dict[Partition, int]:
        return {partition: int(each.offset) for partition, each in self._listed(asked).items()}

    def _listed(self, asked: Mapping[Partition, Any]) -> dict[Partition, Any]:
        from confluent_kafka import IsolationLevel, TopicPartition

        if not asked:
            return {}
        level = IsolationLevel.READ_COMMITTED if self._committed_only else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(topic, number): spec for (topic, number), spec in asked.items()}
        give_up_s = time.monotonic() + self._timeout_s
        while True:
            futures = self._asked(lambda: self._admin.list_offsets(request, isolation_level=level, request_timeout=self._timeout_s))
            listed: dict[Partition, Any] = {}
            for place, future in futures.items():
                try:
                    listed[place.topic, place.partition] = future.result(timeout=self._timeout_s + 1)
                except Exception as error:
                    if code_of(error) not in _ELECTING or time.monotonic() > give_up_s:
                        raise self._fault(error, f"topic {place.topic}") from error
            for (topic, number), found in listed.items():
                if found.offset == _INVALID:
                    leader = f"the leader of {topic}-{number} at {self._bootstrap}"
                    raise Unreachable(
                        f'{self._role} "{self._node}": {leader} did not return its offsets within {self._timeout_s:g} s',
                        remedy="check that the broker runs and is reachable",
                        node=self._node,
                    )
            if len(listed) == len(futures):
                return listed
            time.sleep(_ELECTED_AFTER_S)

    def _asked(self, question: Any) -> Any:
        try:
            self._admin.poll(0)  # handle pending error reports of earlier requests
            self._told = None
            return question()
        except EnvironmentFault:
            raise  # there is no client to poll
        except Exception as error:
            raise self._fault(error) from error

    def _hear(self, error: Any) -> None:
        if self._told is None or error.name() in LOGIN:
            self._told = error

    def _fault(self, error: Exception, about: str = "") -> ScribenginError:
        if "_admin" in vars(self):
            self._admin.poll(0)  # the client delivers its pending error reports only in `poll`
        told, self._told = self._told, None
        if told is not None and code_of(error) in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"):
            error = Exception(told)
        return fault(self._node, self._bootstrap, error, self._timeout_s, self._role, about)


def fault(node: str, bootstrap: str, error: Exception, timeout_s: float, role: Role = "source", about: str = "") -> ScribenginError:
    """Convert an error of the client: Unreachable if a retry may succeed, else SourceError or SinkError.

    Args:
        node: The id of the node.
        bootstrap: The addresses of the brokers.
        error: The error of the client.
        timeout_s: The time limit of the request, in seconds.
        role: `source` or `sink`.
        about: The request and its topic, for the message; empty if unknown.
    """
    code = code_of(error)
    kind = SourceError if role == "source" else SinkError
    if code in LOGIN:
        return kind(
            f'{role} "{node}": the brokers at {bootstrap} rejected the login of this user: {_text_of(error)}',
            remedy="check `config`: security.protocol, sasl.mechanism, sasl.username, sasl.password, ssl.ca.location",
            code="kafka-login",
            node=node,
        )
    if code.endswith("AUTHORIZATION_FAILED"):
        return kind(
            f'''{role} "{node}": this user is not authorized at {bootstrap}: {_text_of(error)}{about and f" ({about})"}''',
            remedy=f"grant it: {_RIGHTS[role]}",
            code="kafka-forbidden",
            node=node,
        )
    if code == "_INVALID_ARG":
        return kind(
            f'{role} "{node}": the client rejected its settings: {_text_of(error)}',
            remedy="change `config`; its names and values are librdkafka's",
            code="kafka-config",
            node=node,
        )
    if code == "UNKNOWN_TOPIC_OR_PART":
        return kind(
            f'''{role} "{node}": {about or "a topic"} does not exist at {bootstrap} any more: {_text_of(error)}''',
            remedy="check the topics of the cluster",
            code="kafka-topic",
            node=node,
        )
    if code in ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
        # brokers may not know a new topic yet: this is retried
        return Unreachable(
            f'{role} "{node}": a topic does not exist at {bootstrap} any more, or has fewer partitions than before: {_text_of(error)}',
            remedy="create it again, with the same number of partitions",
            node=node,
        )
    if code in _REFUSED:
        return kind(
            f'''{role} "{node}": the brokers at {bootstrap} rejected the request: {_text_of(error)}{about and f" ({about})"}''',
            remedy="change the option that caused it: transaction_timeout, replication, partitions, topic, markers",
            code="kafka-refused",
            node=node,
        )
    return Unreachable(
        f'{role} "{node}": no broker at {bootstrap} answers within {timeout_s:g} s ({_text_of(error)})',
        remedy="check the address, and that a broker runs there",
        node=node,
    )


def code_of(error: Exception) -> str:
    """The client's name of the error, such as `TOPIC_AUTHORIZATION_FAILED`; empty if it has none."""
    if isinstance(error, FutureTimeout):
        return "_TIMED_OUT"
    first: Any = error.args[0] if error.args else None
    return str(first.name()) if hasattr(first, "name") else ""


def _text_of(error: Exception) -> str:
    first: Any = error.args[0] if error.args else None
    return str(first.str()) if hasattr(first, "str") else str(error) or type(error).__name__


_PASSING = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT",
    # a broker has left the cluster: the client drops it and its pending requests; the next leader of the partition will answer
    "_DESTROY_BROKER",
    # the library looks up the coordinator of the group, which readers must name here but do not use
    "GROUP_AUTHORIZATION_FAILED",
)


def passes(error: Any) -> bool:
    """True if an error (a KafkaError) is transient: a partition that was just created or has lost its leader, a broker that is starting."""
    return bool(error.retriable()) or error.name() in _PASSING


class _Silent:
    """A logger for the client library that drops all messages."""

    def log(self, *_: object, **__: object) -> None:
        """Does nothing."""


SILENT = _Silent()

"""The properties of topics that a sink needs: the number of partitions, the maximum size of a message, whether a key is required."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.connectors.kafka.client import KafkaBrokers
from scribengin.connectors.kafka.options import topics_pattern
from scribengin.core.errors import Refused, SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FRESH_S = 30.0
"""seconds for which information about a topic is used: partitions can be added at any time"""
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_known: dict[tuple[str, str], tuple[float, TargetTopic | None]] = {}
"""(brokers, topic) → time of the request and its result, in this process"""


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic that a sink writes to. `max_bytes` is the size of the largest batch of messages that the brokers accept, and so that of the
    largest message."""

    name: str
    id: str
    partitions: int
    max_bytes: int
    compacted: bool
    """True if the topic is compacted: its brokers refuse messages without a key"""


class TopicBook:
    """Looks up topics, and creates missing ones if the sink allows it. Picklable: any process can send requests."""

    def __init__(self, node: str, options: Mapping[str, Any], config: Mapping[str, str] | None = None) -> None:
        """`config` contains the settings of topics that it creates."""
        self._node = node
        self._options = options
        self._config = dict(config or {})
        self._cluster = KafkaBrokers(node, options, "sink")

    def find(self, name: str) -> TargetTopic | None:
        """The topic, created if necessary; None if it does not exist. Raises SinkError or Unreachable; ValueError for an invalid name."""
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise ValueError(f'"{name}" is not a valid topic name: at most 249 of letters, digits, ".", "_" and "-"')
        key = (str(self._options["bootstrap"]), name)
        asked_s, topic = _known.get(key, (-_FRESH_S, None))
        if topic is None or time.monotonic() - asked_s > _FRESH_S:
            topic = self._ask(name)
            if topic is None and self._options["missing_topic"] == "make":
                self._cluster.make_topic(name, self._options["partitions"], replication=self._options["replication"], config=self._config)
                topic = self._ask(name)
            _known[key] = (time.monotonic(), topic)
        return topic

    def check_target(self, template: str) -> None:
        """Check that the topic exists, or may be created, without creating it; for a template with columns, only check that the brokers
        answer. Raises as `get`."""
        if "{" in template:
            self._cluster.matching(topics_pattern(template))
        elif self._options["missing_topic"] != "make":
            self.get(template)
        else:
            self._cluster.topics([template])

    def delete(self, name: str) -> None:
        """Delete the topic, if it exists."""
        self._cluster.delete_topic(name)
        _known.pop((str(self._options["bootstrap"]), name), None)

    def get(self, name: str) -> TargetTopic:
        """The topic, created if necessary. Raises SinkError if it is missing."""
        try:
            topic = self.find(name)
        except ValueError as error:
            raise SinkError(f'sink "{self._node}": {error}', remedy="change `topic`", code="kafka-topic", node=self._node) from error
        if topic is None:
            raise SinkError(
                f'sink "{self._node}": there is no topic "{name}" at {self._options["bootstrap"]}',
                remedy="create it, or let the flow create it: missing_topic: make",
                code="kafka-topic",
                node=self._node,
            )
        return topic

    def refuse_filled(self, *, besides: str = "") -> None:
        """Raise Refused if the topics that the sink writes to contain messages, which cannot be removed. `besides` is a topic to ignore."""
        if filled := [name for name in self._filled(topics_pattern(self._options["topic"])) if name != besides]:
            raise Refused(
                f'''sink "{self._node}": the contents of {", ".join(filled)} cannot be removed''',
                remedy=(
                    "delete these topics yourself, if they are not needed, and repeat the command; or reset without --outputs, and "
                    "write to other topics"
                ),
                code="output-stays",
            )

    def _filled(self, pattern: str) -> list[str]:
        """The non-empty topics whose full name matches the regular expression."""
        there = self._cluster.topics(self._cluster.matching(pattern))
        partitions = [(topic.name, number) for topic in there.values() for number in range(topic.partitions)]
        first, last = self._cluster.first(partitions), self._cluster.last(partitions)
        return sorted({place[0] for place in partitions if last[place] > first[place]})

    def _ask(self, name: str) -> TargetTopic | None:
        found = self._cluster.topics([name]).get(name)
        if found is None:
            return None
        config = self._cluster.topic_config(name)
        return TargetTopic(name, found.id, found.partitions, int(config["max.message.bytes"]), "compact" in config["cleanup.policy"])

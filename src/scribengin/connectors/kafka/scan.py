"""Reads messages of one partition again: for the audit of a sink, and to find the origin of a message in its header."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from scribengin.connectors.kafka.client import READER, SILENT, client, fault, passes, settings
from scribengin.connectors.kafka.outgoing import ID_HEADER
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from scribengin.connectors.kafka.client import Role

_READING = {"fetch.wait.max.ms": 50}


class PartitionScan:
    """Reads one partition once; a context manager. `role` and `node` are for messages.

    Attributes:
        low: The offset at which the log begins.
        end: The offset after its last committed message.
    """

    low: int
    end: int

    def __init__(self, node: str, options: Mapping[str, Any], topic: str, partition: int, role: Role) -> None:
        self._node = node
        self._options = options
        self._topic, self._partition = topic, partition
        self._role: Role = role
        self._timeout_s = float(options["timeout"])

    def __enter__(self) -> Self:
        """Connect and read the ends of the log. Raises Unreachable, or SourceError or SinkError if a retry cannot succeed."""
        self._kafka = client()
        isolation = {"isolation.level": self._options.get("isolation", "read_committed")}
        self._consumer = self._kafka.Consumer(settings(self._options) | READER | _READING | isolation, logger=SILENT)
        try:
            self._read_watermarks()
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._consumer.close()

    def await_end(self, last: int) -> None:
        """Wait, with a time limit, until the message at `last` can be read: a commit may become readable only after a moment."""
        give_up_s = time.monotonic() + 2 * self._timeout_s
        while self.end <= last and time.monotonic() <= give_up_s:
            time.sleep(0.05)
            self._read_watermarks()

    def messages(self, first: int, end: int) -> Iterator[Any]:
        """The existing messages from offset `first` to `end` (exclusive), or to the end of the log. Raises as `__enter__`."""
        begin, end = max(self.low, first), min(self.end, end)
        if begin >= end:
            return
        kafka, heard_s = self._kafka, time.monotonic()
        try:
            self._consumer.assign([kafka.TopicPartition(self._topic, self._partition, begin)])
            while True:
                messages = self._consumer.consume(1024, timeout=0.2)
                if messages:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > max(30.0, 2 * self._timeout_s):
                    raise Unreachable(
                        f'{self._role} "{self._node}": no broker has returned data of {self._topic}-{self._partition} for a while',
                        remedy="check that its leader runs",
                        node=self._node,
                    )
                for message in messages:
                    error = message.error()
                    if error is None:
                        if message.offset() >= end:
                            return
                        yield message
                    elif error.code() == kafka.KafkaError._PARTITION_EOF:
                        if message.offset() >= end:
                            return
                    elif not passes(error):
                        raise kafka.KafkaException(error)
        except kafka.KafkaException as error:
            raise self._fault(error) from error

    def _read_watermarks(self) -> None:
        place = self._kafka.TopicPartition(self._topic, self._partition)
        try:
            self.low, self.end = self._consumer.get_watermark_offsets(place, timeout=self._timeout_s, cached=False)
        except self._kafka.KafkaException as error:
            raise self._fault(error) from error

    def _fault(self, error: Any) -> Exception:
        return fault(self._node, str(self._options["bootstrap"]), error, self._timeout_s, self._role)


def id_of(message: Any) -> str:
    """The origin in the message's header, `flow@version id`; empty if it has none."""
    value = next((value for name, value in message.headers() or () if name == ID_HEADER and value), b"")
    return str(value.decode(errors="replace"))

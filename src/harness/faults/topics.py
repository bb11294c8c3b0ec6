"""Topics as another program uses them: created, filled, and read with `read_committed`.

`python -m harness.faults.topics BOOTSTRAP TOPIC [records] [may-repeat]` is the independent reader of a topic: it reads until its standard
input closes, then once more from the beginning, and prints a Sight as one JSON object. It uses no code of Scribengin's sinks.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from harness.faults.reader import Sight, start_reader_program, told_to_end, whole_key
from scribengin.connectors.kafka.client import SILENT, client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harness.faults.reader import ReaderProcess
    from scribengin.testing.records import RecordKey

_LIMIT_S = 120.0
_LOOK_S = 0.05
_MESSAGES = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a reader has received."""

    partition: int
    offset: int
    value: bytes

    def row(self) -> dict[str, Any]:
        """The JSON object in the message. Raises ValueError if there is none."""
        row: dict[str, Any] = msgspec.json.decode(self.value)
        return row

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


class TopicReader:
    """Reads the committed messages of a topic from its beginning, even if brokers are stopped and started meanwhile."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._kafka = client()
        self._topic = topic
        self._next: dict[int, int] = {}
        """partition → the offset up to which it was read"""
        self._committed = self._consumer(bootstrap, "read_committed")
        self._all = self._consumer(bootstrap, "read_uncommitted")
        partitions = self._partitions()
        self._committed.assign([self._kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        self._next = dict.fromkeys(partitions, 0)

    def take(self, within_s: float) -> list[Message]:
        """The new messages, in the order of each partition; waits up to `within_s` seconds for the first one."""
        found = []
        for message in self._committed.consume(_MESSAGES, timeout=within_s):
            error = message.error()
            if error is None:
                found.append(Message(message.partition(), message.offset(), message.value() or b""))
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                self._next[message.partition()] = max(message.offset(), self._next[message.partition()])
        return found

    def rest(self) -> Iterator[Message]:
        """All messages up to the current end. Raises TimeoutError if they do not arrive."""
        ends = self.ends()
        give_up_s = time.monotonic() + _LIMIT_S
        while any(self._next[partition] < end for partition, end in ends.items()):
            yield from self.take(0.2)
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"{self._topic} was read up to {self._next} in {_LIMIT_S:g} s; its partitions end at {ends}")

    def ends(self, *, committed: bool = True) -> dict[int, int]:
        """Partition → the offset after its last readable message; with `committed=False`, after its last message."""
        return {partition: self._end(partition, committed=committed) for partition in self._next}

    def close(self) -> None:
        """Close the connections."""
        self._committed.close()
        self._all.close()

    def _end(self, partition: int, *, committed: bool) -> int:
        consumer = self._committed if committed else self._all
        place = self._kafka.TopicPartition(self._topic, partition)
        return int(self._patiently(lambda: consumer.get_watermark_offsets(place, timeout=10, cached=False))[1])

    def _partitions(self) -> list[int]:
        return sorted(self._patiently(lambda: self._all.list_topics(self._topic, timeout=10)).topics[self._topic].partitions)

    def _patiently(self, ask: Any) -> Any:
        """Repeat a request while brokers are unavailable."""
        give_up_s = time.monotonic() + _LIMIT_S
        while True:
            try:
                return ask()
            except self._kafka.KafkaException:
                if time.monotonic() > give_up_s:
                    raise

    def _consumer(self, bootstrap: str, isolation: str) -> Any:
        given = {
            "bootstrap.servers": bootstrap,
            "group.id": "foreign",  # required by the library; nothing is committed under it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
        return self._kafka.Consumer(given, logger=SILENT)


class TopicWatch:
    """Checks what an independent reader of a topic sees: each message once and complete, and the same when the topic is read again."""

    def __init__(self, reader: TopicReader, *, records: bool, may_repeat: bool) -> None:
        self.sight = Sight()
        self._reader = reader
        self._records = records
        self._may_repeat = may_repeat
        self._keys: dict[RecordKey, Message] = {}
        self._seen: dict[tuple[int, int], int] = {}

    def read_new(self, within_s: float) -> None:
        """Read the new messages once."""
        self.sight.looks += 1
        self._check(self._reader.take(within_s))

    def finish(self, again: TopicReader) -> None:
        """Read to the end, and compare with what another reader finds."""
        self._check(self._reader.rest())
        there = {(each.partition, each.offset): zlib.crc32(each.value) for each in again.rest()}
        changed = sorted(place for place, crc in self._seen.items() if there.get(place) != crc)
        new = sorted(there.keys() - self._seen.keys())
        if changed:
            self.sight.complain(f"messages were there and are gone, or others: (partition, offset) {changed[:5]}")
        if new:
            self.sight.complain(f"messages have come before others that were seen: (partition, offset) {new[:5]}")

    def _check(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.sight.rows += 1
            self._seen[message.partition, message.offset] = zlib.crc32(message.value)
            if not self._records:
                continue
            try:
                key = whole_key(message.row())
            except ValueError as error:
                self.sight.complain(f"{message}: {error}")
                continue
            other = self._keys.setdefault(key, message)
            if other != message and not self._may_repeat:
                self.sight.complain(f"{key} stands in {other} and in {message}")


class Topics:
    """Creates and fills topics, as any other program could."""

    def __init__(self, bootstrap: str) -> None:
        client()
        self._bootstrap = bootstrap
        self._module = import_module("confluent_kafka.admin")
        self._admin = self._module.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}, logger=SILENT)

    def make(self, sizes: Mapping[str, int], *, replication: int) -> None:
        """Create topics with the given numbers of partitions, and wait until the brokers know them."""
        asked = [self._module.NewTopic(name, partitions, replication) for name, partitions in sizes.items()]
        for future in self._admin.create_topics(asked).values():
            future.result(_LIMIT_S)
        give_up_s = time.monotonic() + _LIMIT_S
        while time.monotonic() < give_up_s:
            known = self._admin.list_topics(timeout=10).topics
            if all(name in known and len(known[name].partitions) == size for name, size in sizes.items()):
                return
            time.sleep(_LOOK_S)
        raise TimeoutError(f"no broker knows {', '.join(sizes)} after {_LIMIT_S:g} s")

    def remove(self, begin: str) -> None:
        """Delete all topics whose names begin with `begin`."""
        names = [name for name in self._admin.list_topics(timeout=10).topics if name.startswith(begin)]
        if names:
            for future in self._admin.delete_topics(names).values():
                future.result(_LIMIT_S)

    def write(self, topic: str, rows: Iterable[Mapping[str, Any]], partition: int) -> None:
        """Append one JSON object for each row, exactly once and in order."""
        with _producer(self._bootstrap) as producer:
            for row in rows:
                producer.produce(topic, msgspec.json.encode(row), partition=partition)


@contextmanager
def _producer(bootstrap: str) -> Iterator[Any]:
    refused: list[Any] = []
    given = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    producer = client().Producer(given | {"on_delivery": lambda error, _: refused.append(error) if error else None}, logger=SILENT)
    yield producer
    left = producer.flush(_LIMIT_S)
    if left or refused:
        raise OSError(f"{left} messages were not taken, {len(refused)} refused: {refused[:1]}")


def watch_topic(bootstrap: str, topic: str, *, records: bool, may_repeat: bool) -> ReaderProcess:
    """Start the independent reader in a separate process. With `may_repeat`, the topic may contain the same record several times."""
    return start_reader_program(__name__, bootstrap, topic, *(["records"] if records else []), *(["may-repeat"] if may_repeat else []))


def main() -> None:
    """See the module."""
    bootstrap, topic, *flags = sys.argv[1:]
    with closing(TopicReader(bootstrap, topic)) as reader:
        watch = TopicWatch(reader, records="records" in flags, may_repeat="may-repeat" in flags)
        while not told_to_end(0):
            watch.read_new(_LOOK_S)
        with closing(TopicReader(bootstrap, topic)) as again:
            try:
                watch.finish(again)
            except TimeoutError as error:
                watch.sight.complain(str(error))
    os.write(1, msgspec.json.encode(asdict(watch.sight)))


if __name__ == "__main__":
    main()

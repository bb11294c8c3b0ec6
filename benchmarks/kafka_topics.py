"""Topics of the benchmarks' broker: filled, watched from outside while a contender runs, and checked after it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka_rows import band_of, encode_row, kept

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 4
WATCHED_EVERY_S = 0.05
BROKER = {"auto.create.topics.enable": "false", "log.segment.delete.delay.ms": "1000", "log.retention.check.interval.ms": "10000"}
"""topics that were deleted give their disk space back at once"""

_ANSWER_S = 30.0
_READ_WITHIN_S = 120.0


class WrongOutputError(Exception):
    """A contender's output is not what it must be."""


@dataclass
class Topics:
    bootstrap: str
    admin: Any = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def make(self, name: str) -> str:
        for future in self.admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result(_ANSWER_S)
        return name

    def delete(self, name: str) -> None:
        """With the markers that a flow may have made beside it."""
        found = self.admin.list_topics(timeout=_ANSWER_S).topics
        for future in self.admin.delete_topics([each for each in (name, f"{name}-markers") if each in found]).values():
            future.result(_ANSWER_S)

    def fill(self, name: str, rows: int) -> None:
        """Rows 0 to `rows`, in turn over the partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
        for number in range(rows):
            producer.produce(name, encode_row(number), partition=number % PARTITIONS)
            if not number % 10_000:
                producer.poll(0)
        if producer.flush(_READ_WITHIN_S):
            raise SystemExit(f"{name} could not be filled with {rows:,} rows")

    def committed(self, name: str) -> int:
        """The last stable offsets of all partitions, summed: it grows when something becomes visible to readers of committed records."""
        asked = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        futures = self.admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_ANSWER_S)
        return sum(future.result(_ANSWER_S).offset for future in futures.values())

    @contextmanager
    def watched(self, name: str) -> Iterator[Watch]:
        """Asks the broker all along when something was committed last."""
        watch = Watch(self, name)
        watch.thread.start()
        try:
            yield watch
        finally:
            watch.ended.set()
            watch.thread.join()

    def check(self, name: str, rows: int, *, banded: bool) -> None:
        """Raises WrongOutputError unless a reader of committed records finds the rows that are kept, each once, as they must be."""
        seen = bytearray(rows)
        for value in self._values(name):
            row = orjson.loads(value)
            number = row.pop("id")
            if not 0 <= number < rows or not kept(number) or seen[number]:
                raise WrongOutputError(f"row {number} is there twice, or must not be there")
            seen[number] = 1
            expected = orjson.loads(encode_row(number))
            del expected["id"]
            if banded:
                expected["band"] = band_of(expected["amount"])
            if row != expected:
                raise WrongOutputError(f"row {number} is {row}, and must be {expected}")
        lost = sum(kept(number) for number in range(rows)) - sum(seen)
        if lost:
            raise WrongOutputError(f"{lost:,} rows are missing")

    def _values(self, name: str) -> Iterator[bytes]:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"check-{name}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        left = set(range(PARTITIONS))
        heard_s = time.monotonic()
        try:
            while left:
                for message in consumer.consume(10_000, timeout=0.2):
                    heard_s = time.monotonic()
                    error = message.error()
                    if error is None:
                        yield message.value()
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                    else:
                        raise WrongOutputError(f"{name} cannot be read: {error}")
                if time.monotonic() - heard_s > _READ_WITHIN_S:
                    raise WrongOutputError(f"{name} has no end: a transaction is open")
        finally:
            consumer.close()


class Watch:
    """Since when the committed end of a topic has not moved; good to 50 ms. It costs some hundredths of a core, which no contender pays."""

    def __init__(self, topics: Topics, name: str) -> None:
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, args=(topics, name), daemon=True)
        self.committed = 0
        self.moved_s = time.perf_counter()

    def _watch(self, topics: Topics, name: str) -> None:
        while True:
            last = self.ended.is_set()
            found = topics.committed(name)
            if found != self.committed:
                self.committed, self.moved_s = found, time.perf_counter()
            if last:
                return
            self.ended.wait(WATCHED_EVERY_S)

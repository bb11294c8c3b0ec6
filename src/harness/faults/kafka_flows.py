"""The flows with Kafka at one end or both: the same queries, records and checks as for files, in topics of their own.

A part of the input is a range of messages in one partition. The rows of a part have the part as their key, so that they are in one
partition of the output too, where their order can be checked.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from harness.faults.flows import CLOSER_PART, DECISIVE, STATEFUL, FaultFlow
from harness.faults.topics import TopicReader, Topics, watch_topic
from scribengin.testing.checker import Found
from scribengin.testing.records import RecordKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.faults.reader import ReaderProcess
    from harness.faults.topics import Message
    from scribengin.testing.checker import Findings

ROUTES = ("kafka-to-kafka", "kafka-to-files", "files-to-kafka")
"""the routes, which take the place of the format"""
KAFKA_KINDS = ("tail", "coins", "filter", "aggregate", "dedupe")
BY_UNIT = ("tail", "filter")
"""kinds whose task outputs commit to Kafka one by one, where two attempts of a task meet; rows of different lineages can be
distinguished"""
KAFKA_DECISIVE = ("decide.after", "transaction.sent", "transaction.commit.before", "transaction.commit.after", "commit.before")
_PARTITIONS = 3
SHORT_S, LONG_S = 5, 60
"""time-outs of transactions, in seconds: of slow flows, and of all others"""


@dataclass(kw_only=True)
class KafkaFlow(FaultFlow):
    """A flow on one of ROUTES. The names of its topics begin with `prefix`; `make` creates them, `remove` deletes them."""

    route: str
    bootstrap: str
    brokers: int = 1
    transaction_timeout_s: int = LONG_S
    may_repeat: bool = False
    """True if new lineages are begun, which read all of the input again"""
    prefix: str = field(default_factory=lambda: f"struck-{uuid4().hex[:12]}-")

    def __post_init__(self) -> None:
        """Connect to the brokers."""
        self._marks: list[dict[tuple[str, int], int]] = []
        """for each lineage except the first: (sink, partition) → its end offset when the lineage began"""
        self._topics = Topics(self.bootstrap)

    def make(self) -> None:
        """Create the topics of the sources and sinks."""
        sizes = {self.topic("data"): self._input_partitions} if self._reads_kafka else {}
        if self.writes_kafka:
            sizes |= {self.topic(sink): _PARTITIONS for sink in self.sinks}
        self._topics.make(sizes, replication=self.brokers)

    def remove(self) -> None:
        """Delete the topics, and those of the commit markers."""
        self._topics.remove(self.prefix)

    def topic(self, name: str) -> str:
        """The topic of a sink, or of the input (`data`)."""
        return f"{self.prefix}{name}"

    @property
    def writes_kafka(self) -> bool:
        """True if its sinks are topics."""
        return self.route != "kafka-to-files"

    @property
    def by_unit(self) -> bool:
        """True if task outputs commit by themselves: then they pass the points of a transaction."""
        return self.writes_kafka and self.kind in BY_UNIT

    @property
    def decisive(self) -> tuple[str, ...]:
        """The same as for files; a Kafka sink has other points."""
        return KAFKA_DECISIVE if self.writes_kafka else DECISIVE

    def watch(self, out: Path) -> ReaderProcess:
        """Start an independent reader of the sink's topic, or of its folder."""
        if not self.writes_kafka:
            return super().watch(out)
        return watch_topic(self.bootstrap, self.topic(out.name), records=self.has_records, may_repeat=self.may_repeat)

    def close(self) -> None:
        """End the input. Over Kafka a Batch does not consist of files: there are more closers than fit into one Batch, so that they fill
        two."""
        if not self._reads_kafka or not self._kind.closers:
            super().close()
            return
        self.closers = self._max_rows + 1
        self._topics.write(self.topic("data"), (self._part(part)[0] for part in range(CLOSER_PART, CLOSER_PART + self.closers)), 0)

    def judge(self, *, ledger: dict[str, Any] | None = None, out: Path | None = None) -> Findings:
        """Check the outputs, and that no transaction is left open. If new lineages were begun, the last one must have written everything,
        and no earlier one a record twice."""
        findings = super().judge(ledger=ledger, out=out)
        for sink in self.sinks if self.writes_kafka else ():
            with closing(TopicReader(self.bootstrap, self.topic(sink))) as reader:
                committed, all_ = reader.ends(), reader.ends(committed=False)
            findings.torn += [
                f"a transaction is left open: {sink}-{partition} can be read up to {end} of {all_[partition]}"
                for partition, end in committed.items()
                if end != all_[partition]
            ]
        return findings

    def begin_lineage(self) -> None:
        """Record that a new lineage begins, which reads all of the input again."""
        self._marks.append({(sink, partition): end for sink in self.sinks for partition, end in self._ends(sink).items()})

    def visible(self) -> int:
        """The number of messages that a `read_committed` reader finds in all topics of the sinks."""
        return sum(1 for _ in self._messages())

    def _input(self, folder: str) -> str:
        if not self._reads_kafka:
            return super()._input(folder)
        return f'type: kafka, bootstrap: "{self.bootstrap}", topics: [{self.topic(folder)}], format: json, max_rows: {self._max_rows}'

    def _output(self, sink: str) -> str:
        if not self.writes_kafka:
            return super()._output(sink)
        topic = self.topic(sink)
        return (
            f'type: kafka, bootstrap: "{self.bootstrap}", topic: {topic}, format: json, key: {"part" if self.has_records else "bucket"}, '
            f"markers: {topic}-markers, transaction_timeout: {self.transaction_timeout_s}s"
        )

    def _rows_at_sinks(self, out: Path, torn: list[str]) -> list[Found]:
        if not self.writes_kafka:
            return super()._rows_at_sinks(out, torn)
        lineages: list[list[Found]] = [[] for _ in range(len(self._marks) + 1)]
        for sink, message in self._messages():
            nth = sum(message.offset >= mark[sink, message.partition] for mark in self._marks)
            try:
                lineages[nth].append(Found(f"{sink}/{message.partition}", message.row()))
            except ValueError as error:
                torn.append(f"{sink}/{message}: {error}")
        for nth, found in enumerate(lineages[:-1], 1):
            counts = Counter((each.row["part"], each.row["seq"]) for each in found)
            torn += [f"lineage {nth} has written (part, seq) {key} {count} times" for key, count in counts.items() if count > 1]
        return lineages[-1]

    def _out_of_order(self, found: list[Found]) -> list[RecordKey]:
        """Check order: the parts in one partition of the input follow each other, and must do so in a partition of the output."""
        if not self._reads_kafka or self.kind in STATEFUL:
            return []
        wrong: list[RecordKey] = []
        last: dict[tuple[str, int], RecordKey] = {}
        for each in found:
            key = RecordKey(each.row["run"], int(each.row["part"]), int(each.row["seq"]))
            place = (each.group, key.part % _PARTITIONS)
            if key.part < last.get(place, key).part:
                wrong.append(key)
            last[place] = key
        return wrong

    def _messages(self) -> Iterator[tuple[str, Message]]:
        for sink in self.sinks:
            with closing(TopicReader(self.bootstrap, self.topic(sink))) as reader:
                for message in reader.rest():
                    yield sink, message

    def _ends(self, sink: str) -> dict[int, int]:
        with closing(TopicReader(self.bootstrap, self.topic(sink))) as reader:
            return reader.ends()

    def _add(self, source: str, nth: int, rows: list[dict[str, Any]]) -> None:
        if not self._reads_kafka:
            super()._add(source, nth, rows)
            return
        self._topics.write(self.topic(source), rows, nth % self._input_partitions)

    @property
    def _reads_kafka(self) -> bool:
        return self.route != "files-to-kafka"

    @property
    def _max_rows(self) -> int:
        return self._kind.rows * self._kind.max_files

    @property
    def _input_partitions(self) -> int:
        """One partition if there is a watermark, which needs rows in the order of time; those of several partitions are in no order."""
        return 1 if self.kind in STATEFUL else _PARTITIONS

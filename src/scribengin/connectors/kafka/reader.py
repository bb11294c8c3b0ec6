"""The driver's part of the source: determines the next offsets to read, and checks that the cluster still has its records.

The position is one offset per partition; it is part of the streams that were handed out. Each poll compares the cluster with the position.
A topic that was deleted and created again, records that retention deleted before they were read, and missing partitions are reported, never
skipped silently.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Backlog, SourceStream
from scribengin.connectors.kafka.client import SILENT, KafkaBrokers, Partition, Topic, settings
from scribengin.connectors.kafka.options import LOSS_REMEDY
from scribengin.core.errors import ScribenginError, SourceError, SourceMissing
from scribengin.core.problems import did_you_mean
from scribengin.core.time_text import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.connectors.kafka.client import Partition

    Ask = Callable[[Mapping[Partition, int]], Mapping[Partition, tuple[int, int]]]
    """a request for offsets by time: partition → milliseconds since 1970; the answer is partition → (offset, milliseconds) of the first
    record at or after that time, without partitions that have none"""
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scribengin.connectors.contract import BatchLimits


# The age of waiting records is estimated without reading them: from the ends of the logs at each poll, and from requests to the brokers for
# earlier times.


POINTS = 64
"""maximum number of points per partition"""
_NEAREST_MS = 1000
_FARTHEST_MS = 4**10 * _NEAREST_MS
_HALVINGS = 4


class Ages:
    """Estimates the age of records from points (seconds, end of the log at that time) of each partition. Between two points, records are
    assumed to be evenly distributed.

    All times in seconds are read from the same clock.
    """

    def __init__(self) -> None:
        self._points: dict[Partition, list[tuple[float, int]]] = {}

    def note(self, now_s: float, ends: Mapping[Partition, int], taken: Mapping[Partition, int]) -> None:
        """Record the ends of the logs at `now_s`. Points before the read position are dropped, and old points are thinned out to `POINTS`.

        Args:
            now_s: The current time.
            ends: Partition → end of its log.
            taken: Partition → offset up to which it was read.
        """
        for partition, end in ends.items():
            points = self._points.setdefault(partition, [])
            if points and points[-1][1] > end:
                points.clear()
            if len(points) > 1 and points[-1][1] == points[-2][1] == end:
                points.pop()
            points.append((now_s, end))
            while len(points) > 1 and points[1][1] <= taken.get(partition, 0):
                del points[0]
            if len(points) > POINTS:
                del points[1:-1:2]

    def learn(self, now_s: float, now_ms: int, waiting: Mapping[Partition, int], ends: Mapping[Partition, int], ask: Ask) -> None:
        """Ask the brokers when the waiting records of partitions without points arrived, in at most 15 requests for all partitions
        together.

        Args:
            now_s: The current time, on the clock of the points.
            now_ms: The same time in milliseconds since 1970.
            waiting: Partition → offset of its first waiting record.
            ends: Partition → end of its log.
            ask: Sends a request for offsets by time.
        """
        unknown = {partition: offset for partition, offset in waiting.items() if partition not in self._points}
        for partition, came in _arrival_points(unknown, ends, now_ms, ask).items():
            points = self._points[partition] = []
            for moment_ms, end in sorted(came):
                # writers set the times of records: they need not increase, and may be in the future
                points.append((now_s - max(0, now_ms - moment_ms) / 1000, max(end, points[-1][1] if points else 0)))

    def knows(self, partition: Partition) -> bool:
        """True if points of the partition are recorded."""
        return partition in self._points

    def forget(self, partition: Partition) -> None:
        """Delete the points of a partition, whose log was replaced by a new one."""
        self._points.pop(partition, None)

    def age_s(self, partition: Partition, offset: int, now_s: float) -> float | None:
        """The age of the record at `offset`, in seconds; a lower bound if the record is older than the first point. None if the points do
        not reach the record.

        Args:
            partition: The partition.
            offset: The offset of the record.
            now_s: The current time, on the clock of the points.
        """
        points = self._points.get(partition, [])
        if points and points[0][1] > offset:
            return now_s - points[0][0]
        for (before_s, before), (after_s, after) in pairwise(points):
            if after > offset:
                return now_s - before_s - (after_s - before_s) * (offset + 1 - before) / (after - before)
        return None


def _arrival_points(
    waiting: Mapping[Partition, int], ends: Mapping[Partition, int], now_ms: int, ask: Ask
) -> dict[Partition, list[tuple[int, int]]]:
    """Find points (milliseconds since 1970, end of the log) around the first waiting record of each partition: backwards in growing steps,
    then by bisection."""
    came: dict[Partition, list[tuple[int, int]]] = {partition: [] for partition in waiting}
    later = dict.fromkeys(waiting, now_ms)
    earlier: dict[Partition, int] = {}

    def ask_times(times: Mapping[Partition, int]) -> None:
        found = ask(times)
        for partition, time_ms in times.items():
            offset, moment_ms = found.get(partition, (ends[partition] - 1, time_ms))
            # records after the poll that read the ends belong to the next poll
            came[partition].append((moment_ms, min(offset + 1, ends[partition])))
            if offset > waiting[partition] or partition not in found:
                later[partition] = time_ms
            else:
                earlier[partition] = time_ms

    back_ms = _NEAREST_MS
    while back_ms <= _FARTHEST_MS and (asked := waiting.keys() - earlier.keys()):
        ask_times(dict.fromkeys(asked, now_ms - back_ms))
        back_ms *= 4
    for _ in range(_HALVINGS):
        if earlier:
            ask_times({partition: (time_ms + later[partition]) // 2 for partition, time_ms in earlier.items()})
    return came


_TOPICS_EVERY_S = 5.0
"""interval of the checks for new partitions, new topics of a pattern, and recreated topics"""


@dataclass
class KafkaReader:
    """The reader of a source with these options; one per query, used by one thread."""

    node: str
    options: Mapping[str, Any]
    loss_remedy: str = LOSS_REMEDY
    _next: dict[Partition, int] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _last: dict[Partition, int] = field(default_factory=dict)
    _final: dict[Partition, int] | None = None
    _looked_s: float = -_TOPICS_EVERY_S
    _partitions: list[Partition] = field(default_factory=list)
    _waits_since_s: float | None = None
    _begun: bool = False
    _lonely: bool = False
    """True after it was reported that no topic matches `pattern`"""
    _notices: list[str] = field(default_factory=list)
    _losses: list[SourceStream] = field(default_factory=list)
    """losses that are not in an entry of the source log yet"""
    _committer: Any = None
    _ages: Ages = field(default_factory=Ages)

    def __post_init__(self) -> None:
        given = [name for name in ("topics", "pattern", "assign") if self.options[name]]
        if len(given) != 1:
            found = " and ".join(given) if given else "none of them"
            raise SourceError(
                f'source "{self.node}" has {found}; expected one of topics, pattern, assign',
                remedy="write topics: [TOPIC]",
                node=self.node,
            )
        self._cluster = KafkaBrokers(self.node, self.options)
        self._start = _start_of(self.node, self.options["start"])

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Continue after the handed out streams. The position is that of the newest entry, even if an older one has a greater offset: a
        truncated log, or a recreated topic, begins at a smaller one."""
        for streams in entries:
            self._begun = True
            for stream in streams:
                topic, number = stream.place["topic"], stream.place["partition"]
                if number is None:
                    self._forget([topic])
                    continue
                if self._ids.get(topic, stream.place["id"]) != stream.place["id"]:
                    self._forget([topic])
                self._ids[topic] = stream.place["id"]
                self._next[topic, number] = stream.place["end"]
                self._counts[topic] = max(number + 1, self._counts.get(topic, 0))

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next offsets of each partition. Partitions share `max_rows` in proportion to their backlog.

        With `final`, only the data that exists at the first such call is read: a topic that is written to continuously has no other end.
        """
        now_s = time.monotonic()
        if self._final is None and (final or now_s - self._looked_s >= _TOPICS_EVERY_S):
            self.find_partitions()
        pinned: set[Partition] = set()
        try:
            pinned |= self._place_new({stream.place["topic"] for stream in self._losses})
            self._find_ends()
        except SourceError as error:
            if error.code != "kafka-topic":
                raise
            # a topic was deleted since the last check: it is reported like any other loss
            self.find_partitions()
            self._partitions = [each for each in self._partitions if self._final is None or each in self._final]
            pinned |= self._place_new({stream.place["topic"] for stream in self._losses})
            self._find_ends()
        if final:
            self._final = self._last
        waits = {partition: self._last[partition] - self._next[partition] for partition in self._partitions}
        if not final:
            self._see_ages(now_s, {partition for partition, rows in waits.items() if rows})
        total = sum(waits.values())
        if not pinned and not self._losses and not self._due(total, now_s, final=final):
            return []
        most = min(self.options["max_rows"], limits.max_rows or self.options["max_rows"])
        share = min(1.0, most / total) if total else 0.0
        streams, self._losses = self._losses, []
        for partition in self._partitions:
            taken = min(waits[partition], max(1, int(waits[partition] * share)))
            if taken or partition in pinned:
                streams += self._streams(partition, taken)
        self._waits_since_s = None
        self._begun = True
        return streams

    def verify(self, streams: Sequence[SourceStream]) -> list[SourceStream]:
        """Compare logged streams with the cluster; returns what it still has of them, and lost ranges as skipped streams. Raises
        SourceError for a loss, unless `on_data_loss: continue`."""
        asked = [stream for stream in streams if not stream.skipped]
        topics = self._cluster.topics({stream.place["topic"] for stream in asked})
        same = {
            (name, stream.place["partition"])
            for stream in asked
            if (topic := topics.get(name := stream.place["topic"])) is not None
            and topic.id == stream.place["id"]
            and stream.place["partition"] < topic.partitions
        }
        first, last = self._cluster.first(same), self._cluster.last(same)
        checked: list[SourceStream] = []
        for stream in streams:
            if stream.skipped:
                checked.append(stream)
                continue
            name, number, start, end = (stream.place[key] for key in ("topic", "partition", "start", "end"))
            low = min(end, max(start, first.get((name, number), end)))
            high = max(low, min(end, last.get((name, number), low)))
            for begin, until in ((start, low), (high, end)):
                if begin < until:
                    what = (
                        f"offsets {begin} to {until - 1} of {name}-{number} are not in the log any more, but were assigned to a Batch "
                        "and not yet read"
                    )
                    checked.append(_lost_range(name, number, begin, until, stream.place["id"], what))
                    self._refuse(what)
            # kept even if it is empty: a Batch whose task outputs have begun to commit identifies its streams by their numbers
            checked.append(stream if (low, high) == (start, end) else _range(name, number, low, high, stream.place["id"]))
        return checked

    def _find_ends(self) -> None:
        self._last = self._cluster.last(self._partitions) if self._final is None else self._final
        self._check_against(self._last)

    def backlog(self) -> Backlog:
        """The number of records after the handed out ones, at the last poll, and the age of the oldest of them."""
        waits = sum(max(0, last - self._next.get(partition, last)) for partition, last in self._last.items())
        now_s = time.monotonic()
        ages = [
            age_s
            for partition, last in self._last.items()
            if (at := self._next.get(partition, last)) < last and (age_s := self._ages.age_s(partition, at, now_s)) is not None
        ]
        return Backlog(rows=waits, oldest_s=max(ages, default=None), more=self._final is None)

    def measure(self) -> Backlog:
        """See `MeasuringReader`. If the flow has not started yet, the backlog counts from its start position."""
        self.find_partitions()
        self._place_new(())
        self._find_ends()
        self._see_ages(time.monotonic(), {partition for partition in self._partitions if self._last[partition] > self._next[partition]})
        return self.backlog()

    def notices(self) -> list[str]:
        """The losses that were skipped under `on_data_loss: continue`, and the topics that were added, since the last call."""
        told, self._notices = self._notices, []
        return told

    def committed(self, streams: Sequence[SourceStream], *, query: str) -> None:
        """Commit the flow's position to the consumer group. Only lag tools read it; the flow never does, so a failure is harmless."""
        group = self.options["group"] or f"scribengin.{query}"
        from confluent_kafka import Consumer, TopicPartition

        ends: dict[Partition, int] = {}
        for stream in streams:
            partition = (stream.place["topic"], stream.place["partition"])
            ends[partition] = max(stream.place["end"], ends.get(partition, 0))
        try:
            if self._committer is None:
                # closing waits this long for a commit that brokers refuse
                own = {"group.id": group, "enable.auto.commit": False, "session.timeout.ms": 3000}
                self._committer = Consumer(settings(self.options) | own, logger=SILENT)
            self._committer.commit(offsets=[TopicPartition(topic, number, end) for (topic, number), end in ends.items()], asynchronous=True)
        except Exception as error:
            self._notices.append(f'{self.node}: the offsets of group "{group}" were not committed: {error}')

    # --- the cluster ---

    def find_partitions(self) -> None:
        """Find the current partitions. Raises SourceError if a topic is missing, was recreated or has fewer partitions."""
        self._looked_s = time.monotonic()
        assigned = {topic: _numbers(self.node, topic, text) for topic, text in self.options["assign"].items()}
        names = list(assigned or self.options["topics"])
        if self.options["pattern"]:
            names = sorted({*self._cluster.matching(self.options["pattern"]), *self._ids})
            if not names:
                self._find_none()
        topics = self._cluster.topics(names)
        for name in names:
            topic = topics.get(name)
            if topic is None:
                self._missing(name)
            else:
                self._compare(topic)
        self._partitions = [
            (name, number) for name, topic in sorted(topics.items()) for number in assigned.get(name, range(topic.partitions))
        ]
        beyond = [(name, number) for name, number in self._partitions if number >= topics[name].partitions]
        if beyond:
            name, number = beyond[0]
            raise SourceError(
                f'source "{self.node}": topic {name} has {topics[name].partitions} partitions, but `assign` names {number}',
                remedy="partitions count from 0",
                node=self.node,
            )

    def _find_none(self) -> None:
        """Record that no topic matches the pattern yet. Any later topic is completely new to the flow, so it is read from its beginning
        even with `start: latest`."""
        if not self._lonely:
            self._notices.append(f"{self.node}: no topic matches {self.options['pattern']} yet; the source keeps looking")
        self._lonely = True
        self._begun = self._begun or self._start == "latest"

    def _missing(self, name: str) -> None:
        if name in self._ids:
            self._lost(name, f"topic {name} does not exist any more")
        elif not self.options["pattern"]:
            raise SourceMissing(
                f'source "{self.node}": there is no topic {name} at {self.options["bootstrap"]}',
                remedy=did_you_mean(name, self._cluster.matching(".*")) or "create it, or correct the name",
                code="kafka-topic",
                node=self.node,
            )

    def _compare(self, topic: Topic) -> None:
        known, count = self._ids.get(topic.name), self._counts.get(topic.name, 0)
        if known is not None and known != topic.id:
            self._lost(topic.name, f"topic {topic.name} was deleted and created again")
        elif topic.partitions < count and not self.options["assign"]:
            self._lost(topic.name, f"topic {topic.name} has {topic.partitions} partitions; expected {count}")
        elif known is None and self._begun:
            self._notices.append(f"{self.node}: topic {topic.name} is new")
        self._ids[topic.name] = topic.id
        self._counts[topic.name] = topic.partitions

    def _lost(self, topic: str, what: str) -> None:
        """Report that a topic was deleted or recreated, so that its offsets start from the beginning. The number of unread records of the
        old topic cannot be determined any more."""
        ends = ", ".join(f"{name}-{number} up to {at}" for (name, number), at in sorted(self._next.items()) if name == topic)
        what = f"{what}; its unread records are lost (the flow had read {ends or 'nothing'})"
        place = {"topic": topic, "partition": None, "id": self._ids.get(topic)}
        self._told_loss(SourceStream(f"{topic} lost", place, skipped=True, lost=what))
        self._forget([topic])

    def _forget(self, topics: Sequence[str]) -> None:
        for partition in [partition for partition in self._next if partition[0] in topics]:
            del self._next[partition]
            self._ages.forget(partition)
        for topic in topics:
            self._ids.pop(topic, None)
            self._counts.pop(topic, None)

    def _told_loss(self, lost: SourceStream) -> None:
        """Raise SourceError for a loss. Under `on_data_loss: continue`, add it to the notices and to the next entry of the source log,
        which makes it durable."""
        self._refuse(lost.lost)
        self._notices.append(f"{self.node}: {lost.lost}")
        self._losses.append(lost)

    def _refuse(self, what: str) -> None:
        """Raise SourceError, unless `on_data_loss: continue`."""
        if self.options["on_data_loss"] == "stop":
            raise SourceError(
                f'source "{self.node}": {what}',
                remedy=self.loss_remedy,
                code="data-loss",
                node=self.node,
            )

    def _see_ages(self, now_s: float, waiting: set[Partition]) -> None:
        """Record the current ends of the logs. For the backlog of the first poll the brokers are asked once; if they cannot tell its age,
        it counts from that poll."""
        unknown = {partition: self._next[partition] for partition in waiting if not self._ages.knows(partition)}
        if unknown:
            with suppress(ScribenginError):
                self._ages.learn(now_s, int(time.time() * 1000), unknown, self._last, self._cluster.since)
        self._ages.note(now_s, self._last, self._next)

    def _place_new(self, anew: Collection[str]) -> set[Partition]:
        """Set the start offsets of partitions that were never read: the flow's `start` the first time, else the beginning of the log.

        Returns the partitions whose position must be logged even without a backlog: otherwise a later `latest` would skip records that
        arrived since, and a recreated topic (`anew`) would not be recognised if it is recreated once more.
        """
        new = [partition for partition in self._partitions if partition not in self._next]
        if not new:
            return set()
        first = self._cluster.first(new)
        if self._begun or self._start == "earliest":
            starts, pinned = first, {partition for partition in new if partition[0] in anew}
        else:
            starts = self._at(self._start, new) if isinstance(self._start, int) else self._cluster.last(new)
            pinned = set(new)
        if not self._begun:
            starts = starts | {partition: offset for partition, offset in self._given().items() if partition in first}
        self._next |= {partition: max(starts[partition], first[partition]) for partition in new}
        return pinned

    def _at(self, time_ms: int, partitions: list[Partition]) -> dict[Partition, int]:
        found = self._cluster.at_time(partitions, time_ms)
        last = self._cluster.last([partition for partition, offset in found.items() if offset < 0])
        return found | last

    def _given(self) -> dict[Partition, int]:
        given: dict[Partition, int] = {}
        for name, text in self.options["offsets"].items():
            topic, _, number = name.rpartition("-")
            if not topic or not number.isdigit() or not str(text).isdigit():
                raise SourceError(
                    f'source "{self.node}": offsets: {name}: {text} is not a valid offset',
                    remedy='write TOPIC-PARTITION: "100"',
                    node=self.node,
                )
            given[topic, int(number)] = int(text)
        return given

    def _check_against(self, last: Mapping[Partition, int]) -> None:
        """Report a loss if records between the flow's position and the beginning of a log were deleted, or the position is after the end of
        the log."""
        first = self._cluster.first(self._partitions)
        for partition in self._partitions:
            at, (topic, number) = self._next[partition], partition
            if at < first[partition]:
                what = f"offsets {at} to {first[partition] - 1} of {topic}-{number} are not in the log any more"
                self._gone(partition, at, first[partition], what)
            elif at > last[partition]:
                what = (
                    f"{topic}-{number} ends at offset {last[partition]}, but the flow has read it up to {at}: the log was truncated or "
                    "recreated"
                )
                self._gone(partition, last[partition], last[partition], what)

    def _gone(self, partition: Partition, start: int, end: int, what: str) -> None:
        """Report the loss of the offsets `start` to `end` (exclusive) and continue at `end`. Not every offset is a record, so the number of
        lost records is an upper bound; it is unknown for an empty range."""
        self._told_loss(_lost_range(*partition, start, end, self._ids[partition[0]], what))
        self._next[partition] = end

    # --- streams ---

    def _due(self, waits: int, now_s: float, *, final: bool) -> bool:
        if not waits:
            self._waits_since_s = None
            return False
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return final or waits >= self.options["min_rows"] or now_s - self._waits_since_s >= self.options["max_delay"]

    def _streams(self, partition: Partition, rows: int) -> list[SourceStream]:
        (topic, number), first = partition, self._next[partition]
        parts = max(1, -(-rows // self.options["split"]))
        bounds = [first + rows * index // parts for index in range(parts + 1)]
        self._next[partition] = first + rows
        return [_range(topic, number, low, high, self._ids[topic]) for low, high in pairwise(bounds)]


def _range(topic: str, number: int, start: int, end: int, id_: str) -> SourceStream:
    place = {"topic": topic, "partition": number, "start": start, "end": end, "id": id_}
    return SourceStream(f"{topic}-{number}[{start}:{end}]", place, rows=end - start)


def _lost_range(topic: str, number: int, start: int, end: int, id_: str, what: str) -> SourceStream:
    whole = _range(topic, number, start, end, id_)
    return replace(whole, label=f"{whole.label} lost", rows=end - start or None, skipped=True, lost=what)


def _start_of(node: str, text: str) -> str | int:
    """The start position in `text`: `earliest`, `latest`, or milliseconds since 1970."""
    if text in ("earliest", "latest"):
        return text
    try:
        return int(parse_time(text).timestamp() * 1000)
    except ValueError:
        remedy = 'write earliest, latest, or a time such as "2026-01-01T00:00:00Z"'
        raise SourceError(f'source "{node}": `start: {text}` is not a valid start position', remedy=remedy, node=node) from None


def _numbers(node: str, topic: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise SourceError(
            f'source "{node}": assign: {topic}: {text} is not a list of partitions', remedy=f'write {topic}: "0,1"', node=node
        )
    return [int(part) for part in parts]

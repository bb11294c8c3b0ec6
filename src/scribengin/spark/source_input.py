"""Turns new input of a source into entries of its log: proposed, logged durably, and read only after that."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from scribengin.connectors.abilities import holds_back, measures_backlog, reader_checks_columns, reports_position, verifies
from scribengin.connectors.catalog import open_source, source_types
from scribengin.connectors.contract import Backlog, BatchLimits
from scribengin.connectors.group.contract import finishes
from scribengin.core import faults
from scribengin.core.errors import StateError
from scribengin.state.contract import SourceRange
from scribengin.state.replays import Pending
from scribengin.state.source_log import SourceLog, is_replay

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit

    from scribengin.connectors.contract import SourceReader, SourceStream
    from scribengin.spark.program import SourceRef
    from scribengin.state.contract import Decision


def verify_entries(ref: SourceRef, log: Path, start: int) -> list[str]:
    """Check, before the query reads, whether logged input that no decided Batch has is still there. The caller holds the query's lease. The
    entries are amended with what is gone.

    Args:
        ref: The source.
        log: The folder of the sources' logs.
        start: The first entry to check: the end of the last decided Batch.

    Returns:
        A sentence for each loss that is new.

    Raises:
        SourceError: The source does not allow the query to continue without the lost input.
    """
    entries = SourceLog(log, ref.node)
    if entries.length() <= start:
        return []
    reader = open_source(ref.type, ref.place).reader()
    if not verifies(reader):
        return []
    told = []
    for number in range(start, entries.length()):
        before = entries.read(number)
        if not before:  # dead letters that are replayed are not checked
            continue
        after = reader.verify(before)
        if after != before:
            entries.amend(number, after)
            told += [f"{ref.node}: {stream.lost}" for stream in after if stream.lost and stream not in before]
    return told


def _reader(ref: SourceRef) -> SourceReader:
    """A reader that inspects the first input that it hands out: the source may have been empty when the flow started."""
    reader = open_source(ref.type, ref.place).reader()
    if reader_checks_columns(reader):
        reader.checks_first = True
    return reader


class Feed:
    """One source of one query. A position is the number of log entries before it. Used by one thread."""

    def __init__(self, ref: SourceRef, log: Path, limits: BatchLimits, *, query: str = "", reports: bool = True) -> None:
        """Create the feed.

        Args:
            ref: The source.
            log: The folder of the sources' logs.
            limits: The most that a Batch may read.
            query: `flow.query`, which is passed to the source with commits.
            reports: True if the source is informed of committed input from here.
        """
        self.node = ref.node
        self._query = query
        self._reports = reports
        self.final = False
        """True if no more input than there is now will be read"""
        self._log = SourceLog(log, ref.node)
        self._ref = ref
        self._folder = log.parent
        self._pending = Pending(self._folder, ref.node)
        self._full = self._limits = limits
        self._reader: SourceReader = _reader(ref)
        self._restored = 0
        self._held = False
        self._is_timely = "timely" in source_types(internal=True)[ref.type].abilities
        self._looked_at: float | None = None
        """the time of the newest poll's start, in seconds since 1970; None before the first"""

    def share(self, share: float) -> None:
        """Use only this share of the limits (0 to 1) from the next entry on; at least one byte or row remains."""
        full = self._full
        less = [None if most is None else max(1, int(most * share)) for most in (full.max_bytes, full.max_rows)]
        self._limits = BatchLimits(full.max_files, *less)

    def next(self, start: int) -> int:
        """The end of the next Batch that begins at `start`: one entry further, or `start` if nothing is new."""
        self._restore(start)
        self._hold(start)
        if self._log.length() <= start and not self._take():
            return start
        return start + 1

    def fill(self) -> None:
        """Log all input that there is now, one entry per Batch, without waiting for files to settle. Later input is for the next run."""
        self.final = True
        self._restore(self._log.length())
        while self._take():
            pass

    def exhausted(self, start: int) -> bool:
        """True if neither the log nor the source has anything after `start`. A source with a rate limit has more, later. Raises Unreachable
        if a part of the source is unavailable."""
        if self._log.length() > start:
            return False
        if finishes(self._reader):
            self._reader.finish()
        return not self._reader.backlog().rows

    def backlog(self, start: int) -> dict[str, Any]:
        """The backlog after `start`, in the log and at the source, as the fields of `Backlog` and `clear_at`.

        The amounts are unknown while this driver has not polled the source, as when the Batch before it was logged by an earlier driver.
        `clear_at`: the time, in seconds since 1970, up to which all input is in the log; None if unknown.
        """
        unseen = self._looked_at is None and measures_backlog(self._reader)
        waits = asdict(Backlog(more=True) if unseen else self._reader.backlog())
        amounts = [waits[figure] for figure in ("rows", "files", "bytes") if waits[figure] is not None]
        clear_at = self._looked_at if self._is_timely and amounts and not any(amounts) else None
        for stream in self._log.range(start, self._log.length()):
            for figure, amount in (("files", stream.files), ("bytes", stream.bytes), ("rows", stream.rows)):
                if waits[figure] is not None and amount is not None:
                    waits[figure] += amount
        return {**waits, "clear_at": clear_at}

    def committed(self, streams: Sequence[SourceStream]) -> None:
        """Inform the source that these streams are committed, if it supports that."""
        own = [stream for stream in streams if not is_replay(stream)]
        if own and holds_back(self._reader):
            self._reader.let_go(own)
        if self._reports and own and reports_position(self._reader):
            self._reader.committed(own, query=self._query)

    def notices(self) -> list[str]:
        """Notices that are to be shown once."""
        return self._reader.notices()

    def _hold(self, start: int) -> None:
        """At the first call: pass the source what an earlier reader has logged and no query has committed."""
        if not self._held and holds_back(self._reader):
            self._reader.hold(self._log.own_range(start, self._log.length()))
        self._held = True

    def _take(self) -> bool:
        """Append the next entry to the log: a request to replay dead letters if there is one, else what the source proposes. False if there
        is nothing new."""
        streams = self._pending.take()
        if not streams:
            began = time.time()
            streams = self._reader.split(self._limits, final=self.final)
            self._looked_at = began
        if not streams:
            return False
        stored = self._log.append(self._restored, streams)
        if _plain(stored) == _plain(streams):
            self._restored += 1
        else:  # another driver wrote the entry first: what was proposed here is not handed out, and the entry may be a replay request
            self._reader, self._looked_at = _reader(self._ref), None
            self._pending, self._restored = Pending(self._folder, self.node), 0
            self._restore(self._log.length())
        faults.reached("source.logged")
        return True

    def _restore(self, number: int) -> None:
        if self._restored >= number:
            return
        if self._log.length() < number:
            raise StateError(
                f'source "{self.node}": the last decided batch ended at entry {number}, but the source\'s log ends at {self._log.length()}',
                remedy="restore the state folder as a whole; its parts belong together",
            )
        logged = islice(self._log.whole(self._restored), number - self._restored)
        self._reader.restore(self._pending.note(entry, streams) for entry, streams in enumerate(logged, self._restored))
        self._restored = number


def _plain(streams: Sequence[SourceStream]) -> list[Any]:
    """The streams in the form that the log has, whether they were read from it or not."""
    return [msgspec.to_builtins(stream.as_json()) for stream in streams]


# The source of a stateful query as Spark sees it: a stream of descriptors, whose offsets are numbers of entries of the source's log. Spark
# runs `latestOffset` and `partitions` in a planner process of its own. An entry is logged durably there before Spark receives the offset:
# every later reader of the offset, in any process, reads the same streams.


SCHEMA = "source STRING, index INT, stream STRING"


@dataclass(frozen=True, slots=True)
class OffsetConfig:
    """What the planner process needs."""

    ref: SourceRef
    log: Path
    limits: BatchLimits
    query: str = ""
    reports: bool = True
    start: int = 0
    """the entry at which a new checkpoint begins"""


class _Descriptor(InputPartition):
    """One row: source, index in the Batch's streams of that source, the stream as JSON."""


class OffsetReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Proposes entries of a source's log as offsets `{"source": id, "n": entries}`. Runs in Spark's planner process."""

    def __init__(self, config: OffsetConfig) -> None:
        self._node = config.ref.node
        self._log = SourceLog(config.log, self._node)
        self._feed = Feed(config.ref, config.log, config.limits, query=config.query, reports=config.reports)
        self._start = config.start
        self._latest: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Only what tasks need: they only call `read`. The feed, with the connections and the memory of its reader, is not pickled."""
        return {"_node": self._node}

    def initialOffset(self) -> dict[str, Any]:  # noqa: D102, N802
        return self._offset(self._start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: D102, N802
        self._feed.fill()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, D102, N802
        number = int(start["n"])
        reached = min(self._log.length(), number + 1) if self._feed.final else self._feed.next(number)
        if self._feed.final and reached == number:
            self._feed.exhausted(number)
        backlog = msgspec.json.encode(self._feed.backlog(reached)).decode()
        self._latest = self._offset(reached) | {"backlog": backlog, "notes": "\n".join(self._feed.notices())}
        return self._offset(reached)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: D102, N802
        return self._latest

    def commit(self, end: dict[str, Any]) -> None:  # noqa: D102
        reached = int(end["n"])
        if reached:
            self._feed.committed(self._log.range(reached - 1, reached))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: D102
        streams = self._log.range(int(start["n"]), int(end["n"]))
        return [_Descriptor((self._node, index, msgspec.json.encode(stream.as_json()).decode())) for index, stream in enumerate(streams)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: D102
        yield partition.value

    def _offset(self, number: int) -> dict[str, Any]:
        return {"source": self._node, "n": number}


def clock(spark: SparkSession) -> DataFrame:
    """A stream that has one row for every Batch. It only starts Batches; the row is not read."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
    return rate.load()


def read_offsets(spark: SparkSession, config: OffsetConfig) -> DataFrame:
    """The streaming frame of a source's descriptors."""
    name = f"scribengin_{config.ref.node}"

    # a class per source, pickled by value: options may have secrets, and Spark prints what it regards as options in plans
    class Configured(DataSource):
        settings = config

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> OffsetReader:  # noqa: ARG002, N802
            return OffsetReader(self.settings)

    spark.dataSource.register(Configured)
    return spark.readStream.format(name).load()


def batch_offsets(spark: SparkSession, query_id: str) -> tuple[dict[str, int], dict[str, int]]:
    """(start, end) per source of the current Batch, from the running query itself: the files in `offsets/` may have been rewritten."""
    execution = spark._jsparkSession.streams().get(query_id).streamingQuery()
    return _positions(execution.committedOffsets()), _positions(execution.availableOffsets())


def _positions(progress: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    offsets = progress.iterator()
    while offsets.hasNext():
        offset = msgspec.json.decode(offsets.next()._2().json())
        found[offset["source"]] = int(offset["n"])
    return found


# Determines the input of a Batch at its start, before anything is staged. For a stateless query the driver does it: Spark's clock source
# only starts Batches, and the entries of the source logs are their input. It waits inside the open Batch until there is new input, so that
# an idle query costs one poll of the source and no Batches. A stateful query reads descriptors as a stream, since Spark must process the
# rows; its ranges are Spark's offsets.


POLL_S = 0.1
"""Seconds between polls of an idle source, unless a trigger is set."""
LATENCY_POLL_S = 0.02
"""The same under `profile: latency`; a poll costs about a millisecond."""


class StopRequested(Exception):
    """Raised at a Batch's entry, before anything is staged: the Batch stays in Spark's log and runs at the next start."""


class Exhausted(Exception):
    """Raised at a Batch's start under `--once`, when all existing input is processed."""


class Ranges(Protocol):
    """Assigns the input ranges of Batches."""

    def take(self, df: DataFrame, last: Decision | None) -> tuple[SourceRange, ...]:
        """The ranges of the Batch that is open. Raises StopRequested or Exhausted."""

    def share(self, share: float) -> None:
        """Set the share (0 to 1) of the limits that the next Batch may use."""

    def committed(self, streams: Mapping[str, tuple[SourceStream, ...]]) -> None:
        """Record that a Batch with these streams is committed, and inform the sources that support that."""


@dataclass(slots=True)
class OffsetRanges:
    """The ranges of a stateful query: the offsets of the running query itself."""

    spark: SparkSession
    sources: Sequence[str]
    starts: Mapping[str, int] = field(default_factory=dict)

    def take(self, df: DataFrame, last: Decision | None) -> tuple[SourceRange, ...]:  # noqa: ARG002
        """The ranges, from Spark's offsets: the files in `offsets/` may have been rewritten, the query in memory was not. Before its first
        Batch Spark has none."""
        query_id = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        starts, ends = batch_offsets(self.spark, str(query_id))
        begun = {source: starts.get(source, self.starts.get(source, 0)) for source in self.sources}
        return tuple(SourceRange(source, begun[source], ends.get(source, begun[source])) for source in self.sources)

    def share(self, share: float) -> None:
        """Does nothing: Spark has fixed the size of a Batch before it opens it."""

    def committed(self, streams: Mapping[str, tuple[SourceStream, ...]]) -> None:
        """Does nothing: Spark notifies the readers in its planner process (OffsetReader.commit)."""


@dataclass(slots=True)
class FedRanges:
    """The ranges of a stateless query: the next entry of each source's log. `on_look` is called at every poll with the backlog, the
    notices, and True if nothing is new."""

    feeds: Sequence[Feed]
    trigger_s: float
    final: Callable[[], bool]
    """True if no more input than there is now will be read (`--once`); once true it stays true"""
    stop: threading.Event
    on_look: Callable[[dict[str, dict[str, Any]], list[str], bool], None]
    starts: Mapping[str, int]
    """source → the entry at which the lineage begins; 0 if not listed"""
    poll_s: float = POLL_S
    _begun: float = field(default=0.0)
    _filled: bool = field(default=False)

    def take(self, df: DataFrame, last: Decision | None) -> tuple[SourceRange, ...]:  # noqa: ARG002
        """Wait for the trigger and for new input; returns the ranges. Raises StopRequested or Exhausted."""
        starts = {each.source: each.end for each in last.sources} if last is not None else dict(self.starts)
        if not self.final():
            self.stop.wait(max(0.0, self._begun + self.trigger_s - time.monotonic()))
        while True:
            if self.stop.is_set():
                raise StopRequested
            final = self.final()
            if final and not self._filled:
                for feed in self.feeds:
                    feed.fill()
                self._filled = True
            ranges = self.next_ranges(starts)
            if any(each.end > each.start for each in ranges):
                self._begun = time.monotonic()
                return ranges
            if final and all(feed.exhausted(starts.get(feed.node, 0)) for feed in self.feeds):
                raise Exhausted
            self.stop.wait(POLL_S if final else max(self.poll_s, self.trigger_s))

    def share(self, share: float) -> None:
        """Set the share of the limits for input that is not yet in a source's log."""
        for feed in self.feeds:
            feed.share(share)

    def committed(self, streams: Mapping[str, tuple[SourceStream, ...]]) -> None:
        """Notify each source of its committed streams."""
        for feed in self.feeds:
            feed.committed(streams.get(feed.node, ()))

    def next_ranges(self, starts: dict[str, int]) -> tuple[SourceRange, ...]:
        """The ranges that a Batch could read now; empty ranges if nothing is new. An idle poll does no more than this."""
        ranges = tuple(SourceRange(feed.node, start := starts.get(feed.node, 0), feed.next(start)) for feed in self.feeds)
        waits = all(each.end == each.start for each in ranges)
        backlog = {feed.node: feed.backlog(starts.get(feed.node, 0)) for feed in self.feeds}
        self.on_look(backlog, [notice for feed in self.feeds for notice in feed.notices()], waits)
        return ranges

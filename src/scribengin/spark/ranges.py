"""Determines the input of a Batch at its start, before anything is staged.

A stateless Query is fed by its driver: Spark's clock source only opens Batches, and the entries of the source logs say what is in
them. It waits inside the open Batch until something is new, so that an idle Query costs one look at the source per poll and no
Batch at all. A stateful Query reads descriptors as a stream, since Spark must see the rows; its ranges are Spark's offsets.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.spark.offsets import batch_offsets
from scribengin.state.contract import SourceRange

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from scribengin.connectors.contract import SourceStream
    from scribengin.spark.feed import Feed
    from scribengin.state.contract import Decision

POLL_S = 0.1
"""Seconds between polls of an idle source, unless a trigger is set."""
LATENCY_POLL_S = 0.02
"""The same under `profile: latency`; a poll costs about a millisecond."""


class StopRequested(Exception):
    """Raised at a Batch's entry, before anything is staged: the Batch stays in Spark's log and runs at the next start."""


class Exhausted(Exception):
    """Raised at a Batch's start under `--once`, when all existing input is processed."""


class Ranges(Protocol):
    """The input of Batches."""

    def take(self, df: DataFrame, last: Decision | None) -> tuple[SourceRange, ...]:
        """The ranges of the Batch that is open. Raises StopRequested or Exhausted."""

    def share(self, share: float) -> None:
        """How much of its limits the next Batch may take, 0 to 1."""

    def committed(self, streams: Mapping[str, tuple[SourceStream, ...]]) -> None:
        """Record that a Batch with these ranges is committed; sources that report outside of the flow do so."""


@dataclass(slots=True)
class OffsetRanges:
    """The ranges of a stateful Query: the offsets of the running query itself."""

    spark: SparkSession
    sources: Sequence[str]
    starts: Mapping[str, int] = field(default_factory=dict)

    def take(self, df: DataFrame, last: Decision | None) -> tuple[SourceRange, ...]:  # noqa: ARG002
        """Spark's offsets; `offsets/` may have been rewritten, the query in memory was not. Spark knows none before its first Batch."""
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
    """The ranges of a stateless Query: the next entry of each source's log. `on_look` hears backlog and notices at every look."""

    feeds: Sequence[Feed]
    trigger_s: float
    final: Callable[[], bool]
    """True if what is there now is all there will be (`--once`); once true it stays so"""
    stop: threading.Event
    on_look: Callable[[dict[str, dict[str, Any]], list[str], bool], None]
    starts: Mapping[str, int]
    """source → where the lineage begins; 0 for others"""
    poll_s: float = POLL_S
    _begun: float = field(default=0.0)
    _filled: bool = field(default=False)

    def take(self, df: DataFrame, last: Decision | None) -> tuple[SourceRange, ...]:  # noqa: ARG002
        """Wait for something new, and for the trigger."""
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
        """Of what is not yet in a source's log."""
        for feed in self.feeds:
            feed.share(share)

    def committed(self, streams: Mapping[str, tuple[SourceStream, ...]]) -> None:
        """Notify each source of its committed streams."""
        for feed in self.feeds:
            feed.committed(streams.get(feed.node, ()))

    def next_ranges(self, starts: dict[str, int]) -> tuple[SourceRange, ...]:
        """What a Batch could take now: empty ranges if nothing is new. All that an idle poll costs."""
        ranges = tuple(SourceRange(feed.node, start := starts.get(feed.node, 0), feed.next(start)) for feed in self.feeds)
        waits = all(each.end == each.start for each in ranges)
        backlog = {feed.node: feed.backlog(starts.get(feed.node, 0)) for feed in self.feeds}
        self.on_look(backlog, [notice for feed in self.feeds for notice in feed.notices()], waits)
        return ranges

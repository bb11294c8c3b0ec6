"""The board: all reports on tiers that the leading master has received, now and over time. In memory only.

A new leader starts with an empty board: workers report to it within ten seconds, and earlier data are lost.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from math import inf, nan
from typing import TYPE_CHECKING

import msgspec

from scribengin.watching.backlogs import LOOKING, Backlogs, backlog_of, with_waits
from scribengin.watching.progress import aged
from scribengin.watching.series import Increments, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from scribengin.connectors.contract import Backlog
    from scribengin.local.contract import GateView, QueryView
    from scribengin.watching.progress import Failure, TierProgress


STALE_S = 25.0
"""seconds of silence after which a worker counts as gone or cut off: it reports every ten seconds"""
_PER_S = 100
"""the most tiers that should report in one second, so that the load on the master stays small"""
_ATTEMPTS = 20
_COUNTS = ("rows_in", "rows_out", "dead", "batches", "restarts")


@dataclass(slots=True)
class ObservedAttempt:
    """One process that served a tier, as far as its reports show."""

    worker: str
    since: float
    heard: float
    """the time of its last report, in seconds since the epoch by the master's clock, like `since`"""
    batches: int = 0
    rows_in: int = 0
    restarts: int = 0
    """restarts of queries in it"""
    failures: tuple[Failure, ...] = ()
    ended: float | None = None
    cause: str = ""
    """why it ended, as the master reports it; with the line of the user's code, if that is the cause"""
    remedy: str = ""


@dataclass(slots=True)
class WatchedTier:
    """The reports on one tier. The counts in `totals` are since this master became the leader."""

    progress: TierProgress
    heard: float
    series: Series = field(default_factory=Series)
    attempts: deque[ObservedAttempt] = field(default_factory=lambda: deque(maxlen=_ATTEMPTS))
    progressed: float = 0.0
    """when a Batch was last committed, or there was no backlog"""
    read: float = -inf
    """when a report last showed rows read"""
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0.0))

    @property
    def waits(self) -> bool:
        """True if there is a backlog that the tier should process: a paused flow does not count."""
        return self.progress.phase != "ended" and any(query.state != "finished" and _waits(query) for query in self.progress.queries)


@dataclass(frozen=True, slots=True)
class TierSnapshot:
    """The reports on a tier at one moment: copies, for any thread."""

    progress: TierProgress
    heard: float
    attempts: tuple[ObservedAttempt, ...]
    progressed: float
    totals: Mapping[str, float]
    waits: bool
    series: Series
    """to be read under `Board.reading` only"""


class Board:
    """All reports on tiers. Thread-safe. `now` returns the time in seconds since the epoch: the clocks of workers are not trusted."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self.reading = threading.RLock()
        self._flows: dict[str, dict[str, WatchedTier]] = {}
        self._backlogs = Backlogs()

    def take(self, progress: TierProgress) -> None:
        """Record a worker's report. A report of an older worker after one of its successor is ignored."""
        now = self.now()
        with self.reading:
            tiers = self._flows.setdefault(progress.flow, {})
            there = tiers.get(progress.tier)
            if there is None:
                # what the process did before this master watched it does not count here, except how long it has made no progress
                still_s = max((query.still_s for query in progress.queries), default=0.0)
                there = tiers[progress.tier] = WatchedTier(progress, now, progressed=now - still_s)
                before = progress
            elif progress.run < there.progress.run:
                return
            else:
                before = there.progress
            self._note(there, before, progress, now)

    def end(self, flow: str, tier: str, worker: str, ended: float, cause: str, remedy: str) -> None:
        """Record that a worker's process has ended. Idempotent.

        Args:
            flow: the flow.
            tier: the tier.
            worker: the worker's name.
            ended: when, in seconds since the epoch.
            cause: why it ended.
            remedy: what an operator can do.
        """
        with self.reading:
            there = self._flows.get(flow, {}).get(tier)
            if there is None:
                return
            attempt = next((each for each in there.attempts if each.worker == worker), None)
            if attempt is None:
                attempt = ObservedAttempt(worker, ended, ended)
                there.attempts.append(attempt)
            attempt.ended, attempt.cause, attempt.remedy = ended, cause, remedy

    def pace_s(self) -> float:
        """The seconds that each worker should wait between two reports while there is progress: 1 to 10, depending on the number of
        tiers."""
        with self.reading:
            return min(10.0, max(1.0, sum(map(len, self._flows.values())) / _PER_S))

    def meet(self, feeders: Mapping[tuple[str, str], tuple[tuple[str, str], ...]]) -> None:
        """Set the connections of flows: (flow, source) → the (flow, sink) that write what it reads. What these write from now on adds to
        its backlog."""
        with self.reading:
            self._backlogs.meet(feeders)

    def measure(self, flow: str, found: Mapping[str, Backlog], at: float) -> None:
        """Record measured backlogs of a flow: source → backlog. `at`: when they were measured, in seconds since the epoch."""
        with self.reading:
            for source, waits in found.items():
                self._backlogs.note(flow, source, waits, at, worker=False)

    def unreported_s(self, flow: str, source: str) -> float | None:
        """Seconds since a worker of the flow last reported on the source; None if none has."""
        with self.reading:
            return self._backlogs.unreported_s(flow, source, self.now())

    def waits(self, flow: str) -> dict[str, tuple[float, Backlog]]:
        """External source → (age of the last report in seconds, its backlog now, from reports and what upstream flows wrote)."""
        with self.reading:
            return self._backlogs.waits(flow, self.now())

    def retain(self, flows: Collection[str]) -> None:
        """Remove all other flows, which are no longer in the registry."""
        with self.reading:
            self._backlogs.retain(flows)
            for gone in [name for name in self._flows if name not in flows]:
                del self._flows[gone]

    def drop(self, flow: str, tier: str) -> None:
        """Remove a tier that the flow no longer has, so that its silence is not reported."""
        with self.reading:
            self._flows.get(flow, {}).pop(tier, None)

    def flows(self) -> tuple[str, ...]:
        """The flows with reports, by name."""
        with self.reading:
            return tuple(sorted(self._flows))

    def tiers(self, flow: str) -> dict[str, TierSnapshot]:
        """The reports on a flow's tiers; empty if none of its workers has reported."""
        with self.reading:
            now = self.now()
            found = self._backlogs.waits(flow, now)
            return {
                name: TierSnapshot(
                    _measured(there, found, now),
                    there.heard,
                    tuple(map(replace, there.attempts)),
                    there.progressed,
                    dict(there.totals),
                    there.waits,
                    there.series,
                )
                for name, there in sorted(self._flows.get(flow, {}).items())
            }

    def is_idle(self, flow: str, for_s: float) -> bool | None:
        """True if none of the flow's tiers has read anything for `for_s` seconds; None if unknown, because not all have reported for that
        long."""
        with self.reading:
            tiers, since = self._flows.get(flow, {}).values(), self.now() - for_s
            if any(there.read > since for there in tiers):
                return False
            began = [there.series.began for there in tiers]
        return True if began and all(at is not None and at <= since for at in began) else None

    def _note(self, there: WatchedTier, before: TierProgress, progress: TierProgress, now: float) -> None:
        other = progress.run != before.run
        moved = _moved(None if other else before, progress)
        if other:
            moved = replace(moved, restarts=moved.restarts + 1)
        for name in there.totals:
            there.totals[name] += getattr(moved, name)
        if not there.attempts or there.attempts[-1].worker != progress.worker:
            there.attempts.append(ObservedAttempt(progress.worker, now - progress.seconds, now))
        attempt = there.attempts[-1]
        attempt.heard, attempt.failures = now, progress.failures
        attempt.batches, attempt.rows_in = (
            sum(query.batches for query in progress.queries),
            sum(query.rows_in for query in progress.queries),
        )
        attempt.restarts = sum(query.restarts for query in progress.queries)
        there.progress, there.heard = progress, now
        if moved.batches or not there.waits:
            there.progressed = now
        if moved.rows_in > 0:
            there.read = now
        there.series.add(now, moved)
        self._note_ends(None if other else before, progress, now)

    def _note_ends(self, before: TierProgress | None, progress: TierProgress, now: float) -> None:
        """Record what the tier's sinks have written, and the backlogs of its sources."""
        was = {} if before is None else {query.name: query for query in before.queries}
        for query in progress.queries:
            for sink, end in query.sinks.items():
                old = was[query.name].sinks.get(sink) if query.name in was else None
                rows, size = (0, 0) if old is None or end.rows < old.rows else (old.rows, old.bytes or 0)
                self._backlogs.wrote(progress.flow, sink, end.rows - rows, (end.bytes or 0) - size)
            for source, end in query.sources.items():
                if not end.channel and end.looked_s is not None:
                    self._backlogs.note(progress.flow, source, backlog_of(end), now - end.looked_s, worker=True)
                if query.state not in LOOKING:
                    self._backlogs.stop_reports(progress.flow, source)


def _measured(there: WatchedTier, found: Mapping[str, tuple[float, Backlog]], now: float) -> TierProgress:
    """The report of the tier's worker. If the worker is silent, or has not checked its sources for long, the backlogs are taken from
    `found`."""
    silent_s = max(0.0, now - there.heard)
    queries = tuple(with_waits(aged(query, silent_s), found) for query in there.progress.queries)
    return msgspec.structs.replace(there.progress, queries=queries)


def _moved(before: TierProgress | None, now: TierProgress) -> Increments:
    """The increments between two reports. A count that has decreased was restarted in the same process."""
    was = {} if before is None else {query.name: query for query in before.queries}
    counts = {}
    for name in _COUNTS:
        pairs = [(getattr(query, name), getattr(was[query.name], name) if query.name in was else 0) for query in now.queries]
        counts[name] = float(sum(count - old if count >= old else count for count, old in pairs))
    lag_rows, lag_bytes, lag_s = _lags(now)
    return Increments(**counts, lag_rows=lag_rows, lag_bytes=lag_bytes, lag_s=lag_s)


def _lags(progress: TierProgress) -> tuple[float, float, float]:
    rows = [query.lag_rows for query in progress.queries if query.lag_rows is not None]
    size = [query.lag_bytes for query in progress.queries if query.lag_bytes is not None]
    age_s = [query.lag_s for query in progress.queries if query.lag_s is not None]
    return (sum(rows) if rows else nan), (sum(size) if size else nan), max(age_s, default=nan)


def _waits(query: QueryView) -> bool:
    return bool(query.lag_rows or query.lag_files or query.lag_bytes or query.tasks) and query.state != "waiting"


def gates_of(tiers: Mapping[str, TierSnapshot]) -> tuple[GateView, ...]:
    """The channels of a flow, each as reported by its upstream tier."""
    return tuple(gate for seen in tiers.values() for gate in seen.progress.gates)

"""The backlog of the sources of flows: as last reported by their workers, or as measured since, plus what upstream flows have written since
then.

A worker checks its sources between two Batches. If a Batch takes long, the worker fails, is stopped or its host is gone, its last report
becomes inaccurate: masters then have the backlog measured (`control/backlog_measurement.py`), and between two measurements they add what
upstream flows report as written.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scribengin.connectors.contract import Backlog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.local.contract import EndView, QueryView

OLD_S = 12.0
"""seconds after which a measurement replaces a report: workers report every ten seconds if nothing has changed"""
LOOKING = ("running", "waiting", "stopping")
"""states of a query that checks its sources"""
_SAME_S = 0.5
"""seconds; two reports closer than this are the same one, sent twice"""
Source = tuple[str, str]
"""(flow, source)"""


@dataclass(frozen=True, slots=True)
class _Base:
    """A report or a measurement, and (rows, bytes) that upstream flows had written by then."""

    at: float
    waits: Backlog
    written: tuple[int, int]


class Backlogs:
    """The backlogs of all flows. Not thread-safe: the board's lock protects it. Times are in seconds since the epoch by the master's
    clock."""

    def __init__(self) -> None:
        self._bases: defaultdict[str, dict[str, _Base]] = defaultdict(dict)
        """flow → source → the newest report or measurement"""
        self._written: dict[Source, tuple[int, int]] = {}
        """(flow, sink) → rows and bytes written in total, as its workers report"""
        self._feeders: Mapping[Source, tuple[Source, ...]] = {}
        self._by_workers: dict[Source, float] = {}
        """when a worker that still reports last reported"""

    def meet(self, feeders: Mapping[Source, tuple[Source, ...]]) -> None:
        """Set the connections of flows: (flow, source) → the (flow, sink) that write what it reads."""
        for key in {key for key, _ in feeders.items() ^ self._feeders.items()}:
            base = self._bases[key[0]].get(key[1])
            # what an upstream flow wrote before it was connected, and after it was disconnected, is not part of the backlog
            if base is not None:
                was, now = self._total(self._feeders.get(key, ())), self._total(feeders.get(key, ()))
                written = (base.written[0] + now[0] - was[0], base.written[1] + now[1] - was[1])
                self._bases[key[0]][key[1]] = replace(base, written=written)
        self._feeders = feeders

    def wrote(self, flow: str, sink: str, rows: int, size: int) -> None:
        """Add rows and bytes that a worker reports as committed to a sink."""
        before = self._written.get((flow, sink), (0, 0))
        self._written[flow, sink] = (before[0] + rows, before[1] + size)

    def note(self, flow: str, source: str, waits: Backlog, at: float, *, worker: bool) -> None:
        """Record the backlog of a source. The newest value counts; a repeated report is ignored.

        Args:
            flow: the flow.
            source: the source.
            waits: the backlog.
            at: when it was found.
            worker: a worker reported it; otherwise it was measured.
        """
        key = (flow, source)
        if worker:
            self._by_workers[key] = max(at, self._by_workers.get(key, at))
        before = self._bases[flow].get(source)
        if is_known(waits) and (before is None or at > before.at + _SAME_S):
            self._bases[flow][source] = _Base(at, waits, self._total(self._feeders.get(key, ())))

    def stop_reports(self, flow: str, source: str) -> None:
        """Record that the source's worker no longer checks it: it fails, is paused or has ended."""
        self._by_workers.pop((flow, source), None)

    def waits(self, flow: str, now: float) -> dict[str, tuple[float, Backlog]]:
        """Source → (age of the report in seconds, its backlog now), for the sources with a report or measurement."""
        found = self._bases.get(flow, {})
        return {source: (now - base.at, self._now((flow, source), base, now)) for source, base in found.items()}

    def unreported_s(self, flow: str, source: str, now: float) -> float | None:
        """Seconds since a worker last reported on the source; None if none has."""
        at = self._by_workers.get((flow, source))
        return None if at is None else now - at

    def retain(self, flows: Iterable[str]) -> None:
        """Remove all other flows. What upstream flows wrote is kept until the next `meet`, which needs it."""
        kept = set(flows)
        feeding = {flow for sinks in self._feeders.values() for flow, _ in sinks}
        for flow in [flow for flow in self._bases if flow not in kept]:
            del self._bases[flow]
        for key in [key for key in self._by_workers if key[0] not in kept]:
            del self._by_workers[key]
        for key in [key for key in self._written if key[0] not in kept | feeding]:
            del self._written[key]

    def _now(self, source: Source, base: _Base, now: float) -> Backlog:
        rows, size = (max(0, now - then) for now, then in zip(self._total(self._feeders.get(source, ())), base.written, strict=True))
        since_s = max(0.0, now - base.at)
        waited = any(_amounts(base.waits))
        oldest_s = None if base.waits.oldest_s is None or not waited else base.waits.oldest_s + since_s
        return replace(
            base.waits,
            rows=None if base.waits.rows is None else base.waits.rows + rows,
            bytes=None if base.waits.bytes is None else base.waits.bytes + size,
            oldest_s=since_s if rows and not waited else oldest_s,
        )

    def _total(self, sinks: Iterable[Source]) -> tuple[int, int]:
        written = [self._written.get(sink, (0, 0)) for sink in sinks]
        return sum(rows for rows, _ in written), sum(size for _, size in written)


def with_waits(query: QueryView, found: Mapping[str, tuple[float, Backlog]]) -> QueryView:
    """The query with the present backlog of its sources, if its worker's own report on one of them is old or lacks it: a query that
    restarts with an earlier Batch has not checked its sources yet. `found`: source → (age of the report in seconds, its backlog)."""
    looks = query.state in LOOKING

    def is_seen(end: EndView) -> bool:
        return looks and end.looked_s is not None and end.looked_s <= OLD_S and is_known(backlog_of(end))

    old = {source: found[source][1] for source, end in query.sources.items() if not end.channel and source in found and not is_seen(end)}
    if not old:
        return query
    sources = {source: _with(end, old[source]) if source in old else end for source, end in query.sources.items()}
    ends = list(sources.values())
    return replace(
        query,
        sources=sources,
        lag_rows=_sum([end.lag_rows for end in ends]),
        lag_files=_sum([end.lag_files for end in ends if not end.channel]),
        lag_bytes=_sum([end.lag_bytes for end in ends]),
        lag_s=max((end.lag_s for end in ends if end.lag_s is not None), default=None),
    )


def backlog_of(end: EndView) -> Backlog:
    """The backlog of a source, as its worker reports it."""
    return Backlog(end.lag_files, end.lag_bytes, end.lag_rows, end.lag_s)


def is_known(waits: Backlog) -> bool:
    """True if any figure of the backlog is known."""
    return _amounts(waits) != (None, None, None)


def _amounts(waits: Backlog) -> tuple[int | None, int | None, int | None]:
    return waits.files, waits.bytes, waits.rows


def _with(end: EndView, waits: Backlog) -> EndView:
    return replace(end, lag_rows=waits.rows, lag_files=waits.files, lag_bytes=waits.bytes, lag_s=waits.oldest_s)


def _sum(figures: list[int | None]) -> int | None:
    known = [each for each in figures if each is not None]
    return sum(known) if known and len(known) == len(figures) else None

"""Figures of a query in this process, for displays and metrics: updated by commits, read several times a second."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from math import inf
from typing import TYPE_CHECKING, Any

from scribengin.local.contract import EndView, QueryView
from scribengin.local.ledger import query_rows
from scribengin.state.clocks import idle_nodes, watermark_holder
from scribengin.state.contract import Counts
from scribengin.state.decisions import moment
from scribengin.state.utility_orders import order_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.contract import SourceStream
    from scribengin.spark.commit import CommittedBatch
    from scribengin.spark.query import QueryRun
    from scribengin.state.channel_acks import ChannelBacklog
    from scribengin.state.clocks import Clock


# Estimated time until the backlog is empty, from the last sizes of the backlog.


WINDOW_S = 20.0
_LOOKS = 3
"""the number of sizes that are kept at any age, because Batches may take longer than the window"""


class CatchUp:
    """Estimates when the backlog is empty. It shrinks by the difference between the rates of reading and of arrival; two sizes give that
    difference.

    Only sizes that were taken at the same point of a Batch can be compared; all seconds are of one clock. Used by one thread.
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, waits: int) -> None:
        """Record a new size of the backlog."""
        self._looks.append((now_s, waits))
        while len(self._looks) > _LOOKS and self._looks[0][0] < now_s - WINDOW_S:
            self._looks.popleft()

    def forget(self) -> None:
        """Reset the estimate: the query has caught up."""
        self._looks.clear()

    def seconds(self, now_s: float, waits: int) -> float | None:
        """Seconds until a backlog of size `waits` is processed; infinity if it does not shrink; None if that is not known yet.

        The result rises while a new size is overdue: a Batch that takes longer than those before lowers the rate.
        """
        if len(self._looks) < 2:
            return None
        (first_s, before), (last_s, after) = self._looks[0], self._looks[-1]
        span_s = last_s - first_s
        if span_s <= 0:
            return None
        if after >= before:
            return float("inf")
        overdue_s = max(0.0, now_s - last_s - span_s / (len(self._looks) - 1))
        return waits * (span_s + overdue_s) / (before - after)


RATE_WINDOW_S = 10.0
_LEAST_LEFT = 0.01
"""the least share of all work that is left while a Batch is in progress"""
_FIGURES = ("files", "bytes", "rows")


class Meter:
    """The figures of a query. Thread-safe: `begun` and `committed` are called by the query's thread, `view` by the display's.

    `last` is the newest Batch that was committed before this process began. `channels`: source that is a channel → a function that returns
    its backlog. It is needed because the reader of a channel counts record batches, from which the number of rows cannot be derived.
    """

    def __init__(
        self,
        sources: tuple[str, ...],
        sinks: tuple[str, ...],
        *,
        last: int = -1,
        channels: Mapping[str, Callable[[], ChannelBacklog]] | None = None,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sources = sources
        self._sinks = sinks
        self._channels = dict(channels or {})
        self._waits: Mapping[str, ChannelBacklog] = {}
        self._clock = clock
        self._newest_us: dict[str, int] = {}
        self._clocks: Mapping[str, Clock] = {}
        self._now = now
        self._lock = threading.Lock()
        self._begun = now()
        self._ended: float | None = None
        self._recent: deque[tuple[float, int, Mapping[str, int]]] = deque()
        """(time, rows read, rows of each source and sink)"""
        self._ends: dict[str, int] = dict.fromkeys((*sources, *sinks), 0)
        self._sink_bytes: dict[str, int] = dict.fromkeys(sinks, 0)
        self._phases: Mapping[str, float] = {}
        self._slowest_node: tuple[str, float] | None = None
        self._orders: tuple[str, ...] = ()
        self._phases_total: defaultdict[str, float] = defaultdict(float)
        self._tasks_s = 0.0
        self._done = dict.fromkeys(_FIGURES, 0)
        self._done_rows = 0
        """rows taken from channels"""
        self._streams: Mapping[str, Sequence[SourceStream]] = {}
        """the streams that the current Batch reads"""
        self._moved: float | None = None
        self._batch_begun: float | None = None
        self._tasks: tuple[int, int] | None = None
        self._looked: Mapping[str, Mapping[str, Any]] = {}
        self._done_at_look = dict(self._done)
        self._looked_at = self._begun
        self._catch_up = CatchUp()
        self._catch_up_s: float | None = None
        self.last = last
        self.batches = 0
        self.rows = Counts()
        self.nodes: dict[str, Counts] = {}

    def begun(self, streams: Mapping[str, Sequence[SourceStream]]) -> None:
        """Record the start of a Batch and the streams that it reads."""
        with self._lock:
            self._streams = streams
            self._moved = self._batch_begun = self._now()

    def committed(self, batch: CommittedBatch) -> None:
        """Count a committed Batch once: one that was committed before this process began is published again, and not counted."""
        with self._lock:
            self._phases = batch.phases_s
            self._slowest_node = _slowest_of(batch.seconds) or self._slowest_node
            self._orders = tuple(order_texts(batch.decision.orders))
            for phase, spent in batch.phases_s.items():
                self._phases_total[phase] += spent
            self._tasks_s += sum(batch.seconds.values())
            self._streams = {}
            self._moved = self._batch_begun = None
            self._clocks = batch.decision.clocks
            for origin, newest_us in batch.newest_us.items():
                self._newest_us[origin] = max(newest_us, self._newest_us.get(origin, newest_us))
            if batch.decision.batch.number <= self.last:
                return
            self.last = batch.decision.batch.number
            rows = query_rows(batch.decision.counts, self._sources, self._sinks)
            self.batches += 1
            self.rows.add(rows)
            counts = batch.decision.counts
            for node, count in counts.items():
                self.nodes.setdefault(node, Counts()).add_batch(count)
            ends = {end: counts[end].out if end in self._sinks else counts[end].rows_in for end in self._ends if end in counts}
            for end, moved in ends.items():
                self._ends[end] += moved
            for receipt in batch.decision.receipts:
                self._sink_bytes[receipt.sink] = self._sink_bytes.get(receipt.sink, 0) + receipt.bytes
            self._recent.append((self._now(), rows.rows_in, ends))
            for figure, amount in self._amount(batch.streams).items():
                self._done[figure] += amount
            self._done_rows += sum(batch.decision.counts[source].rows_in for source in self._channels if source in batch.decision.counts)

    def end(self) -> None:
        """Record the end of the query: its run time no longer rises."""
        self._ended = self._now()

    def seconds(self) -> float:
        """The seconds for which the query has run, without the start of Spark."""
        return (self._ended or self._now()) - self._begun

    def view(self, name: str, run: QueryRun | None) -> QueryView:
        """The figures now; rates are over the last seconds and decay when nothing arrives."""
        waits = {source: look() for source, look in self._channels.items()}
        with self._lock:
            self._waits = waits
            now = self._now()
            while self._recent and self._recent[0][0] < now - RATE_WINDOW_S:
                self._recent.popleft()
            span = min(RATE_WINDOW_S, max(now - self._begun, 0.001))
            rate = sum(rows for _, rows, _ in self._recent) / span
            at = self._ended or now
            looked = {} if run is None else run.progress.backlog
            backlog = {} if run is None else self._backlog(looked, at)
            catch_up_s = None if run is None else self._level_in(run.state, backlog, at)
            tasks = run.progress.tasks if run is not None and run.state in ("running", "stopping") else None
            still_s = self._still(run, tasks, at)
            left, done_part = self._left(backlog, 0.0 if tasks is None else tasks[0] / tasks[1])
            eta = None if left is None or done_part is None or done_part <= 0 else (now - self._begun) * left / done_part
            return QueryView(
                name=name,
                state=run.state if run is not None else "starting",  # type: ignore[arg-type]
                batches=self.batches,
                batch=self.last + 1,
                ready=self.batches > 0 or (run is not None and (run.idled or run.state == "paused")),
                seconds=self.seconds(),
                rows_in=self.rows.rows_in,
                rows_out=self.rows.out,
                filtered=self.rows.filtered,
                dead=self.rows.dead,
                late=self.rows.late + self.rows.late_dead,
                lost=self.rows.lost,
                lost_unknown=self.rows.lost_unknown,
                rows_per_s=rate,
                phases_s=dict(self._phases),
                phases_total_s=dict(self._phases_total),
                tasks_s=self._tasks_s,
                tasks=tasks,
                batch_s=0.0 if self._moved is None or self._batch_begun is None else at - self._batch_begun,
                still_s=still_s,
                restarts=0 if run is None else run.restarts,
                lag_rows=backlog.get("rows"),
                lag_files=backlog.get("files"),
                lag_bytes=backlog.get("bytes"),
                lag_s=backlog.get("oldest_s"),
                catch_up_s=None if catch_up_s == inf else catch_up_s,
                falls_behind=catch_up_s == inf,
                done=None if left is None or done_part is None else 1.0 - left,
                eta_s=eta,
                watermark="" if run is None else run.progress.watermark,
                **({} if run is None or not self.batches else self._held_back(run)),
                message="" if run is None else run.message,
                dead_cause="" if run is None else run.context.tally.cause,
                degraded=run is not None and run.context.tally.degraded is not None,
                slowest=self._slowest_node,
                sources={source: self._end_view(source, span, looked.get(source)) for source in self._sources},
                sinks={sink: self._end_view(sink, span, None) for sink in self._sinks},
                state_rows=None if run is None else run.progress.held,
                state_bytes=None if run is None else run.progress.held_bytes,
                state_partitions=None if run is None else run.progress.state_partitions,
                orders=self._orders,
            )

    def _end_view(self, end: str, span_s: float, looked: Mapping[str, Any] | None) -> EndView:
        rate = sum(ends.get(end, 0) for _, _, ends in self._recent) / span_s
        if (waits := self._waits.get(end)) is not None:
            age_s = max(0.0, self._clock() - moment(waits.oldest_at).timestamp()) if waits.rows and waits.oldest_at else None
            return EndView(self._ends[end], rate, waits.rows, None, waits.bytes, age_s, channel=True, looked_s=0.0)
        if looked is None:
            return EndView(self._ends[end], rate, bytes=self._sink_bytes.get(end))
        lag = looked["rows"], looked["files"], looked["bytes"], looked["oldest_s"]
        return EndView(self._ends[end], rate, *lag, looked_s=self._now() - self._looked_at, clear_at=looked.get("clear_at"))

    def _still(self, run: QueryRun | None, tasks: tuple[int, int] | None, now: float) -> float:
        """Seconds without progress of the current Batch."""
        if run is None or run.state not in ("running", "stopping"):
            self._moved = None
        if self._moved is None:
            return 0.0
        if tasks != self._tasks:
            self._tasks, self._moved = tasks, now
        return now - self._moved

    def _held_back(self, run: QueryRun) -> dict[str, Any]:
        """The input that holds back the watermark, by how much and since when. Idle inputs do not hold it back."""
        now_us = round(self._clock() * 1e6)
        idle = frozenset() if run.idle is None else idle_nodes(self._clocks, run.idle.idle_us, now_us)
        by = self._slowest([origin for origin in run.progress.gated if origin not in idle])
        said: dict[str, Any] = {"held_back_by": by, "idle": tuple(sorted(idle))}
        held = watermark_holder(self._clocks, idle)
        if held is not None and held.by == by:
            said["behind_s"] = None if held.behind_us is None else held.behind_us / 1e6
            said["silent_s"] = max(0.0, (now_us - held.silent_since_us) / 1e6)
        return said

    def _slowest(self, origins: Sequence[str]) -> str:
        """The node of several that determines the watermark. One that has had no rows since the start holds back all, as in Spark."""
        return min(origins, key=lambda origin: self._newest_us.get(origin, -float("inf"))) if len(origins) > 1 else ""

    def _backlog(self, looked: Mapping[str, Mapping[str, Any]], now: float) -> dict[str, Any]:
        """The backlog at the last check, less what was committed since; for channels the present backlog."""
        before = _sum({source: each for source, each in looked.items() if source not in self._channels})
        new = looked is not self._looked
        if new:
            self._looked, self._done_at_look, self._looked_at = looked, dict(self._done), now
        backlog = self._with_channels(before, looked)
        if new and (figure := _finest(backlog)) is not None:
            self._catch_up.note(now, backlog[figure])
        for figure, done in self._done.items():
            if before.get(figure) is not None:
                before[figure] = max(0, before[figure] - (done - self._done_at_look[figure]))
        if before.get("oldest_s") is not None:
            # the backlog grows older between two checks; what was committed meanwhile is no longer part of it
            figure = _finest(before)
            before["oldest_s"] = before["oldest_s"] + now - self._looked_at if figure is None or before[figure] else None
        return self._with_channels(before, looked)

    def _with_channels(self, outside: Mapping[str, Any], looked: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The backlog outside of the flow and in channels. Channels count in rows and bytes; they have no files."""
        if not self._channels:
            return dict(outside)
        parts = {"outside": outside} if "more" in outside else {}
        for source, waiting in self._waits.items():
            age_s = max(0.0, self._clock() - moment(waiting.oldest_at).timestamp()) if waiting.rows and waiting.oldest_at else None
            more = looked[source]["more"] if source in looked else True
            part = {
                "rows": waiting.rows,
                "bytes": waiting.bytes,
                "files": 0 if parts.get("outside") else None,
                "oldest_s": age_s,
                "more": more,
            }
            parts[f"channel {source}"] = part
        return _sum(parts)

    def _under_way(self, figure: str) -> int:
        """The amount that the current Batch takes; of a channel its share of the backlog, from the record batches that the reader has
        counted."""
        taken = self._amount(self._streams)[figure]
        for source, waiting in self._waits.items():
            seen, streams = self._looked.get(source, {}), self._streams.get(source, ())
            packs = _finest(seen)
            if packs is not None and seen[packs] and figure in ("rows", "bytes"):
                share = min(1.0, _amount({source: streams})[packs] / seen[packs])
                taken += round((waiting.rows if figure == "rows" else waiting.bytes) * share)
        return taken

    def _amount(self, streams: Mapping[str, Sequence[SourceStream]]) -> dict[str, int]:
        """The amount of data in the streams of sources outside of the flow."""
        return _amount({source: each for source, each in streams.items() if source not in self._channels})

    def _level_in(self, state: str, backlog: Mapping[str, Any], now: float) -> float | None:
        """Estimated seconds until the backlog is empty, infinity for never; None if the current Batch takes all there is. A query that has
        ended keeps its last estimate."""
        figure = _finest(backlog)
        if state in ("waiting", "finished") or figure is None or backlog[figure] <= self._under_way(figure):
            self._catch_up.forget()
            self._catch_up_s = None
        elif state in ("running", "stopping"):
            self._catch_up_s = self._catch_up.seconds(now, backlog[figure])
        return self._catch_up_s

    def _left(self, backlog: Mapping[str, Any], share: float) -> tuple[float | None, float | None]:
        """(share that is left, share that is done), by the most exact figure that the sources give; None if the end is not known.

        `share` is the progress of the current Batch, which counts as backlog until it is committed.
        """
        if backlog.get("more", True):
            return None, None
        for figure in ("rows", "bytes", "files"):
            waits = backlog.get(figure)
            total = (waits or 0) + self._done[figure] + (self._done_rows if figure == "rows" else 0)
            if waits is not None and total:
                # until it is committed, the current Batch is never all the work that is left
                left = max(_LEAST_LEFT if self._streams else 0.0, max(0.0, waits - share * self._under_way(figure)) / total)
                return left, 1.0 - left
        return None, None


def _amount(streams: Mapping[str, Sequence[SourceStream]]) -> dict[str, int]:
    several = [stream for each in streams.values() for stream in each]
    return {
        "files": sum(stream.files for stream in several),
        "bytes": sum(stream.bytes for stream in several),
        "rows": sum(stream.rows or 0 for stream in several),
    }


def _finest(backlog: Mapping[str, Any]) -> str | None:
    """The most exact figure of the backlog; None if none is known."""
    return next((figure for figure in ("rows", "bytes") if backlog.get(figure) is not None), None)


def _sum(backlogs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    summed: dict[str, Any] = {"more": any(backlog["more"] for backlog in backlogs.values())} if backlogs else {}
    for figure in ("rows", "files", "bytes"):
        known = [backlog[figure] for backlog in backlogs.values()]
        summed[figure] = sum(known) if known and None not in known else None
    ages = [backlog["oldest_s"] for backlog in backlogs.values() if backlog["oldest_s"] is not None]
    summed["oldest_s"] = max(ages, default=None)
    return summed


def _slowest_of(seconds: Mapping[str, float]) -> tuple[str, float] | None:
    """The node that took most time, and its share of the total."""
    total = sum(seconds.values())
    if not total:
        return None
    node = max(seconds, key=lambda each: seconds[each])
    return node, seconds[node] / total

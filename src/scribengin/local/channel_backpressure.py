"""Back-pressure control: the backlog and rates of each channel, and how they limit the query that writes it.

The backlog is that of the acknowledgements (`state.channel_acks`, read by `local.backlog_view`), which `status` shows: rows of earlier
lineages of the upstream query are included. Here the figures are only evaluated; no file is read.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scribengin.core.units import show_bytes, show_duration
from scribengin.local.backlog_view import LOOK_S, ChannelLevel
from scribengin.local.contract import GateView
from scribengin.spark.commit import BatchAdmission
from scribengin.spec.model import Depth
from scribengin.state.channel_checks import ChannelBacklog
from scribengin.state.decisions import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.contract import BatchLimits, SourceStream
    from scribengin.plan.channels import PlannedChannel
    from scribengin.spark.commit import CommittedBatch


_RATE_S = 10.0
_BYTES_A_ROW = 200
"""an estimate"""
_FULL = 0.95
"""the greatest reduction of the upstream's rate, as a share, before it pauses"""


@dataclass
class ChannelThrottle:
    """One channel, which query `query` writes. Thread-safe."""

    channel: PlannedChannel
    query: str
    level: Callable[[], ChannelLevel]
    """returns the fill level as it was read last"""
    now: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    """seconds since 1970, to compare with the times of decisions"""
    _put: deque[tuple[str, int, int, int]] = field(default_factory=deque)
    """(lineage, Batch, rows, bytes) that the upstream has written and that the newest level does not include"""
    _moved: deque[tuple[float, str, int, int]] = field(default_factory=deque)
    """(time, lineage, rows ever written, rows in the backlog)"""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    paused: bool = False
    """the upstream waits until the channel holds less than `low_water`"""

    def put(self, lineage: str, batch: int, rows: int, size: int) -> None:
        """Record a committed Batch of the upstream in this process: its rows and bytes count before the channel is read again."""
        with self._lock:
            self._put.append((lineage, batch, rows, size))

    def view(self) -> GateView:
        """The present view of the channel."""
        with self._lock:
            return self._looked()

    def _looked(self) -> GateView:
        now_s, level = self.now(), self._level()
        there = level.waiting
        if self._moved and (self._moved[-1][1] != level.lineage or self._moved[-1][2] > level.put_rows):
            self._moved.clear()  # the count has started over
        self._moved.append((now_s, level.lineage, level.put_rows, there.rows))
        while len(self._moved) > 2 and self._moved[0][0] < now_s - _RATE_S:
            self._moved.popleft()
        first_s, _, first_put, first_there = self._moved[0]
        span_s = max(now_s - first_s, 0.001) if len(self._moved) > 2 else float("inf")
        came = level.put_rows - first_put
        age_s = self.clock() - moment(there.oldest_at).timestamp() if there.rows and there.oldest_at else 0.0
        return GateView(
            self.channel.id,
            " and ".join(self.channel.names),
            self.query,
            self.channel.feeding,
            self.channel.reading,
            there.rows,
            there.bytes,
            max(0.0, age_s),  # clocks of several hosts may differ
            came / span_s,
            max(0, came + first_there - there.rows) / span_s,
            paused=self.paused,
        )

    def full_text(self) -> str:
        """The fill of the channel as a text, if it has reached its capacity; otherwise empty."""
        view, capacity = self.view(), self.channel.edge.capacity or Depth()
        figures = ((view.rows, capacity.rows), (view.bytes, capacity.bytes), (view.age_s, capacity.age_s))
        return f"full: {depth_text(view)}" if any(most is not None and there >= most for there, most in figures) else ""

    def _level(self) -> ChannelLevel:
        level = self.level()
        while self._put and (self._put[0][0] != level.lineage or self._put[0][1] <= level.decided):
            self._put.popleft()
        newer = list(self._put)
        rows = sum(rows for _, _, rows, _ in newer)
        since = ChannelBacklog(rows, sum(size for *_, size in newer), len(newer), level.waiting.oldest_at)
        return replace(level, waiting=level.waiting + since, put_rows=level.put_rows + rows)


@dataclass
class QueryBackPressure:
    """Back-pressure on one query: from the depth of its channels and the rate limits of its edges. Used by the query's thread."""

    gates: Sequence[ChannelThrottle]
    limits: Mapping[str, BatchLimits]
    """source → the most that a Batch takes from it"""
    now: Callable[[], float] = time.monotonic
    _begun_s: float = 0.0
    _batch_s: float = 0.0
    _ready_s: float = 0.0
    """the time from which the rates allow the next Batch"""
    _given: dict[str, tuple[int, int]] = field(default_factory=dict)
    """channel → rows and bytes that a Batch of full size writes to it"""

    def begun(self) -> None:
        """Record the start of a Batch."""
        self._begun_s = self.now()

    def committed(self, batch: CommittedBatch) -> None:
        """Record that the Batch is committed."""
        now_s = self.now()
        self._batch_s = now_s - self._begun_s
        due_s = 0.0
        share = max(self._share_of(batch.streams), 1e-6)
        for gate in self.gates:
            receipts = [receipt for receipt in batch.decision.receipts if receipt.sink == gate.channel.id]
            rows, size = sum(receipt.rows for receipt in receipts), sum(receipt.bytes for receipt in receipts)
            self._given[gate.channel.id] = (round(rows / share), round(size / share))
            if gate.channel.edge.durability != "best_effort":  # such an edge may have dropped the Batch
                gate.put(batch.decision.batch.lineage, batch.decision.batch.number, rows, size)
            limit, pack = gate.channel.edge.limit, gate.channel.edge.pack
            if pack is not None and rows < (pack.rows or 0):
                due_s = max(due_s, pack.linger_s or 0.0)  # a larger Batch fills its record batches
            if limit is not None:
                due_s = max(due_s, rows / limit.rows if limit.rows else 0.0, size / limit.bytes if limit.bytes else 0.0)
        self._ready_s = max(self._ready_s, self._begun_s) + due_s

    def _share_of(self, streams: Mapping[str, Sequence[SourceStream]]) -> float:
        """The share of its limits that a Batch has used, 0 to 1: that of the source with the largest share."""
        shares = [0.0]
        for source, limits in self.limits.items():
            taken = streams.get(source, ())
            shares += [sum(stream.bytes for stream in taken) / limits.max_bytes] if limits.max_bytes else []
            shares += [sum(stream.rows or 0 for stream in taken) / limits.max_rows] if limits.max_rows else []
        return min(1.0, max(shares))

    def admit(self) -> BatchAdmission:
        """Decide whether the next Batch may begin now, or how long it must wait."""
        verdicts = [self._admitted(gate) for gate in self.gates if gate.channel.edge.durability != "best_effort"]
        verdicts.append(self._paced())
        paused = [verdict for verdict in verdicts if verdict.paused]
        if paused:
            return paused[0]
        slowest = max(verdicts, key=lambda verdict: verdict.wait_s)
        return BatchAdmission(
            slowest.wait_s, min(verdict.share for verdict in verdicts), "; ".join(filter(None, (v.why for v in verdicts)))
        )

    def _paced(self) -> BatchAdmission:
        share, why = 1.0, ""
        for gate in self.gates:
            limit, (rows, size) = gate.channel.edge.limit, self._given.get(gate.channel.id, (0, 0))
            # a Batch writes what the limit allows in about a second: a large one would arrive all at once, followed by a long pause
            for most, there in ((limit and limit.rows, rows), (limit and limit.bytes, size)):
                if most and there > most:
                    share = min(share, most / there)
        wait_s = self._ready_s - self.now()
        if wait_s > 0:
            why = "the rate limit of its edges is reached"
        return BatchAdmission(max(0.0, wait_s), share, why)

    def _admitted(self, gate: ChannelThrottle) -> BatchAdmission:
        edge, view = gate.channel.edge, gate.view()
        high, low, capacity = edge.high_water or Depth(), edge.low_water or Depth(), edge.capacity or Depth()
        figures = [
            (view.rows, high.rows, capacity.rows, low.rows),
            (view.bytes, high.bytes, capacity.bytes, low.bytes),
            (view.age_s, high.age_s, capacity.age_s, low.age_s),
        ]
        if gate.paused:
            gate.paused = any(most is not None and there > (most if low_ is None else low_) for there, most, _, low_ in figures)
        elif any(full is not None and there >= full for there, _, full, _ in figures):
            gate.paused = True
        name = " and ".join(gate.channel.names)
        if gate.paused:
            return BatchAdmission(
                LOOK_S, why=f"{name} is full: {depth_text(view)}; resumes below {_shown(low)}{_when(view, low)}", paused=True
            )
        room = self._room(gate, view, capacity)
        if room <= 0.0:
            gate.paused = True
            return self._admitted(gate)
        over = max((_over(there, most, full) for there, most, full, _ in figures), default=0.0)
        if over <= 0.0:
            return BatchAdmission(share=room)
        over = min(over, _FULL)
        since_s = self.now() - self._begun_s - self._batch_s
        wait_s = self._batch_s * over / (1.0 - over) - since_s
        why = f"throttled to {1.0 - over:.0%}: {depth_text(view)} in {name} (throttled from {_shown(high)}, paused at {_shown(capacity)})"
        return BatchAdmission(max(0.0, wait_s), room, why)

    def _room(self, gate: ChannelThrottle, view: GateView, capacity: Depth) -> float:
        """The share of a full Batch that the channel has room for."""
        rows, size = self._given.get(gate.channel.id) or self._guessed()
        share = 1.0
        for there, most, comes in ((view.rows, capacity.rows, rows), (view.bytes, capacity.bytes, size)):
            if most is not None and comes:
                share = min(share, (most - there) / comes)
        return share

    def _guessed(self) -> tuple[int, int]:
        """An estimate of (rows, bytes) that a full Batch writes to a channel, before the first: all that it reads."""
        rows = size = 0
        for limits in self.limits.values():
            rows += limits.max_rows or (limits.max_bytes or 0) // _BYTES_A_ROW
            size += limits.max_bytes or (limits.max_rows or 0) * _BYTES_A_ROW
        return rows, size


def _over(there: float, most: float | None, full: float | None) -> float:
    """The position of a figure between `high_water` (0) and the capacity (1 or more)."""
    if most is None or there <= most:
        return 0.0
    return (there - most) / max((2 * most if full is None else full) - most, 1e-9)


def depth_text(view: GateView) -> str:
    """A text such as `12,000 rows wait, 3.4 MiB, the oldest for 2.1s`."""
    return f"{view.rows:,} rows wait, {show_bytes(view.bytes)}, the oldest for {show_duration(view.age_s)}"


def _shown(depth: Depth) -> str:
    parts = [f"{depth.rows:,} rows"] if depth.rows is not None else []
    parts += [show_bytes(depth.bytes)] if depth.bytes is not None else []
    parts += [show_duration(depth.age_s)] if depth.age_s is not None else []
    return " or ".join(parts) or "nothing"


def _when(view: GateView, low: Depth) -> str:
    """Text with the estimated time until the upstream resumes."""
    if view.out_per_s < 1:
        return f"; nothing reads it now ({view.reading})"
    if low.rows is None:
        return f", {view.reading} reads {view.out_per_s:,.0f} rows/s"
    return f", in about {show_duration(max(0, view.rows - low.rows) / view.out_per_s)} as {view.reading} reads {view.out_per_s:,.0f} rows/s"

"""Gates: how much waits in each channel, how fast it comes and goes, and what that means for the Query that feeds it.

All of it comes from decisions, so that it does not matter in which process the other end runs.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.connectors.channel.outbox import read_left
from scribengin.core.errors import Refused
from scribengin.core.units import show_bytes, show_duration
from scribengin.local.contract import GateView
from scribengin.plan.split import source_id
from scribengin.spark.hold import Admission
from scribengin.spec.model import Depth
from scribengin.state.folder import StateFolder
from scribengin.state.ledger import Ledger
from scribengin.state.lineage import read_lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.contract import Limits, SourceStream
    from scribengin.local.prepare import PreparedFlow
    from scribengin.plan.channels import PlannedChannel
    from scribengin.spark.commit import Committed
    from scribengin.state.folder import QueryFolder

_LOOK_S = 0.25
"""how long a look at the decisions is believed"""
_RATE_S = 10.0
_BYTES_A_ROW = 200
"""a guess"""
_FULL = 0.95
"""what the feeder's rate falls by at most, before it pauses"""


@dataclass
class Gate:
    """One channel. Thread-safe enough: looks may run twice at once, and give the same."""

    channel: PlannedChannel
    query: str
    feeder: Ledger
    readers: Sequence[tuple[Ledger, str]]
    """the Queries that read it, each with the name of its source there"""
    dropped: Callable[[], int] = lambda: 0
    """rows that the feeder has put out and the channel never got (`best_effort`)"""
    now: Callable[[], float] = time.monotonic
    _looked_s: float = field(default=-1e9)
    _written: deque[tuple[float, int]] = field(default_factory=deque)
    """(when, rows ever written by then), as far as not all of them are read"""
    _moved: deque[tuple[float, int, int]] = field(default_factory=deque)
    """(when, rows ever written, rows ever read)"""
    _view: GateView | None = None
    paused: bool = False
    """the feeder waits until less is there than `low_water`"""

    @staticmethod
    def of(channel: PlannedChannel, feeder: QueryFolder, readers: Sequence[tuple[QueryFolder, str]]) -> Gate:
        """Over the state of both ends, which need not be there yet."""

        def dropped() -> int:
            if channel.edge.durability != "best_effort":
                return 0
            with suppress(Refused):  # the feeder's process is taking it back to an earlier position
                lineage = read_lineage(feeder)
                return 0 if lineage is None else read_left(feeder.work(channel.id), lineage.id).dropped_rows
            return 0

        return Gate(channel, feeder.name, Ledger(feeder), [(Ledger(folder), source) for folder, source in readers], dropped)

    def look(self) -> GateView:
        """What is there now."""
        now_s = self.now()
        if self._view is None or now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._view = self._looked(now_s)
        return self._view

    def full_text(self) -> str:
        """Why there is no room now; empty where there is."""
        view, capacity = self.look(), self.channel.edge.capacity or Depth()
        figures = ((view.rows, capacity.rows), (view.bytes, capacity.bytes), (view.age_s, capacity.age_s))
        return f"full: {_depth(view)}" if any(most is not None and there >= most for there, most in figures) else ""

    def _looked(self, now_s: float) -> GateView:
        totals = self.feeder.read()
        sink = totals.sinks.get(self.channel.id)
        put_out, put_out_bytes = (0, 0) if sink is None else (sink.rows, sink.bytes)
        written = put_out - self.dropped()
        read = min((self._read_by(ledger, source) for ledger, source in self.readers), default=0)
        read = min(read, written)
        if not self._written or self._written[-1][1] < written:
            self._written.append((now_s, written))
        while len(self._written) > 1 and self._written[0][1] <= read:
            self._written.popleft()
        self._moved.append((now_s, written, read))
        while len(self._moved) > 2 and self._moved[0][0] < now_s - _RATE_S:
            self._moved.popleft()
        first_s, first_written, first_read = self._moved[0]
        span_s = max(now_s - first_s, 0.001)
        waiting = written - read
        return GateView(
            self.channel.id,
            " and ".join(self.channel.names),
            self.query,
            self.channel.feeding,
            self.channel.reading,
            waiting,
            round(waiting * put_out_bytes / put_out) if put_out else 0,
            now_s - self._written[0][0] if waiting else 0.0,
            (written - first_written) / span_s if len(self._moved) > 2 else 0.0,
            (read - first_read) / span_s if len(self._moved) > 2 else 0.0,
            paused=self.paused,
        )

    def _read_by(self, ledger: Ledger, source: str) -> int:
        counts = ledger.read().nodes.get(source)
        return 0 if counts is None else counts.rows_in


@dataclass
class Pressure:
    """What holds back one feeding Query: the depth of its channels, and the rates that its edges allow. For the Query's thread."""

    gates: Sequence[Gate]
    limits: Mapping[str, Limits]
    """source → what a Batch takes of it at most"""
    now: Callable[[], float] = time.monotonic
    _begun_s: float = 0.0
    _batch_s: float = 0.0
    _ready_s: float = 0.0
    """when the rates allow the next Batch"""
    _given: dict[str, tuple[int, int]] = field(default_factory=dict)
    """channel → rows and bytes that a Batch of full size puts into it"""

    def begun(self) -> None:
        """A Batch begins."""
        self._begun_s = self.now()

    def committed(self, batch: Committed) -> None:
        """It is through."""
        now_s = self.now()
        self._batch_s = now_s - self._begun_s
        due_s = 0.0
        share = max(self._share_of(batch.streams), 1e-6)
        for gate in self.gates:
            receipts = [receipt for receipt in batch.decision.receipts if receipt.sink == gate.channel.id]
            rows, size = sum(receipt.rows for receipt in receipts), sum(receipt.bytes for receipt in receipts)
            self._given[gate.channel.id] = (round(rows / share), round(size / share))
            limit, pack = gate.channel.edge.limit, gate.channel.edge.pack
            if pack is not None and rows < (pack.rows or 0):
                due_s = max(due_s, pack.linger_s or 0.0)  # a larger Batch fills its packs
            if limit is not None:
                due_s = max(due_s, rows / limit.rows if limit.rows else 0.0, size / limit.bytes if limit.bytes else 0.0)
        self._ready_s = max(self._ready_s, self._begun_s) + due_s

    def _share_of(self, streams: Mapping[str, Sequence[SourceStream]]) -> float:
        """How much of what its limits allow a Batch has taken, 0 to 1: of the source that took most of its own."""
        shares = [0.0]
        for source, limits in self.limits.items():
            taken = streams.get(source, ())
            shares += [sum(stream.bytes for stream in taken) / limits.max_bytes] if limits.max_bytes else []
            shares += [sum(stream.rows or 0 for stream in taken) / limits.max_rows] if limits.max_rows else []
        return min(1.0, max(shares))

    def admit(self) -> Admission:
        """Whether the next Batch may begin now."""
        verdicts = [self._admitted(gate) for gate in self.gates if gate.channel.edge.durability != "best_effort"]
        verdicts.append(self._paced())
        paused = [verdict for verdict in verdicts if verdict.paused]
        if paused:
            return paused[0]
        slowest = max(verdicts, key=lambda verdict: verdict.wait_s)
        return Admission(slowest.wait_s, min(verdict.share for verdict in verdicts), "; ".join(filter(None, (v.why for v in verdicts))))

    def _paced(self) -> Admission:
        share, why = 1.0, ""
        for gate in self.gates:
            limit, (rows, size) = gate.channel.edge.limit, self._given.get(gate.channel.id, (0, 0))
            # what goes over in about a second: a large Batch would come all at once, and then nothing for long
            for most, there in ((limit and limit.rows, rows), (limit and limit.bytes, size)):
                if most and there > most:
                    share = min(share, most / there)
        wait_s = self._ready_s - self.now()
        if wait_s > 0:
            why = "its edges let no more through now"
        return Admission(max(0.0, wait_s), share, why)

    def _admitted(self, gate: Gate) -> Admission:
        edge, view = gate.channel.edge, gate.look()
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
            return Admission(_LOOK_S, why=f"{name} is full: {_depth(view)}; goes on below {_shown(low)}{_when(view, low)}", paused=True)
        room = self._room(gate, view, capacity)
        if room <= 0.0:
            gate.paused = True
            return self._admitted(gate)
        over = max((_over(there, most, full) for there, most, full, _ in figures), default=0.0)
        if over <= 0.0:
            return Admission(share=room)
        over = min(over, _FULL)
        since_s = self.now() - self._begun_s - self._batch_s
        wait_s = self._batch_s * over / (1.0 - over) - since_s
        why = f"slowed to {1.0 - over:.0%}: {_depth(view)} in {name} (slows from {_shown(high)}, stops at {_shown(capacity)})"
        return Admission(max(0.0, wait_s), room, why)

    def _room(self, gate: Gate, view: GateView, capacity: Depth) -> float:
        """Which share of a full Batch the channel has room for."""
        rows, size = self._given.get(gate.channel.id) or self._guessed()
        share = 1.0
        for there, most, comes in ((view.rows, capacity.rows, rows), (view.bytes, capacity.bytes, size)):
            if most is not None and comes:
                share = min(share, (most - there) / comes)
        return share

    def _guessed(self) -> tuple[int, int]:
        """What a full Batch puts into a channel, before there was one: all that it reads."""
        rows = size = 0
        for limits in self.limits.values():
            rows += limits.max_rows or (limits.max_bytes or 0) // _BYTES_A_ROW
            size += limits.max_bytes or (limits.max_rows or 0) * _BYTES_A_ROW
        return rows, size


def open_gates(prepared: PreparedFlow) -> dict[str, Gate]:
    """Channel → its gate, over the state of both ends."""
    gates = {}
    for channel in prepared.plan.channels:
        ends = {name: StateFolder(prepared.root, prepared.name, name) for name in (channel.feeding, channel.reading)}
        feeder = ends[channel.feeding].query(prepared.plan.feeder(channel).name)
        readers = [(ends[channel.reading].query(query.name), source_id(channel)) for query in prepared.plan.readers(channel)]
        gates[channel.id] = Gate.of(channel, feeder, readers)
    return gates


def _over(there: float, most: float | None, full: float | None) -> float:
    """How far on the way from high water to the limit, 0 to 1."""
    if most is None or there <= most:
        return 0.0
    return (there - most) / max((2 * most if full is None else full) - most, 1e-9)


def _depth(view: GateView) -> str:
    return f"{view.rows:,} rows wait, {show_bytes(view.bytes)}, the oldest for {show_duration(view.age_s)}"


def _shown(depth: Depth) -> str:
    parts = [f"{depth.rows:,} rows"] if depth.rows is not None else []
    parts += [show_bytes(depth.bytes)] if depth.bytes is not None else []
    parts += [show_duration(depth.age_s)] if depth.age_s is not None else []
    return " or ".join(parts) or "nothing"


def _when(view: GateView, low: Depth) -> str:
    """When the feeder goes on, as things go."""
    if view.out_per_s < 1:
        return f"; nothing reads it now ({view.reading})"
    if low.rows is None:
        return f", {view.reading} reads {view.out_per_s:,.0f} rows/s"
    return f", in about {show_duration(max(0, view.rows - low.rows) / view.out_per_s)} as {view.reading} reads {view.out_per_s:,.0f} rows/s"

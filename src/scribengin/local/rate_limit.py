"""Rate limits that can be changed while a flow runs: rows and bytes a second of the flow, of a source, of an edge.

The amount that a Batch took determines when the next one may begin. The amount that a full Batch takes determines the share that the next
one may take, so that a Batch contains about as much as one second allows. The limits that the flow file sets for its edges apply too: the
stricter one counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.local.backlog_view import LOOK_S
from scribengin.plan.tier_flows import CHANNEL
from scribengin.spark.commit import BatchAdmission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.connectors.contract import BatchLimits
    from scribengin.plan.model import QueryPlan
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.spark.commit import BackPressure, CommittedBatch


_BYTES_A_ROW = 200
"""an estimate, before the first Batch"""
_LEAST_SHARE = 1e-6


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A rate limit in rows and bytes a second; None: unlimited."""

    rows_per_s: float | None = None
    bytes_per_s: float | None = None

    def due_s(self, rows: float, size: float) -> float:
        """The seconds that so many rows and bytes take at this rate."""
        by_rows = rows / self.rows_per_s if self.rows_per_s else 0.0
        return max(by_rows, size / self.bytes_per_s if self.bytes_per_s else 0.0)

    def __bool__(self) -> bool:
        return bool(self.rows_per_s or self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class UpstreamShare:
    """The share of its time, 0 to 1, for which a flow may work because of the flows that read its sink; at 0 it waits. `why` is
    for people."""

    share: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The limits of a flow.

    `flow` is for all that it reads from outside, in equal parts for the queries that do so. `sources` is for each query that reads the
    source. `edges` is by channel, or by the name of an edge in it. `share` is like `flow`: what the quota with the name `quota` allows the
    flow.
    """

    flow: RateLimit = field(default_factory=RateLimit)
    sources: Mapping[str, RateLimit] = field(default_factory=dict)
    edges: Mapping[str, RateLimit] = field(default_factory=dict)
    share: RateLimit = field(default_factory=RateLimit)
    quota: str = ""
    held: Mapping[str, UpstreamShare] = field(default_factory=dict)
    """sink → what its readers allow, if they restrict it"""


@dataclass
class Paced:
    """Applies the present rate limits, and the back-pressure of `inner`, to one query. Used by the query's thread."""

    query: QueryPlan
    plan: FlowPlan
    tier: str
    batch: Mapping[str, BatchLimits]
    """source → the most that a Batch takes from it"""
    limits: Callable[[], FlowLimits]
    inner: BackPressure | None = None
    now: Callable[[], float] = time.monotonic
    _begun_s: float = float("-inf")
    _batch_s: float = 0.0
    _given: float = 1.0
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """source or sink → rows and bytes of the last Batch"""
    _full: dict[str, tuple[float, float]] = field(default_factory=dict)
    """the same for a Batch that takes all that its limits allow"""

    def __post_init__(self) -> None:
        tier = self.plan.tier(self.tier)
        self._outside = [source for source in self.query.sources if tier.flow.sources[source].type != CHANNEL]
        readers = [
            query
            for each in self.plan.tiers
            for query in each.queries
            if any(each.flow.sources[source].type != CHANNEL for source in query.sources)
        ]
        self._part = 1.0 / max(1, len(readers))
        self._names = {channel.id: {channel.id, *channel.names} for channel in self.plan.channels if channel.id in self.query.sinks}

    def begun(self) -> None:
        """Record the start of a Batch."""
        self._begun_s = self.now()
        if self.inner is not None:
            self.inner.begun()

    def committed(self, batch: CommittedBatch) -> None:
        """Record that the Batch is committed."""
        if self.inner is not None:
            self.inner.committed(batch)
        counts = batch.decision.counts
        self._batch_s = self.now() - self._begun_s
        self._last = {}
        for source in self.query.sources:
            rows = counts[source].rows_in if source in counts else 0
            self._last[source] = (rows, sum(stream.bytes for stream in batch.streams.get(source, ())))
        for channel in self._names:
            receipts = [receipt for receipt in batch.decision.receipts if receipt.sink == channel]
            self._last[channel] = (sum(receipt.rows for receipt in receipts), sum(receipt.bytes for receipt in receipts))
        share = max(self._taken(), _LEAST_SHARE)
        for name, (rows, size) in self._last.items():
            if rows or size:
                self._full[name] = (rows / share, size / share)

    def admit(self) -> BatchAdmission:
        """Decide whether the next Batch may begin now, or how long it must wait."""
        wait_s, share, why = 0.0, 1.0, ""
        for what, pace, names in self._limits_in_force():
            last = [self._last.get(name, (0, 0)) for name in names]
            due_s = pace.due_s(sum(rows for rows, _ in last), sum(size for _, size in last))
            wait_s = max(wait_s, self._begun_s + due_s - self.now())
            full = [self._full.get(name) or self._guessed(name) for name in names]
            second = pace.due_s(sum(rows for rows, _ in full), sum(size for _, size in full))
            share = min(share, 1.0 / second if second > 1.0 else 1.0)
            why = why or f"{what} is limited to {shown(pace)}"
        held = min((each for sink, each in self.limits().held.items() if sink in self.query.sinks), key=_share_of, default=None)
        if held is not None and held.share <= 0.0:
            return BatchAdmission(LOOK_S, why=held.why, paused=True)
        if held is not None:  # it waits between two Batches, so that it works only for its share of the time
            rest_s = self._begun_s + self._batch_s / held.share - self.now()
            if rest_s > wait_s:
                wait_s, why = rest_s, held.why
        wait_s = max(0.0, wait_s)
        inner = BatchAdmission() if self.inner is None else self.inner.admit()
        said = "; ".join(filter(None, (inner.why, why if wait_s else "")))
        return BatchAdmission(max(wait_s, inner.wait_s), min(share, inner.share), said, inner.paused)

    def _limits_in_force(self) -> Iterator[tuple[str, RateLimit, list[str]]]:
        """Yields (what is limited, the limit, the sources or channels that count for it) for all limits that apply to this query."""
        now = self.limits()
        for what, whole in (("the flow", now.flow), (f"the flow (quota {now.quota})", now.share)):
            if whole and self._outside:
                rows, size = whole.rows_per_s, whole.bytes_per_s
                part = RateLimit(rows * self._part if rows else None, size * self._part if size else None)
                yield what, part, self._outside
        for source in self._outside:
            if now.sources.get(source):
                yield f"source {source}", now.sources[source], [source]
        for channel, names in self._names.items():
            for name in names & now.edges.keys():
                if now.edges[name]:
                    yield f"edge {name}", now.edges[name], [channel]

    def _taken(self) -> float:
        """The share of its limits that the last Batch has used, 0 to 1: that of the source with the largest share."""
        shares = [0.0]
        for source, most in self.batch.items():
            rows, size = self._last.get(source, (0, 0))
            shares += [size / most.max_bytes] if most.max_bytes else []
            shares += [rows / most.max_rows] if most.max_rows else []
        return min(1.0, max(shares))

    def _guessed(self, name: str) -> tuple[float, float]:
        """An estimate of the rows and bytes that a full Batch reads from a source, before the first one."""
        most = self.batch.get(name)
        if most is None:
            return 0.0, 0.0
        rows = most.max_rows or (most.max_bytes or 0) / _BYTES_A_ROW
        return rows, most.max_bytes or rows * _BYTES_A_ROW


def _share_of(held: UpstreamShare) -> float:
    return held.share


def shown(pace: RateLimit) -> str:
    """The rate limit as text."""
    parts = [f"{pace.rows_per_s:,g} rows/s"] if pace.rows_per_s else []
    parts += [f"{pace.bytes_per_s:,.0f} bytes/s"] if pace.bytes_per_s else []
    return " and ".join(parts) or "no limit"

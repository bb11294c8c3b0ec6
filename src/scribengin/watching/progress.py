"""What a worker says of its tier to the leading master: the views that displays draw, with who says it.

It goes over HTTP as JSON, about once a second; keys that are not known are passed over, so that workers and masters of neighbouring
versions understand each other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.errors import Refused
from scribengin.local.contract import GateView, QueryView  # noqa: TC001  msgspec looks at the annotations

if TYPE_CHECKING:
    from scribengin.local.contract import RunView

FORMAT = 1
_KEPT = 10
MOST_BYTES = 256 * 1024
"""of what a worker says at once"""
PACE = "Scribengin-Pace"
"""the header of the answer: seconds that the worker is to wait before it says more"""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Query of the tier has failed; it starts again by itself unless `permanent`."""

    at: float
    """seconds since 1970, by the worker's clock"""
    query: str
    cause: str
    """down to the user's line, where it was a user's code"""
    permanent: bool = False


class TierProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tier as its worker sees it. Counts are of the worker's process."""

    flow: str
    tier: str
    run: int
    """which start of the tier's worker"""
    version: int
    at: float
    """when it was said, in seconds since 1970, by the worker's clock"""
    phase: str
    seconds: float = 0.0
    """since the tier was begun"""
    queries: tuple[QueryView, ...] = ()
    gates: tuple[GateView, ...] = ()
    """the channels that the tier feeds"""
    failures: tuple[Failure, ...] = ()
    """of this process, the last ten"""
    format: int = FORMAT

    @property
    def worker(self) -> str:
        """Its name."""
        return f"{self.flow}.{self.tier}-{self.run}"


def encode(progress: TierProgress) -> bytes:
    """As it goes over the wire."""
    return msgspec.json.encode(progress)


def decode(data: bytes) -> TierProgress:
    """What `encode` wrote, in this version or another. Raises Refused with what does not fit."""
    try:
        return msgspec.json.decode(data, type=TierProgress)
    except msgspec.DecodeError as error:
        raise Refused(
            f"this is no progress of a tier: {error}", remedy="run workers and masters of one version", code="bad-progress"
        ) from error


class Teller:
    """Makes of RunViews of a tier what its worker says of it. For one thread at a time."""

    def __init__(self, flow: str, tier: str, run: int, version: int) -> None:
        self.version = version
        """that the process has loaded; it may go on with the next one"""
        self._who = {"flow": flow, "tier": tier, "run": run}
        self._failures: deque[Failure] = deque(maxlen=_KEPT)
        self._ill: dict[str, tuple[int, str]] = {}
        """Query → (restarts, state) at its newest failure"""

    def note(self, view: RunView, at: float) -> None:
        """Remember what failed: of each view, also of those that are not told."""
        for query in view.queries:
            now = (query.restarts, query.state)
            if query.state in ("recovering", "failed") and self._ill.get(query.name) != now:
                self._ill[query.name] = now
                failure = Failure(at=at, query=query.name, cause=query.message, permanent=query.state == "failed")
                self._failures.append(failure)

    def tell(self, view: RunView, at: float, age_s: float = 0.0) -> TierProgress:
        """What the tier's worker says at `at`, of a view that is so old."""
        rests = view.phase == "ended"
        return TierProgress(
            **self._who,  # type: ignore[arg-type]
            version=self.version,
            at=at,
            phase=view.phase,
            seconds=round(view.seconds, 3),
            queries=tuple(_rested(query, age_s) for query in view.queries) if rests else view.queries,
            gates=tuple(_still(gate, age_s) if rests else gate for gate in view.gates if gate.feeding == self._who["tier"]),
            failures=tuple(self._failures),
        )


def _rested(query: QueryView, age_s: float) -> QueryView:
    """Of a run that has ended, as of a flow that is paused: nothing moves, and what waited waits on."""
    query = aged(query, age_s)
    sources = {source: replace(end, rows_per_s=0.0) for source, end in query.sources.items()}
    sinks = {sink: replace(end, rows_per_s=0.0) for sink, end in query.sinks.items()}
    rest = replace(query, rows_per_s=0.0, still_s=0.0, tasks=None, catch_up_s=None, falls_behind=False)
    return replace(rest, sources=sources, sinks=sinks)


def aged(query: QueryView, by_s: float) -> QueryView:
    """The Query so much later, where nothing was heard of it: its waiting records are older by that, and so is each look at a source."""
    sources = {
        source: replace(end, lag_s=_older(end.lag_s, by_s), looked_s=_older(end.looked_s, by_s)) for source, end in query.sources.items()
    }
    return replace(query, lag_s=_older(query.lag_s, by_s), sources=sources)


def _still(gate: GateView, age_s: float) -> GateView:
    return replace(gate, in_per_s=0.0, out_per_s=0.0, age_s=gate.age_s + age_s if gate.rows else 0.0)


def _older(seconds: float | None, by_s: float) -> float | None:
    return None if seconds is None else seconds + by_s


def is_news(before: TierProgress | None, now: TierProgress) -> bool:
    """Whether more than the passing of time tells the two apart."""
    return before is None or _moving(before) != _moving(now)


def _moving(progress: TierProgress) -> object:
    queries = [
        (query.name, query.state, query.batches, query.tasks, query.message, query.lag_rows, query.lag_bytes, round(query.rows_per_s))
        for query in progress.queries
    ]
    members = [(seen.member, seen.state) for query in progress.queries for each in query.members.values() for seen in each]
    gates = [(gate.id, gate.rows, gate.paused, round(gate.in_per_s), round(gate.out_per_s)) for gate in progress.gates]
    return progress.run, progress.phase, queries, gates, members, len(progress.failures)

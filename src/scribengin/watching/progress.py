"""A worker's report on its tier to the leading master: the views that displays show, and the worker's name. It is sent over HTTP as JSON,
about once a second. Unknown keys are ignored, so that workers and masters of different versions can work together."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.errors import Refused
from scribengin.local.contract import GateView, QueryView  # noqa: TC001  msgspec evaluates the annotations

if TYPE_CHECKING:
    from scribengin.local.contract import RunView

FORMAT = 1
_KEPT = 10
MOST_BYTES = 256 * 1024
"""limit of a report, in bytes"""
PACE = "Scribengin-Pace"
"""the header of the answer with the seconds that the worker should wait before its next report"""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure of a query. It restarts automatically unless the failure is `permanent`."""

    at: float
    """seconds since the epoch, by the worker's clock"""
    query: str
    cause: str
    """with the line of the user's code, if that is the cause"""
    permanent: bool = False


class TierProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's report on its tier. Counts are of the worker's process."""

    flow: str
    tier: str
    run: int
    """the number of the tier's worker"""
    version: int
    at: float
    """the time of the report, in seconds since the epoch, by the worker's clock"""
    phase: str
    seconds: float = 0.0
    """seconds since the tier started"""
    queries: tuple[QueryView, ...] = ()
    gates: tuple[GateView, ...] = ()
    """the channels that the tier writes"""
    failures: tuple[Failure, ...] = ()
    """the last ten failures in this process"""
    spark_page: str = ""
    """see `RunView.spark_page`"""
    format: int = FORMAT

    @property
    def worker(self) -> str:
        """The worker's name."""
        return f"{self.flow}.{self.tier}-{self.run}"


def encode(progress: TierProgress) -> bytes:
    """The report as JSON bytes."""
    return msgspec.json.encode(progress)


def decode(data: bytes) -> TierProgress:
    """Parse a report of this version or another one. Raises Refused if it is not valid."""
    try:
        return msgspec.json.decode(data, type=TierProgress)
    except msgspec.DecodeError as error:
        raise Refused(
            f"this is not a valid progress report of a tier: {error}",
            remedy="run workers and masters of the same version",
            code="bad-progress",
        ) from error


class ProgressBuilder:
    """Makes a worker's reports from views of its tier. Not thread-safe."""

    def __init__(self, flow: str, tier: str, run: int, version: int) -> None:
        self.version = version
        """the version that the process has loaded; it may change to the next one"""
        self._who = {"flow": flow, "tier": tier, "run": run}
        self._failures: deque[Failure] = deque(maxlen=_KEPT)
        self._ill: dict[str, tuple[int, str]] = {}
        """query → (restarts, state) at its newest failure"""

    def note(self, view: RunView, at: float) -> None:
        """Record the failures in a view. Called for each view, also for those that are not reported."""
        for query in view.queries:
            now = (query.restarts, query.state)
            if query.state in ("recovering", "failed") and self._ill.get(query.name) != now:
                self._ill[query.name] = now
                failure = Failure(at=at, query=query.name, cause=query.message, permanent=query.state == "failed")
                self._failures.append(failure)

    def build(self, view: RunView, at: float, age_s: float = 0.0) -> TierProgress:
        """The report on the tier.

        Args:
            view: the newest view.
            at: the time of the report, in seconds since the epoch.
            age_s: the age of the view in seconds.
        """
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
            spark_page="" if rests else view.spark_page,
        )


def _rested(query: QueryView, age_s: float) -> QueryView:
    """The query of a run that has ended, as in a paused flow: without rates, but with its backlog."""
    query = aged(query, age_s)
    sources = {source: replace(end, rows_per_s=0.0) for source, end in query.sources.items()}
    sinks = {sink: replace(end, rows_per_s=0.0) for sink, end in query.sinks.items()}
    rest = replace(query, rows_per_s=0.0, still_s=0.0, tasks=None, catch_up_s=None, falls_behind=False)
    return replace(rest, sources=sources, sinks=sinks)


def aged(query: QueryView, by_s: float) -> QueryView:
    """The query after that many seconds without a report: its waiting entries are older by that, and so is each check of a source."""
    sources = {
        source: replace(end, lag_s=_older(end.lag_s, by_s), looked_s=_older(end.looked_s, by_s)) for source, end in query.sources.items()
    }
    return replace(query, lag_s=_older(query.lag_s, by_s), sources=sources)


def _still(gate: GateView, age_s: float) -> GateView:
    return replace(gate, in_per_s=0.0, out_per_s=0.0, age_s=gate.age_s + age_s if gate.rows else 0.0)


def _older(seconds: float | None, by_s: float) -> float | None:
    return None if seconds is None else seconds + by_s


def is_news(before: TierProgress | None, now: TierProgress) -> bool:
    """True if the two reports differ in more than the passing of time."""
    return before is None or _moving(before) != _moving(now)


def _moving(progress: TierProgress) -> object:
    queries = [
        (query.name, query.state, query.batches, query.tasks, query.message, query.lag_rows, query.lag_bytes, round(query.rows_per_s))
        for query in progress.queries
    ]
    members = [(seen.member, seen.state) for query in progress.queries for each in query.members.values() for seen in each]
    gates = [(gate.id, gate.rows, gate.paused, round(gate.in_per_s), round(gate.out_per_s)) for gate in progress.gates]
    return progress.run, progress.phase, queries, gates, members, len(progress.failures)

"""A flow that is told of as a worker would, second by second, to a board whose clock the test turns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from harness.manual_clock import ManualClock
from scribengin.local.contract import EndView, GateView, QueryView, RunView
from scribengin.watching.progress import ProgressBuilder
from scribengin.watching.telemetry import Board


@dataclass
class Tier:
    """One tier with one Query; `moves` says what happens in a second."""

    board: Board
    clock: ManualClock
    flow: str = "tweets"
    tier: str = "main"
    run: int = 1
    query: QueryView = field(default_factory=lambda: QueryView("kept", "running"))
    gates: tuple[GateView, ...] = ()

    def __post_init__(self) -> None:
        self.builder = ProgressBuilder(self.flow, self.tier, self.run, 1)

    def moves(self, rows: int = 0, *, dead: int = 0, seconds: float = 1.0, **figures: Any) -> None:
        """Time goes on, a Batch of so many rows comes through (none: none), the worker tells it."""
        self.clock.advance(seconds=seconds)
        query = self.query
        counts = {"rows_in": query.rows_in + rows, "rows_out": query.rows_out + rows - dead, "dead": query.dead + dead}
        ends = {
            "sources": {"tweets": EndView(counts["rows_in"], rows / seconds, figures.get("lag_rows"), None, figures.get("lag_bytes"))},
            "sinks": {"kept": EndView(counts["rows_out"], (rows - dead) / seconds)},
        }
        batches = query.batches + (1 if rows else 0)
        self.query = replace(query, **counts, **ends, batches=batches, rows_per_s=rows / seconds, **figures)
        self.tells()

    def tells(self) -> None:
        """The worker says how it stands."""
        view = RunView(self.flow, "running", 1.0, (self.query,), gates=self.gates)
        self.builder.note(view, self.clock())
        self.board.take(self.builder.build(view, self.clock()))

    def starts_again(self) -> None:
        """Another process serves the tier; it counts from nothing."""
        self.run += 1
        self.query = QueryView("kept", "running")
        self.builder = ProgressBuilder(self.flow, self.tier, self.run, 1)
        self.clock.advance(seconds=1.0)
        self.tells()


def a_tier(flow: str = "tweets", tier: str = "main", board: Board | None = None, clock: ManualClock | None = None) -> Tier:
    """On a board of its own by default."""
    clock = clock or ManualClock()
    return Tier(board or Board(clock), clock, flow, tier)

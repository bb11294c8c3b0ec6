"""Progress on stderr while a flow runs: live on a terminal, plain lines elsewhere. What is shown is a RunView, nothing else."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

import click

from scribengin.core.units import show_bytes, show_duration
from scribengin.local.contract import SLOW_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.local.contract import GateView, QueryView, RunView
    from scribengin.state.contract import Counts


class Display(Protocol):
    """Called by one thread."""

    def show(self, view: RunView) -> None:
        """Show what is now; notices are printed once and stay."""

    def say(self, sentence: str) -> None:
        """Print a sentence that stays."""

    def close(self) -> None:
        """Leave the terminal as it was found."""


def open_display(progress: str) -> Display:
    """The display for `progress`: auto, live, plain or off."""
    if progress == "live" or (progress == "auto" and sys.stderr.isatty()):
        from scribengin.cli.live import Live

        return Live()
    return Plain(quiet=progress == "off")


class Plain:
    """At most one line a second, and only when something changed; notices at once. `quiet`: notices only."""

    def __init__(self, *, quiet: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._now = now
        self._last = ""
        self._next_at = 0.0

    def show(self, view: RunView) -> None:
        """Print the notices, and the line if it is due."""
        for notice in view.notices:
            self.say(notice)
        line = plain_line(view)
        ended = view.phase == "ended"
        if self._quiet or line == self._last or (self._now() < self._next_at and not ended):
            return
        self._last = line
        self._next_at = self._now() + 1.0
        click.echo(f"{show_duration(view.seconds):>6}  {line}", err=True)

    def say(self, sentence: str) -> None:
        """Print it."""
        click.echo(f"        {sentence}", err=True)

    def close(self) -> None:
        """Nothing is held."""


def plain_line(view: RunView) -> str:
    """`tweets running; kept: 412,000 rows/s, in 612,000, out 5,402, dead 28, lag 3 files 54.1 MiB, 62%, 4s left`."""
    slow = slowest_text(view)
    gates = [f"{gate.name}: {gate_text(gate)}" for gate in view.gates if gate.rows or gate.paused]
    return "; ".join([f"{view.flow} {view.phase}", *(_query(query) for query in view.queries), *gates, *([slow] if slow else [])])


def gate_text(gate: GateView) -> str:
    """`12,000 rows wait 3.4 MiB 2.1s, in 4,000/s, out 2,000/s, full`."""
    parts = []
    if gate.rows:
        age = f" {show_duration(gate.age_s)}" if gate.age_s >= 1 else ""
        parts.append(f"{gate.rows:,} rows wait {show_bytes(gate.bytes)}{age}")
    if gate.in_per_s >= 1 or gate.out_per_s >= 1:
        parts.append(f"in {gate.in_per_s:,.0f}/s, out {gate.out_per_s:,.0f}/s")
    if gate.empty_in_s is not None and gate.empty_in_s >= 1:
        parts.append(f"empty in {show_duration(gate.empty_in_s)}")
    if gate.paused:
        parts.append("full")
    return ", ".join(parts) or "empty"


def slowest_text(view: RunView) -> str:
    """`enrich takes 81 % of the Batch; hot -> enrich grows by 4,000 rows/s; at twice the rate it would catch up in 12m`: what holds the
    chain up; empty where nothing grows."""
    growing = [gate for gate in view.gates if gate.rows and gate.grows_per_s >= 1]
    if not growing:
        return ""
    gate = max(growing, key=lambda each: each.rows)
    reading = [query for query in view.queries if query.tier == gate.reading and query.slowest is not None]
    parts = []
    if reading:
        node, share = max((query.slowest for query in reading if query.slowest is not None), key=lambda each: each[1])
        parts.append(f"{node} takes {share:.0%} of the Batch")
    parts.append(f"{gate.name} grows by {gate.grows_per_s:,.0f} rows/s")
    if (shrinks := 2 * gate.out_per_s - gate.in_per_s) >= 1:
        parts.append(f"at twice the rate it would catch up in {show_duration(gate.rows / shrinks)}")
    return "; ".join(parts)


def _query(query: QueryView) -> str:
    parts: list[str] = [] if query.state == "running" else [query.state]
    moving = query.state in ("running", "stopping")
    if moving and query.rows_per_s >= 1:
        parts.append(f"{query.rows_per_s:,.0f} rows/s")
    parts.append(f"in {query.rows_in:,}")
    parts.append(f"out {query.rows_out:,}")
    parts += [f"{name} {count:,}" for name, count in (("dead", query.dead), ("late", query.late)) if count]
    if lost := lost_text(query):
        parts.append(f"lost {lost}")
    if lag := lag_text(query):
        parts.append(f"lag {lag}")
        parts += filter(None, [soon_text(query)])
    if batch := under_way(query):
        parts.append(batch)
    if query.done is not None:
        parts.append(f"{query.done:.0%}")
    if moving and query.eta_s:
        parts.append(f"{show_duration(query.eta_s)} left")
    if mark := watermark_text(query):
        parts.append(f"watermark {mark}")
    if query.message:
        parts.append(query.message)
    return f"{query.name}: {', '.join(parts)}"


def watermark_text(query: QueryView) -> str:
    """`2026-01-01T00:50:00.000Z, held back by pays`; empty where there is none."""
    if not query.watermark and not query.held_back_by:
        return ""
    return (query.watermark or "none yet") + (f", held back by {query.held_back_by}" if query.held_back_by else "")


def under_way(query: QueryView) -> str:
    """`Batch 4: 3 of 8 tasks, slow: nothing has moved for 1m30s`; empty where there is nothing to tell of one."""
    parts = []
    if query.tasks is not None:
        parts.append(f"{query.tasks[0]:,} of {query.tasks[1]:,} task{'s' * (query.tasks[1] != 1)}")
    if query.is_slow:
        # in steps: a log should not get a line a second
        parts.append(f"slow: nothing has moved for {show_duration(query.still_s // SLOW_S * SLOW_S)}")
    return f"Batch {query.batches + 1}: {', '.join(parts)}" if parts else ""


def lost_text(of: QueryView | Counts) -> str:
    """`up to 85, and 1 time nobody knows how many`; empty where nothing was lost."""
    parts = [f"up to {of.lost:,}"] if of.lost else []
    if of.lost_unknown:
        parts.append(f"{of.lost_unknown:,} time{'s' * (of.lost_unknown != 1)} nobody knows how many")
    return ", and ".join(parts)


def lag_text(query: QueryView) -> str:
    """`3 files, 54.1 MiB, 12s`; empty where nothing waits or nothing is known."""
    parts = []
    if query.lag_rows:
        parts.append(f"{query.lag_rows:,} rows")
    if query.lag_files:
        parts.append(f"{query.lag_files:,} file{'s' * (query.lag_files != 1)}")
    if query.lag_bytes:
        parts.append(show_bytes(query.lag_bytes))
    if query.lag_s:
        parts.append(show_duration(query.lag_s))
    return " ".join(parts)


def catch_up_text(query: QueryView) -> str:
    """`caught up in 40s`; empty where nothing waits, or nobody can tell yet: while the Query is paused too."""
    if query.state == "paused":
        return ""
    if query.falls_behind:
        return "never caught up at this rate"
    return f"caught up in {show_duration(query.catch_up_s)}" if query.catch_up_s else ""


def soon_text(query: QueryView) -> str:
    """The same where the time that is left is not told anyway."""
    return catch_up_text(query) if query.falls_behind or not query.eta_s else ""

"""The progress display on stderr while a flow runs: live on a terminal, plain lines elsewhere. It only shows what a RunView holds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

import click

from scribengin.core.units import show_duration
from scribengin.watching.wording import gate_text, lag_text, lost_text, rate_text, slowest_text, soon_text, under_way, watermark_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.local.contract import QueryView, RunView


class Display(Protocol):
    """Shows the progress of a run. Called by one thread."""

    def show(self, view: RunView) -> None:
        """Show the current view. Its notices are printed once and stay visible."""

    def say(self, sentence: str) -> None:
        """Print a sentence that stays visible."""

    def close(self) -> None:
        """Restore the terminal."""


def open_display(progress: str) -> Display:
    """Returns the display for the setting `progress`: auto, live, plain or off."""
    if progress == "live" or (progress == "auto" and sys.stderr.isatty()):
        from scribengin.cli.live import LiveDisplay

        return LiveDisplay()
    return Plain(quiet=progress == "off")


class Plain:
    """Prints at most one line a second, and only after a change; notices are printed at once. With `quiet` it only prints notices."""

    def __init__(self, *, quiet: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._now = now
        self._last = ""
        self._next_at = 0.0

    def show(self, view: RunView) -> None:
        """Print the notices, and the progress line if it is due."""
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
        """Print the sentence on stderr."""
        click.echo(f"        {sentence}", err=True)

    def close(self) -> None:
        """Do nothing: lines are printed at once."""


def plain_line(view: RunView) -> str:
    """A line such as `tweets running; kept: 412,000 rows/s, in 612,000, out 5,402, dead 28, lag 3 files 54.1 MiB, 62%, 4s left`."""
    slow = slowest_text(view)
    gates = [f"{gate.name}: {gate_text(gate)}" for gate in view.gates if gate.rows or gate.paused]
    return "; ".join([f"{view.flow} {view.phase}", *(_query(query) for query in view.queries), *gates, *([slow] if slow else [])])


def _query(query: QueryView) -> str:
    parts: list[str] = [] if query.state == "running" else [query.state]
    moving = query.state in ("running", "stopping")
    parts += filter(None, [rate_text(query)])
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

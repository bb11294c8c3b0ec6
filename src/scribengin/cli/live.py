"""The live display: a few lines for each query, redrawn four times a second on the terminal of stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live as Screen
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scribengin.core.units import show_duration
from scribengin.watching.wording import (
    batch_of,
    gate_text,
    lag_text,
    lost_text,
    rate_text,
    slowest_text,
    soon_text,
    under_way,
    watermark_text,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from scribengin.local.contract import GateView, QueryView, RunView

_LOOK = {
    "starting": ("…", "dim"),
    "running": ("▸", "green"),
    "waiting": ("·", "dim"),
    "paused": ("‖", "yellow"),
    "recovering": ("↻", "yellow"),
    "stopping": ("▪", "yellow"),
    "stopped": ("▪", "yellow"),
    "finished": ("✓", "green"),
    "failed": ("✗", "red"),
}
_BAR_WIDTH = 28


class LiveDisplay:
    """Draws views. Other output on the terminal appears above the drawing."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        # only a terminal's stdout is redirected: the rows of a console sink must still reach a file or a pipe
        self._screen = Screen(console=self._console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
        self._screen.start()

    def show(self, view: RunView) -> None:
        """Draw the run's current view."""
        for notice in view.notices:
            self.say(notice)
        self._screen.update(draw(view, height=self._console.height), refresh=True)

    def say(self, sentence: str) -> None:
        """Print the sentence above the drawing."""
        self._console.print(Text(f"  {sentence}", style="dim"))

    def close(self) -> None:
        """Stop drawing. The last drawing stays visible."""
        self._screen.stop()


def draw(view: RunView, *, height: int) -> RenderableType:
    """The drawing of a view. If the terminal has too few lines, each query gets one line."""
    tiers = len(dict.fromkeys(query.tier for query in view.queries)) if view.gates else 0
    roomy = height >= 4 * len(view.queries) + len(view.gates) + tiers + 4
    title = Table.grid(expand=True)
    title.add_column()
    title.add_column(justify="right", style="dim", no_wrap=True)
    hint = {"ended": "", "stopping": "", "running": "Ctrl-C stops after this Batch", "degraded": "Ctrl-C stops after this Batch"}.get(
        view.phase, "Ctrl-C stops"
    )
    title.add_row(Text.assemble((view.flow, "bold"), f"  {view.phase}  ", (show_duration(view.seconds), "dim")), hint)
    width = max((len(query.name) for query in view.queries), default=0)
    lines: list[RenderableType] = [title]
    tier = ""
    for query in view.queries:
        if view.gates and query.tier != tier:
            tier = query.tier
            lines += [*([Text()] if roomy else []), Text(tier, style="underline")]
        lines += [*([Text()] if roomy and not view.gates else []), _headline(query, width)]
        if roomy:
            lines += _details(query, width)
        lines += [_gate(gate, width) for gate in view.gates if (gate.feeding, gate.query) == (query.tier, query.name)]
    if slow := slowest_text(view):
        lines += [Text(), Text(slow, style="yellow")]
    return Group(*lines)


def _gate(gate: GateView, width: int) -> RenderableType:
    style = "red" if gate.paused else "yellow" if gate.grows_per_s >= 1 and gate.rows else "dim"
    return Text.assemble(" " * (width + 4), ("▽ ", style), (gate.name, "bold"), "  ", (gate_text(gate), style))


def _headline(query: QueryView, width: int) -> RenderableType:
    mark, style = _LOOK[query.state]
    line = Table.grid(padding=(0, 2))
    row: list[RenderableType] = [Text.assemble((f"{mark} ", style), (query.name.ljust(width), "bold"))]
    if query.done is not None:
        row.append(ProgressBar(total=1.0, completed=query.done, width=_BAR_WIDTH, complete_style="green", finished_style="green"))
        row.append(Text(f"{query.done:4.0%}"))
    moving = query.state in ("running", "stopping")
    row.append(Text(f"{rate:>16}" if (rate := rate_text(query)) else query.state, style=style))
    if moving and query.eta_s:
        row.append(Text(f"{show_duration(query.eta_s)} left"))
    line.add_row(*row)
    return line


def _details(query: QueryView, width: int) -> list[RenderableType]:
    indent = " " * (width + 4)
    counts = Text(indent)
    for name, count, style in (
        ("in", query.rows_in, ""),
        ("out", query.rows_out, ""),
        ("filtered", query.filtered, ""),
        ("dead", query.dead, "yellow" if query.dead else ""),
        ("late", query.late, "yellow" if query.late else ""),
    ):
        counts.append(f"{name} ", "dim").append(f"{count:,}   ", style)
    if lost := lost_text(query):
        counts.append("lost ", "dim").append(f"{lost}   ", "red")
    if mark := watermark_text(query):
        counts.append("watermark ", "dim").append(mark)
    if query.restarts:
        counts.append("   restarts ", "dim").append(f"{query.restarts:,}", "yellow")
    facts: list[Text] = []
    if lag := lag_text(query):
        facts.append(Text(f"lag {lag}"))
        if soon := soon_text(query):
            facts.append(Text(soon, style="yellow" if query.falls_behind else ""))
    if batch := under_way(query, timed=True):
        facts.append(Text(batch, style="yellow" if query.is_slow else ""))
    if query.batches:
        phases = " ".join(f"{name} {show_duration(seconds)}" for name, seconds in query.phases_s.items() if seconds >= 0.05)
        total = show_duration(sum(query.phases_s.values()))
        facts.append(Text(f"Batch {batch_of(query) - 1} took {total}" + (f" ({phases})" if phases else "")))
    lines: list[RenderableType] = [counts]
    if facts:
        line = Text(indent, style="dim", no_wrap=True, overflow="ellipsis")
        lines.append(line.append_text(Text("   ").join(facts)))
    lines += [Text(indent + text, style="dim", no_wrap=True, overflow="ellipsis") for text in query.orders]
    if query.message:
        lines.append(Text(indent + query.message, style="yellow" if query.state != "failed" else "red"))
    return lines

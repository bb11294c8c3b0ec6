"""Texts about a query or a channel for displays, tables and answers: the only place for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.units import show_bytes, show_duration
from scribengin.local.contract import SLOW_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.local.contract import GateView, QueryView, RunView
    from scribengin.state.contract import Counts


_LONG_S = 10.0
"""seconds; a shorter wait does not show that a query is too slow"""
STEADY_S = 5.0
"""seconds that a query must have run before its rate has a meaning"""
_SILENT_S = 60.0
"""seconds for which an input may be empty before that is mentioned"""


def gate_text(gate: GateView) -> str:
    """The state of a channel: `12,000 rows wait 3.4 MiB 2.1s, in 4,000/s, out 2,000/s, full`."""
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
    """The bottleneck of a run, if a channel grows; see `bottleneck_text`. Empty if none does."""
    return _growing_text(view.queries, view.gates)


def bottleneck_text(queries: Sequence[QueryView], gates: Sequence[GateView]) -> str:
    """The bottleneck of a whole flow; empty if there is none.

    The first that exists of: a channel that grows (`enrich takes 81% of the Batch; hot -> enrich grows by 4,000 rows/s; at twice the rate
    it would catch up in 12m`); a channel that is full; a query that reads less than arrives, and the slowest part in it; a Batch that has
    been under way for long, and its progress.
    """
    if growing := _growing_text(queries, gates):
        return growing
    if full := [gate for gate in gates if gate.paused]:
        gate = max(full, key=lambda each: each.rows)
        return "; ".join([*_slowest_of([query for query in queries if query.tier == gate.reading]), f"{gate.name} is full"])
    if behind := [query for query in queries if query.falls_behind and _waits_long(query)]:
        query = max(behind, key=lambda each: each.lag_s or 0.0)
        return "; ".join([*_slowest_of([query]), f"more arrives than {query.name} reads"])
    if long := [query for query in queries if query.batch_s >= _LONG_S and query.state in ("running", "stopping")]:
        query = max(long, key=lambda each: each.batch_s)
        return f"query {query.name}, {under_way(query, timed=True)}"
    return ""


def _waits_long(query: QueryView) -> bool:
    """True if the backlog is more than a few Batches: between two checks something has always arrived."""
    return (query.lag_s or 0.0) >= _LONG_S or (query.lag_rows or 0) >= _LONG_S * query.rows_per_s > 0


def _slowest_of(queries: Sequence[QueryView]) -> list[str]:
    told = [query.slowest for query in queries if query.slowest is not None]
    if not told:
        return []
    node, share = max(told, key=lambda each: each[1])
    return [f"{node} takes {share:.0%} of the Batch"]


def _growing_text(queries: Sequence[QueryView], gates: Sequence[GateView]) -> str:
    growing = [gate for gate in gates if gate.rows and gate.grows_per_s >= 1]
    if not growing:
        return ""
    gate = max(growing, key=lambda each: each.rows)
    parts = _slowest_of([query for query in queries if query.tier == gate.reading])
    parts.append(f"{gate.name} grows by {gate.grows_per_s:,.0f} rows/s")
    if (shrinks := 2 * gate.out_per_s - gate.in_per_s) >= 1:
        parts.append(f"at twice the rate it would catch up in {show_duration(gate.rows / shrinks)}")
    return "; ".join(parts)


def watermark_text(query: QueryView) -> str:
    """The watermark of a query: `2026-01-01T00:50:00.000Z, held back by pays (2h00m behind, silent for 12m00s)`; empty if there is none."""
    if not query.watermark and not query.held_back_by:
        return ""
    held = f", held back by {query.held_back_by}" if query.held_back_by else ""
    why = [f"{show_duration(query.behind_s)} behind"] if query.behind_s else []
    why += [f"silent for {show_duration(query.silent_s)}"] if query.silent_s is not None and query.silent_s >= _SILENT_S else []
    held += f" ({', '.join(why)})" if held and why else ""
    return (query.watermark or "none yet") + held + (f", without {' and '.join(query.idle)} (idle)" if query.idle else "")


def under_way(query: QueryView, *, timed: bool = False) -> str:
    """The progress of the current Batch: `Batch 4: 3 of 8 tasks, slow: no progress for 1m30s`; empty if there is none. `timed`: with its
    duration, which changes each time."""
    parts = []
    if query.tasks is not None:
        parts.append(f"{query.tasks[0]:,} of {query.tasks[1]:,} task{'s' * (query.tasks[1] != 1)}")
    if timed and query.batch_s >= 1:
        parts.append(f"for {show_duration(query.batch_s)}")
    if query.is_slow:
        # rounded down, so that a log does not get a line every second
        parts.append(f"slow: no progress for {show_duration(query.still_s // SLOW_S * SLOW_S)}")
    return f"Batch {batch_of(query)}: {', '.join(parts)}" if parts else ""


def batch_of(query: QueryView) -> int:
    """The number of the current Batch, as used by decisions, dead letters and files."""
    return query.batches if query.batch is None else query.batch


def rate_text(query: QueryView) -> str:
    """The rate of a query: `412,000 rows/s`; empty if it reads nothing, or has not run long enough for a rate to have a meaning."""
    steady = query.seconds >= STEADY_S and query.state in ("running", "stopping")
    return f"{query.rows_per_s:,.0f} rows/s" if steady and query.rows_per_s >= 1 else ""


def lost_text(of: QueryView | Counts) -> str:
    """The number of lost rows: `up to 85, and 1 time an unknown number`; empty if nothing was lost."""
    parts = [f"up to {of.lost:,}"] if of.lost else []
    if of.lost_unknown:
        parts.append(f"{of.lost_unknown:,} time{'s' * (of.lost_unknown != 1)} an unknown number")
    return ", and ".join(parts)


def lag_text(query: QueryView) -> str:
    """The backlog of a query: `3 files 54.1 MiB 12s`; empty if nothing waits or nothing is known."""
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
    """When a query has caught up: `caught up in 40s`; empty if nothing waits, or the time is unknown, for example while it is paused."""
    if query.state == "paused":
        return ""
    if query.falls_behind:
        return "never caught up at this rate"
    return f"caught up in {show_duration(query.catch_up_s)}" if query.catch_up_s else ""


def soon_text(query: QueryView) -> str:
    """The text of `catch_up_text`; empty if the display already shows the remaining time."""
    return catch_up_text(query) if query.falls_behind or not query.eta_s else ""

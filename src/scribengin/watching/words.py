"""What a display, a table or an answer says of a Query or a channel, in words; one place for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.units import show_bytes, show_duration
from scribengin.local.contract import SLOW_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.local.contract import GateView, QueryView, RunView
    from scribengin.state.contract import Counts

_LONG_S = 10.0
"""what waits for less is no sign that a Query is too slow"""
STEADY_S = 5.0
"""how long a Query must have run for its rate to mean something"""
_SILENT_S = 60.0
"""how long an input may bring nothing without a word"""


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
    """What holds the chain of a run up; see `bottleneck_text`. Empty where nothing grows."""
    return _growing_text(view.queries, view.gates)


def bottleneck_text(queries: Sequence[QueryView], gates: Sequence[GateView]) -> str:
    """Of a whole flow: `enrich takes 81% of the Batch; hot -> enrich grows by 4,000 rows/s; at twice the rate it would catch up in 12m`,
    else which channel is full, else which Query reads less than arrives, and what in it takes its time; else which Batch has been under way
    for long, and how far it is. Empty where nothing holds it up."""
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
    """What waits is more than a few Batches' worth: between two looks something has always come."""
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
    """`2026-01-01T00:50:00.000Z, held back by pays (2h00m behind, silent for 12m00s)`; empty where there is none."""
    if not query.watermark and not query.held_back_by:
        return ""
    held = f", held back by {query.held_back_by}" if query.held_back_by else ""
    why = [f"{show_duration(query.behind_s)} behind"] if query.behind_s else []
    why += [f"silent for {show_duration(query.silent_s)}"] if query.silent_s is not None and query.silent_s >= _SILENT_S else []
    held += f" ({', '.join(why)})" if held and why else ""
    return (query.watermark or "none yet") + held + (f", without {' and '.join(query.idle)} (idle)" if query.idle else "")


def under_way(query: QueryView, *, timed: bool = False) -> str:
    """`Batch 4: 3 of 8 tasks, slow: nothing has moved for 1m30s`; empty where there is nothing to tell of one. `timed`: with how long it
    has been under way, which changes at each look."""
    parts = []
    if query.tasks is not None:
        parts.append(f"{query.tasks[0]:,} of {query.tasks[1]:,} task{'s' * (query.tasks[1] != 1)}")
    if timed and query.batch_s >= 1:
        parts.append(f"for {show_duration(query.batch_s)}")
    if query.is_slow:
        # in steps: a log should not get a line a second
        parts.append(f"slow: nothing has moved for {show_duration(query.still_s // SLOW_S * SLOW_S)}")
    return f"Batch {batch_of(query)}: {', '.join(parts)}" if parts else ""


def batch_of(query: QueryView) -> int:
    """The number of the Batch under way, by which decisions, dead letters and files call it."""
    return query.batches if query.batch is None else query.batch


def rate_text(query: QueryView) -> str:
    """`412,000 rows/s`; empty where nothing moves, or the Query has not run for long enough that a rate means something."""
    steady = query.seconds >= STEADY_S and query.state in ("running", "stopping")
    return f"{query.rows_per_s:,.0f} rows/s" if steady and query.rows_per_s >= 1 else ""


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

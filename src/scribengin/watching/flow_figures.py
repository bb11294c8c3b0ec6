"""Figures of a whole flow (rates, backlog and its age, bottleneck), and of each part of it, as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.units import show_bytes, show_duration
from scribengin.watching.producer_signal import BEHIND
from scribengin.watching.telemetry import STALE_S, gates_of
from scribengin.watching.wording import bottleneck_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.local.contract import EndView, QueryView
    from scribengin.watching.telemetry import ObservedAttempt, TierSnapshot


# The graph of a flow, with the live figures of each node and channel from its workers' last reports.


def with_live(graph: Mapping[str, Any], told: Mapping[str, Any] | None) -> dict[str, Any]:
    """`graph` with the live figures of each node and channel, as `live`. It is null if nothing is known, for steps, and everywhere if
    `told` (the value of `flow_as_json`) is None. A node that several queries read or write has the sum of their figures."""
    queries = [query for tier in (told or {}).get("tiers", ()) for query in tier["queries"]]
    gates = {gate["channel"]: gate for gate in (told or {}).get("edges", ())}
    nodes = [{**node, "live": _node(node, queries)} for node in graph["nodes"]]
    channels = [{**channel, "live": _gate(gates.get(channel["channel"]))} for channel in graph["channels"]]
    return {**graph, "nodes": nodes, "channels": channels}


def _node(node: Mapping[str, Any], queries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    section = {"source": "sources", "sink": "sinks"}.get(node["kind"])
    ends = [query[section][node["node"]] for query in queries if section and node["node"] in query[section]]
    if not ends:
        return None
    live: dict[str, Any] = {"rows": sum(end["rows"] for end in ends), "rows_per_s": round(sum(end["rows_per_s"] for end in ends), 1)}
    if section == "sources":  # each query reads the source separately: the one that is farthest behind counts
        for name in ("rows", "files", "bytes", "seconds"):
            known = [end["lag"][name] for end in ends if end["lag"][name] is not None]
            live[f"lag_{name}"] = max(known, default=None)
    return live


def _gate(gate: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if gate is None else {name: gate[name] for name in ("rows", "bytes", "age_s", "in_per_s", "out_per_s", "paused")}


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """The figures of a flow at one time. Rates are rows per second: `rows_in_per_s` at its sources, `rows_out_per_s` at its sinks, without
    channels. Counts are since this master became the leader."""

    flow: str
    heard_s: float
    """seconds since the last report of the worker that has been silent longest"""
    silent: tuple[str, ...]
    """the tiers whose worker is silent"""
    rows_in_per_s: float
    rows_out_per_s: float
    lag_rows: int | None
    lag_bytes: int | None
    delay_s: float | None
    """age of the oldest waiting entry, at a source or in a channel, in seconds; None if nothing waits, or it is unknown"""
    catch_up_s: float | None
    """estimated seconds until the backlog is empty; None if nothing waits or it is unknown"""
    falls_behind: bool
    still_s: float
    """seconds since the last committed Batch, while there is a backlog"""
    dead: int
    restarts: int
    """restarts of workers, and of queries in them"""
    bottleneck: str
    """a text on the bottleneck; empty if there is none"""
    orders: tuple[str, ...]
    """how the flow's utilities run: one text for each step in each query"""

    def as_json(self) -> dict[str, Any]:
        """The figures as one JSON object."""
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in msgspec.to_builtins(self).items()}


def figures_of(flow: str, tiers: Mapping[str, TierSnapshot], now: float) -> FlowFigures | None:
    """The figures of a flow; None if none of its workers has reported yet. `now`: in seconds since the epoch."""
    if not tiers:
        return None
    gates = gates_of(tiers)
    channels = {gate.id for gate in gates}
    silent = tuple(name for name, seen in tiers.items() if now - seen.heard > STALE_S)
    speaking = [query for name in tiers if name not in silent for query in queries_of(tiers, name)]
    queries = [query for name in tiers for query in queries_of(tiers, name)]
    outside = [end for query in queries for end in query.sources.values() if not end.channel]
    rows, size = _sum(end.lag_rows for end in outside), _sum(end.lag_bytes for end in outside)
    catch_up = [query.catch_up_s for query in speaking if query.catch_up_s is not None]
    if any(gate.rows and gate.grows_per_s >= 1 for gate in gates):
        catch_up = []  # behind a growing channel, the estimates of later queries are too low
    return FlowFigures(
        flow=flow,
        heard_s=max(now - seen.heard for seen in tiers.values()),
        silent=silent,
        rows_in_per_s=sum(end.rows_per_s for query in speaking for end in query.sources.values() if not end.channel),
        rows_out_per_s=sum(end.rows_per_s for query in speaking for sink, end in query.sinks.items() if sink not in channels),
        lag_rows=_add(rows, [gate.rows for gate in gates]),
        lag_bytes=_add(size, [gate.bytes for gate in gates]),
        delay_s=_delay(tiers, now),
        catch_up_s=max(catch_up, default=None),
        falls_behind=any(query.falls_behind for query in speaking),
        still_s=max((now - seen.progressed for seen in tiers.values() if seen.waits), default=0.0),
        dead=int(sum(seen.totals["dead"] for seen in tiers.values())),
        restarts=int(sum(seen.totals["restarts"] for seen in tiers.values())),
        bottleneck=bottleneck_text(speaking, gates),
        orders=tuple(dict.fromkeys(line for query in queries for line in query.orders)),
    )


def why_text(state: str, reason: str, figures: FlowFigures | None, alerts: Sequence[str]) -> str:
    """What holds a flow up, for `top` and the console: firing alerts, the reason of its state, its bottleneck, and silent workers."""
    firing = f"alert: {', '.join(alerts)}" if alerts else ""
    if figures is None or state in ("stopped", "failed"):  # no worker could report, and there is no bottleneck
        return "; ".join(filter(None, [firing, reason]))
    silent = f"no report from {' and '.join(figures.silent)} for {show_duration(figures.heard_s)}" if figures.silent else ""
    # the bottleneck now is usually the same as when the flow fell behind, so it is not written twice
    behind = reason.startswith(BEHIND) and figures.bottleneck
    return "; ".join(filter(None, [firing, BEHIND.rstrip(": ") if behind else reason, figures.bottleneck, silent]))


_AT_REST = ("created", "failed", "paused", "stopped")
"""states in which nothing is read, so that there are no rates"""


def going_text(state: str, now: Mapping[str, Any] | None) -> str:
    """How a flow proceeds, for `status` and the console: its rates, its backlog and its bottleneck.

    Args:
        state: its state.
        now: its figures as JSON; None if they are not known.

    Returns:
        A line such as `in 412 rows/s, out 380 rows/s; 1,200 rows wait, the oldest 4s; caught up in 12s; enrich takes 81% of the Batch …`;
        empty if nothing is read in this state, or nothing is known.
    """
    if now is None or state in _AT_REST:
        return ""
    waits = "nothing waits" if not now["lag_rows"] and not now["lag_bytes"] else ""
    if now["lag_rows"]:
        waits = f"{now['lag_rows']:,} rows wait"
    elif now["lag_bytes"]:
        waits = f"{show_bytes(now['lag_bytes'])} wait"
    if now["delay_s"] and waits != "nothing waits":
        waits += f", the oldest {show_duration(now['delay_s'])}"
    soon = "never caught up at this rate" if now["falls_behind"] else ""
    if now["catch_up_s"]:
        soon = f"caught up in {show_duration(now['catch_up_s'])}"
    silent = f"no report from {' and '.join(now['silent'])} for {show_duration(now['heard_s'])}" if now["silent"] else ""
    rates = f"in {now['rows_in_per_s']:,.0f} rows/s, out {now['rows_out_per_s']:,.0f} rows/s"
    return "; ".join(filter(None, [rates, waits, soon, now["bottleneck"], silent]))


def queries_of(tiers: Mapping[str, TierSnapshot], tier: str) -> list[QueryView]:
    """A tier's queries, with the tier's name, which a worker of a flow with one tier leaves out."""
    return [replace(query, tier=tier) for query in tiers[tier].progress.queries]


def flow_as_json(flow: str, tiers: Mapping[str, TierSnapshot], now: float) -> dict[str, Any]:
    """The present data on a flow's parts as JSON: its tiers with their attempts, their queries with sources and sinks, its edges. `now`: in
    seconds since the epoch."""
    figures = figures_of(flow, tiers, now)
    return {
        "flow": flow,
        "now": None if figures is None else figures.as_json(),
        "tiers": [_tier(name, seen, now) for name, seen in tiers.items()],
        "edges": [gate.as_json() | {"query": gate.query} for gate in gates_of(tiers)],
    }


def _tier(name: str, seen: TierSnapshot, now: float) -> dict[str, Any]:
    progress = seen.progress
    return {
        "tier": name,
        "worker": progress.worker,
        "version": progress.version,
        "phase": progress.phase,
        "spark_page": progress.spark_page or None,
        "heard_s": round(now - seen.heard, 3),
        "silent": now - seen.heard > STALE_S,
        "totals": {key: int(value) for key, value in seen.totals.items()},
        "queries": [_query(query) for query in progress.queries],
        "attempts": [_attempt(attempt) for attempt in reversed(seen.attempts)],
    }


def _query(query: QueryView) -> dict[str, Any]:
    return {
        "query": query.name,
        "state": query.state,
        "message": query.message,
        "batches": query.batches,
        "restarts": query.restarts,
        "rows": {"in": query.rows_in, "out": query.rows_out, "filtered": query.filtered, "dead": query.dead, "late": query.late},
        "lost": {"rows": query.lost, "unknown": query.lost_unknown},
        "rows_per_s": round(query.rows_per_s, 1),
        "lag": query.lag_as_json(),
        "phases_s": {phase: round(seconds, 3) for phase, seconds in query.phases_s.items()},
        "still_s": round(query.still_s, 1),
        "state_rows": query.state_rows,
        "state_bytes": query.state_bytes,
        "watermark": query.watermark or None,
        "held_back_by": query.held_back_by or None,
        "behind_s": None if query.behind_s is None else round(query.behind_s, 1),
        "silent_s": None if query.silent_s is None else round(query.silent_s, 1),
        "idle": list(query.idle),
        "slowest": None if query.slowest is None else {"node": query.slowest[0], "share": round(query.slowest[1], 3)},
        "sources": {source: _end(end, with_lag=True) for source, end in query.sources.items()},
        "sinks": {sink: _end(end, with_lag=False) for sink, end in query.sinks.items()},
        "members": msgspec.to_builtins(query.members),
    }


def _end(end: EndView, *, with_lag: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"rows": end.rows, "rows_per_s": round(end.rows_per_s, 1)}
    if with_lag:
        seconds = None if end.lag_s is None else round(end.lag_s, 3)
        said["lag"] = {"rows": end.lag_rows, "files": end.lag_files, "bytes": end.lag_bytes, "seconds": seconds}
    return said


def _attempt(attempt: ObservedAttempt) -> dict[str, Any]:
    return {
        "worker": attempt.worker,
        "since": attempt.since,
        "heard": attempt.heard,
        "batches": attempt.batches,
        "rows_in": attempt.rows_in,
        "restarts": attempt.restarts,
        "failures": [msgspec.to_builtins(failure) for failure in attempt.failures],
        "ended": attempt.ended,
        "cause": attempt.cause,
        "remedy": attempt.remedy,
    }


def _delay(tiers: Mapping[str, TierSnapshot], now: float) -> float | None:
    """The age of the oldest waiting entry; entries in a channel have aged since a worker's last report."""
    ages = []
    for name, seen in tiers.items():
        silent_s = now - seen.heard
        ages += [query.lag_s for query in queries_of(tiers, name) if query.lag_s]
        ages += [gate.age_s + silent_s for gate in seen.progress.gates if gate.rows]
        if silent_s > STALE_S and seen.waits:
            ages.append(silent_s)
    return max(ages, default=None)


def _sum(figures: Any) -> int | None:
    known = list(figures)
    return None if not known or None in known else sum(known)


def _add(outside: int | None, channels: list[int]) -> int | None:
    if outside is None:
        return sum(channels) if channels else None
    return outside + sum(channels)

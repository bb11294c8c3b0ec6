"""Decides whether an alert fires, from the reports on a flow, the alert's last state, and a clock. Pure functions.

`quiet` → `pending` (its condition holds, but not yet for the required time; for progress: for half of it) → `firing` → `quiet`. Without new
information the state stays unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.units import show_duration
from scribengin.spec.alerts import parse_condition
from scribengin.watching.telemetry import STALE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.spec.model import Condition
    from scribengin.watching.flow_figures import FlowFigures
    from scribengin.watching.telemetry import TierSnapshot

Standing = Literal["quiet", "pending", "firing"]


@dataclass(frozen=True, slots=True)
class AlertState:
    """The state of an alert. `since` is the time of its last change, in seconds since the epoch; `value` the value at that time, as a
    text."""

    standing: Standing = "quiet"
    since: float = 0.0
    value: str = ""


@dataclass(frozen=True, slots=True)
class WatchedFlow:
    """What an alert's condition is evaluated on: a flow whose desired state is running. `wanted_since`: the time since which this master
    knows that desired state."""

    figures: FlowFigures | None
    tiers: Mapping[str, TierSnapshot]
    expected: frozenset[str]
    """the flow's tiers in the desired version"""
    wanted_since: float
    away: Mapping[str, float] | None = None
    """agent → since when it is away; None if that is not known"""


@dataclass(frozen=True, slots=True)
class AlertNotice:
    """A message to the targets of an alert: it fires, is resolved, or is tested."""

    flow: str
    alert: str
    state: Literal["firing", "resolved", "test"]
    when: str
    value: str
    at: str
    """ISO 8601"""

    def as_json(self) -> dict[str, Any]:
        """The body of a webhook."""
        return {"flow": self.flow, "alert": self.alert, "state": self.state, "when": self.when, "value": self.value, "at": self.at}

    def __str__(self) -> str:
        return f"alert {self.alert} of flow {self.flow}: {self.state}: {self.when}" + (f" ({self.value})" if self.value else "")


def next_state(before: AlertState, when: str, seen: WatchedFlow, now: float) -> AlertState:
    """The new state of an alert.

    Args:
        before: its last state.
        when: its condition.
        seen: the flow.
        now: in seconds since the epoch.

    Raises:
        ValueError: `when` is not valid.
    """
    condition = parse_condition(when)
    holds = _holds(condition, seen, now, fires=before.standing == "firing")
    if holds is None:
        return before
    since, value = holds
    if since is None:
        return before if before.standing == "quiet" else AlertState("quiet", now, value)
    if before.standing == "firing" and condition.measure == "progress" and not seen.expected <= seen.tiers.keys():
        return before  # a new leader does not have reports on all tiers yet
    if before.standing == "firing" and (condition.measure != "progress" or now - since >= condition.span_s):
        return before
    span_s = condition.span_s if condition.measure in ("progress", "lag_rows", "lag_s", "agent") else 0.0
    begun = before.since if before.standing == "pending" and condition.measure not in ("progress", "agent") else since
    if now - begun >= span_s:
        return AlertState("firing", now, value)
    if condition.measure == "progress" and now - begun < span_s / 2:  # a Batch takes some time, so a short time without one is normal
        return before if before.standing == "quiet" else AlertState("quiet", now, value)
    return AlertState("pending", begun, value)


def _holds(condition: Condition, seen: WatchedFlow, now: float, *, fires: bool) -> tuple[float | None, str] | None:
    """(the time since which the condition holds, None if it does not; the present value as a text); None if unknown. `fires`: the alert
    fires now."""
    figures = seen.figures
    match condition.measure:
        case "progress":
            return _still(seen, now)
        case "lag_rows":
            if figures is None or figures.silent:
                return None
            rows = figures.lag_rows or 0
            return (now if rows > condition.over else None), f"{rows:,} rows wait"
        case "lag_s":
            if figures is None:
                return None
            delay_s = figures.delay_s or 0.0
            return (now if delay_s > condition.over else None), f"the oldest waiting entry is {show_duration(delay_s)} old"
        case "agent":
            if seen.away is None:
                return None
            if not seen.away:
                return None, "all agents report"
            first = min(seen.away, key=lambda name: (seen.away or {})[name])
            more = f", and {len(seen.away) - 1} more" if len(seen.away) > 1 else ""
            return seen.away[first], f"agent {first} does not report for {show_duration(now - seen.away[first])}{more}"
        case "dead" | "restarts":
            column = condition.measure
            if not seen.tiers:
                return None
            count = sum(round(tier.series.total(column, now - condition.span_s, now)) for tier in seen.tiers.values())
            called = "dead letters" if column == "dead" else "restarts"
            begun = max(tier.series.began or now for tier in seen.tiers.values())
            if count <= condition.over and fires and begun > now - condition.span_s:
                return None  # a new leader has counted for a shorter time than the condition covers
            return (now if count > condition.over else None), f"{count:,} {called} in {show_duration(condition.span_s)}"


def _still(seen: WatchedFlow, now: float) -> tuple[float | None, str]:
    """The time since which there is a backlog but no committed Batch, or a worker is silent or has never reported; None if neither."""
    begun: list[tuple[float, str]] = []
    for name in sorted(seen.expected):
        tier = seen.tiers.get(name)
        if tier is None:
            begun.append((seen.wanted_since, f"no worker of {name} has reported"))
        elif now - tier.heard > STALE_S:
            begun.append((tier.heard, f"no report from {name}"))
        elif tier.waits:
            begun.append((tier.progressed, f"no Batch of {name} was committed"))
    if not begun:
        return None, "Batches are committed"
    since, what = min(begun)
    return since, f"{what} for {show_duration(now - since)}"

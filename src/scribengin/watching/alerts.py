"""Whether an alert fires: from what was heard of a flow, its last standing, and a clock. Pure.

`quiet` → `pending` (it holds, not yet for so long as it must; of progress: for half of it) → `firing` → `quiet`. Where nothing is known,
all stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.units import show_duration
from scribengin.spec.alerts import parse_condition
from scribengin.watching.board import STALE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.spec.alert_model import Condition
    from scribengin.watching.board import TierSnapshot
    from scribengin.watching.figures import FlowFigures

Standing = Literal["quiet", "pending", "firing"]


@dataclass(frozen=True, slots=True)
class AlertState:
    """`since` is when it came to stand so, in seconds since 1970; `value` what was seen then, in words."""

    standing: Standing = "quiet"
    since: float = 0.0
    value: str = ""


@dataclass(frozen=True, slots=True)
class WatchedFlow:
    """A flow that is wanted running, as an alert sees it. `wanted_since`: since when this master knows that."""

    figures: FlowFigures | None
    tiers: Mapping[str, TierSnapshot]
    expected: frozenset[str]
    """its tiers"""
    wanted_since: float


@dataclass(frozen=True, slots=True)
class AlertNotice:
    """What is sent: an alert has begun to fire, has ended, or is tried."""

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
    """How the alert stands now. Raises ValueError for a `when` that is none."""
    condition = parse_condition(when)
    holds = _holds(condition, seen, now, fires=before.standing == "firing")
    if holds is None:
        return before
    since, value = holds
    if since is None:
        return before if before.standing == "quiet" else AlertState("quiet", now, value)
    if before.standing == "firing" and condition.measure == "progress" and not seen.expected <= seen.tiers.keys():
        return before  # a master that has taken over has not heard of all of it yet
    if before.standing == "firing" and (condition.measure != "progress" or now - since >= condition.span_s):
        return before
    span_s = condition.span_s if condition.measure in ("progress", "lag_rows", "lag_s") else 0.0
    begun = before.since if before.standing == "pending" and condition.measure != "progress" else since
    if now - begun >= span_s:
        return AlertState("firing", now, value)
    if condition.measure == "progress" and now - begun < span_s / 2:  # each Batch takes its time
        return before if before.standing == "quiet" else AlertState("quiet", now, value)
    return AlertState("pending", begun, value)


def _holds(condition: Condition, seen: WatchedFlow, now: float, *, fires: bool) -> tuple[float | None, str] | None:
    """(since when it holds, None where it does not; what is seen); None where nobody knows."""
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
            return (now if delay_s > condition.over else None), f"the oldest that waits is {show_duration(delay_s)} old"
        case "dead" | "restarts":
            column = condition.measure
            if not seen.tiers:
                return None
            count = sum(round(tier.series.total(column, now - condition.span_s, now)) for tier in seen.tiers.values())
            called = "dead letters" if column == "dead" else "restarts"
            begun = max(tier.series.began or now for tier in seen.tiers.values())
            if count <= condition.over and fires and begun > now - condition.span_s:
                return None  # a master that has taken over has not counted for so long
            return (now if count > condition.over else None), f"{count:,} {called} in {show_duration(condition.span_s)}"


def _still(seen: WatchedFlow, now: float) -> tuple[float | None, str]:
    """Since when something waits and nothing comes through, or a worker says nothing, or never has."""
    begun: list[tuple[float, str]] = []
    for name in sorted(seen.expected):
        tier = seen.tiers.get(name)
        if tier is None:
            begun.append((seen.wanted_since, f"no worker of {name} was heard"))
        elif now - tier.heard > STALE_S:
            begun.append((tier.heard, f"nothing was heard of {name}"))
        elif tier.waits:
            begun.append((tier.progressed, f"no Batch of {name} came through"))
    if not begun:
        return None, "Batches come through"
    since, what = min(begun)
    return since, f"{what} for {show_duration(now - since)}"

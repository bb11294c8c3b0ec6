"""The answer of a flow to its producers: send, slow down, or wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.units import show_duration

if TYPE_CHECKING:
    from scribengin.watching.flow_figures import FlowFigures


Answer = Literal["open", "slow", "refusing"]
SLOW_SHARE = 0.5
"""share of `max_delay` above which producers are asked to slow down"""
BEHIND = "it is behind: "
"""the beginning of the reason of a flow that is `degraded` because of its delay"""
_ENDED = ("stopped", "stopping", "draining", "failed")


@dataclass(frozen=True, slots=True)
class ProducerSignal:
    """The answer of a flow to its producers. `retry_s`: seconds after which to ask again, if the answer is not `open`."""

    flow: str
    intake: Answer
    reason: str
    delay_s: float | None
    max_delay_s: float | None
    catch_up_s: float | None
    falls_behind: bool
    retry_s: float

    def as_json(self) -> dict[str, Any]:
        """The signal as one JSON object."""
        return {
            "flow": self.flow,
            "intake": self.intake,
            "reason": self.reason,
            "delay_s": None if self.delay_s is None else round(self.delay_s, 3),
            "max_delay_s": self.max_delay_s,
            "catch_up_s": None if self.catch_up_s is None else round(self.catch_up_s, 3),
            "falls_behind": self.falls_behind,
            "retry_s": self.retry_s,
        }


def intake_of(
    flow: str, state: str, reason: str, figures: FlowFigures | None, max_delay_s: float | None, *, measured_s: float | None = None
) -> ProducerSignal:
    """Decide the answer of a flow to its producers.

    Without `max_delay` it is open, whatever the backlog, until the flow stops or fails. If no worker has reported yet, as after a failover,
    a flow that was behind still refuses.

    Args:
        flow: the flow.
        state: its state.
        reason: the reason of that state.
        figures: its figures; None if no worker has reported yet.
        max_delay_s: its `max_delay` in seconds; None: none.
        measured_s: the measured age of the oldest entry at its sources, in seconds; None: not measured.
    """
    delay_s = max((each for each in (None if figures is None else figures.delay_s, measured_s) if each is not None), default=None)
    answer, why = _answer(state, reason, figures, delay_s, max_delay_s)
    catch_up_s = None if figures is None else figures.catch_up_s
    falls_behind = figures is not None and figures.falls_behind
    retry_s = 0.0 if answer == "open" else min(60.0, max(1.0, catch_up_s or 5.0))
    return ProducerSignal(flow, answer, why, delay_s, max_delay_s, catch_up_s, falls_behind, round(retry_s, 1))


def _answer(state: str, reason: str, figures: FlowFigures | None, delay_s: float | None, max_delay_s: float | None) -> tuple[Answer, str]:
    if state in _ENDED:
        return "refusing", f"the flow is {state}" + (f": {reason}" if reason else "")
    if max_delay_s is None:
        return "open", ""
    if figures is None and delay_s is None:
        behind = state == "degraded" and reason.startswith(BEHIND)
        return ("refusing", reason) if behind else ("open", "no worker of the flow has reported yet")
    if delay_s is None or delay_s <= SLOW_SHARE * max_delay_s:
        return "open", ""
    held = f"; {figures.bottleneck}" if figures is not None and figures.bottleneck else ""
    waited = f"the oldest waiting entry is {show_duration(delay_s)} old, max_delay is {show_duration(max_delay_s)}{held}"
    return ("refusing" if delay_s > max_delay_s else "slow"), waited

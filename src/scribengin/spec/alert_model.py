"""The alerts of a Flow, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Measure = Literal["progress", "lag_rows", "lag_s", "dead", "restarts"]


@dataclass(frozen=True, slots=True)
class Condition:
    """When an alert fires: `measure` is above `over` for `span_s` seconds (lags), or counts more within them (dead letters, restarts).
    For `progress`: no Batch was committed for `span_s` although there is unread input."""

    measure: Measure
    over: float
    span_s: float


@dataclass(frozen=True, slots=True)
class Alert:
    """What is reported to whom. Every alert is also written to the master's log."""

    id: str
    when: Condition
    webhook: str = ""
    command: tuple[str, ...] = ()

"""The alerts of a Flow, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Measure = Literal["progress", "lag_rows", "lag_s", "dead", "restarts"]


@dataclass(frozen=True, slots=True)
class Condition:
    """When an alert fires: `measure` over `over` for `span_s` (lags), or counted within them (dead letters, restarts). Of `progress`: none
    for `span_s`, while something waits."""

    measure: Measure
    over: float
    span_s: float


@dataclass(frozen=True, slots=True)
class Alert:
    """Who is told of what; the master's log always is."""

    id: str
    when: Condition
    webhook: str = ""
    command: tuple[str, ...] = ()

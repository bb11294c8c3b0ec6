"""How far each input of a Query that keeps state has come, over all Batches, and which of them holds the others back. Without Spark.

Kept in each decision, the newest of which says it of the whole lineage: the watermark of a Query is that of its slowest input, and
whoever looks later, `status` or a new process, has to know which that is and since when.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Clock:
    """How far the rows of a node with a watermark have come."""

    newest_us: int | None
    """where its newest row alone would have set the watermark, in microseconds since 1970; None before its first row"""
    batch: int
    """the one that brought that row; -1 before the first"""
    at: int | None
    """which record of the Batch that is, by its AT value"""
    came_us: int
    """when the newest Batch with rows of it was planned; before its first row when the Query first ran with it"""


@dataclass(frozen=True, slots=True)
class WatermarkHolder:
    """`by` is the node whose watermark rules. It is `behind_us` behind the next slowest (None where it has brought nothing yet, or no other
    has), and has brought no rows since `silent_since_us`."""

    by: str
    behind_us: int | None
    silent_since_us: int


def clocks_after(
    before: Mapping[str, Clock], newest: Mapping[str, tuple[int, int | None]], gated: Iterable[str], batch: int, planned_us: int
) -> dict[str, Clock]:
    """The clocks of the `gated` nodes behind a Batch that was planned at `planned_us` and had the `newest` rows (see `newest_of`)."""
    clocks = {}
    for origin in gated:
        clock = before.get(origin, Clock(None, -1, None, planned_us))
        if origin in newest:
            us, at = newest[origin]
            first = clock.newest_us is None or us > clock.newest_us
            clock = Clock(us, batch, at, planned_us) if first else replace(clock, came_us=planned_us)
        clocks[origin] = clock
    return clocks


def idle_nodes(clocks: Mapping[str, Clock], idle_us: Mapping[str, int], now_us: int) -> frozenset[str]:
    """Those that have brought nothing for as long as `idle_us` says of them (node → microseconds)."""
    return frozenset(origin for origin, clock in clocks.items() if origin in idle_us and now_us - clock.came_us >= idle_us[origin])


def watermark_without_idle(clocks: Mapping[str, Clock], idle_us: Mapping[str, int], now_us: int) -> int | None:
    """How far the watermark may go when idle nodes are left out; None where none is idle, all are, or one of the others knows no time."""
    idle = idle_nodes(clocks, idle_us, now_us)
    others = [clock.newest_us for origin, clock in clocks.items() if origin not in idle]
    known = [newest_us for newest_us in others if newest_us is not None]
    return min(known) if idle and known and len(known) == len(others) else None


def slowest(clocks: Mapping[str, Clock], idle: frozenset[str] = frozenset()) -> str:
    """The node whose watermark rules, idle ones aside; empty of none."""
    return min((origin for origin in clocks if origin not in idle), key=lambda origin: _reached(clocks[origin]), default="")


def held_back(clocks: Mapping[str, Clock], idle: frozenset[str] = frozenset()) -> WatermarkHolder | None:
    """By whom the watermark of a Query with several inputs is; None of a single one."""
    by = slowest(clocks, idle)
    others = [clock for origin, clock in clocks.items() if origin != by and origin not in idle]
    if not by or not others:
        return None
    own, next_us = clocks[by], min(map(_reached, others))
    behind_us = None if own.newest_us is None or next_us == -float("inf") else round(next_us - own.newest_us)
    return WatermarkHolder(by, behind_us, own.came_us)


def _reached(clock: Clock) -> float:
    return -float("inf") if clock.newest_us is None else clock.newest_us

"""The progress of event time at each input of a stateful query, and the input that holds back the watermark. Does not need Spark.

It is kept in each decision; the newest one has it for the whole lineage. The watermark of a query is that of its slowest input, and
`status` or a new process must be able to find out later which one that is, and since when.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Clock:
    """The progress of event time at a node with a watermark."""

    newest_us: int | None
    """the watermark that its newest row alone would set, in microseconds since 1970; None before its first row"""
    batch: int
    """the Batch that contained that row; -1 before the first row"""
    at: int | None
    """the record of that row in the Batch, by its AT value"""
    came_us: int
    """when the newest Batch with rows of the node was planned, in microseconds since 1970; before its first row, when the query first ran
    with it"""


@dataclass(frozen=True, slots=True)
class WatermarkHolder:
    """The node `by` that determines the watermark. It is `behind_us` microseconds behind the next slowest node (None if one of the two has
    had no row yet), and has had no row since `silent_since_us`."""

    by: str
    behind_us: int | None
    silent_since_us: int


def clocks_after(
    before: Mapping[str, Clock], newest: Mapping[str, tuple[int, int | None]], gated: Iterable[str], batch: int, planned_us: int
) -> dict[str, Clock]:
    """The clocks after a Batch.

    Args:
        before: Node → its clock before the Batch.
        newest: Node → watermark and AT value of its newest row in the Batch; see `newest_of`.
        gated: The nodes with a watermark; the result has a clock for each.
        batch: The number of the Batch.
        planned_us: When the Batch was planned, in microseconds since 1970.
    """
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
    """The nodes that have had no row for at least as long as `idle_us` allows (node → microseconds)."""
    return frozenset(origin for origin, clock in clocks.items() if origin in idle_us and now_us - clock.came_us >= idle_us[origin])


def watermark_without_idle(clocks: Mapping[str, Clock], idle_us: Mapping[str, int], now_us: int) -> int | None:
    """The watermark of the nodes that are not idle, in microseconds; None if no node is idle, all are, or one of the others has had no row
    yet."""
    idle = idle_nodes(clocks, idle_us, now_us)
    others = [clock.newest_us for origin, clock in clocks.items() if origin not in idle]
    known = [newest_us for newest_us in others if newest_us is not None]
    return min(known) if idle and known and len(known) == len(others) else None


def slowest(clocks: Mapping[str, Clock], idle: frozenset[str] = frozenset()) -> str:
    """The node that determines the watermark, idle ones left out; empty if there is none."""
    return min((origin for origin in clocks if origin not in idle), key=lambda origin: _reached(clocks[origin]), default="")


def watermark_holder(clocks: Mapping[str, Clock], idle: frozenset[str] = frozenset()) -> WatermarkHolder | None:
    """The node that holds back the watermark of a query with several inputs; None if fewer than two of them are not idle."""
    by = slowest(clocks, idle)
    others = [clock for origin, clock in clocks.items() if origin != by and origin not in idle]
    if not by or not others:
        return None
    own, next_us = clocks[by], min(map(_reached, others))
    behind_us = None if own.newest_us is None or next_us == -float("inf") else round(next_us - own.newest_us)
    return WatermarkHolder(by, behind_us, own.came_us)


def _reached(clock: Clock) -> float:
    return -float("inf") if clock.newest_us is None else clock.newest_us

"""Reports the open windows of a stateful query at the end of its run, and when they close."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from scribengin.spark.late_rows import window_grid
from scribengin.spark.node_schema import NodeLayout
from scribengin.spark.watermarks import declared_watermark
from scribengin.spec.model import Aggregate, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.spark.compiled_query import QueryParts
    from scribengin.state.clocks import Clock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stateful_step(parts: QueryParts) -> str | None:
    """The query's only stateful step; None if there are several, since Spark's figures do not say which rows are whose."""
    stateful = [node.id for node in parts.query.nodes if node.stateful]
    return stateful[0] if len(stateful) == 1 else None


def open_windows_note(parts: QueryParts, *, held: int | None, watermark: str, clocks: Mapping[str, Clock] | None = None) -> str | None:
    """A note on the windows that stay open: until when, and what would close them. None if no window is open, or if the step has already
    emitted their rows.

    Args:
        parts: The query.
        held: The number of groups in Spark's state.
        watermark: ISO 8601 text; empty if no Batch ran, then it is derived from `clocks`.
        clocks: How far each input with a watermark has come, from the query's decisions.
    """
    id_ = stateful_step(parts)
    watermark = watermark or _reached(clocks or {})
    if id_ is None or not held or not watermark or watermark.startswith("1970-01-01T00:00:00"):
        return None
    layout = NodeLayout(parts.plan, parts.query)
    step = layout.step(id_)
    grid = window_grid(step.action)
    if step.emit != "append" or grid is None:
        return None
    stands = datetime.fromisoformat(watermark)
    delay_s = _delay_s(parts, id_)
    newest_us = (stands - _EPOCH) // timedelta(microseconds=1) + round(delay_s * 1e6)
    closes = _EPOCH + timedelta(microseconds=int(grid.last_ends_us(np.array([newest_us]))[0]))
    grouped = isinstance(step.action, Aggregate) and step.action.by
    what = ("group" if grouped else "window") + "s" * (held != 1)
    note = (
        f'{held} {what} {"stay" if held != 1 else "stays"} open in "{id_}" until the watermark ({_shown(stands)}) reaches {_shown(closes)}'
    )
    records = [*_records(parts, id_, clocks or {}, closes)]
    return f"{note}: that takes {' and '.join(records)}, in this run or a later one" if records else note


def _reached(clocks: Mapping[str, Clock]) -> str:
    """The watermark that the slowest input gives; empty if an input has had no rows yet."""
    reached = [clock.newest_us for clock in clocks.values()]
    known = [newest_us for newest_us in reached if newest_us is not None]
    return (_EPOCH + timedelta(microseconds=min(known))).isoformat() if known and len(known) == len(reached) else ""


def _records(parts: QueryParts, step: str, clocks: Mapping[str, Clock], closes: datetime) -> Iterator[str]:
    """For each input whose watermark is before `closes`: the record that would advance it so far. It must reach the step: Spark may filter
    a row before it looks at its time."""
    closes_us = (closes - _EPOCH) // timedelta(microseconds=1)
    for id_, clock in clocks.items():
        mark = declared_watermark(parts, id_)
        if mark is not None and (clock.newest_us is None or clock.newest_us < closes_us):
            from_ = _shown(closes + timedelta(seconds=mark.delay_s))
            yield f'a record of "{id_}" that reaches "{step}", with "{mark.column}" from {from_} on'


def _delay_s(parts: QueryParts, id_: str) -> float:
    """The longest delay, in seconds, of the watermarks before `id_`."""
    flow = parts.plan.flow
    seen: set[str] = set()
    waiting = [id_]
    delays = [0.0]
    while waiting:
        node = flow.node(waiting.pop())
        if node.id in seen:
            continue
        seen.add(node.id)
        if getattr(node, "watermark", None) is not None:
            delays.append(node.watermark.delay_s)  # type: ignore[union-attr]
        elif isinstance(node, Step):
            waiting += node.inputs
    return max(delays)


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

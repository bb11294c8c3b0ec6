"""The open windows of a stateful Query at the end of its run, and when they close."""

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
    """The Query's only step with state; None if there are several, whose shares Spark's figures do not tell."""
    stateful = [node.id for node in parts.query.nodes if node.stateful]
    return stateful[0] if len(stateful) == 1 else None


def open_windows_note(parts: QueryParts, *, held: int | None, watermark: str, clocks: Mapping[str, Clock] | None = None) -> str | None:
    """Which windows wait for a later watermark, until when, and what would let them out; None if none do, or where their rows came out
    already.

    Args:
        parts: those of the Query.
        held: the number of groups in Spark's state.
        watermark: its ISO 8601 text; empty if no Batch ran, so that the clocks tell it. Once a Batch is through, it trails the newest
            time seen by its delay, so that both tell where the last window ends.
        clocks: how far each input with a watermark has come, where the Query's decisions say it.
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
    """The watermark by the slowest input; empty if an input has brought no rows yet."""
    reached = [clock.newest_us for clock in clocks.values()]
    known = [newest_us for newest_us in reached if newest_us is not None]
    return (_EPOCH + timedelta(microseconds=min(known))).isoformat() if known and len(known) == len(reached) else ""


def _records(parts: QueryParts, step: str, clocks: Mapping[str, Clock], closes: datetime) -> Iterator[str]:
    """Of each input whose watermark is before `closes`, the record that would bring it there. One that a step in between drops may not do
    so: Spark filters before it looks at the time, where the condition does not need it."""
    closes_us = (closes - _EPOCH) // timedelta(microseconds=1)
    for id_, clock in clocks.items():
        mark = declared_watermark(parts, id_)
        if mark is not None and (clock.newest_us is None or clock.newest_us < closes_us):
            from_ = _shown(closes + timedelta(seconds=mark.delay_s))
            yield f'a record of "{id_}" that reaches "{step}", with "{mark.column}" from {from_} on'


def _delay_s(parts: QueryParts, id_: str) -> float:
    """The longest delay of the watermarks above `id_`."""
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

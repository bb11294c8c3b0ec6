"""The watermark of a running query: which row moved it, and how it advances if an input brings no more rows.

In Spark the slowest input always limits the watermark. If an input with `idle` has brought no rows for that time, the watermark of the
other inputs is set in Spark's tracker, by its own `setWatermark`, at a Batch's end and between Batches. Spark writes it to its offset log
with the next Batch, and all decisions depend on that log: if the process is killed before, the next process sets it again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.connectors.catalog import open_source
from scribengin.core.zones import UTC_NAME
from scribengin.spark.dead_letter_writer import show_place
from scribengin.spark.late_rows import instant_text
from scribengin.spark.offset_log import watermark_us
from scribengin.spark.row_origin import ReplayOrigin
from scribengin.spec.model import Dedupe, Sink, Step
from scribengin.state.clocks import idle_nodes, slowest, watermark_without_idle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.streaming.query import StreamingQuery

    from scribengin.connectors.contract import SourceStream
    from scribengin.spark.compiled_query import QueryParts
    from scribengin.spec.model import Watermark
    from scribengin.state.clocks import Clock
    from scribengin.state.contract import Counts, Decision
    from scribengin.state.decisions import Decisions

_TOLD_PART = 0.05
"""the share of a Batch's rows at a step that may be late without a notice"""
_LOOKED_BACK = 8
"""how many earlier Batches are searched for the one that moved the watermark"""


@dataclass(slots=True)
class IdleInputs:
    """Advances the watermark past inputs that bring no more rows."""

    idle_us: Mapping[str, int]
    """node with a watermark → the time without rows, in µs, after which it is ignored; only nodes with `idle`"""
    slack_us: int
    """by how many µs a step's watermark is behind that of its inputs: a `dedupe` with a long `within`"""
    tell: Callable[[str], None]
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    @staticmethod
    def of(parts: QueryParts, tell: Callable[[str], None]) -> IdleInputs:
        """The idle inputs of the query's flow. `tell` is called with a message when the watermark advances without an input."""
        flow, idle_us, slack_us = parts.plan.flow, dict[str, int](), 0
        for id_ in (*parts.query.sources, *(node.id for node in parts.query.nodes)):
            mark = declared_watermark(parts, id_)
            if mark is not None and mark.idle_s is not None:
                idle_us[id_] = round(mark.idle_s * 1e6)
            node = flow.node(id_)
            if isinstance(node, Step) and isinstance(node.action, Dedupe):
                slack_us = max(slack_us, round((node.action.within_s or 0.0) * 1e6))
        return IdleInputs(idle_us, slack_us, tell)

    def idle(self, now_us: int) -> frozenset[str]:
        """The inputs that are idle now and do not count for the watermark."""
        return idle_nodes(self.clocks, self.idle_us, now_us)

    def advance(self, query: StreamingQuery, now_us: int) -> None:
        """Set the watermark of `query` to that of the inputs that are not idle, if it is behind."""
        if not self.idle_us:
            return
        reached_us = watermark_without_idle(self.clocks, self.idle_us, now_us)
        if reached_us is None:
            return
        tracker: Any = query._jsq.streamingQuery().watermarkTracker()
        reached_ms = (reached_us - self.slack_us) // 1000
        if tracker is not None and reached_ms > tracker.currentWatermark():
            tracker.setWatermark(reached_ms)
            self.tell(f"the watermark advances to {_shown(reached_ms * 1000)} without {' and '.join(sorted(self.idle(now_us)))}, idle")


def declared_watermark(parts: QueryParts, id_: str) -> Watermark | None:
    """The watermark that the node itself declares, or None."""
    node = parts.plan.flow.node(id_)
    return None if isinstance(node, Sink) else node.watermark


def late_notice(
    parts: QueryParts,
    decision: Decision,
    decisions: Decisions,
    streams_of: Callable[[Decision], Mapping[str, Sequence[SourceStream]]],
) -> str:
    """A notice if more than a few per cent of a Batch's rows were late at a step, else an empty text.

    Args:
        parts: The query.
        decision: The Batch.
        decisions: The query's decisions.
        streams_of: A decision → source → the streams that its Batch read.
    """
    node, share = max(
        ((node, _late_share(counts)) for node, counts in decision.counts.items()), key=lambda each: each[1], default=("", 0.0)
    )
    if share <= _TOLD_PART:
        return ""
    counts, number = decision.counts[node], decision.batch.number
    late = counts.late + counts.late_dead
    kept = "they are dead letters" if counts.late_dead else "they are dropped"
    came = counts.rows_in + counts.late + counts.dead
    mark_us = watermark_us(parts.letters.folder.parent / "checkpoint" / "offsets", number - 1)
    said = f"{late:,} of {came:,} rows at {node} in Batch {number} are late, {kept}: the watermark is at {_shown(mark_us)}"
    mover = _mover(decision, decisions, mark_us)
    return f"{said}, moved there by {_named(parts, *mover, streams_of, decisions)}" if mover is not None else said


def _late_share(counts: Counts) -> float:
    late = counts.late + counts.late_dead
    return late / (counts.rows_in + counts.late + counts.dead) if late else 0.0


def _mover(decision: Decision, decisions: Decisions, mark_us: int) -> tuple[str, Clock] | None:
    """(node, its clock) whose newest row set the watermark to `mark_us`. If none matches, that of the slowest input; None if it is
    unknown."""
    number = decision.batch.number
    found: tuple[str, Clock] | None = None
    for before in range(number - 1, max(-1, number - 1 - _LOOKED_BACK), -1):
        earlier = decisions.read(before)
        ruling = slowest(earlier.clocks) if earlier is not None else ""
        if earlier is None or not ruling or earlier.clocks[ruling].newest_us is None:
            break
        found = found or (ruling, earlier.clocks[ruling])
        fits = [(id_, clock) for id_, clock in earlier.clocks.items() if (clock.newest_us or 0) // 1000 == mark_us // 1000]
        if fits:
            return fits[0]
    return found


def _named(
    parts: QueryParts,
    node: str,
    clock: Clock,
    streams_of: Callable[[Decision], Mapping[str, Sequence[SourceStream]]],
    decisions: Decisions,
) -> str:
    """`rows (b.jsonl:1, "ts" is 2099-01-01T00:00:00Z)`, with the place if it can still be found."""
    mark = declared_watermark(parts, node)
    assert mark is not None
    assert clock.newest_us is not None
    at = f'"{mark.column}" is {_shown(clock.newest_us + round(mark.delay_s * 1e6))}'
    place = ""
    moved = decisions.read(clock.batch)
    if clock.at is not None and moved is not None:
        # if a source is gone or cannot be accessed any more, the message has no place
        with suppress(Exception):
            refs = parts.sources
            opened: dict[str, Any] = {id_: open_source(ref.type, ref.place) for id_, ref in refs.items()}
            origin = ReplayOrigin(opened, {ref.index: id_ for id_, ref in refs.items()}, streams_of(moved), parts.letters.folder)
            place = show_place(origin.place(clock.at))
            node = origin.source or node
    return f"{node} ({place + ', ' if place else ''}{at})"


def _shown(instant_us: int) -> str:
    return instant_text(pa.array([instant_us], pa.timestamp("us", tz=UTC_NAME)))

"""Before a step that keeps state: count the rows that Spark will drop as late, and bury those that have no time at all.

Spark drops both without a word: late rows behind a partial aggregation are counted wrongly, rows with a null time not at all.
The comparison is Spark's own: a row is late when its last window ends at or before the watermark of the Batch before, or, where
there is no window, its time does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.zones import UTC
from scribengin.spark.local_windows import window_ends_us
from scribengin.spark.offset_log import watermark_us
from scribengin.spec.model import Aggregate, Sql

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from scribengin.core.types import Schema
    from scribengin.plan.resolve import Inherited
    from scribengin.spark.chunk import Chunk
    from scribengin.spark.letters import Letters
    from scribengin.spec.model import Action
    from scribengin.state.contract import Counts

_WINDOW = re.compile(r"\bwindow\s*\(\s*([\w.]+|`(?:[^`]|``)+`)\s*,\s*'([^']+)'\s*(?:,\s*'([^']+)'\s*)?\)", re.IGNORECASE)
_INTERVAL = re.compile(r"\s*(?:interval\s+)?(\d+)\s*(millisecond|second|minute|hour|day|week)s?\s*\Z", re.IGNORECASE)
NEVER_US = 2**63 - 1
"""a watermark that never comes"""
LATE = "late"
"""the reason of a letter that was replayed behind the watermark of its Query"""
_US = {
    "millisecond": 1_000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3_600 * 10**6,
    "day": 86_400 * 10**6,
    "week": 7 * 86_400 * 10**6,
}


@dataclass(frozen=True, slots=True)
class GateNode:
    """`mark` is the watermark that its input gives. `offsets` is the folder of Spark's offset log, which tells the watermark; the step's
    own trails it by `lag_us`."""

    node: str
    step: str
    inputs: tuple[str, ...]
    schema: Schema
    mark: Inherited
    grid: WindowGrid | None
    lag_us: int
    holds_us: int
    """how long at most, behind its last window's end or its own time, the Query keeps what it has made of a row"""
    offsets: Path


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Where the windows of a step lie."""

    size_us: int
    slide_us: int
    time_zone: str = UTC

    def last_ends_us(self, times_us: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The end of the last window that holds each instant."""
        if self.time_zone != UTC:
            return window_ends_us(times_us, self.size_us, self.time_zone)
        return times_us - times_us % self.slide_us + self.size_us


def window_grid(action: Action) -> WindowGrid | None:
    """Of the step's window; None where it has none, or none that can be read off its text."""
    if isinstance(action, Aggregate) and action.window is not None:
        window = action.window
        return WindowGrid(round(window.size_s * 1e6), round(window.slide_s * 1e6), window.time_zone)
    found = _WINDOW.search(action.text) if isinstance(action, Sql) else None
    if found is None:
        return None
    size_us = _interval_us(found.group(2))
    slide_us = _interval_us(found.group(3)) if found.group(3) else size_us
    return WindowGrid(size_us, slide_us) if size_us and slide_us else None


def _interval_us(text: str) -> int:
    found = _INTERVAL.match(text)
    return int(found.group(1)) * _US[found.group(2).lower()] if found else 0


class Gate:
    """Counts in `counts.late` and `counts.dead`; late rows pass, so that Spark decides by itself and the result is Spark's. A dead letter
    that is replayed, and is late, is a letter again: it was sent by hand, and must not vanish into a count."""

    def __init__(self, node: GateNode, batch: int, counts: Counts, letters: Letters) -> None:
        self._node = node
        self._counts = counts
        self._letters = letters
        self.newest_us: int | None = None
        """how far the input alone would move the watermark; None before its first time"""
        self.leaves_us = 0
        """the watermark at which all rows have left the state"""
        self._watermark_us = watermark_us(node.offsets, batch - 1) - node.lag_us

    def __call__(self, chunk: Chunk) -> Chunk:
        """The rows that have a time."""
        node = self._node
        batch, _ = chunk.batch(node.schema)
        times = batch.column(node.mark.column)
        if times.null_count and node.grid is not None:
            chunk = self._bury_timeless(chunk, times)
            times = chunk.batch(node.schema)[0].column(node.mark.column)
        known = pc.drop_null(times).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
        if known.size:
            newest_us = int(known.max()) - round(node.mark.delay_s * 1e6)
            self.newest_us = newest_us if self.newest_us is None else max(self.newest_us, newest_us)
        ends = known if node.grid is None else node.grid.last_ends_us(known)
        if ends.size:
            self.leaves_us = max(self.leaves_us, min(NEVER_US, int(np.max(ends)) + node.holds_us))
        late = ends <= self._watermark_us
        if not late.any():
            return chunk
        rows = np.flatnonzero(times.is_valid().to_numpy(zero_copy_only=False))[late]
        asked = self._replayed(chunk, rows)
        self._counts.late += len(rows) - len(asked)
        return self._bury_late(chunk, times, asked) if len(asked) else chunk

    def _replayed(self, chunk: Chunk, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the rows that somebody has sent on their way by hand, and that can be letters again."""
        ordinals = chunk.ordinals
        if ordinals is None or not chunk.origin.has_replays:
            return rows[:0]
        asked = rows[chunk.origin.replayed(np.asarray(ordinals, np.int64)[rows])]
        return asked if len(asked) and self._letters.keeps(self._node.step) else rows[:0]

    def _bury_late(self, chunk: Chunk, times: pa.Array, rows: NDArray[np.int64]) -> Chunk:
        mark = instant_text(pa.array([self._watermark_us], pa.timestamp("us", tz=UTC)))
        for index in rows.tolist():
            at = instant_text(times.slice(index, 1))
            message = f'"{self._node.mark.column}" is {at}, and the watermark of the Query has passed it: {mark}'
            self._letters.bury(self._node.step, chunk, index, LATE, message)
            self._counts.dead += 1
        keep = np.ones(len(chunk), bool)
        keep[rows] = False
        return chunk.selected(keep.tolist())

    def _bury_timeless(self, chunk: Chunk, times: pa.Array) -> Chunk:
        for index in pc.indices_nonzero(times.is_null()).to_pylist():
            message = f'"{self._node.mark.column}" is null: the row belongs to no window'
            self._letters.bury(self._node.step, chunk, index, "null-time", message)
            self._counts.dead += 1
        return chunk.selected(times.is_valid().to_pylist())


def instant_text(instant: pa.Array) -> str:
    """The first of them: `2026-01-31T12:00:00Z`; of any year."""
    text = str(instant.cast(pa.timestamp("us", tz=UTC)).cast(pa.string())[0])
    return text.replace(" ", "T").replace(".000000", "")

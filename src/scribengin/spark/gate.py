"""Before a step that keeps state: count the rows that Spark will drop as late, and bury those that have no time at all.

Spark drops both without a word: late rows behind a partial aggregation are counted wrongly, rows with a null time not at all.
The comparison is Spark's own: a row is late when its last window ends at or before the watermark of the Batch before, or, where
there is no window, its time does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.spark.offset_log import watermark_us
from scribengin.spec.model import Aggregate, Sql

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.types import Schema
    from scribengin.spark.chunk import Chunk
    from scribengin.spark.letters import Letters
    from scribengin.spec.model import Action
    from scribengin.state.contract import Counts

_WINDOW = re.compile(r"\bwindow\s*\(\s*`?([\w.]+)`?\s*,\s*'([^']+)'\s*(?:,\s*'([^']+)'\s*)?\)", re.IGNORECASE)
_INTERVAL = re.compile(r"\s*(?:interval\s+)?(\d+)\s*(millisecond|second|minute|hour|day|week)s?\s*\Z", re.IGNORECASE)
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
    """`time` is the watermarked column; `size_us` and `slide_us` are 0 where the step has no window. `offsets` is the folder
    of Spark's offset log, which tells the watermark; the step's own trails it by `lag_us`."""

    node: str
    step: str
    inputs: tuple[str, ...]
    schema: Schema
    time: str
    size_us: int
    slide_us: int
    lag_us: int
    offsets: Path


def window_us(action: Action) -> tuple[int, int]:
    """(size, slide) in microseconds of the step's window; (0, 0) where there is none, or none that can be read off its text."""
    if isinstance(action, Aggregate) and action.window is not None:
        return round(action.window.size_s * 1e6), round(action.window.slide_s * 1e6)
    found = _WINDOW.search(action.text) if isinstance(action, Sql) else None
    if found is None:
        return 0, 0
    size = _interval_us(found.group(2))
    return size, _interval_us(found.group(3)) if found.group(3) else size


def _interval_us(text: str) -> int:
    found = _INTERVAL.match(text)
    return int(found.group(1)) * _US[found.group(2).lower()] if found else 0


class Gate:
    """Counts in `counts.late` and `counts.dead`; late rows pass, so that Spark decides by itself and the result is Spark's."""

    def __init__(self, node: GateNode, batch: int, counts: Counts, letters: Letters) -> None:
        self._node = node
        self._counts = counts
        self._letters = letters
        self._watermark_us = watermark_us(node.offsets, batch - 1) - node.lag_us

    def __call__(self, chunk: Chunk) -> Chunk:
        """The rows that have a time."""
        node = self._node
        batch, _ = chunk.batch(node.schema)
        times = batch.column(node.time)
        if times.null_count and node.size_us:
            chunk = self._bury_timeless(chunk, times)
            times = chunk.batch(node.schema)[0].column(node.time)
        known = pc.drop_null(times).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
        ends = known - known % node.slide_us + node.size_us if node.size_us and node.slide_us else known
        self._counts.late += int(np.count_nonzero(ends <= self._watermark_us))
        return chunk

    def _bury_timeless(self, chunk: Chunk, times: pa.Array) -> Chunk:
        for index in pc.indices_nonzero(times.is_null()).to_pylist():
            message = f'"{self._node.time}" is null: the row belongs to no window'
            self._letters.bury(self._node.step, chunk, index, "null-time", message)
            self._counts.dead += 1
        return chunk.selected(times.is_valid().to_pylist())

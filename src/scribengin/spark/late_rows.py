"""The late-row counter before a stateful step: handles rows that Spark would drop as late, and rows without a valid time.

Spark drops late rows and rows with a null time silently: it counts late ones after a partial aggregation wrongly, and others not at all.
The counter compares as Spark does: a row is late if its last window ends at or before the watermark of the previous Batch; without a
window, if its time is at or before that watermark. Everything else is read from Spark's offset log of the Batch, so that a Batch that runs
again gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from scribengin.core.errors import StepError
from scribengin.core.zones import UTC_NAME
from scribengin.plan.sql.shape import shape_of, windows_of
from scribengin.spark.offset_log import planned_us, watermark_us
from scribengin.spec.model import Aggregate, Dedupe, Join, Merge, Sql

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from scribengin.core.types import Schema
    from scribengin.plan.resolve import Inherited
    from scribengin.spark.chunk import Chunk
    from scribengin.spark.dead_letter_writer import DeadLetterWriter
    from scribengin.spec.model import Action, Late, Step
    from scribengin.state.contract import Counts


# Windows by a local clock. Both Spark's frames and the late-row counter use these functions. A window begins where the local clock shows a
# multiple of its size since the beginning of 1970, and ends where the next one begins. It is longer if the clock is set back in it, shorter
# if it is set forward. Spark's own `window` has fixed offsets only, and a shifted copy of the time column would carry no watermark: so the
# bounds are computed here, and the end column is marked as the one that closes a group.


_WATERMARK = "spark.watermarkDelayMs"
"""Spark's mark of a column that is compared with the watermark (EventTimeWatermark.delayKey); its value has no effect"""
_EPOCH = datetime(1970, 1, 1)
_US = timedelta(microseconds=1)
_QUARTER_US = 15 * 60 * 10**6
"""since 1972 no zone has changed its offset between two quarters of an hour"""
_WALL_US = ((datetime.min - _EPOCH) // _US, (datetime.max - _EPOCH) // _US)
_FIRST_US, _LAST_US = _WALL_US[0] + 86_400 * 10**6, _WALL_US[1] - 86_400 * 10**6
"""the instants for which a datetime exists in the local time of every zone"""


def with_local_window(df: DataFrame, *, time: str, size_s: float, zone: str, start: str, end: str) -> DataFrame:
    """`df` with the window of each row in two more columns.

    Args:
        df: The rows.
        time: The time column, quoted for Spark's parser.
        size_s: The size of a window in seconds.
        zone: The time zone.
        start: The name of the column for a window's start.
        end: The name of the column for its end; it is marked for the watermark.

    Raises:
        StepError: Java's tz database, which may be older than Python's, does not contain the zone.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sql

    jvm: Any = df.sparkSession._jvm
    try:
        jvm.java.time.ZoneId.of(zone, jvm.java.time.ZoneId.SHORT_IDS)
    except PySparkException as error:
        remedy = "use another time zone with the same rules, or install a newer Java"
        raise StepError(
            f"the tz database of this Java does not contain the time zone {zone}", remedy=remedy, code="time-zone-unknown"
        ) from error
    local = f"unix_micros(from_utc_timestamp({time}, '{zone}'))"
    size_us = round(size_s * 1e6)
    floor = f"({local} - pmod({local}, {size_us}))"
    bounds = {start: floor, end: f"({floor} + {size_us})"}
    instants = {name: sql.expr(f"to_utc_timestamp(timestamp_micros({bound}), '{zone}')") for name, bound in bounds.items()}
    return df.select("*", instants[start].alias(start), instants[end].alias(end, metadata={_WATERMARK: 0}))


def window_ends_us(times_us: np.ndarray[Any, np.dtype[np.int64]], size_us: int, zone: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The ends of the windows that contain the instants; all in microseconds since 1970, UTC. Runs Python code once for each distinct
    quarter of an hour."""
    region = ZoneInfo(zone)
    known = np.clip(times_us, _FIRST_US, _LAST_US)
    local = known + _each(known // _QUARTER_US, lambda quarter: _offset_us(quarter * _QUARTER_US, region))
    return _each(local - local % size_us + size_us, lambda wall: _instant_us(wall, region))


def _each(values: np.ndarray[Any, np.dtype[np.int64]], function: Callable[[int], int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    distinct, index = np.unique(values, return_inverse=True)
    return np.array([function(int(value)) for value in distinct], dtype=np.int64)[index]


def _offset_us(instant_us: int, region: ZoneInfo) -> int:
    offset = (_EPOCH + max(instant_us, _FIRST_US) * _US).replace(tzinfo=UTC).astimezone(region).utcoffset()
    assert offset is not None
    return offset // _US


def _instant_us(wall_us: int, region: ZoneInfo) -> int:
    """The first instant at which the region's local clock shows `wall_us`. For a local time that is skipped: the instant by the old offset,
    as in Java."""
    wall = _EPOCH + min(max(wall_us, _WALL_US[0]), _WALL_US[1]) * _US
    offset = wall.replace(tzinfo=region, fold=0).utcoffset()
    assert offset is not None
    return wall_us - offset // _US


NEVER_US = 2**63 - 1
"""a watermark that is never reached"""
LATE = "late"
"""the reason code of a dead letter that came after the watermark"""
AHEAD = "ahead"
"""the reason code of a dead letter whose time is further ahead of the clock than `ahead` allows"""


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """The windows of a step. A `session` window of a single row ends `size_us` after the row; other rows may make it longer."""

    size_us: int
    slide_us: int
    time_zone: str = UTC_NAME
    start_us: int = 0
    session: bool = False

    def last_ends_us(self, times_us: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """For each instant the end of the last window that contains it."""
        if self.time_zone != UTC_NAME:
            return window_ends_us(times_us, self.size_us, self.time_zone)
        if self.session:
            return times_us + self.size_us
        return times_us - (times_us - self.start_us) % self.slide_us + self.size_us


@dataclass(frozen=True, slots=True)
class LateRule:
    """Which rows a stateful step drops by their time."""

    drops: bool = True
    """False if the step drops no row for its time"""
    known: bool = True
    """False if its windows are unknown: a row that is before the watermark may still belong to an open window"""
    grid: WindowGrid | None = None
    timed: bool = False
    """True if a row without a time is in no result"""


def window_grid(action: Action) -> WindowGrid | None:
    """The windows of the step; None if it has no window, or if its SQL text does not define exactly one that can be read from it."""
    if isinstance(action, Aggregate) and action.window is not None:
        window = action.window
        return WindowGrid(round(window.size_s * 1e6), round(window.slide_s * 1e6), window.time_zone)
    found = windows_of(action.text) if isinstance(action, Sql) else None
    if found is None or len(found) != 1:
        return None
    (one,) = found
    return WindowGrid(one.size_us, one.slide_us, start_us=one.start_us, session=one.session)


def late_rule(step: Step, column: str) -> LateRule:
    """What the step does with rows by their time in `column`, which carries the watermark."""
    name, grid = column.lower(), window_grid(step.action)
    match step.action:
        case Aggregate(window=window, by=by):
            over = window is not None and window.time.lower() == name
            closes = over or name in {key.lower() for key in by}
            return LateRule(
                closes and step.emit != "complete", grid=grid if over else None, timed=over or (closes and step.emit == "append")
            )
        case Join() | Merge():
            return LateRule(timed=True)
        case Dedupe():
            return LateRule()
        case Sql(text):
            windows = windows_of(text)
            if step.emit == "complete":
                return LateRule(drops=False, grid=grid, timed=grid is not None)
            if grid is not None:
                return LateRule(grid=grid, timed=True)
            groups = shape_of(text, frozenset(step.inputs)).grouped_by
            if windows == frozenset() and (groups is None or step.emit == "append"):
                return LateRule(timed=groups is not None and name in groups)
            # under `update` a group by the watermark's own column closes; a group by an expression of it, or by other columns, does not
            return LateRule(drops=windows != frozenset() or groups is None or name in groups, known=False)
    return LateRule()


@dataclass(frozen=True, slots=True)
class GateNode:
    """The late-row counter of a stateful step.

    Attributes: node: The counter's own name. step: The step after it. inputs: The input. schema: The input's columns. mark: The watermark
    of the input. rule: What the step drops. late: What happens to late rows. lag_us: How far the step's watermark is behind that of the
    query, in µs. offsets: The folder of Spark's offset log, from which the watermark is read.
    """

    node: str
    step: str
    inputs: tuple[str, ...]
    schema: Schema
    mark: Inherited
    rule: LateRule
    late: Late
    lag_us: int
    holds_us: int
    """the longest time, after the end of its last window or after its own time, that the query keeps rows made from a row"""
    offsets: Path


class LateRowCounter:
    """Counts late rows in `counts`. By default they become dead letters, or they stop the task.

    Rows that are only counted are passed on, and Spark drops them. All rows are passed on if it is unknown which ones Spark would drop. A
    replayed dead letter that is late becomes a dead letter again, since an operator sent it and must see the result.
    """

    def __init__(self, node: GateNode, batch: int, counts: Counts, letters: DeadLetterWriter) -> None:
        self._node = node
        self._counts = counts
        self._letters = letters
        self.newest_us: int | None = None
        """the newest watermark that the input alone would give; None before its first time"""
        self.newest_at: int | None = None
        """the AT value of the row that gives it; None if that row does not come from a single record"""
        self.leaves_us = 0
        """the watermark at which all rows have left the state"""
        self._watermark_us = watermark_us(node.offsets, batch - 1) - node.lag_us
        ahead_s = node.mark.ahead_s
        self._clock_us = 0 if ahead_s is None else planned_us(node.offsets, batch)
        self._bound_us = None if ahead_s is None else self._clock_us + round(ahead_s * 1e6)

    def __call__(self, chunk: Chunk) -> Chunk:
        """The rows that are passed to the step."""
        rule = self._node.rule
        chunk, times, at_us = self._with_times(chunk)
        known = at_us if not times.null_count else at_us[times.is_valid().to_numpy(zero_copy_only=False)]
        if known.size:
            self._note_newest(chunk, at_us, int(known.max()))
        ends = known if rule.grid is None else rule.grid.last_ends_us(known)
        if ends.size:
            self.leaves_us = max(self.leaves_us, min(NEVER_US, int(np.max(ends)) + self._node.holds_us))
        late = ends <= self._watermark_us
        if not rule.drops or not late.any():
            return chunk
        rows = np.flatnonzero(times.is_valid().to_numpy(zero_copy_only=False))[late] if times.null_count else np.flatnonzero(late)
        buried = rows if self._node.late != "drop" and rule.known else self._replayed(chunk, rows)
        self._counts.late += len(rows) - len(buried)
        return self._bury_late(chunk, times, buried) if len(buried) else chunk

    def _with_times(self, chunk: Chunk) -> tuple[Chunk, pa.Array, NDArray[np.int64]]:
        """(the chunk without rows whose time is invalid, the times, the times in µs; a null time gives the smallest number)."""
        times = self._times(chunk)
        if times.null_count and self._node.rule.timed:
            chunk = self._bury_timeless(chunk, times)
            times = self._times(chunk)
        at_us = _instants(times)
        if self._bound_us is not None and at_us.size and int(at_us.max()) > self._bound_us:
            chunk = self._bury_ahead(chunk, times, np.flatnonzero(at_us > self._bound_us), self._bound_us)
            times = self._times(chunk)
            at_us = _instants(times)
        return chunk, times, at_us

    def _times(self, chunk: Chunk) -> pa.Array:
        return chunk.batch(self._node.schema)[0].column(self._node.mark.column)

    def _note_newest(self, chunk: Chunk, at_us: NDArray[np.int64], newest_us: int) -> None:
        reached_us = newest_us - round(self._node.mark.delay_s * 1e6)
        if self.newest_us is not None and reached_us <= self.newest_us:
            return
        self.newest_us = reached_us
        ordinal = chunk.ordinal(int(np.argmax(at_us == newest_us)))
        self.newest_at = None if ordinal is None else ordinal + chunk.origin.first_at

    def _replayed(self, chunk: Chunk, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the rows that are replayed dead letters; empty if late rows of the step do not become dead letters."""
        ordinals = chunk.ordinals
        if ordinals is None or not chunk.origin.has_replays:
            return rows[:0]
        asked = rows[chunk.origin.replayed(np.asarray(ordinals, np.int64)[rows])]
        return asked if len(asked) and self._letters.keeps(self._node.step) else rows[:0]

    def _bury_late(self, chunk: Chunk, times: pa.Array, rows: NDArray[np.int64]) -> Chunk:
        node, stops = self._node, self._node.late == "error"
        mark = instant_text(pa.array([self._watermark_us], pa.timestamp("us", tz=UTC_NAME)))
        remedy = f"set a longer delay of the watermark, or late: dead_letter at {node.step}, then run the flow again" if stops else ""
        for index, at in zip(rows.tolist(), instant_texts(times.take(pa.array(rows))), strict=True):
            message = f'"{node.mark.column}" is {at}, which is before the watermark of the query: {mark}'
            self._letters.bury(node.step, chunk, index, LATE, message, fate="fail" if stops else "dead_letter", remedy=remedy)
        self._counts.dead += len(rows)
        self._counts.late_dead += len(rows)
        return _without(chunk, rows)

    def _bury_ahead(self, chunk: Chunk, times: pa.Array, rows: NDArray[np.int64], bound_us: int) -> Chunk:
        clock, bound = instant_texts(pa.array([self._clock_us, bound_us], pa.timestamp("us", tz=UTC_NAME)))
        for index, at in zip(rows.tolist(), instant_texts(times.take(pa.array(rows))), strict=True):
            message = f'"{self._node.mark.column}" is {at}; expected at most {bound} (the Batch was planned at {clock})'
            self._letters.bury(self._node.step, chunk, index, AHEAD, message)
        self._counts.dead += len(rows)
        return _without(chunk, rows)

    def _bury_timeless(self, chunk: Chunk, times: pa.Array) -> Chunk:
        why = "the row belongs to no window" if self._node.rule.grid is not None else "the row cannot match another row"
        rows = np.flatnonzero(times.is_null().to_numpy(zero_copy_only=False))
        for index in rows.tolist():
            self._letters.bury(self._node.step, chunk, index, "null-time", f'"{self._node.mark.column}" is null: {why}')
        self._counts.dead += len(rows)
        return _without(chunk, rows)


def _instants(times: pa.Array) -> NDArray[np.int64]:
    """The times in microseconds since 1970; a null time gives the smallest number."""
    numbers = times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return np.asarray((numbers.fill_null(-(2**63)) if numbers.null_count else numbers).to_numpy(zero_copy_only=False), np.int64)


def _without(chunk: Chunk, rows: NDArray[np.int64]) -> Chunk:
    keep = np.ones(len(chunk), bool)
    keep[rows] = False
    return chunk.selected(keep.tolist())


def instant_text(instant: pa.Array) -> str:
    """The first instant as text: `2026-01-31T12:00:00Z`; works for every year."""
    return instant_texts(instant)[0]


def instant_texts(instants: pa.Array) -> list[str]:
    """Each instant as text: `2026-01-31T12:00:00Z`; works for every year. None of them may be null."""
    texts = instants.cast(pa.timestamp("us", tz=UTC_NAME)).cast(pa.string())
    return [text.replace(" ", "T").replace(".000000", "") for text in texts.to_pylist()]

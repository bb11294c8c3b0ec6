"""The figures of a tier over the last two weeks, in a few thousand samples of constant size, at any throughput. Three rings: one sample a
second for ten minutes, one every ten seconds for six hours, one every ten minutes for fourteen days."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STEPS_S = (1, 10, 600)
TREND_STEP_S = 10
_SPANS_S = (600, 6 * 3600, 14 * 86400)
_SPREAD, _SUMS = 3, 5
"""the number of columns that are distributed over time, and of those that are summed within a sample; of the others a sample keeps the
largest value"""
_SPREAD_S = 60
"""counts of a longer time are attributed to its last minute"""


@dataclass(frozen=True, slots=True)
class Increments:
    """The changes since the last call, and the present backlog; nan if unknown."""

    rows_in: float = 0.0
    rows_out: float = 0.0
    dead: float = 0.0
    batches: float = 0.0
    restarts: float = 0.0
    lag_rows: float = nan
    lag_bytes: float = nan
    lag_s: float = nan


_COLUMNS = tuple(field.name for field in fields(Increments))
BYTES = sum(span // step for span, step in zip(_SPANS_S, STEPS_S, strict=True)) * 4 * (len(_COLUMNS) + 1)
"""the most memory that the samples of one tier use: 172 kB"""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One sample. `at` is its start, in seconds since the epoch; rates are per second, `batches` and `restarts` are counts, backlogs the
    largest value in the sample."""

    at: float
    step_s: int
    rows_in_per_s: float
    rows_out_per_s: float
    dead_per_s: float
    batches: float
    restarts: float
    lag_rows: float | None
    lag_bytes: float | None
    lag_s: float | None


class _Ring:
    def __init__(self, step_s: int, span_s: int) -> None:
        self.step_s, self.span_s = step_s, span_s
        self._size = span_s // step_s
        self._slots = np.zeros(self._size, dtype=np.uint32)
        """the number of the sample in each slot; 0: none"""
        self._values = np.zeros((self._size, len(_COLUMNS)), dtype=np.float32)

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes + self._values.nbytes

    def add(self, since: float, at: float, moved: np.ndarray) -> None:
        last = int(at // self.step_s)
        first = min(last, int(max(since, at - _SPREAD_S) // self.step_s) + 1)
        slots = np.arange(first, last + 1)
        here = slots % self._size
        stale = self._slots[here] != slots
        old = here[stale]
        self._slots[old] = slots[stale]
        self._values[old, :_SUMS] = 0.0
        self._values[old, _SUMS:] = nan
        self._values[here, :_SPREAD] += moved[:_SPREAD] / len(slots)
        newest = here[-1]
        self._values[newest, _SPREAD:_SUMS] += moved[_SPREAD:_SUMS]
        self._values[newest, _SUMS:] = np.fmax(self._values[newest, _SUMS:], moved[_SUMS:])

    def newest(self, column: int, until: float, count: int) -> np.ndarray:
        """A column of the last `count` samples, up to the one that starts at `until` or before; nan for times without reports."""
        slots = np.arange(int(until // self.step_s) - count + 1, int(until // self.step_s) + 1)
        here = slots % self._size
        return np.where(self._slots[here] == slots, self._values[here, column], np.float32(nan))

    def between(self, since: float, until: float) -> Iterator[tuple[float, np.ndarray]]:
        """(start, values) of the samples that start between the two times, in order."""
        first, last = int(since // self.step_s), int(until // self.step_s)
        there = np.flatnonzero((self._slots > 0) & (self._slots >= max(first, 0)) & (self._slots <= last))
        for here in there[np.argsort(self._slots[there])]:
            yield float(self._slots[here]) * self.step_s, self._values[here]


class Series:
    """The samples of one tier. Not thread-safe."""

    def __init__(self) -> None:
        self._rings = tuple(_Ring(step, span) for step, span in zip(STEPS_S, _SPANS_S, strict=True))
        self.began: float | None = None
        """the time of the first sample"""
        self._last: float | None = None

    @property
    def nbytes(self) -> int:
        """The memory that the samples use, at most BYTES."""
        return sum(ring.nbytes for ring in self._rings)

    def add(self, at: float, moved: Increments) -> None:
        """Add increments at the time `at`, which never decreases."""
        if self.began is None:
            self.began = at
        values = np.array([getattr(moved, column) for column in _COLUMNS], dtype=np.float32)
        for ring in self._rings:
            ring.add(at if self._last is None else self._last, at, values)
        self._last = at

    def read(self, since: float, until: float, step_s: int = 0) -> list[MetricSample]:
        """The samples between two times, from the finest ring that covers them with samples of at least `step_s` seconds; none for times
        without reports. Times are in seconds since the epoch."""
        fine = [ring for ring in self._rings if ring.step_s >= step_s] or [self._rings[-1]]
        ring = next((ring for ring in fine if until - since <= ring.span_s), fine[-1])
        return [_sample(at, ring.step_s, values) for at, values in ring.between(max(since, until - ring.span_s), until)]

    def trend(self, column: str, until: float, count: int) -> np.ndarray:
        """As `trend_of`, for this tier alone; nan for times without reports."""
        ring = next(ring for ring in self._rings if ring.step_s == TREND_STEP_S)
        return ring.newest(_COLUMNS.index(column), until, count)

    def total(self, column: str, since: float, until: float) -> float:
        """The sum of a column (`rows_in`, `rows_out`, `dead`, `batches` or `restarts`) between two times, in seconds since the epoch."""
        ring = next((ring for ring in self._rings if until - since <= ring.span_s), self._rings[-1])
        index = _COLUMNS.index(column)
        return float(sum(values[index] for _, values in ring.between(since, until)))


def trend_of(tiers: Sequence[Series], column: str, until: float, count: int) -> list[float | None]:
    """The last `count` samples of TREND_STEP_S seconds of a backlog, summed over tiers, oldest first; None for times without reports."""
    lags = np.array([tier.trend(column, until, count) for tier in tiers])
    known = ~np.isnan(lags).all(axis=0)
    return [float(lag) if there else None for lag, there in zip(np.nansum(lags, axis=0), known, strict=True)]


def _sample(at: float, step_s: int, values: np.ndarray) -> MetricSample:
    rows_in, rows_out, dead, batches, restarts, *lags = (float(value) for value in values)
    lag_rows, lag_bytes, lag_s = (None if isnan(lag) else lag for lag in lags)
    return MetricSample(at, step_s, rows_in / step_s, rows_out / step_s, dead / step_s, batches, restarts, lag_rows, lag_bytes, lag_s)

"""Which cells there are, which are open, and which comes next: a pairwise sample that goes on where it stopped.

Done is what issue 3 asks: each way to strike at each point once per format, three times where a Batch is published or recovered.
Beyond that the sample seeks pairs that never met: a point with a kind of Query, a kind of Query with a format, and so on.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from scribengin.core.faults import POINTS
from scribengin.testing.faults.cases import Cell
from scribengin.testing.faults.flows import FORMATS, KINDS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from scribengin.testing.faults.cases import Outcome

_PUBLISH = tuple(point for point in POINTS if point.startswith("publish."))
_RECOVERY = tuple(point for point in POINTS if point.startswith("recovery."))
PLACES = {
    "kill": POINTS,
    "die": POINTS,
    "enospc": ("source.logged", "stage.mid_write", "stage.closed", "decide.before", "publish.record.before", "recovery.before"),
    "recovery": ("lease.taken", *_RECOVERY, "batch.entry", *_PUBLISH, "commit.before"),
    "full": ("out", "state"),
    "two": POINTS,
    "copy": ("stage.after", "decide.after", "publish.renamed"),
    "moved": ("stage.after", "decide.after", "publish.record.after", "commit.before"),
    "edit": ("batch.entry", "stage.after", "decide.before", "decide.after", "publish.record.after"),
}
"""Way to strike → where."""
SPOTS = tuple((way, point) for way, points in PLACES.items() for point in points)
_OFTEN = 3
_WEIGHT_OF_TARGET = 8

Pair = tuple[str, str]


def wanted(way: str, point: str) -> int:
    """How many seeds a spot needs in each format."""
    return _OFTEN if way == "recovery" or point in (*_PUBLISH, *_RECOVERY) else 1


def all_cells(only: str = "") -> Iterator[Cell]:
    """Every cell whose text holds `only` (`publish`, `two@`, `parquet`, …)."""
    for (way, point), kind, format, partitioned in itertools.product(SPOTS, KINDS, FORMATS, (False, True)):
        cell = Cell(way, point, kind, format, partitioned)
        if only in str(cell):
            yield cell


class Sample:
    """What was tried so far, and what comes next."""

    def __init__(self, outcomes: Iterable[Outcome], only: str = "") -> None:
        self._cells = list(all_cells(only))
        self._pairs: set[Pair] = set()
        self._targets: Counter[tuple[str, str, str]] = Counter()
        self._tried: Counter[Cell] = Counter()
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
        """Note a case that was run."""
        self._tried[outcome.cell] += 1
        if outcome.verdict in ("passed", "skipped"):
            self._pairs.update(_pairs(outcome.cell))
            self._targets[_target(outcome.cell)] += 1

    def choose(self, rng: random.Random) -> Cell | None:
        """The cell that covers most of what is open; None where no cell answers to `only`."""
        if not self._cells:
            return None
        return max(self._cells, key=lambda cell: (self._gain(cell), rng.random()))

    def _gain(self, cell: Cell) -> float:
        target = self._targets[_target(cell)] < wanted(cell.way, cell.point)
        fresh = len(_pairs(cell) - self._pairs)
        # a cell that failed, or whose point was not reached, waits until others had their turn
        return target * _WEIGHT_OF_TARGET + fresh - _WEIGHT_OF_TARGET * self._tried[cell]


def _pairs(cell: Cell) -> frozenset[Pair]:
    values = (f"{cell.way}@{cell.point}", cell.kind, cell.format, f"partitioned {cell.partitioned}")
    return frozenset(itertools.combinations(values, 2))


def _target(cell: Cell) -> tuple[str, str, str]:
    return cell.way, cell.point, cell.format

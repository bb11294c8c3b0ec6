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

Pair = tuple[str, str]
Target = tuple[str, str, str]
"""way, point, format"""


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
        self._cells: dict[Target, list[Cell]] = {}
        for cell in all_cells(only):
            self._cells.setdefault(_target(cell), []).append(cell)
        self._pairs: set[Pair] = set()
        self._passed: Counter[Target] = Counter()
        self._tried: Counter[Target | Cell] = Counter()
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
        """Note a case that was run."""
        target = _target(outcome.cell)
        self._tried.update((target, outcome.cell))
        if outcome.verdict in ("passed", "skipped"):
            self._pairs.update(_pairs(outcome.cell))
            self._passed[target] += 1

    def choose(self, rng: random.Random) -> Cell | None:
        """The next cell: of an open target, one that makes most pairs meet; None where no cell answers to `only`.

        What failed, or was not reached, waits until the others had their turn.
        """
        if not self._cells:
            return None
        target = max(self._cells, key=lambda target: (self._is_open(target), -self._tried[target], rng.random()))
        return max(self._cells[target], key=lambda cell: (len(_pairs(cell) - self._pairs), -self._tried[cell], rng.random()))

    def _is_open(self, target: Target) -> bool:
        way, point, _ = target
        return self._passed[target] < wanted(way, point)


def _pairs(cell: Cell) -> set[Pair]:
    values = (f"{cell.way}@{cell.point}", cell.kind, cell.format, f"partitioned {cell.partitioned}")
    return set(itertools.combinations(values, 2))


def _target(cell: Cell) -> Target:
    return cell.way, cell.point, cell.format

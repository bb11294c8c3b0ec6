"""What a test takes and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scribengin.core.problems import Place, Problem
    from scribengin.core.types import Schema
    from scribengin.state.contract import Counts, DeadLetter

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """An expected row and one that came, most alike of those left over; None where there is none. `differ`: the columns that do."""

    expected: Row | None
    got: Row | None
    differ: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as expected. `pairs` are rows side by side, `columns` what they were compared by."""

    where: str
    """`sink kept`, `dead letters`"""
    what: str
    """a sentence part: `1 row is missing, 2 came that nobody expected`"""
    place: Place
    columns: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    parted: tuple[str, ...] = ()
    """sentences that say at which step expectation and result parted"""
    node: str = ""
    """the sink; empty for dead letters"""
    matched: bool = True
    """`pairs` are rows that are missing or too many; False where rows were only counted, or stand in another order: nothing has parted"""

    def as_json(self) -> dict[str, Any]:
        """One of `differences` of `test --json`."""
        from scribengin.formats.written_values import written_value

        pairs = [
            {"expected": written_value(each.expected), "got": written_value(each.got), "differ": list(each.differ)} for each in self.pairs
        ]
        return {"where": self.where, "what": self.what, "place": str(self.place), "pairs": pairs, "parted": list(self.parted)}


@dataclass(frozen=True, slots=True)
class Result:
    """What a flow made of what it was given."""

    state: str
    """`finished`, `failed`"""
    outputs: Mapping[str, Sequence[Row]]
    """sink → its rows, in the order of Batch and task"""
    columns: Mapping[str, Schema]
    """sink → what its rows have"""
    dead: Sequence[DeadLetter]
    ledger: Mapping[str, Counts]
    """node (or run of native steps, `a+b`) → its counts; of several Queries that read it, what the first one says"""
    balanced: bool
    violations: Sequence[str] = ()
    problems: Sequence[Problem] = ()
    """why a Query failed"""

    def __getitem__(self, sink: str) -> Sequence[Row]:
        """The rows of a sink. KeyError where there is no such sink."""
        return self.outputs[sink]


@dataclass(frozen=True, slots=True)
class FlowTestOutcome:
    """One test."""

    flow: str
    file: str
    """of the flow"""
    name: str
    place: Place
    seconds: float
    differences: tuple[Difference, ...] = ()
    problems: tuple[Problem, ...] = ()
    """why it could not run to its end"""
    result: Result | None = field(default=None, repr=False)

    @property
    def passed(self) -> bool:
        """All was as expected."""
        return not self.differences and not self.problems

    def as_json(self) -> dict[str, Any]:
        """One of `tests` of `test --json`."""
        return {
            "flow": self.flow,
            "name": self.name,
            "place": str(self.place),
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "differences": [each.as_json() for each in self.differences],
            "problems": [problem.as_json() for problem in self.problems],
            "ledger": {} if self.result is None else {node: counts.as_json() for node, counts in self.result.ledger.items()},
        }

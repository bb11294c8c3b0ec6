"""The inputs and results of a test."""

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
    """An expected row and the most similar found row; None if there is none. `differ`: the columns that differ."""

    expected: Row | None
    got: Row | None
    differ: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference from the expectation. `pairs` are rows side by side, `columns` the compared columns."""

    where: str
    """`sink kept`, `dead letters`"""
    what: str
    """part of a sentence: `1 expected row is missing, 2 rows that were not expected`"""
    place: Place
    columns: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    parted: tuple[str, ...] = ()
    """sentences on the step at which the result began to differ"""
    node: str = ""
    """the sink; empty for dead letters"""
    matched: bool = True
    """True if `pairs` are missing or surplus rows; False if rows were only counted, or only their order differs"""

    def as_json(self) -> dict[str, Any]:
        """The difference as one of `differences` of `test --json`."""
        from scribengin.formats.written_values import written_value

        pairs = [
            {"expected": written_value(each.expected), "got": written_value(each.got), "differ": list(each.differ)} for each in self.pairs
        ]
        return {"where": self.where, "what": self.what, "place": str(self.place), "pairs": pairs, "parted": list(self.parted)}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a flow on the input of a test."""

    state: str
    """`finished`, `failed`"""
    outputs: Mapping[str, Sequence[Row]]
    """sink → its rows, in the order of Batch and task"""
    columns: Mapping[str, Schema]
    """sink → the schema of its rows"""
    dead: Sequence[DeadLetter]
    ledger: Mapping[str, Counts]
    """node (or `a+b` for steps that Spark runs together) → its counts; if several queries read it, the counts of the first one"""
    balanced: bool
    violations: Sequence[str] = ()
    problems: Sequence[Problem] = ()
    """why a query failed"""

    def __getitem__(self, sink: str) -> Sequence[Row]:
        """The rows of a sink. Raises KeyError if there is no such sink."""
        return self.outputs[sink]


@dataclass(frozen=True, slots=True)
class FlowTestOutcome:
    """The result of one test of a flow."""

    flow: str
    file: str
    """the path of the flow's file"""
    name: str
    place: Place
    seconds: float
    differences: tuple[Difference, ...] = ()
    problems: tuple[Problem, ...] = ()
    """why it could not finish"""
    result: Result | None = field(default=None, repr=False)

    @property
    def passed(self) -> bool:
        """True if everything was as expected."""
        return not self.differences and not self.problems

    def as_json(self) -> dict[str, Any]:
        """The outcome as one of `tests` of `test --json`."""
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

"""Tests that a flow declares: the input of its sources and the expected rows of its sinks. Values are as written in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from scribengin.spec.places import Path

CrashPoint = Literal["staged", "decided", "published"]
ALL = ""
"""the key of `FlowTest.dead` for all steps together"""


@dataclass(frozen=True, slots=True)
class GivenRows:
    """The input of one source in one Batch: rows, each a mapping or the text of a raw record; or files."""

    rows: tuple[Mapping[str, Any] | str, ...] = ()
    files: tuple[str, ...] = ()
    at: Path = field(default=(), compare=False)
    """the path of the rows inside the test"""


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected output: exactly `rows`, at least those of `contains`, the number `count`, or exactly the rows in `files`."""

    rows: tuple[Mapping[str, Any], ...] | None = None
    contains: tuple[Mapping[str, Any], ...] | None = None
    count: int | None = None
    files: tuple[str, ...] = ()
    ordered: bool = False
    """True if `rows` and `files` must be in this order"""
    at: Path = field(default=(), compare=False)
    """the path of this expectation inside the test"""


@dataclass(frozen=True, slots=True)
class VersionChange:
    """From that Batch on, another flow runs instead of this one: the flow of a file, or this one with a patch applied."""

    before: int
    """the first Batch that the changed flow runs, at least 2"""
    flow: str = ""
    patch: Mapping[str, Any] = field(default_factory=dict)
    at: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Crash:
    """The process crashes in that Batch, counted from 1, when it reaches `point`; another process continues."""

    batch: int
    point: CrashPoint = "decided"


@dataclass(frozen=True, slots=True)
class FlowTest:
    """One test. `given`: source → its input, Batch by Batch; each Batch is delivered after the one before it is committed."""

    name: str
    given: Mapping[str, tuple[GivenRows, ...]] = field(default_factory=dict)
    expect: Mapping[str, Expected] = field(default_factory=dict)
    """sink → its expected rows at the end"""
    dead: Mapping[str, Expected] | None = None
    """step → its expected dead letters, or `ALL` → those of all steps; None: no dead letters are expected"""
    clock: tuple[datetime, ...] = ()
    """the current time in SQL, Batch by Batch; the last one applies to all further Batches. Empty: the machine's clock"""
    crash: Crash | None = None
    changes: tuple[VersionChange, ...] = ()
    index: int = field(default=0, compare=False)
    """its index in the list of tests"""

    @property
    def batches(self) -> int:
        """The number of Batches in `given`; at least one."""
        given = [len(batches) for batches in self.given.values()]
        return max(1, len(self.clock), *given, *(change.before for change in self.changes))

"""Tests that a flow declares: what its sources are given, and what is expected of its sinks. Values are as the file writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from scribengin.spec.places import Path

CrashPoint = Literal["staged", "decided", "published"]
ALL = ""
"""the key of `FlowTest.dead` that stands for all steps together"""


@dataclass(frozen=True, slots=True)
class GivenRows:
    """What one Batch brings to one source: rows, each a mapping or the text of a raw record; or files as they are."""

    rows: tuple[Mapping[str, Any] | str, ...] = ()
    files: tuple[str, ...] = ()
    at: Path = field(default=(), compare=False)
    """where the rows stand, from the test on"""


@dataclass(frozen=True, slots=True)
class Expected:
    """What must have come out: these `rows` and no others, those of `contains` among others, so many (`count`), or what `files` hold."""

    rows: tuple[Mapping[str, Any], ...] | None = None
    contains: tuple[Mapping[str, Any], ...] | None = None
    count: int | None = None
    files: tuple[str, ...] = ()
    ordered: bool = False
    """`rows` and `files` in this order; else in any"""
    at: Path = field(default=(), compare=False)
    """where it stands, from the test on"""


@dataclass(frozen=True, slots=True)
class VersionChange:
    """From that Batch on another flow runs in the place of this one: that of a file, or this one with a patch over its text."""

    before: int
    """the first Batch that it runs, from 2"""
    flow: str = ""
    patch: Mapping[str, Any] = field(default_factory=dict)
    at: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Crash:
    """The process dies in that Batch, counted from 1, once that much of it is done, and another one goes on."""

    batch: int
    point: CrashPoint = "decided"


@dataclass(frozen=True, slots=True)
class FlowTest:
    """One test. `given`: source → what it gets Batch by Batch; each Batch comes when the one before is committed."""

    name: str
    given: Mapping[str, tuple[GivenRows, ...]] = field(default_factory=dict)
    expect: Mapping[str, Expected] = field(default_factory=dict)
    """sink → what it must have received in the end"""
    dead: Mapping[str, Expected] | None = None
    """step → its dead letters, or `ALL` → those of all steps; None: there must be none"""
    clock: tuple[datetime, ...] = ()
    """what SQL takes for now, Batch by Batch; the last one holds on. Empty: the machine's"""
    crash: Crash | None = None
    changes: tuple[VersionChange, ...] = ()
    index: int = field(default=0, compare=False)
    """where it stands in its list"""

    @property
    def batches(self) -> int:
        """How many Batches are given; at least one."""
        given = [len(batches) for batches in self.given.values()]
        return max(1, len(self.clock), *given, *(change.before for change in self.changes))

"""What a master sees in one look: what is wanted, what is, and when. Values only; `observe` fills them, `decide` reads them.

Each record has one writer (docs/registry.md): what is *wanted* of a flow comes from people through any master's API, what is *wanted* of a
tier and which worker is to serve it from the leading master, a *report* and the lease from the worker itself, a *process* from a launcher.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Goal = Literal["running", "paused", "drained", "stopped"]
"""`paused`: no new Batch, the process stays. `drained`: what was there when it was asked goes through all tiers, then the processes end.
`stopped`: the Batches under way end, then the processes."""

FlowState = Literal[
    "created", "starting", "running", "degraded", "pausing", "paused", "draining", "stopping", "stopped", "failed", "recovering"
]

WorkerState = Literal["starting", "running", "degraded", "recovering", "paused", "drained", "stopped", "failed"]
"""What a worker says of its tier. `recovering`: a Query of it failed for a passing reason and will start again by itself.
`degraded`: a Query of it failed for good, the others go on."""

ProcessState = Literal["starting", "running", "exited", "gone"]
"""What a launcher says. `gone`: there is no such process any more, and nobody knows how it ended."""


_WORKER = re.compile(r"([^.]+)\.([^.]+)-(\d+)")


class RunId(NamedTuple):
    """Which start of which tier's worker; `str` is the worker's name."""

    flow: str
    tier: str
    number: int

    def __str__(self) -> str:
        return f"{self.flow}.{self.tier}-{self.number}"

    @staticmethod
    def parse(worker: str) -> RunId | None:
        """The run of a worker's name; None of what is no such name.

        >>> RunId.parse("tweets.core-3")
        RunId(flow='tweets', tier='core', number=3)
        """
        found = _WORKER.fullmatch(worker)
        return None if found is None else RunId(found[1], found[2], int(found[3]))


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of a flow: a person's word. `generation` rises with each change of it, also with one that asks for the same again."""

    version: int
    goal: Goal
    generation: int


@dataclass(frozen=True, slots=True)
class TierWish:
    """What is wanted of a tier's worker now; it follows the flow's wish, in the order that loses nothing."""

    version: int
    goal: Goal
    generation: int
    """the flow's that it was made from: a worker says back which it has reached"""


@dataclass(frozen=True, slots=True)
class Run:
    """Which worker is to serve a tier. Written before the worker is started, so that the next master knows of it."""

    number: int
    """rises by one with each start, over the whole life of the tier"""
    node: str
    asked_at: float
    generation: int
    """of the wish that it was started for"""
    leased: bool = False
    """it was seen to hold the lease"""
    unleased_since: float | None = None
    """since when it holds the lease no more"""
    ended_at: float | None = None
    """it is over: its process has ended, or was given up"""
    failures: int = 0
    """ends in a row without progress, of this run and those before it"""
    cause: str = ""
    """why it ended"""
    remedy: str = ""
    permanent: bool = False
    """starting again would end the same way"""


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says of itself, in the registry, at each change of its state."""

    run: int
    generation: int
    """which wish it acts on"""
    version: int
    state: WorkerState
    commits: int = 0
    """Batches since it began, as of this report"""
    cause: str = ""
    remedy: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds a tier's lease, and with which Term."""

    run: int
    term: int


@dataclass(frozen=True, slots=True)
class TierSeen:
    """One tier of a flow. `feeders` are the tiers that write what it reads."""

    tier: str
    feeders: frozenset[str] = frozenset()
    node: str = ""
    """the physical node that it is mapped to; empty: any"""
    wish: TierWish | None = None
    run: Run | None = None
    report: Report | None = None
    lease: LeaseHolder | None = None


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """How a flow stands, for people: `flows/<flow>/status`, written by the leading master where it changes."""

    state: FlowState
    since: float
    reason: str = ""
    next_action: str = ""
    version: int = 0

    def same(self, other: FlowStatus | None) -> bool:
        """True where both say the same, whenever it began."""
        return other is not None and replace(self, since=other.since) == other


@dataclass(frozen=True, slots=True)
class FlowSeen:
    """One flow. `tiers` are those of all versions that have, or may still have, a worker."""

    name: str
    wish: Wish
    tiers: Mapping[str, TierSeen]
    status: FlowStatus | None = None
    wanted_tiers: frozenset[str] | None = None
    """those of the wanted version; None: all"""


@dataclass(frozen=True, slots=True)
class Process:
    """A worker as its launcher sees it."""

    node: str
    state: ProcessState
    status: int | None = None
    """exit status; None where it has not ended or nobody knows"""

    @property
    def ended(self) -> bool:
        """True where nothing of it runs any more."""
        return self.state in ("exited", "gone")


@dataclass(frozen=True, slots=True)
class Node:
    """A physical node that can take workers: its launcher answers."""

    decommissioned: bool = False
    """it keeps what it has until that has ended in order, and gets nothing new"""


@dataclass(frozen=True, slots=True)
class World:
    """One look. `now` is in seconds since 1970, by the clock of the master that looks."""

    now: float
    flows: Mapping[str, FlowSeen] = field(default_factory=dict)
    processes: Mapping[RunId, Process] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """those that answer now"""
    unreadable: frozenset[str] = frozenset()
    """flows whose records are damaged: of these nothing is known, so that nothing of theirs is touched"""

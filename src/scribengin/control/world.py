"""What a master sees in one look: what is wanted, what is, and when. Values only; `observe` fills them, `decide` reads them.

Each record has one writer (docs/registry.md): what is *wanted* of a flow comes from people through any master's API, what is *wanted* of a
tier and which worker is to serve it from the leading master, a *report* and the lease from the worker itself, a *process* from a launcher.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scribengin.registry.watched import AlertSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.registry.kinds import Goal, GroupName, Operation, Report, Run, Share, StatusRecord, TierWish, WorkflowOperationRecord
    from scribengin.registry.outside import HeldBackSinks, Waters
    from scribengin.registry.peers import Peer, PeerState, RemoteFlow
    from scribengin.registry.records import Spot

NOT_WATCHED = AlertSettings()

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
    """What is wanted of a flow: a person's word, or a line in ZooKeeper's shell. `generation` is the revision that wrote it: it rises with
    each write, also with one that asks for the same again."""

    version: int
    goal: Goal
    generation: int
    operation: str = ""
    """the newest operation"""
    accepts: Mapping[str, str] = field(default_factory=dict)
    """as in `Desired`: who asks for another goal of the same version takes no agreement back"""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds a tier's lease, and with which Term."""

    run: int
    term: int


@dataclass(frozen=True, slots=True)
class ObservedTier:
    """One tier of a flow. `feeders` are the tiers that write what it reads."""

    tier: str
    feeders: frozenset[str] = frozenset()
    node: str = ""
    """the physical node that it is mapped to; empty: any"""
    cores: int = 1
    """what its worker takes of its node"""
    memory_bytes: int = 0
    version: int = 0
    """the version whose workers serve it as it is wanted; 0: the flow's"""
    process: int = 0
    """workers of that version, or of a later one, go on with it between two Batches; 0: others are to be started"""
    wish: TierWish | None = None
    run: Run | None = None
    report: Report | None = None
    lease: LeaseHolder | None = None
    leased_before: int = 0
    """the run that took its lease last; only where no run is noted"""
    standby: bool = False
    """a spare is wanted"""
    spare: Run | None = None
    spare_report: Report | None = None
    folders: tuple[str, ...] = ()
    """those that its sinks write into"""
    executors: int = 1
    """each with so many cores and so much memory, where its node has executors; quotas count them everywhere"""
    group: str = ""
    """the group of hosts on which it runs; empty: any host"""
    hosts: Mapping[str, float] = field(default_factory=dict)
    """node or host name of each member of that group → cost"""
    names: GroupName | None = None
    """what is to be written of its group; None where it stands there"""


class Delay(NamedTuple):
    """How old the oldest thing is that waits in a flow, and what holds it up, in words."""

    seconds: float
    cause: str = ""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An operation that is not over, and the name of its record."""

    id: str
    operation: Operation


@dataclass(frozen=True, slots=True)
class FlowSeen:
    """One flow. `tiers` are those of all versions that have, or may still have, a worker."""

    name: str
    wish: Wish
    tiers: Mapping[str, ObservedTier]
    status: StatusRecord | None = None
    wanted_tiers: frozenset[str] | None = None
    """those of the wanted version; None: all"""
    each: frozenset[str] = frozenset()
    """those of its tiers that have a worker on each host; `places.on_each_host` adds the helpers"""
    refused: Mapping[str, Any] = field(default_factory=dict)
    """what of it people have written by hand and cannot be (`control.refusals`)"""
    damaged: tuple[Spot[Any], ...] = ()
    """records that masters or workers make anew, once they are out of the way; till then nothing is decided about the flow"""
    watched: AlertSettings = NOT_WATCHED
    """what its wanted version says of delay and alerts"""
    under_way: UnderWay | None = None
    """the operation that the flow waits for"""
    labels: Mapping[str, str] = field(default_factory=dict)
    """of its wanted version"""
    share: Share | None = None
    """what it was allotted last of the rows a second of its quotas"""
    held_back: HeldBackSinks | None = None
    """by flows that read what it writes"""
    waters: Mapping[str, Waters] = field(default_factory=dict)
    """source → how much may wait there"""
    hosted: frozenset[tuple[str, str]] = frozenset()
    """(node, worker) of those that are shown to run there"""


@dataclass(frozen=True, slots=True)
class Allowance:
    """A quota: what flows with a label may take together; None: as much as there is."""

    label: str
    value: str
    cores: int | None = None
    memory_bytes: int | None = None
    rows_per_s: float | None = None
    closed: str = ""
    """why its record says nothing; then nothing more starts under it, and shares stay as they are"""

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Whether a flow with these labels is one of them."""
        return labels.get(self.label) == self.value


@dataclass(frozen=True, slots=True)
class BlockedFlow:
    """A flow of which nobody can know what is to be done: nothing of it is touched, its workers go on. `why` ends a sentence."""

    status: StatusRecord | None
    why: str
    next: str
    refused: Mapping[str, Any] = field(default_factory=dict)
    damaged: tuple[Spot[Any], ...] = ()
    last: FlowSeen | None = None
    """as it was before: what its workers have taken; None where this master has never seen it so"""
    is_new: bool = False
    """no version of it was ever wanted"""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker as its launcher sees it."""

    node: str
    state: ProcessState
    status: int | None = None
    """exit status; None where it has not ended or nobody knows"""
    reason: str = ""
    """why it is not there, in the launcher's words"""

    @property
    def how_ended(self) -> str:
        """In words, with what the launcher says of one that did not end by itself."""
        if self.state == "exited" and ((self.status or 0) >= 0 or not self.reason):
            return f"its process ended with status {self.status}"
        how = "its process has ended" if self.state == "exited" else "its process is gone"
        return f"{how}: {self.reason}" if self.reason else how

    @property
    def ended(self) -> bool:
        """True where nothing of it runs any more."""
        return self.state in ("exited", "gone")


@dataclass(frozen=True, slots=True)
class WorkerNode:
    """A physical node that can take workers: its launcher answers."""

    decommissioned: bool = False
    """it keeps what it has until that has ended in order, and gets nothing new"""
    free_cores: int | None = None
    """what its further workers may have; None: there is no limit"""
    free_memory_bytes: int | None = None
    host: str = ""
    """the name of its machine"""


class DownstreamReader(NamedTuple):
    """A source of another flow that reads what a sink writes, and says how much may wait there."""

    sink: str
    flow: str
    source: str


class SourceBacklog(NamedTuple):
    """What waits at a source, as its worker said last."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class World:
    """One look. `now` is in seconds since 1970, by the clock of the master that looks."""

    now: float
    flows: Mapping[str, FlowSeen] = field(default_factory=dict)
    processes: Mapping[RunId, WorkerProcess] = field(default_factory=dict)
    nodes: Mapping[str, WorkerNode] = field(default_factory=dict)
    """those that answer now"""
    held: Mapping[str, BlockedFlow] = field(default_factory=dict)
    """flows that are in none of `flows`, because their records say nothing"""
    workflows: Mapping[str, WorkflowOperationRecord] = field(default_factory=dict)
    """operations over workflows that are under way, by the names of their records"""
    readers: Mapping[str, tuple[DownstreamReader, ...]] = field(default_factory=dict)
    """flow → those that may hold it back"""
    peers: Mapping[str, Peer] = field(default_factory=dict)
    """other control planes"""
    peer_states: Mapping[str, PeerState] = field(default_factory=dict)
    """of those that have been asked"""
    remote: Mapping[str, RemoteFlow] = field(default_factory=dict)
    """flows of peers that meet flows here, by their names here"""
    waiting: Mapping[tuple[str, str], SourceBacklog] = field(default_factory=dict)
    """(flow, source) → what waits there, of those that say how much may; those of which nobody has said anything are not in it"""
    delays: Mapping[str, Delay] = field(default_factory=dict)
    """flow → what its workers say; those of which nobody has said anything yet are not in it"""
    quotas: Mapping[str, Allowance] = field(default_factory=dict)
    """by name, `label=value`"""
    idle: Mapping[str, bool] = field(default_factory=dict)
    """flow → whether it has read nothing for a while; those of which nobody can say it are not in it"""
    files: Mapping[str, int] = field(default_factory=dict)
    """flow → the text of a flow file that is to be taken up (`control.flow_files`)"""

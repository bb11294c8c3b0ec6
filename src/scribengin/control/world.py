"""One observation of a master: desired state, actual state, and time. Values only: `snapshot.Observer` creates them, `decide` reads them.

Each record has one writer (docs/registry.md): the *desired state* of a flow comes from users through any master's API, the *desired state*
of a tier and the assignment of its worker from the leading master, a *report* and the lease from the worker itself, a *process* from a
launcher.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, assert_never

from scribengin.registry.records import AlertSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.control.autoscale import TierLoad
    from scribengin.registry.flow_ends import HeldBackSinks, Waters
    from scribengin.registry.peers import Peer, PeerState, RemoteFlow
    from scribengin.registry.record_io import Spot
    from scribengin.registry.records import (
        AgentTierSpec,
        AutoscaleSpec,
        Desired,
        Goal,
        GroupName,
        Hosted,
        Operation,
        Report,
        Run,
        Share,
        StatusRecord,
        TierSizes,
        TierWish,
        WorkflowOperationRecord,
    )


# The actions of a master. Each may be performed twice, by two masters, with the effect of one: writes are under the Term, starts name the
# run.


@dataclass(frozen=True, slots=True)
class SetWorkerGoal:
    """Write the desired state of a tier's worker."""

    flow: str
    tier: str
    wish: TierWish


@dataclass(frozen=True, slots=True)
class Start:
    """Write the run, then order the launcher of its node to start it. It also repairs a start in which a master died between the two."""

    flow: str
    tier: str
    run: Run
    spare: bool = False
    """it is a standby"""


@dataclass(frozen=True, slots=True)
class Note:
    """Write the present data of a run."""

    flow: str
    tier: str
    run: Run
    spare: bool = False


@dataclass(frozen=True, slots=True)
class FreeLease:
    """Remove the lease of a run whose process is known to have ended, without waiting for its session to expire."""

    run: RunId


@dataclass(frozen=True, slots=True)
class Kill:
    """Order the launcher to kill a worker at once. What it had decided stays; nothing else of it is visible."""

    run: RunId
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Order the launcher to remove its record of a worker whose end is recorded."""

    run: RunId
    node: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Write the status of a flow."""

    flow: str
    status: StatusRecord


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move a damaged record aside, with its bytes; it is created again from what is observed."""

    flow: str
    spot: Spot[Any]


@dataclass(frozen=True, slots=True)
class OperationStep:
    """Write the step of an operation."""

    flow: str
    id: str
    operation: Operation


@dataclass(frozen=True, slots=True)
class Ask:
    """Write the desired state of a flow: an operation over its workflow has reached it, or the operation with which a version was to start
    has failed, and the previous version becomes the desired one again."""

    flow: str
    operation: str
    wanted: Desired


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Write which sinks of a flow are throttled."""

    flow: str
    held_back: HeldBackSinks


@dataclass(frozen=True, slots=True)
class NoteSizes:
    """Write what is thought of the sizes of a flow's tiers with `autoscale`."""

    flow: str
    sizes: TierSizes


@dataclass(frozen=True, slots=True)
class ScaleTier:
    """Make a version of the flow in which a tier has this number of executors, and write `sizes`."""

    flow: str
    tier: str
    version: int
    """the version that the new one follows; nothing is done if another one is the desired one by now"""
    executors: int
    change: str
    """the change and the reason, for people"""
    sizes: TierSizes
    partitions: int = 0
    """the number of partitions over which an operation distributes the state of the tier before the version starts; 0: none does"""


@dataclass(frozen=True, slots=True)
class Advance:
    """Write the step of an operation over a workflow."""

    id: str
    operation: WorkflowOperationRecord


@dataclass(frozen=True, slots=True)
class Allot:
    """Write a flow's share of the rows per second of its quotas."""

    flow: str
    share: Share


@dataclass(frozen=True, slots=True)
class NameGroup:
    """Write on which group a tier runs."""

    flow: str
    tier: str
    name: GroupName


@dataclass(frozen=True, slots=True)
class Show:
    """Write in a node's records that a worker runs there."""

    flow: str
    node: str
    worker: str
    hosted: Hosted


@dataclass(frozen=True, slots=True)
class Hide:
    """Remove from a node's records that a worker runs there."""

    flow: str
    node: str
    worker: str


Writing = SetWorkerGoal | Note | Tell | OperationStep | Ask | Advance | Allot | HoldBack | NoteSizes | NameGroup | Show | Hide
"""actions that only write or remove a record"""
Action = Writing | Start | FreeLease | Kill | Forget | SetAside | ScaleTier


def flow_of(action: Action) -> str:
    """The flow that the action concerns; empty if it concerns several."""
    if isinstance(action, Advance):
        return ""
    return action.run.flow if isinstance(action, FreeLease | Kill | Forget) else action.flow


def said_of(action: Action) -> str:
    """The action in a few words, for people."""
    match action:
        case SetWorkerGoal(_, tier, wish):
            return f"tier {tier}: desired state {wish.goal}, version {wish.version}"
        case Start(_, tier, run, spare):
            return f"{'standby' if spare else 'worker'} {run.number} of tier {tier} is started on {run.node}"
        case Note(_, tier, run, spare):
            ended = f" has ended: {run.cause}" if run.ended_at is not None else " is noted"
            return f"{'standby' if spare else 'worker'} {run.number} of tier {tier}{ended}"
        case FreeLease(run):
            return f"the lease of {run}, which has ended, is removed"
        case Kill(run, node, why):
            return f"{run} on {node} is killed: {why}"
        case Forget(run, node):
            return f"the record of {run} on {node} is removed"
        case Tell(_, status):
            return f"it is {status.state}" + (f": {status.reason}" if status.reason else "")
        case SetAside(_, spot):
            return f"{spot.path} is set aside"
        case OperationStep(_, id_, operation):
            return f"operation {id_} ({operation.kind}) reaches step {operation.step}"
        case Ask(_, id_, wanted):
            return f"desired state {wanted.state}, version {wanted.version}, set by operation {id_}"
        case Advance(id_, reached):
            return f"operation {id_} over a workflow reaches step {reached.step}"
        case Allot(_, share):
            return (
                f"it may read {share.rows_per_s:g} rows/s of quota {share.quota}"
                if share.rows_per_s is not None
                else "no quota limits its reads"
            )
        case HoldBack(_, held_back):
            return f"{', '.join(sorted(held_back.sinks)) or 'none of its sinks'} throttled by downstream flows"
        case NoteSizes(_, sizes):
            return "; ".join(f"tier {tier} should have {size.executors} executors: {size.why}" for tier, size in sizes.tiers.items())
        case ScaleTier(_, tier, _, _, change):
            return f"executors of tier {tier} {change}"
        case NameGroup(_, tier, name):
            return f"tier {tier} runs on group {name.group}"
        case Show(_, node, worker):
            return f"{worker} is shown at {node}"
        case Hide(_, node, worker):
            return f"{worker} is no longer shown at {node}"
        case _:
            assert_never(action)


NOT_WATCHED = AlertSettings()
AWAY = "agents do not report: "
"""the beginning of the reason of a flow that is `degraded` because agents are away"""
TAKEN_BACK = "a version was taken back from agents: "
"""the beginning of the reason of a flow that is `degraded` because a roll-out failed"""

ProcessState = Literal["starting", "running", "exited", "gone"]
"""A launcher's report. `gone`: the process no longer exists, and it is unknown how it ended."""


_WORKER = re.compile(r"([^.]+)\.([^.]+)-(\d+)")


class RunId(NamedTuple):
    """A start of a tier's worker; `str` is the worker's name."""

    flow: str
    tier: str
    number: int

    def __str__(self) -> str:
        return f"{self.flow}.{self.tier}-{self.number}"

    @staticmethod
    def parse(worker: str) -> RunId | None:
        """The run of a worker's name; None if it is not a valid name of a worker.

        >>> RunId.parse("tweets.core-3")
        RunId(flow='tweets', tier='core', number=3)
        """
        found = _WORKER.fullmatch(worker)
        return None if found is None else RunId(found[1], found[2], int(found[3]))


@dataclass(frozen=True, slots=True)
class Wish:
    """The desired state of a flow, set by an operator through a command or ZooKeeper's shell. `generation` is the revision that wrote it:
    it increases with each write, even one that repeats the state."""

    version: int
    goal: Goal
    generation: int
    operation: str = ""
    """the id of the flow's newest operation; empty if there was none"""
    accepts: Mapping[str, str] = field(default_factory=dict)
    """as in `Desired`: a request for another goal of the same version keeps the agreement"""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The holder of a tier's lease, and its Term."""

    run: int
    term: int


@dataclass(frozen=True, slots=True)
class ObservedTier:
    """One tier of a flow. `feeders` are its upstream tiers."""

    tier: str
    feeders: frozenset[str] = frozenset()
    node: str = ""
    """the node that it is mapped to; empty: any"""
    cores: int = 1
    """the resources that its worker uses on its node"""
    memory_bytes: int = 0
    version: int = 0
    """the version whose workers serve it in the desired state; 0: the flow's desired version"""
    process: int = 0
    """workers of that version, or of a later one, switch to it between two Batches; 0: new workers must be started"""
    wish: TierWish | None = None
    run: Run | None = None
    report: Report | None = None
    lease: LeaseHolder | None = None
    leased_before: int = 0
    """the run that last acquired its lease; set only if no run is recorded"""
    standby: bool = False
    """a standby is needed"""
    spare: Run | None = None
    spare_report: Report | None = None
    folders: tuple[str, ...] = ()
    """the folders that its sinks write into"""
    executors: int = 1
    """number of executors, each with these cores and this memory, if its node has executors; quotas count them everywhere"""
    group: str = ""
    """the group of hosts on which it runs; empty: any host"""
    hosts: Mapping[str, float] = field(default_factory=dict)
    """node or host name of each member of that group → cost"""
    names: GroupName | None = None
    """the record of its group that is to be written; None if it is written already"""
    autoscale: AutoscaleSpec | None = None
    """how its number of executors follows its lag; None: it stays"""


class Delay(NamedTuple):
    """The age of a flow's oldest waiting entry in seconds, and the bottleneck as a text."""

    seconds: float
    cause: str = ""


@dataclass(frozen=True, slots=True)
class AgentsStanding:
    """What agents mean for a flow whose desired state is running. `away`: agent → since when it is away, in seconds since 1970. `reason` is
    empty if nothing is wrong."""

    away: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    next: str = ""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An operation that has not ended, and the id of its record."""

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
    """the tiers of the desired version; None: all"""
    each: frozenset[str] = frozenset()
    """the tiers that have a worker on each host; `placement.on_each_host` adds the helpers"""
    refused: Mapping[str, Any] = field(default_factory=dict)
    """its invalid records written by people (`control.record_validation`)"""
    damaged: tuple[Spot[Any], ...] = ()
    """damaged records that masters or workers create again once they are moved aside; until then nothing is decided about the flow"""
    watched: AlertSettings = NOT_WATCHED
    """the settings of delay and alerts in its desired version"""
    under_way: UnderWay | None = None
    """the operation that the flow waits for"""
    labels: Mapping[str, str] = field(default_factory=dict)
    """the labels of its desired version"""
    share: Share | None = None
    """its last share of the rows per second of its quotas"""
    held_back: HeldBackSinks | None = None
    """which of its sinks downstream flows throttle"""
    waters: Mapping[str, Waters] = field(default_factory=dict)
    """source → its thresholds"""
    sizes: TierSizes | None = None
    """what was last thought of the sizes of its tiers with `autoscale`"""
    limited: bool = False
    """a person limits its rate"""
    hosted: frozenset[tuple[str, str]] = frozenset()
    """(node, worker) of its workers that are shown to run at a node"""
    agents: Mapping[str, AgentTierSpec] = field(default_factory=dict)
    """the tiers that agents run"""


@dataclass(frozen=True, slots=True)
class Allowance:
    """A quota: the resources that flows with a label may use together; None: no limit."""

    label: str
    value: str
    cores: int | None = None
    memory_bytes: int | None = None
    rows_per_s: float | None = None
    closed: str = ""
    """why its record is invalid, empty if it is valid; no further flow starts under an invalid quota, and shares stay as they are"""

    def covers(self, labels: Mapping[str, str]) -> bool:
        """True if a flow with these labels is under the quota."""
        return labels.get(self.label) == self.value


@dataclass(frozen=True, slots=True)
class BlockedFlow:
    """A flow with unreadable records: nothing of it is changed, its workers continue. `why` is the end of a sentence."""

    status: StatusRecord | None
    why: str
    next: str
    refused: Mapping[str, Any] = field(default_factory=dict)
    damaged: tuple[Spot[Any], ...] = ()
    last: FlowSeen | None = None
    """the flow as last observed before, with the resources of its workers; None if this master has never observed it readable"""
    is_new: bool = False
    """no version of it was ever the desired one"""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker as its launcher sees it."""

    node: str
    state: ProcessState
    status: int | None = None
    """exit status; None if it has not ended or the status is unknown"""
    reason: str = ""
    """why it does not run, as the launcher reports it"""

    @property
    def how_ended(self) -> str:
        """How it ended, as a text, with the launcher's reason if it did not end by itself."""
        if self.state == "exited" and ((self.status or 0) >= 0 or not self.reason):
            return f"its process ended with status {self.status}"
        how = "its process has ended" if self.state == "exited" else "its process is gone"
        return f"{how}: {self.reason}" if self.reason else how

    @property
    def ended(self) -> bool:
        """True if no process of the worker runs any more."""
        return self.state in ("exited", "gone")


@dataclass(frozen=True, slots=True)
class WorkerNode:
    """A physical node that can take workers: its launcher answers."""

    decommissioned: bool = False
    """it gets no new workers, and those that it has end gracefully"""
    free_cores: int | None = None
    """the resources left for further workers; None: no limit"""
    free_memory_bytes: int | None = None
    host: str = ""
    """the name of its machine"""
    executors: bool = False
    """its workers have executors on a Spark cluster"""


class DownstreamReader(NamedTuple):
    """A source of another flow that reads what a sink writes, and has thresholds."""

    sink: str
    flow: str
    source: str


class SourceBacklog(NamedTuple):
    """The backlog of a source, as its worker last reported it."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class World:
    """One observation. `now` is in seconds since 1970, by the clock of the observing master."""

    now: float
    flows: Mapping[str, FlowSeen] = field(default_factory=dict)
    processes: Mapping[RunId, WorkerProcess] = field(default_factory=dict)
    nodes: Mapping[str, WorkerNode] = field(default_factory=dict)
    """the nodes that answer now"""
    held: Mapping[str, BlockedFlow] = field(default_factory=dict)
    """flows that are not in `flows`, because their records are invalid"""
    workflows: Mapping[str, WorkflowOperationRecord] = field(default_factory=dict)
    """operations over workflows that are under way, by the names of their records"""
    readers: Mapping[str, tuple[DownstreamReader, ...]] = field(default_factory=dict)
    """flow → the sources of other flows that may throttle it"""
    peers: Mapping[str, Peer] = field(default_factory=dict)
    """other control planes"""
    peer_states: Mapping[str, PeerState] = field(default_factory=dict)
    """the states of the peers that have been polled"""
    remote: Mapping[str, RemoteFlow] = field(default_factory=dict)
    """flows of peers that are connected to flows here, by their names here"""
    waiting: Mapping[tuple[str, str], SourceBacklog] = field(default_factory=dict)
    """(flow, source) → its backlog, for sources with thresholds; those without a report are left out"""
    delays: Mapping[str, Delay] = field(default_factory=dict)
    """flow → the age of its oldest waiting entry, for flows with a `max_delay`; flows without a report are left out"""
    quotas: Mapping[str, Allowance] = field(default_factory=dict)
    """quotas by name, `label=value`"""
    idle: Mapping[str, bool] = field(default_factory=dict)
    """flow → True if it has read nothing for a while; unknown ones are left out"""
    loads: Mapping[tuple[str, str], TierLoad] = field(default_factory=dict)
    """(flow, tier) → its load, for tiers with `autoscale`; those without enough reports are left out"""
    files: Mapping[str, int] = field(default_factory=dict)
    """flow → the text of a flow file that is to be applied (`control.flow_files`)"""
    agents: Mapping[str, AgentsStanding] = field(default_factory=dict)
    """flow → what its agents mean for it, for flows that collect from agents; unknown ones are left out"""

"""Models of the REST API: one declaration for the server, its OpenAPI document and the client.

Annotations are read at run time, by FastAPI and msgspec.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scribengin.registry.contract import RegistryServer
from scribengin.registry.records import FlowState, Goal

# Request models accept exactly the keys that they declare.


CLOSED = {"extra": "forbid"}
"""for `__pydantic_config__`: an unknown key is reported as an error"""


# Models of the REST API for masters, nodes, bindings and tokens: JSON objects with these keys.


RoleName = Literal["agent", "viewer", "operator", "editor", "admin"]


@dataclass(frozen=True, slots=True)
class MasterRow:
    """A master. `http` is its address; `leads` is true for the leading master."""

    id: str
    http: str
    leads: bool
    since: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether this master can do its part."""

    state: Literal["ok"]
    leads: bool
    revision: int


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret. `labels`: access only to flows with all of these. `until`, ISO 8601: its expiry."""

    id: str
    name: str
    role: RoleName
    at: str
    labels: Mapping[str, str] = field(default_factory=dict)
    until: str = ""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to be made."""

    name: str
    role: RoleName
    labels: Mapping[str, str] = field(default_factory=dict)
    until: str = ""
    """ISO 8601 with a zone; empty: it does not expire"""
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A token that was made; the secret is shown only now."""

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A line of the audit log: who requested which change of which `target`, when, and with which outcome: `done`, or the code of the
    problem. `revision`: of the registry afterwards. `again`: the answer to an earlier request with the same key was repeated."""

    at: str
    who: str
    address: str
    what: str
    target: str
    outcome: str
    revision: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class AuditEntries:
    """The newest lines of the audit log of one master, newest first. `complete`: the log has no others that match."""

    entries: tuple[AuditEntry, ...]
    complete: bool
    master: str = ""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session of a browser to be opened."""

    token: str
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class SessionView:
    """The caller of a request. `labels`: it has access only to flows with all of these. `signed_in`: it has a session, which it can end;
    otherwise this master requires no token. `until`: the expiry of a session that was opened now."""

    name: str
    role: RoleName
    labels: Mapping[str, str]
    signed_in: bool
    until: str = ""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A registered host. `state` is `up`, `away` or `decommissioned`; `cores`, `memory_bytes` 0: no limit. `http` is its page; `spark` the
    cluster on which executors run, empty if Spark runs in the workers."""

    node: str
    state: str
    up: bool
    host: str = ""
    pid: int | None = None
    http: str = ""
    cores: int = 0
    memory_bytes: int = 0
    home: str = ""
    since: str = ""
    spark: str = ""
    workers: tuple[str, ...] = ()
    mapped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeView:
    """A host and what it reports about itself: `now`; null if it does not answer, with the reason in `silent`."""

    node: NodeRow
    now: Mapping[str, Any] | None = None
    silent: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a tier is to run. `start`: also set the desired state of its flow to running."""

    node: str
    start: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Bound:
    """A tier that was bound to a node, or to none; `changed` is false if it was so before."""

    tier: str
    node: str
    changed: bool


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A host that was decommissioned, or is back; `workers` are those that it still has."""

    node: str
    decommissioned: bool
    changed: bool
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MasterView:
    """What a master reports about itself. `term` is the Term of its lead, null for a standby. `decided`: its last decisions, newest first.
    `states`: state → number of flows in it. `cycle` is its last reconciliation, null before the first."""

    id: str
    leads: bool
    term: int | None
    revision: int
    host: str = ""
    pid: int = 0
    since: str = ""
    http: str = ""
    cycle: Mapping[str, Any] | None = None
    decided: tuple[Mapping[str, str], ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    masters: tuple[MasterRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistryLink:
    """The registry as this master sees it: the state of its session, the seconds for which that certainly lives, and the servers. A
    registry in memory has none."""

    link: Literal["connected", "suspended", "lost"]
    left_s: float
    servers: tuple[RegistryServer, ...]


# Models of the REST API for groups.


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member. `cost` is in force, `costs` are those of the flow files; `out`: it was disabled, for the reason `why`. `seen`: for each
    sink that goes to the group, the state in which it finds the member (`healthy`, `failed`, `out`), and how many Batches its process sent
    there."""

    member: str
    cost: float | None
    costs: tuple[float, ...]
    out: bool
    why: str
    seen: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group, the flows that name it, and its members. `refused`: why its record in the registry is not in force."""

    group: str
    flows: tuple[str, ...]
    members: tuple[GroupMember, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SetMember:
    """Disable a member (`out`, and `why`), enable it, or set its cost (0: the cost of the flow files). Null leaves a value unchanged."""

    out: bool | None = None
    why: str = ""
    cost: float | None = None
    __pydantic_config__ = CLOSED


# Models of the REST API for workflows, that is connected flows.


@dataclass(frozen=True, slots=True)
class MeetingRow:
    """A connection of two flows: `sink` of `feeding` writes where `source` of `reading` reads; `place` is a folder or a topic."""

    feeding: str
    sink: str
    reading: str
    source: str
    place: str


@dataclass(frozen=True, slots=True)
class IllRow:
    """A flow of the workflow that is failed, degraded, paused or stopped; `relation` is its relation to the requested flow."""

    flow: str
    relation: Literal["feeds this one", "is fed by this one", "is in the same workflow"]
    state: FlowState
    since: str
    reason: str
    next: str


@dataclass(frozen=True, slots=True)
class WorkflowOperation:
    """An operation over all flows of a workflow: `waits_for` says in words which flows it waits for, `stuck` which of them need
    intervention."""

    id: str
    goal: Goal
    step: Literal["ask", "done", "failed", "cancelled"]
    flows: tuple[str, ...]
    since: str = ""
    by: str = ""
    at: str = ""
    error: str = ""
    waits_for: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThroughRow:
    """Everything that was there at moment `at` (ISO 8601) is acknowledged by the flow and by all flows downstream of it, as exact as the
    clocks of hosts. Empty if unknown: `unknown` is the FLOW.SOURCE that is the reason."""

    at: str = ""
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowPart:
    """The workflow of a flow: all its flows from the sources down, its upstream and downstream flows, and which others need attention."""

    name: str
    flows: tuple[str, ...]
    fed_by: tuple[MeetingRow, ...] = ()
    feeds: tuple[MeetingRow, ...] = ()
    ill: tuple[IllRow, ...] = ()
    operation: WorkflowOperation | None = None
    """over the workflow, and under way"""
    through: Mapping[str, ThroughRow] = field(default_factory=dict)
    """source of this flow → how far it is acknowledged through all downstream flows"""


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """A workflow in the list, by the name of its first flow; `states`: flow → its state, from the sources down."""

    workflow: str
    states: Mapping[str, FlowState]
    meetings: int


@dataclass(frozen=True, slots=True)
class TierNode:
    """A tier of a flow, and its upstream tiers."""

    tier: str
    fed_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A flow of a workflow, with its state."""

    flow: str
    state: FlowState
    wanted: Goal
    version: int
    since: str
    reason: str
    next: str
    tiers: tuple[TierNode, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """The backlog of a source, as its worker last reported it; unknown values are null."""

    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    """the age of the oldest entry"""


@dataclass(frozen=True, slots=True)
class Edge:
    """A connection of two flows, and its backlog (`waits`); null if no worker of the reading flow has reported it."""

    feeding: str
    sink: str
    reading: str
    source: str
    place: str
    waits: Waits | None = None


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A workflow as a graph: its flows from the sources down, their connections, and the newest operations over it."""

    workflow: str
    nodes: tuple[FlowNode, ...]
    edges: tuple[Edge, ...]
    operations: tuple[WorkflowOperation, ...] = ()


@dataclass(frozen=True, slots=True)
class WantWorkflow:
    """The new desired state of all flows of a workflow."""

    state: Goal
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class WorkflowBegun:
    """The operation that sets it, flow by flow."""

    workflow: str
    operation: str
    flows: tuple[str, ...]


# Models of the REST API for the ends of flows, as masters of other control planes read them, and for these peers.


@dataclass(frozen=True, slots=True)
class EndPlace:
    """Where a flow reads or writes: a topic, a table, or a prefix of objects; `many`: `topic` is a regular expression."""

    kind: Literal["objects", "table", "topic"]
    at: str
    topic: str = ""
    many: bool = False


@dataclass(frozen=True, slots=True)
class EndLevel:
    """The backlog of a source; null is not checked."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndLevels:
    """The thresholds of a source: above which upstream flows are throttled, below which they are released, and at which they are paused."""

    high: EndLevel
    low: EndLevel
    capacity: EndLevel


@dataclass(frozen=True, slots=True)
class SourceEnds:
    """A source: where it reads, the thresholds of its backlog, its backlog `looked_s` seconds ago (null: unknown), and how far it is
    acknowledged to the ends of all downstream flows."""

    reads: tuple[EndPlace, ...]
    levels: EndLevels | None = None
    waits: Waits | None = None
    looked_s: float | None = None
    through: ThroughRow | None = None


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """Where a flow reads and writes, and its state."""

    flow: str
    state: FlowState
    wanted: Goal
    version: int
    since: str
    reason: str
    next: str
    sources: Mapping[str, SourceEnds] = field(default_factory=dict)
    sinks: Mapping[str, tuple[EndPlace, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllEnds:
    """The ends of the flows of a control plane, without folders, which belong to one host. `now` is its clock, in seconds since 1970."""

    now: float
    flows: tuple[FlowEnds, ...]


@dataclass(frozen=True, slots=True)
class SetPeer:
    """Another control plane: the addresses of its masters, and how its names of servers translate to those used here."""

    masters: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class PeerFlow:
    """A flow of a peer that is connected to one here, as the peer last reported it, and where they are connected."""

    flow: str
    state: FlowState
    since: str
    reason: str
    meetings: tuple[MeetingRow, ...]


@dataclass(frozen=True, slots=True)
class PeerRow:
    """A peer. `answered_at`: its last answer; `silent_since`: the time since when it has not answered, and `why`. `refused`: the fault of
    its record."""

    peer: str
    masters: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    answered_at: str = ""
    silent_since: str = ""
    why: str = ""
    refused: str = ""
    flows: tuple[PeerFlow, ...] = ()


FLOW_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
PACKAGE_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow in the list. `wanted` is its desired state, `state` its actual state: `created` before a master has reconciled it. `workflow`
    is the name of its workflow if it is connected to other flows, upstream or downstream; the list has it, events do not. `labels`: events
    have them, the list does not."""

    flow: str
    version: int
    wanted: Goal
    state: FlowState
    since: str
    reason: str
    next: str
    refused: Mapping[str, Any] = field(default_factory=dict)
    workflow: str = ""
    fed_by: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WantedState:
    """The desired state of a flow, who set it, and when. `revision` is that of the write; a status with this `generation` refers to it."""

    state: Goal
    version: int
    by: str = ""
    at: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """The status of a flow, as the leading master reports it."""

    state: FlowState
    since: str = ""
    reason: str = ""
    next: str = ""
    version: int = 0
    generation: int = 0
    goal: Goal | None = None
    refused: Mapping[str, Any] = field(default_factory=dict)
    """invalid record written by a person → its `version`, `why`, `remedy`"""


@dataclass(frozen=True, slots=True)
class TierProcess:
    """The holder of a tier's lease."""

    pid: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class StandbyRow:
    """A standby worker of a tier. `http` is the address of its status page, for its own host."""

    worker: str
    node: str
    state: str
    http: str = ""


@dataclass(frozen=True, slots=True)
class AutoscaleRow:
    """The `autoscale` of a tier, its number of `executors`, and what the leading master thinks of it since when: `advised` is the number
    that the tier should have. `verdict`: `grow` or `shrink` if that is another number; `stay`: it is right; `falls`: the lag is above the
    bound, and will soon be below it; `most`: more are not allowed or of no use; `wait`: nothing can be decided now. `change` is the last
    change that `mode: act` made, at `changed_at`; both are empty if it made none."""

    lag_s: float
    min: int
    max: int
    mode: Literal["advise", "act"]
    executors: int
    advised: int
    verdict: Literal["grow", "shrink", "stay", "falls", "most", "wait"]
    why: str = ""
    since: str = ""
    change: str = ""
    changed_at: str = ""


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier of a flow, and the worker that serves it. `ready`: each of its queries has committed a Batch since the worker started, or has
    found nothing to read; null for a tier that the version does not have, or whose worker is of an earlier release. `failures` counts
    failures in a row without progress; `starts_again` is when the next worker starts, ISO 8601, null if none starts automatically. `http`
    is the address of the worker's status page, for its own host. `workers` is the number of workers of the tier, `each` for one on each
    host of its group, null for a helper; `wanted_workers` is the number desired now. `autoscale` is null for a tier without it."""

    tier: str
    state: str
    worker: str | None = None
    node: str | None = None
    process: TierProcess | None = None
    failures: int = 0
    cause: str = ""
    remedy: str = ""
    starts_again: str | None = None
    standby: StandbyRow | None = None
    http: str = ""
    ready: bool | None = None
    workers: int | Literal["each"] | None = None
    wanted_workers: int = 0
    autoscale: AutoscaleRow | None = None


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder that sinks of a flow's `tiers` write into. `writers` are all tiers that do, of other flows too; `node` is the host that
    maintains it, `since` when, and `keeper` the process that does it now. `looked_at` is its last reported maintenance run, `did_at` the
    last that had work: `folded` commit records and this number of unneeded `files`, with their `bytes`. `error`: why the last run failed.
    """

    path: str
    tiers: tuple[str, ...]
    writers: tuple[str, ...] = ()
    node: str = ""
    since: str = ""
    keeper: TierProcess | None = None
    looked_at: str = ""
    did_at: str = ""
    folded: int = 0
    files: int = 0
    bytes: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class NoticedRow:
    """A difference between the data of a source and its schema: a `new` column, a new `field` of objects, a column that is `missing`, one
    without a value in a file that has a field of nearly its name (`renamed`, `type` is that field) or in a whole Batch (`null`, with the
    number of `records`), or one whose values did not fit and became null (`nulled`, with the number of `records`); or a file that was
    written again and is read from its start (`again`). `file` and `line` say where it was first seen, `batch` in which Batch, `at` when
    that Batch was decided; `now` says how it is handled."""

    tier: str
    source: str
    column: str
    kind: str
    type: str = ""
    file: str = ""
    line: int | None = None
    batch: int = -1
    at: str = ""
    records: int = 0
    now: str = ""


@dataclass(frozen=True, slots=True)
class AcceptedRow:
    """Columns that a sink writes although its folder held others: all of them in `columns`, the others in `instead`, a sentence each;
    `readers`: what readers of the folder find; who agreed to it, and when."""

    tier: str
    sink: str
    columns: str = ""
    instead: tuple[str, ...] = ()
    readers: str = ""
    at: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class AckRow:
    """How far the Batches of a query are acknowledged: committed, together with everything that downstream tiers made of them. Batches of
    its `lineage` are given by number, -1 for none, each with the time when it was decided; `read` and `released`: source → entries of its
    log that are decided, and that are acknowledged; `channels`: channel that it writes → the newest Batch that all readers have
    acknowledged."""

    tier: str
    query: str
    lineage: str
    decided: int = -1
    decided_at: str = ""
    acknowledged: int = -1
    acknowledged_at: str = ""
    read: Mapping[str, int] = field(default_factory=dict)
    released: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    through: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """external source → (a moment, when all that was there at that moment was seen acknowledged), newest last"""


@dataclass(frozen=True, slots=True)
class FlowView:
    """All that the registry holds about a flow. `status` is null before a master has reconciled it."""

    flow: str
    wanted: WantedState
    status: FlowStatus | None
    tiers: tuple[TierRow, ...]
    noticed: tuple[NoticedRow, ...] = ()
    """for each tier the newest hundred"""
    accepted: tuple[AcceptedRow, ...] = ()
    set_aside: tuple[Mapping[str, str], ...] = ()
    """damaged records that were moved aside: `path`, `why`, and where each is `kept`"""
    folders: tuple[FolderRow, ...] = ()
    workflow: WorkflowPart | None = None
    """null if it is connected to no other flow"""
    acknowledged: tuple[AckRow, ...] = ()
    """by the workers that have reported it"""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of a tier, as its worker last wrote it, for the Batch that was then the newest decided one. `sources`: source → the labels of
    what it reads; `sinks`: sink → `unit`, `rows`, `bytes`; `position`: source → entries that are decided."""

    tier: str
    task: int
    query: str = ""
    batch: int = -1
    sources: Mapping[str, Any] = field(default_factory=dict)
    sinks: Mapping[str, Any] = field(default_factory=dict)
    owner: str = ""
    position: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version of a flow."""

    version: int
    wanted: bool
    package: str
    tiers: tuple[str, ...]
    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Submit:
    """A flow to be submitted: the package that was uploaded before, and the path of the flow file inside it. `base` is the folder where the
    relative paths of its data start, the same on every host."""

    package: str
    path: str
    base: str
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class SubmitFlow:
    """A flow to be submitted, as `Submit`; `plan` is the hash of the plan that was reviewed, `accept` and `columns` as in `Topology`."""

    package: str
    path: str
    base: str
    plan: str = ""
    accept: Literal["again", "lost"] | None = None
    columns: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class AppliedFlow:
    """The result of a submission. `changed` is false if the newest version is identical and its desired state already was running."""

    flow: str
    version: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Want:
    """The new desired state of a flow."""

    state: Goal
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Rollback:
    """An earlier version to return to, with the flows that were submitted as one with it, unless `only`. `accept` and `columns` as in
    `Topology`."""

    version: int
    only: bool = False
    accept: Literal["again", "lost"] | None = None
    columns: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class WentBack:
    """Flow → its desired version now, for all flows that changed."""

    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LogLines:
    """The last lines of a file: a worker's output, or a tier's run log."""

    tier: str
    file: str
    lines: tuple[str, ...]
    node: str = ""
    """the host that has it, if one was asked"""
    problem: str = ""
    """why there is nothing: the host does not answer"""


@dataclass(frozen=True, slots=True)
class PackageRow:
    """A package that this master has. `size` is in bytes."""

    id: str
    size: int


@dataclass(frozen=True, slots=True)
class RecordView:
    """A path in the registry. `value` is null if there is no record, or only a folder; `damaged` says why the record is invalid.

    `writable`: people may write it. `version` is to be sent back with a write that is based on this value.
    """

    path: str
    value: Mapping[str, Any] | None
    version: int
    changed: int
    children: tuple[str, ...]
    writable: bool
    damaged: str = ""


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """A record's new value; it is written only if the present record has this `version`, null if there must be none."""

    value: dict[str, Any]
    version: int | None = None
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Written:
    """A completed write. The state of the registry with this revision includes it; the write itself may have an earlier revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """The status of a flow after a change; `revision` is that of the change."""

    revision: int
    flow: FlowRow

"""The kinds of records that masters, workers, hosts and people write: their keys, and the meaning of each. `tree` declares their paths."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from hashlib import sha256
from os.path import normpath
from typing import Any, Literal

import msgspec

from scribengin.registry.flow_ends import Outside
from scribengin.registry.record_io import Record

# Workers' records about the columns of their data.


class ColumnsRecord(Record):
    """Columns in the data of a tier's sources that their schemas lack, by the decisions of its Batches; columns that its sinks write and
    that their folders lacked."""

    noticed: tuple[Mapping[str, Any], ...] = ()
    """the newest hundred: `source`, `column`, `kind`, `type`, `file`, `line`, `batch`, `at`, `records`, `now`, as `status` shows them"""
    accepted: tuple[Mapping[str, Any], ...] = ()
    """for each sink the last agreement: `sink`, `columns`, `instead`, `readers`, `at`, `by`, in the same form"""


# Records between the leader and hosts: kinds for the paths that `registry.tree` declares below `physicalnodes/`.


Ask = Literal["run", "stop", "kill"]
ProcessState = Literal["starting", "running", "exited", "gone"]


class Decommissioned(Record):
    """A host that gets no new workers, and whose workers move elsewhere if they can."""

    by: str = ""
    at: str = ""


class WorkerOrder(Record):
    """The leader's order to a host about one worker. The host makes its command and environment itself: no secret is sent this way."""

    ask: Ask
    cores: int = 1
    memory_bytes: int = 0
    executors: int = 1
    spark: Mapping[str, str] = {}
    """further Spark settings"""
    grace_s: float = 0.0
    """of a stop: seconds that it may take before it is killed"""
    digest: str = ""
    """distinguishes this order from others"""


class WorkerSeen(Record):
    """A worker, as its host's launcher reports it (`launch.contract.Seen`)."""

    state: ProcessState
    order: int = 0
    """the revision that made the order by which it was started; 0: unknown"""
    since_s: float = 0.0
    process: str = ""
    pid: int | None = None
    status: int | None = None
    reason: str = ""
    stopping: bool = False
    strays: tuple[int, ...] = ()
    logs: tuple[str, ...] = ()


# Records between the leader and hosts about sinks' folders: kinds for the paths that `tree` declares below `upkeep/`.


_LENGTH = 16


class MaintenanceOwner(Record):
    """The leader's assignment of a folder to a host that maintains it."""

    path: str
    """the folder, the same on every host"""
    node: str
    """the host whose agent maintains it; empty: it is no longer written"""
    number: int = 1
    """increases by one with each host to which it is assigned"""
    writers: tuple[str, ...] = ()
    """the tiers that write there, as `flow.tier`"""
    since: str = ""
    """when it was assigned to that host, or to none, ISO 8601"""


class MaintenanceReport(Record):
    """The host's report on its maintenance. Written after a run that had work or failed, and every ten minutes."""

    node: str
    number: int = 0
    """the `number` of the `MaintenanceOwner` to which it refers"""
    term: int = 0
    """the Term of the lease under which it was done"""
    at: str = ""
    """the end of the last reported run, ISO 8601"""
    did_at: str = ""
    """the end of the last run that had work"""
    folded: int = 0
    """commit records that were folded in that run"""
    files: int = 0
    """unneeded files that were deleted in that run"""
    bytes: int = 0
    """bytes of these files"""
    error: str = ""
    """why the last run failed; empty if it did not"""


def id_of_folder(path: str) -> str:
    """The name of a folder's records."""
    return sha256(normpath(path).encode()).hexdigest()[:_LENGTH]


# The kinds of records about alerts and delays of flows; `tree` declares their paths.


class AlertSpec(Record):
    """An alert of a version: its condition and its targets. The master's log gets all alerts."""

    when: str
    """as in the flow file"""
    webhook: str = ""
    command: tuple[str, ...] = ()


class AlertSettings(Record):
    """A version's settings of alerts and delay."""

    max_delay_s: float | None = None
    alerts: Mapping[str, AlertSpec] = {}


class AlertRecord(Record):
    """An alert that fires, or has fired."""

    firing: bool
    since: str = ""
    """ISO 8601: of the change"""
    value: str = ""
    """the value that was seen then, in words"""


class Alerts(Record):
    """The alerts of a flow that are, or were, more than quiet: name → its state. Written after all targets were notified."""

    alerts: Mapping[str, AlertRecord] = {}


FlowState = Literal[
    "created", "starting", "running", "degraded", "pausing", "paused", "draining", "stopping", "stopped", "failed", "recovering"
]
Goal = Literal["running", "paused", "drained", "stopped"]
"""`paused`: no new Batch, the process stays. `drained`: what was there at the request is processed through all tiers, then the processes
end. `stopped`: the current Batches end, then the processes."""
WorkerCount = int | Literal["each"]
"""The number of workers of a tier. `each`: one on each host that it may run on."""
WorkerState = Literal["starting", "running", "degraded", "recovering", "paused", "drained", "stopped", "failed", "standby"]
"""The state that a worker reports for its tier. `recovering`: a Query of it failed for a passing reason and will restart automatically.
`degraded`: a Query of it failed permanently, the others continue. `standby`: it is the standby, ready to take the tier over."""


class HolderRecord(Record):
    """A process that holds a lease, or is present: a master, a worker."""

    id: str = ""
    host: str = ""
    pid: int = 0
    http: str = ""
    """the address of its page"""
    since: str = ""
    """ISO 8601"""
    claim: str = ""
    """distinguishes this acquisition of a lease from all others"""


class TierSpec(Record):
    """A tier of a version, as far as masters need it."""

    feeders: tuple[str, ...] = ()
    """upstream tiers of the same flow"""
    cores: int = 1
    memory_bytes: int = 0
    """0: Spark's own default"""
    standby: Literal["none", "warm"] = "none"
    """`warm`: a standby worker waits, with Spark running"""
    executors: int = 1
    """if the launcher has executors: the number of executors, and the cores and memory of each"""
    spark: Mapping[str, str] = {}
    """settings of its Spark session"""
    since: int = 0
    """workers of that version serve it unchanged: what they run is the same. 0: only those of its own version"""
    process: int = 0
    """workers of that version, or of a later one, switch to it between two Batches. 0: new workers must be started"""
    folders: tuple[str, ...] = ()
    """the folders that its sinks write into, and that a host maintains"""
    groups: Mapping[str, Mapping[str, float]] = {}
    """group to which sinks or channels of the tier go → member → cost, as the flow file says"""
    group: str = ""
    """the group of hosts on which its workers run; empty: on any host"""
    hosts: Mapping[str, float] = {}
    """node or host name of each member of that group → cost, as the flow file says"""
    workers: WorkerCount = 1
    """the number of its workers: one holds its lease, the others help"""
    alone: str = ""
    """why it cannot have helpers; empty if it can"""


HELPER = "~"
"""separates a tier's name and the number in names of helpers: no tier name can contain it"""


def helper_name(tier: str, number: int) -> str:
    """What worker `number` of a tier, from 2 on, is called where tiers are named. Worker 1 holds the tier's lease, and has its name.

    >>> helper_name("core", 2)
    'core~2'
    """
    return f"{tier}{HELPER}{number}"


def tier_of(name: str) -> str:
    """The tier that a helper helps; of a tier itself its own name.

    >>> tier_of("core~2"), tier_of("core")
    ('core', 'core')
    """
    return name.partition(HELPER)[0]


def is_helper(name: str) -> bool:
    """Whether it is a helper's name, and not a tier's."""
    return HELPER in name


def spec_of(spec: Spec, name: str) -> TierSpec | None:
    """A version's settings of a tier, or of a helper of one; None if it has no such tier. A helper gets the same as the tier's worker. It
    reads the portions that it is given, has no standby and maintains no folders."""
    tier = tier_of(name)
    there = spec.tiers.get(tier)
    if there is None or tier == name:
        return there
    return msgspec.structs.replace(there, feeders=(tier,), standby="none", folders=(), groups={})


class Spec(Record):
    """One version of a flow, as it was applied; never changed."""

    package: str
    """the sha256 of the package that it came in"""
    path: str
    """of the flow file, inside the package"""
    base: str
    """the folder where the flow's relative paths start; the same on every host"""
    state: str
    """the folder of the flow's state; the same on every host"""
    tiers: Mapping[str, TierSpec]
    by: str = ""
    at: str = ""
    together: Mapping[str, int] = {}
    """flow → version, of all that were submitted as one with it; empty for a flow submitted alone"""
    labels: Mapping[str, str] = {}
    """labels, by which commands and access rights select flows"""
    scaled: Mapping[str, Mapping[str, int]] = {}
    """tier → values of its TierSpec that were set by `scale`, and stay for later versions"""
    groups: Mapping[str, Mapping[str, float]] = {}
    """group of hosts of the flow file → node or host name of each member → cost"""
    watched: AlertSettings = AlertSettings()
    outside: Outside = Outside()
    """the places where it reads and writes, which connect it to other flows"""


class FlowFile(Record):
    """The text of a flow file that a person wrote into the registry, as JSON. The record may also be the text itself."""

    text: str
    base: str = ""
    """absolute: the folder where relative paths start; empty: the same folder as in the version before"""
    state: Goal = "running"
    """the new desired state of the flow"""
    accept: Literal["again", "lost"] | None = None
    """as of `apply --accept`: Queries that cannot keep their checkpoint read all again, or continue from their position"""


class TakenFile(Record):
    """The text of `file` that was read last, and its result."""

    revision: int
    """the revision that wrote the text"""
    version: int = 0
    """the resulting version of the flow; 0: the text was refused"""
    at: str = ""
    why: str = ""
    """why it was refused"""
    remedy: str = ""
    again: bool = False
    """the obstacle is temporary: the text is tried again"""


class Desired(Record):
    """The desired state of a flow."""

    state: Goal
    version: int
    """the number of its Spec"""
    by: str = ""
    at: str = ""
    operation: str = ""
    """the newest operation; while it is under way the flow waits for it"""
    accepts: Mapping[str, str] = {}
    """`at` and `by`: who agreed that sinks of this version continue with other columns than their folders hold; each tier uses the
    agreement once"""


class StatusRecord(Record):
    """The status of a flow."""

    state: FlowState
    since: str = ""
    """ISO 8601"""
    reason: str = ""
    next: str = ""
    """what comes next, or what a person can do"""
    version: int = 0
    generation: int = 0
    """the revision of `desired` that it refers to"""
    goal: Goal | None = None
    """the desired state then: with `version`, `generation` and `operation` the last valid desired state"""
    operation: str = ""
    refused: Mapping[str, Any] = {}
    """invalid records of people: path → `version` of the record, `why`, `remedy`"""


class TierWish(Record):
    """The desired state of a tier's worker now; it follows the flow's desired state in an order that loses nothing."""

    version: int
    goal: Goal
    generation: int
    """the generation of the flow's desired state from which it was made: a worker reports back which it has reached"""
    task: str = ""
    """the operation of which the tier's part is to be done, under the lease, before the goal"""


class Run(Record):
    """The worker that is assigned to a tier; written before it is started, so that the next master knows of it. Times: seconds since 1970,
    by the clock of the master that wrote it."""

    number: int
    """increases by one with each start, over the whole life of the tier"""
    node: str
    asked_at: float
    generation: int
    """the generation for which it was started, or that it has reached since"""
    leased: bool = False
    """it was seen to hold the lease"""
    unleased_since: float | None = None
    """since when it no longer holds the lease; before it ever held it: since when its node has not answered"""
    ended_at: float | None = None
    """it has ended: its process has ended, or was given up"""
    failures: int = 0
    """failures in a row without progress, of this run and those before it"""
    cause: str = ""
    """why it ended"""
    remedy: str = ""
    permanent: bool = False
    """another start would end the same way"""


class Report(Record):
    """A worker's report, written at each change of its state."""

    run: int
    generation: int
    """the generation of the desired state on which it acts"""
    version: int
    state: WorkerState
    commits: int = 0
    """Batches committed since it started, as of this report"""
    ready: bool | None = None
    """each of its Queries has committed a Batch since its start, or has found nothing to read; null if an earlier release reports it"""
    cause: str = ""
    remedy: str = ""
    permanent: bool = False
    http: str = ""
    """the address of its page"""
    task: str = ""
    """the operation of which this tier's part is done, or has failed"""
    task_error: str = ""


class Operation(Record):
    """An operation of several steps, which the next master continues."""

    kind: Literal["offsets", "rewind", "renew", "repartition", "recut"]
    step: Literal["stop", "drain", "work", "done", "failed", "cancelled"]
    """`stop`: the flow's workers end in order; `drain`: they do, and readers of channels first read the backlog; `work`: the tiers do their
    part, each under its lease. Other values: the operation has ended."""
    version: int
    """the version of the flow with which its tiers do their part"""
    tiers: tuple[str, ...] = ()
    """the tiers that have a part in it"""
    arguments: Mapping[str, Any] = {}
    by: str = ""
    at: str = ""
    since: str = ""
    """when it reached its step"""
    error: str = ""


class WorkflowOperationRecord(Record):
    """An operation that sets the desired state of all flows of a workflow, one after the other, and which the next master continues."""

    goal: Goal
    step: Literal["ask", "done", "failed", "cancelled"] = "ask"
    """`ask`: the desired state of each flow is set when those before it have reached the goal: for `running` its downstream flows,
    otherwise its upstream flows"""
    feeders: Mapping[str, tuple[str, ...]] = {}
    """flow → its upstream flows"""
    begun: Mapping[str, int] = {}
    """flow → the revision of its desired state when this began: if it has another one, it was set since"""
    by: str = ""
    at: str = ""
    since: str = ""
    """when it reached its step"""
    error: str = ""


class StateChange(Record):
    """A change of a flow's state, as the master saw it."""

    at: str
    """ISO 8601"""
    state: FlowState
    reason: str = ""
    version: int = 0
    goal: Goal | None = None


class ChangeHistory(Record):
    """The last changes of a flow's state, oldest first."""

    last: tuple[StateChange, ...] = ()


UNDER_WAY = ("stop", "drain", "work")
"""the steps of an operation that has not ended"""


class Task(Record):
    """One task of a tier, for the newest Batch that was decided when it was written: its input, output and progress."""

    query: str = ""
    batch: int = -1
    sources: Mapping[str, Any] = {}
    """source → the labels of its SourceStreams"""
    sinks: Mapping[str, Any] = {}
    """sink → its SinkStream: `unit`, `rows`, `bytes`"""
    owner: str = ""
    """the worker"""
    position: Mapping[str, Any] = {}
    """source → the decided entries of its log; at checkpoints of progress, not per Batch"""


class Ends(Record):
    """The nodes of the flow at one end of a tier."""

    nodes: tuple[str, ...] = ()


class NodeState(Record):
    """The state of a logical node."""

    state: FlowState
    host: str = ""
    since: str = ""


class ServedPage(Record):
    """The address of a page or its JSON."""

    url: str


class GroupName(Record):
    """The group that a tier runs on: that of its version, or another group of the flow that a person wrote."""

    group: str
    said: str = ""
    """the group of the version when a master wrote it: if another version names another group, that comes before a person's"""


class Host(Record):
    """A machine that can run tiers, as it registered itself."""

    host: str
    cores: int = 0
    """the most that its workers may have together; 0: no limit"""
    memory_bytes: int = 0
    """the same"""
    since: str = ""
    home: str = ""
    """its folder there: workers' logs, packages"""
    spark: str = ""
    """the Spark cluster on which its workers' executors run; empty: Spark runs in the workers"""


class Mapped(Record):
    """A logical node bound to a physical one."""

    by: str = ""
    at: str = ""


class Hosted(Record):
    """A worker that serves a tier on this host: it holds, or has held, the tier's lease, and has not ended. The record binds nothing."""

    since: str = ""
    """when it was started"""


class GroupRecord(Record):
    """A named set of equivalent members, each with its cost."""

    members: Mapping[str, float]
    """name → cost, replacing that of flow files; the healthy member with the lowest cost comes first"""
    out: Mapping[str, str] = {}
    """members that get no Batch while they are listed here → why"""


class QueryAck(Record):
    """How far a Query's Batches are acknowledged: committed, together with all that downstream tiers made of them. Batches of one lineage
    by number, -1 for none; sources by the number of entries of their logs."""

    lineage: str
    decided: int = -1
    decided_at: str = ""
    acknowledged: int = -1
    acknowledged_at: str = ""
    """when that Batch was decided"""
    read: Mapping[str, int] = {}
    """source → entries that are decided"""
    released: Mapping[str, int] = {}
    """source → entries that are acknowledged: the flow no longer needs them"""
    channels: Mapping[str, int] = {}
    """channel that it writes → the newest Batch that all readers have acknowledged"""
    through: Mapping[str, tuple[tuple[float, float], ...]] = {}
    """external source → (a moment, when all that was there at that moment was seen acknowledged), the newest last and older ones with
    larger and larger gaps; seconds since 1970 by the worker's clock"""


class Ack(Record):
    """How far the tier's input is acknowledged by all downstream tiers of the flow."""

    queries: Mapping[str, QueryAck] = {}


class Limit(Record):
    """The rate limits of a flow. Absent: no limit."""

    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    sources: Mapping[str, Mapping[str, float]] = {}
    """source → `rows_per_s`, `bytes_per_s`"""
    edges: Mapping[str, Mapping[str, float]] = {}
    """edge → `rows_per_s`, `bytes_per_s`"""


class Workers(Record):
    """The number of workers of each of a flow's tiers, if it differs from its version."""

    tiers: Mapping[str, WorkerCount] = {}
    """tier → the number, from 1 on, or `each`: one on each host that the tier may run on"""


class Quota(Record):
    """The shared quota of flows with a label. Absent: no limit."""

    cores: int | None = None
    """of their workers, by the resources that these were given"""
    memory_bytes: int | None = None
    """the same"""
    rows_per_s: float | None = None
    """of all that they read from external sources"""
    by: str = ""
    at: str = ""


class Share(Record):
    """A flow's share of the rows per second of a quota."""

    rows_per_s: float | None = None
    """absent: none of its quotas limits the rate"""
    quota: str = ""
    """the quota; of several, the one that leaves the least"""
    idle: bool = False
    """it reads nothing, and others have most of its share"""


class IdempotentRequest(Record):
    """A write request to the API with an idempotency key, and its answer."""

    asked: str
    """SHA-256 of method, path and body"""
    at: float
    """seconds since 1970, by the clock of the master that received it"""
    status: int = 0
    """of the answer; 0 while the write is under way"""
    body: str = ""
    """of the answer"""


class Token(Record):
    """An API token: its name, role and labels. The token itself is not stored, only its scrypt hash."""

    name: str
    role: Literal["viewer", "operator", "editor", "admin"]
    salt: str
    hash: str
    at: str = ""
    by: str = ""
    labels: Mapping[str, str] = {}
    """access only to flows with all of these; empty: all flows"""
    until: str = ""
    """ISO 8601, its expiry. Empty: it does not expire"""
    removed: str = ""
    """when it was revoked: it is no longer valid, and a file of another master does not restore it"""


class AttemptRecord(Record):
    """One process that served a tier. Times: seconds since 1970, by the clocks of masters."""

    tier: str
    number: int
    """the number of its run"""
    asked_at: float
    node: str = ""
    host: str = ""
    pid: int = 0
    ended_at: float | None = None
    cause: str = ""
    remedy: str = ""
    failures: int = 0
    """failures in a row without progress, with this one"""


class Attempts(Record):
    """The last attempts of a flow, oldest first."""

    last: tuple[AttemptRecord, ...] = ()

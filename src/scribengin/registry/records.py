"""The kinds of records that masters, workers, hosts and operators write: their keys, and the meaning of each. `tree` declares their
paths."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations of records
from hashlib import sha256
from os.path import normpath
from typing import Any, Literal

import msgspec

from scribengin.registry.flow_ends import Outside
from scribengin.registry.record_io import Record

# Workers' records about the columns of their data.


class ColumnsRecord(Record):
    """Columns in the data of a tier's sources that their schemas lack, found by its Batches; and columns that its sinks write and that
    their folders lacked."""

    noticed: tuple[Mapping[str, Any], ...] = ()
    """the newest hundred: `source`, `column`, `kind`, `type`, `file`, `line`, `batch`, `at`, `records`, `now`, as `status` shows them"""
    accepted: tuple[Mapping[str, Any], ...] = ()
    """the last agreement for each sink: `sink`, `columns`, `instead`, `readers`, `at`, `by`, in the form that `status` shows"""


# Records between the leader and hosts: kinds for the paths that `registry.tree` declares below `physicalnodes/`.


Ask = Literal["run", "stop", "kill"]
ProcessState = Literal["starting", "running", "exited", "gone"]


class Decommissioned(Record):
    """A host that gets no new workers, and whose workers move elsewhere if they can."""

    by: str = ""
    at: str = ""


class WorkerOrder(Record):
    """The leader's order to a host about one worker. The host creates the worker's command and environment itself: an order contains no
    secret."""

    ask: Ask
    cores: int = 1
    memory_bytes: int = 0
    executors: int = 1
    spark: Mapping[str, str] = {}
    """further Spark settings"""
    grace_s: float = 0.0
    """for a stop: seconds until the worker is killed"""
    digest: str = ""
    """distinguishes this order from others"""


class WorkerSeen(Record):
    """A worker, as its host's launcher reports it (`launch.contract.ObservedWorker`)."""

    state: ProcessState
    order: int = 0
    """the revision that created the order by which it was started; 0: unknown"""
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
    """the path of the folder, the same on every host"""
    node: str
    """the host whose node process maintains it; empty: it is no longer written"""
    number: int = 1
    """increases by one with each host to which it is assigned"""
    writers: tuple[str, ...] = ()
    """the tiers that write there, as `flow.tier`"""
    since: str = ""
    """when it was assigned to that host, or became unassigned, ISO 8601"""


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
    """The id of a folder, which is the name of its records."""
    return sha256(normpath(path).encode()).hexdigest()[:_LENGTH]


# The kinds of records about alerts and delays of flows; `tree` declares their paths.


class AlertSpec(Record):
    """An alert of a version: its condition and its targets. The master's log gets all alerts."""

    when: str
    """as in the flow file"""
    webhook: str = ""
    command: tuple[str, ...] = ()


class AlertSettings(Record):
    """The alerts of a version, and its `max_delay`."""

    max_delay_s: float | None = None
    alerts: Mapping[str, AlertSpec] = {}


class AlertRecord(Record):
    """An alert that fires, or has fired."""

    firing: bool
    since: str = ""
    """time of the change, ISO 8601"""
    value: str = ""
    """the value at that time, as a text"""


class Alerts(Record):
    """The alerts of a flow that fire or have fired: name → its state. Written after all targets were notified."""

    alerts: Mapping[str, AlertRecord] = {}


FlowState = Literal[
    "created", "starting", "running", "degraded", "pausing", "paused", "draining", "stopping", "stopped", "failed", "recovering"
]
Goal = Literal["running", "paused", "drained", "stopped"]
"""`paused`: no new Batch, the process stays. `drained`: everything that was available at the request is processed through all tiers, then
the processes end. `stopped`: the current Batches end, then the processes."""
WorkerCount = int | Literal["each"]
"""The number of workers of a tier. `each`: one on each host that the tier may run on."""
WorkerState = Literal["starting", "running", "degraded", "recovering", "paused", "drained", "stopped", "failed", "standby"]
"""The state that a worker reports for its tier. `recovering`: one of its queries failed for a passing reason and will restart
automatically. `degraded`: one of its queries failed permanently, the others continue. `standby`: it is the warm standby, ready to take over
the tier."""


class HolderRecord(Record):
    """A process that holds a lease, or shows that it runs: a master, a worker, a host's node process."""

    id: str = ""
    host: str = ""
    pid: int = 0
    http: str = ""
    """the address of its page"""
    since: str = ""
    """ISO 8601"""
    claim: str = ""
    """distinguishes this acquisition of a lease from all others"""


class AutoscaleSpec(Record):
    """The `autoscale` of a tier in a version."""

    lag_s: float
    """the lag above which it needs more executors"""
    max: int
    """the most executors"""
    min: int = 1
    """the fewest executors"""
    mode: Literal["advise", "act"] = "advise"
    """`advise`: the leader only says what it would do; `act`: it does it"""


class TierSpec(Record):
    """The settings of a tier in a version, as far as masters need them."""

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
    """workers of that version may serve the tier unchanged: they run the same. 0: only workers of this version"""
    process: int = 0
    """workers of that version, or of a later one, switch to this version between two Batches. 0: new workers must be started"""
    folders: tuple[str, ...] = ()
    """the folders that its sinks write into, each of which a host maintains"""
    groups: Mapping[str, Mapping[str, float]] = {}
    """group to which sinks or channels of the tier write → member → cost, as in the flow file"""
    group: str = ""
    """the group of hosts on which its workers run; empty: on any host"""
    hosts: Mapping[str, float] = {}
    """node or host name of each member of that group → cost, as in the flow file"""
    workers: WorkerCount = 1
    """the number of its workers: one holds its lease, the others help"""
    alone: str = ""
    """why it cannot have helpers; empty if it can"""
    autoscale: AutoscaleSpec | None = None
    """how the number of its executors follows its lag; absent: it stays"""


HELPER = "~"
"""separates a tier's name and the number in names of helpers: no tier name can contain it"""


def helper_name(tier: str, number: int) -> str:
    """The name of worker `number` of a tier, from 2 on, in place of the tier's name. Worker 1 holds the tier's lease, and has the tier's
    name.

    >>> helper_name("core", 2)
    'core~2'
    """
    return f"{tier}{HELPER}{number}"


def tier_of(name: str) -> str:
    """The tier that a helper helps; for a tier, its own name.

    >>> tier_of("core~2"), tier_of("core")
    ('core', 'core')
    """
    return name.partition(HELPER)[0]


def is_helper(name: str) -> bool:
    """True if it is the name of a helper, not of a tier."""
    return HELPER in name


def spec_of(spec: Spec, name: str) -> TierSpec | None:
    """A version's settings of a tier, or of one of its helpers; None if the version has no such tier. A helper has the settings of the
    tier, but no standby, and it maintains no folders and writes to no groups: it only reads the portions that it is assigned."""
    tier = tier_of(name)
    there = spec.tiers.get(tier)
    if there is None or tier == name:
        return there
    return msgspec.structs.replace(there, feeders=(tier,), standby="none", folders=(), groups={})


class AgentTierSpec(Record):
    """The settings of a tier that agents run, in a version."""

    lanes: Mapping[str, str]
    """source of the flow → the group of agents that collect it; empty: agents that name no group"""
    gateways: str = ""
    """the group of gateways; empty: all"""


class Spec(Record):
    """One version of a flow, as it was submitted. It never changes."""

    package: str
    """the sha256 of the package that contains it"""
    path: str
    """the path of the flow file in the package"""
    base: str
    """the folder from which the flow's relative paths are resolved; the same on every host"""
    state: str
    """the folder of the flow's state; the same on every host"""
    tiers: Mapping[str, TierSpec]
    by: str = ""
    at: str = ""
    together: Mapping[str, int] = {}
    """flow → version, for all flows that were submitted as one with it; empty for a flow submitted alone"""
    labels: Mapping[str, str] = {}
    """the labels, by which commands and access rights select flows"""
    scaled: Mapping[str, Mapping[str, int]] = {}
    """tier → values of its TierSpec that were set by `scale`; later versions keep them"""
    groups: Mapping[str, Mapping[str, float]] = {}
    """group of hosts in the flow file → node or host name of each member → cost"""
    watched: AlertSettings = AlertSettings()
    outside: Outside = Outside()
    """the places where it reads and writes, from which its connections to other flows follow"""
    why: str = ""
    """what the leader changed and why, in a version that it made; empty if a person made the version"""
    agents: Mapping[str, AgentTierSpec] = {}
    """the tiers that agents run; no worker serves them"""


class FlowFile(Record):
    """The text of a flow file that an operator wrote into the registry, as JSON. The record may also be the text itself."""

    text: str
    base: str = ""
    """the absolute path of the folder from which relative paths are resolved; empty: the folder of the previous version"""
    state: Goal = "running"
    """the new desired state of the flow"""
    accept: Literal["again", "lost"] | None = None
    """as for `apply --accept`: queries that cannot keep their checkpoint read from the start, or continue from their position"""


class TakenFile(Record):
    """The text of `file` that was last read, and the result."""

    revision: int
    """the revision that wrote the text"""
    version: int = 0
    """the resulting version of the flow; 0: the text was refused"""
    at: str = ""
    why: str = ""
    """why it was refused"""
    remedy: str = ""
    again: bool = False
    """the problem is temporary: the text is tried again"""


class Desired(Record):
    """The desired state of a flow."""

    state: Goal
    version: int
    """the number of its Spec"""
    by: str = ""
    at: str = ""
    operation: str = ""
    """the newest operation; the flow waits until it has ended"""
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
    """what happens next, or what an operator can do"""
    version: int = 0
    generation: int = 0
    """the revision of `desired` that it refers to"""
    goal: Goal | None = None
    """the desired state at that time: with `version`, `generation` and `operation` the last valid desired state"""
    operation: str = ""
    refused: Mapping[str, Any] = {}
    """invalid records that operators wrote: path → `version` of the record, `why`, `remedy`"""


class TierWish(Record):
    """The desired state of a tier's worker now. It follows the flow's desired state in an order that loses nothing."""

    version: int
    goal: Goal
    generation: int
    """the generation of the flow's desired state that it follows: a worker reports the one that it has reached"""
    task: str = ""
    """the operation whose part for this tier is to be done first, under the lease"""


class Run(Record):
    """The worker that is assigned to a tier; written before the worker is started, so that the next master knows it. Times are in seconds
    since the epoch, by the clock of the master that wrote it."""

    number: int
    """increases by one with each start, over the whole life of the tier"""
    node: str
    asked_at: float
    generation: int
    """the generation for which it was started, or which it has reached since"""
    leased: bool = False
    """it was observed to hold the lease"""
    unleased_since: float | None = None
    """the time since which it does not hold the lease; before it ever held it: since when its node has not answered"""
    ended_at: float | None = None
    """when its end was recorded: its process has ended, or was given up"""
    failures: int = 0
    """failures in a row without progress, including those of earlier runs"""
    cause: str = ""
    """why it ended"""
    remedy: str = ""
    permanent: bool = False
    """another start would end the same way"""


class Report(Record):
    """A worker's report, written at each change of its state."""

    run: int
    generation: int
    """the generation of the desired state that it follows"""
    version: int
    state: WorkerState
    commits: int = 0
    """Batches committed since it started, as of this report"""
    ready: bool | None = None
    """each of its queries has committed a Batch since its start, or has found nothing to read; null if the worker is of an earlier
    release"""
    cause: str = ""
    remedy: str = ""
    permanent: bool = False
    http: str = ""
    """the address of its page"""
    task: str = ""
    """the operation whose part for this tier is done, or has failed"""
    task_error: str = ""


class TierSize(Record):
    """What the leader thinks of the number of executors of a tier with `autoscale`. Written when it changes its mind."""

    executors: int
    """the number that the tier should have"""
    present: int
    """the number that it had then"""
    verdict: Literal["grow", "shrink", "stay", "falls", "most", "wait"]
    """`grow`, `shrink`: it should have another number. `stay`: it has the right one. `falls`: the lag is above the bound, and will soon be
    below it. `most`: it would grow, but has the most executors, or executors are not what it lacks. `wait`: nothing can be decided"""
    why: str = ""
    since: str = ""
    """ISO 8601"""
    changed_at: float | None = None
    """when autoscale last changed the number, in seconds since the epoch, by the clock of the master that did; absent: never"""
    change: str = ""
    """that change, for people"""
    each_rows_per_s: float = 0.0
    """the rate of an executor when autoscale last raised the number; 0: it never did"""


class TierSizes(Record):
    """The tiers of a flow that have `autoscale`."""

    tiers: Mapping[str, TierSize] = {}


class Operation(Record):
    """An operation of several steps. Any master can continue it."""

    kind: Literal["offsets", "rewind", "renew", "repartition", "recut"]
    step: Literal["stop", "drain", "work", "done", "failed", "cancelled"]
    """`stop`: the flow's workers end in order; `drain`: the same, but readers of channels first read the backlog; `work`: the tiers do
    their part, each under its lease. Other values: the operation has ended."""
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
    """An operation that sets the desired state of all flows of a workflow, one after the other. Any master can continue it."""

    goal: Goal
    step: Literal["ask", "done", "failed", "cancelled"] = "ask"
    """`ask`: the desired state of a flow is set when others have reached the goal: for `running` its downstream flows, otherwise its
    upstream flows"""
    feeders: Mapping[str, tuple[str, ...]] = {}
    """flow → its upstream flows"""
    begun: Mapping[str, int] = {}
    """flow → the revision of its desired state at the start of this operation: with a later one, it was set since"""
    by: str = ""
    at: str = ""
    since: str = ""
    """when it reached its step"""
    error: str = ""


class StateChange(Record):
    """A change of a flow's state, as a master observed it."""

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
    """One task of a tier: its input, output and progress, as of the newest decided Batch when this was written."""

    query: str = ""
    batch: int = -1
    sources: Mapping[str, Any] = {}
    """source → the labels of its SourceStreams"""
    sinks: Mapping[str, Any] = {}
    """sink → its SinkStream: `unit`, `rows`, `bytes`"""
    owner: str = ""
    """the worker"""
    position: Mapping[str, Any] = {}
    """source → number of decided entries of its log; written at checkpoints of progress, not for each Batch"""


class Ends(Record):
    """The nodes of the flow with which a tier begins, or ends."""

    nodes: tuple[str, ...] = ()


class NodeState(Record):
    """The state of a logical node."""

    state: FlowState
    host: str = ""
    since: str = ""
    agents: int = 0
    """of a tier that agents run: the number of its agents"""
    away: tuple[str, ...] = ()
    """those of them that do not report; of many, the first ones"""


class ServedPage(Record):
    """The address of a page or its JSON."""

    url: str


class GroupName(Record):
    """The group of hosts that a tier runs on: that of its version, or another group of the flow that an operator wrote."""

    group: str
    said: str = ""
    """the group in the version when a master wrote this record: if another version names another group, that group applies"""


class Host(Record):
    """A machine that can run tiers, as it registered itself."""

    host: str
    cores: int = 0
    """the most cores that its workers may have together; 0: no limit"""
    memory_bytes: int = 0
    """the most memory that its workers may have together; 0: no limit"""
    since: str = ""
    home: str = ""
    """its folder on that machine: workers' logs, packages"""
    spark: str = ""
    """the Spark cluster on which its workers' executors run; empty: Spark runs in the workers"""


class Mapped(Record):
    """A tier that is bound to a host or an agent."""

    by: str = ""
    at: str = ""
    group: str | None = None
    """of an agent: the tier is not bound, but runs there because it collects from this group; gateways write these records"""


class Hosted(Record):
    """A worker that serves a tier on this host: it holds, or has held, the tier's lease, and has not ended. The record binds nothing."""

    since: str = ""
    """when it was started"""


class GroupRecord(Record):
    """A named set of equivalent members, each with its cost."""

    members: Mapping[str, float]
    """name → cost, replacing that of flow files; the healthy member with the lowest cost comes first"""
    out: Mapping[str, str] = {}
    """disabled members, which get no Batch → why"""


class QueryAck(Record):
    """How far a query's Batches are acknowledged: committed, and so is everything that downstream tiers made of them. Batches are numbers
    of one lineage, -1 for none; positions in sources are numbers of entries of their logs."""

    lineage: str
    decided: int = -1
    decided_at: str = ""
    acknowledged: int = -1
    acknowledged_at: str = ""
    """when the acknowledged Batch was decided"""
    read: Mapping[str, int] = {}
    """source → number of decided entries"""
    released: Mapping[str, int] = {}
    """source → number of acknowledged entries, which the flow no longer needs"""
    channels: Mapping[str, int] = {}
    """channel that it writes → the newest Batch that all readers have acknowledged"""
    through: Mapping[str, tuple[tuple[float, float], ...]] = {}
    """external source → pairs (T, U): all entries that existed at T were observed as acknowledged at U; the newest pair last, older ones
    with increasing gaps; seconds since the epoch by the worker's clock"""


class Ack(Record):
    """How far the tier's input is acknowledged by all downstream tiers of the flow."""

    queries: Mapping[str, QueryAck] = {}


class Limit(Record):
    """The rate limits of a flow. A value that is absent means no limit."""

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
    """The shared quota of flows with a label. A value that is absent means no limit."""

    cores: int | None = None
    """the most cores of all their workers together, by the resources that these were given"""
    memory_bytes: int | None = None
    """the most memory of all their workers together"""
    rows_per_s: float | None = None
    """the most rows per second that they read together from external sources"""
    by: str = ""
    at: str = ""


class Share(Record):
    """A flow's share of the rows per second of a quota."""

    rows_per_s: float | None = None
    """absent: none of its quotas limits the rate"""
    quota: str = ""
    """the name of the quota; of several, the one with the smallest share"""
    idle: bool = False
    """the flow reads nothing, and other flows have most of its share"""


class IdempotentRequest(Record):
    """A write request to the API with an idempotency key, and its answer."""

    asked: str
    """SHA-256 of method, path and body"""
    at: float
    """seconds since the epoch, by the clock of the master that received it"""
    status: int = 0
    """the HTTP status of the answer; 0 while the write is under way"""
    body: str = ""
    """the body of the answer"""


class Token(Record):
    """An API token: its name, role and labels. The token itself is not stored, only its scrypt hash."""

    name: str
    role: Literal["agent", "viewer", "operator", "editor", "admin"]
    """`agent`: no access to the API; agents and other clients of gateways use it"""
    salt: str
    hash: str
    at: str = ""
    by: str = ""
    labels: Mapping[str, str] = {}
    """access only to flows with all of these labels; empty: all flows"""
    until: str = ""
    """its expiry, ISO 8601; empty: it does not expire"""
    removed: str = ""
    """when it was revoked, so that it is no longer valid, and a token file of another master does not restore it; empty: it was not"""


class ConsoleSession(Record):
    """A session of a browser that was opened with an API token. Its secret is not stored; the record's name is the secret's SHA-256."""

    token: str
    """the id of the token, whose role and labels apply"""
    at: str = ""
    until: str = ""
    """its expiry, ISO 8601"""


class AttemptRecord(Record):
    """One process that served a tier. Times are in seconds since the epoch, by the clocks of masters."""

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
    """failures in a row without progress, including this one"""


class Attempts(Record):
    """The last attempts of a flow, oldest first."""

    last: tuple[AttemptRecord, ...] = ()


# Records of agents and gateways. Agents have no ZooKeeper: gateways write what they report.


class AgentLaneRecord(Record):
    """A lane of an agent, as it reported it. Numbers count the records of the incarnation."""

    state: str = "running"
    """`running`, `waiting` (no gateway accepts frames), `full`, `paused`, `failed`, `ended` (a standard input that is closed)"""
    version: int = 0
    """the version of the flow that it runs"""
    incarnation: str = ""
    read: int = 0
    stored: int = 0
    committed: int = 0
    waiting_bytes: int = 0
    """bytes in its write-ahead log that are not acknowledged"""
    oldest_ms: int = 0
    """when the oldest record that is not acknowledged was read, in milliseconds since 1970; 0: none"""
    dropped: int = 0
    files: int = 0
    message: str = ""


class AgentRecord(Record):
    """An agent, by its last report. Written at most once in ten seconds."""

    host: str
    reported_at: float
    """when a gateway received the report, in seconds since the epoch, by the gateway's clock"""
    group: str = ""
    release: str = ""
    since: str = ""
    """when the agent started, ISO 8601"""
    gateway: str = ""
    """the gateway that received the report"""
    revision: str = ""
    """of the configuration that it runs"""
    report_s: float = 10.0
    """the interval at which it is to report"""
    lanes: Mapping[str, AgentLaneRecord] = {}
    message: str = ""


class GatewayRecord(Record):
    """A gateway that is up."""

    url: str
    """the address at which agents reach it"""
    group: str = ""
    cost: float = 1.0
    """agents use gateways of lower cost first"""
    since: str = ""
    release: str = ""
    host: str = ""
    pid: int = 0


class ChainRecord(Record):
    """Which gateways of a group agents use, if that is not left to the costs of the gateways themselves."""

    costs: Mapping[str, float] = {}
    """gateway → cost, replacing its own"""
    out: Mapping[str, str] = {}
    """disabled gateways, which agents are not given → why"""
    chain: tuple[str, ...] = ()
    """gateways in the order in which all agents try them; others of the group follow, by their costs"""
    by: str = ""
    at: str = ""


RollOutStage = Literal["one", "some", "all", "done", "back"]


class RollOutRecord(Record):
    """How far a version's configuration has reached the agents of a tier. Times are in seconds since the epoch, by gateways' clocks."""

    version: int
    """the version that is rolled out"""
    before: int = 0
    """the version that the other agents keep, and that all return to if the new one fails; 0: none"""
    stage: RollOutStage = "done"
    """`one` agent, `some` of them, `all`; `done`: all run it; `back`: all run the version before"""
    chosen: tuple[str, ...] = ()
    """the agents of the stages `one` and `some`"""
    exempt: tuple[str, ...] = ()
    """agents that were away or had failed when it began: no stage waits for them"""
    since: float = 0.0
    """when the stage began"""
    good_since: float = 0.0
    """the time since which all agents of the stage report that they run it; 0: they do not yet"""
    reason: str = ""
    """why it went back"""

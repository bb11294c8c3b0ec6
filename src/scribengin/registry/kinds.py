"""The kinds of records that masters, workers, hosts and people write: their keys, with what each means. `tree` says where they lie."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from typing import Any, Literal

import msgspec

from scribengin.registry.outside import Outside
from scribengin.registry.records import Record
from scribengin.registry.watched import AlertSettings

FlowState = Literal[
    "created", "starting", "running", "degraded", "pausing", "paused", "draining", "stopping", "stopped", "failed", "recovering"
]
Goal = Literal["running", "paused", "drained", "stopped"]
"""`paused`: no new Batch, the process stays. `drained`: what was there when it was asked goes through all tiers, then the processes end.
`stopped`: the Batches under way end, then the processes."""
WorkerCount = int | Literal["each"]
"""How many workers a tier has. `each`: one on each host that it may run on."""
WorkerState = Literal["starting", "running", "degraded", "recovering", "paused", "drained", "stopped", "failed", "standby"]
"""What a worker says of its tier. `recovering`: a Query of it failed for a passing reason and will start again by itself.
`degraded`: a Query of it failed for good, the others go on. `standby`: it is the spare, and ready to take the tier over."""


class HolderRecord(Record):
    """A process that has a right, or is there: a master, a worker."""

    id: str = ""
    host: str = ""
    pid: int = 0
    http: str = ""
    """the address of its page"""
    since: str = ""
    """ISO 8601"""
    claim: str = ""
    """tells its take of a right from all others"""


class TierSpec(Record):
    """A tier of a version, as far as masters must know it."""

    feeders: tuple[str, ...] = ()
    """tiers of the same flow that write what it reads"""
    cores: int = 1
    memory_bytes: int = 0
    """0: Spark's own default"""
    standby: Literal["none", "warm"] = "none"
    """`warm`: a spare worker waits, with Spark up"""
    executors: int = 1
    """where the launcher has executors: each of them gets so many cores and so much memory"""
    spark: Mapping[str, str] = {}
    """settings of its Spark session"""
    since: int = 0
    """workers of that version serve it as they are: what they run is the same. 0: only those of its own version"""
    process: int = 0
    """workers of that version, or of a later one, go on with it between two Batches. 0: others have to be started"""
    folders: tuple[str, ...] = ()
    """those that its sinks write into, and of which a host does the upkeep"""
    groups: Mapping[str, Mapping[str, float]] = {}
    """group to which sinks or channels of the tier go → member → cost, as the flow file says"""
    group: str = ""
    """the group of hosts on which its workers run; empty: on any host"""
    hosts: Mapping[str, float] = {}
    """node or host name of each member of that group → cost, as the flow file says"""
    workers: WorkerCount = 1
    """how many work at it: one holds its lease, the others help"""
    alone: str = ""
    """why none can help; empty where some can"""


HELPER = "~"
"""stands between a tier's name and a number where its helpers are spoken of: no tier can be called so"""


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
    """What a version says of a tier, or of a helper of one; None where it has no such tier.

    A helper gets what the tier's worker gets. It reads what that one hands it, has no spare and keeps no folders.
    """
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
    """the folder where the flow's relative paths start; on every host the same"""
    state: str
    """the folder of the flow's state; on every host the same"""
    tiers: Mapping[str, TierSpec]
    by: str = ""
    at: str = ""
    together: Mapping[str, int] = {}
    """flow → version, of all that were submitted as one with it; empty for one that came alone"""
    labels: Mapping[str, str] = {}
    """by which verbs, and rights, choose flows"""
    scaled: Mapping[str, Mapping[str, int]] = {}
    """tier → what of its TierSpec was said by `scale`, and stays for later versions"""
    groups: Mapping[str, Mapping[str, float]] = {}
    """group of hosts of the flow file → node or host name of each member → cost"""
    watched: AlertSettings = AlertSettings()
    outside: Outside = Outside()
    """where it reads and writes; it meets other flows there"""


class FlowFile(Record):
    """The text of a flow file that a person wrote into the registry, as JSON. The text alone, as it is, may stand there too."""

    text: str
    base: str = ""
    """absolute: the folder where relative paths start; empty: where those of the version before start"""
    state: Goal = "running"
    """what is wanted of the flow from then on"""
    accept: Literal["again", "lost"] | None = None
    """as of `apply --accept`: Queries that cannot keep their checkpoint read all again, or go on from where they are"""


class TakenFile(Record):
    """Which text of `file` was looked at last, and with what result."""

    revision: int
    """that wrote the text"""
    version: int = 0
    """of the flow that the text is; 0: it was refused"""
    at: str = ""
    why: str = ""
    """it was refused"""
    remedy: str = ""
    again: bool = False
    """what refuses it passes by itself: it is tried again"""


class Desired(Record):
    """What is wanted of a flow."""

    state: Goal
    version: int
    """the number of its Spec"""
    by: str = ""
    at: str = ""
    operation: str = ""
    """the newest operation; while it is under way the flow waits for it"""
    accepts: Mapping[str, str] = {}
    """`at` and `by`: who has agreed that sinks of this version go on with other columns than their folders hold; each tier uses it up"""


class StatusRecord(Record):
    """How a flow stands."""

    state: FlowState
    since: str = ""
    """ISO 8601"""
    reason: str = ""
    next: str = ""
    """what comes next, or what a person can do about it"""
    version: int = 0
    generation: int = 0
    """the revision of `desired` that it speaks of"""
    goal: Goal | None = None
    """what was wanted then: with `version`, `generation` and `operation` the last wish that could be taken up"""
    operation: str = ""
    refused: Mapping[str, Any] = {}
    """what stands in records of people and cannot be: path → `version` of the record, `why`, `remedy`"""


class TierWish(Record):
    """What is wanted of a tier's worker now; it follows what is wanted of the flow, in the order that loses nothing."""

    version: int
    goal: Goal
    generation: int
    """of the flow's wish that it was made from: a worker says back which it has reached"""
    task: str = ""
    """the operation of which the tier's part is to be done, under the lease, before the goal"""


class Run(Record):
    """Which worker is to serve a tier; written before it is started, so that the next master knows of it. Times: seconds since 1970, by
    the clock of the master that wrote it."""

    number: int
    """rises by one with each start, over the whole life of the tier"""
    node: str
    asked_at: float
    generation: int
    """of the wish that it was started for, or has reached since"""
    leased: bool = False
    """it was seen to hold the lease"""
    unleased_since: float | None = None
    """since when it holds the lease no more; before it ever held it: since when its node does not answer"""
    ended_at: float | None = None
    """it is over: its process has ended, or was given up"""
    failures: int = 0
    """ends in a row without progress, of this run and those before it"""
    cause: str = ""
    """why it ended"""
    remedy: str = ""
    permanent: bool = False
    """starting again would end the same way"""


class Report(Record):
    """What a worker says of itself, at each change of its state."""

    run: int
    generation: int
    """which wish it acts on"""
    version: int
    state: WorkerState
    commits: int = 0
    """Batches since it began, as of this report"""
    ready: bool | None = None
    """each of its Queries has committed a Batch since its start, or has found nothing to read; null where an earlier release says it"""
    cause: str = ""
    remedy: str = ""
    permanent: bool = False
    http: str = ""
    """the address of its page"""
    task: str = ""
    """the operation of which this tier's part is done, or has failed"""
    task_error: str = ""


class Operation(Record):
    """An operation of several steps, that the next master takes up."""

    kind: Literal["offsets", "rewind", "renew", "repartition", "recut"]
    step: Literal["stop", "drain", "work", "done", "failed", "cancelled"]
    """`stop`: the flow's workers end in order; `drain`: they do, and readers of channels first read all that is there; `work`: the tiers
    do their part, each under its lease. The others are over."""
    version: int
    """of the flow, as which its tiers do their part"""
    tiers: tuple[str, ...] = ()
    """those that have a part in it"""
    arguments: Mapping[str, Any] = {}
    by: str = ""
    at: str = ""
    since: str = ""
    """when it came to its step"""
    error: str = ""


class WorkflowOperationRecord(Record):
    """What is asked of all flows of a workflow, one after the other, that the next master takes up."""

    goal: Goal
    step: Literal["ask", "done", "failed", "cancelled"] = "ask"
    """`ask`: each flow is asked when those before it have come to the goal: of `running` those that it feeds, else those that feed it"""
    feeders: Mapping[str, tuple[str, ...]] = {}
    """flow → those of the flows that feed it"""
    begun: Mapping[str, int] = {}
    """flow → the revision that had written what was wanted of it when this began: with another one it has been asked"""
    by: str = ""
    at: str = ""
    since: str = ""
    """when it came to its step"""
    error: str = ""


class StateChange(Record):
    """A change of a flow's state, as the master has seen it."""

    at: str
    """ISO 8601"""
    state: FlowState
    reason: str = ""
    version: int = 0
    goal: Goal | None = None


class ChangeHistory(Record):
    """The last changes of a flow's state, the oldest first."""

    last: tuple[StateChange, ...] = ()


UNDER_WAY = ("stop", "drain", "work")
"""the steps of an operation that is not over"""


class Task(Record):
    """One task of a tier, as of the newest Batch that was decided when it was written: what it reads and writes, and how far it is."""

    query: str = ""
    batch: int = -1
    sources: Mapping[str, Any] = {}
    """source → the labels of its SourceStreams"""
    sinks: Mapping[str, Any] = {}
    """sink → its SinkStream: `unit`, `rows`, `bytes`"""
    owner: str = ""
    """the worker"""
    position: Mapping[str, Any] = {}
    """source → the entries of its log that are decided; at checkpoints of progress, not per Batch"""


class Ends(Record):
    """The nodes of the flow at one end of a tier."""

    nodes: tuple[str, ...] = ()


class NodeState(Record):
    """How a logical node stands."""

    state: FlowState
    host: str = ""
    since: str = ""


class ServedPage(Record):
    """Where a page or its JSON is served."""

    url: str


class GroupName(Record):
    """The group that a tier runs on: as its version says, or another of the flow's that a person has written."""

    group: str
    said: str = ""
    """what the version said when a master wrote it: another version's word comes before a person's"""


class Host(Record):
    """A machine that can run tiers, as it registered itself."""

    host: str
    cores: int = 0
    """what its workers together may have; 0: no limit"""
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
    """A worker that serves a tier on this host: it holds, or has held, the tier's lease, and has not ended. It binds nothing."""

    since: str = ""
    """when it was started"""


class GroupRecord(Record):
    """A named set of equivalent members, each with its cost."""

    members: Mapping[str, float]
    """name → cost, in place of that of flow files; the lowest healthy one first"""
    out: Mapping[str, str] = {}
    """members that get no Batch while they stand here → why"""


class QueryAck(Record):
    """How far a Query's Batches are acknowledged: committed, with all that was made of them in the tiers behind. Batches of one lineage by
    number, -1 for none; sources by how many entries of their logs are behind."""

    lineage: str
    decided: int = -1
    decided_at: str = ""
    acknowledged: int = -1
    acknowledged_at: str = ""
    """when that Batch was decided"""
    read: Mapping[str, int] = {}
    """source → entries that are decided"""
    released: Mapping[str, int] = {}
    """source → entries that are acknowledged: the flow needs them no more"""
    channels: Mapping[str, int] = {}
    """channel that it feeds → the newest Batch that all readers have acknowledged"""
    through: Mapping[str, tuple[tuple[float, float], ...]] = {}
    """source from outside → (a moment, when all that was there at that moment was seen acknowledged), the newest last and older ones with
    ever larger gaps; seconds since 1970 by the worker's clock"""


class Ack(Record):
    """How far what the tier took in is acknowledged by all that comes behind it in the flow."""

    queries: Mapping[str, QueryAck] = {}


class Limit(Record):
    """How fast a flow may go. Absent: no limit."""

    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    sources: Mapping[str, Mapping[str, float]] = {}
    """source → `rows_per_s`, `bytes_per_s`"""
    edges: Mapping[str, Mapping[str, float]] = {}
    """edge → `rows_per_s`, `bytes_per_s`"""


class Workers(Record):
    """How many workers each of a flow's tiers has, where that is other than its version says."""

    tiers: Mapping[str, WorkerCount] = {}
    """tier → how many, from 1 on, or `each`: one on each host that the tier may run on"""


class Quota(Record):
    """What flows with a label may take together. Absent: as much as there is."""

    cores: int | None = None
    """of their workers, by what these were given"""
    memory_bytes: int | None = None
    """the same"""
    rows_per_s: float | None = None
    """of all that they read from outside"""
    by: str = ""
    at: str = ""


class Share(Record):
    """A flow's part of the rows a second of a quota."""

    rows_per_s: float | None = None
    """absent: none of its quotas says"""
    quota: str = ""
    """of which; of several, the one that leaves it least"""
    idle: bool = False
    """it reads nothing, and others have most of its part"""


class IdempotentRequest(Record):
    """A write that was asked of the API under an idempotency key, and its answer."""

    asked: str
    """SHA-256 of method, path and body"""
    at: float
    """seconds since 1970, by the clock of the master that was asked"""
    status: int = 0
    """of the answer; 0 while the write is under way"""
    body: str = ""
    """of the answer"""


class Token(Record):
    """Who may use the API, and for what. No token stands here: only what scrypt makes of it."""

    name: str
    role: Literal["viewer", "operator", "editor", "admin"]
    salt: str
    hash: str
    at: str = ""
    by: str = ""
    labels: Mapping[str, str] = {}
    """flows with all of these only; empty: all"""
    until: str = ""
    """ISO 8601; from then on it opens nothing. Empty: it has no end"""
    removed: str = ""
    """when it was removed: it opens nothing any more, and a file of another master does not bring it back"""


class AttemptRecord(Record):
    """One process that served a tier. Times: seconds since 1970, by the clocks of masters."""

    tier: str
    number: int
    """of its run"""
    asked_at: float
    node: str = ""
    host: str = ""
    pid: int = 0
    ended_at: float | None = None
    cause: str = ""
    remedy: str = ""
    failures: int = 0
    """ends in a row without progress, with this one"""


class Attempts(Record):
    """The last ones of a flow, the oldest first."""

    last: tuple[AttemptRecord, ...] = ()

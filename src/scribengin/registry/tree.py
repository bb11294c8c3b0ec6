"""The tree of the registry: which records there are, what is in them, and who may write them. `docs/registry.md` is made from it.

The tree is an interface: people and other programs read it, and write some of it, with ZooKeeper's own shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from scribengin.registry.contract import Create, Grant, May, fence_of
from scribengin.registry.host_records import Decommissioned, WorkerOrder, WorkerSeen
from scribengin.registry.records import Record, Spot
from scribengin.registry.watched import Alerts, Watched

if TYPE_CHECKING:
    from collections.abc import Iterable

FlowState = Literal[
    "created", "starting", "running", "degraded", "pausing", "paused", "draining", "stopping", "stopped", "failed", "recovering"
]
Goal = Literal["running", "paused", "drained", "stopped"]
"""`paused`: no new Batch, the process stays. `drained`: what was there when it was asked goes through all tiers, then the processes end.
`stopped`: the Batches under way end, then the processes."""
WorkerState = Literal["starting", "running", "degraded", "recovering", "paused", "drained", "stopped", "failed", "standby"]
"""What a worker says of its tier. `recovering`: a Query of it failed for a passing reason and will start again by itself.
`degraded`: a Query of it failed for good, the others go on. `standby`: it is the spare, and ready to take the tier over."""


class Holder(Record):
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
    since: int = 0
    """workers of that version serve it as they are: what they run is the same. 0: only those of its own version"""
    process: int = 0
    """workers of that version, or of a later one, go on with it between two Batches. 0: others have to be started"""


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
    watched: Watched = Watched()


class Desired(Record):
    """What is wanted of a flow."""

    state: Goal
    version: int
    """the number of its Spec"""
    by: str = ""
    at: str = ""
    operation: str = ""
    """the newest operation; while it is under way the flow waits for it"""


class Status(Record):
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


class Report(Record):
    """What a worker says of itself, at each change of its state."""

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
    http: str = ""
    """the address of its page"""
    task: str = ""
    """the operation of which this tier's part is done, or has failed"""
    task_error: str = ""


class Operation(Record):
    """An operation of several steps, that the next master takes up."""

    kind: Literal["offsets", "rewind", "renew", "repartition"]
    step: Literal["stop", "work", "done", "failed", "cancelled"]
    """`stop`: the flow's workers end in order; `work`: the tiers do their part, each under its lease. The others are over."""
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


class Change(Record):
    """A change of a flow's state, as the master has seen it."""

    at: str
    """ISO 8601"""
    state: FlowState
    reason: str = ""
    version: int = 0
    goal: Goal | None = None


class Changes(Record):
    """The last changes of a flow's state, the oldest first."""

    last: tuple[Change, ...] = ()


UNDER_WAY = ("stop", "work")
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


class Link(Record):
    """Where a page or its JSON is served."""

    url: str


class GroupName(Record):
    """The group that a tier runs on."""

    group: str


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


class Mapped(Record):
    """A logical node bound to a physical one."""

    by: str = ""
    at: str = ""


class Group(Record):
    """A named set of equivalent members, each with its cost."""

    members: Mapping[str, float]
    """name → cost; the lowest healthy one first"""


class Ack(Record):
    """How far a tier's output is acknowledged by all that come behind."""

    upto: Mapping[str, Any] = {}
    """channel → position"""
    at: str = ""


class Limit(Record):
    """How fast a flow may go. Absent: no limit."""

    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    sources: Mapping[str, Mapping[str, float]] = {}
    """source → `rows_per_s`, `bytes_per_s`"""
    edges: Mapping[str, Mapping[str, float]] = {}
    """edge → `rows_per_s`, `bytes_per_s`"""


class Request(Record):
    """A write that was asked of the API under an idempotency key, and its answer."""

    asked: str
    """SHA-256 of method, path and body"""
    at: float
    """seconds since 1970, by the clock of the master that was asked"""
    status: int = 0
    """of the answer; 0 while the write is under way"""
    body: str = ""
    """of the answer"""


class Writer(Enum):
    """Who writes a record."""

    MASTER = "the leader, under its Term"
    CANDIDATE = "each master"
    WORKER = "the tier's worker, under its lease"
    HOST = "the host's process"
    PERSON = "people: by a verb, or with ZooKeeper's shell"


class Owner(Enum):
    """Whose login has the rights below a folder, beside the masters'."""

    MASTERS = "masters only"
    WORKER = "the tier's worker"
    HOST = "the host"


K = TypeVar("K", bound=Record)
_NAMES = {
    "flow": r"[a-z][a-z0-9_]{0,62}",
    "tier": r"[a-z][a-z0-9_]{0,62}",
    "node": r"[a-z][a-z0-9_]{0,62}\.[a-z][a-z0-9_]{0,62}",
    "n": r"[1-9][0-9]*",
    "task": r"[0-9]+",
    "id": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "host": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "group": r"[a-z][a-z0-9_]{0,62}",
    "lock": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "worker": r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}",
    "request": r"[0-9a-f]{32}",
}
"""placeholder → what may stand for it"""
_PATTERNS = {placeholder: re.compile(pattern) for placeholder, pattern in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class Branch(Generic[K]):
    """One kind of place. Called with the names in its path it gives the place: `DESIRED("tweets")`."""

    path: str
    kind: type[K]
    writers: tuple[Writer, ...]
    about: str
    owner: Owner = Owner.MASTERS
    ephemeral: bool = False

    def __call__(self, *names: str) -> Spot[K]:
        """Raises ValueError for a name that cannot stand there."""
        for placeholder, name in zip(_placeholders(self.path), names, strict=True):
            if not _PATTERNS[placeholder].fullmatch(name):
                raise ValueError(f"{name!r} is no {placeholder} of {self.path}")
        return Spot(_filled(self.path, names), self.kind)

    def fits(self, *names: str) -> bool:
        """Whether these names can stand there; others are somebody else's, and left alone."""
        return all(_PATTERNS[placeholder].fullmatch(name) for placeholder, name in zip(_placeholders(self.path), names, strict=True))

    def matches(self, path: str) -> bool:
        """Whether a path is one of these places."""
        parts = re.split("<([a-z]+)>", self.path)
        pattern = "".join(f"(?:{_NAMES[part]})" if number % 2 else re.escape(part) for number, part in enumerate(parts))
        return re.fullmatch(pattern, path) is not None


_LED = (Writer.MASTER,)
_BY_HAND = (Writer.PERSON, Writer.MASTER)
_WORK = (Writer.WORKER,)

LEADER = Branch("leader", Holder, (Writer.CANDIDATE,), "the master that leads; the revision that made it is the Term", ephemeral=True)
LEADER_TERM = Branch("leader.term", Holder, (Writer.CANDIDATE,), "who led last; its version fences all before")
MASTERS = Branch("masters/<id>", Holder, (Writer.CANDIDATE,), "a master that is up", ephemeral=True)
SPEC = Branch("flows/<flow>/spec/<n>", Spec, _LED, "a version of the flow")
DESIRED = Branch("flows/<flow>/desired", Desired, _BY_HAND, "what is wanted of it")
STATUS = Branch("flows/<flow>/status", Status, _LED, "how it is, since when, why, and what next; what was refused")
OPERATION = Branch("flows/<flow>/ops/<id>", Operation, _BY_HAND, "an operation that is under way, or was")
WANTED = Branch("flows/<flow>/wanted/<tier>", TierWish, _LED, "what is wanted of a tier's worker")
RUN = Branch("flows/<flow>/runs/<tier>", Run, _LED, "which worker is to serve a tier, and how the last one ended")
SPARE = Branch("flows/<flow>/spares/<tier>", Run, _LED, "which worker waits to take a tier over, where one does")
LEASE = Branch("flows/<flow>/tiers/<tier>/lease", Holder, _WORK, "who runs the tier", Owner.WORKER, ephemeral=True)
LEASE_TERM = Branch("flows/<flow>/tiers/<tier>/lease.term", Holder, _WORK, "who ran it last; its version fences all before", Owner.WORKER)
REPORT = Branch("flows/<flow>/tiers/<tier>/status", Report, _WORK, "how its worker says that it is", Owner.WORKER)
SPARE_REPORT = Branch("flows/<flow>/tiers/<tier>/spare", Report, _WORK, "the same of the one that waits", Owner.WORKER)
TASK = Branch("flows/<flow>/tiers/<tier>/tasks/<task>", Task, _WORK, "what a task reads and writes, and how far it is", Owner.WORKER)
NODE_SOURCE = Branch("logicalnodes/<node>/source", Ends, _WORK, "where the tier begins in the flow", Owner.WORKER)
NODE_SINK = Branch("logicalnodes/<node>/sink", Ends, _WORK, "where it ends", Owner.WORKER)
NODE_STATE = Branch("logicalnodes/<node>/state", NodeState, _WORK, "that it runs, and where", Owner.WORKER, ephemeral=True)
NODE_GROUP = Branch("logicalnodes/<node>/group", GroupName, _LED, "the group it runs on", Owner.WORKER)
NODE_HTTP = Branch("logicalnodes/<node>/http", Link, _WORK, "its page", Owner.WORKER)
NODE_JSON = Branch("logicalnodes/<node>/json", Link, _WORK, "the same as JSON", Owner.WORKER)
HOST = Branch("physicalnodes/<host>/host", Host, (Writer.HOST,), "a machine that can run tiers", Owner.HOST)
MAPPED = Branch("physicalnodes/<host>/lns/<node>", Mapped, _BY_HAND, "a tier that is to run there", Owner.HOST)
HOST_HTTP = Branch("physicalnodes/<host>/http", Link, (Writer.HOST,), "its page", Owner.HOST)
HOST_JSON = Branch("physicalnodes/<host>/json", Link, (Writer.HOST,), "the same as JSON", Owner.HOST)
HOST_UP = Branch(
    "physicalnodes/<host>/up",
    Holder,
    (Writer.HOST,),
    "its agent, while that is there: a right, one agent a host",
    Owner.HOST,
    ephemeral=True,
)
HOST_UP_TERM = Branch(
    "physicalnodes/<host>/up.term", Holder, (Writer.HOST,), "who was there last; its version fences all before", Owner.HOST
)
DECOMMISSIONED = Branch(
    "physicalnodes/<host>/decommissioned", Decommissioned, _BY_HAND, "it gets no new workers, and gives away those it has", Owner.HOST
)
WORKER_ORDER = Branch("physicalnodes/<host>/orders/<worker>", WorkerOrder, _LED, "what is asked of it about a worker", Owner.HOST)
WORKER_SEEN = Branch("physicalnodes/<host>/seen/<worker>", WorkerSeen, (Writer.HOST,), "a worker there, as it is", Owner.HOST)
GROUP = Branch("groups/<group>", Group, _BY_HAND, "a group's members and their costs")
ACK = Branch("acks/<flow>/<tier>", Ack, _WORK, "how far what the tier put out is acknowledged", Owner.WORKER)
LIMIT = Branch("limits/<flow>", Limit, _BY_HAND, "how fast a flow, its sources and edges may go")
LOCK = Branch("locks/<lock>", Holder, (Writer.CANDIDATE,), "a right of one process at a time: upkeep of a folder, a claim", ephemeral=True)
LOCK_TERM = Branch("locks/<lock>.term", Holder, (Writer.CANDIDATE,), "who had it last; its version fences all before")
CHANGES = Branch("flows/<flow>/changes", Changes, _LED, "what became of it: its last fifty changes of state")
ALERTS = Branch("flows/<flow>/alerts", Alerts, _LED, "which alerts fire, and were told")
REQUEST = Branch("requests/<request>", Request, (Writer.CANDIDATE,), "the answer to a write that was asked for under an idempotency key")

TREE: tuple[Branch[Any], ...] = (
    *(LEADER, LEADER_TERM, MASTERS),
    *(SPEC, DESIRED, STATUS, OPERATION),
    *(WANTED, RUN, SPARE),
    *(LEASE, LEASE_TERM, REPORT, SPARE_REPORT, TASK),
    *(NODE_SOURCE, NODE_SINK, NODE_STATE, NODE_GROUP, NODE_HTTP, NODE_JSON),
    *(HOST, MAPPED, HOST_HTTP, HOST_JSON),
    *(GROUP, ACK, LIMIT, LOCK, LOCK_TERM),
    *(ALERTS, CHANGES),
    *(HOST_UP, HOST_UP_TERM, DECOMMISSIONED, WORKER_ORDER, WORKER_SEEN),
    REQUEST,
)

OWN_FOLDERS: Mapping[Owner, tuple[str, ...]] = {
    Owner.WORKER: ("flows/<flow>/tiers/<tier>", "logicalnodes/<node>", "acks/<flow>/<tier>"),
    Owner.HOST: ("physicalnodes/<host>",),
}
"""whose login has all rights on which folder, and on what is below it; for a tier `<node>` is `<flow>.<tier>`"""


def branch_of(path: str) -> Branch[Any] | None:
    """The kind of place that a path is; None of one that the tree does not have."""
    fitting = [branch for branch in TREE if branch.matches(path)]
    return max(fitting, key=lambda branch: len(_filled(branch.path, [""] * branch.path.count("<"))), default=None)


def own_folders_of_worker(flow: str, tier: str, who: str) -> list[Create]:
    """The writes with which the leader makes the folders of a tier, before its first worker starts. `who`: the worker's login."""
    for_all = {"flow": flow, "tier": tier, "node": f"{flow}.{tier}"}
    return [Create(_named(path, for_all), {}, grants=(Grant(who, May.ALL),)) for path in OWN_FOLDERS[Owner.WORKER]]


def own_folders_of_host(host: str, who: str) -> list[Create]:
    """The same for a machine."""
    return [Create(_named(path, {"host": host}), {}, grants=(Grant(who, May.ALL),)) for path in OWN_FOLDERS[Owner.HOST]]


def right_of_tier(flow: str, tier: str) -> str:
    """The path of a tier's lease, for `registry.lease.Lease`."""
    path = LEASE(flow, tier).path
    assert LEASE_TERM(flow, tier).path == fence_of(path)
    return path


def _named(path: str, names: Mapping[str, str]) -> str:
    return re.sub("<([a-z]+)>", lambda found: names[found[1]], path)


@cache
def _placeholders(path: str) -> tuple[str, ...]:
    return tuple(re.findall("<([a-z]+)>", path))


def _filled(path: str, names: Iterable[str]) -> str:
    return _template(path).format(*names)


@cache
def _template(path: str) -> str:
    return re.sub("<[a-z]+>", "{}", path)

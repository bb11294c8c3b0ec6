"""The tree of the registry: which records there are, what is in them, and who may write them. `docs/registry.md` is made from it.

The tree is an interface: people and other programs read it, and write some of it, with ZooKeeper's own shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scribengin.registry.column_records import ColumnsRecord
from scribengin.registry.contract import Create, Grant, May, fence_of
from scribengin.registry.host_records import Decommissioned, WorkerOrder, WorkerSeen
from scribengin.registry.kinds import (
    Ack,
    Attempts,
    ChangeHistory,
    Desired,
    Ends,
    FlowFile,
    GroupName,
    GroupRecord,
    HolderRecord,
    Host,
    Hosted,
    IdempotentRequest,
    Limit,
    Mapped,
    NodeState,
    Operation,
    Quota,
    Report,
    Run,
    ServedPage,
    Share,
    Spec,
    StatusRecord,
    TakenFile,
    Task,
    TierWish,
    Token,
    Workers,
    WorkflowOperationRecord,
)
from scribengin.registry.outside import HeldBackSinks
from scribengin.registry.peers import Peer, PeerState, RemoteFlow
from scribengin.registry.records import Record, Spot
from scribengin.registry.upkeep_records import MaintenanceOwner, MaintenanceReport
from scribengin.registry.watched import Alerts

if TYPE_CHECKING:
    from collections.abc import Iterable


class Writer(Enum):
    """Who writes a record."""

    MASTER = "the leader, under its Term"
    CANDIDATE = "each master"
    WORKER = "the tier's worker, under its lease"
    HOST = "the host's process"
    PERSON = "people: by a verb, or with ZooKeeper's shell"


class BranchOwner(Enum):
    """Whose login has the rights below a folder, beside the masters'."""

    MASTERS = "masters only"
    WORKER = "the tier's worker"
    HOST = "the host"


K = TypeVar("K", bound=Record)
_NAMES = {
    "flow": r"[a-z][a-z0-9_]{0,62}",
    "tier": r"[a-z][a-z0-9_]{0,62}(?:~[0-9]{1,2})?",
    "node": r"[a-z][a-z0-9_]{0,62}\.[a-z][a-z0-9_]{0,62}(?:~[0-9]{1,2})?",
    "n": r"[1-9][0-9]*",
    "task": r"[0-9]+",
    "id": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "host": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "group": r"[a-z][a-z0-9_]{0,62}",
    "worker": r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,199}",
    "run": r"[a-z][a-z0-9_]{0,62}\.[a-z][a-z0-9_]{0,62}(?:~[0-9]{1,2})?-[1-9][0-9]*",
    "request": r"[0-9a-f]{32}",
    "token": r"[0-9a-f]{12}",
    "folder": r"[0-9a-f]{16}",
    "peer": r"[a-z][a-z0-9_]{0,62}",
    "quota": r"[a-z][a-z0-9_]{0,62}=[A-Za-z0-9_][A-Za-z0-9._:-]{0,62}",
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
    owner: BranchOwner = BranchOwner.MASTERS
    ephemeral: bool = False
    change: str = ""
    """what a change of it by hand does; empty: what `registry.reference` says of all that this writer writes"""

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

LEADER = Branch("leader", HolderRecord, (Writer.CANDIDATE,), "the master that leads; the revision that made it is the Term", ephemeral=True)
LEADER_TERM = Branch("leader.term", HolderRecord, (Writer.CANDIDATE,), "who led last; its version fences all before")
MASTERS = Branch("masters/<id>", HolderRecord, (Writer.CANDIDATE,), "a master that is up", ephemeral=True)
FILE = Branch(
    "flows/<flow>/file",
    FlowFile,
    (Writer.PERSON,),
    "the text of a flow file, or JSON with it",
    change="it is taken up as `apply` takes a file, once for each write; to remove it changes nothing",
)
TAKEN = Branch("flows/<flow>/taken", TakenFile, _LED, "which text of `file` was taken up last, as which version, or why it was refused")
SPEC = Branch(
    "flows/<flow>/spec/<n>",
    Spec,
    _LED,
    "a version of the flow",
    change="leave it: workers that start believe it; a version is made by `apply`, or `file`",
)
DESIRED = Branch(
    "flows/<flow>/desired", Desired, _BY_HAND, "what is wanted of it", change="the flow comes to it, in the order that loses nothing"
)
STATUS = Branch(
    "flows/<flow>/status",
    StatusRecord,
    _LED,
    "how it is, since when, why, and what next; what was refused",
    change="written over at the leader's next look at the flow",
)
OPERATION = Branch(
    "flows/<flow>/ops/<id>",
    Operation,
    _BY_HAND,
    "an operation that is under way, or was",
    change="a step of one that is under way is believed: leave it; the newest of a flow may be begun by a verb only",
)
WANTED = Branch(
    "flows/<flow>/wanted/<tier>",
    TierWish,
    _LED,
    "what is wanted of a tier's worker",
    change="written over at the leader's next look at the flow",
)
RUN = Branch(
    "flows/<flow>/runs/<tier>",
    Run,
    _LED,
    "which worker is to serve a tier, and how the last one ended",
    change="leave it: it is believed, and the tier may get a second worker, which waits for the lease",
)
SPARE = Branch(
    "flows/<flow>/spares/<tier>",
    Run,
    _LED,
    "which worker waits to take a tier over, where one does",
    change="leave it: it is believed, as `runs` are",
)
LEASE = Branch(
    "flows/<flow>/tiers/<tier>/lease",
    HolderRecord,
    _WORK,
    "who runs the tier",
    BranchOwner.WORKER,
    ephemeral=True,
    change="removed: its holder is fenced, and the tier starts again",
)
LEASE_TERM = Branch(
    "flows/<flow>/tiers/<tier>/lease.term", HolderRecord, _WORK, "who ran it last; its version fences all before", BranchOwner.WORKER
)
REPORT = Branch(
    "flows/<flow>/tiers/<tier>/status",
    Report,
    _WORK,
    "how its worker says that it is",
    BranchOwner.WORKER,
    change="leave it: the leader believes it until the worker writes it again",
)
SPARE_REPORT = Branch(
    "flows/<flow>/tiers/<tier>/spare",
    Report,
    _WORK,
    "the same of the one that waits",
    BranchOwner.WORKER,
    change="leave it: the leader believes it until the worker writes it again",
)
TASK = Branch("flows/<flow>/tiers/<tier>/tasks/<task>", Task, _WORK, "what a task reads and writes, and how far it is", BranchOwner.WORKER)
COLUMNS = Branch(
    "flows/<flow>/tiers/<tier>/columns",
    ColumnsRecord,
    _WORK,
    "what its data have that the schemas have not, and what its sinks write that their folders had not",
    BranchOwner.WORKER,
)
NODE_SOURCE = Branch("logicalnodes/<node>/source", Ends, _WORK, "where the tier begins in the flow", BranchOwner.WORKER)
NODE_SINK = Branch("logicalnodes/<node>/sink", Ends, _WORK, "where it ends", BranchOwner.WORKER)
NODE_STATE = Branch("logicalnodes/<node>/state", NodeState, _WORK, "that it runs, and where", BranchOwner.WORKER, ephemeral=True)
NODE_GROUP = Branch(
    "logicalnodes/<node>/group",
    GroupName,
    _BY_HAND,
    "the group it runs on, or is to run on",
    BranchOwner.WORKER,
    change="the tier's worker ends in order and starts on a host of that group",
)
NODE_HTTP = Branch("logicalnodes/<node>/http", ServedPage, _WORK, "its page", BranchOwner.WORKER)
NODE_JSON = Branch("logicalnodes/<node>/json", ServedPage, _WORK, "the same as JSON", BranchOwner.WORKER)
HOSTS = "physicalnodes"
HOST = Branch("physicalnodes/<host>/host", Host, (Writer.HOST,), "a machine that can run tiers", BranchOwner.HOST)
MAPPED = Branch(
    "physicalnodes/<host>/lns/<node>",
    Mapped,
    _BY_HAND,
    "a tier that is to run there",
    BranchOwner.HOST,
    change="the tier's worker ends in order and starts on that host; removed, the tier stays and may go anywhere",
)
HOSTED = Branch(
    "physicalnodes/<host>/lns/<run>",
    Hosted,
    _LED,
    "a tier that runs there, by the name of its worker, such as `tweets.core-3`",
    BranchOwner.HOST,
    change="it binds nothing; written anew at the leader's next look at the flow",
)
HOST_HTTP = Branch("physicalnodes/<host>/http", ServedPage, (Writer.HOST,), "its page", BranchOwner.HOST)
HOST_JSON = Branch("physicalnodes/<host>/json", ServedPage, (Writer.HOST,), "the same as JSON", BranchOwner.HOST)
HOST_UP = Branch(
    "physicalnodes/<host>/up",
    HolderRecord,
    (Writer.HOST,),
    "its agent, while that is there: a right, one agent a host",
    BranchOwner.HOST,
    ephemeral=True,
)
HOST_UP_TERM = Branch(
    "physicalnodes/<host>/up.term", HolderRecord, (Writer.HOST,), "who was there last; its version fences all before", BranchOwner.HOST
)
DECOMMISSIONED = Branch(
    "physicalnodes/<host>/decommissioned",
    Decommissioned,
    _BY_HAND,
    "it gets no new workers, and gives away those it has",
    BranchOwner.HOST,
    change="made: the host's workers go elsewhere, in order; removed: it takes workers again",
)
WORKER_ORDER = Branch(
    "physicalnodes/<host>/orders/<worker>",
    WorkerOrder,
    _LED,
    "what is asked of it about a worker",
    BranchOwner.HOST,
    change="leave it: the host does what it says",
)
WORKER_SEEN = Branch(
    "physicalnodes/<host>/seen/<worker>",
    WorkerSeen,
    (Writer.HOST,),
    "a worker there, as it is",
    BranchOwner.HOST,
    change="leave it: the leader believes it until the host writes it again",
)
GROUP = Branch(
    "groups/<group>",
    GroupRecord,
    _BY_HAND,
    "what holds of a group while flows run: costs, and members that are out",
    change="from the next Batch on that many members, with those costs, get Batches",
)
ACK = Branch("acks/<flow>/<tier>", Ack, _WORK, "how far what the tier took in is acknowledged by the tiers behind it", BranchOwner.WORKER)
LIMIT = Branch(
    "limits/<flow>",
    Limit,
    _BY_HAND,
    "how fast a flow, its sources and edges may go",
    change="from the next Batch on the flow goes as fast; removed: without a limit",
)
WORKERS = Branch(
    "workers/<flow>",
    Workers,
    _BY_HAND,
    "how many workers its tiers have (a number, or `each`), where that is other than its version says",
    change="workers start, or end in order; removed: as many as the version says",
)
CHANGES = Branch("flows/<flow>/changes", ChangeHistory, _LED, "what became of it: its last fifty changes of state")
WORKFLOW_OPERATION = Branch(
    "workflows/<n>",
    WorkflowOperationRecord,
    _BY_HAND,
    "an operation over a workflow that is under way, or was",
    change="a step of one that is under way is believed: leave it",
)
HELD_BACK = Branch(
    "flows/<flow>/held_back",
    HeldBackSinks,
    _LED,
    "which of its sinks are slowed or paused, by which reading flow",
    change="leave it: workers keep to it until the leader writes it again",
)
ALERTS = Branch("flows/<flow>/alerts", Alerts, _LED, "which alerts fire, and were told")
REQUEST = Branch(
    "requests/<request>", IdempotentRequest, (Writer.CANDIDATE,), "the answer to a write that was asked for under an idempotency key"
)
TOKEN = Branch(
    "tokens/<token>",
    Token,
    (Writer.CANDIDATE,),
    "who may use the API, and for what; only admins have it written",
    change="at the next request; `scribengin token` writes it",
)
ATTEMPTS = Branch("flows/<flow>/attempts", Attempts, _LED, "the last processes that served its tiers, and why each ended")
KEEPING = Branch(
    "upkeep/<folder>/keeper",
    MaintenanceOwner,
    _LED,
    "a sink's folder, and which host does its upkeep",
    change="leave it: the host that it names does the upkeep",
)
UPKEPT = Branch("upkeep/<folder>/done", MaintenanceReport, (Writer.HOST,), "when it was done last, and what")
UPKEEP_LEASE = Branch("upkeep/<folder>/lease", HolderRecord, (Writer.HOST,), "who does it: a right, one host a folder", ephemeral=True)
UPKEEP_LEASE_TERM = Branch("upkeep/<folder>/lease.term", HolderRecord, (Writer.HOST,), "who did it last; its version fences all before")
QUOTA = Branch(
    "quotas/<quota>",
    Quota,
    _BY_HAND,
    "what flows with a label may take together; its name is `label=value`",
    change="what runs goes on; what starts from then on is held to it, and parts of its rows are divided anew; removed: no quota",
)
SHARE = Branch(
    "flows/<flow>/share",
    Share,
    _LED,
    "its part of the rows a second of a quota",
    change="leave it: workers keep to it until the leader divides anew",
)
PEER = Branch(
    "peers/<peer>/api",
    Peer,
    _BY_HAND,
    "another control plane, whose flows may meet those here",
    change="the leader asks the masters that it names; removed: flows there hold nobody back any more",
)
PEER_STATE = Branch("peers/<peer>/state", PeerState, _LED, "whether its masters answer")
REMOTE_FLOW = Branch(
    "peers/<peer>/flows/<flow>",
    RemoteFlow,
    _LED,
    "a flow there that meets one here, as its masters said last",
    change="written over at the next answer; till then it is believed",
)

TREE: tuple[Branch[Any], ...] = (
    *(LEADER, LEADER_TERM, MASTERS),
    *(FILE, TAKEN, SPEC, DESIRED, STATUS, OPERATION),
    *(WANTED, RUN, SPARE),
    *(LEASE, LEASE_TERM, REPORT, SPARE_REPORT, TASK, COLUMNS),
    *(NODE_SOURCE, NODE_SINK, NODE_STATE, NODE_GROUP, NODE_HTTP, NODE_JSON),
    *(HOST, MAPPED, HOSTED, HOST_HTTP, HOST_JSON),
    *(GROUP, ACK, LIMIT, WORKERS),
    *(ALERTS, CHANGES),
    *(HOST_UP, HOST_UP_TERM, DECOMMISSIONED, WORKER_ORDER, WORKER_SEEN),
    *(REQUEST, QUOTA, SHARE, TOKEN),
    *(PEER, PEER_STATE, REMOTE_FLOW),
    ATTEMPTS,
    *(KEEPING, UPKEPT, UPKEEP_LEASE, UPKEEP_LEASE_TERM),
    *(WORKFLOW_OPERATION, HELD_BACK),
)

OWN_FOLDERS: Mapping[BranchOwner, tuple[str, ...]] = {
    BranchOwner.WORKER: ("flows/<flow>/tiers/<tier>", "logicalnodes/<node>", "acks/<flow>/<tier>"),
    BranchOwner.HOST: ("physicalnodes/<host>",),
}
"""whose login has all rights on which folder, and on what is below it; for a tier `<node>` is `<flow>.<tier>`"""


def branch_of(path: str) -> Branch[Any] | None:
    """The kind of place that a path is; None of one that the tree does not have."""
    fitting = [branch for branch in TREE if branch.matches(path)]
    return max(fitting, key=lambda branch: len(_filled(branch.path, [""] * branch.path.count("<"))), default=None)


def own_folders_of_worker(flow: str, tier: str, who: str) -> list[Create]:
    """The writes with which the leader makes the folders of a tier, before its first worker starts. `who`: the worker's login."""
    for_all = {"flow": flow, "tier": tier, "node": f"{flow}.{tier}"}
    return [Create(_named(path, for_all), {}, grants=(Grant(who, May.ALL),)) for path in OWN_FOLDERS[BranchOwner.WORKER]]


def own_folders_of_host(host: str, who: str) -> list[Create]:
    """The same for a machine."""
    return [Create(_named(path, {"host": host}), {}, grants=(Grant(who, May.ALL),)) for path in OWN_FOLDERS[BranchOwner.HOST]]


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

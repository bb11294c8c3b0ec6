"""The tree of the registry: its records, their contents, and who may write them. `docs/registry.md` is generated from it. The tree is an
interface: operators and other programs read it, and write some of it, with ZooKeeper's own shell."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations of records
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scribengin.registry.contract import Create, Grant, May, fence_of
from scribengin.registry.flow_ends import HeldBackSinks
from scribengin.registry.peers import Peer, PeerState, RemoteFlow
from scribengin.registry.record_io import Record, Spot
from scribengin.registry.records import (
    Ack,
    AgentRecord,
    Alerts,
    Attempts,
    ChainRecord,
    ChangeHistory,
    ColumnsRecord,
    ConsoleSession,
    Decommissioned,
    Desired,
    Ends,
    FlowFile,
    GatewayRecord,
    GroupName,
    GroupRecord,
    HolderRecord,
    Host,
    Hosted,
    IdempotentRequest,
    Limit,
    MaintenanceOwner,
    MaintenanceReport,
    Mapped,
    NodeState,
    Operation,
    Quota,
    Report,
    RollOutRecord,
    Run,
    ServedPage,
    Share,
    Spec,
    StatusRecord,
    TakenFile,
    Task,
    TierSizes,
    TierWish,
    Token,
    WorkerOrder,
    Workers,
    WorkerSeen,
    WorkflowOperationRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Writer(Enum):
    """The writer of a record."""

    MASTER = "the leader, under its Term"
    CANDIDATE = "each master"
    WORKER = "the tier's worker, under its lease"
    HOST = "the host's process"
    GATEWAY = "gateways, for the agents that report to them"
    PERSON = "people, with a command or ZooKeeper's shell"


class BranchOwner(Enum):
    """The login that has the access rights below a folder, besides the masters' login."""

    MASTERS = "masters only"
    WORKER = "the tier's worker"
    HOST = "the host"
    GATEWAY = "gateways"


K = TypeVar("K", bound=Record)
_NAMES = {
    "flow": r"[a-z][a-z0-9_]{0,62}",
    "tier": r"[a-z][a-z0-9_]{0,62}(?:~[0-9]{1,2})?",
    "node": r"[a-z][a-z0-9_]{0,62}\.[a-z][a-z0-9_]{0,62}(?:~[0-9]{1,2})?",
    "n": r"[1-9][0-9]*",
    "task": r"[0-9]+",
    "id": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "host": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "agent": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "gateway": r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,126}",
    "group": r"[a-z][a-z0-9_]{0,62}",
    "worker": r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,199}",
    "run": r"[a-z][a-z0-9_]{0,62}\.[a-z][a-z0-9_]{0,62}(?:~[0-9]{1,2})?-[1-9][0-9]*",
    "request": r"[0-9a-f]{32}",
    "token": r"[0-9a-f]{12}",
    "session": r"[0-9a-f]{64}",
    "folder": r"[0-9a-f]{16}",
    "peer": r"[a-z][a-z0-9_]{0,62}",
    "quota": r"[a-z][a-z0-9_]{0,62}=[A-Za-z0-9_][A-Za-z0-9._:-]{0,62}",
}
"""placeholder → the pattern of its values"""
_PATTERNS = {placeholder: re.compile(pattern) for placeholder, pattern in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class Branch(Generic[K]):
    """One kind of path. Called with the names in its path it returns the spot: `DESIRED("tweets")`."""

    path: str
    kind: type[K]
    writers: tuple[Writer, ...]
    about: str
    owner: BranchOwner = BranchOwner.MASTERS
    ephemeral: bool = False
    change: str = ""
    """the effect of a change by hand; empty: the default of `harness.pages.registry` for this writer"""

    def __call__(self, *names: str) -> Spot[K]:
        """The spot with these names in its path. Raises ValueError for an invalid name."""
        for placeholder, name in zip(_placeholders(self.path), names, strict=True):
            if not _PATTERNS[placeholder].fullmatch(name):
                raise ValueError(f"{name!r} is not a valid {placeholder} of {self.path}")
        return Spot(_filled(self.path, names), self.kind)

    def fits(self, *names: str) -> bool:
        """True if these names are valid in the path. Records with other names belong to other programs, and are left unchanged."""
        return all(_PATTERNS[placeholder].fullmatch(name) for placeholder, name in zip(_placeholders(self.path), names, strict=True))

    def matches(self, path: str) -> bool:
        """True if a path is of this kind."""
        parts = re.split("<([a-z]+)>", self.path)
        pattern = "".join(f"(?:{_NAMES[part]})" if number % 2 else re.escape(part) for number, part in enumerate(parts))
        return re.fullmatch(pattern, path) is not None


_LED = (Writer.MASTER,)
_BY_HAND = (Writer.PERSON, Writer.MASTER)
_WORK = (Writer.WORKER,)

LEADER = Branch("leader", HolderRecord, (Writer.CANDIDATE,), "the leading master; the revision that made it is the Term", ephemeral=True)
LEADER_TERM = Branch("leader.term", HolderRecord, (Writer.CANDIDATE,), "the last leader; its version fences all earlier leaders")
MASTERS = Branch("masters/<id>", HolderRecord, (Writer.CANDIDATE,), "a master that is up", ephemeral=True)
FILE = Branch(
    "flows/<flow>/file",
    FlowFile,
    (Writer.PERSON,),
    "the text of a flow file, or JSON that contains it",
    change="the text is applied as by `apply`, once for each write; removing it changes nothing",
)
TAKEN = Branch("flows/<flow>/taken", TakenFile, _LED, "the last text of `file` that was applied and its version, or why it was refused")
SPEC = Branch(
    "flows/<flow>/spec/<n>",
    Spec,
    _LED,
    "a version of the flow",
    change="leave it: starting workers use it; make a version with `apply` or `file`",
)
DESIRED = Branch(
    "flows/<flow>/desired",
    Desired,
    _BY_HAND,
    "the flow's desired state",
    change="the flow is brought to this state in an order that loses nothing",
)
STATUS = Branch(
    "flows/<flow>/status",
    StatusRecord,
    _LED,
    "the flow's status: state, since when, why, next action; refused records",
    change="overwritten when the leader next reconciles the flow",
)
OPERATION = Branch(
    "flows/<flow>/ops/<id>",
    Operation,
    _BY_HAND,
    "a current or past operation",
    change="leave it: masters use its step; start operations with commands only",
)
WANTED = Branch(
    "flows/<flow>/wanted/<tier>",
    TierWish,
    _LED,
    "the desired state of a tier's worker",
    change="overwritten when the leader next reconciles the flow",
)
RUN = Branch(
    "flows/<flow>/runs/<tier>",
    Run,
    _LED,
    "the worker assigned to a tier, and how the last one ended",
    change="leave it: masters use it, and the tier may get a second worker, which waits for the lease",
)
SPARE = Branch(
    "flows/<flow>/spares/<tier>",
    Run,
    _LED,
    "the standby worker of a tier, if there is one",
    change="leave it: masters use it, as they use `runs`",
)
LEASE = Branch(
    "flows/<flow>/tiers/<tier>/lease",
    HolderRecord,
    _WORK,
    "the worker that runs the tier",
    BranchOwner.WORKER,
    ephemeral=True,
    change="removed: its holder is fenced and the tier restarts",
)
LEASE_TERM = Branch(
    "flows/<flow>/tiers/<tier>/lease.term",
    HolderRecord,
    _WORK,
    "the tier's last worker; its version fences all earlier ones",
    BranchOwner.WORKER,
)
REPORT = Branch(
    "flows/<flow>/tiers/<tier>/status",
    Report,
    _WORK,
    "the last report of the tier's worker",
    BranchOwner.WORKER,
    change="leave it: the leader uses it until the worker writes it again",
)
SPARE_REPORT = Branch(
    "flows/<flow>/tiers/<tier>/spare",
    Report,
    _WORK,
    "the last report of the standby worker",
    BranchOwner.WORKER,
    change="leave it: the leader uses it until the worker writes it again",
)
TASK = Branch("flows/<flow>/tiers/<tier>/tasks/<task>", Task, _WORK, "the input, output and progress of a task", BranchOwner.WORKER)
COLUMNS = Branch(
    "flows/<flow>/tiers/<tier>/columns",
    ColumnsRecord,
    _WORK,
    "columns in its data that the schemas lack, and columns its sinks write that their folders lacked",
    BranchOwner.WORKER,
)
NODE_SOURCE = Branch("logicalnodes/<node>/source", Ends, _WORK, "the node of the flow at which the tier begins", BranchOwner.WORKER)
NODE_SINK = Branch("logicalnodes/<node>/sink", Ends, _WORK, "the node of the flow at which the tier ends", BranchOwner.WORKER)
NODE_STATE = Branch(
    "logicalnodes/<node>/state",
    NodeState,
    (Writer.WORKER, Writer.MASTER),
    "whether the tier runs, and where; of a tier that agents run, the leader writes it",
    BranchOwner.WORKER,
    ephemeral=True,
)
NODE_GROUP = Branch(
    "logicalnodes/<node>/group",
    GroupName,
    _BY_HAND,
    "the group of hosts on which the tier runs or will run",
    BranchOwner.WORKER,
    change="the tier's worker stops gracefully and starts on a host of that group",
)
NODE_HTTP = Branch("logicalnodes/<node>/http", ServedPage, _WORK, "its page", BranchOwner.WORKER)
NODE_JSON = Branch("logicalnodes/<node>/json", ServedPage, _WORK, "the same as JSON", BranchOwner.WORKER)
HOSTS = "physicalnodes"
HOST = Branch("physicalnodes/<host>/host", Host, (Writer.HOST,), "a machine that can run tiers", BranchOwner.HOST)
MAPPED = Branch(
    "physicalnodes/<host>/lns/<node>",
    Mapped,
    (*_BY_HAND, Writer.GATEWAY),
    "a tier that is bound to this host; of an agent, a tier that runs there",
    BranchOwner.HOST,
    change="the tier's worker stops gracefully and starts on that host; removed: the tier stays and may move to any host. An agent runs a "
    "tier that is bound to it, also one of another group; removed, or with `group`: the agent's group decides",
)
HOSTED = Branch(
    "physicalnodes/<host>/lns/<run>",
    Hosted,
    _LED,
    "a tier that runs there, by the name of its worker, such as `tweets.core-3`",
    BranchOwner.HOST,
    change="it binds nothing; overwritten when the leader next reconciles the flow",
)
HOST_HTTP = Branch("physicalnodes/<host>/http", ServedPage, (Writer.HOST,), "its page", BranchOwner.HOST)
HOST_JSON = Branch("physicalnodes/<host>/json", ServedPage, (Writer.HOST,), "the same as JSON", BranchOwner.HOST)
HOST_UP = Branch(
    "physicalnodes/<host>/up",
    HolderRecord,
    (Writer.HOST,),
    "its node process while it runs: a lease, one per host",
    BranchOwner.HOST,
    ephemeral=True,
)
HOST_UP_TERM = Branch(
    "physicalnodes/<host>/up.term",
    HolderRecord,
    (Writer.HOST,),
    "the last node process; its version fences all earlier ones",
    BranchOwner.HOST,
)
DECOMMISSIONED = Branch(
    "physicalnodes/<host>/decommissioned",
    Decommissioned,
    _BY_HAND,
    "the host is decommissioned: it gets no new workers, and its workers move away; an agent gets no lanes",
    BranchOwner.HOST,
    change="created: the host's workers move away gracefully; an agent hands over what it has read, and reads nothing more; removed: the "
    "host takes workers again, and the agent its lanes",
)
AGENT = Branch(
    "physicalnodes/<agent>/agent",
    AgentRecord,
    (Writer.GATEWAY,),
    "an agent that collects records, by its last report; it runs no workers",
    BranchOwner.GATEWAY,
    change="leave it: gateways write it again at the next report",
)
GATEWAY = Branch(
    "gateways/<gateway>",
    GatewayRecord,
    (Writer.GATEWAY,),
    "a gateway that is up",
    BranchOwner.GATEWAY,
    ephemeral=True,
)
CHAIN = Branch(
    "chains/<group>",
    ChainRecord,
    _BY_HAND,
    "costs of the gateways of a group, or the order in which agents use them; `default` is the group of gateways without one",
    change="agents get the new chain with their next configuration; removed: the gateways' own costs apply",
)
ROLL_OUT = Branch(
    "flows/<flow>/rollout/<tier>",
    RollOutRecord,
    (Writer.GATEWAY,),
    "how far a version has reached the agents of a tier",
    change="leave it: gateways use its stage; removed: all agents get the desired version at once",
)
WORKER_ORDER = Branch(
    "physicalnodes/<host>/orders/<worker>",
    WorkerOrder,
    _LED,
    "an order to the host about a worker",
    BranchOwner.HOST,
    change="leave it: the host executes it",
)
WORKER_SEEN = Branch(
    "physicalnodes/<host>/seen/<worker>",
    WorkerSeen,
    (Writer.HOST,),
    "the state of a worker on the host",
    BranchOwner.HOST,
    change="leave it: the leader uses it until the host writes it again",
)
GROUP = Branch(
    "groups/<group>",
    GroupRecord,
    _BY_HAND,
    "settings of a group while flows run: costs, and disabled members",
    change="from the next Batch on, Batches go to the enabled members, by these costs",
)
ACK = Branch("acks/<flow>/<tier>", Ack, _WORK, "how far the downstream tiers have acknowledged the tier's input", BranchOwner.WORKER)
LIMIT = Branch(
    "limits/<flow>",
    Limit,
    _BY_HAND,
    "rate limits of a flow, its sources and edges",
    change="the limits apply from the next Batch on; removed: no limit",
)
WORKERS = Branch(
    "workers/<flow>",
    Workers,
    _BY_HAND,
    "the number of workers of its tiers (a number, or `each`), if it differs from its version",
    change="workers start or stop gracefully; removed: the number in the version applies",
)
CHANGES = Branch("flows/<flow>/changes", ChangeHistory, _LED, "its event history: the last fifty changes of state")
WORKFLOW_OPERATION = Branch(
    "workflows/<n>",
    WorkflowOperationRecord,
    _BY_HAND,
    "a current or past operation over a workflow",
    change="leave it: masters use its step",
)
HELD_BACK = Branch(
    "flows/<flow>/held_back",
    HeldBackSinks,
    _LED,
    "which of its sinks are throttled or paused, by which downstream flow",
    change="leave it: workers follow it until the leader writes it again",
)
AUTOSCALE = Branch(
    "flows/<flow>/autoscale",
    TierSizes,
    _LED,
    "the number of executors that its tiers with `autoscale` should have, why, and when it was last changed",
    change="overwritten when the leader changes its mind; removed: the cool-down is forgotten",
)
ALERTS = Branch("flows/<flow>/alerts", Alerts, _LED, "the alerts that fire and were sent")
REQUEST = Branch("requests/<request>", IdempotentRequest, (Writer.CANDIDATE,), "the answer to a write request with an idempotency key")
TOKEN = Branch(
    "tokens/<token>",
    Token,
    (Writer.CANDIDATE,),
    "an API token: its name, role and labels; only admins change it",
    change="applies to the next request; `scribengin token` writes it",
)
SESSION = Branch(
    "sessions/<session>",
    ConsoleSession,
    (Writer.CANDIDATE,),
    "a session of a browser, opened with an API token",
    change="deleted: the session is over",
)
ATTEMPTS = Branch("flows/<flow>/attempts", Attempts, _LED, "the last processes that served its tiers, and why they ended")
KEEPING = Branch(
    "upkeep/<folder>/keeper",
    MaintenanceOwner,
    _LED,
    "a sink's folder, and the host that maintains it",
    change="leave it: the host that it names maintains the folder",
)
UPKEPT = Branch("upkeep/<folder>/done", MaintenanceReport, (Writer.HOST,), "the last maintenance run and its result")
UPKEEP_LEASE = Branch("upkeep/<folder>/lease", HolderRecord, (Writer.HOST,), "the maintenance lease, one host per folder", ephemeral=True)
UPKEEP_LEASE_TERM = Branch(
    "upkeep/<folder>/lease.term", HolderRecord, (Writer.HOST,), "the last maintenance owner; its version fences all earlier ones"
)
QUOTA = Branch(
    "quotas/<quota>",
    Quota,
    _BY_HAND,
    "the shared quota of all flows with a label; its name is `label=value`",
    change="running flows continue; flows that start later are bound by it, and its row rate is divided again; removed: no quota",
)
SHARE = Branch(
    "flows/<flow>/share",
    Share,
    _LED,
    "the flow's share of a quota's rows per second",
    change="leave it: workers follow it until the leader divides the quota again",
)
PEER = Branch(
    "peers/<peer>/api",
    Peer,
    _BY_HAND,
    "another control plane, whose flows may connect to the flows here",
    change="the leader polls the masters that it names; removed: flows there no longer throttle flows here",
)
PEER_STATE = Branch("peers/<peer>/state", PeerState, _LED, "whether the peer's masters answer")
REMOTE_FLOW = Branch(
    "peers/<peer>/flows/<flow>",
    RemoteFlow,
    _LED,
    "a flow there that connects to one here, as its masters last reported it",
    change="overwritten at the next answer; used until then",
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
    *(REQUEST, QUOTA, SHARE, TOKEN, SESSION),
    *(PEER, PEER_STATE, REMOTE_FLOW),
    ATTEMPTS,
    *(KEEPING, UPKEPT, UPKEEP_LEASE, UPKEEP_LEASE_TERM),
    *(WORKFLOW_OPERATION, HELD_BACK),
    AUTOSCALE,
    *(AGENT, GATEWAY, CHAIN, ROLL_OUT),
)

OWN_FOLDERS: Mapping[BranchOwner, tuple[str, ...]] = {
    BranchOwner.WORKER: ("flows/<flow>/tiers/<tier>", "logicalnodes/<node>", "acks/<flow>/<tier>"),
    BranchOwner.HOST: ("physicalnodes/<host>",),
    BranchOwner.GATEWAY: ("physicalnodes/<agent>", "gateways"),
}
"""the login that has all access rights on each folder, and on what is below it; for a tier `<node>` is `<flow>.<tier>`"""


def branch_of(path: str) -> Branch[Any] | None:
    """The branch of a path; None if the tree has no such path."""
    fitting = [branch for branch in TREE if branch.matches(path)]
    return max(fitting, key=lambda branch: len(_filled(branch.path, [""] * branch.path.count("<"))), default=None)


def own_folders_of_worker(flow: str, tier: str, who: str) -> list[Create]:
    """The writes with which the leader creates the folders of a tier, before its first worker starts. `who`: the worker's login."""
    for_all = {"flow": flow, "tier": tier, "node": f"{flow}.{tier}"}
    return [Create(_named(path, for_all), {}, grants=(Grant(who, May.ALL),)) for path in OWN_FOLDERS[BranchOwner.WORKER]]


def own_folders_of_host(host: str, who: str) -> list[Create]:
    """The writes with which the leader creates a host's folders, before its node process starts. `who`: the node process's login."""
    return [Create(_named(path, {"host": host}), {}, grants=(Grant(who, May.ALL),)) for path in OWN_FOLDERS[BranchOwner.HOST]]


def own_folders_of_gateways(who: str) -> list[Create]:
    """The writes with which an administrator creates the folders that gateways need, in an empty registry, if gateways have a login of
    their own. `who`: that login. It has all rights on physical nodes, where each agent has a folder."""
    return [Create(path, {}, grants=(Grant(who, May.ALL),)) for path in (HOSTS, "gateways")]


def right_of_tier(flow: str, tier: str) -> str:
    """The path of a tier's lease, for `registry.lease.RegistryLease`."""
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

"""Models of the REST API for calls that change running flows; see also `models`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scribengin.client.models import CLOSED, AppliedFlow, Submit


@dataclass(frozen=True, slots=True)
class Topology:
    """Flows that are submitted as one: all of them, or none. `plan` is the hash of the plan that was reviewed; `accept` agrees that queries
    which need a new checkpoint read all again, or that their state is discarded; `columns`, that sinks whose folders hold files of other
    columns write those of the flow from here on."""

    flows: tuple[Submit, ...]
    plan: str = ""
    accept: Literal["again", "lost"] | None = None
    columns: bool = False
    __pydantic_config__ = CLOSED


Effect = Literal["in place", "next Batch", "restart", "drain", "new checkpoint", "refused"]
"""How a change takes effect, the mildest first. `in place`: running workers are not touched. `next Batch`: the workers continue with it
between two Batches. `restart`: the workers end after the current Batches, others take over; positions and state are kept. `drain`: as
`restart`, but first the running version reads the backlog of channels that are removed. `new checkpoint`: a query's state would mean
something else, so that it starts with an empty one. `refused`: it cannot be done now; the remedy says what to do first."""


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One change, and how it takes effect."""

    what: str
    """`query kept`, `source orders`, `code`"""
    effect: Effect
    says: str
    remedy: str = ""
    nodes: tuple[str, ...] = ()
    """the nodes of the flow that it concerns"""


@dataclass(frozen=True, slots=True)
class AnewRow:
    """A query that needs a new checkpoint: the rows that it has read from its sources and written to its sinks."""

    tier: str
    query: str
    read: Mapping[str, int]
    written: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FlowChanges:
    """The changes of a flow; `version` is the desired version now, 0 if there is none."""

    flow: str
    version: int
    changes: tuple[ChangeRow, ...]
    anew: tuple[AnewRow, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """The changes that submitting would make, identified by its `hash`."""

    flows: tuple[FlowChanges, ...]
    hash: str


@dataclass(frozen=True, slots=True)
class AppliedTopology:
    """The plan and its result: an entry for each flow; empty if it was only planned."""

    plan: TopologyPlan
    applied: tuple[AppliedFlow, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation of several steps; the flow waits for it while it is `under_way`."""

    flow: str
    id: str
    kind: str
    step: str
    since: str
    by: str
    at: str
    error: str
    tiers: tuple[str, ...]
    under_way: bool
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of a flow: a change of its `state` (`why` is the reason), a new `version`, an `operation`, `columns` that its data have and
    its schemas lack, or that a person agreed to."""

    at: str
    what: Literal["state", "version", "operation", "columns"]
    says: str
    why: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a query has read a source: `position` entries of its log are committed, `logged` are handed out; the newest Batch, and what
    was last read, for people."""

    tier: str
    query: str
    source: str
    position: int
    logged: int
    batch: int | None
    last: str
    channel: bool


@dataclass(frozen=True, slots=True)
class SetOffset:
    """The new position of a source: a number of entries, or `end`. Without `yes`, the answer only says what that would mean."""

    source: str
    position: str
    query: str | None = None
    yes: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Rewind:
    """Rewind to a time (ISO 8601), or after a Batch (-1: before the first). Without `yes`, the answer only says what that would mean."""

    to_time: str | None = None
    to_batch: int | None = None
    query: str | None = None
    yes: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Going:
    """The effect of setting a position or rewinding, in sentences; `operation` is the id of the operation that does it, null if none was
    started."""

    flow: str
    says: tuple[str, ...]
    queries: tuple[Mapping[str, Any], ...] = ()
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Other resources for a tier, or for all; `partitions`: the number of partitions of the state; `workers`: how many stage its Batches,
    `each`: one on each host of its group. Null leaves a value unchanged."""

    tier: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    executors: int | None = None
    partitions: int | None = None
    workers: int | Literal["each"] | None = None
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Scaled:
    """The new desired version; `operation` repartitions the state."""

    flow: str
    version: int
    changed: bool
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Rate limits of the flow, or of a source or an edge of it (`target`); both null: no limit."""

    target: str = ""
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a flow: `` for the whole flow, or the name of a source or an edge → `rows_per_s`, `bytes_per_s`."""

    flow: str
    limits: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class SetQuota:
    """The shared quota of flows with a label. Null leaves a value unchanged; values named in `off` are removed."""

    cores: int | None = None
    memory_bytes: int | None = None
    rows_per_s: float | None = None
    off: tuple[Literal["cores", "memory_bytes", "rows_per_s"], ...] = ()
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class QuotaTaken:
    """The resources that workers were given."""

    cores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class QuotaFlow:
    """A flow under a quota: the resources of its workers; `rows_per_s` is its share, smaller while it is `idle`. `waits`: its desired state
    is running but it has not started, for the given `reason`."""

    flow: str
    cores: int
    memory_bytes: int
    rows_per_s: float | None
    idle: bool
    waits: bool
    reason: str


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A quota, `label=value`; null: no limit. `refused`: why its record is invalid. `over`: its flows use more than it allows, because they
    started before."""

    quota: str
    cores: int | None
    memory_bytes: int | None
    rows_per_s: float | None
    refused: str
    over: bool
    taken: QuotaTaken
    flows: tuple[QuotaFlow, ...]

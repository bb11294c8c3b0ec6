"""What the REST API says and takes of the verbs that change running flows; as `models`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scribengin.client.closed import CLOSED
from scribengin.client.models import AppliedFlow, Submit


@dataclass(frozen=True, slots=True)
class Topology:
    """Flows that are submitted as one: all of them, or none. `plan` is the hash of the plan that was looked at; `accept` agrees that
    Queries which need a new checkpoint read all again, or that what they remember is lost; `columns`, that sinks whose folders hold files
    of other columns write those of the flow from here on."""

    flows: tuple[Submit, ...]
    plan: str = ""
    accept: Literal["again", "lost"] | None = None
    columns: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One change, and how it takes effect."""

    what: str
    effect: Literal["in place", "next Batch", "restart", "drain", "new checkpoint", "refused"]
    says: str
    remedy: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnewRow:
    """A Query that needs a new checkpoint: rows that it has read of its sources, and has put into its sinks."""

    tier: str
    query: str
    read: Mapping[str, int]
    written: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FlowChanges:
    """What would change of a flow; `version` is what is wanted now, 0 where nothing is."""

    flow: str
    version: int
    changes: tuple[ChangeRow, ...]
    anew: tuple[AnewRow, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """What submitting would change, known by its `hash`."""

    flows: tuple[FlowChanges, ...]
    hash: str


@dataclass(frozen=True, slots=True)
class AppliedTopology:
    """What was planned, and what came of it: a flow each; empty where it was only planned."""

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
    """What became of a flow: a change of its `state` (`why` is the reason), a `version` that came, an `operation`, `columns` that its data
    have and its schemas have not, or that somebody has agreed to."""

    at: str
    what: Literal["state", "version", "operation", "columns"]
    says: str
    why: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a Query has read a source: `position` entries of its log are committed, `logged` are handed out; the newest Batch, and what
    was read last, for people."""

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
    """Where a source is to be: a number of entries, or `end`. Without `yes` it is only said what that would mean."""

    source: str
    position: str
    query: str | None = None
    yes: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Rewind:
    """Back to how it was at a time (ISO 8601), or after a Batch (-1: before the first). Without `yes` it is only said what that means."""

    to_time: str | None = None
    to_batch: int | None = None
    query: str | None = None
    yes: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Going:
    """What setting or going back means, in sentences; `operation` is the id of the one that does it, null where it was only asked."""

    flow: str
    says: tuple[str, ...]
    queries: tuple[Mapping[str, Any], ...] = ()
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Other resources for a tier, or for all; `partitions`: over which the state is spread; `workers`: how many stage its Batches, `each`:
    one on each host of its group. What is null stays."""

    tier: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    executors: int | None = None
    partitions: int | None = None
    workers: int | Literal["each"] | None = None
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Scaled:
    """The version that is wanted then; `operation` spreads the state."""

    flow: str
    version: int
    changed: bool
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class SetLimit:
    """How fast the flow, or a source or an edge of it (`target`), may go; both null: as fast as it can."""

    target: str = ""
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a flow: `` of all of it, or the name of a source or an edge → `rows_per_s`, `bytes_per_s`."""

    flow: str
    limits: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class SetQuota:
    """What flows with a label may take together. What is null stays; what is named in `off` is bounded no more."""

    cores: int | None = None
    memory_bytes: int | None = None
    rows_per_s: float | None = None
    off: tuple[Literal["cores", "memory_bytes", "rows_per_s"], ...] = ()
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class QuotaTaken:
    """What workers were given."""

    cores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class QuotaFlow:
    """A flow under a quota: what its workers have of it; `rows_per_s` is its part, smaller while it is `idle`. `waits`: it is wanted to run
    and has not begun, `reason` says why."""

    flow: str
    cores: int
    memory_bytes: int
    rows_per_s: float | None
    idle: bool
    waits: bool
    reason: str


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A quota, `label=value`; null: not bounded. `refused`: why its record says nothing. `over`: its flows have more than it allows, from
    before."""

    quota: str
    cores: int | None
    memory_bytes: int | None
    rows_per_s: float | None
    refused: str
    over: bool
    taken: QuotaTaken
    flows: tuple[QuotaFlow, ...]

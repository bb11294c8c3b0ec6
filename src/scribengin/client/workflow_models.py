"""What the REST API says and takes of workflows: flows that meet; as `models`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scribengin.client.closed import CLOSED
from scribengin.registry.kinds import FlowState, Goal


@dataclass(frozen=True, slots=True)
class MeetingRow:
    """Where two flows meet: `sink` of `feeding` writes where `source` of `reading` reads; `place` is a folder or a topic."""

    feeding: str
    sink: str
    reading: str
    source: str
    place: str


@dataclass(frozen=True, slots=True)
class IllRow:
    """A flow of the workflow that has failed, is degraded, paused or stopped; `relation` is what it is to the flow that was asked for."""

    flow: str
    relation: Literal["feeds this one", "is fed by this one", "is in the same workflow"]
    state: FlowState
    since: str
    reason: str
    next: str


@dataclass(frozen=True, slots=True)
class WorkflowOperation:
    """What was asked of all flows of a workflow: `waits_for` says in words of which it waits now, `stuck` of which of them a person must
    see to."""

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
    """All that was there at moment `at` (ISO 8601) is acknowledged by the flow and by all that it feeds; as exact as the clocks of hosts.
    Empty where that is not known: `unknown` is the FLOW.SOURCE that is the reason."""

    at: str = ""
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowPart:
    """The workflow of a flow: all its flows from the sources down, who feeds this one, whom it feeds, and which of the others are ill."""

    name: str
    flows: tuple[str, ...]
    fed_by: tuple[MeetingRow, ...] = ()
    feeds: tuple[MeetingRow, ...] = ()
    ill: tuple[IllRow, ...] = ()
    operation: WorkflowOperation | None = None
    """over the workflow, and under way"""
    through: Mapping[str, ThroughRow] = field(default_factory=dict)
    """source of this flow → how far it is through all flows behind it"""


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """A workflow in the list, by the name of its first flow; `states`: flow → its state, from the sources down."""

    workflow: str
    states: Mapping[str, FlowState]
    meetings: int


@dataclass(frozen=True, slots=True)
class TierNode:
    """A tier of a flow, and the tiers that feed it."""

    tier: str
    fed_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A flow of a workflow, as it stands."""

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
    """What waits at a source, as its worker said last: what is not known is null."""

    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    """how old the oldest of it is"""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where two flows meet, and what `waits` there; null where no worker of the reading flow has said it."""

    feeding: str
    sink: str
    reading: str
    source: str
    place: str
    waits: Waits | None = None


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A workflow as a graph: its flows from the sources down, and where they meet; and the newest operations over it."""

    workflow: str
    nodes: tuple[FlowNode, ...]
    edges: tuple[Edge, ...]
    operations: tuple[WorkflowOperation, ...] = ()


@dataclass(frozen=True, slots=True)
class WantWorkflow:
    """What is wanted of all flows of a workflow."""

    state: Goal
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class WorkflowBegun:
    """The operation that asks the flows, one after the other."""

    workflow: str
    operation: str
    flows: tuple[str, ...]

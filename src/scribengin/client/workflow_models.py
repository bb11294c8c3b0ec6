"""Models of the REST API for workflows, that is connected flows; see also `models`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scribengin.client.closed import CLOSED
from scribengin.registry.kinds import FlowState, Goal


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

"""Models of the REST API for the ends of flows, as masters of other control planes read them, and for these peers; see also `models`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scribengin.client.closed import CLOSED
from scribengin.client.workflow_models import MeetingRow, ThroughRow, Waits
from scribengin.registry.kinds import FlowState, Goal


@dataclass(frozen=True, slots=True)
class EndPlace:
    """Where a flow reads or writes: a topic, a table, or a prefix of objects; `many`: `topic` is a regular expression."""

    kind: Literal["objects", "table", "topic"]
    at: str
    topic: str = ""
    many: bool = False


@dataclass(frozen=True, slots=True)
class EndLevel:
    """The backlog of a source; null is not checked."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndLevels:
    """The thresholds of a source: above which upstream flows are throttled, below which they are released, and at which they are paused."""

    high: EndLevel
    low: EndLevel
    capacity: EndLevel


@dataclass(frozen=True, slots=True)
class SourceEnds:
    """A source: where it reads, the thresholds of its backlog, its backlog `looked_s` seconds ago (null: unknown), and how far it is
    acknowledged to the ends of all downstream flows."""

    reads: tuple[EndPlace, ...]
    levels: EndLevels | None = None
    waits: Waits | None = None
    looked_s: float | None = None
    through: ThroughRow | None = None


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """Where a flow reads and writes, and its state."""

    flow: str
    state: FlowState
    wanted: Goal
    version: int
    since: str
    reason: str
    next: str
    sources: Mapping[str, SourceEnds] = field(default_factory=dict)
    sinks: Mapping[str, tuple[EndPlace, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllEnds:
    """The ends of the flows of a control plane, without folders, which belong to one host. `now` is its clock, in seconds since 1970."""

    now: float
    flows: tuple[FlowEnds, ...]


@dataclass(frozen=True, slots=True)
class SetPeer:
    """Another control plane: the addresses of its masters, and how its names of servers translate to those used here."""

    masters: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class PeerFlow:
    """A flow of a peer that is connected to one here, as the peer last reported it, and where they are connected."""

    flow: str
    state: FlowState
    since: str
    reason: str
    meetings: tuple[MeetingRow, ...]


@dataclass(frozen=True, slots=True)
class PeerRow:
    """A peer. `answered_at`: its last answer; `silent_since`: the time since when it has not answered, and `why`. `refused`: the fault of
    its record."""

    peer: str
    masters: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    answered_at: str = ""
    silent_since: str = ""
    why: str = ""
    refused: str = ""
    flows: tuple[PeerFlow, ...] = ()

"""What the REST API says of the ends of flows to masters of other control planes, and of these; as `models`."""

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
    """How much waits at a source; what is null is not looked at."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndLevels:
    """From where on flows that feed a source are slowed, below which they go on as before, and where they are paused."""

    high: EndLevel
    low: EndLevel
    capacity: EndLevel


@dataclass(frozen=True, slots=True)
class SourceEnds:
    """A source: where it reads, how much may wait there, what waited `looked_s` seconds ago (null: nobody knows), and how far it is
    acknowledged to the ends of all flows behind it."""

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
    """The ends of flows of a control plane, without folders, which are of a host. `now` is its clock, in seconds since 1970."""

    now: float
    flows: tuple[FlowEnds, ...]


@dataclass(frozen=True, slots=True)
class SetPeer:
    """Another control plane: where its masters answer, and how flows there name servers that flows here name otherwise."""

    masters: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class PeerFlow:
    """A flow of a peer that meets one here, as the peer said last, and where they meet."""

    flow: str
    state: FlowState
    since: str
    reason: str
    meetings: tuple[MeetingRow, ...]


@dataclass(frozen=True, slots=True)
class PeerRow:
    """A peer. `answered_at`: its last answer; `silent_since`: since when there is none, and `why`. `refused`: the fault of its record."""

    peer: str
    masters: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    answered_at: str = ""
    silent_since: str = ""
    why: str = ""
    refused: str = ""
    flows: tuple[PeerFlow, ...] = ()

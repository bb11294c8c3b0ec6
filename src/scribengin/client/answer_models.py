"""What the REST API says of the state of a flow, its records, and its graph; as `models`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LetterCount:
    """So many records that a step could not handle for one reason; with the message of the first, and where it stood."""

    query: str
    step: str
    reason: str
    count: int
    example: str
    place: str


@dataclass(frozen=True, slots=True)
class LetterCounts:
    """The dead letters of a flow, `dead` in all."""

    flow: str
    dead: int
    groups: tuple[LetterCount, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that a step could not handle. `place` is where it stood, for people; `record` what it is called in all tiers, `trail` the
    way it came. `payload` are its bytes, `payload_base64` where they are no UTF-8; both are null where they are withheld."""

    id: str
    query: str
    batch: int
    step: str
    reason: str
    message: str
    place: str
    source: str = ""
    file: str = ""
    line: int | None = None
    row: int | None = None
    offset: int | None = None
    exception: str = ""
    code_line: str = ""
    truncated: bool = False
    record: str = ""
    trail: tuple[Mapping[str, Any], ...] = ()
    payload: str | None = None
    payload_base64: str | None = None


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Letters, those of the oldest Batch first; `after` asks for the next page, and is empty where there is none. `withheld`: who asks may
    not see the bytes of records."""

    flow: str
    letters: tuple[Letter, ...]
    after: str
    withheld: bool


@dataclass(frozen=True, slots=True)
class Way:
    """What became of a record: docs/json.md, `scribengin trace`."""

    flow: str
    record: str
    trace: float
    arrivals: tuple[Mapping[str, Any], ...]
    dead: tuple[Mapping[str, Any], ...]
    read: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """Outputs, dead letters and ledger, read again: docs/json.md, `scribengin audit`."""

    flow: str
    state: str
    folder: str
    queries: tuple[Mapping[str, Any], ...]
    channels: tuple[Mapping[str, Any], ...]
    ledger: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A source, a step (`kind` is what it does) or a sink; `live` how it goes, null where nobody says so."""

    node: str
    kind: str
    about: str
    tiers: tuple[str, ...]
    queries: tuple[str, ...]
    stage: str | None = None
    group: str | None = None
    live: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GraphTier:
    """A tier, who serves it, and how that stands."""

    tier: str
    group: str | None
    queries: tuple[str, ...]
    worker: str | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class GraphChannel:
    """What lies between two tiers, with every property; `live` what waits in it, and how fast it comes and goes."""

    channel: str
    reading: str
    feeding: str
    place: str
    properties: Mapping[str, str]
    live: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An arrow: `reads` may be `step.branch`; `channel` is what it goes through, null inside a tier."""

    node: str
    reads: str
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """A flow's nodes, arrows, tiers and channels, as the version that is wanted has them; `mermaid` is a picture of it."""

    flow: str
    version: int
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    tiers: tuple[GraphTier, ...]
    channels: tuple[GraphChannel, ...]
    mermaid: str
    told: bool = field(default=False)
    """whether workers have said how it goes"""

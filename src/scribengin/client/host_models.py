"""Masters, nodes, bindings and tokens as the API tells them and is asked for them: JSON objects with these keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scribengin.client.closed import CLOSED

RoleName = Literal["viewer", "operator", "editor", "admin"]


@dataclass(frozen=True, slots=True)
class MasterRow:
    """A master. `http` is where it answers; `leads` is of the one that decides."""

    id: str
    http: str
    leads: bool
    since: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether this master can do its part."""

    state: Literal["ok"]
    leads: bool
    revision: int


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token, without what opens a door. `labels`: of flows with all of these only. `until`, ISO 8601: from then on it opens nothing."""

    id: str
    name: str
    role: RoleName
    at: str
    labels: Mapping[str, str] = field(default_factory=dict)
    until: str = ""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to be made."""

    name: str
    role: RoleName
    labels: Mapping[str, str] = field(default_factory=dict)
    until: str = ""
    """ISO 8601 with a zone; empty: it has no end"""
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A token that was made: it is shown only now."""

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A host that has registered. `state` is `up`, `away` or `decommissioned`; `cores`, `memory_bytes` 0: no limit. `http` is its page;
    `spark` the cluster on which executors run, empty where Spark runs in the workers."""

    node: str
    state: str
    up: bool
    host: str = ""
    pid: int | None = None
    http: str = ""
    cores: int = 0
    memory_bytes: int = 0
    home: str = ""
    since: str = ""
    spark: str = ""
    workers: tuple[str, ...] = ()
    mapped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeView:
    """A host, and what it says itself: `now`; null where it does not answer, and `silent` says why."""

    node: NodeRow
    now: Mapping[str, Any] | None = None
    silent: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a tier is to run. `start`: want its flow running, too."""

    node: str
    start: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Bound:
    """A tier that was bound to a node, or to none; `changed` is false where that was so."""

    tier: str
    node: str
    changed: bool


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A host that was taken out, or back; `workers` are those that it has still."""

    node: str
    decommissioned: bool
    changed: bool
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MasterView:
    """What a master says of itself. `term` is that under which it leads, null for a standby. `decided`: what it has decided last, the
    newest first. `states`: state → how many flows are in it. `cycle` is its last look, null before the first."""

    id: str
    leads: bool
    term: int | None
    revision: int
    host: str = ""
    pid: int = 0
    since: str = ""
    http: str = ""
    cycle: Mapping[str, Any] | None = None
    decided: tuple[Mapping[str, str], ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    masters: tuple[MasterRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()

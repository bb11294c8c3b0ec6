"""Models of the REST API for masters, nodes, bindings and tokens: JSON objects with these keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scribengin.client.closed import CLOSED

RoleName = Literal["viewer", "operator", "editor", "admin"]


@dataclass(frozen=True, slots=True)
class MasterRow:
    """A master. `http` is its address; `leads` is true for the leading master."""

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
    """A token without its secret. `labels`: access only to flows with all of these. `until`, ISO 8601: its expiry."""

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
    """ISO 8601 with a zone; empty: it does not expire"""
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A token that was made; the secret is shown only now."""

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A registered host. `state` is `up`, `away` or `decommissioned`; `cores`, `memory_bytes` 0: no limit. `http` is its page; `spark` the
    cluster on which executors run, empty if Spark runs in the workers."""

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
    """A host and what it reports about itself: `now`; null if it does not answer, with the reason in `silent`."""

    node: NodeRow
    now: Mapping[str, Any] | None = None
    silent: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a tier is to run. `start`: also set the desired state of its flow to running."""

    node: str
    start: bool = False
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class Bound:
    """A tier that was bound to a node, or to none; `changed` is false if it was so before."""

    tier: str
    node: str
    changed: bool


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A host that was decommissioned, or is back; `workers` are those that it still has."""

    node: str
    decommissioned: bool
    changed: bool
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MasterView:
    """What a master reports about itself. `term` is the Term of its lead, null for a standby. `decided`: its last decisions, newest first.
    `states`: state → number of flows in it. `cycle` is its last reconciliation, null before the first."""

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

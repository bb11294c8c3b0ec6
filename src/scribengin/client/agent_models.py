"""The models of the API about agents and gateways."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  pydantic evaluates the annotations
from dataclasses import dataclass, field

from scribengin.client.models import CLOSED


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """An agent in the list of agents. `state`: `running`, `paused`, `waiting` (no gateway accepts its records), `full`, `failed`, `idle`
    (it has nothing to do), `decommissioned`, or `away` (it has missed its last reports). `decommissioned`: it is drained, also if it is
    away. `backlog`: records that it has read and that are not committed. `oldest_age_s`: the age of the oldest of them that it must still
    keep."""

    agent: str
    group: str
    host: str
    release: str
    gateway: str
    state: str
    backlog: int = 0
    waiting_bytes: int = 0
    oldest_age_s: float | None = None
    report_age_s: float = 0.0
    message: str = ""
    decommissioned: bool = False


@dataclass(frozen=True, slots=True)
class AgentLaneView:
    """A lane of an agent, by its last report. `wanted`: the version that it is to run, 0 if the lane is not its own any more. `read`,
    `stored` and `committed` are numbers of records of the incarnation."""

    lane: str
    state: str
    version: int
    wanted: int
    incarnation: str = ""
    read: int = 0
    stored: int = 0
    committed: int = 0
    waiting_bytes: int = 0
    oldest_age_s: float | None = None
    dropped: int = 0
    files: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class AgentTierView:
    """A tier that runs at an agent. `bound`: a person has bound it; otherwise the agent runs it because of its group. The roll-out of the
    tier's version: `stage` is `one`, `some`, `all`, `done` or `back`, with the `reason`."""

    tier: str
    bound: bool
    version: int
    stage: str = "done"
    wanted: int = 0
    """the version that is rolled out"""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChainMember:
    """A gateway that an agent may use."""

    gateway: str
    url: str
    cost: float


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent. `chain`: the gateways in the order in which it tries them."""

    agent: AgentSummary
    since: str = ""
    revision: str = ""
    tiers: tuple[AgentTierView, ...] = ()
    lanes: tuple[AgentLaneView, ...] = ()
    chain: tuple[ChainMember, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentChanged:
    """An agent after a change. `lanes`: those that still have records which are not committed."""

    agent: str
    changed: bool
    decommissioned: bool = False
    lanes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentBound:
    """A tier that is bound to an agent, or no longer."""

    tier: str
    agent: str
    changed: bool


@dataclass(frozen=True, slots=True)
class GatewaySummary:
    """A gateway that is up. `cost` is the one that applies, by its own setting or the record of its group; `agents`: the number of agents
    whose last report it received. `out`: why agents do not get it, empty if they do."""

    gateway: str
    url: str
    group: str = ""
    cost: float = 1.0
    host: str = ""
    release: str = ""
    since: str = ""
    agents: int = 0
    out: str = ""


@dataclass(frozen=True, slots=True)
class ChainSettings:
    """The gateways of a group as agents are to use them; an empty value leaves it to the gateways' own costs."""

    costs: Mapping[str, float] = field(default_factory=dict)
    """gateway → cost"""
    out: Mapping[str, str] = field(default_factory=dict)
    """disabled gateways → why"""
    chain: tuple[str, ...] = ()
    """gateways in the order in which all agents try them"""
    __pydantic_config__ = CLOSED

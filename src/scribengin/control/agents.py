"""Agents and gateways in the registry: what operators see of them, and their requests as registry writes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.client.agent_models import (
    AgentLaneView,
    AgentSummary,
    AgentTierView,
    AgentView,
    ChainMember,
    ChainSettings,
    GatewaySummary,
)
from scribengin.control.flow_records import read_flow
from scribengin.control.record_validation import again
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.core.time_text import now_text
from scribengin.registry.contract import Delete, Require
from scribengin.registry.record_io import Stored, names, put, read_record, read_records
from scribengin.registry.records import ChainRecord, Decommissioned, Mapped, RollOutRecord
from scribengin.registry.tree import AGENT, CHAIN, DECOMMISSIONED, DESIRED, GATEWAY, HOSTS, MAPPED, ROLL_OUT, SPEC
from scribengin.wire.chains import chain_of
from scribengin.wire.protocol import GatewayMember

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scribengin.registry.contract import Registry
    from scribengin.registry.records import AgentLaneRecord, AgentRecord, AgentTierSpec, GatewayRecord

MISSED_REPORTS = 3
"""reports that an agent may miss until it is away"""
DEFAULT_CHAIN = "default"
"""the name of the group of gateways without a group, in `chains/`"""
_STATES = ("failed", "full", "waiting", "paused")
"""states of lanes; the agent has the first one that one of its lanes has"""
_COMMIT_WRITES = 100


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """An agent as the registry has it."""

    name: str
    record: AgentRecord
    is_decommissioned: bool = False
    tiers: Mapping[str, str | None] = field(default_factory=dict)
    """FLOW.TIER → the group because of which it runs there; None: it is bound to it. Only if that was asked for"""


# What is in the registry.


def read_agents(registry: Registry, *, tiers: bool = False) -> list[AgentSeen]:
    """All agents by name, in few requests. `tiers`: read what runs at them, too. Raises Unreachable."""
    nodes = [name for name in names(registry, HOSTS) if AGENT.fits(name)]
    found = read_records(registry, [AGENT(name) for name in nodes])
    records = {name: each.record for name, each in zip(nodes, found, strict=True) if isinstance(each, Stored)}
    out = registry.read_many([DECOMMISSIONED(name).path for name in records])
    runs = _tiers_at(registry, list(records)) if tiers else {}
    return [
        AgentSeen(name, record, gone is not None, runs.get(name, {})) for (name, record), gone in zip(records.items(), out, strict=True)
    ]


def read_agent(registry: Registry, name: str) -> AgentSeen:
    """One agent, with what runs at it. Raises Refused if there is no such agent, Unreachable."""
    found = read_record(registry, AGENT(name)) if AGENT.fits(name) else None
    if not isinstance(found, Stored):
        raise unknown_agent(name, [each.name for each in read_agents(registry)])
    return AgentSeen(name, found.record, registry.read(DECOMMISSIONED(name).path) is not None, _tiers_at(registry, [name]).get(name, {}))


def _tiers_at(registry: Registry, agents: Sequence[str]) -> dict[str, dict[str, str | None]]:
    below = registry.children_many([f"{HOSTS}/{name}/lns" for name in agents])
    there = [(name, node) for name, nodes in zip(agents, below, strict=True) for node in nodes if MAPPED.fits(name, node)]
    found: dict[str, dict[str, str | None]] = {}
    for (name, node), mapped in zip(there, read_records(registry, [MAPPED(*each) for each in there]), strict=True):
        if isinstance(mapped, Stored):
            found.setdefault(name, {})[node] = mapped.record.group
    return found


def read_gateways(registry: Registry) -> dict[str, GatewayRecord]:
    """The gateways that are up, by name. Raises Unreachable."""
    there = [name for name in names(registry, "gateways") if GATEWAY.fits(name)]
    found = read_records(registry, [GATEWAY(name) for name in there])
    return {name: each.record for name, each in zip(there, found, strict=True) if isinstance(each, Stored)}


def read_chain(registry: Registry, group: str) -> ChainRecord | None:
    """What people have set for the gateways of a group; None if nothing."""
    name = group or DEFAULT_CHAIN
    found = read_record(registry, CHAIN(name)) if CHAIN.fits(name) else None
    return found.record if isinstance(found, Stored) else None


def is_away(record: AgentRecord, now_s: float) -> bool:
    """True if an agent has missed its last reports. `now_s`: seconds since 1970."""
    return now_s - record.reported_at > MISSED_REPORTS * record.report_s


def runs_tier(agent: AgentSeen, node: str, spec: AgentTierSpec) -> bool:
    """True if a tier is to run at the agent. `node`: FLOW.TIER."""
    is_bound = node in agent.tiers and agent.tiers[node] is None
    return not agent.is_decommissioned and (is_bound or agent.record.group in spec.lanes.values())


def ordered_chain(agent: str, members: Iterable[tuple[str, GatewayMember]], chain: ChainRecord | None) -> list[tuple[str, GatewayMember]]:
    """The gateways of an agent by name, in the order in which it tries them.

    Args:
        agent: The agent.
        members: The gateways of the group, by name.
        chain: Costs and order that people have set; None: those of the gateways.
    """
    known = dict(members)
    if chain is not None:
        enabled = known.keys() - chain.out.keys() or known.keys()  # that all are disabled is ignored
        known = {name: replace(known[name], cost=chain.costs.get(name, known[name].cost)) for name in sorted(enabled)}
    named = {member.url: name for name, member in known.items()}
    fixed = [name for name in (chain.chain if chain is not None else ()) if name in known]
    order = [*fixed, *(name for each in chain_of(agent, known.values()) if (name := named[each.url]) not in fixed)]
    if fixed:  # agents try equal costs in the order of the list, and lower ones first
        return [(name, GatewayMember(known[name].url, float(number))) for number, name in enumerate(order, 1)]
    return [(name, known[name]) for name in order]


# What operators see.


def agent_summary(agent: AgentSeen, now_s: float) -> AgentSummary:
    """The agent's row. `now_s`: seconds since 1970."""
    record = agent.record
    lanes = record.lanes.values()
    oldest_ms = min((lane.oldest_ms for lane in lanes if lane.oldest_ms), default=0)
    told = record.message or next((lane.message for lane in lanes if lane.message), "")
    return AgentSummary(
        agent=agent.name,
        group=record.group,
        host=record.host,
        release=record.release,
        gateway=record.gateway,
        state=_state_of(agent, now_s),
        backlog=sum(max(0, lane.read - lane.committed) for lane in lanes),
        waiting_bytes=sum(lane.waiting_bytes for lane in lanes),
        oldest_age_s=_age_s(oldest_ms, now_s),
        report_age_s=round(max(0.0, now_s - record.reported_at), 1),
        message=told,
        decommissioned=agent.is_decommissioned,
    )


def list_agents(registry: Registry, group: str | None = None) -> list[AgentSummary]:
    """The agents by name. `group`: only those of this group. Raises Unreachable."""
    now_s = time.time()
    return [agent_summary(each, now_s) for each in read_agents(registry) if group is None or each.record.group == group]


def describe_agent(registry: Registry, name: str) -> AgentView:
    """An agent with its lanes, the tiers that run there, and its chain of gateways. Raises Refused if there is no such agent."""
    now_s = time.time()
    agent = read_agent(registry, name)
    tiers, wanted = [], dict[str, int]()
    for node, group in sorted(agent.tiers.items()):
        flow, _, tier = node.partition(".")
        found = read_record(registry, ROLL_OUT(flow, tier))
        desired = read_record(registry, DESIRED(flow))
        version = desired.record.version if isinstance(desired, Stored) else 0
        record = found.record if isinstance(found, Stored) else RollOutRecord(version=version)
        version = rolled_version(record, name)
        wanted[flow] = version
        tiers.append(AgentTierView(node, group is None, version, record.stage, record.version, record.reason))
    gateways = read_gateways(registry)
    own = gateways.get(agent.record.gateway)
    group = own.group if own is not None else ""
    members = {each: GatewayMember(there.url, there.cost) for each, there in gateways.items() if own is None or there.group == group}
    chain = ordered_chain(name, members.items(), read_chain(registry, group))
    lanes = [_lane_view(lane, each, wanted, now_s) for lane, each in sorted(agent.record.lanes.items())]
    return AgentView(
        agent=agent_summary(agent, now_s),
        since=agent.record.since,
        revision=agent.record.revision,
        tiers=tuple(tiers),
        lanes=tuple(lanes),
        chain=tuple(ChainMember(each, member.url, member.cost) for each, member in chain),
    )


def list_gateways(registry: Registry) -> list[GatewaySummary]:
    """The gateways that are up, by group and name. Raises Unreachable."""
    gateways = read_gateways(registry)
    served = Counter(each.record.gateway for each in read_agents(registry)) if gateways else Counter[str]()
    chains = {group: read_chain(registry, group) or ChainRecord() for group in {each.group for each in gateways.values()}}
    rows = [
        GatewaySummary(
            gateway=name,
            url=record.url,
            group=record.group,
            cost=chains[record.group].costs.get(name, record.cost),
            host=record.host,
            release=record.release,
            since=record.since,
            agents=served[name],
            out=chains[record.group].out.get(name, ""),
        )
        for name, record in gateways.items()
    ]
    return sorted(rows, key=lambda row: (row.group, row.gateway))


def rolled_version(record: RollOutRecord, agent: str) -> int:
    """The version that an agent is to run."""
    if record.stage in ("done", "all") or not record.before:
        return record.version
    return record.version if record.stage in ("one", "some") and agent in record.chosen else record.before


def _state_of(agent: AgentSeen, now_s: float) -> str:
    if is_away(agent.record, now_s):
        return "away"
    if agent.is_decommissioned:
        return "decommissioned"
    states = {lane.state for lane in agent.record.lanes.values()}
    return next((state for state in _STATES if state in states), "running" if states else "idle")


def _lane_view(name: str, lane: AgentLaneRecord, wanted: Mapping[str, int], now_s: float) -> AgentLaneView:
    return AgentLaneView(
        lane=name,
        state=lane.state,
        version=lane.version,
        wanted=wanted.get(name.partition(".")[0], 0),
        incarnation=lane.incarnation,
        read=lane.read,
        stored=lane.stored,
        committed=lane.committed,
        waiting_bytes=lane.waiting_bytes,
        oldest_age_s=_age_s(lane.oldest_ms, now_s),
        dropped=lane.dropped,
        files=lane.files,
        message=lane.message,
    )


def _age_s(oldest_ms: int, now_s: float) -> float | None:
    return round(max(0.0, now_s - oldest_ms / 1000), 1) if oldest_ms else None


# What operators request.


def bind_agent(registry: Registry, node: str, agent: str, *, by: str, start: bool = False) -> bool:
    """Let an agent run a tier, also if it is not of the tier's group.

    Args:
        registry: The registry.
        node: The tier, as `FLOW.TIER`.
        agent: The agent.
        by: The user, for the records.
        start: Also set the desired state of its flow to running.

    Returns:
        False if the tier is bound to it already.

    Raises:
        Refused: There is no such tier of agents, or no such agent, or it is decommissioned.
    """
    _check_tier(registry, node)
    flow = node.partition(".")[0]

    def attempt() -> bool:
        there = read_agent(registry, agent)
        if there.is_decommissioned:
            raise Refused(
                f"agent {agent} is decommissioned: it runs no tiers",
                remedy=f"to undo this, run: scribengin agent undrain {agent}",
                code="agent-decommissioned",
            )
        writes = []
        if node not in there.tiers or there.tiers[node] is not None:
            writes.append(put(registry, MAPPED(agent, node), Mapped(by=by, at=now_text())))
        if start:
            entry, desired = registry.read(DESIRED(flow).path), read_flow(registry, flow).desired
            if desired.state != "running":
                writes.append(DESIRED(flow).put(entry, replace(desired, state="running", by=by, at=now_text())))
        if writes:
            registry.commit(*writes, Require(AGENT(agent).path))
        return bool(writes)

    return again(attempt)


def unbind_agent(registry: Registry, node: str, agent: str) -> bool:
    """Remove the binding of a tier to an agent; an agent of the tier's group continues to run it. Returns False if the tier is not bound to
    it. Raises Refused if there is no such agent."""

    def attempt() -> bool:
        there = read_agent(registry, agent)
        if node not in there.tiers or there.tiers[node] is not None:
            return False
        registry.commit(Delete(MAPPED(agent, node).path))
        return True

    return again(attempt)


def decommission_agent(registry: Registry, agent: str, *, by: str) -> bool:
    """Let an agent hand over what it has read, and read nothing more. Returns False if it is decommissioned already. Raises Refused if
    there is no such agent."""

    def attempt() -> bool:
        if read_agent(registry, agent).is_decommissioned:
            return False
        registry.commit(DECOMMISSIONED(agent).create(Decommissioned(by=by, at=now_text())))
        return True

    return again(attempt)


def recommission_agent(registry: Registry, agent: str) -> bool:
    """Let an agent read again. Returns False if it is not decommissioned. Raises Refused if there is no such agent."""

    def attempt() -> bool:
        if not read_agent(registry, agent).is_decommissioned:
            return False
        registry.commit(Delete(DECOMMISSIONED(agent).path))
        return True

    return again(attempt)


def remove_agent(registry: Registry, agent: str) -> None:
    """Remove an agent that is gone. If it reports again, it is a new agent. Raises Refused if there is no such agent, or it is not away."""
    there = read_agent(registry, agent)
    if not is_away(there.record, time.time()):
        raise Refused(
            f"agent {agent} is up: its last report is {time.time() - there.record.reported_at:.0f} s old",
            remedy=f"let it hand over what it has, and stop it: scribengin agent drain {agent}",
            code="agent-up",
        )
    gone = [MAPPED(agent, node).path for node in there.tiers]
    gone += [DECOMMISSIONED(agent).path] if there.is_decommissioned else []
    for path in (*gone, AGENT(agent).path):
        registry.commit(Delete(path))


def unfinished_lanes(registry: Registry, agent: str) -> tuple[str, ...]:
    """The lanes of an agent that still have records which are not committed, by its last report. Raises Refused if there is no such
    agent."""
    lanes = read_agent(registry, agent).record.lanes
    return tuple(sorted(name for name, lane in lanes.items() if lane.read > lane.committed or lane.waiting_bytes))


def set_chain(registry: Registry, group: str, chain: ChainSettings, *, by: str) -> bool:
    """Set which gateways of a group agents use. Returns False if nothing was changed.

    Args:
        registry: The registry.
        group: The group of gateways; `default`: those without a group.
        chain: Costs and order; empty: they are left to the gateways.
        by: The user, for the record.

    Raises:
        Refused: The name of the group or a cost is not valid.
    """
    if not CHAIN.fits(group):
        raise Refused(f'"{group[:100]}" is not a valid name of a group', remedy="see: scribengin gateway list", code="group-unknown")
    wrong = [name for name, cost in chain.costs.items() if not 0 < cost < float("inf")]
    if wrong:
        raise Refused(f"the cost of {wrong[0]} is {chain.costs[wrong[0]]}", remedy="write a number above 0", code="group-cost")

    def attempt() -> bool:
        spot = CHAIN(group)
        there = read_record(registry, spot)
        before = there.record if isinstance(there, Stored) else ChainRecord()
        wanted = ChainRecord(costs=dict(chain.costs), out=dict(chain.out), chain=tuple(chain.chain), by=by, at=now_text())
        if replace(before, by="", at="") == replace(wanted, by="", at=""):
            return False
        if not (wanted.costs or wanted.out or wanted.chain):
            registry.commit(Delete(spot.path))
        else:
            registry.commit(put(registry, spot, wanted))
        return True

    return again(attempt)


def unknown_agent(name: str, known: Sequence[str]) -> Refused:
    """The error for the name of an agent that has never reported."""
    near = did_you_mean(name, known) or "see: scribengin agent list; start one there: scribengin agent run --gateway URL"
    return Refused(f'there is no agent "{name[:200]}"', remedy=near, code="agent-unknown")


def _check_tier(registry: Registry, node: str) -> None:
    flow, _, tier = node.partition(".")
    if not MAPPED.fits("any", node):
        raise Refused(f'"{node[:200]}" is not a valid name of a tier', remedy="write FLOW.TIER", code="tier-unknown")
    row = read_flow(registry, flow)
    spec = read_record(registry, SPEC(flow, str(row.desired.version)))
    tiers = sorted(spec.record.agents) if isinstance(spec, Stored) else []
    if tier not in tiers:
        remedy = did_you_mean(tier, tiers) or (f"its tiers of agents: {', '.join(tiers)}" if tiers else "it collects nothing from agents")
        raise Refused(f'flow {flow} has no tier of agents "{tier}"', remedy=remedy, code="tier-unknown")

"""Where workers run: which node a tier's next one starts on, and which have to leave theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.control.world import Node, TierSeen
    from scribengin.registry.kinds import TierSpec


def choose_node(nodes: Mapping[str, Node], tier: TierSeen, load: Mapping[str, int]) -> str | None:
    """Where the tier's next worker starts: where it is mapped to; else on the host of its group with the lowest cost; of equal ones where
    there are fewest workers. None where no such node answers and has room."""
    able = [name for name, node in nodes.items() if not node.decommissioned and _may(name, node, tier) and _fits(node, tier)]
    return min(able, key=lambda name: (_cost(name, nodes[name], tier), load.get(name, 0), name), default=None)


def has_to_move(nodes: Mapping[str, Node], tier: TierSeen) -> bool:
    """True where the tier's worker is to end where it is, in order, because it is wanted on a node that could take it now."""
    run = tier.run
    if run is None or run.ended_at is not None or run.node not in nodes:
        return False
    leaves = nodes[run.node].decommissioned or not _may(run.node, nodes[run.node], tier)
    return leaves and choose_node(nodes, tier, {}) is not None


def why_homeless(nodes: Mapping[str, Node], flow: str, tier: TierSeen) -> tuple[str, str] | None:
    """(reason, next action) of a tier that is mapped to a node, or runs on a group of hosts, none of which can take it now; None where
    neither is so."""
    if tier.node:
        why = _why_not(nodes.get(tier.node))
        return f"tier {tier.tier} is mapped to node {tier.node}, which {why}", _elsewhere(flow, tier)
    if not tier.group:
        return None
    seen = {
        at: next((node for name, node in nodes.items() if at in (name, node.host)), None)
        for at in sorted(tier.hosts, key=lambda at: tier.hosts[at])
    }
    reason = f"tier {tier.tier} runs on group {tier.group}: {', '.join(f'{at} {_why_not(node)}' for at, node in seen.items())}"
    away = [at for at, node in seen.items() if node is None]
    start = f"start a node there: scribengin node --registry ADDRESS --name {away[0]}; " if away else ""
    return reason, start + _elsewhere(flow, tier)


def is_on_group(name: str, host: str, tier: TierSeen | TierSpec) -> bool:
    """Whether the node, on the machine `host`, is of the group on which the tier runs; of a tier without one each is."""
    return not tier.group or name in tier.hosts or host in tier.hosts


def where_it_may(flow: str, tier: TierSeen) -> str:
    """What has to come about for a tier that no node can take to start: the end of a sentence."""
    if tier.node:
        return f"node {tier.node}, to which it is mapped, can take it; {_elsewhere(flow, tier)}"
    if tier.group:
        return f"a host of group {tier.group} can take it ({', '.join(tier.hosts)}); {_elsewhere(flow, tier)}"
    return "a node answers that can take it"


def _elsewhere(flow: str, tier: TierSeen) -> str:
    return f"to have it elsewhere: scribengin {f'unmap {flow}.{tier.tier}' if tier.node else f'map {flow}.{tier.tier} NODE'}"


def _why_not(node: Node | None) -> str:
    return "does not answer" if node is None else "is decommissioned" if node.decommissioned else "has no room for it"


def _may(name: str, node: Node, tier: TierSeen) -> bool:
    """A person who maps a tier to a node means that node, also beside its group."""
    if tier.node:
        return tier.node == name
    return is_on_group(name, node.host, tier)


def _cost(name: str, node: Node, tier: TierSeen) -> float:
    return min((cost for at, cost in tier.hosts.items() if at in (name, node.host)), default=0.0)


def _fits(node: Node, tier: TierSeen) -> bool:
    cores, memory_bytes = node.free_cores, node.free_memory_bytes
    return (cores is None or tier.cores <= cores) and (memory_bytes is None or tier.memory_bytes <= memory_bytes)

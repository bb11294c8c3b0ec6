"""The placement of workers: the node on which a tier's next worker starts, the workers that must leave their node, and the helpers of a
tier with a worker on each host."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.control.world import ObservedTier
from scribengin.registry.records import HELPER, helper_name, is_helper, tier_of
from scribengin.spec.tier_keys import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.control.world import FlowSeen, RunId, WorkerNode, WorkerProcess
    from scribengin.registry.records import TierSpec


def choose_node(nodes: Mapping[str, WorkerNode], tier: ObservedTier, load: Mapping[str, int]) -> str | None:
    """Choose the node for the tier's next worker: the node that it is mapped to, else the host of its group with the lowest cost; of equal
    ones the one with the fewest workers.

    Args:
        nodes: the nodes that answer now.
        tier: the tier.
        load: node → its number of workers.

    Returns:
        The node's name; None if no such node answers and has room.
    """
    able = [name for name in able_nodes(nodes, tier) if _fits(nodes[name], tier)]
    return min(able, key=lambda name: (_cost(name, nodes[name], tier), load.get(name, 0), name), default=None)


def load_of(processes: Mapping[RunId, WorkerProcess]) -> Counter[str]:
    """Node → its number of workers."""
    return Counter(process.node for process in processes.values() if not process.ended)


def less_room(node: WorkerNode, tier: ObservedTier) -> WorkerNode:
    """The node when a worker of the tier has been started there."""
    cores, memory_bytes = node.free_cores, node.free_memory_bytes
    return replace(
        node,
        free_cores=None if cores is None else cores - tier.cores,
        free_memory_bytes=None if memory_bytes is None else memory_bytes - tier.memory_bytes,
    )


def apart(load: Mapping[str, int], tiers: Mapping[str, ObservedTier], name: str) -> Mapping[str, int]:
    """The load of each node for a worker of the tier. A node with another worker of its tier counts as full, so that of nodes with the same
    cost one without is chosen.

    Args:
        load: node → its number of workers.
        tiers: the tiers of the flow.
        name: the tier of the new worker.
    """
    beside = [tier.run for other, tier in tiers.items() if other != name and tier_of(other) == tier_of(name)]
    taken = Counter(run.node for run in beside if run is not None and run.ended_at is None)
    return {node: load.get(node, 0) + _FULL * taken[node] for node in {*load, *taken}} if taken else load


_FULL = 1_000
"""more workers than a node has"""


def on_each_host(flow: FlowSeen, nodes: Mapping[str, WorkerNode], load: Mapping[str, int]) -> FlowSeen:
    """Returns the flow with the helpers that its tiers of `workers: each` should have now, each bound to a host of its own.

    Such a tier has a helper on each host that it may run on, except the host of its own worker, up to MOST_WORKERS with that worker. A
    helper stays on its host, even while that host does not answer, until it is known to have ended. None is added unless the desired state
    of the flow is running.

    Args:
        flow: the flow, as in its records.
        nodes: the nodes that answer now.
        load: node → its number of workers.

    Returns:
        The flow with other `tiers` and `wanted_tiers`; the same object if no tier has `workers: each`.
    """
    if not flow.each:
        return flow
    places: dict[str, str] = {}
    for name in sorted(flow.each & flow.tiers.keys()):
        places |= _helper_places(flow, flow.tiers[name], nodes, load)
    tiers = dict(flow.tiers)
    for helper in sorted({name for name in tiers if is_helper(name) and tier_of(name) in flow.each} | places.keys()):
        tier = tier_of(helper)
        seen = tiers.get(helper) or _new_helper(flow.tiers[tier], helper)
        # a helper that is to leave has no downstream tiers: the tier continues without it
        feeders = frozenset({tier} if helper in places else ())
        tiers[helper] = replace(seen, node=places.get(helper, ""), feeders=feeders)
    wanted = {*(flow.tiers if flow.wanted_tiers is None else flow.wanted_tiers)}
    wanted = {name for name in wanted if not is_helper(name) or tier_of(name) not in flow.each}
    return replace(flow, tiers=tiers, wanted_tiers=frozenset(wanted | places.keys()))


def _helper_places(flow: FlowSeen, tier: ObservedTier, nodes: Mapping[str, WorkerNode], load: Mapping[str, int]) -> dict[str, str]:
    """Helper → its host, for a tier of `workers: each`. The host is empty for a helper whose run is not recorded."""
    helpers = sorted((seen for name, seen in flow.tiers.items() if is_helper(name) and tier_of(name) == tier.tier), key=_number_of)
    there = [helper for helper in helpers if _is_there(helper)]
    ended = [helper for helper in helpers if helper not in there and helper.run is not None]
    anywhere = replace(tier, node="")
    home = _first_place(flow, tier, there, nodes, load)
    free = sorted((name for name in able_nodes(nodes, anywhere) if name != home), key=lambda name: (_cost(name, nodes[name], tier), name))
    places: dict[str, str] = {}
    for helper in (*there, *ended):
        at = helper.run.node if helper.run is not None else ""
        if at in free and len(places) < MOST_WORKERS - 1:
            free.remove(at)
            places[helper.tier] = at
        elif at not in nodes and helper in there:
            places[helper.tier] = at
    if flow.wish.goal != "running" or home == "" or "" in places.values():
        return places
    # the name of a helper that is ending is free only when it has ended; a permanent failure on one host does not concern another host
    names = {helper.tier for helper in helpers if helper in there or helper.lease or (helper.run is not None and helper.run.permanent)}
    unused = (name for number in range(2, 100) if (name := helper_name(tier.tier, number)) not in {*names, *places})
    return places | dict(zip(unused, free[: max(0, MOST_WORKERS - 1 - len(places))], strict=False))


def _first_place(
    flow: FlowSeen, tier: ObservedTier, helpers: Iterable[ObservedTier], nodes: Mapping[str, WorkerNode], load: Mapping[str, int]
) -> str | None:
    """The host of the worker that holds the tier's lease, or on which it starts next; empty if unknown. If no host has room for it, the
    host of one of its helpers, which will be stopped; None if there is none."""
    run = tier.run
    if _is_there(tier):
        at = "" if run is None else run.node
        if at not in nodes or at in able_nodes(nodes, tier):
            return at
    ready = choose_node(nodes, tier, apart(load, flow.tiers, tier.tier))
    if ready is not None:
        return ready
    taken = {helper.run.node for helper in helpers if helper.run is not None}
    return min(taken.intersection(able_nodes(nodes, tier)), key=lambda name: (_cost(name, nodes[name], tier), name), default=None)


def _new_helper(tier: ObservedTier, name: str) -> ObservedTier:
    """A helper of the tier without records."""
    said = (tier.cores, tier.memory_bytes, tier.version, tier.process)
    return ObservedTier(name, frozenset({tier.tier}), "", *said, executors=tier.executors, group=tier.group, hosts=tier.hosts)


def _is_there(tier: ObservedTier) -> bool:
    """True if a worker of the tier may be at work. If its run is not recorded, the lease shows it."""
    return tier.lease is not None if tier.run is None else tier.run.ended_at is None


def _number_of(helper: ObservedTier) -> int:
    return int(helper.tier.rpartition(HELPER)[2])


def has_to_move(nodes: Mapping[str, WorkerNode], tier: ObservedTier) -> bool:
    """True if the tier's worker must end gracefully because it belongs on another node, which could take it now."""
    run = tier.run
    if run is None or run.ended_at is not None or run.node not in nodes:
        return False
    leaves = nodes[run.node].decommissioned or not _may(run.node, nodes[run.node], tier)
    return leaves and choose_node(nodes, tier, {}) is not None


def no_node_reason(nodes: Mapping[str, WorkerNode], flow: str, tier: ObservedTier) -> tuple[str, str] | None:
    """(reason, next action) for a tier that is mapped to a node, or runs on a group of hosts, none of which can take it now; None for other
    tiers."""
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
    start = f"start a node there: scribengin server node --registry ADDRESS --name {away[0]}; " if away else ""
    return reason, start + _elsewhere(flow, tier)


def is_on_group(name: str, host: str, tier: ObservedTier | TierSpec) -> bool:
    """True if the node, on the machine `host`, is in the group on which the tier runs, or the tier has no group."""
    return not tier.group or name in tier.hosts or host in tier.hosts


def where_it_may(flow: str, tier: ObservedTier) -> str:
    """The condition under which a tier that no node can take starts: the end of a sentence."""
    if tier.node:
        return f"node {tier.node}, to which it is mapped, can take it; {_elsewhere(flow, tier)}"
    if tier.group:
        return f"a host of group {tier.group} can take it ({', '.join(tier.hosts)}); {_elsewhere(flow, tier)}"
    return "a node that can take it answers"


def _elsewhere(flow: str, tier: ObservedTier) -> str:
    return f"to run it elsewhere: scribengin node {f'unmap {flow}.{tier.tier}' if tier.node else f'map {flow}.{tier.tier} NODE'}"


def _why_not(node: WorkerNode | None) -> str:
    return "does not answer" if node is None else "is decommissioned" if node.decommissioned else "has no room for it"


def able_nodes(nodes: Mapping[str, WorkerNode], tier: ObservedTier) -> Iterator[str]:
    """The nodes on which the tier may run and that are not decommissioned, whether or not they have room now."""
    return (name for name, node in nodes.items() if not node.decommissioned and _may(name, node, tier))


def _may(name: str, node: WorkerNode, tier: ObservedTier) -> bool:
    """True if the tier may run on the node. A tier that an operator maps to a node runs there, even outside its group."""
    if tier.node:
        return tier.node == name
    return is_on_group(name, node.host, tier)


def _cost(name: str, node: WorkerNode, tier: ObservedTier) -> float:
    return min((cost for at, cost in tier.hosts.items() if at in (name, node.host)), default=0.0)


def _fits(node: WorkerNode, tier: ObservedTier) -> bool:
    cores, memory_bytes = node.free_cores, node.free_memory_bytes
    return (cores is None or tier.cores <= cores) and (memory_bytes is None or tier.memory_bytes <= memory_bytes)

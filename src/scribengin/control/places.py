"""Where workers run: which node a tier's next one starts on, and which have to leave theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.control.world import Node, TierSeen


def choose_node(nodes: Mapping[str, Node], tier: TierSeen, load: Mapping[str, int]) -> str | None:
    """Where the tier's next worker starts: where it is mapped to, else where there are fewest; None where no such node answers and has
    room."""
    able = [name for name, node in nodes.items() if not node.decommissioned and tier.node in ("", name) and _fits(node, tier)]
    return min(able, key=lambda name: (load.get(name, 0), name), default=None)


def has_to_move(nodes: Mapping[str, Node], tier: TierSeen) -> bool:
    """True where the tier's worker is to end where it is, in order, because it is wanted on a node that could take it now."""
    run = tier.run
    if run is None or run.ended_at is not None or run.node not in nodes:
        return False
    leaves = nodes[run.node].decommissioned or tier.node not in ("", run.node)
    return leaves and choose_node(nodes, tier, {}) is not None


def _fits(node: Node, tier: TierSeen) -> bool:
    cores, memory_bytes = node.free_cores, node.free_memory_bytes
    return (cores is None or tier.cores <= cores) and (memory_bytes is None or tier.memory_bytes <= memory_bytes)

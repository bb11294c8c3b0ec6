"""From what is wanted of a flow to what is wanted of each of its tiers: in an order that loses nothing and floods nobody.

Stop and drain go from the sources down: a tier is asked when all that feed it have come to rest. Resume goes from the sinks up. A new
version waits until the old one's workers have ended: what is under way is carried over while nobody writes. A worker that is wanted on
another node is first wanted stopped.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.places import has_to_move
from scribengin.control.rebuilt import lost_wish
from scribengin.registry.kinds import TierWish

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scribengin.control.world import FlowSeen, ObservedTier, WorkerNode


def at_rest(tier: ObservedTier) -> bool:
    """True where no worker of the tier runs, as far as is noted, and none holds its lease."""
    return (tier.run is None or tier.run.ended_at is not None) and tier.lease is None


def has_drained(tier: ObservedTier, generation: int) -> bool:
    """True where a worker has said that all there was when drain was asked has gone through."""
    return tier.report is not None and tier.report.state == "drained" and tier.report.generation == generation


def from_the_sources(flow: FlowSeen) -> list[str]:
    """Its tiers, each behind those that feed it; those that do not depend on each other by name."""
    sorter = TopologicalSorter({name: sorted(flow.tiers[name].feeders & flow.tiers.keys()) for name in sorted(flow.tiers)})
    return list(sorter.static_order())


def tier_wishes(flow: FlowSeen, nodes: Mapping[str, WorkerNode]) -> dict[str, TierWish]:
    """What is wanted of each tier now, in the order in which it is to be written. A tier that was never wanted has none."""
    order = from_the_sources(flow)
    if flow.wish.goal == "running":
        order.reverse()
    old = {name for name in order if is_old(flow, name)}
    rolling = any(not at_rest(flow.tiers[name]) for name in old)
    wishes = {}
    for name in order:
        wish = _tier_wish(flow, flow.tiers[name], old if rolling else ())
        if wish is not None:
            wishes[name] = replace(wish, goal="stopped") if has_to_move(nodes, flow.tiers[name]) else wish
    return wishes


def _tier_wish(flow: FlowSeen, tier: ObservedTier, leaving: Collection[str]) -> TierWish | None:
    """`leaving`: tiers whose workers give way to those of another version; all of them end before any of these starts."""
    wish, before = flow.wish, tier.wish or lost_wish(tier)
    wanted = flow.wanted_tiers is None or tier.tier in flow.wanted_tiers
    feeders = [flow.tiers[name] for name in tier.feeders if name in flow.tiers]
    if tier.tier in leaving or not wanted or (leaving and before is None):
        # a feeder that stays goes on: what it hands over waits in the channel
        ending = [feeder for feeder in feeders if not leaving or feeder.tier in leaving or not _is_wanted(flow, feeder)]
        if before is None or not all(at_rest(feeder) for feeder in ending):
            return before
        return TierWish(version=before.version, goal="stopped", generation=wish.generation)
    ready = (
        all(at_rest(feeder) for feeder in feeders)
        if wish.goal == "stopped"
        else wish.goal != "drained" or all(has_drained(feeder, wish.generation) for feeder in feeders)
    )
    if not ready:
        return before
    return TierWish(version=tier.version or wish.version, goal=wish.goal, generation=wish.generation)


def _is_wanted(flow: FlowSeen, tier: ObservedTier) -> bool:
    return flow.wanted_tiers is None or tier.tier in flow.wanted_tiers


def is_old(flow: FlowSeen, name: str) -> bool:
    """True where the tier's workers have to give way: they are of another version, and can not go on as the one that is wanted."""
    tier = flow.tiers[name]
    before = tier.wish or lost_wish(tier)
    if before is None or before.version == (tier.version or flow.wish.version):
        return False
    return not tier.process or before.version < tier.process

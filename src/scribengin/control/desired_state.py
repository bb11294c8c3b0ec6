"""Derives the desired states of tiers from that of their flow, in an order that loses and overloads nothing.

Stop and drain go from the sources down: a tier is stopped when all its upstream tiers have ended. Resume goes from the sinks up. A new
version waits until the old version's workers have ended: state is migrated while nothing writes. A worker that belongs on another node is
stopped first.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.placement import has_to_move
from scribengin.control.standbys import waiting
from scribengin.registry.records import Run, TierWish

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scribengin.control.world import FlowSeen, ObservedTier, WorkerNode, World


# Rebuilds a lost record from others: a run from its lease, its report and its process, a tier's desired state from its report. So a damaged
# or removed record costs no running worker, and no number is used twice.


LOST = "its record was lost"


def lost_run(world: World, flow: str, tier: ObservedTier) -> Run | None:
    """The run that serves a tier whose run record is lost, else the last one that did; None if there was none. A standby counts only once
    it holds the lease."""
    report, lease, spare = tier.report, tier.lease, waiting(tier)
    processes = {id_.number: process for id_, process in world.processes.items() if (id_.flow, id_.tier) == (flow, tier.tier)}
    numbers = {report.run if report else 0, tier.leased_before, *processes} - ({spare.number} if spare else set())
    number = lease.run if lease is not None and lease.run else max(numbers, default=0)
    if number < 1:
        return None
    process = processes.get(number)
    held = lease is not None and lease.run == number
    node = "" if process is None else process.node
    if held or (process is not None and not process.ended):
        generation = report.generation if report is not None and report.run == number else 0
        return Run(number=number, node=node, asked_at=world.now, generation=generation, leased=held)
    return Run(number=number, node=node, asked_at=world.now, generation=0, ended_at=world.now, cause=LOST)


def lost_wish(tier: ObservedTier) -> TierWish | None:
    """The desired state of a tier whose record is lost: what its worker reports to do. None if no worker runs."""
    run, report = tier.run, tier.report
    if run is None or run.ended_at is not None or report is None or report.run != run.number:
        return None
    return TierWish(version=report.version, goal="paused" if report.state == "paused" else "running", generation=report.generation)


def at_rest(tier: ObservedTier) -> bool:
    """True if no worker of the tier runs, as far as is recorded, and none holds its lease."""
    return (tier.run is None or tier.run.ended_at is not None) and tier.lease is None


def has_drained(tier: ObservedTier, generation: int) -> bool:
    """True if a worker has reported that everything that was available at the request to drain is processed."""
    return tier.report is not None and tier.report.state == "drained" and tier.report.generation == generation


def from_the_sources(flow: FlowSeen) -> list[str]:
    """The flow's tiers, each after its upstream tiers; independent ones by name."""
    sorter = TopologicalSorter({name: sorted(flow.tiers[name].feeders & flow.tiers.keys()) for name in sorted(flow.tiers)})
    return list(sorter.static_order())


def tier_wishes(flow: FlowSeen, nodes: Mapping[str, WorkerNode]) -> dict[str, TierWish]:
    """The desired state of each tier now, in the order in which it is to be written. A tier that never had one is left out."""
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
    """`leaving`: tiers whose workers are replaced by those of another version; all of them end before any of these starts."""
    wish, before = flow.wish, tier.wish or lost_wish(tier)
    wanted = flow.wanted_tiers is None or tier.tier in flow.wanted_tiers
    feeders = [flow.tiers[name] for name in tier.feeders if name in flow.tiers]
    if tier.tier in leaving or not wanted or (leaving and before is None):
        # an upstream tier that stays continues: what it writes waits in the channel
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
    """True if the tier's workers must be replaced: they are of another version, and cannot continue as the desired one."""
    tier = flow.tiers[name]
    before = tier.wish or lost_wish(tier)
    if before is None or before.version == (tier.version or flow.wish.version):
        return False
    return not tier.process or before.version < tier.process

"""Rebuilds a lost record from others: a run from its lease, its report and its process, a tier's desired state from its report. So a
damaged or removed record costs no running worker, and no number is used twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.control.spares import waiting
from scribengin.registry.kinds import Run, TierWish

if TYPE_CHECKING:
    from scribengin.control.world import ObservedTier, World

LOST = "its record was lost"


def lost_run(world: World, flow: str, tier: ObservedTier) -> Run | None:
    """The run that serves a tier without a recorded one, else the last that did; None if there never was one. A standby counts only once it
    holds the lease."""
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
    """The desired state of a tier without a record: what its worker reports to do. None if none runs."""
    run, report = tier.run, tier.report
    if run is None or run.ended_at is not None or report is None or report.run != run.number:
        return None
    return TierWish(version=report.version, goal="paused" if report.state == "paused" else "running", generation=report.generation)

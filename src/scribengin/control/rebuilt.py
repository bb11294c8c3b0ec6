"""What a lost record said, as far as it can be seen elsewhere: a run by its lease, its report and its process, a tier's wish by its report.

So a damaged record, or one that somebody removed, costs no worker that runs, and no number is given out twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.control.spares import waiting
from scribengin.registry.kinds import Run, TierWish

if TYPE_CHECKING:
    from scribengin.control.world import ObservedTier, World

LOST = "its record was lost"


def lost_run(world: World, flow: str, tier: ObservedTier) -> Run | None:
    """The run that serves a tier for which none is noted, else the newest that did; None where there never was one. A spare is none, until
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
    """What is wanted of a tier of which nothing is written: what its worker says that it does. None where none runs."""
    run, report = tier.run, tier.report
    if run is None or run.ended_at is not None or report is None or report.run != run.number:
        return None
    return TierWish(version=report.version, goal="paused" if report.state == "paused" else "running", generation=report.generation)

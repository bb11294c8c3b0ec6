"""The life of a tier's standby: a worker that has loaded all it needs and waits for the lease, if `standby: warm` is set.

A standby becomes the serving worker in two ways. Its predecessor's lease ends, and the standby acquires the lease, with or without a
master. Or a master observes the predecessor's end first, and makes the standby its successor. Either way the run record becomes the
standby's, and another standby is started once the new worker serves: two starts at the same time would slow the important one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.placement import choose_node
from scribengin.control.world import Kill, Note, RunId, Start
from scribengin.registry.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.control.world import Action, ObservedTier, WorkerProcess, World


SILENT_S = 300.0
"""Seconds after its start that a standby may be silent; then it counts as stuck."""


def waiting(tier: ObservedTier) -> Run | None:
    """The standby that waits, or is starting; None if there is none, or it serves already."""
    spare = tier.spare
    if spare is None or spare.ended_at is not None or (tier.run is not None and spare.number <= tier.run.number):
        return None
    return spare


def spare_waits(tier: ObservedTier) -> bool:
    """True if time alone may change the actions for the standby: one is needed and does not exist, or it has not reported yet."""
    spare = waiting(tier)
    if spare is None:
        return tier.standby
    return tier.spare_report is None or tier.spare_report.run != spare.number


def newest_number(tier: ObservedTier) -> int:
    """The highest number that any worker of the tier was given; 0 if there was none."""
    return max((run.number for run in (tier.run, tier.spare) if run is not None), default=0)


def successor(world: World, flow: str, tier: ObservedTier, failures: int, *, due: bool) -> Run | None:
    """The run record with which the standby becomes the tier's worker now; None if it does not.

    Args:
        world: what was observed.
        flow: the flow.
        tier: the tier.
        failures: failures in a row without progress so far.
        due: a successor of the tier's worker is to be started now. Otherwise the standby becomes the worker only if it holds the lease.
    """
    spare = waiting(tier)
    if spare is None or tier.wish is None:
        return None
    holds = tier.lease is not None and tier.lease.run == spare.number
    process = world.processes.get(RunId(flow, tier.tier, spare.number))
    if not holds and not (due and process is not None and not process.ended):
        return None
    return replace(spare, asked_at=world.now, generation=tier.wish.generation, leased=holds, failures=failures)


def tend_spare(
    world: World, flow: str, tier: ObservedTier, load: Mapping[str, int], back_off_s: Callable[[int], float], *, serves: bool
) -> Iterator[Action]:
    """The actions for the tier's standby.

    Args:
        world: what was observed.
        flow: the flow.
        tier: the tier.
        load: node → its number of workers.
        back_off_s: number of failures in a row → seconds until the next start.
        serves: the tier's worker serves; see `worker_lifecycle.serves`.
    """
    spare = waiting(tier)
    if spare is None:
        if serves and tier.standby:
            yield from _start(world, flow, tier, load, back_off_s)
        return
    id_ = RunId(flow, tier.tier, spare.number)
    process, node = world.processes.get(id_), world.nodes.get(spare.node)
    heard = tier.spare_report is not None and tier.spare_report.run == spare.number
    if process is not None and process.ended:
        yield Note(flow, tier.tier, _ended(world, tier, spare, process), spare=True)
    elif process is None and node is not None:
        yield Start(flow, tier.tier, spare, spare=True)  # its record was written, but the launcher never received the order
    elif process is not None and not tier.standby and tier.wish is not None and tier.wish.goal in ("running", "paused"):
        yield Kill(id_, spare.node, "the flow no longer needs a standby")
    elif process is not None and _keeps_failing(tier):
        yield Kill(id_, spare.node, "its tier fails repeatedly; a standby does not help")
    elif process is not None and not heard and world.now - spare.asked_at >= SILENT_S:
        yield Kill(id_, spare.node, f"it has not reported for {SILENT_S:.0f} s after its start")


def _keeps_failing(tier: ObservedTier) -> bool:
    """True if the tier fails repeatedly. A standby that took over would fail again at once, without any back-off."""
    return tier.run is not None and tier.run.ended_at is not None and tier.run.failures > 1


def _start(world: World, flow: str, tier: ObservedTier, load: Mapping[str, int], back_off_s: Callable[[int], float]) -> Iterator[Action]:
    wish, before, run = tier.wish, tier.spare, tier.run
    if wish is None or run is None or wish.goal != "running":
        return
    # only a standby that never served counts
    failed = before is not None and before.number > run.number and before.generation == wish.generation
    if before is not None and failed and (before.permanent or world.now < (before.ended_at or 0.0) + back_off_s(before.failures)):
        return
    others = {name: node for name, node in world.nodes.items() if name != run.node}
    node = choose_node(others, tier, load) or choose_node(world.nodes, tier, load)
    if node is None:
        return
    failures = before.failures if before is not None and failed else 0
    number = newest_number(tier) + 1
    spare = Run(number=number, node=node, asked_at=world.now, generation=wish.generation, failures=failures)
    yield Start(flow, tier.tier, spare, spare=True)


def _ended(world: World, tier: ObservedTier, spare: Run, process: WorkerProcess) -> Run:
    report = tier.spare_report if tier.spare_report is not None and tier.spare_report.run == spare.number else None
    if report is not None and report.state == "stopped":
        return replace(spare, ended_at=world.now, failures=0, cause=report.cause)
    how = process.how_ended
    ended = replace(spare, ended_at=world.now, failures=spare.failures + 1, cause=how)
    if report is None or report.state != "failed":
        return ended
    return replace(ended, cause=report.cause or how, remedy=report.remedy, permanent=report.permanent)

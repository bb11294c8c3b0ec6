"""The life of one tier's worker: started, adopted, replaced. Time limits apply only to silence; a slow worker has not failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.desired_state import has_drained, lost_run
from scribengin.control.placement import choose_node
from scribengin.control.standbys import newest_number, spare_waits, successor, waiting
from scribengin.control.world import Forget, FreeLease, Kill, Note, RunId, Start
from scribengin.registry.records import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.control.world import Action, ObservedTier, WorkerProcess, World
    from scribengin.registry.records import TierWish


BACK_OFF_S = (0.0, 2.0, 10.0, 60.0)
"""seconds after the first, second, … failure in a row without progress before the next start; the last value holds for all further ones"""
REGAIN_S = 15.0
"""seconds that a worker that lost its lease may take to regain it, for example after a short loss of its session or a suspension of its
process"""
FIRST_SIGN_S = 300.0
"""seconds after its start that a worker may be silent; then it counts as stuck"""

REACHED_S = 30.0
"""seconds that a start waits for a node that became unavailable before its worker had the lease; then another node is used. Counted from
when it was found unavailable: a busy node may be so for a moment, long after the order, and its worker has only just started."""


def back_off_s(failures: int) -> float:
    """Seconds to wait after that many failures in a row without progress; 0 without failures."""
    return BACK_OFF_S[min(failures, len(BACK_OFF_S)) - 1] if failures else 0.0


def tend(world: World, flow: str, tier: ObservedTier, load: Mapping[str, int]) -> Iterator[Action]:
    """The actions for the tier's worker now.

    Args:
        world: what was observed.
        flow: the flow.
        tier: the tier.
        load: node → its number of workers, for choosing one.
    """
    run = tier.run
    if run is None and (lost := lost_run(world, flow, tier)) is not None:
        yield Note(flow, tier.tier, lost)
        return
    failures = 0 if run is None else run.failures if run.ended_at is not None else _failures(tier, run)
    taken_over = successor(world, flow, tier, failures, due=_is_due(world, tier))
    if taken_over is not None:
        yield Note(flow, tier.tier, taken_over)
        return
    if run is None or run.ended_at is not None:
        yield from _start(world, flow, tier, load)
        return
    id_ = RunId(flow, tier.tier, run.number)
    process, node = world.processes.get(id_), world.nodes.get(run.node)
    if process is not None and process.ended:
        yield from _end(world, id_, tier, run, process)
    elif process is not None and not run.node:
        yield Note(flow, tier.tier, replace(run, node=process.node))
    elif tier.lease is not None and tier.lease.run == run.number:
        if not run.leased or run.unleased_since is not None:
            yield Note(flow, tier.tier, replace(run, leased=True, unleased_since=None))
    elif run.leased and process is not None and process.state == "starting":
        # its cluster has lost the driver, and starts it again by itself: as a worker that was just ordered
        yield Note(flow, tier.tier, replace(run, leased=False, unleased_since=None, asked_at=world.now))
    elif run.leased and run.unleased_since is None:
        yield Note(flow, tier.tier, replace(run, unleased_since=world.now))
    elif _lost_its_lease(world, run):
        yield from _give_up(world, id_, tier, run, process, f"it has not held its lease for {REGAIN_S:.0f} s")
    elif process is None and node is not None:
        # The run was recorded, but the launcher never received the order: the master that wrote it has ended, or the node was unavailable.
        # For a run that has held its lease, the time to regain it continues to count.
        yield Start(flow, tier.tier, run if run.leased or run.unleased_since is None else replace(run, unleased_since=None))
    elif not run.leased and process is None and run.unleased_since is None:
        yield Note(flow, tier.tier, replace(run, unleased_since=world.now))
    elif not run.leased and process is None and run.unleased_since is not None:
        if world.now - run.unleased_since >= REACHED_S:
            yield from _give_up(world, id_, tier, run, process, "it never held its lease")
    elif not run.leased and run.unleased_since is not None:
        yield Note(flow, tier.tier, replace(run, unleased_since=None))
    elif not run.leased and world.now - run.asked_at >= FIRST_SIGN_S and not _has_reported(tier, run):
        yield from _give_up(world, id_, tier, run, process, f"it has not reported for {FIRST_SIGN_S:.0f} s after its start")


def orphans(world: World) -> Iterator[Action]:
    """The actions for processes that no run record names."""
    for id_, process in world.processes.items():
        flow = world.flows.get(id_.flow)
        if id_.flow in world.held or (flow is not None and flow.damaged):
            continue
        tier = flow.tiers.get(id_.tier) if flow is not None else None
        run = tier.run if tier is not None else None
        if tier is not None and run is None:
            continue  # its run is recorded first; a later cycle decides about the process
        if run is not None and run.number == id_.number and run.ended_at is None:
            continue
        if tier is not None and (spare := waiting(tier)) is not None and spare.number == id_.number:
            continue
        if tier is not None and run is not None and id_.number > newest_number(tier):
            continue  # a newer observation than this one gave it its number
        if process.ended:
            yield Forget(id_, process.node)
        else:
            yield Kill(id_, process.node, "the flow no longer needs it" if run is None else f"another worker serves {id_.flow}.{id_.tier}")


def needs_worker(tier: ObservedTier) -> bool:
    """True if the tier's desired state needs a running process."""
    wish = tier.wish
    if wish is None:
        return False
    if wish.task and (tier.report is None or tier.report.task != wish.task):
        return True
    return wish.goal == "running" or (wish.goal == "drained" and not has_drained(tier, wish.generation))


def next_start_at(tier: ObservedTier, wish: TierWish) -> float | None:
    """When the ended run's successor starts, in seconds since the epoch; 0 if at once; None if the tier needs intervention."""
    run = tier.run
    if run is None or run.ended_at is None or run.generation != wish.generation:
        return 0.0
    return None if run.permanent else run.ended_at + back_off_s(run.failures)


def waits(tier: ObservedTier) -> bool:
    """True if time alone may change the actions: a worker that has not reported, has lost its lease, or is to be started."""
    run = tier.run
    if run is None or run.ended_at is not None:
        return needs_worker(tier)
    return not run.leased or run.unleased_since is not None or spare_waits(tier)


def serves(tier: ObservedTier) -> bool:
    """True if the tier's worker holds the lease and reports that it runs; after more than one failure in a row, only once it has committed
    a Batch."""
    run, report = tier.run, tier.report
    if run is None or run.ended_at is not None or report is None or not _has_reported(tier, run) or tier.lease is None:
        return False
    runs = tier.lease.run == run.number and report.state in ("running", "degraded", "recovering")
    return runs and (run.failures <= 1 or report.commits > 0)


def _is_due(world: World, tier: ObservedTier) -> bool:
    """True if a worker is needed, none runs, and the time of its start has come."""
    run, wish = tier.run, tier.wish
    if wish is None or not needs_worker(tier) or (run is not None and run.ended_at is None):
        return False
    at = next_start_at(tier, wish)
    return at is not None and world.now >= at


def _start(world: World, flow: str, tier: ObservedTier, load: Mapping[str, int]) -> Iterator[Action]:
    wish = tier.wish
    if wish is None or not needs_worker(tier):
        return
    at, node = next_start_at(tier, wish), choose_node(world.nodes, tier, load)
    if at is None or world.now < at or node is None:
        return
    before = tier.run
    again = before is not None and before.generation == wish.generation
    number, failures = newest_number(tier) + 1, before.failures if before is not None and again else 0
    run = Run(number=number, node=node, asked_at=world.now, generation=wish.generation, failures=failures)
    yield Start(flow, tier.tier, run)


def _end(world: World, id_: RunId, tier: ObservedTier, run: Run, process: WorkerProcess) -> Iterator[Action]:
    """The actions when the run's process has ended: record it, once, and free its lease."""
    report = tier.report if _has_reported(tier, run) else None
    reached = run.generation if report is None else max(run.generation, report.generation)
    ended = replace(run, ended_at=world.now, unleased_since=None, generation=reached)
    if report is not None and report.state in ("stopped", "drained"):
        ended = replace(ended, failures=0, cause=report.cause)
    else:
        how = process.how_ended
        if _lost_its_lease(world, run):  # this or another master killed it for that reason
            how = f"it had not held its lease for {REGAIN_S:.0f} s: {how}"
        ended = replace(ended, failures=_failures(tier, run), cause=how, remedy=f"see: scribengin logs {id_.flow}")
        if report is not None and report.state == "failed":
            ended = replace(ended, cause=report.cause or how, remedy=report.remedy, permanent=report.permanent)
    yield Note(id_.flow, id_.tier, ended)
    if tier.lease is not None and tier.lease.run == run.number:
        yield FreeLease(id_)


def _lost_its_lease(world: World, run: Run) -> bool:
    """True if the run has been without its lease for longer than a worker may be."""
    return run.leased and run.unleased_since is not None and world.now - run.unleased_since >= REGAIN_S


def _give_up(world: World, id_: RunId, tier: ObservedTier, run: Run, process: WorkerProcess | None, why: str) -> Iterator[Action]:
    """The actions for a worker that does not answer. It is killed if possible; if its node is unavailable, or has no record of it, only its
    Term fences it."""
    if process is not None:
        yield Kill(id_, process.node, why)
    else:
        cause = f"{why}, and node {run.node} " + ("has no record of it" if run.node in world.nodes else "does not answer")
        ended = replace(run, ended_at=world.now, unleased_since=None, failures=_failures(tier, run), cause=cause)
        yield Note(id_.flow, id_.tier, ended)


def _failures(tier: ObservedTier, run: Run) -> int:
    """Failures in a row without progress, if this run counts as one."""
    progressed = tier.report is not None and tier.report.run == run.number and tier.report.commits > 0
    return 1 if progressed else run.failures + 1


def _has_reported(tier: ObservedTier, run: Run) -> bool:
    return tier.report is not None and tier.report.run == run.number

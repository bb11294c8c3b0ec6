"""Operations of several steps: what a master does of one next, from one look at the world. Pure, as `decide` is.

An operation is a record, `flows/<flow>/ops/<id>`, and `desired` names the newest; so there is one at a time, and any master goes on with it
where the one before has left it. While it is under way the flow waits for it, whatever else is wanted:

    stop     the workers end after the Batches under way, from the sources down
    work     a worker of each tier that has a part in it does this part, under the tier's lease, says so, and ends
    done, failed, cancelled     over; the flow goes on as it is wanted

Each step shows by itself whether it is through: by runs that have ended, by reports that name the operation. A part is done again where a
worker was lost before it could say so; `worker.tasks` sees to it that this changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.wishes import at_rest, from_the_sources
from scribengin.core.moments import moment_text
from scribengin.registry.kinds import TierWish

if TYPE_CHECKING:
    from scribengin.control.world import FlowSeen, TierSeen, UnderWay
    from scribengin.registry.kinds import FlowState, Operation


def next_step(flow: FlowSeen, under_way: UnderWay, now: float) -> Operation | None:
    """The operation as it is to be written now; None where its step is not through."""
    operation = under_way.operation
    if not all(at_rest(tier) for tier in flow.tiers.values()):
        return None
    since = moment_text(now)
    lacking = [name for name in operation.tiers if name not in flow.tiers]
    if lacking:
        return replace(operation, step="failed", since=since, error=f"the flow has no tier {', '.join(lacking)} any more")
    if operation.step == "stop":
        return replace(operation, step="work", since=since)
    for name in operation.tiers:
        if (error := _error(flow.tiers[name], flow, under_way)) is not None:
            return replace(operation, step="failed", since=since, error=f"tier {name}: {error}")
    if all(has_done(flow.tiers[name], under_way.id) for name in operation.tiers):
        return replace(operation, step="done", since=since)
    return None


def held_wishes(flow: FlowSeen, under_way: UnderWay) -> dict[str, TierWish]:
    """What is wanted of each tier while the operation is under way, in the order in which it is to be written."""
    wishes: dict[str, TierWish] = {}
    operation = under_way.operation
    for name in from_the_sources(flow):
        tier, before = flow.tiers[name], flow.tiers[name].wish
        if operation.step == "work" and name in operation.tiers:
            wishes[name] = TierWish(version=operation.version, goal="stopped", generation=flow.wish.generation, task=under_way.id)
        elif before is not None:
            feeders = [flow.tiers[feeder] for feeder in tier.feeders if feeder in flow.tiers]
            ready = operation.step == "work" or all(at_rest(feeder) for feeder in feeders)
            stopped = TierWish(version=before.version, goal="stopped", generation=flow.wish.generation)
            wishes[name] = stopped if ready else before
    return wishes


def has_done(tier: TierSeen, id_: str) -> bool:
    """True where a worker of the tier has said that its part of the operation is done, or has failed."""
    return tier.report is not None and tier.report.task == id_


def standing_of(flow: FlowSeen, under_way: UnderWay) -> tuple[FlowState, str, str]:
    """How the flow stands: state, reason, what comes next."""
    operation = under_way.operation
    what = f"operation {under_way.id} ({operation.kind})"
    then = {"running": "then it runs", "paused": "then it is paused"}.get(flow.wish.goal, "then it stays stopped")
    if operation.step == "stop":
        waiting = [name for name, tier in sorted(flow.tiers.items()) if not at_rest(tier)]
        return "stopping", f"{what} waits for the end of {', '.join(waiting)}" if waiting else f"{what} begins", then
    waiting = [name for name in operation.tiers if name in flow.tiers and not has_done(flow.tiers[name], under_way.id)]
    how = f"{what} is done by {', '.join(waiting)}" if waiting else f"{what} is through"
    return ("starting" if flow.wish.goal == "running" else "stopping"), how, then


def _error(tier: TierSeen, flow: FlowSeen, under_way: UnderWay) -> str | None:
    """Why its part of the operation has failed; None where it has not."""
    if tier.report is not None and has_done(tier, under_way.id):
        return tier.report.task_error or None
    run = tier.run
    if run is not None and run.permanent and run.generation == flow.wish.generation:
        return run.cause
    return None

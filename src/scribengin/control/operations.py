"""Operations of several steps: the next action of a master for each, from one observation of the world. Pure, like `decide`.

An operation is a record, `flows/<flow>/ops/<id>`, and `desired` names the newest; so one is under way at a time, and any master can
continue it. While it is under way, it has precedence over the flow's desired state:

    stop     the workers end after the current Batches, from the sources down
    drain    the same, but readers of channels that are to be removed first read the whole backlog, in the version that wrote it
    work     a worker of each tier that has a part in it does this part, under the tier's lease, reports the result, and ends
    done, failed, cancelled     ended; the flow continues in its desired state

Runs that have ended, and reports that name the operation, show whether a step is done. A part is repeated if a worker was lost before it
could report it; `worker.tasks` is idempotent.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.desired_state import at_rest, from_the_sources, has_drained
from scribengin.control.world import AWAY, TAKEN_BACK, Advance, Ask
from scribengin.core.time_text import moment_text
from scribengin.registry.records import Desired, TierWish
from scribengin.registry.tree import DESIRED
from scribengin.watching.producer_signal import BEHIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.control.world import Action, FlowSeen, ObservedTier, UnderWay, World
    from scribengin.registry.records import FlowState, Goal, Operation, StatusRecord, WorkflowOperationRecord


# Operations over workflows: which flow is changed next, from one observation of the world. Pure, as `decide` is.
#
# Stop, drain and pause go from the sources down: a flow is changed when its upstream flows have reached the goal. Resume goes from the
# sinks up. Such an operation is a record, `workflows/<n>`; the desired states of its flows show which were changed, so that any master
# can continue it. If another request changes one of its flows meanwhile, that request wins: the operation ends, and no further flow is
# changed.


REACHED: Mapping[Goal, str] = {"running": "running", "paused": "paused", "drained": "stopped", "stopped": "stopped"}
"""goal → the state of a flow that has reached it"""


def next_of(world: World, id_: str, operation: WorkflowOperationRecord) -> Iterator[Action]:
    """The next actions of an operation over a workflow. A deleted flow is not waited for; a flow with invalid records is."""
    now = moment_text(world.now)
    for name in operation.feeders:
        flow = world.flows.get(name)
        if flow is not None and _is_asked(operation, flow) and flow.wish.goal != operation.goal:
            error = f"another command set flow {name} to {flow.wish.goal}; the flows that were not reached yet are left unchanged"
            yield Advance(id_, replace(operation, step="failed", since=now, error=error))
            return
    reached = {name for name in operation.feeders if _is_through(world, operation, name)}
    if len(reached) == len(operation.feeders):
        yield Advance(id_, replace(operation, step="done", since=now))
        return
    for name, before in predecessors_of(operation).items():
        flow = world.flows.get(name)
        if flow is None or flow.damaged or _is_asked(operation, flow) or not reached.issuperset(before):
            continue
        if DESIRED(name).path in flow.refused:
            error = f"the manual change to the desired state of flow {name} is invalid; see: scribengin status {name}"
            yield Advance(id_, replace(operation, step="failed", since=now, error=error))
            return
        wish = flow.wish
        wanted = Desired(
            state=operation.goal, version=wish.version, by=operation.by, at=now, operation=wish.operation, accepts=wish.accepts
        )
        yield Ask(name, id_, wanted)


def predecessors_of(operation: WorkflowOperationRecord) -> dict[str, tuple[str, ...]]:
    """Flow → the flows that must have reached the goal before it is changed."""
    feeders = operation.feeders
    if operation.goal != "running":
        return {name: tuple(feeders[name]) for name in feeders}
    return {name: tuple(other for other, fed_by in feeders.items() if name in fed_by) for name in feeders}


def has_reached(goal: Goal, status: StatusRecord | None, generation: int) -> bool:
    """True if a flow has reached its desired state.

    Args:
        goal: the desired state.
        status: the last status of the flow; None if it has none.
        generation: the revision of the desired state.
    """
    if status is None or status.generation != generation:
        return False
    # a flow that is only behind its `max_delay`, or lacks an agent, is running
    runs = goal == "running" and status.state == "degraded" and status.reason.startswith((BEHIND, AWAY, TAKEN_BACK))
    return runs or status.state == REACHED[goal]


def _is_asked(operation: WorkflowOperationRecord, flow: FlowSeen) -> bool:
    return flow.wish.generation != operation.begun.get(flow.name)


def _is_through(world: World, operation: WorkflowOperationRecord, name: str) -> bool:
    flow = world.flows.get(name)
    if flow is None:
        return name not in world.held
    asked = _is_asked(operation, flow) and flow.wish.goal == operation.goal
    return asked and flow.under_way is None and has_reached(operation.goal, flow.status, flow.wish.generation)


def next_step(flow: FlowSeen, under_way: UnderWay, now: float) -> Operation | None:
    """The operation with its next step, to be written; None if its present step is not done."""
    operation = under_way.operation
    since = moment_text(now)
    if operation.step == "drain":
        return _drained(flow, under_way, since)
    if not all(at_rest(tier) for tier in flow.tiers.values()):
        return None
    if (error := _lacks(flow, operation.tiers)) is not None:
        return replace(operation, step="failed", since=since, error=error)
    if operation.step == "stop":
        return replace(operation, step="work", since=since)
    for name in operation.tiers:
        if (error := _error(flow.tiers[name], flow, under_way)) is not None:
            return replace(operation, step="failed", since=since, error=f"tier {name}: {error}")
    if all(has_done(flow.tiers[name], under_way.id) for name in operation.tiers):
        return replace(operation, step="done", since=since)
    return None


def _drained(flow: FlowSeen, under_way: UnderWay, since: str) -> Operation | None:
    """The operation after `drain`, once the tiers that are to read have read everything, or as failed if one of them cannot; None
    before."""
    operation = under_way.operation
    readers = operation.arguments["read"]
    if (gone := _lacks(flow, readers)) is not None:
        return replace(operation, step="failed", since=since, error=gone)
    for name in readers:
        run = flow.tiers[name].run
        if run is not None and run.ended_at is not None and run.permanent and run.generation == flow.wish.generation:
            error = f"tier {name} could not read the backlog of its channels: {run.cause}"
            return replace(operation, step="failed", since=since, error=error)
    if all(_has_read(flow, name) for name in readers) and all(at_rest(tier) for tier in flow.tiers.values()):
        return replace(operation, step="work", since=since)
    return None


def _lacks(flow: FlowSeen, tiers: Iterable[str]) -> str | None:
    """Why an operation cannot continue if the flow lacks some of these tiers; None if it has all."""
    gone = [name for name in tiers if name not in flow.tiers]
    return f"the flow no longer has tier {', '.join(gone)}" if gone else None


def wanted_after(flow: FlowSeen, operation: Operation, now: float) -> Desired | None:
    """The desired state of the flow with the previous version, if the operation with which a version was to start has failed; None if the
    desired state does not change."""
    if operation.kind != "recut" or operation.step != "failed" or operation.version == flow.wish.version:
        return None
    wish = flow.wish
    return Desired(
        state=wish.goal, version=operation.version, by=operation.by, at=moment_text(now), operation=wish.operation, accepts=wish.accepts
    )


def held_wishes(flow: FlowSeen, under_way: UnderWay) -> dict[str, TierWish]:
    """The desired state of each tier while the operation is under way, in the order in which it is to be written."""
    wishes: dict[str, TierWish] = {}
    operation = under_way.operation
    if operation.step == "drain":
        return _draining_wishes(flow, operation)
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


def _draining_wishes(flow: FlowSeen, operation: Operation) -> dict[str, TierWish]:
    """The desired states while readers drain their channels: from the sources down, in the tier layout of the running version."""
    feeders: dict[str, list[str]] = operation.arguments["feeders"]
    order = TopologicalSorter({name: sorted(feeders.get(name, ())) for name in sorted({*flow.tiers, *feeders})}).static_order()
    wishes: dict[str, TierWish] = {}
    for name in order:
        if name not in flow.tiers:
            continue
        before, reads = flow.tiers[name].wish, name in operation.arguments["read"]
        if before is None and not reads:
            continue
        ready = all(
            at_rest(flow.tiers[feeder]) and (feeder not in operation.arguments["read"] or _has_read(flow, feeder))
            for feeder in feeders.get(name, ())
            if feeder in flow.tiers
        )
        if ready:
            version = operation.version if reads or before is None else before.version
            wishes[name] = TierWish(version=version, goal="drained" if reads else "stopped", generation=flow.wish.generation)
        elif before is not None:
            wishes[name] = before
    return wishes


def has_done(tier: ObservedTier, id_: str) -> bool:
    """True if a worker of the tier has reported that its part of the operation is done, or has failed."""
    return tier.report is not None and tier.report.task == id_


def standing_of(flow: FlowSeen, under_way: UnderWay) -> tuple[FlowState, str, str]:
    """The status of a flow while an operation is under way: state, reason, next action."""
    operation = under_way.operation
    what = f"operation {under_way.id} ({operation.kind})"
    then = {"running": "then it runs", "paused": "then it is paused"}.get(flow.wish.goal, "then it stays stopped")
    if operation.step == "drain":
        reading = [name for name in operation.arguments["read"] if not _has_read(flow, name)]
        ending = [name for name, tier in sorted(flow.tiers.items()) if not at_rest(tier) and name not in reading]
        failed = [
            tier.run.cause for name in reading if (tier := flow.tiers.get(name)) and tier.run and tier.run.failures and tier.run.cause
        ]
        ill = f" ({failed[0]})" if failed else ""
        said = [f"{', '.join(reading)} to read the backlog of its channels{ill}"] if reading else []
        said += [f"{', '.join(ending)} to end"] if ending else []
        give_up = f"then it runs as version {flow.wish.version}; to cancel, run: scribengin operation cancel {flow.name} {under_way.id}"
        return "draining", f"{what} waits for {' and '.join(said)}" if said else f"{what} begins", give_up
    if operation.step == "stop":
        waiting = [name for name, tier in sorted(flow.tiers.items()) if not at_rest(tier)]
        return "stopping", f"{what} waits for {', '.join(waiting)} to end" if waiting else f"{what} begins", then
    waiting = [name for name in operation.tiers if name in flow.tiers and not has_done(flow.tiers[name], under_way.id)]
    how = f"{what} is under way in {', '.join(waiting)}" if waiting else f"{what} is done"
    return ("starting" if flow.wish.goal == "running" else "stopping"), how, then


def _has_read(flow: FlowSeen, name: str) -> bool:
    """True if the tier has read everything that was available at the last change of the desired state."""
    return name in flow.tiers and has_drained(flow.tiers[name], flow.wish.generation)


def _error(tier: ObservedTier, flow: FlowSeen, under_way: UnderWay) -> str | None:
    """Why the tier's part of the operation has failed; None if it has not."""
    if tier.report is not None and has_done(tier, under_way.id):
        return tier.report.task_error or None
    run = tier.run
    if run is not None and run.permanent and run.generation == flow.wish.generation:
        return run.cause
    return None

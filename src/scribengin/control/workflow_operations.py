"""Operations over workflows: which flow is asked next, from one look at the world. Pure, as `decide` is.

Stop, drain and pause go from the sources down: a flow is asked when those that feed it have come to the goal. Resume goes from the sinks
up. Such an operation is a record, `workflows/<n>`; which of its flows were asked shows by what is wanted of them, so that any master goes
on with it. What somebody else wants of one of its flows meanwhile stands: then the operation is over, and nobody else is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.actions import Advance, Ask
from scribengin.core.moments import moment_text
from scribengin.registry.kinds import Desired
from scribengin.registry.tree import DESIRED
from scribengin.watching.intake import BEHIND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.control.actions import Action
    from scribengin.control.world import FlowSeen, World
    from scribengin.registry.kinds import Goal, StatusRecord, WorkflowOperationRecord

REACHED: Mapping[Goal, str] = {"running": "running", "paused": "paused", "drained": "stopped", "stopped": "stopped"}
"""goal → the state of a flow that has come to it"""


def next_of(world: World, id_: str, operation: WorkflowOperationRecord) -> Iterator[Action]:
    """What to do for it now. A flow that is gone has nothing to wait for; one whose records say nothing is waited for."""
    now = moment_text(world.now)
    for name in operation.feeders:
        flow = world.flows.get(name)
        if flow is not None and _is_asked(operation, flow) and flow.wish.goal != operation.goal:
            error = f"somebody else wants flow {name} {flow.wish.goal}: the flows that were not asked yet are left as they are"
            yield Advance(id_, replace(operation, step="failed", since=now, error=error))
            return
    reached = {name for name in operation.feeders if _is_through(world, operation, name)}
    if len(reached) == len(operation.feeders):
        yield Advance(id_, replace(operation, step="done", since=now))
        return
    for name, before in before_of(operation).items():
        flow = world.flows.get(name)
        if flow is None or flow.damaged or _is_asked(operation, flow) or not reached.issuperset(before):
            continue
        if DESIRED(name).path in flow.refused:
            error = f"what somebody wants of flow {name} by hand cannot be; see: scribengin status {name}"
            yield Advance(id_, replace(operation, step="failed", since=now, error=error))
            return
        wish = flow.wish
        wanted = Desired(
            state=operation.goal, version=wish.version, by=operation.by, at=now, operation=wish.operation, accepts=wish.accepts
        )
        yield Ask(name, id_, wanted)


def before_of(operation: WorkflowOperationRecord) -> dict[str, tuple[str, ...]]:
    """Flow → those that must have come to the goal before it is asked."""
    feeders = operation.feeders
    if operation.goal != "running":
        return {name: tuple(feeders[name]) for name in feeders}
    return {name: tuple(other for other, fed_by in feeders.items() if name in fed_by) for name in feeders}


def has_come_to(goal: Goal, status: StatusRecord | None, generation: int) -> bool:
    """Whether a flow of which this was written last is as it is wanted."""
    if status is None or status.generation != generation:
        return False
    # one that is only behind runs
    behind = goal == "running" and status.state == "degraded" and status.reason.startswith(BEHIND)
    return behind or status.state == REACHED[goal]


def _is_asked(operation: WorkflowOperationRecord, flow: FlowSeen) -> bool:
    return flow.wish.generation != operation.begun.get(flow.name)


def _is_through(world: World, operation: WorkflowOperationRecord, name: str) -> bool:
    flow = world.flows.get(name)
    if flow is None:
        return name not in world.held
    asked = _is_asked(operation, flow) and flow.wish.goal == operation.goal
    return asked and flow.under_way is None and has_come_to(operation.goal, flow.status, flow.wish.generation)

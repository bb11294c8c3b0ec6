"""Operations over workflows: which flow is changed next, from one observation of the world. Pure, as `decide` is.

Stop, drain and pause go from the sources down: a flow is changed when its upstream flows have reached the goal. Resume goes from the sinks
up. Such an operation is a record, `workflows/<n>`; the desired states of its flows show which were changed, so that any master can continue
it. If another request changes one of its flows meanwhile, that request wins: the operation ends, and no further flow is changed.
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
"""goal → the state of a flow that has reached it"""


def next_of(world: World, id_: str, operation: WorkflowOperationRecord) -> Iterator[Action]:
    """The next action of the operation. A deleted flow is not waited for; one with invalid records is."""
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
    for name, before in before_of(operation).items():
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


def before_of(operation: WorkflowOperationRecord) -> dict[str, tuple[str, ...]]:
    """Flow → those that must have reached the goal before it is changed."""
    feeders = operation.feeders
    if operation.goal != "running":
        return {name: tuple(feeders[name]) for name in feeders}
    return {name: tuple(other for other, fed_by in feeders.items() if name in fed_by) for name in feeders}


def has_come_to(goal: Goal, status: StatusRecord | None, generation: int) -> bool:
    """Whether a flow with this last status has reached its desired state."""
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

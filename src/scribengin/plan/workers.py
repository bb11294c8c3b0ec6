"""The workers of a tier: whether a spare one waits for it, and whether several can share the Batches of its Queries; if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.spec.model import Python

if TYPE_CHECKING:
    from scribengin.plan.model import Plan, QueryPlan
    from scribengin.spec.model import Flow, Standby


def standby_of(flow: Flow, tier: str) -> Standby:
    """What the tier says, else what `defaults` say."""
    said = flow.tiers[tier].resources.standby if tier in flow.tiers else None
    return flow.defaults.standby if said is None else said


def why_whole(plan: Plan, query: QueryPlan) -> str:
    """Why one worker runs each Batch of the Query as a whole; empty where parts of one come to the same as the whole."""
    stateful = next((node.id for node in query.nodes if node.stateful), None)
    if stateful is not None:
        return f"step {stateful} keeps state, which only one worker can hold"
    if query.static_sources:
        return f"source {query.static_sources[0]} is static; each worker would read and count all of it"
    steps = plan.flow.steps
    frame = next(
        (node.id for node in query.nodes if node.stage == "native" and node.id in steps and isinstance(steps[node.id].action, Python)), None
    )
    return "" if frame is None else f"step {frame} is a @frame function, which may combine several rows"


def why_alone(plan: Plan) -> str:
    """Why more workers are of no use to the tier; empty where they share a Query at least."""
    reasons = [why_whole(plan, query) for query in plan.queries]
    return reasons[0] if reasons and all(reasons) else ""

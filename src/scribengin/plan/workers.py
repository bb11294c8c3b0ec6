"""The workers of a tier: whether it has a warm standby, and whether several workers can share the Batches of its queries; if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.spec.model import Python

if TYPE_CHECKING:
    from scribengin.plan.model import Plan, QueryPlan
    from scribengin.spec.model import Flow, Standby


def standby_of(flow: Flow, tier: str) -> Standby:
    """The tier's `standby`; if it is not set, that of `defaults`."""
    said = flow.tiers[tier].resources.standby if tier in flow.tiers else None
    return flow.defaults.standby if said is None else said


def why_whole(plan: Plan, query: QueryPlan) -> str:
    """The reason that one worker must run each Batch of the query as a whole; empty if parts of a Batch give the same result."""
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
    """The reason that more workers are of no use to the tier; empty if they can share at least one query."""
    reasons = [why_whole(plan, query) for query in plan.queries]
    return reasons[0] if reasons and all(reasons) else ""

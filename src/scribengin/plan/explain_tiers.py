"""The plan of a whole flow for people, for programs and as a picture: its tiers, and the channels between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.plan import explain as explain_tier
from scribengin.plan.explain import explain as explain_plan

if TYPE_CHECKING:
    from scribengin.plan.diff import Changes
    from scribengin.plan.split import FlowPlan


def explain(plan: FlowPlan, changes: Changes | None = None) -> str:
    """See `plan.explain`."""
    return explain_plan(plan.tiers[0], changes)


def as_json(plan: FlowPlan, changes: Changes | None = None) -> dict[str, Any]:
    """See `plan.explain`."""
    return explain_tier.as_json(plan.tiers[0], changes)


def as_mermaid(plan: FlowPlan) -> str:
    """See `plan.explain`."""
    return explain_tier.as_mermaid(plan.tiers[0])

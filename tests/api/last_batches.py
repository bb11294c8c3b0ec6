"""The handler of a query that a test adds: the last Batches of a flow. It is executed in the planner's process."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from scribengin.state.decisions import Decisions

if TYPE_CHECKING:
    from scribengin.local.prepare import PreparedFlow


def last_batches(prepared: PreparedFlow, most: int) -> dict[str, Any]:
    """The last Batches of each Query, newest first."""
    rows = [
        {"query": query.name, "batch": decision.batch.number, "dead": sum(segment.rows for segment in decision.dead)}
        for tier in prepared.tiers
        for query in tier.folder.queries()
        for decision in reversed(deque(Decisions(query.decisions).since(), most))
    ]
    return {"flow": prepared.name, "batches": rows}

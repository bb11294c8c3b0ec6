"""The last decided Batches of a flow, from its state folders. Needs no lease, no Spark and no Java; works while it runs, and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.errors import Refused
from scribengin.local.acks import topology_of
from scribengin.local.ledger import query_rows
from scribengin.state.channel_acks import Acks, QueryKey
from scribengin.state.decisions import Decisions, moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.local.prepare import PreparedFlow
    from scribengin.plan.model import QueryPlan
    from scribengin.state.contract import Decision


def last_batches(prepared: PreparedFlow, query: str = "", limit: int = 10) -> dict[str, Any]:
    """The last Batches of all queries together, or of one, newest first, as `batch list --json` prints them. Raises Refused if no query
    has that name."""
    queries = [(plan.tier, each) for plan in prepared.plan.tiers for each in plan.queries if query in ("", each.name)]
    if not queries:
        raise unknown_query(prepared, query, [each.name for plan in prepared.plan.tiers for each in plan.queries])
    topology = topology_of(prepared.plan, prepared.root)
    found = [
        (QueryKey(tier, each.name), each, decision)
        for tier, each in queries
        for decision in _newest(Decisions(topology.queries[QueryKey(tier, each.name)].decisions), limit)
    ]
    found.sort(key=lambda row: (moment(row[2].decided_at), row[2].batch.number), reverse=True)
    standing = Acks(topology).read().queries if found else {}
    return {
        "flow": prepared.name,
        "batches": [
            _row(key, plan, decision, published=decision.batch.number <= standing[key].published) for key, plan, decision in found[:limit]
        ],
    }


def unknown_query(prepared: PreparedFlow, name: str, known: Iterable[str]) -> Refused:
    """The refusal of a query that is not one of the known ones."""
    return Refused(f'flow "{prepared.name}" has no query "{name}"', remedy=f"it has the queries {', '.join(known)}", code="query-unknown")


def _newest(decisions: Decisions, limit: int) -> Iterator[Decision]:
    newest = decisions.newest()
    if newest is not None:
        yield from decisions.since(max(0, newest.batch.number - limit + 1))


def _row(key: QueryKey, plan: QueryPlan, decision: Decision, *, published: bool) -> dict[str, Any]:
    rows = query_rows(decision.counts, plan.sources, plan.sinks)
    return {
        "tier": key.tier,
        "query": key.query,
        "batch": decision.batch.number,
        "decided_at": decision.decided_at,
        "rows_in": rows.rows_in,
        "rows_out": rows.out,
        "dead": None if decision.open else sum(segment.rows for segment in decision.dead),
        "published": published,
    }

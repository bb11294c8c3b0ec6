"""The decided Batches of a flow, from its state folders. Needs no lease, no Spark and no Java; works while it runs, and afterwards."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import Refused
from scribengin.core.time_text import instant_text
from scribengin.local.acks import topology_of
from scribengin.local.ledger import in_plan_order, ledger_lines, query_rows
from scribengin.state.channel_acks import Acks, QueryKey
from scribengin.state.decisions import Decisions, moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.local.prepare import PreparedFlow
    from scribengin.plan.model import QueryPlan
    from scribengin.state.contract import Decision


_PHASES = ("plan", "process", "decide", "publish")
"""in the order in which a Batch passes them"""


def last_batches(prepared: PreparedFlow, query: str = "", limit: int = 10) -> dict[str, Any]:
    """The last Batches of all queries together, or of one, newest first, as `batch list --json` prints them. Raises Refused if no query
    has that name."""
    queries = _queries(prepared, query)
    topology = topology_of(prepared.plan, prepared.root)
    found = [
        (QueryKey(tier, each.name), each, decision, measured)
        for tier, each in queries
        for decision, measured in _newest(Decisions(topology.queries[QueryKey(tier, each.name)].decisions), limit)
    ]
    found.sort(key=lambda row: (moment(row[2].decided_at), row[2].batch.number), reverse=True)
    standing = Acks(topology).read().queries if found else {}
    return {
        "flow": prepared.name,
        "batches": [
            _row(key, plan, decision, measured, published=decision.batch.number <= standing[key].published)
            for key, plan, decision, measured in found[:limit]
        ],
    }


def describe_batch(prepared: PreparedFlow, query: str, batch: int) -> dict[str, Any]:
    """One decided Batch, as `batch show --json` prints it.

    Args:
        prepared: the flow.
        query: its query; empty: its only one.
        batch: the number of the Batch.

    Raises:
        Refused: `query-unknown`; `query-needed` if the flow has several queries and none is named; `batch-unknown` if there are no details
            of that Batch.
    """
    queries = _queries(prepared, query)
    if len(queries) > 1:
        names = ", ".join(each.name for _, each in queries)
        raise Refused(
            f'flow "{prepared.name}" has several queries, which count their Batches separately',
            remedy=f"name one with --query: {names}",
            code="query-needed",
        )
    [(tier, plan)] = queries
    topology, key = topology_of(prepared.plan, prepared.root), QueryKey(tier, plan.name)
    decisions = Decisions(topology.queries[key].decisions)
    decision = decisions.read(batch)
    if decision is None:
        newest = decisions.newest()
        has = "no Batch is decided yet" if newest is None else f"its newest Batch is {newest.batch.number}"
        raise Refused(
            f'query "{plan.name}" of flow "{prepared.name}" has no details of Batch {batch}: {has}',
            remedy=f"see the Batches that it has: scribengin batch list {prepared.name}; details of old ones are deleted after some time",
            code="batch-unknown",
        )
    following = decisions.read(batch + 1)
    published = batch <= Acks(topology).read().queries[key].published
    flow = prepared.plan.flow
    return {
        "flow": prepared.name,
        **_row(key, plan, decision, {} if following is None else following.before, published=published),
        "term": decision.batch.term,
        "lineage": decision.batch.lineage,
        "host": decision.ran.get("host", ""),
        "workers": int(decision.ran.get("workers", 1)),
        "plan": decision.plan,
        "input_hash": decision.input_hash,
        "sources": [asdict(each) for each in decision.sources],
        "nodes": [line.as_json() for line in ledger_lines(in_plan_order(dict(decision.counts), plan, flow), plan, flow)],
        "receipts": [{**asdict(each), "segments": [dict(part) for part in each.segments]} for each in decision.receipts],
        "dead_segments": [asdict(each) for each in decision.dead],
    }


def unknown_query(prepared: PreparedFlow, name: str, known: Iterable[str]) -> Refused:
    """The refusal of a query that is not one of the known ones."""
    return Refused(f'flow "{prepared.name}" has no query "{name}"', remedy=f"it has the queries {', '.join(known)}", code="query-unknown")


def _queries(prepared: PreparedFlow, name: str) -> list[tuple[str, QueryPlan]]:
    """The tier and plan of each query of that name; of all queries if it is empty."""
    found = [(plan.tier, each) for plan in prepared.plan.tiers for each in plan.queries if name in ("", each.name)]
    if not found:
        raise unknown_query(prepared, name, [each.name for plan in prepared.plan.tiers for each in plan.queries])
    return found


def _newest(decisions: Decisions, limit: int) -> Iterator[tuple[Decision, Mapping[str, Any]]]:
    """The newest decisions, each with what was measured of its Batch afterwards."""
    newest = decisions.newest()
    if newest is None:
        return
    found = list(decisions.since(max(0, newest.batch.number - limit + 1)))
    yield from zip(found, [*(each.before for each in found[1:]), {}], strict=True)


def _row(key: QueryKey, plan: QueryPlan, decision: Decision, measured: Mapping[str, Any], *, published: bool) -> dict[str, Any]:
    rows = query_rows(decision.counts, plan.sources, plan.sinks)
    watermark_us, phases = decision.times.get("watermark_us", 0), measured.get("phases_s")
    return {
        "tier": key.tier,
        "query": key.query,
        "batch": decision.batch.number,
        "decided_at": decision.decided_at,
        "rows_in": rows.rows_in,
        "rows_out": rows.out,
        "dead": None if decision.open else sum(segment.rows for segment in decision.dead),
        "published": published,
        "phases_s": None if phases is None else {phase: phases[phase] for phase in _PHASES if phase in phases},
        "state_rows": measured.get("state_rows"),
        "state_bytes": measured.get("state_bytes"),
        "watermark": instant_text(watermark_us) if watermark_us > 0 else None,
    }

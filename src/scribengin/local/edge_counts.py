"""Counts, from the ledger, of the rows on each edge of a flow in its last run, and of the outcome of rows at each node: for pictures.

A run is what was decided under one Term of a tier's lease; the last run is the last one that decided anything. Steps that Spark runs
together are counted as one, at their ends: of an edge between two of them no count is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import StateError
from scribengin.plan.graph import Graph, base, branches, inputs_of
from scribengin.plan.tier_flows import source_id
from scribengin.state.decisions import Decisions
from scribengin.state.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.plan.model import QueryPlan
    from scribengin.state.contract import Counts, Decision


@dataclass(slots=True)
class _Query:
    """The counts of a query in the last run of its tier."""

    tier: str
    plan: QueryPlan
    totals: Totals
    last: str
    cut: bool = False
    """True if the run may have begun before the oldest Batch whose details exist"""
    runs: dict[str, str] = field(default_factory=dict)
    """node → the ledger's name of the steps that are counted with it: its own, or `known+hot`"""

    def __post_init__(self) -> None:
        self.runs = {id_: name for name in self.totals.nodes for id_ in name.split("+")}

    def own(self, id_: str) -> Counts | None:
        """The counts of the ledger entry that includes the node."""
        return self.totals.nodes.get(self.runs.get(id_, ""))

    def inside(self, id_: str, other: str) -> bool:
        """True if the two are counted as one."""
        return id_ in self.runs and self.runs[id_] == self.runs.get(other)


def edge_counts(prepared: PreparedFlow) -> dict[str, Any]:
    """The counts of the last run: `{"batches", "last", "caption", "nodes", "edges"}`.

    A node has `in`, `dropped` (null if its rows go several ways), `dead`, `late`, `held`, and `run`, the name of the steps that are counted
    with it, which are listed at the first of them. An edge has `reads`, `node`, and `rows` as text, because several queries that read on
    their own may have different counts.
    """
    queries = [query for tier in prepared.tiers for query in _queries(tier)]
    graph = Graph(prepared.plan.flow)

    def own_of(id_: str) -> list[_Query]:
        """The queries of the node's own tier: in a tier that reads its rows from a channel, a source has its id."""
        arrives = {channel.reading for channel in prepared.plan.channels if source_id(channel) == id_}
        return [query for query in queries if query.tier not in arrives]

    batches, last = sum(query.totals.batches for query in queries), max((query.last for query in queries), default="")
    caption = "no counts: the flow has not run yet"
    if batches:
        caption = f"rows of the last run: {batches:,} {'Batch' if batches == 1 else 'Batches'}, until {last[:19].replace('T', ' ')} UTC"
        caption += "; older Batches are kept only as sums" if any(query.cut for query in queries) else ""
    return {
        "batches": batches,
        "last": last,
        "caption": caption,
        "nodes": [told for id_ in graph.nodes if (told := _node(id_, own_of(id_), graph)) is not None],
        "edges": [
            {"reads": reference, "node": id_, "rows": " / ".join(f"{rows:,}" for rows in passed)}
            for id_, node in graph.nodes.items()
            for reference in dict.fromkeys(inputs_of(node))
            if base(reference) in graph.nodes and (passed := _passed(prepared, graph, reference, id_, queries))
        ],
    }


def _queries(tier: Prepared) -> Iterator[_Query]:
    logs = {query.name: Decisions(tier.folder.query(query.name).decisions) for query in tier.plan.queries}
    newest = {name: log.newest() for name, log in logs.items()}
    term = max((decision.batch.term for decision in newest.values() if decision is not None), default=0)
    for query in tier.plan.queries:
        totals, last, cut = Totals(), "", False
        decision, log = newest[query.name], logs[query.name]
        if decision is not None and decision.batch.term == term:
            first = _first_of(log, decision)
            cut = 0 < first == log.pruned_mark() + 1
            for each in log.since(first):
                totals.add(each)
                last = each.decided_at
        yield _Query(tier.plan.tier, query, totals, last, cut)


def _first_of(log: Decisions, newest: Decision) -> int:
    """The first Batch with the Term of `newest`, by binary search, because Terms only rise. Pruned Batches are left out, even if the run
    began with them."""
    low, high = log.pruned_mark() + 1, newest.batch.number
    while low < high:
        middle = (low + high) // 2
        try:
            found = log.read(middle)
        except StateError:
            if middle > log.pruned_mark():
                raise
            found = None  # pruned meanwhile
        if found is None or found.batch.term < newest.batch.term:
            low = middle + 1
        else:
            high = middle
    return low


def _node(id_: str, queries: list[_Query], graph: Graph) -> dict[str, Any] | None:
    """The counts of a node; with several queries, those of the one with the most rows, because each reads on its own. None if there are
    none, or if they are listed at another node."""
    found = [(query, counts) for query in queries if (counts := query.own(id_)) is not None]
    if not found:
        return None
    query, counts = max(found, key=lambda each: each[1].rows_in)
    together = [other for other in graph.order if query.inside(id_, other)]
    if together and together[0] != id_:
        return None
    run = query.runs[id_] if len(together) > 1 else ""
    # rows of a route that one query drops may be read by another
    dropped = None if any(branches(graph.nodes[each]) for each in together) else counts.filtered
    shown = {"in": counts.rows_in, "dropped": dropped, "dead": counts.dead, "late": counts.late, "held": counts.held}
    return {"node": id_, "run": run, **shown}


def _passed(prepared: PreparedFlow, graph: Graph, reference: str, reader: str, queries: list[_Query]) -> list[int]:
    """The different counts that the queries with this edge have; for an edge with a channel, the rows that were written to it."""
    for channel in prepared.plan.channels:
        if channel.reference == reference and reader in channel.readers:
            sinks = [query.totals.nodes.get(channel.id) for query in queries if query.tier == channel.feeding]
            taken = [query.own(source_id(channel)) for query in queries if query.tier == channel.reading]
            ends = [each.rows_in for each in sinks if each is not None] or [each.out for each in taken if each is not None]
            return sorted(set(ends))[-1:]
    start = base(reference)
    feeders = {base(each) for each in inputs_of(graph.nodes[reader])}
    found = set()
    for query in queries:
        nodes = {node.id for node in query.plan.nodes}
        if not {start, reader} <= nodes or query.inside(start, reader):
            continue
        into, out = query.own(reader), query.own(start)
        only = len(inputs_of(graph.nodes[reader])) == 1 and not any(query.inside(reader, each) for each in feeders)
        if into is not None and only and not _mixed(query, reader, graph):
            found.add(into.rows_in)
        elif out is not None and not branches(graph.nodes[start]) and not _mixed_out(query, start, graph):
            found.add(out.out)
    return sorted(found)


def _mixed(query: _Query, reader: str, graph: Graph) -> bool:
    """True if rows came into the steps counted with `reader` by another edge too."""
    members = [id_ for id_ in graph.nodes if query.inside(reader, id_)]
    arrows = [(base(each), id_) for id_ in members for each in inputs_of(graph.nodes[id_])]
    return sum(not query.inside(start, reader) for start, _ in arrows) > 1


def _mixed_out(query: _Query, start: str, graph: Graph) -> bool:
    """True if rows left the steps counted with `start` from another step too, or by a branch."""
    members = [id_ for id_ in graph.nodes if query.inside(start, id_)]
    own = {node.id for node in query.plan.nodes}
    leaving = {id_ for id_ in members for reader in graph.readers[id_] if reader in own and not query.inside(reader, start)}
    return leaving != {start}

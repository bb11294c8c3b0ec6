"""A Query's counts as people ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.spec.model import Utilities
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.plan.model import QueryPlan
    from scribengin.spec.model import Flow


def stateful_runs(nodes: Iterable[str], plan: QueryPlan) -> frozenset[str]:
    """Of the ledger's nodes (`known+by_hour` is one) those that keep state."""
    stateful = {node.id for node in plan.nodes if node.stateful}
    return frozenset(name for name in nodes if stateful.intersection(name.split("+")))


def query_rows(counts: Mapping[str, Counts], sources: tuple[str, ...], sinks: tuple[str, ...]) -> Counts:
    """A Query's rows: in from its sources, out to its sinks, and what happened to the others on the way."""
    rows = Counts()
    for node, count in counts.items():
        # what a replay has sent in behind the sources came in, too
        rows.rows_in += count.rows_in if node in sources else count.replayed
        rows.out += count.out if node in sinks else 0
        rows.filtered += count.filtered
        rows.dead += count.dead
        rows.late += count.late
        rows.late_dead += count.late_dead
        rows.made += count.made
        rows.lost += count.lost
        rows.lost_unknown += count.lost_unknown
        rows.replayed += count.replayed
    return rows


def in_plan_order(nodes: Mapping[str, Counts], plan: QueryPlan, flow: Flow) -> dict[str, Counts]:
    """The ledger's nodes as the rows meet them, sinks last; a run of native steps (`known+by_hour`) stands at its first step. Utilities
    stand as they are written."""
    order = {id_: index for index, id_ in enumerate([*(node.id for node in plan.nodes if node.id not in plan.sinks), *plan.sinks])}
    for id_, counts in nodes.items():
        step = flow.steps.get(id_)
        if counts.parts and step is not None and isinstance(step.action, Utilities):
            names = step.action.names
            counts.parts = {name: counts.parts[name] for name in (*names, *counts.parts) if name in counts.parts}
    return dict(sorted(nodes.items(), key=lambda item: order.get(item[0].split("+")[0], len(order))))

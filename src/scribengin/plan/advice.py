"""Advice from the counts of past runs of a flow with tiers: filters that should run before a channel, tiers that only pass rows on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.units import show_bytes
from scribengin.plan.graph import base
from scribengin.plan.tier_flows import source_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.plan.channels import PlannedChannel
    from scribengin.plan.model import Plan, QueryPlan
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.state.contract import Counts
    from scribengin.state.totals import Totals

_LEAST_ROWS = 100
"""counts of fewer rows are not significant"""
_MUCH = 0.5
"""the minimum share of dropped rows of a channel for the advice to drop them earlier"""


def cut_advice(plan: FlowPlan, counted: Mapping[tuple[str, str], Totals]) -> Iterator[str]:
    """One sentence for each advice. `counted`: (tier, query) → its totals so far; queries that never ran are left out."""
    for channel in plan.channels:
        yield from _filters(plan, channel, counted)
    for tier in plan.tiers:
        yield from _passing_on(plan, tier, counted)
    for channel in plan.channels:
        yield from _same_hosts(plan, channel, counted)


def _filters(plan: FlowPlan, channel: PlannedChannel, counted: Mapping[tuple[str, str], Totals]) -> Iterator[str]:
    """Advise if the first step after a channel drops most of its rows, and all readers of the channel begin with that step."""
    source = source_id(channel)
    found = [_first(query, source, counted.get((channel.reading, query.name))) for query in plan.readers(channel)]
    first = found[0] if found else None
    if first is None or any(other is None or other[0] != first[0] for other in found):
        return
    steps, counts = first
    if counts.rows_in >= _LEAST_ROWS and counts.filtered >= _MUCH * counts.rows_in:
        named = " and ".join(f"`{step}`" for step in steps)
        share = f"{_percent(counts.filtered / counts.rows_in)} of the rows of {channel.id} are dropped by its first step"
        yield f"move {named} into the tier before the channel: {share}{'s' * (len(steps) > 1)}"


def _first(query: QueryPlan, source: str, totals: Totals | None) -> tuple[tuple[str, ...], Counts] | None:
    """(the steps, their counts) of the only ledger node that reads `source`; None if there are several, if it keeps state or merges inputs,
    or if nothing was counted."""
    reading = {node.id for node in query.nodes if source in map(base, node.inputs)} - set(query.sinks)
    if totals is None or len(reading) != 1:
        return None
    (step,) = reading
    for name, counts in totals.nodes.items():
        members = tuple(name.split("+"))
        if members[0] == step and not any(query.node(id_).stateful or len(query.node(id_).inputs) > 1 for id_ in _there(query, members)):
            return members, counts
    return None


def _there(query: QueryPlan, members: tuple[str, ...]) -> list[str]:
    known = {node.id for node in query.nodes}
    return [id_ for id_ in members if id_ in known]


def _passing_on(plan: FlowPlan, tier: Plan, counted: Mapping[tuple[str, str], Totals]) -> Iterator[str]:
    """Advise on a tier that only passes on each row that it receives."""
    arriving = {source_id(channel) for channel in plan.channels if channel.reading == tier.tier}
    leaving = {channel.id for channel in plan.channels if channel.feeding == tier.tier}
    rows = 0
    for query in tier.queries:
        totals = counted.get((tier.tier, query.name))
        if totals is None or not arriving.issuperset(query.sources) or not leaving.issuperset(query.sinks):
            return
        if any(each.filtered or each.dead or each.made or each.late for each in totals.nodes.values()):
            return
        rows += sum(totals.nodes[source].rows_in for source in query.sources if source in totals.nodes)
    if rows >= _LEAST_ROWS:
        said = f"tier {tier.tier} passes on all of the {rows:,} rows that it receives"
        yield f"{said}: merge it with a neighbouring tier to save one channel"


def _same_hosts(plan: FlowPlan, channel: PlannedChannel, counted: Mapping[tuple[str, str], Totals]) -> Iterator[str]:
    """Advise on two tiers of one named group with a channel between them."""
    group = plan.flow.tiers[channel.feeding].group
    if group is None or group != plan.flow.tiers[channel.reading].group:
        return
    written = [totals.sinks[channel.id] for (tier, _), totals in counted.items() if tier == channel.feeding and channel.id in totals.sinks]
    rows, size = sum(each.rows for each in written), sum(each.bytes for each in written)
    if rows >= _LEAST_ROWS:
        carried = f"{channel.id} has carried {rows:,} rows, {show_bytes(size)}"
        yield (
            f"tiers {channel.feeding} and {channel.reading} run on the same group, {group}: {carried}; merged into one tier they "
            "would need no channel"
        )


def _percent(share: float) -> str:
    """The share as a percentage; 100 % only if it is exactly all."""
    return f"{100 * share:.0f} %" if share == 1 or share < 0.995 else f"{min(100 * share, 99.9):.1f} %"

"""One flow as a graph: its nodes with what they do and where they run, its arrows, and the channels of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.plan.channel_text import properties
from scribengin.plan.describe import describe
from scribengin.plan.explain_tiers import as_mermaid
from scribengin.plan.graph import Graph, base, inputs_of
from scribengin.plan.groups import target
from scribengin.plan.tier_flows import source_id
from scribengin.spec.model import Sink, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.spec.model import Node


def graph_as_json(plan: FlowPlan) -> dict[str, Any]:
    """The graph as JSON. Nodes are in the file's order, sources first; the input of an edge may be `step.branch`. It contains no
    secrets."""
    flow, graph = plan.flow, Graph(plan.flow)
    channel_of = {(channel.reference, reader): channel.id for channel in plan.channels for reader in channel.readers}
    return {
        "flow": flow.name,
        "nodes": [_node(plan, node) for node in graph.nodes.values()],
        "edges": [
            {"node": id_, "reads": reference, "channel": channel_of.get((reference, id_))}
            for id_, node in graph.nodes.items()
            for reference in dict.fromkeys(inputs_of(node))
            if base(reference) in graph.nodes
        ],
        "tiers": [
            {
                "tier": tier.tier,
                "group": flow.tiers[tier.tier].group if tier.tier in flow.tiers else None,
                "queries": [query.name for query in tier.queries],
            }
            for tier in plan.tiers
        ],
        "channels": [
            {
                "channel": channel.id,
                "feeding": channel.feeding,
                "reading": channel.reading,
                "place": channel.place,
                "properties": {each.name: each.value for each in properties(flow, channel)},
            }
            for channel in plan.channels
        ],
        "mermaid": as_mermaid(plan),
    }


def _node(plan: FlowPlan, node: Node) -> dict[str, Any]:
    types = catalog.sink_types(internal=True) if isinstance(node, Sink) else catalog.source_types(internal=True)
    placed = list(_placed(plan, node.id))
    kind = "source" if isinstance(node, Source) else "sink" if isinstance(node, Sink) else type(node.action).__name__.lower()
    return {
        "node": node.id,
        "kind": kind,
        "about": describe(node, types),
        "tiers": list(dict.fromkeys(tier for tier, _, _ in placed)),
        "queries": [query for _, query, _ in placed],
        "stage": next((stage for _, _, stage in placed), None),
        "group": target(node) if isinstance(node, Source | Sink) else None,
        "stateful": any(each.stateful for tier in plan.tiers for query in tier.queries for each in query.nodes if each.id == node.id),
    }


def _placed(plan: FlowPlan, id_: str) -> Iterator[tuple[str, str, str]]:
    """(tier, query, stage) for each place where the node runs. A tier that reads the node's rows from a channel has a source of the same
    name, which does not count."""
    arrives = {channel.reading for channel in plan.channels if source_id(channel) == id_}
    for tier in plan.tiers:
        for query in tier.queries if tier.tier not in arrives else ():
            for node in query.placed:
                if node.id == id_:
                    yield tier.tier, query.name, node.stage

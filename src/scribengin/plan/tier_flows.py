"""Splits a flow into one Flow for each tier: for an edge between two tiers, the writing tier gets a sink and the reading tier a source.

Everything that plans, compiles and runs a flow then works on a tier as on a whole flow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from scribengin.plan.agent_lanes import with_channels
from scribengin.plan.channels import free, plan_channels, topic_name
from scribengin.plan.graph import Graph, base, flat_name, query_sinks
from scribengin.plan.guarantees import flow_paths
from scribengin.plan.queries import build_plan
from scribengin.plan.resolve import resolve, slowest
from scribengin.plan.sql.rewrite import rename_inputs
from scribengin.plan.tiers import assign, is_static
from scribengin.spec.model import Join, SchemaSpec, Sink, Source, Sql, Step, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.core.types import Schema
    from scribengin.plan.channels import PlannedChannel
    from scribengin.plan.guarantees import FlowPath
    from scribengin.plan.model import Plan, QueryPlan
    from scribengin.plan.resolve import Resolved
    from scribengin.plan.tiers import Assignment
    from scribengin.spec.model import Flow


_Node = TypeVar("_Node", Step, Sink)

CHANNEL = "channel"
"""the type of the sinks and sources of channels; it cannot be used in a flow file"""


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """A flow and the plans of its tiers, each after those upstream of it; a flow without tiers has one, `main`."""

    flow: Flow
    tiers: tuple[Plan, ...]
    channels: tuple[PlannedChannel, ...] = ()

    @property
    def paths(self) -> tuple[FlowPath, ...]:
        """The guarantees from every source to every sink downstream."""
        return flow_paths(self.tiers, self.channels, {channel.id: source_id(channel) for channel in self.channels})

    def tier(self, name: str) -> Plan:
        """The plan of that tier. Raises KeyError if there is none."""
        for plan in self.tiers:
            if plan.tier == name:
                return plan
        raise KeyError(name)

    def feeder(self, channel: PlannedChannel) -> QueryPlan:
        """The query that writes to the channel."""
        return next(query for query in self.tier(channel.feeding).queries if channel.id in query.sinks)

    def readers(self, channel: PlannedChannel) -> tuple[QueryPlan, ...]:
        """The queries of the reading tier that read from the channel."""
        source = source_id(channel)
        return tuple(query for query in self.tier(channel.reading).queries if source in query.sources)


def plan_flow(
    flow: Flow, *, schema_of: Callable[[str], Schema | None] = lambda _: None, folder_of: Callable[[str], str | None] = lambda _: None
) -> FlowPlan:
    """Plan a checked flow, tier by tier.

    Args:
        flow: The flow.
        schema_of: Channel → its columns as its writer has found them; None: those known without Spark.
        folder_of: Channel → its folder, if the flow does not set one.
    """
    flow = with_channels(flow, folder_of)
    graph = Graph(flow)
    if not flow.tiers:
        return FlowPlan(flow, (build_plan(flow),))
    assignment = assign(graph)
    channels = plan_channels(graph, assignment)
    split = _Split(graph, assignment, resolve(graph), channels, schema_of, folder_of)
    tiers = tuple(replace(build_plan(split.flow(tier)), tier=tier) for tier in assignment.order(flow.tiers))
    return FlowPlan(flow, tiers, channels)


@dataclass(frozen=True, slots=True)
class _Split:
    graph: Graph
    assignment: Assignment
    resolved: Resolved
    channels: tuple[PlannedChannel, ...]
    schema_of: Callable[[str], Schema | None]
    folder_of: Callable[[str], str | None]

    def flow(self, tier: str) -> Flow:
        whole = self.graph.flow
        arriving = {channel.reference: source_id(channel) for channel in self.channels if channel.reading == tier}
        own = {id_ for id_, placed in self.assignment.tier_of.items() if placed == tier}
        own |= self._static_above(own)
        steps = {id_: _reading(step, arriving) for id_, step in whole.steps.items() if id_ in own}
        sinks = {id_: _reading(sink, arriving) for id_, sink in whole.sinks.items() if id_ in own}
        sinks |= {channel.id: self._sink(channel, own) for channel in self.channels if channel.feeding == tier}
        readers: list[Step | Sink] = [*steps.values(), *sinks.values()]
        read = {base(reference) for node in readers for reference in node.inputs}
        sources = {id_: source for id_, source in whole.sources.items() if id_ in read and id_ not in arriving.values()}
        sources |= {source_id(channel): self._source(channel) for channel in self.channels if channel.reading == tier}
        trigger_s = whole.tiers[tier].trigger_s
        defaults = whole.defaults if trigger_s is None else replace(whole.defaults, trigger_s=trigger_s)
        return replace(whole, sources=sources, steps=steps, sinks=sinks, defaults=defaults, tiers={}, edges={})

    def _static_above(self, own: set[str]) -> set[str]:
        """Static steps of other tiers that this tier reads: it runs them itself."""
        return {above for above in self.graph.upstream(own) if above in self.graph.flow.steps and is_static(self.graph, above)}

    def _sink(self, channel: PlannedChannel, own: set[str]) -> Sink:
        """The sink of a channel. Channels into one tier are written together in one pass if possible; the output of stateful steps is not,
        since it must leave a query on a single path."""
        keep = self.resolved.stateful & own

        def stateful(each: PlannedChannel) -> bool:
            return not keep.isdisjoint(self.graph.upstream([base(each.reference)]))

        beside = [
            each
            for each in self.channels
            if (each.feeding, each.reading, each.edge.durability) == (channel.feeding, channel.reading, channel.edge.durability)
            and not stateful(each)
        ]
        names = {each.id for each in self.channels} | self.graph.nodes.keys() | query_sinks(self.graph.flow).keys()
        together = free(f"to_{channel.reading}", names) if len(beside) > 1 and channel in beside else None
        return Sink(channel.id, (channel.reference,), CHANNEL, self._options(channel, channel.feeding), together)

    def _source(self, channel: PlannedChannel) -> Source:
        schema = self.schema_of(channel.id) or self.resolved.schema(channel.reference)
        marks = self.resolved.watermarks.get(base(channel.reference), ())
        mark = slowest(tuple(mark for mark in marks if schema is None or mark.column in schema))
        return Source(
            source_id(channel),
            CHANNEL,
            self._options(channel, channel.reading),
            None if schema is None else SchemaSpec(schema),
            None if mark is None else Watermark(mark.column, mark.delay_s, mark.ahead_s, mark.idle_s),
        )

    def _folder(self, channel: PlannedChannel) -> str | None:
        if channel.edge.to is not None:  # below the location of each member
            return topic_name(self.graph.flow.name, channel.reference, channel.reading)
        return self.folder_of(channel.id)

    def _options(self, channel: PlannedChannel, tier: str) -> dict[str, Any]:
        """The options of the connector at the end of the channel in `tier`."""
        edge, where = channel.edge, channel.channel
        pack, encryption = edge.pack, edge.encryption
        assert pack is not None
        assert encryption is not None
        # one topic may be used by several channels; in one folder each has a subfolder
        beside = [other.id for other in self.channels if where.topic and other is not channel and other.place == channel.place]
        path = f"{where.path}/{channel.id}" if where.path else None
        given: dict[str, Any] = {
            "kind": where.type,
            "channel": channel.id,
            "beside": tuple(beside),
            "topic": where.topic,
            "path": path or (self._folder(channel) if where.type == "folder" else None),
            "bootstrap": where.bootstrap,
            "config": where.config,
            "partitions": where.partitions,
            "replication": where.replication,
            "retention": edge.retention_s,
            "keyring": encryption.keyring,
            "keys": encryption.keys,
            "use": encryption.use,
            "tier": tier,
            "to": edge.to,
        }
        if tier == channel.feeding:
            key = edge.key if edge.ordering == "key" else ()
            given |= {"compression": edge.compression, "rows": pack.rows, "bytes": pack.bytes, "key": key}
            given |= {"durability": edge.durability, "spill": edge.spill}
        elif edge.durability == "best_effort":
            given |= {"lossy": True}
        return {name: value for name, value in given.items() if value is not None}


def source_id(channel: PlannedChannel) -> str:
    """The id of the channel's source in the reading tier: the id of the node in the flow, or `r_big` for a branch `r.big`."""
    return flat_name(channel.reference)


def _reading(node: _Node, arriving: Mapping[str, str]) -> _Node:
    """The node with the names that its inputs have in its tier."""
    return read_as(node, {reference: arriving[reference] for reference in node.inputs if "." in reference and reference in arriving})


def read_as(node: _Node, renamed: Mapping[str, str]) -> _Node:
    """The node with other names for its inputs. `renamed`: input → its new name; inputs that are not listed keep theirs."""
    if renamed.keys().isdisjoint(node.inputs):
        return node
    inputs = tuple(renamed.get(reference, reference) for reference in node.inputs)
    if isinstance(node, Sink):
        return replace(node, inputs=inputs)
    match node.action:
        case Sql(text):
            return replace(node, inputs=inputs, action=Sql(rename_inputs(text, renamed)))
        case Join(time=times):
            return replace(node, inputs=inputs, action=replace(node.action, time=tuple((renamed.get(id_, id_), at) for id_, at in times)))
    return replace(node, inputs=inputs)

"""Divides a checked Flow into queries: one for each sink, or for several sinks that commit together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.plan.describe import listed
from scribengin.plan.fingerprint import node_fingerprints, query_fingerprint, state_fingerprint
from scribengin.plan.graph import Graph, query_sinks
from scribengin.plan.groups import group_notes
from scribengin.plan.guarantees import guarantees, written_by_spark
from scribengin.plan.model import Plan, PlannedNode, QueryPlan
from scribengin.plan.python_functions import inspect_function
from scribengin.plan.resolve import resolve
from scribengin.plan.row_hints import drop_notes, late_notes
from scribengin.plan.stages import in_the_tail, place_nodes
from scribengin.spec.model import Python, Step

if TYPE_CHECKING:
    from scribengin.plan.resolve import Resolved
    from scribengin.spec.functions import Form
    from scribengin.spec.model import Flow, Sink


def build_plan(flow: Flow) -> Plan:
    """Plan the queries of a Flow without errors (see `check_flow`). Reads the user's modules (for fingerprints) without importing them."""
    graph = Graph(flow)
    resolved = resolve(graph)
    forms = function_forms(flow)
    queries = tuple(_query(graph, resolved, forms, name, sinks) for name, sinks in query_sinks(flow).items())
    schemas = {id_: schema for id_ in graph.nodes if (schema := resolved.schema(id_)) is not None}
    hints = (*_hints(flow, queries), *group_notes(flow), *drop_notes(graph, resolved), *late_notes(flow))
    return Plan(flow=flow, queries=queries, hints=hints, schemas=schemas)


def function_forms(flow: Flow) -> dict[str, Form]:
    """Python step → the form in which its function receives rows."""
    return {
        step.id: inspect_function(step.action.reference, flow.code_folder, step.action.function).form
        for step in flow.steps.values()
        if isinstance(step.action, Python)
    }


def _query(graph: Graph, resolved: Resolved, forms: dict[str, Form], name: str, sinks: list[Sink]) -> QueryPlan:
    flow = graph.flow
    above = {sink.id: graph.upstream([sink.id]) for sink in sinks}
    members = tuple(id_ for id_ in graph.order if any(id_ in fed for fed in above.values()))
    stages = place_nodes(graph, members, forms, stateful=any(id_ in resolved.stateful for id_ in members))
    nodes = tuple(
        PlannedNode(
            id=id_,
            stage=stages[id_],
            inputs=getattr(graph.nodes[id_], "inputs", ()),
            stateful=id_ in resolved.stateful,
            schema=resolved.schema(id_),
        )
        for id_ in members
    )
    in_tail, by_spark = in_the_tail(graph, resolved, forms, nodes)
    sources = tuple(sorted(id_ for id_ in members if id_ in flow.sources and not flow.sources[id_].static))
    ids = tuple(sink.id for sink in sinks)
    source_types, sink_types = catalog.source_types(internal=True), catalog.sink_types(internal=True)
    parts = node_fingerprints(flow, graph, members, source_types, sink_types)
    return QueryPlan(
        name=name,
        nodes=nodes,
        sinks=ids,
        sources=sources,
        static_sources=tuple(sorted(id_ for id_ in members if id_ in flow.sources and flow.sources[id_].static)),
        trigger_s=next((sink.trigger_s for sink in sinks if sink.trigger_s is not None), flow.defaults.trigger_s),
        unit="whole batch",
        unit_reason=_unit_reason(graph, resolved, members, ids),
        fingerprint=query_fingerprint(parts),
        state_fingerprint=state_fingerprint(graph, resolved, members, ids),
        parts=parts,
        guarantees=guarantees(flow, sources, ids, above, source_types=source_types, sink_types=sink_types),
        in_tail=in_tail,
        by_spark=by_spark,
    )


def _unit_reason(graph: Graph, resolved: Resolved, members: tuple[str, ...], sinks: tuple[str, ...]) -> str:
    stateful = [id_ for id_ in members if id_ in resolved.stateful]
    if stateful:
        return f"a shuffle redistributes the rows at {listed(stateful)}"
    if any(id_ in graph.flow.sources and graph.flow.sources[id_].static for id_ in members):
        return "a static source may differ when it is re-read, so all rows are decided at once"
    if any(written_by_spark(graph.flow, graph.flow.sinks[sink], catalog.sink_types(internal=True)) for sink in sinks):
        return "Spark's own sink writes the Batch; one decision record counts its rows"
    if len(sinks) > 1:
        return f"{listed(sinks)} commit together"
    return "one decision record covers all rows of a Batch"


def _hints(flow: Flow, queries: tuple[QueryPlan, ...]) -> tuple[str, ...]:
    """Hints on sources that several queries read."""
    hints = []
    types = catalog.sink_types(internal=True)
    for source in flow.sources.values():
        readers = [query for query in queries if source.id in query.sources]
        if len(readers) < 2:
            continue
        shared = set.intersection(*({node.id for node in query.nodes} for query in readers))
        steps = [node.id for node in readers[0].nodes if node.id in shared and isinstance(flow.node(node.id), Step)]
        work = f" and run {listed(steps)}" if steps else ""
        names = listed([query.name for query in readers])
        times = "twice" if len(readers) == 2 else f"{len(readers)} times"
        # sinks that commit together share only the work in the Python worker: Spark SQL steps run once for each of them
        one_pass = all(node.stage in ("read", "tail") for query in readers for node in query.nodes if node.id in shared)
        one_pass = one_pass and not any(types[flow.sinks[sink].type].internal for query in readers for sink in query.sinks)
        remedy = "write `together: NAME` on their sinks to do it once" if one_pass else "each at its own pace"
        hints.append(f"queries {names} read {source.id}{work} {times}; {remedy}")
    return tuple(hints)

"""Decides where each node of a query runs: in the task pipeline ("tail"), in Spark, or in a Python stage in between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.plan.graph import base, inputs_of
from scribengin.plan.sql.parse import parse_expression
from scribengin.spec.model import Filter, Merge, Parse, Python, Select, Sink, Source, Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.core.types import Schema
    from scribengin.plan.graph import Graph
    from scribengin.plan.model import PlannedNode, Stage
    from scribengin.plan.resolve import Resolved
    from scribengin.spec.functions import Form
    from scribengin.vector.expression import Expression


# Decides which SQL steps run in the vector engine of the task pipeline ("tail") instead of in Spark, and why the others do not. Consecutive
# `filter` and `select` steps between sources and sinks may run there if each of their expressions is portable (`vector.portable`) and
# nothing before them runs in Spark. Their rows then never leave the process of the task pipeline.


def in_the_tail(
    graph: Graph, resolved: Resolved, forms: Mapping[str, Form], nodes: tuple[PlannedNode, ...]
) -> tuple[tuple[PlannedNode, ...], dict[str, str]]:
    """(the nodes with their stages if the vector engine runs some, else empty; SQL step → the reason that Spark runs it)."""
    native = [node.id for node in nodes if node.stage == "native"]
    by_units = _commits_units([graph.flow.sinks[node.id] for node in nodes if node.id in graph.flow.sinks])
    reasons = {id_: reason for id_ in native if (reason := _reason(graph, resolved, forms, id_, by_units=by_units))}
    if graph.flow.defaults.engine == "spark":
        return (), dict.fromkeys(native, "`engine: spark`")
    if any(node.stateful for node in nodes):
        return (), reasons | {id_: "its query keeps state" for id_ in native if id_ not in reasons}
    placed = {node.id: node for node in nodes}
    entries = [base(ref) for node in nodes if node.stage in ("tail", "sink") for ref in node.inputs if placed[base(ref)].stage != "tail"]
    if len(set(entries)) != 1:
        return (), reasons | {id_: "the Python worker gets rows from several inputs" for id_ in native if id_ not in reasons}
    readers: dict[str, list[str]] = {}
    for node in nodes:
        for reference in node.inputs:
            readers.setdefault(base(reference), []).append(node.id)
    stages: dict[str, Stage] = {node.id: node.stage for node in nodes}
    for id_ in [node.id for node in nodes]:  # down the stream: after a step in Spark all steps stay there
        above = {base(reference) for reference in placed[id_].inputs}
        if id_ in native and id_ not in reasons and (met := _met(above, stages, reasons, graph)):
            reasons[id_] = f"behind {met}"
    for node in reversed(nodes):  # up the stream: steps that only the task pipeline reads
        id_, behind = node.id, readers.get(node.id, [])
        outside = next((reader for reader in behind if stages[reader] not in ("tail", "sink", "vector")), None)
        if id_ in native and id_ not in reasons:
            if outside is not None:
                reasons[id_] = f"before {outside}, which runs outside the Python worker"
            elif len(behind) > 1 and any(stages[reader] == "vector" for reader in behind):
                reasons[id_] = f"several steps read it: {', '.join(behind)}"
            else:
                stages[id_] = "vector"
        elif outside is None and node.stage == "decode" and not graph.flow.sources[id_].static:
            stages[id_] = "read"
        elif outside is None and node.stage == "python" and not graph.flow.steps[id_].require:
            stages[id_] = "tail"
    if "vector" not in stages.values():
        return (), reasons
    # if consecutive steps cannot all run there, all of them stay in Spark
    split = {id_ for id_, stage in stages.items() if stage == "vector" and not _joined(id_, placed, stages)}
    if split:
        return (), reasons | dict.fromkeys((id_ for id_ in native if id_ not in reasons), "its input is read outside the Python worker")
    return tuple(replace(node, stage=stages[node.id]) for node in nodes), reasons


def portable(sql: str, schema: Schema, *, test: bool) -> Expression:
    """The expression for the vector engine. `test`: as a predicate. Raises NotPortableError."""
    from scribengin.vector.portable import NotPortableError, predicate, translate

    tree = parse_expression(sql).tree
    if tree is None:
        raise NotPortableError("an expression that cannot be parsed")
    return (predicate if test else translate)(tree, sql, schema)


def _commits_units(sinks: Sequence[Sink]) -> bool:
    """True if the task outputs of a Batch commit separately, so that the engine must not change after the first commit."""
    types = catalog.sink_types(internal=True)
    return len(sinks) == 1 and sinks[0].type in types and "commits_units" in types[sinks[0].type].able(sinks[0].options)


def _reason(graph: Graph, resolved: Resolved, forms: Mapping[str, Form], id_: str, *, by_units: bool) -> str:
    """Why Spark must run the step, regardless of its neighbours; empty if it need not."""
    from scribengin.vector.portable import NotPortableError, may_evaluate_early

    step = graph.nodes[id_]
    if not isinstance(step, Step):
        return "`parse: spark`"
    if not isinstance(step.action, Filter | Select):
        return f"{type(step.action).__name__.lower()} steps always run in Spark"
    given, made = resolved.schema(step.inputs[0]), resolved.schema(id_)
    if given is None or (step.require and made is None and isinstance(step.action, Select)):
        return "only Spark knows all of its column types"
    if step.require and not _knows_its_record(graph, forms, step.inputs[0]):
        return "`require` on rows that are no longer single records"
    try:
        match step.action:
            case Filter(predicate):
                asked = [portable(predicate, given, test=True)]
                made = given
            case Select(columns):
                asked = [portable(expression, given, test=False) for _, expression in columns]
        for _, predicate in step.require:
            assert made is not None
            asked.append(portable(predicate, made, test=True))
        if by_units and any(each.fallible for each in asked):
            return "an expression that can fail, before a sink that commits each task output"
        if isinstance(step.action, Filter) and may_evaluate_early(_conditions(graph, resolved, id_)[0]):
            return "an expression that can fail beside an equality: Spark may evaluate it on more rows"
    except NotPortableError as reason:
        return str(reason)
    return ""


def _conditions(graph: Graph, resolved: Resolved, id_: str) -> tuple[list[Expression], dict[str, Expression]]:
    """(the conditions that Spark evaluates together at the end of step `id_`, column → the expression that makes it), both over the columns
    at the start of the consecutive portable steps."""
    from scribengin.vector.portable import NotPortableError, over_inputs

    step = graph.nodes[base(id_)]
    if not isinstance(step, Step) or not isinstance(step.action, Filter | Select):
        return [], {}
    conditions, made = _conditions(graph, resolved, step.inputs[0])
    given = resolved.schema(step.inputs[0])
    if given is None:
        return [], {}
    try:
        if isinstance(step.action, Filter):
            return [*conditions, over_inputs(portable(step.action.predicate, given, test=True), made)], made
        return conditions, {name: over_inputs(portable(sql, given, test=False), made) for name, sql in step.action.columns}
    except NotPortableError:  # Spark runs it, and the steps after it
        return [], {}


def _met(above: set[str], stages: Mapping[str, Stage], reasons: Mapping[str, str], graph: Graph) -> str:
    """The input of a step whose rows come from Spark; empty if there is none."""
    for id_ in sorted(above):
        node = graph.nodes[id_]
        if id_ in reasons or (isinstance(node, Step) and stages[id_] == "python" and node.require):
            return id_
        if getattr(node, "static", False):
            return id_
    return ""


def _joined(id_: str, placed: Mapping[str, PlannedNode], stages: Mapping[str, Stage]) -> bool:
    return all(stages[base(reference)] in ("read", "tail", "vector") for reference in placed[id_].inputs)


def _knows_its_record(graph: Graph, forms: Mapping[str, Form], id_: str) -> bool:
    """False if a row no longer comes from one record of a source: after a `@batch` function."""
    node = graph.nodes[base(id_)]
    if not isinstance(node, Step):
        return True
    if isinstance(node.action, Python) and forms.get(node.id) == "batch":
        return False
    tests = isinstance(node.action, Utilities) and node.action.order == "free"
    return (tests or isinstance(node.action, Filter | Select | Python | Parse)) and all(
        _knows_its_record(graph, forms, reference) for reference in node.inputs
    )


def place_nodes(graph: Graph, members: tuple[str, ...], forms: Mapping[str, Form], *, stateful: bool) -> dict[str, Stage]:
    """The stage of each of the query's nodes.

    A node runs in the task pipeline only if all of its readers in the query do, so nodes are visited upstream. A stateful query merges its
    rows before its task pipeline, because all rows must leave Spark on one path.

    Args:
        graph: The graph of the flow.
        members: The query's nodes, in topological order.
        forms: Python step → the form of its function.
        stateful: True if the query keeps state.
    """
    stages: dict[str, Stage] = {}
    for id_ in reversed(members):
        node = graph.nodes[id_]
        readers = [stages[reader] for reader in graph.readers[id_] if reader in stages]
        ends = all(stage in ("tail", "sink") for stage in readers)
        match node:
            case Sink():
                stages[id_] = "sink"
            case Source():
                stages[id_] = _source_stage(node, ends)
            case Step():
                stages[id_] = _step_stage(node, graph, forms, ends=ends, stateful=stateful)
    return stages


def _source_stage(source: Source, ends: bool) -> Stage:
    if source.options.get("parse") == "spark":
        return "native"
    return "read" if ends and not source.static else "decode"


def _step_stage(step: Step, graph: Graph, forms: Mapping[str, Form], *, ends: bool, stateful: bool) -> Stage:
    if needs_spark(step, forms):
        return "native"
    if isinstance(step.action, Merge):  # a union runs in the task pipeline if an input of it does not come from Spark
        brings = any(not _comes_from_spark(graph, reference, forms) for reference in inputs_of(step))
        return "tail" if ends and brings and not stateful else "native"
    return "tail" if ends and not step.require else "python"


def needs_spark(step: Step, forms: Mapping[str, Form]) -> bool:
    """True for a step that only Spark SQL can run; a python or parse step with `require` runs in Python and is checked in Spark."""
    match step.action:
        case Python():
            return forms.get(step.id) == "frame"
        case Parse() | Utilities():
            return False
        case Merge(how):
            return how == "intersect" or bool(step.require)
        case _:
            return True


def _comes_from_spark(graph: Graph, reference: str, forms: Mapping[str, Form]) -> bool:
    node = graph.nodes[base(reference)]
    if isinstance(node, Source):
        return node.options.get("parse") == "spark"
    return isinstance(node, Step) and (needs_spark(node, forms) or bool(node.require))

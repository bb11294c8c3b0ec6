"""Decides where each node of a Query runs: in the task pipeline ("tail"), in Spark, or in a Python stage in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.graph import base, inputs_of
from scribengin.spec.model import Merge, Parse, Python, Sink, Source, Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.plan.graph import Graph
    from scribengin.plan.model import Stage
    from scribengin.spec.functions import Form


def place_nodes(graph: Graph, members: tuple[str, ...], forms: Mapping[str, Form], *, stateful: bool) -> dict[str, Stage]:
    """The stage of each of the Query's `members`, which stand in topological order; `forms`: python step → its function's form.

    A node joins the tail only if all of its readers inside the Query do, so nodes are visited upstream. A `stateful` Query combines its
    rows before its tail, because all rows must leave Spark on one path.
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
    if isinstance(step.action, Merge):  # a union: worth a place in the tail when it brings something there
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

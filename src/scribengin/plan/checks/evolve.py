"""Rules on `schema: {evolve: …}`: where it applies, and where columns may change between two starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.core.types import Field, Schema, Type
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.columns import find
from scribengin.plan.graph import Graph, base
from scribengin.plan.resolve import resolve
from scribengin.spec.model import Aggregate, Select, Sink, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow, Source

_LENIENT = ("json", "csv")
_PROBE = "\N{OBJECT REPLACEMENT CHARACTER}"
_NOTICED = ("json", "csv", "parquet", "avro")


def evolve_has_a_place(subject: Subject) -> Iterator[Problem]:
    """Only sources read by Scribengin's own decoders can report columns that are not declared."""
    for step in subject.flow.steps.values():
        if step.schema is not None and step.schema.evolve != "strict":
            message = f"{called(step)} has `evolve: {step.schema.evolve}`, which does not apply: its function defines the columns"
            yield subject.problem("evolve-misplaced", path_of(step, "schema", "evolve"), message, "take it out")
    for source in subject.flow.sources.values():
        if source.schema is None or source.schema.evolve == "strict":
            continue
        evolve, format_ = source.schema.evolve, source.options.get("format")
        path = path_of(source, "schema", "evolve")
        if source.options.get("parse") == "spark":
            message = f"{called(source)} has `evolve: {evolve}`, but Spark's reader does not report other columns"
            yield subject.problem("evolve-misplaced", path, message, "take `parse: spark` out, or `evolve`")
        elif evolve == "lenient" and (not subject.has(source, "lenient") or format_ not in _LENIENT):
            message = f"{called(source)} has `evolve: lenient`, which applies only to files of format {' and '.join(_LENIENT)}"
            yield subject.problem("evolve-misplaced", path, message, "take it out")
        elif format_ not in _NOTICED or source.static:
            what = "is static" if source.static else f"reads {format_ or source.type}"
            message = f"{called(source)} has `evolve: {evolve}`, but it {what}, so other columns are never reported"
            yield subject.problem("evolve-misplaced", path, message, "take it out")


def added_columns_meet_no_state(subject: Subject) -> Iterator[Problem]:
    """State has the columns of the time it was stored, and the two tiers of a channel may start at different times."""
    for source in subject.flow.sources.values():
        if source.schema is None or source.schema.evolve != "add":
            continue
        below = subject.graph.downstream([source.id])
        path = path_of(source, "schema", "evolve")
        kept = next((id_ for id_ in subject.graph.order if id_ in below and id_ in subject.resolved.stateful), None)
        if kept is not None and not _narrowed(subject.graph, source, kept):
            message = f'{called(source)} has `evolve: add`, and step "{kept}" keeps its rows as state, so their columns must stay the same'
            remedy = "select the columns that you need in a step between them, or take `evolve: add` out"
            yield subject.problem("evolve-state", path, message, remedy)
        elif subject.flow.tiers:
            message = f"{called(source)} has `evolve: add`, which a flow with tiers does not support: tiers do not start at the same time"
            yield subject.problem("evolve-state", path, message, "take `evolve: add` out, or `tiers`")


def added_columns_fit_the_sinks(subject: Subject) -> Iterator[Problem]:
    """These sinks do not start if there is a column that the existing files do not have."""
    for source in subject.flow.sources.values():
        if source.schema is None or source.schema.evolve != "add":
            continue
        below = subject.graph.downstream([source.id])
        reached = resolve(Graph(_with_probe(subject.flow, source)))
        for sink in subject.flow.sinks.values():
            rule = sink.options.get("evolve") or "add"
            fixed = rule == "strict" or (rule == "add" and sink.options.get("format") == "csv")
            if not subject.has(sink, "keeps_columns") or not fixed or sink.id not in below:
                continue
            columns = reached.of(sink.id)
            if not _narrowed(subject.graph, source, sink.id) if columns is None else find(columns, _PROBE):
                what = "`evolve: strict`" if rule == "strict" else "writes CSV, which is read by column position"
                message = (
                    f"{called(source)} has `evolve: add`, but {called(sink)}, which receives its columns, "
                    f"{'has ' * (rule == 'strict')}{what}"
                )
                remedy = "select the columns that you need in a step between them, or take `evolve: add` out"
                yield subject.problem("evolve-sink", path_of(source, "schema", "evolve"), message, remedy)


def _with_probe(flow: Flow, source: Source) -> Flow:
    """The flow with one more column in the schema of the source."""
    assert source.schema is not None
    fields = Schema((*source.schema.fields.fields, Field(_PROBE, Type("STRING"))))
    return replace(flow, sources={**flow.sources, source.id: replace(source, schema=replace(source.schema, fields=fields))})


def _narrowed(graph: Graph, source: Source, step: str) -> bool:
    """True if every path from the source to the step contains a step that declares its columns."""
    waiting = [step]
    while waiting:
        node = graph.nodes[waiting.pop()]
        if node.id == source.id:
            return False
        if isinstance(node, Sink) or (isinstance(node, Step) and (node.id == step or not _names_columns(node))):
            waiting += [base(reference) for reference in node.inputs]
    return True


def _names_columns(step: Step) -> bool:
    return isinstance(step.action, Select | Aggregate) or step.schema is not None

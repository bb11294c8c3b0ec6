"""Rules on the inputs and outputs of queries that keep state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import base, query_sinks
from scribengin.plan.resolve import sql_shape
from scribengin.plan.stages import place_nodes
from scribengin.spec.model import Aggregate, Join, Merge, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem


# Rules on what stateful steps emit, and on SQL that would silently mean "per Batch".


def emit_fits(subject: Subject) -> Iterator[Problem]:
    """`emit` other than append belongs to an aggregation, and every sink after it must support it."""
    for step in subject.flow.steps.values():
        if step.emit == "append" or (step.id in subject.functions and subject.functions[step.id].form == "frame"):
            continue  # the output of a frame function is known only to Spark
        if not _aggregates(subject, step):
            message = f"{called(step)} has emit: {step.emit}, but is not an aggregation over a stream"
            yield subject.problem("emit-useless", path_of(step, *_emit_key(step)), message, "take `emit` out")
            continue
        for sink in subject.graph.sinks_of(step.id):
            declared = subject.sink_types.get(sink.type)
            if declared is not None and step.emit not in declared.able(sink.options):
                able = [word for word in ("append", "update", "complete") if word in declared.able(sink.options)]
                message = f'{called(step)} has emit: {step.emit}, which sink "{sink.id}" (type {sink.type}) does not support'
                remedy = f"use emit: {' or '.join(able)}, or another sink"
                yield subject.problem("emit-unsupported", path_of(step, *_emit_key(step)), message, remedy)
                break
        rest = subject.graph.upstream([step.id]) | subject.graph.downstream([step.id])
        other = next((id_ for id_ in subject.graph.order if id_ in rest and id_ != step.id and id_ in subject.resolved.stateful), None)
        if other is not None:
            message = f'{called(step)} has emit: {step.emit} and is on one path with "{other}", which also keeps state'
            remedy = "write emit: append; several stateful steps on one path need it"
            yield subject.problem("emit-mixed", path_of(step, *_emit_key(step)), message, remedy)


def _emit_key(step: Step) -> tuple[str, ...]:
    return ("aggregate", "emit") if isinstance(step.action, Aggregate) else ("emit",)


def _aggregates(subject: Subject, step: Step) -> bool:
    if step.id not in subject.resolved.stateful:
        return False
    return isinstance(step.action, Aggregate) or (isinstance(step.action, Sql) and sql_shape(step, subject.resolved).aggregates is not None)


def sql_is_independent_of_batches(subject: Subject) -> Iterator[Problem]:
    """LIMIT, ORDER BY and OVER have no meaning on an endless stream; on a Batch their meaning would differ from run to run."""
    for step in subject.flow.steps.values():
        if not isinstance(step.action, Sql):
            continue
        shape = sql_shape(step, subject.resolved)
        told = [
            ("LIMIT", shape.limits, "use a filter instead"),
            ("ORDER BY", shape.orders, "sort when you read the output, or write emit: complete, which allows it"),
            ("OVER (…)", shape.ranks, "group by a time window, or use dedupe for the first row of a key"),
        ]
        for word, offset, remedy in told:
            if offset is None or (word == "ORDER BY" and step.emit == "complete"):
                continue
            message = f"{called(step)}: {word} on a stream would apply to each Batch separately"
            yield subject.problem_inside("sql-per-batch", path_of(step, "sql"), offset, message, remedy=remedy)


# Rules on static sources: tables that are read completely, beside a stream.


def static_is_supported(subject: Subject) -> Iterator[Problem]:
    """`static: true` needs a source that can be read whole."""
    for source in subject.flow.sources.values():
        declared = subject.source_types.get(source.type)
        if source.static and declared is not None and "static" not in declared.abilities:
            message = f"{called(source)} is static, which a source of type {source.type} does not support"
            yield subject.problem("static-unsupported", path_of(source, "static"), message, "take `static` out")


def static_inputs_join_streams(subject: Subject) -> Iterator[Problem]:
    """A static input is the right side of a join, or a table of a sql step that also reads a stream."""
    static = subject.resolved.static
    for sink in subject.flow.sinks.values():
        for index, reference in enumerate(sink.inputs):
            if base(reference) in static:
                message = f'{called(sink)} reads "{reference}", which no stream feeds, so there would be no Batch'
                remedy = f"take `static: true` out of {_static_source(subject, reference)}, or join it to a stream"
                yield subject.problem("static-alone", path_of(sink, "from", index), message, remedy)
    for step in subject.flow.steps.values():
        still = [base(reference) in static for reference in step.inputs]
        if all(still) or not any(still):
            continue
        match step.action:
            case Join(how=how) if len(still) == 2:
                if still[0]:
                    message = f'{called(step)} has the static side "{step.inputs[0]}" on its left'
                    yield subject.problem(
                        "static-left", path_of(step, "from"), message, f"write from: [{step.inputs[1]}, {step.inputs[0]}]"
                    )
                elif how in ("right", "full"):
                    message = f"{called(step)} is a {how} join with a static right side: Spark cannot know that a row will never match"
                    yield subject.problem("static-how", path_of(step, "join", "how"), message, "use inner, left or semi")
            case Merge():
                index = still.index(True)
                message = f'{called(step)} merges a stream with "{step.inputs[index]}", which is static'
                remedy = f"take `static: true` out of {_static_source(subject, step.inputs[index])}: its rows are then read once"
                yield subject.problem("static-merged", path_of(step, "from", index), message, remedy)
            case _:
                pass


def _static_source(subject: Subject, reference: str) -> str:
    above = subject.graph.upstream([base(reference)])
    return ", ".join(f'source "{id_}"' for id_ in subject.flow.sources if id_ in above and subject.flow.sources[id_].static)


def unions_have_every_watermark(subject: Subject) -> Iterator[Problem]:
    """Before a step with state, the slowest watermark of all inputs applies; an input without a watermark is an error."""
    marks = subject.resolved.watermarks
    for step in subject.flow.steps.values():
        if not isinstance(step.action, Merge) or step.action.how != "union" or step.watermark is not None:
            continue
        bare = [reference for reference in step.inputs if base(reference) in marks and not marks[base(reference)]]
        below = subject.graph.downstream([step.id]) & subject.resolved.stateful
        inherited = [mark for reference in step.inputs for mark in marks.get(base(reference), ())]
        if not below or not bare or not inherited:
            continue
        names = " and ".join(f'"{id_}"' for id_ in subject.graph.order if id_ in below)
        index = step.inputs.index(bare[0])
        message = f'{called(step)} merges "{bare[0]}", which has no watermark, with inputs that have one, and {names} after it keeps state'
        remedy = (
            f"add to {bare[0]}: watermark: {inherited[0].column} 10m; or set a watermark on the union, which then follows the fastest input"
        )
        yield subject.problem("watermark-partly", path_of(step, "from", index), message, remedy)


def state_has_one_output(subject: Subject) -> Iterator[Problem]:
    """Spark keeps the state of one stream: all sinks of a query with state read the same step."""
    forms = {id_: info.form for id_, info in subject.functions.items()}
    for name, sinks in query_sinks(subject.flow).items():
        members = subject.graph.upstream(sink.id for sink in sinks)
        stateful = [id_ for id_ in subject.graph.order if id_ in members and id_ in subject.resolved.stateful]
        if not stateful or subject.graph.cycles or members & subject.shaken:
            continue
        nodes = subject.graph.nodes
        stages = place_nodes(subject.graph, tuple(id_ for id_ in subject.graph.order if id_ in members), forms, stateful=True)
        inside = [id_ for id_, stage in stages.items() if stage in ("tail", "sink")]
        ways = {ref for id_ in inside for ref in getattr(nodes[id_], "inputs", ()) if stages.get(base(ref)) not in ("tail", None)}
        if len(ways) > 1:
            shown = " and ".join(f'"{ref}"' for ref in sorted(ways))
            message = f'query {name}: step "{stateful[0]}" keeps state, but its sinks have different inputs: {shown}'
            key, remedy = "from", f'give each input its own sink, or merge them in a step before sink "{sinks[0].id}"'
            if sinks[0].together is not None:
                key, remedy = "together", "take `together` out"
            yield subject.problem("state-several-ways", path_of(sinks[0], key), message, remedy)

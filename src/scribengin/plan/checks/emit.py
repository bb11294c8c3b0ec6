"""Rules on what stateful steps emit, and on SQL that would silently mean "per Batch"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.resolve import sql_shape
from scribengin.spec.model import Aggregate, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem


def emit_fits(subject: Subject) -> Iterator[Problem]:
    """`emit` other than append belongs to an aggregation, and every sink after it must support it."""
    for step in subject.flow.steps.values():
        if step.emit == "append" or (step.id in subject.functions and subject.functions[step.id].form == "frame"):
            continue  # what a frame function does only Spark can tell
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


def nothing_means_per_batch(subject: Subject) -> Iterator[Problem]:
    """LIMIT, ORDER BY and OVER have no meaning on an endless stream; on a Batch they would have another one at each run."""
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

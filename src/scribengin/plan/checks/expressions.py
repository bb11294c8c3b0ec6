"""Rules on SQL texts: syntax, names, types, casts that can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.sql.faults import has_aggregate, refused_functions, risky_casts, unknown_functions
from scribengin.plan.sql.names import check_expression, expression_result, implicit_casts_of, read_query
from scribengin.plan.sql.parse import parse_expression, parse_query
from scribengin.plan.sql.patterns import backslash_faults, time_faults
from scribengin.spec.model import Aggregate, Filter, Route, Select, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.plan.columns import Columns
    from scribengin.spec.places import Path


class _Input(NamedTuple):
    """The input of an expression."""

    id: str
    columns: Columns | None


def queries_hold(subject: Subject) -> Iterator[Problem]:
    """The text of every sql step can be parsed, and names existing inputs and columns."""
    for step in subject.flow.steps.values():
        if not isinstance(step.action, Sql):
            continue
        path = path_of(step, "sql")
        text = parse_query(step.action.text)
        facts = read_query(text, {reference: subject.resolved.of(reference) for reference in step.inputs})
        faults = [*facts.faults, *unknown_functions(text, own=subject.may_have_own_functions), *refused_functions(text)]
        for fault in (*faults, *risky_casts(text, facts.known), *backslash_faults(text.sql), *time_faults(text.sql)):
            yield subject.fault(fault, path, called(step))
        if text.tree is not None and not any(fault.code == "sql-input-unknown" for fault in facts.faults):
            for index, reference in enumerate(step.inputs):
                if reference not in facts.tables:
                    message = f'{called(step)} has "{reference}" in its `from:`, but its query does not read it'
                    yield subject.problem("sql-input-unread", path_of(step, "from", index), message, "take it out, or use it in the query")


def expressions_hold(subject: Subject) -> Iterator[Problem]:
    """Predicates and expressions can be parsed and name existing columns; a predicate is BOOLEAN."""
    for step in subject.flow.steps.values():
        over = _Input(step.inputs[0], subject.resolved.of(step.inputs[0])) if len(step.inputs) == 1 else _Input("its inputs", None)
        match step.action:
            case Filter(predicate):
                yield from _predicate(subject, step, path_of(step, "filter"), predicate, over)
            case Route(cases):
                for branch, predicate in cases:
                    yield from _predicate(subject, step, path_of(step, "route", branch), predicate, over)
            case Select(pairs):
                for index, (name, expression) in enumerate(pairs):
                    path = subject.item(path_of(step, "select"), name, index)
                    yield from _expression(subject, step, path, expression, over, aggregates=False)
            case Aggregate(columns=pairs):
                for index, (name, expression) in enumerate(pairs):
                    path = subject.item(path_of(step, "aggregate", "columns"), name, index)
                    yield from _expression(subject, step, path, expression, over, aggregates=True)
            case _:
                pass
        for name, predicate in step.require:
            yield from _predicate(subject, step, path_of(step, "require", name), predicate, _Input(step.id, subject.resolved.of(step.id)))


def _predicate(subject: Subject, step: Step, path: Path, predicate: str, over: _Input) -> Iterator[Problem]:
    yield from _expression(subject, step, path, predicate, over, aggregates=False)
    result = expression_result(parse_expression(predicate), over.columns)
    if result is not None and result.name != "BOOLEAN":
        yield subject.problem(
            "predicate-type",
            path,
            f"{called(step)}: expected a BOOLEAN predicate, found {result}",
            "write a comparison, such as COLUMN > 0",
        )


def _expression(subject: Subject, step: Step, path: Path, expression: str, over: _Input, *, aggregates: bool) -> Iterator[Problem]:
    text = parse_expression(expression)
    strange = list(unknown_functions(text, own=subject.may_have_own_functions))
    lacking = aggregates and text.tree is not None and not has_aggregate(text)
    if lacking and strange:  # no aggregate, for a function that is not there: one mistake, and it cannot run
        strange = [replace(fault, severity="error") for fault in strange]
    faults = [*check_expression(text, over.columns, over.id), *strange, *refused_functions(text)]
    faults += [*risky_casts(text, over.columns or ()), *implicit_casts_of(text, over.columns)]
    faults += [*backslash_faults(expression), *time_faults(expression)]
    for fault in faults:
        yield subject.fault(fault, path, called(step))
    if text.tree is None:
        return
    if lacking and not strange:
        message = f'{called(step)}: "{expression}" is not an aggregate'
        yield subject.problem("aggregate-missing", path, message, f"wrap it, such as max({expression}), or add it to `by`")
    elif not aggregates and has_aggregate(text):
        message = f'{called(step)}: "{expression}" is an aggregate, which only `aggregate:` and `sql:` allow'
        yield subject.problem("aggregate-misplaced", path, message, "use a step with aggregate:")

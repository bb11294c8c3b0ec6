"""Rules on SQL texts: syntax, names, types, casts that can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from scribengin.core.problems import suggestion
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.columns import find, is_near
from scribengin.plan.sql.faults import has_aggregate, refused_functions, risky_casts, unknown_functions
from scribengin.plan.sql.names import check_expression, expression_result, implicit_casts_of, read_query
from scribengin.plan.sql.parse import parse_expression, parse_query
from scribengin.plan.sql.patterns import backslash_faults, time_faults
from scribengin.spec.model import Aggregate, Dedupe, Filter, Join, Merge, Parse, Route, Select, Sink, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.plan.columns import Columns
    from scribengin.spec.places import Path


# Rules on the columns that steps use and output.


def keys_are_there(subject: Subject) -> Iterator[Problem]:
    """Keys, `by` columns and the column to parse are columns of every input that must have them."""
    for step in subject.flow.steps.values():
        match step.action:
            case Aggregate(by=names):
                yield from _named(subject, step, path_of(step, "aggregate", "by"), names, "groups by")
            case Dedupe(key=names):
                yield from _named(subject, step, path_of(step, "dedupe", "key"), names, "has the key")
            case Join(key=names):
                yield from _joined(subject, step, path_of(step, "join", "key"), names, "joins on")
                yield from _key_types(subject, step, names)
            case Merge(how="intersect", key=names):
                yield from _named(subject, step, path_of(step, "merge", "key"), names, "has the key")
                yield from _key_types(subject, step, names)
            case Parse(column=name):
                yield from _named(subject, step, path_of(step, "parse", "column"), (name,), "parses")
            case _:
                pass


def _named(subject: Subject, step: Step, path: Path, names: tuple[str, ...], does: str, first: int = 0) -> Iterator[Problem]:
    for index, name in enumerate(names, start=first):
        for reference in step.inputs:
            columns = subject.resolved.of(reference)
            if columns is None or find(columns, name) is not None:
                continue
            remedy = suggestion(name, (column.name for column in columns), "it has")
            message = f'{called(step)} {does} "{name}", which "{reference}" does not have'
            yield subject.problem("column-unknown", (*path, index), message, remedy)


def _joined(subject: Subject, step: Step, path: Path, names: tuple[str, ...], does: str) -> Iterator[Problem]:
    """Like `_named`, but a column that neither input has is reported once."""
    inputs = [(reference, subject.resolved.of(reference)) for reference in step.inputs]
    columns = [[column.name for column in known] for _, known in inputs if known is not None]
    for index, name in enumerate(names):
        if len(columns) == len(inputs) == 2 and not any(find(known or (), name) for _, known in inputs):
            remedy = suggestion(name, [column for column in columns[0] if column in columns[1]], "both have")
            message = f'{called(step)} {does} "{name}", which neither "{step.inputs[0]}" nor "{step.inputs[1]}" has'
            yield subject.problem("column-unknown", (*path, index), message, remedy)
        else:
            yield from _named(subject, step, path, (name,), does, index)


def _key_types(subject: Subject, step: Step, names: tuple[str, ...]) -> Iterator[Problem]:
    for name in names:
        types = {}
        for reference in step.inputs:
            column = find(subject.resolved.of(reference) or (), name)
            if column is not None and column.type is not None:
                types[reference] = column.type
        if len(set(types.values())) > 1:
            shown = " and ".join(f"{type_} in {reference}" for reference, type_ in types.items())
            key = "join" if isinstance(step.action, Join) else "merge"
            message = f'{called(step)}: the key "{name}" is {shown}'
            yield subject.problem("key-types", path_of(step, key, "key"), message, "cast one of them in a select step before")


def parse_reads_text(subject: Subject) -> Iterator[Problem]:
    """The column that a parse step reads is STRING or BINARY."""
    for step in subject.flow.steps.values():
        if isinstance(step.action, Parse) and step.inputs:
            column = find(subject.resolved.of(step.inputs[0]) or (), step.action.column)
            if column is not None and column.type is not None and column.type.name not in ("STRING", "BINARY"):
                message = f'{called(step)} parses "{column.name}", which is {column.type}, not STRING or BINARY'
                yield subject.problem("parse-type", path_of(step, "parse", "column"), message)


def unions_match(subject: Subject) -> Iterator[Problem]:
    """Inputs that are merged by name have the same column names, and the same types if these are known."""
    for node in subject.graph.reading:
        if len(node.inputs) < 2 or not (isinstance(node, Sink) or (isinstance(node.action, Merge) and node.action.how == "union")):
            continue
        first = subject.resolved.of(node.inputs[0])
        for index, reference in enumerate(node.inputs[1:], start=1):
            other = subject.resolved.of(reference)
            if first is None or other is None:
                continue
            path = path_of(node, "from", index)
            names, others = [column.name for column in first], [column.name for column in other]
            if set(names) != set(others):
                missing = [name for name in names if name not in others]
                surplus = [name for name in others if name not in names]
                parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(surplus)} beside"] * bool(surplus)
                message = f'{called(node)} merges "{node.inputs[0]}" and "{reference}", but "{reference}" {" and ".join(parts)}'
                yield subject.problem("union-columns", path, message, "give both the same columns with a select step")
                continue
            for column in first:
                same = find(other, column.name)
                if same is not None and same.type and column.type and same.type != column.type:
                    message = (
                        f'{called(node)}: column "{column.name}" is {column.type} in "{node.inputs[0]}" and {same.type} in "{reference}"'
                    )
                    yield subject.problem("union-columns", path, message, "cast one of them in a select step before")


def column_names_are_unique(subject: Subject) -> Iterator[Problem]:
    """No output has two columns of one name."""
    for step in subject.flow.steps.values():
        match step.action:
            case Select(pairs):
                yield from _twice(subject, step, path_of(step, "select"), [name for name, _ in pairs])
            case Aggregate(by, pairs, window):
                own = ["window_start", "window_end"] * bool(window)
                yield from _twice(subject, step, path_of(step, "aggregate", "columns"), [*own, *by, *(name for name, _ in pairs)])
            case Merge(how="union", origin=origin) if origin is not None:
                columns = [column for reference in step.inputs for column in subject.resolved.of(reference) or ()]
                if is_near(columns, origin):
                    message = f'{called(step)} adds a column "{origin}", but its inputs already have a column of that name'
                    yield subject.problem(
                        "column-twice", path_of(step, "merge", "origin"), message, "write another column name under origin"
                    )
            case Join(key=key, how=how) if len(step.inputs) == 2 and how != "semi":
                left, right = (subject.resolved.of(reference) or () for reference in step.inputs)
                if not all(find(left, name) and find(right, name) for name in key):
                    continue  # the key is wrong: the columns that both sides have cannot be compared without it
                both = [column.name for column in left if is_near(right, column.name) and column.name not in key]
                if both:
                    kept = ", ".join(f"{both[0]} AS {step.inputs[1].replace('.', '_')}_{both[0]}" for _ in both[:1])
                    message = f"{called(step)}: {' and '.join(step.inputs)} both have {', '.join(both)}"
                    remedy = f"rename them in a select step before the join ({kept}), or leave one side's columns out"
                    yield subject.problem_at_key("column-twice", path_of(step, "join"), message, remedy)
            case _:
                pass


def _twice(subject: Subject, step: Step, path: Path, names: list[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            yield subject.problem("column-twice", path, f'{called(step)} outputs two columns "{name}"', "give one of them another name")
        seen.add(name.lower())


class _Input(NamedTuple):
    """The input of an expression."""

    id: str
    columns: Columns | None


def sql_steps_are_valid(subject: Subject) -> Iterator[Problem]:
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


def expressions_are_valid(subject: Subject) -> Iterator[Problem]:
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
    if lacking and strange:  # no aggregate, but a function that does not exist: a single mistake, and the query cannot run
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

"""Rules on the columns that steps use and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import suggestion
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.columns import find, is_near
from scribengin.spec.model import Aggregate, Dedupe, Join, Merge, Parse, Select, Sink, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.spec.places import Path


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
    """As `_named`; a column that no input has is reported once."""
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


def names_stand_once(subject: Subject) -> Iterator[Problem]:
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
                    continue  # the key is wrong: which columns are the same without it cannot be known
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

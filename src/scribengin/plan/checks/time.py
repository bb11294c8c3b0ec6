"""Rules on watermarks and time columns: without them state would grow without limit, or there would never be output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import did_you_mean, suggestion
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.columns import find
from scribengin.plan.graph import base
from scribengin.plan.resolve import sql_shape
from scribengin.spec.model import Aggregate, Dedupe, Join, Merge, Sink, Source, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.spec.places import Path

_FREE = frozenset({"window", "session_window", "window_time", "window_start", "window_end"})


def watermarks_fit(subject: Subject) -> Iterator[Problem]:
    """A watermark's column is in the output of its node and a TIMESTAMP."""
    for node in subject.graph.nodes.values():
        if not isinstance(node, Sink) and node.watermark is not None:
            yield from _time_column(subject, node, path_of(node, "watermark"), node.watermark.column, node.id)


def time_columns_fit(subject: Subject) -> Iterator[Problem]:
    """The time columns that windows, joins, dedupes and intersections name are there and TIMESTAMPs."""
    for step in subject.flow.steps.values():
        first = step.inputs[0] if step.inputs else ""
        match step.action:
            case Aggregate(window=window) if window is not None:
                yield from _time_column(subject, step, path_of(step, "aggregate", "window", "time"), window.time, first)
            case Dedupe(time=time) if time is not None:
                yield from _time_column(subject, step, path_of(step, "dedupe", "time"), time, first)
            case Merge(time=time) if time is not None:
                for reference in step.inputs:
                    yield from _time_column(subject, step, path_of(step, "merge", "time"), time, reference)
            case Join(time=pairs):
                for reference, column in pairs:
                    path = path_of(step, "join", "time", reference)
                    if reference not in step.inputs:
                        remedy = did_you_mean(reference, step.inputs) or f"its inputs are {' and '.join(step.inputs)}"
                        message = f'{called(step)} names the time of "{reference}", which it does not read'
                        yield subject.problem_at_key("join-time", path, message, remedy)
                    else:
                        yield from _time_column(subject, step, path, column, reference)
            case _:
                pass


def _time_column(subject: Subject, node: Source | Step, path: Path, name: str, reference: str) -> Iterator[Problem]:
    columns = subject.resolved.of(reference)
    if columns is None:
        return
    column = find(columns, name)
    if column is None:
        remedy = suggestion(name, (one.name for one in columns), "its columns are")
        yield subject.problem(
            "time-column-unknown",
            path,
            f'{called(node)}: the {_keyword(path)} is on "{name}", which is not a column of {base(reference)}',
            remedy,
        )
    elif column.type is not None and column.type.name != "TIMESTAMP":
        remedy = f"convert it to TIMESTAMP in a step before, such as timestamp_millis({name})"
        message = f'{called(node)}: the {_keyword(path)} is on "{name}", which is {column.type}, not TIMESTAMP'
        yield subject.problem("time-column-type", path, message, remedy)


def _keyword(path: Path) -> str:
    return "window" if "window" in path else str(path[2])


def state_is_bounded(subject: Subject) -> Iterator[Problem]:
    """A step that keeps rows needs a watermark on each stream, and for joins a time limit, to know when to discard them."""
    for id_ in subject.graph.order:
        step = subject.flow.steps.get(id_)
        if step is None or id_ not in subject.resolved.stateful or (step.emit == "complete" and isinstance(step.action, Aggregate | Sql)):
            continue
        streams = subject.resolved.streams(step)
        # a misspelt watermark is already reported as an error, and is the cause of the missing watermark
        misspelt = any(_has_misspelt_watermark(subject, reference) for reference in streams)
        bare = [reference for reference in streams if not subject.resolved.watermarks.get(base(reference))]
        if bare:
            if not misspelt:
                yield _no_watermark(subject, step, bare[0])
            continue
        if not misspelt:
            yield from _window_on_watermark(subject, step)
        match step.action:
            case Join(time=time, within_s=within) if len(step.inputs) == 2 and (within is None or len(time) < 2):
                left, right = step.inputs
                remedy = f"write join: {{…, time: {{{left}: TIME, {right}: TIME}}, within: 10m}}"
                message = f"{called(step)} joins two streams without a limit on the time between two rows"
                yield subject.problem("join-unbounded", path_of(step, "join"), message, remedy)
            case Merge(time=time, within_s=within) if time is None or within is None:
                message = f"{called(step)} intersects two streams without a limit on the time between two rows"
                yield subject.problem("join-unbounded", path_of(step, "merge"), message, "write merge: {…, time: COLUMN, within: 10m}")
            case _:
                pass


def _has_misspelt_watermark(subject: Subject, reference: str) -> bool:
    """True if a watermark upstream of the input is on a column that its own node does not have."""
    above = subject.graph.upstream([base(reference)])
    nodes = [node for id_, node in subject.graph.nodes.items() if id_ in above and not isinstance(node, Sink)]
    known = [(node.watermark, subject.resolved.of(node.id)) for node in nodes]
    return any(mark is not None and columns is not None and find(columns, mark.column) is None for mark, columns in known)


def _no_watermark(subject: Subject, step: Step, reference: str) -> Problem:
    what, key, why = {
        Aggregate: ("aggregates", "aggregate", "no group would ever be complete"),
        Dedupe: ("removes duplicates of", "dedupe", "every key would be kept for ever"),
        Join: ("joins", "join", "every row would be kept for ever"),
        Merge: ("intersects", "merge", "every row would be kept for ever"),
        Sql: ("keeps state over", "sql", "the state would grow without limit"),
    }[type(step.action)]
    origins = [id_ for id_ in subject.flow.sources if id_ in subject.graph.upstream([base(reference)])]
    lost = [id_ for id_ in origins if subject.resolved.watermarks.get(id_)]
    if lost:
        mark = subject.resolved.watermarks[lost[0]][0]
        own = _times(subject, reference)
        remedy = f'keep column "{mark.column}" of {lost[0]} in all steps'
        remedy += f", or add to {base(reference)}: watermark: {own[0]} 10m" if own else ""
    else:
        streams = [id_ for id_ in origins if id_ not in subject.resolved.static]
        remedy = _own_watermark(subject, streams[0] if streams else base(reference))
        if isinstance(step.action, Join) and not step.action.time and base(reference) in subject.flow.sources:
            remedy = f"if {base(reference)} is a lookup table, add static: true to it; otherwise {remedy}"
    message = f'{called(step)} {what} "{reference}", which has no watermark: {why}'
    if isinstance(step.action, Sql):
        shape = sql_shape(step, subject.resolved)
        offset = next((at for at in (shape.aggregates, shape.joins, shape.distinct) if at is not None), 0)
        return subject.problem_inside("watermark-missing", path_of(step, "sql"), offset, message, remedy=remedy)
    return subject.problem_at_key("watermark-missing", path_of(step, key), message, remedy)


def _times(subject: Subject, reference: str) -> list[str]:
    """The TIMESTAMP columns of a node."""
    columns = subject.resolved.of(reference) or ()
    return [column.name for column in columns if column.type is not None and column.type.name == "TIMESTAMP"]


def _own_watermark(subject: Subject, id_: str) -> str:
    """The remedy that adds a watermark to a node, with one of its TIMESTAMP columns."""
    times = _times(subject, id_)
    if times:
        others = f" (or on {', '.join(times[1:5])})" if times[1:] else ""
        return f"add to {id_}: watermark: {times[0]} 10m{others}"
    if subject.resolved.of(id_) is None:
        return f"declare a TIMESTAMP column in the schema of {id_}, and set a watermark on it"
    return f"compute a TIMESTAMP column in a select step ({id_} has none), and set a watermark on that step"


def _window_on_watermark(subject: Subject, step: Step) -> Iterator[Problem]:
    """Under `emit: append` a group is output when the watermark passes it: one of its columns must be the watermark's column."""
    marks = {mark.column.lower() for mark in subject.resolved.reaching(step)}
    shown = " or ".join(sorted(mark.column for mark in subject.resolved.reaching(step)))
    match step.action:
        case Aggregate(window=window, by=by) if step.emit == "append":
            if window is not None and window.time.lower() not in marks:
                message = (
                    f'{called(step)} has windows over "{window.time}", but the watermark is on {shown}: no window would ever be complete'
                )
                remedy = f"write window time: {shown}, or set the watermark on {window.time}"
                yield subject.problem("watermark-other-column", path_of(step, "aggregate", "window", "time"), message, remedy)
            elif window is None and not marks & {name.lower() for name in by}:
                message = f"{called(step)} has no window: with emit: append no group would ever be complete"
                remedy = f"add window: {{time: {shown}, size: 1h}}, or emit: update if the sink supports it"
                yield subject.problem("window-missing", path_of(step, "aggregate"), message, remedy)
        case Sql() if step.emit == "append":
            shape = sql_shape(step, subject.resolved)
            groups = shape.grouped_by
            if shape.aggregates is not None and groups is not None and not groups & (marks | _FREE):
                message = f"{called(step)} does not group by a window: with emit: append no group would ever be complete"
                remedy = f"add window({shown}, '1 hour') to GROUP BY"
                yield subject.problem_inside("window-missing", path_of(step, "sql"), shape.aggregates, message, remedy=remedy)
        case _:
            pass

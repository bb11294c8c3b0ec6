"""Whether the key of a sink holds the columns that identify the rows of an aggregation or a join: they have no record of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import base
from scribengin.plan.sql.key_facts import WINDOW, DerivedRows, KeyColumn, RowFacts, columns_of, fixed_by, query_rows, selected
from scribengin.spec.model import Aggregate, Filter, Join, Merge, Route, Select, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from scribengin.core.problems import Problem
    from scribengin.plan.graph import Graph
    from scribengin.plan.resolve import Resolved
    from scribengin.spec.model import Sink


class _Rows:
    """What is known of the rows of every reference."""

    def __init__(self, graph: Graph, resolved: Resolved) -> None:
        self._graph = graph
        self._rows: dict[str, RowFacts] = {}
        for id_ in graph.order:
            node = graph.nodes[id_]
            if isinstance(node, Step) and id_ not in resolved.static:
                required = frozenset(name for _, predicate in node.require for name in fixed_by(predicate))
                self._rows[id_] = _step_rows(node, [self.of(reference) for reference in node.inputs], resolved).where(required)

    def of(self, reference: str) -> RowFacts:
        """The rows of `a` or `r.big`."""
        rows = self._rows.get(base(reference), RowFacts())
        node, branch = self._graph.nodes.get(base(reference)), reference.partition(".")[2]
        if branch and isinstance(node, Step) and isinstance(node.action, Route):
            for name, predicate in node.action.cases:
                if name == branch:
                    return rows.where(fixed_by(predicate))
                rows = rows.where(columns_of(predicate))
        return rows


def _step_rows(step: Step, inputs: list[RowFacts], resolved: Resolved) -> RowFacts:
    first = inputs[0] if inputs else RowFacts()
    fixed = frozenset(name for rows in inputs for name in rows.fixed)
    match step.action:
        case Filter(predicate):
            return first.where(fixed_by(predicate))
        case Select(columns):
            return selected(first, columns)
        case Merge("union", origin=origin):
            return _union(inputs, origin)
        case Aggregate():
            return RowFacts((_groups(step, step.action, fixed),), fixed & {name.lower() for name in step.action.by})
        case Sql(text):
            given = dict(zip(step.inputs, inputs, strict=True))
            return query_rows(text, step.id, step.emit, {reference: given[reference] for reference in resolved.streams(step)})
        case Join(how=how) if len(resolved.streams(step)) == 2 and how != "semi":
            return RowFacts((_pairs(step, step.action, fixed, resolved),), fixed)
        case Route() | Join():  # nothing is known of the columns of a static table
            return first
        case _:  # Python, `parse`, `dedupe`, an intersection
            return RowFacts((), fixed)


def _union(inputs: list[RowFacts], origin: str | None) -> RowFacts:
    derived = tuple(one for rows in inputs for one in rows.derived)
    if origin is not None:
        derived = tuple(replace(one, columns={**one.columns, origin: KeyColumn()}) for one in derived)
    return RowFacts(derived, frozenset.intersection(*(rows.fixed for rows in inputs)) if inputs else frozenset())


def _groups(step: Step, action: Aggregate, fixed: frozenset[str]) -> DerivedRows:
    window = {} if action.window is None else {WINDOW: action.window.time.lower()}
    parts = {name: name.lower() for name in action.by} | window

    def using(words: Collection[str]) -> frozenset[str]:
        """What is computed from a column of the group key may contain it; the window follows from its time."""
        return frozenset(part for part, column in parts.items() if column in words)

    columns = {name: KeyColumn(using([name.lower()]), name) for name in action.by}
    columns |= {name: KeyColumn(frozenset(window), WINDOW) for name in ("window_start", "window_end") if window}
    columns |= {name: KeyColumn(using(columns_of(expression)), aggregate=expression) for name, expression in action.columns}
    return DerivedRows(step.id, "group", step.emit, tuple(parts), fixed, columns)


def _pairs(step: Step, action: Join, fixed: frozenset[str], resolved: Resolved) -> DerivedRows:
    """A pair has at least the columns that are equal in both rows, whatever else identifies these."""
    columns = {column.name: KeyColumn() for reference in step.inputs for column in resolved.of(reference) or ()}
    columns |= {name: KeyColumn(frozenset({name}), name) for name in action.key}
    return DerivedRows(step.id, "pair", step.emit, action.key, fixed, columns)


def keys_identify_derived_rows(subject: Subject) -> Iterator[Problem]:
    """A sink's key contains all columns that identify groups or pairs, and no aggregate that changes while its group is updated.

    If the origin of a column is not known (Python, a query that is not plain), missing key columns are not reported.
    """
    sinks = [sink for sink in subject.flow.sinks.values() if sink.options.get("mode") in ("upsert", "changes") and sink.options.get("key")]
    if not sinks:
        return
    rows = _Rows(subject.graph, subject.resolved)
    for sink in sinks:
        columns = subject.resolved.of(sink.id)
        if columns is not None and not set(sink.options["key"]) <= {column.name for column in columns}:
            continue  # reported as unknown columns
        for derived in (one for reference in sink.inputs for one in rows.of(reference).derived):
            if derived.emit != "append":  # else a group comes once, and its values do not change
                yield from _aggregates_in_key(subject, sink, derived)
            if not sink.options.get("version"):  # else the sink decides itself which of several rows of one key to keep
                yield from _missing_in_key(subject, sink, derived)


def _aggregates_in_key(subject: Subject, sink: Sink, derived: DerivedRows) -> Iterator[Problem]:
    for index, name in enumerate(sink.options["key"]):
        column = derived.column(name)
        if column is not None and column.aggregate:
            message = (
                f'{called(sink)} has "{name}" in its key, which step "{derived.step}" computes ({column.aggregate}): with emit:'
                f" {derived.emit} a group whose value changes would get a second row, and the old row would stay"
            )
            yield subject.problem("key-computed", path_of(sink, "key", index), message, _right_key(sink, derived))


def _missing_in_key(subject: Subject, sink: Sink, derived: DerivedRows) -> Iterator[Problem]:
    missing = [name for name in _missing(sink.options["key"], derived) if name.lower() not in derived.fixed]
    if not missing:
        return
    message = (
        f'{called(sink)} has key: [{", ".join(sink.options["key"])}], but step "{derived.step}" outputs one row for each'
        f" {'pair of ' * (derived.what == 'pair')}{_listed(derived.identifying)}: rows that differ only in {_listed(missing)} would"
        " overwrite one another"
    )
    remedy = _right_key(sink, derived)
    declared = subject.sink_types.get(sink.type)
    if declared is not None and declared.option("version") is not None:
        remedy += "; or write version: COLUMN to keep the row with the greatest value in that column"
    yield subject.problem_at_key("key-incomplete", path_of(sink, "key"), message, remedy)


def _missing(key: Iterable[str], derived: DerivedRows) -> list[str]:
    """The identifying columns that no column of the key may contain; empty if one of its columns is not known."""
    columns = [derived.column(name) for name in key]
    held = {name for column in columns if column is not None for name in column.identifies}
    return [name for name in derived.identifying if name not in held] if None not in columns else []


def _right_key(sink: Sink, derived: DerivedRows) -> str:
    """The remedy: the correct key, or the columns needed for it."""
    given = sink.options["key"]
    kept = [name for name in given if not ((column := derived.column(name)) and column.aggregate)]
    copies = {column.copy_of: name for name, column in reversed([*derived.columns.items()])}
    missing = _missing(kept, derived)
    added = [copies[name] for name in missing if name in copies]
    key = [*kept, *added]
    if lost := [name for name in missing if name not in copies and not (key and name.lower() in derived.fixed)]:
        names = _listed("the window's start" if name == WINDOW else name for name in lost)
        return f"keep {names} in all steps up to the sink, and add it to key"
    if not key:
        return "there is only one row: select a constant for it, such as id: \"'all'\", and write key: [id]"
    verb = f"add {_listed(added)} to" if len(kept) == len(given) else "write"
    beside = ", and the same columns in row" if sink.options.get("row") else ""
    return f"{verb} key: [{', '.join(key)}]{beside}"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last

"""The known facts about the rows of every reference of a flow: which step made them from several rows, and what identifies them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import base
from scribengin.plan.key_facts import WINDOW, DerivedRows, EdgeRows, KeyColumn
from scribengin.plan.sql.key_facts import Query, compared, held_fast, query_rows, selected
from scribengin.spec.model import Aggregate, Filter, Join, Merge, Parse, Route, Select, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.core.problems import Problem
    from scribengin.plan.columns import Columns
    from scribengin.plan.graph import Graph
    from scribengin.plan.resolve import Resolved
    from scribengin.spec.model import Sink


_WINDOW_CELL = KeyColumn(frozenset({WINDOW}), WINDOW)


def told_apart(graph: Graph, resolved: Resolved) -> RowsOf:
    """Walk down the stream once. Behind Python, `dedupe` and an intersection nothing is known."""
    rows = RowsOf(graph)
    for id_ in graph.order:
        node = graph.nodes[id_]
        if isinstance(node, Step) and id_ not in resolved.static:
            rows.put(id_, _step_rows(node, rows, resolved))
    return rows


class RowsOf:
    """Reference → its rows."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rows: dict[str, EdgeRows] = {}

    def put(self, id_: str, rows: EdgeRows) -> None:
        """The rows that a step gives."""
        self._rows[id_] = rows

    def of(self, reference: str) -> EdgeRows:
        """The rows of `a` or `r.big`."""
        rows = self._rows.get(base(reference), EdgeRows())
        node, branch = self._graph.nodes.get(base(reference)), reference.partition(".")[2]
        if not branch or not isinstance(node, Step) or not isinstance(node.action, Route):
            return rows
        for name, predicate in node.action.cases:
            if name == branch:
                return rows.where(held_fast(predicate))
            rows = rows.where(compared(predicate))
        return rows


def _step_rows(step: Step, rows: RowsOf, resolved: Resolved) -> EdgeRows:
    given = _acted(step, [rows.of(reference) for reference in step.inputs], resolved)
    return given.where(name for _, predicate in step.require for name in held_fast(predicate))


def _acted(step: Step, inputs: list[EdgeRows], resolved: Resolved) -> EdgeRows:
    first = inputs[0] if inputs else EdgeRows()
    match step.action:
        case Filter(predicate):
            return first.where(held_fast(predicate))
        case Route():
            return first
        case Select(columns):
            return selected(first, columns)
        case Parse(column, schema=schema):
            left = {column, *schema.names}
            made = [replace(one, cells={name: cell for name, cell in one.cells.items() if name not in left}) for one in first.made]
            return EdgeRows(tuple(made), first.fixed - {name.lower() for name in left})
        case Merge("union"):
            return _union(inputs, step.action.origin)
        case Aggregate():
            return _grouped(step, step.action, first.fixed)
        case Sql(text):
            streams = {
                reference: given for reference, given in zip(step.inputs, inputs, strict=True) if reference in resolved.streams(step)
            }
            return query_rows(text, Query(step.id, step.emit, streams, {reference: resolved.of(reference) for reference in step.inputs}))
        case Join(how=how) if len(inputs) == 2:
            if how == "semi":
                return first
            right = resolved.of(step.inputs[1])
            return _paired(step, step.action, inputs, resolved) if len(resolved.streams(step)) == 2 else _beside(first, step.action, right)
        case _:
            return EdgeRows()


def _union(inputs: list[EdgeRows], origin: str | None) -> EdgeRows:
    made = tuple(one for rows in inputs for one in rows.made)
    if origin is not None:
        made = tuple(replace(one, cells={**one.cells, origin: KeyColumn()}) for one in made)
    return EdgeRows(made, frozenset.intersection(*(rows.fixed for rows in inputs)) if inputs else frozenset())


def _grouped(step: Step, action: Aggregate, fixed: frozenset[str]) -> EdgeRows:
    """The window follows from the time where rows are grouped by that too."""
    window = [WINDOW] if action.window is not None and action.window.time not in action.by else []
    parts = [name for name in action.by if name.lower() not in fixed]
    cells = {} if action.window is None else dict.fromkeys(("window_start", "window_end"), _WINDOW_CELL if window else KeyColumn())
    cells |= {name: KeyColumn(frozenset({name}), name) if name in parts else KeyColumn() for name in action.by}
    cells |= {name: KeyColumn(computed=expression) for name, expression in action.columns}
    made = DerivedRows(step.id, "group", step.emit, (*parts, *window), cells)
    return EdgeRows((made,), fixed & {name.lower() for name in action.by})


def _beside(rows: EdgeRows, action: Join, table: Columns | None) -> EdgeRows:
    """With the columns of a table, which may say what its key says."""
    if table is None:
        return EdgeRows()

    def of(made: DerivedRows) -> DerivedRows:
        keys = [cell for name in action.key if (cell := made.cell(name)) is not None]
        if len(keys) < len(action.key):
            return made
        held = KeyColumn(frozenset(part for cell in keys for part in cell.parts))
        return replace(made, cells={**{column.name: held for column in table}, **made.cells})

    return EdgeRows(tuple(map(of, rows.made)), rows.fixed)


def _paired(step: Step, action: Join, inputs: list[EdgeRows], resolved: Resolved) -> EdgeRows:
    """Pairs of two streams' rows. What tells one of them apart, where it is a group, any column may say that is not of the key."""
    fixed = inputs[0].fixed | inputs[1].fixed
    keys = [name for name in action.key if name.lower() not in fixed]
    cells = {name: KeyColumn(frozenset({name}), name) if name in keys else KeyColumn() for name in action.key}
    of_key = {name.lower() for name in action.key}
    groups = {reference: rows.made[0] for reference, rows in zip(step.inputs, inputs, strict=True) if len(rows.made) == 1}
    left = {reference: _left_open(made, action, reference) for reference, made in groups.items()}
    open_ = frozenset(name for names in left.values() for name in names.values())
    for reference in step.inputs:
        for column in resolved.of(reference) or ():
            if column.name.lower() in of_key:
                continue
            known = groups[reference].cell(column.name) if reference in groups else None
            if known is not None and known.computed:
                cells.setdefault(column.name, KeyColumn(computed=known.computed))
            else:
                copied = left[reference].get(known.copy_of, "") if known is not None else ""
                cells.setdefault(column.name, KeyColumn(open_, copied))
    made = DerivedRows(step.id, "pair", step.emit, (*keys, *sorted(open_)), cells)
    return EdgeRows((made,), fixed)


def _left_open(made: DerivedRows, action: Join, reference: str) -> dict[str, str]:
    """The parts that the join's key does not hold → how they are called where rows of two inputs meet."""
    held = {part for name in action.key if (cell := made.cell(name)) is not None for part in cell.parts}
    return {part: f"{part} of {reference}" for part in made.parts if part not in held}


# Rules on the keys of sinks behind aggregations and joins: a row without a record of its own gets its id from the key.


_REPLACE = ("upsert", "changes")
"""modes in which a row replaces that of the same key"""


def keys_tell_made_rows_apart(subject: Subject) -> Iterator[Problem]:
    """A sink's key contains all columns that identify groups or pairs, and no aggregate that changes while its group is updated.

    If the origin of a column is not known (Python, a query that is not plain), missing key columns are not reported.
    """
    sinks = [sink for sink in subject.flow.sinks.values() if sink.options.get("mode") in _REPLACE and sink.options.get("key")]
    if not sinks:
        return
    rows = told_apart(subject.graph, subject.resolved)
    for sink in sinks:
        columns = subject.resolved.of(sink.id)
        if columns is not None and not set(sink.options["key"]) <= {column.name for column in columns}:
            continue  # told as unknown columns
        for made in (one for reference in sink.inputs for one in rows.of(reference).made):
            yield from _computed(subject, sink, made)
            yield from _incomplete(subject, sink, made)


def _computed(subject: Subject, sink: Sink, made: DerivedRows) -> Iterator[Problem]:
    """Under `emit: append` a group comes once, so that its values do not change."""
    for index, name in enumerate(sink.options["key"]):
        if _changes(made, name):
            cell = made.cell(name)
            assert cell is not None
            message = (
                f'{called(sink)} has "{name}" in its key, which step "{made.step}" computes ({cell.computed}): with emit: {made.emit} a'
                " group whose value changes would get a second row, and the old row would stay"
            )
            yield subject.problem("key-computed", path_of(sink, "key", index), message, _right_key(sink, made))


def _incomplete(subject: Subject, sink: Sink, made: DerivedRows) -> Iterator[Problem]:
    """A sink with `version` decides itself which of several rows of one key to keep."""
    missing = _missing(sink.options["key"], made)
    if not missing or sink.options.get("version"):
        return
    gives = "outputs one row for each" if made.what == "group" else "outputs one row for each pair of"
    message = (
        f'{called(sink)} has key: [{", ".join(sink.options["key"])}], but step "{made.step}" {gives} {_listed(made.parts)}: rows that'
        f" differ only in {_listed(missing)} would overwrite one another"
    )
    remedy = _right_key(sink, made)
    declared = subject.sink_types.get(sink.type)
    if declared is not None and declared.option("version") is not None:
        remedy += "; or write version: COLUMN to keep the row with the greatest value in that column"
    yield subject.problem_at_key("key-incomplete", path_of(sink, "key"), message, remedy)


def _changes(made: DerivedRows, name: str) -> bool:
    return made.emit != "append" and _holds_aggregate(made, name)


def _holds_aggregate(made: DerivedRows, name: str) -> bool:
    cell = made.cell(name)
    return cell is not None and bool(cell.computed)


def _missing(key: Iterable[str], made: DerivedRows) -> list[str]:
    """The parts that no column of the key covers; empty if one of the columns is not known."""
    cells = [made.cell(name) for name in key]
    held = {part for cell in cells if cell is not None for part in cell.parts}
    return [part for part in made.parts if part not in held] if None not in cells else []


def _right_key(sink: Sink, made: DerivedRows) -> str:
    """The remedy: the correct key, or the columns needed for it."""
    given = sink.options["key"]
    kept = [name for name in given if not _holds_aggregate(made, name)]
    adds = {part: next((name for name, cell in made.cells.items() if cell.copy_of == part), "") for part in _missing(kept, made)}
    if lost := [part for part, name in adds.items() if not name]:
        columns = _listed("the window's start" if part == WINDOW else part for part in lost)
        return f"keep {columns} in all steps up to the sink, and add it to key"
    key = [*kept, *adds.values()]
    if not key:
        return "there is only one row: select a constant for it, such as id: \"'all'\", and write key: [id]"
    verb = f"add {_listed(adds.values())} to" if len(kept) == len(given) else "write"
    beside = ", and the same columns in row" if sink.options.get("row") else ""
    return f"{verb} key: [{', '.join(key)}]{beside}"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last

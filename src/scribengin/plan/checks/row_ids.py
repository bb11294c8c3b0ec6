"""Rules on the keys of sinks behind aggregations and joins: a row that has no record of its own has its id from what it was made by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.made_rows import WINDOW
from scribengin.plan.told_apart import told_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.core.problems import Problem
    from scribengin.plan.made_rows import DerivedRows
    from scribengin.spec.model import Sink

_REPLACE = ("upsert", "changes")
"""modes in which a row replaces that of the same key"""


def keys_tell_made_rows_apart(subject: Subject) -> Iterator[Problem]:
    """A sink's key holds all that tells groups or pairs apart, and no aggregate that changes while its group is updated.

    Where the origin of a column is not known (Python, a query that is not plain) nothing is said of what the key lacks.
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
                " group whose value changes would get another row, and its old one would stay"
            )
            yield subject.problem("key-computed", path_of(sink, "key", index), message, _right_key(sink, made))


def _incomplete(subject: Subject, sink: Sink, made: DerivedRows) -> Iterator[Problem]:
    """A sink with `version` says itself which of several rows of one key shall stand."""
    missing = _missing(sink.options["key"], made)
    if not missing or sink.options.get("version"):
        return
    gives = "gives a row for each" if made.what == "group" else "pairs rows by"
    message = (
        f'{called(sink)} has key: [{", ".join(sink.options["key"])}], but step "{made.step}" {gives} {_listed(made.parts)}: rows that'
        f" differ only in {_listed(missing)} would overwrite one another"
    )
    remedy = _right_key(sink, made)
    declared = subject.sink_types.get(sink.type)
    if declared is not None and declared.option("version") is not None:
        remedy += "; or write version: COLUMN if the one with the greatest value there shall stand"
    yield subject.problem_at_key("key-incomplete", path_of(sink, "key"), message, remedy)


def _changes(made: DerivedRows, name: str) -> bool:
    return made.emit != "append" and _holds_aggregate(made, name)


def _holds_aggregate(made: DerivedRows, name: str) -> bool:
    cell = made.cell(name)
    return cell is not None and bool(cell.computed)


def _missing(key: Iterable[str], made: DerivedRows) -> list[str]:
    """The parts that no column of a key can hold; none where one of these is not known."""
    cells = [made.cell(name) for name in key]
    held = {part for cell in cells if cell is not None for part in cell.parts}
    return [part for part in made.parts if part not in held] if None not in cells else []


def _right_key(sink: Sink, made: DerivedRows) -> str:
    """What to do: the key as it would be right, or what must be there for that."""
    given = sink.options["key"]
    kept = [name for name in given if not _holds_aggregate(made, name)]
    adds = {part: next((name for name, cell in made.cells.items() if cell.copy_of == part), "") for part in _missing(kept, made)}
    if lost := [part for part, name in adds.items() if not name]:
        columns = _listed("the window's start" if part == WINDOW else part for part in lost)
        return f"keep {columns} on the way to the sink, and add that to key"
    key = [*kept, *adds.values()]
    if not key:
        return "there is one row: select a constant for it, such as id: \"'all'\", and write key: [id]"
    verb = f"add {_listed(adds.values())} to" if len(kept) == len(given) else "write"
    beside = ", and the same columns in row" if sink.options.get("row") else ""
    return f"{verb} key: [{', '.join(key)}]{beside}"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last

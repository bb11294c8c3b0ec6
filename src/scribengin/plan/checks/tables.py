"""Rules on sinks that write to tables: what their mode needs, the columns that they name, one writer a table."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scribengin.core.problems import did_you_mean
from scribengin.plan.checks.subject import Subject, called, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Sink
    from scribengin.spec.places import Path

_NEEDS = {"append": (), "upsert": ("key",), "changes": ("key", "change")}
_MAY = {"append": (), "upsert": ("key", "version"), "changes": ("key", "version", "change")}


def _tables(subject: Subject) -> Iterator[Sink]:
    yield from (sink for sink in subject.flow.sinks.values() if "table" in sink.options)


def tables_have_what_their_mode_needs(subject: Subject) -> Iterator[Problem]:
    """Rows are told apart by a key or not at all; a change is said by a column."""
    for sink in _tables(subject):
        mode = sink.options.get("mode", "append")
        for name in _NEEDS[mode]:
            if not sink.options.get(name):
                what = "the columns that tell rows apart" if name == "key" else "the column that says what becomes of a row"
                message = f"{called(sink)} has mode: {mode} and no `{name}`, {what}"
                yield subject.problem_at_key("table-mode", path_of(sink, "mode"), message, f"add {name}")
        for name in ("key", "version", "change"):
            if sink.options.get(name) and name not in _MAY[mode]:
                modes = " or ".join(each for each, names in _MAY.items() if name in names)
                message = f'{called(sink)} has "{name}", which mode: {mode} does not look at'
                yield subject.problem_at_key("table-mode", path_of(sink, name), message, f"write mode: {modes}, or take it out")


def table_columns_are_there(subject: Subject) -> Iterator[Problem]:
    """Columns that a sink names it must get; and `change` is not written, so it is no part of the key."""
    for sink in _tables(subject):
        columns = subject.resolved.of(sink.id)
        names = None if columns is None else [column.name for column in columns]
        for place, name in _named(sink):
            if names is not None and name not in names:
                message = f'{called(sink)} has {place[0]} "{name}", a column that it does not get'
                remedy = did_you_mean(name, names) or f"it gets {', '.join(names)}"
                yield subject.problem("column-unknown", path_of(sink, *place), message, remedy)
        for index, name in enumerate(sink.options.get("key") or ()):
            if name == sink.options.get("change"):
                message = f'{called(sink)} has "{name}" as a part of its key and as `change`, which is not written to the table'
                yield subject.problem("table-mode", path_of(sink, "key", index), message, "take it out of one of the two")


def one_writer_a_table(subject: Subject) -> Iterator[Problem]:
    """Two sinks never write to one table: neither could tell which rows are its own."""
    seen: dict[tuple[str, str], Sink] = {}
    for sink in _tables(subject):
        table = str(sink.options["table"])
        place = (str(sink.options.get("server")), table.removeprefix("public."))
        if (other := seen.setdefault(place, sink)) is not sink:
            message = f'{called(sink)} writes to table {table}, as sink "{other.id}" does'
            together = ", ".join(dict.fromkeys((*other.inputs, *sink.inputs)))
            remedy = f"give each its own table, or let one sink read both: from: [{together}]"
            yield subject.problem("table-two-writers", path_of(sink, "table"), message, remedy)


def passwords_are_secrets(subject: Subject) -> Iterator[Problem]:
    """What stands in an address is printed, stored and seen by whoever sees the flow."""
    for sink in _tables(subject):
        if urlsplit(str(sink.options.get("server", ""))).password is not None:
            message = f"{called(sink)}: `server` holds a password"
            remedy = 'take it out and write config: {password: "${secret:env/NAME}"}: what stands there is never shown'
            yield subject.problem("secret-in-plain", path_of(sink, "server"), message, remedy)


def _named(sink: Sink) -> Iterator[tuple[Path, str]]:
    yield from ((("key", index), name) for index, name in enumerate(sink.options.get("key") or ()))
    yield from (((option,), sink.options[option]) for option in ("version", "change") if sink.options.get(option))

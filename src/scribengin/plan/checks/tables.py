"""Rules on sources and sinks that are tables or indexes: what their mode needs, the columns that they name, one writer each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.addresses import split_url
from scribengin.core.options import loaded
from scribengin.core.problems import suggestion
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.groups import placements
from scribengin.spec.model import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Sink
    from scribengin.spec.places import Path

_KINDS = ("table", "index")
"""options with the location, and its name in messages"""
_NEEDS = {"append": (), "overwrite": ("partition_by",), "upsert": ("key",), "changes": ("key", "change")}
_MAY = {"append": (), "overwrite": (), "upsert": ("key", "version"), "changes": ("key", "version", "change")}
_WHAT = {
    "key": "the columns that identify a row",
    "change": "the column with the kind of change",
    "partition_by": "the columns whose values select the rows to replace",
}


def _tables(subject: Subject) -> Iterator[Sink]:
    yield from (sink for sink in subject.flow.sinks.values() if _kind(sink) or subject.has(sink, "table"))


def _kind(sink: Sink) -> str:
    return next((kind for kind in _KINDS if kind in sink.options), "")


def _read_tables(subject: Subject) -> Iterator[Source]:
    yield from (source for source in subject.flow.sources.values() if subject.has(source, "table"))


def tables_have_what_their_mode_needs(subject: Subject) -> Iterator[Problem]:
    """The mode of a sink needs exactly the options for its key and its change column."""
    for sink in _tables(subject):
        mode = _mode(subject, sink)
        if mode not in _NEEDS:
            continue  # another package's; its own checks say what it needs
        for name in _NEEDS[mode]:
            if not sink.options.get(name):
                message = f"{called(sink)} has mode: {mode} but no `{name}`, {_WHAT[name]}"
                yield subject.problem_at_key("table-mode", path_of(sink, "mode"), message, f"add {name}")
        if mode != "append" and sink.options.get("visible") == "unit":
            message = (
                f"{called(sink)} has visible: unit and mode: {mode}; rows of one key may be in several task outputs, so their "
                "order would be undefined"
            )
            yield subject.problem_at_key("table-mode", path_of(sink, "visible"), message, "take it out, or write mode: append")
        for name in ("key", "version", "change"):
            if sink.options.get(name) and name not in _MAY[mode]:
                option = subject.sink_types[sink.type].option("mode")
                choices = [each for each in (option.choices if option else ()) if name in _MAY.get(each, ())]
                modes = " or ".join(choices)
                message = f'{called(sink)} has "{name}", which mode: {mode} does not use'
                yield subject.problem_at_key("table-mode", path_of(sink, name), message, f"write mode: {modes}, or take it out")


def table_columns_are_there(subject: Subject) -> Iterator[Problem]:
    """Columns that a sink names are columns of its input; `change` is not written, so it is not part of the key."""
    for sink in _tables(subject):
        columns = subject.resolved.of(sink.id)
        names = None if columns is None else [column.name for column in columns]
        for place, name in _named(sink):
            if names is not None and name not in names:
                message = f'{called(sink)} has {place[0]} "{name}", which is not a column of its input'
                remedy = suggestion(name, names, "its columns are")
                yield subject.problem("column-unknown", path_of(sink, *place), message, remedy)
        for index, name in enumerate(_key(sink)):
            if name == sink.options.get("change"):
                message = f'{called(sink)} has "{name}" both in its key and as `change`, but the change column is not written to the table'
                yield subject.problem("table-mode", path_of(sink, "key", index), message, "use another column for one of the two")


def one_writer_a_table(subject: Subject) -> Iterator[Problem]:
    """Two sinks never write to one table: neither could tell which rows are its own."""
    seen: dict[tuple[str, str], Sink] = {}
    for sink in filter(_kind, _tables(subject)):
        kind = _kind(sink)
        for _, options in placements(subject.flow, sink):
            places = _places(subject, sink, options)
            other = next((found for place in places if (found := seen.setdefault(place, sink)) is not sink), None)
            if other is not None:
                message = f'{called(sink)} and sink "{other.id}" both write to {kind} {_named_table(sink.options)}'
                together = ", ".join(dict.fromkeys((*other.inputs, *sink.inputs)))
                remedy = f"give each its own {kind}, or let one sink read both: from: [{together}]"
                yield subject.problem("table-two-writers", path_of(sink, kind), message, remedy)
                break


def passwords_are_secrets(subject: Subject) -> Iterator[Problem]:
    """An address is printed and stored with the flow, so it must not contain a password."""
    nodes: list[Source | Sink] = [*_read_tables(subject), *_tables(subject)]
    for node in nodes:
        servers = _named_servers(node.options) if isinstance(node, Source) or node.to is None else ()  # of a group: `sinks_can_be_members`
        logins = [(parts.username, parts.password) for server in servers if (parts := split_url(server)) is not None]
        remedy = 'take it out and write config: {password: "${secret:env/NAME}"}: a secret is never shown'
        if any(password is not None for _, password in logins):
            message = f"{called(node)}: `server` contains a password"
            yield subject.problem("secret-in-plain", path_of(node, "server"), message, remedy)
        elif any(user is not None for user, _ in logins) and not subject.has(node, "user_in_server"):
            message = f"{called(node)}: `server` contains a user"
            remedy = 'take it out and write config: {user: NAME, password: "${secret:env/NAME}"}'
            yield subject.problem("secret-in-plain", path_of(node, "server"), message, remedy)


def no_table_feeds_itself(subject: Subject) -> Iterator[Problem]:
    """A flow must not write to a table that it reads: it would read its own output."""
    read = {place: source for source in _read_tables(subject) for place in _places(subject, source, source.options)}
    for sink in _tables(subject):
        written = [place for _, options in placements(subject.flow, sink) for place in _places(subject, sink, options)]
        source = next((read[place] for place in written if place in read), None)
        if source is not None and source.id in subject.graph.upstream([sink.id]):
            table = _named_table(sink.options)
            message = f'{called(sink)} writes to table {table}, which source "{source.id}" of the same flow reads'
            yield subject.problem("table-feeds-itself", path_of(sink, _kind(sink)), message, "write to another table")


def _mode(subject: Subject, sink: Sink) -> str:
    """The mode of a type that has one: the flow's, or the default."""
    declared = subject.declared(sink)
    option = declared.option("mode") if declared is not None else None
    return "" if option is None else str(sink.options.get("mode", option.default))


def _places(subject: Subject, node: Source | Sink, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(server, table) of a node: as its type locates it, else as its options name both."""
    declared = subject.declared(node)
    if declared is not None and declared.locations and node.id not in subject.broken:
        return [(each.at, each.name) for each in loaded(declared.locations)(options) if each.kind == "table"]
    by_member = declared.by_member if declared is not None else None
    place = "server" if by_member is None or "server" in options else by_member.name
    table = _named_table(options).removeprefix("public.")
    return [(server, table) for server in _named_servers(options, place)] if table else []


def _named_table(options: Mapping[str, Any]) -> str:
    return ".".join(str(options[name]) for name in ("keyspace", *_KINDS) if name in options)


def _named_servers(options: Mapping[str, Any], option: str = "server") -> tuple[str, ...]:
    named = options.get(option, "")
    return tuple(map(str, named)) if isinstance(named, (list, tuple)) else (str(named),)


def _key(sink: Sink) -> Sequence[str]:
    """The columns that identify a row; an option of that name that is no list means something else."""
    key = sink.options.get("key")
    return key if isinstance(key, (list, tuple)) else ()


def _named(sink: Sink) -> Iterator[tuple[Path, str]]:
    yield from ((("key", index), name) for index, name in enumerate(_key(sink)))
    named = {option: sink.options.get(option) for option in ("version", "change")}
    yield from (((option,), name) for option, name in named.items() if name and isinstance(name, str))

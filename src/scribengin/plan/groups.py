"""Sinks and edges that go to a group: the location of each member, and a plan's hints on them."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.addresses import without_login
from scribengin.plan.describe import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.core.options import Option
    from scribengin.spec.model import Flow, Member, Sink, Source


def target(node: Source | Sink) -> str | None:
    """The group, or `group.member`, that a sink or a channel goes to; None if there is none."""
    to = getattr(node, "to", None) or node.options.get("to")
    return None if to is None else str(to)


def members_of(flow: Flow, to: str) -> tuple[Member, ...]:
    """The members of the group, in the file's order; one for `group.member`. Raises KeyError if the flow has none such, which the checks
    report before."""
    name, _, member = to.partition(".")
    found = tuple(each for each in flow.groups[name].members if member in ("", each.name))
    if not found:
        raise KeyError(to)
    return found


def placed(flow: Flow, node: Source | Sink, options: Mapping[str, Any]) -> tuple[tuple[str, float, dict[str, Any]], ...]:
    """(name, cost, options) for each member of the group that a node goes to; empty if it goes to none.

    `at` of the member sets the sink's option that is `by_member`; for a channel in Kafka its `bootstrap`, for one in a folder its `path`. A
    path is a folder, or an address of a store; the path in the node's own option is appended to it.

    Args:
        flow: The flow.
        node: The sink or channel.
        options: The node's own options.
    """
    to = target(node)
    if to is None:
        return ()
    option = _by_member(node, options)
    assert option is not None, f"a sink of type {node.type} goes to a group"
    return tuple((each.name, each.cost, {**options, option.name: _value(each, option, options)}) for each in members_of(flow, to))


def placements(flow: Flow, sink: Sink) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """The locations that a sink writes to, one after the other: (None, its options), or for each member of its group (the member's index in
    the file, the options there). Empty if its group does not exist, or its type cannot go to one; other checks report that."""
    to = target(sink)
    if to is None:
        yield None, sink.options
        return
    name, _, member = to.partition(".")
    group, option = flow.groups.get(name), _by_member(sink, sink.options)
    for index, each in enumerate(group.members if group is not None else ()):
        if option is not None and member in ("", each.name):
            yield index, {**sink.options, option.name: _value(each, option, sink.options)}


def member_places(flow: Flow, node: Source | Sink) -> dict[str, str]:
    """Member → its location for people, named by the option of the node's type: `server postgresql://db1/shop`. Without credentials."""
    option = _by_member(node, node.options)
    if option is None:
        return {}
    return {name: f"{option.name} {_shown(options[option.name])}" for name, _, options in placed(flow, node, node.options)}


def _shown(value: Any) -> str:
    return without_login(value if isinstance(value, str) else ", ".join(map(str, value)))


def _by_member(node: Source | Sink, options: Mapping[str, Any]) -> Option | None:
    declared = catalog.sink_types(internal=True).get(node.type)
    if declared is not None and node.type == "channel":
        return declared.option("bootstrap" if options.get("kind") == "kafka" else "path")
    return None if declared is None else declared.by_member


def _value(member: Member, option: Option, options: Mapping[str, Any]) -> Any:
    if option.kind != "path":
        return option.member_value(member.at)
    path = PurePath(str(options.get(option.name) or ""))
    below = path.relative_to(path.anchor) if path.is_absolute() else path
    if "://" in member.at:
        return f"{member.at.rstrip('/')}/{below}"
    return str(PurePath(member.at, below))


def group_notes(flow: Flow) -> Iterator[str]:
    """A plan's hints on each sink, and each channel, that goes to a group."""
    for node in flow.sinks.values():
        to = target(node)
        if to is None:
            continue
        members = sorted(members_of(flow, to), key=lambda each: each.cost)
        places = member_places(flow, node)
        name = to.partition(".")[0]
        if len(members) == 1:
            yield (
                f"{node.id} goes to member {members[0].name} of group {name} ({places[members[0].name]}); its Batches wait until "
                "it is available"
            )
            continue
        lowest = [f"{each.name} ({places[each.name]}, cost {each.cost:g})" for each in members if each.cost == members[0].cost]
        others = [f"{each.name} ({places[each.name]}, cost {each.cost:g})" for each in members if each.cost != members[0].cost]
        first = f"{listed(lowest)}" + (" in turn" if len(lowest) > 1 else "")
        then = f", then {', '.join(others)}" if others else ""
        yield (
            f"{node.id} goes to group {name}: first to {first}{then}; the available member with the lowest cost is used; "
            "a Batch that is decided for a member waits for it, later Batches go to other members; order across members is not kept"
        )

"""Groups: several interchangeable places as one sink, or as the channel of one edge. `catalog` uses this package if a node's context has
members."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector

__all__ = ["make_sink", "make_source"]


def make_source(type_: str, place: ConnectorContext, open_: Callable[[str, ConnectorContext], Any]) -> SourceConnector:
    """The source that reads from all members of a group.

    Args:
        type_: The type of the members.
        place: The context of the node.
        open_: Opens the source of one member.
    """
    from scribengin.connectors.group.source import GroupSource

    return GroupSource(place, {name: open_(type_, each) for name, each in _members(place)})


def make_sink(type_: str, place: ConnectorContext, open_: Callable[[str, ConnectorContext], Any]) -> SinkConnector:
    """The sink that gives each Batch to one member of a group.

    Args:
        type_: The type of the members.
        place: The context of the node.
        open_: Opens the sink of one member.
    """
    from scribengin.connectors.abilities import refuses_rows
    from scribengin.connectors.group.sink import GroupSink, OfferingGroupSink

    sinks = {name: open_(type_, each) for name, each in _members(place)}
    return (OfferingGroupSink if any(map(refuses_rows, sinks.values())) else GroupSink)(place, sinks)


def _members(place: ConnectorContext) -> list[tuple[str, ConnectorContext]]:
    """The name and context of each member. A member is always a staged sink, whatever the delivery: one of Spark's own sinks could not
    report which Batches it has."""
    common = replace(place, members=(), delivery="exactly_once")
    return [
        (
            name,
            replace(
                common,
                member=name,
                options=dict(options),
                work=None if place.work is None else place.work / name,
                earlier=tuple(work / name for work in place.earlier),
            ),
        )
        for name, _, options in place.members
    ]

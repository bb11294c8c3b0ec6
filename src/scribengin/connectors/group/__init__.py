"""Groups: several places that can stand for each other as one sink, or as the channel of one edge. `catalog` asks here where a node's Place
has members."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector

__all__ = ["make_sink", "make_source"]


def make_source(type_: str, place: ConnectorContext, open_: Callable[[str, ConnectorContext], Any]) -> SourceConnector:
    """The source that reads what stands at all members; `open_` opens that of one."""
    from scribengin.connectors.group.source import GroupSource

    return GroupSource(place, {name: open_(type_, each) for name, each in _members(place)})


def make_sink(type_: str, place: ConnectorContext, open_: Callable[[str, ConnectorContext], Any]) -> SinkConnector:
    """The sink that gives each Batch to one member; `open_` opens that of one."""
    from scribengin.connectors.abilities import offers
    from scribengin.connectors.group.sink import GroupSink, OfferingGroupSink

    sinks = {name: open_(type_, each) for name, each in _members(place)}
    return (OfferingGroupSink if any(map(offers, sinks.values())) else GroupSink)(place, sinks)


def _members(place: ConnectorContext) -> list[tuple[str, ConnectorContext]]:
    """A staged sink each, whatever delivery is asked for: it cannot be told of a member of Spark's own sink which Batches it has."""
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

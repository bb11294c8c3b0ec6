"""The outputs of a tier's sinks that need maintenance: folders, locations in stores, tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.connectors.delta import is_stored, table_place
from scribengin.plan.groups import placements

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from typing import Any

    from scribengin.connectors.delta.places import TablePlace
    from scribengin.connectors.objects.address import ObjectsAddress
    from scribengin.connectors.objects.maintenance import StoreKeeper
    from scribengin.spec.model import Flow, Sink


def kept_folders(flow: Flow, sinks: Collection[str] | None = None) -> tuple[str, ...]:
    """The folders of a tier's file sinks and of its channels in folders, sorted; for a group, the folder of each member. `sinks`: only
    these sinks; None: all."""
    folders = set()
    for node in flow.sinks.values():
        if sinks is not None and node.id not in sinks:
            continue
        if _maintained_as(node) != "folder" and (node.type, node.options.get("kind")) != ("channel", "folder"):
            continue
        paths = [options.get("path") for _, options in placements(flow, node)]
        folders |= {str(Path(flow.folder.resolve(), path)) for path in paths if path}
    return tuple(sorted(folders))


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table that a sink writes to."""

    node: str
    options: Mapping[str, Any]
    """the options, with defaults"""
    folder: Path
    """the folder that its paths are relative to"""

    def place(self) -> TablePlace:
        """The table's location. Raises SinkError for an invalid address."""
        return table_place(self.node, self.options, self.folder)


def kept_stores(flow: Flow, sinks: Collection[str] | None = None) -> list[StoreKeeper]:
    """The maintenance of the locations in S3 and HDFS that a tier's sinks write to, sorted by sink, if there may be something to merge; for
    a group, the location of each member. `sinks`: only these sinks; None: all."""
    from scribengin.connectors.objects.maintenance import StoreKeeper

    keepers = (StoreKeeper(address, options) for id_, address, options in places_in_stores(flow) if sinks is None or id_ in sinks)
    return [keeper for keeper in keepers if keeper.wanted]


def places_in_stores(flow: Flow) -> Iterator[tuple[str, ObjectsAddress, Mapping[str, Any]]]:
    """(sink, its location, its options there) for each sink to an object store or HDFS, sorted by sink; for a group, for each member.
    Raises SinkError for an invalid address."""
    from scribengin.connectors.objects.address import ObjectsAddress

    for node in sorted(flow.sinks.values(), key=lambda node: node.id):
        for _, given in placements(flow, node) if _maintained_as(node) == "store" else ():
            if "url" in given:
                options = catalog.sink_types()[node.type].filled(given, flow.defaults.profile)
                yield node.id, ObjectsAddress.of(node.id, options, flow.folder.resolve()), options


def kept_tables(flow: Flow) -> dict[str, KeptTable]:
    """Path → the table, for a tier's sinks to Delta tables; for a group, for each member."""
    nodes = [node for node in flow.sinks.values() if _maintained_as(node) == "table" and "path" in node.options]
    folder = flow.folder.resolve()
    return {
        path if is_stored(path := options["path"]) else str(folder / path): KeptTable(
            node.id, catalog.sink_types()[node.type].filled(options, flow.defaults.profile), folder
        )
        for node in nodes
        for _, options in placements(flow, node)
    }


def sinks_in_stores(flow: Flow) -> list[str]:
    """The sinks to object stores and HDFS, in the file's order."""
    return [node.id for node in flow.sinks.values() if _maintained_as(node) == "store"]


def _maintained_as(node: Sink) -> str:
    declared = catalog.sink_types(internal=True).get(node.type)
    return "" if declared is None else declared.maintained_as

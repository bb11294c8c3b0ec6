"""Delta tables: a lake table as a sink, in a folder or in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.delta.options import SINK
from scribengin.connectors.files import check_folder_place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from scribengin.connectors.contract import Claimant, ConnectorContext, SinkConnector
    from scribengin.connectors.delta.places import TablePlace

__all__ = ["SINK", "check_sink_place", "is_stored", "make_sink", "table_place"]


def is_stored(path: str) -> bool:
    """True if the table is in an object store; otherwise it is in a folder."""
    return "://" in path


def make_sink(place: ConnectorContext) -> SinkConnector:
    """The configured sink."""
    if is_stored(place.options["path"]):
        from scribengin.connectors.delta.stored_sink import StoredDeltaSink

        return StoredDeltaSink(place)
    from scribengin.connectors.delta.sink import DeltaSink

    return DeltaSink(place)


def check_sink_place(place: ConnectorContext, claimant: Claimant | None) -> bool:
    """Check the folder as for a files sink, if the table is in a folder. The columns of the table are checked when the table is opened."""
    return not is_stored(place.options["path"]) and check_folder_place(place, claimant, looked=True)


def table_place(node: str, options: Mapping[str, Any], folder: Path) -> TablePlace:
    """The place of a sink's table, for maintenance.

    Args:
        node: The id of the sink.
        options: The sink's options.
        folder: The folder that relative paths start at.
    """
    path: str = options["path"]
    if is_stored(path):
        from scribengin.connectors.delta.stored import StorePlace
        from scribengin.connectors.objects.address import ObjectsAddress

        return StorePlace(ObjectsAddress.of(node, {**options, "url": path}, folder))
    from scribengin.connectors.delta.folder import FolderPlace

    return FolderPlace(node, folder / path)

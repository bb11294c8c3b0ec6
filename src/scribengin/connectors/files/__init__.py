"""Files in folders."""

from pathlib import Path

from scribengin.connectors.contract import Claimant, ConnectorContext, SinkConnector, SourceConnector
from scribengin.connectors.files.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "check_folder_place", "check_sink_place", "check_source_place", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The configured source."""
    from scribengin.connectors.files.source import FilesSource

    return FilesSource(place)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """The configured sink."""
    from scribengin.connectors.files.sink import FilesSink

    return FilesSink(place)


def check_source_place(place: ConnectorContext) -> None:
    """Check a source's path. Raises SourceError if it does not exist or access is denied."""
    from scribengin.connectors.files.discovery import Discovery

    Discovery(place.folder / Path(place.options["path"]).expanduser(), awaited=bool(place.options["growing"]))


def check_sink_place(place: ConnectorContext, claimant: Claimant | None) -> bool:
    """Check a sink's folder.

    Raises:
        SinkError: The folder cannot be written to.
        Refused: Another flow has claimed it, or its files have another format.
        StateError: Its newest decided Batch is missing.
    """
    from scribengin.connectors.files.audit import check_decided
    from scribengin.connectors.files.sink_records import check_form

    check_folder_place(place, claimant)
    folder = Path(place.folder, place.options["path"])
    decided = None if claimant is None else claimant.decided
    if decided is not None:
        check_decided(folder, decided)
    names = [segment["name"] for receipt in (decided.receipts if decided else ()) for segment in receipt.segments]
    check_form(folder, place.options, sink=place.node, decided=names)
    return True


def check_folder_place(place: ConnectorContext, claimant: Claimant | None, *, looked: bool = False) -> bool:
    """The `check_sink_place` of all sinks that claim their folder as the files sink does.

    Args:
        place: The sink's context.
        claimant: The flow that is going to claim the folder; None if the ownership is not checked.
        looked: As in `sink_claim.claim`.

    Returns:
        True.
    """
    from scribengin.connectors.files.sink_claim import check_apart, check_claimable, check_folder, check_same_place
    from scribengin.connectors.files.sink_folders import INTERNAL

    folder = Path(place.folder, place.options["path"])
    check_folder(folder, sink=place.node)
    check_apart(folder, sink=place.node)
    if claimant is not None:
        check_claimable(
            folder,
            folder / INTERNAL / "owner.json",
            owner=claimant.owner,
            lineage=claimant.lineage,
            sink=place.node,
            flow=place.flow,
            adopt=claimant.adopt,
            looked=looked,
        )
        if claimant.decided is not None:
            check_same_place(folder, claimant.decided.batch, sink=place.node)
    return True

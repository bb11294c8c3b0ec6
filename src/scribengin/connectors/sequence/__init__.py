"""Generated rows as a source."""

from scribengin.connectors.contract import ConnectorContext, SourceConnector
from scribengin.connectors.sequence.options import SOURCE

__all__ = ["SOURCE", "check_source_place", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """Create the source from its options."""
    from scribengin.connectors.sequence.source import SequenceSource

    return SequenceSource(place)


def check_source_place(place: ConnectorContext) -> None:
    """Does nothing: generated rows have no place to check."""

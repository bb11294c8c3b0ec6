"""Generated rows."""

from scribengin.connectors.contract import ConnectorContext, SourceConnector
from scribengin.connectors.sequence.options import SOURCE

__all__ = ["SOURCE", "check_source_place", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The configured source."""
    from scribengin.connectors.sequence.source import SequenceSource

    return SequenceSource(place)


def check_source_place(place: ConnectorContext) -> None:
    """There is no place to check."""

"""Generated rows."""

from scribengin.connectors.contract import ConnectorContext, SourceConnector
from scribengin.connectors.sequence.options import SOURCE

__all__ = ["SOURCE", "look_at_source", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The configured source."""
    from scribengin.connectors.sequence.source import SequenceSource

    return SequenceSource(place)


def look_at_source(place: ConnectorContext) -> None:
    """There is no place to check."""

"""Generated rows."""

from scribengin.connectors.contract import Place, Source
from scribengin.connectors.sequence.options import SOURCE

__all__ = ["SOURCE", "look_at_source", "make_source"]


def make_source(place: Place) -> Source:
    """The configured source."""
    from scribengin.connectors.sequence.source import SequenceSource

    return SequenceSource(place)


def look_at_source(place: Place) -> None:
    """There is no place to check."""

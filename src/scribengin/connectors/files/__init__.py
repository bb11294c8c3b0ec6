"""Files in folders."""

from scribengin.connectors.contract import Place, Sink, Source
from scribengin.connectors.files.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: Place) -> Source:
    """The configured source."""
    from scribengin.connectors.files.source import FilesSource

    return FilesSource(place)


def make_sink(place: Place) -> Sink:
    """The configured sink."""
    from scribengin.connectors.files.sink import FilesSink

    return FilesSink(place)

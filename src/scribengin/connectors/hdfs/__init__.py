"""HDFS: a folder in it as a source, and as a sink; both behave like those of object stores."""

from scribengin.connectors.contract import Place, Sink, Source
from scribengin.connectors.hdfs.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: Place) -> Source:
    """The configured source."""
    from scribengin.connectors.objects.source import ObjectsSource

    return ObjectsSource(place)


def make_sink(place: Place) -> Sink:
    """The configured sink."""
    from scribengin.connectors.objects.sink import ObjectsSink

    return ObjectsSink(place)

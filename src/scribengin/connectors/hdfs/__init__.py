"""HDFS: a folder in it as a source, and as a sink; both behave like those of object stores."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector
from scribengin.connectors.hdfs.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The configured source."""
    from scribengin.connectors.objects.source import ObjectsSource

    return ObjectsSource(place)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """The configured sink."""
    from scribengin.connectors.objects.sink import ObjectsSink

    return ObjectsSink(place)

"""SQLite tables as sources and sinks. What the catalog reads at once: declarations; the code is loaded when a node is built."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector
from scribengin_sqlite.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The configured source."""
    from scribengin_sqlite.source import SqliteSource

    return SqliteSource(place)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """The configured sink."""
    from scribengin_sqlite.sink import SqliteSink

    return SqliteSink(place)

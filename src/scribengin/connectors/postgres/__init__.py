"""PostgreSQL: a table as a source, or as a sink."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector
from scribengin.connectors.postgres.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The configured source."""
    from scribengin.connectors.postgres.source import PostgresSource

    return PostgresSource(place)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """The configured sink."""
    from scribengin.connectors.postgres.sink import PostgresSink, PostgresUnitSink

    return PostgresUnitSink(place) if place.options["visible"] == "unit" else PostgresSink(place)

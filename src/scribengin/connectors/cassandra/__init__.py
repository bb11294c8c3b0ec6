"""Cassandra: a table as a source, or as a sink."""

from scribengin.connectors.cassandra.options import SINK, SOURCE
from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """Create the source from its options."""
    from scribengin.connectors.cassandra.source import CassandraSource

    return CassandraSource(place)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """Create the sink from its options."""
    from scribengin.connectors.cassandra.store import CassandraStore
    from scribengin.connectors.keyed.sink import KeyedSink

    options = place.options
    key = tuple(options["key"]) if options["mode"] == "upsert" else ()
    return KeyedSink(place, CassandraStore(place.node, options, key), key=key, connections=options["connections"])

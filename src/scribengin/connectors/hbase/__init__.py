"""HBase: a table as a source, or as a sink, accessed by a REST server or a Thrift server."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector
from scribengin.connectors.hbase.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """Create the source from its options."""
    from scribengin.connectors.hbase.source import TableSource

    return TableSource(place)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """Create the sink from its options."""
    from scribengin.connectors.hbase.store import HBaseStore
    from scribengin.connectors.keyed.sink import KeyedSink

    options = place.options
    key = tuple(options["key"]) if options["mode"] == "upsert" else ()
    return KeyedSink(place, HBaseStore(place.node, options, key), key=key, connections=options["connections"])

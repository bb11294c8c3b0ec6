"""Cassandra: a table as a source, or as a sink."""

from scribengin.connectors.cassandra.options import SINK, SOURCE
from scribengin.connectors.contract import Place, Sink, Source

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: Place) -> Source:
    """The configured source."""
    from scribengin.connectors.cassandra.source import CassandraSource

    return CassandraSource(place)


def make_sink(place: Place) -> Sink:
    """The configured sink."""
    from scribengin.connectors.cassandra.store import TableStore
    from scribengin.connectors.keyed.sink import KeyedSink

    options = place.options
    key = tuple(options["key"]) if options["mode"] == "upsert" else ()
    return KeyedSink(place, TableStore(place.node, options, key), key=key, connections=options["connections"])

"""OpenSearch: indexes as a sink and as a source."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector
from scribengin.connectors.opensearch.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """Create the source from its options."""
    from scribengin.connectors.opensearch.source import IndexSource
    from scribengin.connectors.opensearch.view import OPENSEARCH

    return IndexSource(place, OPENSEARCH)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """Create the sink from its options."""
    from scribengin.connectors.keyed.sink import KeyedSink
    from scribengin.connectors.opensearch.store import IndexStore

    options = place.options
    key = tuple(options["key"]) if options["mode"] == "upsert" else ()
    store = IndexStore(place.node, options)
    return KeyedSink(place, store, key=key, connections=options["connections"], parts=store.by_time, brief=True)

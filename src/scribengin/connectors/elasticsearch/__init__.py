"""Elasticsearch: indexes as a sink and as a source. Requests are the same as for OpenSearch, except for opening a point in time."""

from scribengin.connectors.contract import ConnectorContext, SourceConnector
from scribengin.connectors.opensearch import make_sink
from scribengin.connectors.opensearch.options import sink_type, source_type

SOURCE = source_type("elasticsearch", "Elasticsearch")
SINK = sink_type("elasticsearch", "Elasticsearch")

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """Create the source from its options."""
    from scribengin.connectors.opensearch.source import IndexSource
    from scribengin.connectors.opensearch.view import ELASTICSEARCH

    return IndexSource(place, ELASTICSEARCH)

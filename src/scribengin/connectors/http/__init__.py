"""HTTP requests as a sink."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector
from scribengin.connectors.http.options import SINK

__all__ = ["SINK", "make_sink"]


def make_sink(place: ConnectorContext) -> SinkConnector:
    """Create the sink from its options."""
    from scribengin.connectors.http.sink import HttpSink

    return HttpSink(place)

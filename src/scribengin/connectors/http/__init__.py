"""HTTP requests as a sink."""

from scribengin.connectors.contract import Place, Sink
from scribengin.connectors.http.options import SINK

__all__ = ["SINK", "make_sink"]


def make_sink(place: Place) -> Sink:
    """The configured sink."""
    from scribengin.connectors.http.sink import HttpSink

    return HttpSink(place)

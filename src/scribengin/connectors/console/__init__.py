"""The terminal as a sink."""

from scribengin.connectors.console.options import SINK
from scribengin.connectors.contract import Place, Sink

__all__ = ["SINK", "make_sink"]


def make_sink(place: Place) -> Sink:
    """The configured sink."""
    from scribengin.connectors.console.sink import ConsoleSink

    return ConsoleSink(place)

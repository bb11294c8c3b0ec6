"""A small table of results as a sink."""

from scribengin.connectors.contract import Place, Sink
from scribengin.connectors.summary.options import SINK

__all__ = ["SINK", "make_sink"]


def make_sink(place: Place) -> Sink:
    """The configured sink."""
    from scribengin.connectors.summary.sink import SummarySink

    return SummarySink(place)

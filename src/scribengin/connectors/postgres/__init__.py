"""PostgreSQL: a table as a sink."""

from scribengin.connectors.contract import Place, Sink
from scribengin.connectors.postgres.options import SINK

__all__ = ["SINK", "make_sink"]


def make_sink(place: Place) -> Sink:
    """The configured sink."""
    from scribengin.connectors.postgres.sink import PostgresSink

    return PostgresSink(place)

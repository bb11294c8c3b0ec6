"""The terminal as a sink."""

from scribengin.connectors.console.options import SINK
from scribengin.connectors.contract import Claimant, ConnectorContext, SinkConnector

__all__ = ["SINK", "check_sink_place", "make_sink"]


def make_sink(place: ConnectorContext) -> SinkConnector:
    """Create the sink from its options."""
    from scribengin.connectors.console.sink import ConsoleSink

    return ConsoleSink(place)


def check_sink_place(place: ConnectorContext, claimant: Claimant | None) -> bool:  # noqa: ARG001 (see the catalog)
    """Returns True without a check: a terminal is not a place with contents."""
    return True

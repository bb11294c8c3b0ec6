"""A small table of results as a sink."""

from scribengin.connectors.contract import Claimant, ConnectorContext, SinkConnector
from scribengin.connectors.summary.options import SINK

__all__ = ["SINK", "check_sink_place", "make_sink"]


def make_sink(place: ConnectorContext) -> SinkConnector:
    """Create the sink from its options."""
    from scribengin.connectors.summary.sink import SummarySink

    return SummarySink(place)


def check_sink_place(place: ConnectorContext, claimant: Claimant | None) -> bool:  # noqa: ARG001 (see the catalog)
    """Returns True without a check: the table is part of the flow's own state."""
    return True

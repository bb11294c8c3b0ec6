"""Records that agents collect on their hosts, and send over gateways to a channel. See `connectors.agents.contract`."""

from scribengin.connectors.agents.options import SOURCE
from scribengin.connectors.contract import ConnectorContext, SourceConnector

__all__ = ["SOURCE", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The reading end of the channel."""
    from scribengin.connectors.agents.source import AgentsSource

    return AgentsSource(place)

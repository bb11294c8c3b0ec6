"""Any batch writer of Spark as a sink."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector
from scribengin.connectors.spark.options import SINK

__all__ = ["SINK", "make_sink"]


def make_sink(place: ConnectorContext) -> SinkConnector:
    """Create the sink from its options."""
    from scribengin.connectors.spark.sink import SparkWriterSink

    return SparkWriterSink(place)

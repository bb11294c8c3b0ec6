"""Kafka: topics as sources and as sinks."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector
from scribengin.connectors.kafka.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """Create the source from its options."""
    from scribengin.connectors.kafka.source import KafkaSource

    return KafkaSource(place)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """Create the sink from its options: Scribengin's own, or Spark's for `delivery: at_least_once`."""
    if place.delivery == "at_least_once":
        from scribengin.connectors.kafka.spark_sink import SparkKafkaSink

        return SparkKafkaSink(place)
    from scribengin.connectors.kafka.sink import KafkaSink

    return KafkaSink(place)

"""Kafka: topics as sources and as sinks."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector
from scribengin.connectors.kafka.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The configured source."""
    from scribengin.connectors.kafka.source import KafkaSource

    return KafkaSource(place)


def make_sink(place: ConnectorContext) -> SinkConnector:
    """The configured sink: Scribengin's own, or Spark's if only `at_least_once` is requested."""
    if place.delivery == "at_least_once":
        from scribengin.connectors.kafka.spark_sink import SparkKafkaSink

        return SparkKafkaSink(place)
    from scribengin.connectors.kafka.sink import KafkaSink

    return KafkaSink(place)

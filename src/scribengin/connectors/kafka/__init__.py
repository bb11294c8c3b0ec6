"""Kafka: topics as sources and as sinks."""

from scribengin.connectors.contract import Place, Sink, Source
from scribengin.connectors.kafka.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: Place) -> Source:
    """The configured source."""
    from scribengin.connectors.kafka.source import KafkaSource

    return KafkaSource(place)


def make_sink(place: Place) -> Sink:
    """The configured sink: Scribengin's own, or Spark's if only `at_least_once` is requested."""
    if place.delivery == "at_least_once":
        from scribengin.connectors.kafka.spark_sink import SparkKafkaSink

        return SparkKafkaSink(place)
    from scribengin.connectors.kafka.sink import KafkaSink

    return KafkaSink(place)

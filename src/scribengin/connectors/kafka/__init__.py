"""Kafka: topics as sources."""

from scribengin.connectors.contract import Place, Source
from scribengin.connectors.kafka.options import SOURCE

__all__ = ["SOURCE", "make_source"]


def make_source(place: Place) -> Source:
    """The configured source."""
    from scribengin.connectors.kafka.source import KafkaSource

    return KafkaSource(place)

"""The broker of the Kafka tests, for channels that are topics."""

from tests.kafka.conftest import cluster, topics

__all__ = ["cluster", "topics"]

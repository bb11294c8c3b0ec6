"""The broker of the Kafka tests, for channels that are topics."""

from tests.connectors.kafka.conftest import cluster, pytest_runtest_teardown, shared_cluster, shared_topics, topics

__all__ = ["cluster", "pytest_runtest_teardown", "shared_cluster", "shared_topics", "topics"]

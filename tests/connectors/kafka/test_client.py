"""What the client says, and what is made of it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from scribengin.connectors.kafka.client import passes


@pytest.mark.parametrize(
    "code",
    [KafkaError._DESTROY_BROKER, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION],
    ids=lambda code: KafkaError(code).name(),
)
def test_a_broker_that_leaves_the_cluster_is_waited_for(code: int) -> None:
    assert passes(KafkaError(code))


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._FATAL])
def test_what_no_wait_mends_is_told_at_once(code: int) -> None:
    assert not passes(KafkaError(code))

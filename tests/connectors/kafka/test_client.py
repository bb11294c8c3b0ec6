"""What the client of the brokers asks again, and what it reports at once."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from scribengin.connectors.kafka import client
from scribengin.connectors.kafka.client import KafkaBrokers
from scribengin.core.errors import Unreachable


class Offset:
    offset = 7


class Admin:
    """Answers to questions for offsets, in turn: an error's code, or None for an offset."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    def poll(self, _timeout: float) -> int:
        return 0

    def list_offsets(self, request: dict[TopicPartition, Any], **_settings: Any) -> dict[TopicPartition, Future[Any]]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        future: Future[Any] = Future()
        if answer is None:
            future.set_result(Offset())
        else:
            future.set_exception(KafkaException(KafkaError(answer)))
        return dict.fromkeys(request, future)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> KafkaBrokers:
    monkeypatch.setattr(client, "_ELECTED_AFTER_S", 0.0)
    return KafkaBrokers("out", {"bootstrap": "127.0.0.1:1", "timeout": 60.0, "config": {}}, "sink")


def test_a_partition_without_a_leader_is_asked_again(cluster: KafkaBrokers) -> None:
    admin = Admin(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, None)
    vars(cluster)["_admin"] = admin
    assert cluster.first([("t", 0)]) == {("t", 0): 7}
    assert admin.asked == 3


def test_it_is_reported_where_the_time_is_over(cluster: KafkaBrokers) -> None:
    vars(cluster)["_admin"] = Admin(KafkaError.NOT_LEADER_FOR_PARTITION)
    cluster._timeout_s = -1.0
    with pytest.raises(Unreachable):
        cluster.first([("t", 0)])


def test_another_error_is_reported_at_once(cluster: KafkaBrokers) -> None:
    admin = Admin(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    vars(cluster)["_admin"] = admin
    with pytest.raises(Exception, match="is not authorized"):
        cluster.first([("t", 0)])
    assert admin.asked == 1

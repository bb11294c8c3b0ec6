"""A broker that asks who comes: a reader's login, setting or right that is wrong is told as such."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from scribengin.core.errors import SourceError
from tests.kafka.guarded import WRONG
from tests.kafka.test_source import within

if TYPE_CHECKING:
    from tests.kafka.guarded import Guarded


@pytest.fixture
def topic(guarded: Guarded) -> str:
    """A topic that the user has no right to."""
    return guarded.topics.make(name=f"closed{time.monotonic_ns()}")


@pytest.mark.parametrize(
    ("changed", "code", "told"),
    [
        ({"sasl.password": WRONG}, "kafka-login", "do not let this user in: .*Invalid username or password"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "kafka-login", "supported mechanisms: PLAIN"),
        ({"sasl.user": "ann"}, "kafka-config", 'No such configuration property: "sasl.user"'),
        ({}, "kafka-forbidden", r"Topic authorization failed \(topic closed"),
    ],
)
def test_what_keeps_a_user_out_is_told_as_such(
    guarded: Guarded, topic: str, open_source: Any, changed: dict[str, str], code: str, told: str
) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        open_source(topic, bootstrap=guarded.users, config=guarded.login() | changed, timeout=5.0)
    assert caught.value.code == code
    assert WRONG not in str(caught.value)


def test_a_reader_needs_no_right_but_read_on_the_topic(guarded: Guarded, topic: str, open_source: Any) -> None:
    guarded.topics.write(topic, range(3))
    guarded.grant(ResourceType.TOPIC, topic, AclOperation.READ)
    reading: list[Any] = []

    def opened() -> bool:
        with suppress(SourceError):
            reading.append(open_source(topic, bootstrap=guarded.users, config=guarded.login()))
        return bool(reading)

    within(30, opened)  # brokers learn of a right in a moment
    streams = reading[0].take()
    assert reading[0].ids(streams) == [0, 1, 2]
    # without a right on the group lag tools see nothing; nobody waits for that
    reading[0].reader.committed(streams, query="f.q")
    begun_s = time.monotonic()
    reading[0].reader._committer.close()
    assert time.monotonic() - begun_s < 20
    guarded.withdraw(ResourceType.ANY, None)

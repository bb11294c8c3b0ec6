"""Names, passwords and ACLs: what a source may do, and what it says when it may not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from harness.broker_proxy import LIST_OFFSETS, Rule
from scribengin.core.errors import SourceError, Unreachable
from tests.connectors.kafka.guarded import WRONG, answered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.connectors.kafka.guarded import Guarded


@pytest.fixture
def topic(guarded: Guarded) -> Iterator[str]:
    name = guarded.topics.make()
    yield name
    guarded.withdraw(ResourceType.ANY, None)


@pytest.mark.parametrize(
    ("config", "code", "told"),
    [
        ({"sasl.password": WRONG}, "kafka-login", "rejected the login of this user: .*Invalid username or password"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "kafka-login", "supported mechanisms: PLAIN"),
        ({"sasl.user": "ann"}, "kafka-config", 'No such configuration property: "sasl.user"'),
        ({}, "kafka-forbidden", r"Topic authorization failed \(topic topic-\d+\)"),
    ],
)
def test_what_keeps_a_user_out_is_told_as_such(guarded: Guarded, open_source: Any, config: dict[str, str], code: str, told: str) -> None:
    name = guarded.topics.make()
    with pytest.raises(SourceError, match=told) as caught:
        answered(lambda: open_source(name, bootstrap=guarded.users, config=guarded.login() | config, timeout=1.0))
    assert caught.value.code == code


def test_a_reader_needs_no_right_but_read_on_the_topic(guarded: Guarded, topic: str, open_source: Any) -> None:
    guarded.topics.write(topic, range(3))
    guarded.grant(ResourceType.TOPIC, topic, AclOperation.READ)
    reading = open_source(topic, bootstrap=guarded.users, config=guarded.login())
    streams = reading.take()
    assert reading.ids(streams) == [0, 1, 2]
    # without a right on the group lag tools see nothing; nobody waits for that
    reading.reader.committed(streams, query="f.q")
    begun_s = time.monotonic()
    reading.reader._committer.close()
    assert time.monotonic() - begun_s < 60


def test_a_link_that_swallows_what_is_asked_is_no_log_that_was_cut(guarded: Guarded, open_source: Any) -> None:
    """The client's library says "offset -1001" of a partition whose leader has not answered in time."""
    topic = guarded.topics.make()
    guarded.topics.write(topic, range(3))
    reading = open_source(topic, bootstrap=guarded.proxied, timeout=1.0)
    assert reading.ids(reading.take()) == [0, 1, 2]
    reader = reading.source.reader()
    rule = guarded.proxy.add(Rule("hold", LIST_OFFSETS, topic.encode()))
    try:
        for asked in (reader.measure, lambda: reading.reader._cluster.first(reading.reader._partitions)):
            with pytest.raises(Unreachable, match=r"the leader of topic-\d+-0 at .* did not return its offsets within 1 s"):
                asked()
    finally:
        guarded.proxy.lift(rule)
    assert answered(reader.measure).rows == 3

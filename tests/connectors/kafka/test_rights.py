"""Names, passwords, TLS and ACLs: what a sink may do, what it says when it may not, and that no secret is in it."""

from __future__ import annotations

import traceback
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.connectors.kafka.transaction import Transaction
from scribengin.core.errors import SinkError
from scribengin.core.secret import Secret
from tests.connectors.kafka.guarded import PASSWORD, WRONG, answered
from tests.connectors.kafka.test_sink import ROWS, claimed, decided, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.connectors.kafka.guarded import Guarded

_numbers = count()


@pytest.fixture
def topic(guarded: Guarded) -> Iterator[str]:
    """A topic that the user "writer" may write to, with markers and transactions that begin with its name."""
    name = guarded.topics.make(name=f"guarded{next(_numbers)}x")
    guarded.grant(ResourceType.TOPIC, name, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    guarded.grant(ResourceType.TOPIC, f"{name}-markers", AclOperation.READ, AclOperation.CREATE)
    guarded.grant(ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE, AclOperation.DESCRIBE)
    yield name
    guarded.withdraw(ResourceType.ANY, None)


@pytest.fixture
def sink(guarded: Guarded, topic: str, tmp_path: Path) -> Callable[..., KafkaSink]:
    def make(**options: Any) -> KafkaSink:
        given = {
            "bootstrap": guarded.users,
            "topic": topic,
            "format": "json",
            "timeout": 10.0,
            "markers": f"{topic}-markers",
            "config": guarded.login(),
            **options,
        }
        return KafkaSink(ConnectorContext("out", tmp_path, given, flow="f", version="0123456789", work=tmp_path / "work"))

    return make


def complete(guarded: Guarded, sink: KafkaSink) -> None:
    """Return when what is committed can be seen."""
    Transaction("out", sink._options | {"bootstrap": guarded.bootstrap, "config": {}}, f"{sink._markers.name}-0").fence()


def test_the_rights_that_are_named_are_enough(guarded: Guarded, topic: str, sink: Callable[..., KafkaSink]) -> None:
    out = claimed(sink())
    batches = [decided(out, 0, ROWS)]
    out.publish(batches[0])
    complete(guarded, out)
    assert len(read(guarded.topics, topic)) == len(ROWS)


def test_tls_with_a_password_passes_through(guarded: Guarded, topic: str, sink: Callable[..., KafkaSink]) -> None:
    login = guarded.login() | {"security.protocol": "SASL_SSL"}
    out = claimed(sink(bootstrap=guarded.tls, config=login | {"ssl.ca.location": str(guarded.ca)}))
    out.publish(decided(out, 0, ROWS))
    complete(guarded, out)
    assert len(read(guarded.topics, topic)) == len(ROWS)
    with pytest.raises(SinkError, match="rejected the login of this user") as caught:
        answered(lambda: claimed(sink(bootstrap=guarded.tls, config=login, timeout=1.0)))
    assert caught.value.code == "kafka-login"


@pytest.mark.parametrize(
    ("kind", "end", "operation"),
    [
        (ResourceType.TOPIC, "", AclOperation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, "", AclOperation.WRITE),
        (ResourceType.TOPIC, "-markers", AclOperation.READ),
        (ResourceType.TOPIC, "", AclOperation.DESCRIBE_CONFIGS),
    ],
)
def test_a_right_that_is_lost_on_the_way_stops_the_sink_until_it_is_granted(
    kind: Any, end: str, operation: Any, guarded: Guarded, topic: str, sink: Callable[..., KafkaSink]
) -> None:
    out = claimed(sink())
    batch = decided(out, 0, ROWS)
    guarded.withdraw(kind, topic + end, operation)
    with pytest.raises(SinkError, match="this user is not authorized") as caught:
        claimed(sink()) if operation is AclOperation.DESCRIBE_CONFIGS else out.publish(batch)
    assert caught.value.code == "kafka-forbidden"
    assert operation.name.replace("_", "").lower() in caught.value.remedy.lower()
    assert read(guarded.topics, topic) == []
    guarded.grant(kind, topic + end, operation)
    again = claimed(sink())
    again.publish(batch)
    complete(guarded, again)
    assert len(read(guarded.topics, topic)) == len(ROWS)


def test_a_right_that_is_lost_before_the_commit_leaves_nothing(guarded: Guarded, topic: str, sink: Callable[..., KafkaSink]) -> None:
    out = claimed(sink())
    batch = decided(out, 0, ROWS)

    class Withdrawing(Transaction):
        def flush(self) -> list[dict[str, Any]]:
            acknowledged = super().flush()
            guarded.withdraw(ResourceType.TRANSACTIONAL_ID, topic, AclOperation.WRITE)
            return acknowledged

    transaction = out._transaction
    out._transaction = lambda slot: Withdrawing("out", out._options, f"{out._markers.name}-{slot}")  # type: ignore[method-assign]
    with pytest.raises(SinkError, match="this user is not authorized"):
        out.publish(batch)
    out._transaction = transaction  # type: ignore[method-assign]
    guarded.grant(ResourceType.TRANSACTIONAL_ID, topic, AclOperation.WRITE)
    out.publish(batch)
    complete(guarded, out)
    assert len(read(guarded.topics, topic)) == len(ROWS)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_wrong_password_is_told_and_not_shown(protocol: str, guarded: Guarded, topic: str, sink: Callable[..., KafkaSink]) -> None:
    login = guarded.login() | {"security.protocol": protocol, "ssl.ca.location": str(guarded.ca)}
    place = {"bootstrap": guarded.tls if protocol == "SASL_SSL" else guarded.users}
    right = claimed(sink(**place, config=login))
    wrong = sink(**place, timeout=1.0, config=login | {"sasl.password": Secret(WRONG, "${secret:env/PASSWORD}")})
    said = []
    for act in (lambda: claimed(wrong), lambda: wrong._transaction(0).fence()):
        with pytest.raises(SinkError, match="rejected the login of this user") as caught:
            answered(act)
        assert caught.value.code == "kafka-login"
        assert "sasl.password" in caught.value.remedy
        said += [*traceback.format_exception(caught.value), repr(caught.value), f"{wrong._options}"]
    assert not [line for line in said if WRONG in line or PASSWORD in line]
    assert right.behind

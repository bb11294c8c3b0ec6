"""A broker that asks who comes: a login, a setting or a right that is wrong is told as such."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from scribengin.core.errors import SourceError
from scribengin.embedded.java_server import free_ports
from scribengin.embedded.kafka import KafkaCluster
from tests.kafka.conftest import Topics
from tests.kafka.test_source import within

if TYPE_CHECKING:
    from collections.abc import Iterator


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "right"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaCluster, str]]:
    """A broker that asks who comes at its second address, and lets ann do nothing."""
    cluster = KafkaCluster(tmp_path_factory.mktemp("guarded"))
    (port,) = free_ports(1)
    own = KafkaCluster(cluster.folder).bootstrap
    controller = json.loads((cluster.folder / "cluster.json").read_text())["nodes"][0]["controller_port"]
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann=right;"
    properties = {
        "listeners": f"PLAINTEXT://{own},CONTROLLER://127.0.0.1:{controller},CLIENT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaCluster(cluster.folder, properties=properties) as started:
        yield started, f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("config", "code", "told"),
    [
        (SASL | {"sasl.password": "wrong"}, "kafka-login", "do not let this user in: .*Invalid username or password"),
        (SASL | {"sasl.mechanism": "SCRAM-SHA-256"}, "kafka-login", "supported mechanisms: PLAIN"),
        (SASL | {"sasl.user": "ann"}, "kafka-config", 'No such configuration property: "sasl.user"'),
        (SASL, "kafka-forbidden", r"Topic authorization failed \(topic guarded\)"),
    ],
)
def test_what_keeps_a_user_out_is_told_as_such(
    guarded: tuple[KafkaCluster, str], open_source: Any, config: dict[str, str], code: str, told: str
) -> None:
    cluster, address = guarded
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    if "guarded" not in admin.list_topics(timeout=30).topics:
        Topics(cluster.bootstrap, admin).make(name="guarded")
    with pytest.raises(SourceError, match=told) as caught:
        open_source("guarded", bootstrap=address, config=config, timeout=5.0)
    assert caught.value.code == code


def test_a_reader_needs_no_right_but_read_on_the_topic(guarded: tuple[KafkaCluster, str], open_source: Any) -> None:
    cluster, address = guarded
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    hands = Topics(cluster.bootstrap, admin)
    name = hands.make(name="readable")
    hands.write(name, range(3))
    right = AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW)
    admin.create_acls([right])[right].result(30)
    reading: list[Any] = []

    def opened() -> bool:
        with suppress(SourceError):
            reading.append(open_source(name, bootstrap=address, config=SASL))
        return bool(reading)

    within(30, opened)  # brokers learn of a right in a moment
    streams = reading[0].take()
    assert reading[0].ids(streams) == [0, 1, 2]
    # without a right on the group lag tools see nothing; nobody waits for that
    reading[0].reader.committed(streams, query="f.q")
    begun_s = time.monotonic()
    reading[0].reader._committer.close()
    assert time.monotonic() - begun_s < 20

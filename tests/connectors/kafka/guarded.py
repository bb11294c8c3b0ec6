"""A broker with more doors: through a proxy, with names and passwords, and with those over TLS; each user may do what ACLs say."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from harness.broker_proxy import BrokerProxy
from scribengin.core.errors import Unreachable
from scribengin.core.process import within
from scribengin.core.secret import Secret
from scribengin.embedded.kafka import KafkaCluster
from scribengin.embedded.server import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.connectors.kafka.conftest import Topics

PASSWORD, WRONG = "a-password-that-nobody-may-read", "a-wrong-one-that-nobody-may-read"
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Guarded:
    """`bootstrap` is for a user who may do all; that of `users` and `tls` for the user "writer", whose rights are `grant`ed."""

    cluster: KafkaCluster
    proxy: BrokerProxy
    topics: Topics
    proxied: str
    users: str
    tls: str
    ca: Path

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def login(self) -> dict[str, Any]:
        name = {"sasl.mechanism": "PLAIN", "sasl.username": "writer", "sasl.password": Secret(PASSWORD, "${secret:env/PASSWORD}")}
        return {"security.protocol": "SASL_PLAINTEXT", **name}

    def grant(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        asked = [
            AclBinding(kind, name, ResourcePatternType.PREFIXED, "User:writer", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        for future in self.topics.admin.create_acls(asked).values():
            future.result(60)
        for operation in operations:
            self._await(_every(kind, name, operation), there=True)

    def withdraw(self, kind: ResourceType, name: str | None, operation: AclOperation = AclOperation.ANY) -> None:
        every = _every(kind, name, operation)
        for future in self.topics.admin.delete_acls([every]).values():
            assert future.result(60)
        self._await(every, there=False)

    def _await(self, every: AclBindingFilter, *, there: bool) -> None:
        """Brokers hear of it a moment later."""
        assert within(120, lambda: bool(self.topics.admin.describe_acls(every).result(60)) == there)

    def alter(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for future in self.topics.admin.incremental_alter_configs([resource]).values():
            future.result(60)

        def known() -> bool:
            (found,) = self.topics.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
            return bool(found.result(60)[name].value == value)

        assert within(120, known)

    def end(self, topic: str, *, committed: bool = False) -> int:
        """The offset behind the last record of partition 0, committed or not, control records included. `committed`: up to where
        transactions have ended."""
        place, level = TopicPartition(topic, 0), IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = self.topics.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)
        return int(asked[place].result(60).offset)


def answered(act: Callable[[], Any], *also: type[Exception]) -> Any:
    """What `act` comes to, which gives brokers a short time: where that was too short for the machine, it is done again. `also`: what else
    may come of that."""
    for _ in range(60):
        with suppress(Unreachable, *also):
            return act()
    raise AssertionError("no broker has answered in time")


def _every(kind: ResourceType, name: str | None, operation: AclOperation) -> AclBindingFilter:
    return AclBindingFilter(kind, name, ResourcePatternType.ANY, None, None, operation, AclPermissionType.ANY)


def certificate(folder: Path) -> Path:
    """Of 127.0.0.1, signed by itself; returns it. `broker.pem` beside it has the key, too."""
    key, found, both = folder / "key.pem", folder / "ca.pem", folder / "broker.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker"]
    subprocess.run(
        [*command, "-addext", f"subjectAltName=IP:{HOST}", "-keyout", key, "-out", found], check=True, capture_output=True, timeout=60
    )
    both.write_bytes(key.read_bytes() + found.read_bytes())
    return found


@contextmanager
def start_guarded(folder: Path, make_topics: Callable[[str, Any], Topics]) -> Iterator[Guarded]:
    bootstrap = KafkaCluster(folder / "kafka").bootstrap
    (node,) = json.loads((folder / "kafka/cluster.json").read_text())["nodes"]
    proxied, internal, users, tls = free_ports(4)
    ca = certificate(folder)
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_writer="{PASSWORD}";'
    with BrokerProxy() as proxy:
        properties = {
            "auto.create.topics.enable": "false",
            "listeners": f"PLAINTEXT://{bootstrap},PROXIED://{HOST}:{proxied},INTERNAL://{HOST}:{internal},USERS://{HOST}:{users},"
            f"TLS://{HOST}:{tls},CONTROLLER://{HOST}:{node['controller_port']}",
            "advertised.listeners": f"PLAINTEXT://{bootstrap},PROXIED://{HOST}:{proxy.before(proxied)},"
            f"INTERNAL://{HOST}:{proxy.before(internal)},USERS://{HOST}:{users},TLS://{HOST}:{tls}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,INTERNAL:PLAINTEXT,USERS:SASL_PLAINTEXT,TLS:SASL_SSL,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.users.plain.sasl.jaas.config": jaas,
            "listener.name.tls.plain.sasl.jaas.config": jaas,
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(folder / "broker.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            # transactions that have come to their time-out are looked for so often
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
        }
        with KafkaCluster(folder / "kafka", properties=properties) as cluster:
            topics = make_topics(bootstrap, AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}))
            yield Guarded(cluster, proxy, topics, f"{HOST}:{proxied}", f"{HOST}:{users}", f"{HOST}:{tls}", ca)


@dataclass
class Beside:
    """Something that goes on in a thread; `result` waits for what it came to."""

    act: Callable[[], Any]
    found: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.found.append(self.act())
        except Exception as error:
            self.found.append(error)

    def result(self) -> Any:
        self.thread.join(240)
        assert self.found, "it has not ended"
        return self.found[0]

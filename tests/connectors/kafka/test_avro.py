"""Avro from Kafka: which schema a value was written by, and what a registry's silence means."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import Producer

from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.kafka.schema_registry import SchemaRegistry
from scribengin.connectors.kafka.source import KafkaSource
from scribengin.core.errors import EnvironmentFault, SourceError, Unreachable
from scribengin.core.secret import Secret
from scribengin.core.types import parse_schema
from scribengin.formats.messages import MessageBlock
from tests.connectors.kafka.guarded import answered
from tests.connectors.kafka.processes import SCRIBENGIN, rows_in, said, scribengin, started, within
from tests.connectors.kafka.registry_server import LOGIN

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.kafka import KafkaCluster
    from scribengin.formats.messages import MessageDecoder
    from tests.connectors.kafka.registry_server import RegistryServer

ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "user", "type": ["null", "string"]}]}
)


def encoded(text: str, **values: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), values)
    return out.getvalue()


def wire(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def block(*values: bytes) -> MessageBlock:
    return MessageBlock("orders", 0, values, range(len(values)))


@pytest.fixture
def decoder(tmp_path: Path) -> Any:
    def made(schema: str = "id BIGINT NOT NULL, user STRING", **options: Any) -> MessageDecoder:
        given = {"bootstrap": "nowhere:9", "topics": ("orders",), "format": "avro", **options}
        return KafkaSource(ConnectorContext("orders", tmp_path, given, parse_schema(schema))).decoder()

    return made


def test_a_registry_is_asked_once_for_each_schema(registry: RegistryServer, decoder: Any) -> None:
    one = registry.add("orders-value", ORDER)
    value = wire(one, encoded(ORDER, id=1, user="a"))
    for _ in range(3):
        assert decoder(registry=registry.url).rows(block(value, value)).rows == [{"id": 1, "user": "a"}] * 2
    assert registry.asked == [f"/schemas/ids/{one}"]


def test_what_a_registry_does_not_know_or_no_value_can_be_is_a_dead_letter(registry: RegistryServer, decoder: Any) -> None:
    one = registry.add("orders-value", ORDER)
    proto = registry.add("other", 'syntax = "proto3";', schemaType="PROTOBUF")
    text = registry.add("text", '"string"')
    broken = registry.add("broken", "{")
    good = wire(one, encoded(ORDER, id=1, user="a"))
    found = decoder(registry=registry.url).rows(block(good, wire(99, b"\0"), wire(proto, b""), wire(text, b""), wire(broken, b""), good))
    assert [(bad.ordinal, bad.reason) for bad in found.bad] == [(ordinal, "unknown-schema") for ordinal in (1, 2, 3, 4)]
    assert f"schema 99, which {registry.url} does not have" in found.bad[0].message
    assert "which is PROTOBUF, not Avro" in found.bad[1].message
    assert "expected a record" in found.bad[2].message
    assert len(found.rows) == 2


def test_a_schema_that_names_others_is_put_together_from_them(registry: RegistryServer, decoder: Any) -> None:
    place = json.dumps({"type": "record", "name": "shop.Place", "fields": [{"name": "city", "type": "string"}]})
    person = json.dumps({"type": "record", "name": "shop.Person", "fields": [{"name": "home", "type": "shop.Place"}]})
    sale = json.dumps(
        {"type": "record", "name": "shop.Sale", "fields": [{"name": "at", "type": "Place"}, {"name": "by", "type": "Person"}]}
    )
    registry.add("place", place)
    named = [{"name": "shop.Place", "subject": "place", "version": 1}]
    registry.add("person", person, references=named)
    last = registry.add("sale", sale, references=[*named, {"name": "shop.Person", "subject": "person", "version": 1}])
    made = decoder("at STRUCT<city: STRING>, by STRUCT<home: STRUCT<city: STRING>>", registry=registry.url)
    found = made.rows(block(wire(last, b"\x02a\x02b")))
    assert found.rows == [{"at": {"city": "a"}, "by": {"home": {"city": "b"}}}]


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_registry_that_does_not_answer_is_no_dead_letter(registry: RegistryServer, decoder: Any, status: int) -> None:
    one = registry.add("orders-value", ORDER)
    value = wire(one, encoded(ORDER, id=1, user="a"))
    made = decoder(registry=registry.url, timeout=1.0)
    registry.broken = status
    with pytest.raises(Unreachable, match="does not answer within 1 s"):
        made.rows(block(value))
    registry.broken = 0
    assert answered(lambda: made.rows(block(value))).rows == [{"id": 1, "user": "a"}]


def test_a_registry_that_is_away_is_no_dead_letter(registry: RegistryServer, decoder: Any) -> None:
    made = decoder(registry=registry.url, timeout=1.0)
    registry.stop()
    try:
        with pytest.raises(Unreachable):
            made.columns(block(wire(1, b"")))
    finally:
        registry.__enter__()  # the fixture stops it once more


def test_a_registry_that_is_silent_is_no_dead_letter(registry: RegistryServer, decoder: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made = decoder(registry=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)
        begun_s = time.monotonic()
        with pytest.raises(Unreachable, match="does not answer"):
            made.rows(block(wire(1, b"")))
        assert time.monotonic() - begun_s < 60


def test_a_registry_lets_in_who_has_the_login(registry: RegistryServer, decoder: Any) -> None:
    one = registry.add("orders-value", ORDER)
    value = wire(one, encoded(ORDER, id=1, user="a"))
    registry.login = True
    with pytest.raises(SourceError, match="rejected the login of this user") as caught:
        decoder(registry=registry.url).rows(block(value))
    assert (caught.value.code, type(caught.value)) == ("registry-login", SourceError)
    login = {"basic.auth.user.info": Secret(LOGIN, "${secret:env/LOGIN}"), "max.retries": "0"}
    assert decoder(registry=registry.url, registry_config=login).rows(block(value)).rows == [{"id": 1, "user": "a"}]


def test_another_server_is_no_registry(registry: RegistryServer, decoder: Any) -> None:
    with pytest.raises(SourceError, match="gave an answer that is not from a schema registry") as caught:
        decoder(registry=f"{registry.url}/elsewhere").rows(block(wire(1, b"")))
    assert type(caught.value) is SourceError


def test_a_schema_can_be_registered_and_the_newest_be_found(registry: RegistryServer) -> None:
    made = SchemaRegistry("out", {"registry": registry.url, "registry_config": {}, "timeout": 5.0})
    assert made.latest("orders-value") is None
    one = made.register("orders-value", ORDER)
    assert (one, made.register("orders-value", ORDER)) == (1, 1)
    found = made.latest("orders-value")
    assert found is not None
    assert (found[0], [field["name"] for field in found[1].root["fields"]]) == (1, ["id", "user"])


def test_schemas_may_come_from_files(decoder: Any, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/order.avsc").write_text(ORDER)
    value = encoded(ORDER, id=1, user=None)
    assert decoder(avro_schema="schemas/order.avsc").rows(block(value)).rows == [{"id": 1, "user": None}]
    found = decoder(avro_schemas={"7": "schemas/order.avsc"}).rows(block(wire(7, value), wire(8, value), value))
    assert found.rows == [{"id": 1, "user": None}]
    assert [(bad.ordinal, bad.reason) for bad in found.bad] == [(1, "unknown-schema"), (2, "malformed")]
    assert "schema 8, which avro_schemas does not have; it has 7" in found.bad[0].message


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "has none of them; expected one of registry, avro_schemas, avro_schema"),
        ({"registry": "http://r:1", "avro_schema": "a.avsc"}, "has registry and avro_schema; expected one"),
        ({"avro_schemas": {"1": "a.avsc"}, "avro_schema": "a.avsc"}, "has avro_schemas and avro_schema"),
        ({"avro_schema": "a.avsc", "registry_config": {"proxy": "x"}}, "has registry_config, but reads its schemas from avro_schema"),
        ({"avro_schema": "missing.avsc"}, "missing.avsc cannot be read"),
        ({"avro_schema": "broken.avsc"}, "broken.avsc is not a valid Avro schema"),
        ({"avro_schemas": {"one": "a.avsc"}}, 'the id "one"; expected a 32-bit number'),
        ({"avro_schemas": {"4294967296": "a.avsc"}}, 'the id "4294967296"; expected a 32-bit number'),
        ({"avro_schema": "other.avsc"}, 'this Avro schema does not fit the columns: field "id" is missing or null'),
        ({"registry": "r:8081"}, "registry is not an address of a schema registry, or contains a login"),
        ({"registry": "http://user:pass@r:8081"}, "registry is not an address of a schema registry, or contains a login"),
        ({"registry": "http://r:8081", "registry_config": {"nonsense": "1"}}, "rejected its settings: Unrecognized properties"),
        ({"registry": "http://r:8081", "registry_config": {"timeout": "soon"}}, "rejected its settings"),
    ],
)
def test_options_that_mean_nothing_are_told(decoder: Any, tmp_path: Path, options: dict[str, Any], told: str) -> None:
    (tmp_path / "a.avsc").write_text(ORDER)
    (tmp_path / "broken.avsc").write_text("{")
    (tmp_path / "other.avsc").write_text(ORDER.replace('"id"', '"number"'))
    with pytest.raises(SourceError) as caught:
        decoder(**options)
    assert told in caught.value.message
    assert 'source "orders"' in caught.value.message
    assert "pass@" not in str(caught.value)


def test_without_the_registrys_packages_the_extra_is_named(decoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(EnvironmentFault) as caught:
        decoder(registry="http://nowhere:1")
    assert (caught.value.code, caught.value.remedy) == ("registry-client", "install them: pip install 'scribengin[schema-registry]'")


# --- a whole flow ---

FLOW = """
version: 1
name: orders
sources:
  orders:
    type: kafka
    bootstrap: BOOTSTRAP
    topics: [TOPIC]
    format: avro
    registry: REGISTRY
    metadata: {o: offset}
    schema: id BIGINT NOT NULL, user STRING, o BIGINT
steps:
  named: {from: orders, filter: id % 2 = 0}
sinks:
  kept: {from: named, type: files, path: out/kept, format: json}
"""


@pytest.mark.long
def test_a_flow_reads_the_wire_format_and_stops_for_a_registry_that_is_away(
    tmp_path: Path, cluster: KafkaCluster, topics: Any, registry: RegistryServer
) -> None:
    topic = topics.make(2)
    one = registry.add(f"{topic}-value", ORDER)
    wider = ORDER.replace("}]}", '}, {"name": "more", "type": "string"}]}')
    two = registry.add(f"{topic}-value", wider)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for id_ in range(200):
        value = wire(two, encoded(wider, id=id_, user=f"u{id_}", more="x")) if id_ % 3 else wire(one, encoded(ORDER, id=id_, user=None))
        producer.produce(topic, value, partition=id_ % 2)
    producer.produce(topic, b"no avro", partition=0)
    producer.produce(topic, wire(77, b""), partition=0)
    assert producer.flush(60) == 0
    text = FLOW.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("TOPIC", topic).replace("REGISTRY", f'"{registry.url}"')
    (tmp_path / "flow.yaml").write_text(text)

    registry.broken = 503
    with started(tmp_path, *SCRIBENGIN, "run", "flow.yaml", "--once") as running:
        log = tmp_path / ".scribengin/orders/main/tmp/run.log"
        within(180, lambda: running.poll() is not None or (log.exists() and "does not answer" in log.read_text()))
        registry.broken = 0
        assert running.wait(300) == 0, said(tmp_path)

    rows = rows_in(tmp_path / "out/kept")
    assert sorted((row["id"], row["user"]) for row in rows) == [(id_, f"u{id_}" if id_ % 3 else None) for id_ in range(0, 200, 2)]
    listed = scribengin(tmp_path, "dead-letter", "list", "flow.yaml", "--json")
    assert listed.returncode == 0, listed.stdout
    assert '"malformed"' in listed.stdout
    assert '"unknown-schema"' in listed.stdout
    audited = scribengin(tmp_path, "audit", "flow.yaml")
    assert audited.returncode == 0, audited.stdout

"""Avro to Kafka: by which schema, what a registry hears of it, and what becomes of a row that does not fit."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import BatchId, ConnectorContext
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.connectors.kafka.spark_sink import SparkKafkaSink
from scribengin.core.errors import SinkError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from tests.connectors.kafka.test_sink import decided, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.connectors.kafka.conftest import Topics
    from tests.connectors.kafka.registry_server import RegistryServer

BATCH = BatchId("f", "q", "l1", 0, 1)
COLUMNS = "id BIGINT NOT NULL, user STRING, amount DECIMAL(9,2), day DATE, at TIMESTAMP, tags ARRAY<STRING>, raw BINARY"
ROWS: list[dict[str, Any]] = [
    {
        "id": 2**40,
        "user": "ü",
        "amount": Decimal("-12.30"),
        "day": dt.date(2026, 2, 28),
        "at": dt.datetime(2026, 1, 1, 12, 0, 0, 123456, dt.UTC),
        "tags": ["a", None],
        "raw": b"\0\xff",
    },
    {"id": 2, "user": None, "amount": None, "day": None, "at": None, "tags": None, "raw": None},
]
SMALL = json.dumps({"type": "record", "name": "Small", "fields": [{"name": "id", "type": "int"}, {"name": "user", "type": "string"}]})


@pytest.fixture
def sink(topics: Topics, tmp_path: Path) -> Callable[..., KafkaSink]:
    def make(topic: str, kind: Any = KafkaSink, **options: Any) -> Any:
        given = {"bootstrap": topics.bootstrap, "topic": topic, "format": "avro", "timeout": 10.0, **options}
        given["markers"] = f"{topic}-markers" if kind is KafkaSink else None
        return kind(ConnectorContext("out", tmp_path, given, flow="f", version="0123456789", work=tmp_path / "work"))

    return make


def batch(columns: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, arrow_schema(parse_schema(columns)))


@pytest.mark.parametrize("way", ["derived", "file and registry", "plain"])
def test_what_the_sink_writes_the_source_reads_back(
    topics: Topics, sink: Callable[..., KafkaSink], open_source: Any, registry: RegistryServer, tmp_path: Path, way: str
) -> None:
    topic = topics.make()
    columns, rows = COLUMNS, ROWS
    given: dict[str, Any] = {"registry": registry.url}
    if way != "derived":
        columns, rows = "id INT NOT NULL, user STRING NOT NULL", [{"id": 1, "user": "a"}, {"id": 2, "user": "b"}]
        (tmp_path / "small.avsc").write_text(SMALL)
        given = {"avro_schema": "small.avsc", **(given if way == "file and registry" else {})}
    made = sink(topic, **given)
    made.prepare(owner="o", lineage="l1")
    made.publish(decided(made, 0, rows, schema=parse_schema(columns)))

    values = [message.value() for message in read(topics, topic)]
    source = {"registry": registry.url} if way != "plain" else {"avro_schema": "small.avsc"}
    reading = open_source(topic, schema=columns, format="avro", **source)
    assert reading.rows(reading.take()) == rows
    if way == "plain":
        assert values == [b"\x02\x02a", b"\x04\x02b"]
        assert registry.subjects == {}
    else:
        assert registry.subjects == {f"{topic}-value": [1]}
        assert {value[:5] for value in values} == {b"\0\0\0\0\x01"}


def test_a_registry_hears_of_a_schema_once_in_a_process(topics: Topics, sink: Callable[..., KafkaSink], registry: RegistryServer) -> None:
    made = sink(topics.make(), registry=registry.url, subject="orders")
    made.prepare(owner="o", lineage="l1")
    assert registry.asked == [], "nothing is known yet of the columns"
    for unit in range(3):
        copy = pickle.loads(pickle.dumps(made))
        copy.stream(BATCH, unit, f"a{unit}", parse_schema("id BIGINT NOT NULL, user STRING")).abort()
    assert [path.partition("?")[0] for path in registry.asked] == ["/subjects/orders/versions"]
    fields = json.loads(registry.schemas[1]["schema"])["fields"]
    assert fields == [{"name": "id", "type": "long"}, {"name": "user", "type": ["null", "string"], "default": None}]


@pytest.mark.parametrize("kind", [KafkaSink, SparkKafkaSink])
def test_rows_that_do_not_fit_are_told_one_by_one_and_the_others_pass(
    topics: Topics, sink: Callable[..., Any], tmp_path: Path, kind: Any
) -> None:
    (tmp_path / "small.avsc").write_text(SMALL)
    made = sink(topics.make(), kind, avro_schema="small.avsc")
    made.prepare(owner="o", lineage="l1")
    (tmp_path / "small.avsc").unlink()  # it was read by now, and travels
    rows: list[dict[str, Any]] = [{"id": number, "user": f"u{number}"} for number in range(100)]
    rows[17]["id"] = 2**31
    rows[98]["user"] = None
    columns = "id BIGINT, user STRING"
    stream = pickle.loads(pickle.dumps(made)).stream(BATCH, 0, "a", parse_schema(columns))
    bad = stream.write(batch(columns, rows), [f"in@{index}" for index in range(100)])
    assert [(each.ordinal, each.reason) for each in bad] == [(17, "out-of-range"), (98, "missing")]
    assert bad[0].message == 'column "id" has 2147483648; it does not fit its type in the Avro schema'
    if kind is SparkKafkaSink:
        (made_rows,) = stream.take()
        assert made_rows.column("value").to_pylist()[:2] == [b"\x00\x04u0", b"\x02\x04u1"]
        assert made_rows.column("headers").to_pylist()[17] == [{"key": "scribengin", "value": b"f@01234567 in@18"}]
    assert stream.close().rows == 98
    stream.abort()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "has neither registry nor avro_schema"),
        ({"avro_schema": "x.avsc", "subject": "s"}, "has subject, but no registry"),
        ({"avro_schema": "x.avsc", "registry_config": {"a": "b"}}, "has registry_config, but no registry"),
        ({"registry": "http://r", "topic": "t-{user}"}, "has the topic t-{user}, which differs by row, and no subject"),
    ],
)
def test_options_that_mean_nothing_together_are_told(sink: Callable[..., KafkaSink], options: dict[str, Any], message: str) -> None:
    topic = options.get("topic", "t")
    with pytest.raises(SinkError) as told:
        sink(topic, **{name: value for name, value in options.items() if name != "topic"})
    assert message in told.value.message


def test_a_schema_that_nobody_can_use_is_told_before_a_row_is(
    topics: Topics, sink: Callable[..., KafkaSink], registry: RegistryServer, tmp_path: Path
) -> None:
    topic = topics.make()
    with pytest.raises(SinkError, match=r"none\.avsc cannot be read"):
        sink(topic, avro_schema="none.avsc").prepare(owner="o", lineage="l1")
    (tmp_path / "small.avsc").write_text(SMALL)
    registry.broken = 409
    with pytest.raises(SinkError, match=f"rejected the schema for {topic}-value") as told:
        sink(topic, avro_schema="small.avsc", registry=registry.url).prepare(owner="o", lineage="l1")
    assert told.value.code == "registry-schema"
    registry.broken = 503
    with pytest.raises(Unreachable):
        sink(topic, avro_schema="small.avsc", registry=registry.url).prepare(owner="o", lineage="l1")
    registry.broken = 0
    made = sink(topic, avro_schema="small.avsc", registry=registry.url)
    with pytest.raises(SinkError, match='the Avro schema has no field for the column "more"'):
        made.stream(BATCH, 0, "a", parse_schema("id INT, user STRING, more INT"))
    assert registry.subjects == {}, "a schema that rows do not fit is not registered"

"""The Kafka sink against a real broker: the contract, what a message is made of, and who may write."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from scribengin.connectors.catalog import sink_types
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.kafka.markers import SLOTS
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.core.errors import FencedError, Refused, SinkError, StateError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from tests.connectors.kafka.guarded import answered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.connectors.kafka.conftest import Topics

SCHEMA = parse_schema("id BIGINT, name STRING")
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "ü"}, {"id": 4, "name": "d"}, {"id": 5, "name": "e"}]


@pytest.fixture
def sink(topics: Topics, tmp_path: Path) -> Callable[..., KafkaSink]:
    def make(topic: str, *, node: str = "out", work: str = "work", **options: Any) -> KafkaSink:
        given = {
            "bootstrap": topics.bootstrap,
            "topic": topic,
            "format": "json",
            "timeout": 10.0,
            "markers": f"{topic.partition('{')[0]}-markers",
            **options,
        }
        return KafkaSink(ConnectorContext(node, tmp_path, given, flow="f", version="0123456789", work=tmp_path / work))

    return make


def wait_for_ends(topics: Topics, topic: str) -> None:
    """Until no transaction is open or is being completed: a commit is decided at once, and seen a moment later."""
    give_up_s = time.monotonic() + 120
    while time.monotonic() < give_up_s:
        ends = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            partitions = topics.admin.list_topics(topic, timeout=60).topics[topic].partitions
            asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
            futures = topics.admin.list_offsets(asked, isolation_level=level)
            ends.append({place.partition: future.result(60).offset for place, future in futures.items()})
        if ends[0] == ends[1]:
            return
        time.sleep(0.02)
    raise AssertionError(f"a transaction is open in {topic}")


def read(topics: Topics, topic: str, *, ended: bool = True) -> list[Any]:
    """Every message that a consumer sees, in the order of partitions and offsets. Not `ended`: also those before an open transaction."""
    if ended:
        wait_for_ends(topics, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    messages = []
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
        for partition in partitions:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(120)
                assert message is not None, f"{topic}-{partition} does not end"
                if message.error() is None:
                    messages.append(message)
                else:
                    break
    finally:
        consumer.close()
    return messages


def rows_of(topics: Topics, topic: str, *, ended: bool = True) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in read(topics, topic, ended=ended)]


def decided(
    sink: KafkaSink, number: int, rows: list[dict[str, Any]], *, schema: Any = SCHEMA, term: int = 1, attempt: str = "a"
) -> Decided:
    batch = BatchId("f", "q", "l1", number, term)
    stream = sink.stream(batch, 0, f"{attempt}{number}", schema)
    bad = stream.write(pa.RecordBatch.from_pylist(rows, arrow_schema(schema)), [f"in-0@{index}" for index in range(len(rows))])
    assert not bad, bad
    return Decided(batch, f"h{number}", (stream.close(),), sink.behind(0))


def claimed(sink: KafkaSink, lineage: str = "l1", **given: Any) -> KafkaSink:
    sink.prepare(owner="o", lineage=lineage, **given)
    return sink


def test_the_sink_keeps_the_contract(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make(2)
    poison = [{"id": 9, "name": "too large" * 200_000}]
    wider = (parse_schema("id BIGINT, name STRING, colour STRING"), [row | {"colour": "red"} for row in ROWS])
    check_sink(
        lambda: sink(topic),
        lambda: rows_of(topics, topic),
        schema=SCHEMA,
        rows=ROWS,
        poison=poison,
        wider=wider,
        declared=sink_types()["kafka"],
    )


def test_a_message_has_key_headers_time_and_where_it_came_from(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    schema = parse_schema("id BIGINT, user STRING, trace STRING, ts TIMESTAMP")
    topic = topics.make(4, **{"retention.ms": "-1"})  # by the message's time: an old one would be gone soon
    out = claimed(sink(topic, key="user", headers={"trace": "trace"}, timestamp="ts"))
    row = {"id": 7, "user": "foobar", "trace": "t7", "ts": 1_700_000_000_123_000}
    out.publish(decided(out, 0, [row], schema=schema))
    (message,) = read(topics, topic)
    assert message.key() == b"foobar"
    assert message.headers() == [("scribengin", b"f@01234567 in-0@0"), ("trace", b"t7")]
    assert message.timestamp()[1] == 1_700_000_000_123
    assert json.loads(message.value()) == {"id": 7, "user": "foobar", "ts": "2023-11-14T22:13:20.123000Z"}
    # where the Java client puts that key: toPositive(murmur2("foobar")) % 4
    assert message.partition() == (-790332482 & 0x7FFFFFFF) % 4


def test_without_record_ids_a_message_has_no_header(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    out = claimed(sink(topic, record_id="none"))
    out.publish(decided(out, 0, ROWS))
    assert [message.headers() for message in read(topics, topic)] == [None] * 5


def test_rows_choose_topic_and_partition(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    begin = topics.make(3)
    other = topics.make(3, name=f"{begin}-ü".replace("ü", "u"))
    out = claimed(sink(f"{begin}{{name}}", partition="id % 3"))
    out.publish(decided(out, 0, [{"id": 4, "name": ""}, {"id": 5, "name": "-u"}, {"id": 6, "name": ""}]))
    found = [(m.topic(), m.partition(), json.loads(m.value())["id"]) for topic in (begin, other) for m in read(topics, topic)]
    assert found == [(begin, 0, 6), (begin, 1, 4), (other, 2, 5)]


@pytest.mark.parametrize(
    ("options", "row", "reason"),
    [
        ({"partition": "id - 5"}, {"id": 1, "name": "a"}, "no-partition"),
        ({"partition": "id"}, {"id": None, "name": "a"}, "no-partition"),
        ({"topic_end": "{name}"}, {"id": 1, "name": "-away"}, "no-topic"),
        ({"topic_end": "{name}"}, {"id": 1, "name": None}, "no-topic"),
        ({"topic_end": "{name}"}, {"id": 1, "name": "no name!"}, "no-topic"),
        ({}, {"id": 1, "name": "x" * 20_000}, "too-large"),
        ({"key": "name"}, {"id": 1, "name": None}, "no-key"),
    ],
)
def test_a_row_that_brokers_would_refuse_is_told_and_the_others_pass(
    topics: Topics, sink: Callable[..., KafkaSink], options: dict[str, Any], row: dict[str, Any], reason: str
) -> None:
    config = {"cleanup.policy": "compact"} if reason == "no-key" else {}
    topic = topics.make(2, **{"max.message.bytes": "10000", **config})
    options = dict(options)
    good = {"id": 1, "name": "" if "topic_end" in options else "a"} if options.get("partition") != "id - 5" else {"id": 5, "name": "a"}
    out = claimed(sink(topic + options.pop("topic_end", ""), **options))
    batch = BatchId("f", "q", "l1", 0, 1)
    stream = out.stream(batch, 0, "a", SCHEMA)
    bad = stream.write(pa.RecordBatch.from_pylist([good, row, good], arrow_schema(SCHEMA)), ["a", "b", "c"])
    assert [(each.ordinal, each.reason) for each in bad] == [(1, reason)]
    out.publish(Decided(batch, "h", (stream.close(),), out.behind(0)))
    assert len(read(topics, topic)) == 2


def test_a_missing_topic_is_refused_or_made(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    with pytest.raises(SinkError, match='there is no topic "missing-1"'):
        claimed(sink("missing-1"))
    out = claimed(sink("missing-2", missing_topic="make", partitions=3))
    out.publish(decided(out, 0, ROWS))
    assert len(read(topics, "missing-2")) == 5
    assert len(topics.admin.list_topics("missing-2", timeout=60).topics["missing-2"].partitions) == 3


def test_aborted_and_open_messages_are_not_seen(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    out = claimed(sink(topic))
    batch = decided(out, 0, ROWS)
    out.publish(batch)
    again = claimed(sink(topic))
    (folder,) = [replace(decided(again, 1, ROWS[:2]), behind={"units": 0, "after": {"0": 5}})]
    with pytest.raises(StateError, match="expected batch 5"):
        again.publish(folder)
    assert len(read(topics, topic)) == 5


def test_another_flow_or_lineage_is_refused_until_it_is_told_to_go_on(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    old = claimed(sink(topic))
    old.publish(decided(old, 0, ROWS[:1]))
    with pytest.raises(Refused, match="holds commit markers of"):
        claimed(sink(topic), "l2")
    claimed(sink(topic), "l2", adopt=True)
    with pytest.raises(FencedError, match="lineage l2"):
        old.publish(decided(old, 1, ROWS[1:2]))
    assert [row["id"] for row in rows_of(topics, topic)] == [1]


def test_a_topic_of_markers_that_was_deleted_is_told_before_anything_is_doubled(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    out = claimed(sink(topic))
    first = decided(out, 0, ROWS[:1])
    out.publish(first)
    topics.delete(f"{topic}-markers")
    with pytest.raises(StateError, match="no commit marker: the topic was recreated"):
        answered(lambda: claimed(sink(topic, timeout=1.0)), SinkError)
    assert len(read(topics, topic)) == 1


def test_markers_that_somebody_else_wrote_are_refused(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    claimed(sink(topic, markers="shared-markers"))
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce("shared-markers", b"hello", key=b"0", partition=0)
    assert producer.flush(30) == 0
    with pytest.raises(Refused, match="a record that is not a commit marker, in partition 0"):
        claimed(sink(topic, markers="shared-markers"))


def test_markers_with_a_retention_that_forgets_are_refused(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topics.make(SLOTS, name="short-markers", **{"cleanup.policy": "delete"})
    with pytest.raises(Refused, match=r"cleanup\.policy=delete: the brokers would delete"):
        claimed(sink(topics.make(), markers="short-markers"))
    topics.make(2, name="few-markers", **{"cleanup.policy": "compact"})
    with pytest.raises(Refused, match="has 2 partitions"):
        claimed(sink(topics.make(), markers="few-markers"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "nam"}, 'key names the column "nam"'),
        ({"timestamp": "name"}, 'timestamp names the column "name", a STRING'),
        ({"format": "text"}, "text needs exactly one STRING column"),
        ({"partition": "upper(name)"}, "expected an integer"),
        ({"partition": "id %"}, "partition: id %"),
    ],
)
def test_options_that_do_not_fit_the_rows_are_told(
    topics: Topics, sink: Callable[..., KafkaSink], options: dict[str, Any], message: str
) -> None:
    out = claimed(sink(topics.make(), **options))
    with pytest.raises(SinkError, match=message):
        out.stream(BatchId("f", "q", "l1", 0, 1), 0, "a", SCHEMA)


def test_a_broker_that_is_not_there_is_told_within_seconds(sink: Callable[..., KafkaSink]) -> None:
    with pytest.raises(Unreachable, match=r"no broker at 127.0.0.1:1 answers within 1 s"):
        claimed(sink("t", bootstrap="127.0.0.1:1", timeout=1.0))


def test_an_audit_counts_what_is_there_and_finds_what_nobody_wrote(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make(2)
    out = claimed(sink(topic, key="id"))
    batches = []
    for number in range(3):
        batches.append(decided(out, number, ROWS))
        out.publish(batches[-1])
        # another program writes to the same topic
        topics.write(topic, range(3))
    found = list(out.audit(lineage="l1", decided=batches))
    assert [(each.number, each.rows, each.violations) for each in found] == [(0, 5, ()), (1, 5, ()), (2, 5, ())]
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(topic, b"{}", partition=0, headers=[("scribengin", b"f@01234567 in-0@1")])
    assert producer.flush(30) == 0
    *_, stray = out.audit(lineage="l1", decided=batches)
    assert stray.number == -1
    assert "no batch wrote" in stray.violations[0]


def test_a_reset_leaves_messages_alone_and_says_so(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    out = claimed(sink(f"{topic}{{name}}"))
    out.publish(decided(out, 0, [{"id": 1, "name": ""}]))
    wait_for_ends(topics, topic)
    for dry_run in (True, False):
        with pytest.raises(Refused, match=f"the contents of {topic} cannot be removed"):
            out.clear(owner="o", flow="f", dry_run=dry_run)
    with pytest.raises(Refused, match="holds commit markers of the flow"):
        out.clear(owner="another", flow="f")
    topics.delete(topic)
    assert out.clear(owner="o", flow="f") == 0
    topics.make(name=topic)
    again = sink(f"{topic}{{name}}", work="fresh")
    again.prepare(owner="o", lineage="l2")

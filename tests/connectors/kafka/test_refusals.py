"""What brokers or the client refuse a sink is told as what it is, not as brokers that do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.core.errors import SinkError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.kafka.conftest import Topics

SCHEMA = parse_schema("id BIGINT")


def published(topics: Topics, folder: Path, topic: str, **options: Any) -> tuple[KafkaSink, Decided]:
    """A sink whose first Batch is decided."""
    given = {"bootstrap": topics.bootstrap, "topic": topic, "format": "json", "timeout": 10.0, "markers": f"{topic}-markers", **options}
    sink = KafkaSink(ConnectorContext("out", folder, given, flow="f", version="0123456789", work=folder / "work"))
    sink.prepare(owner="o", lineage="l1")
    batch = BatchId("f", "q", "l1", 0, 1)
    behind = sink.behind(0)
    stream = sink.stream(batch, 7, "a", SCHEMA)
    assert not stream.write(pa.RecordBatch.from_pylist([{"id": 1}], arrow_schema(SCHEMA)), ["in-0@0"])
    return sink, Decided(batch, "h0", (stream.close(),), behind)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ({"transaction_timeout": 1000.0}, "kafka-refused", "Transaction timeout is larger than the maximum"),
        ({"replication": 3}, "kafka-refused", "replication factor of 3"),
        ({"markers": "no name"}, "kafka-refused", r"Invalid topic \(topic no name\)"),
        ({"config": {"acks": "1"}}, "kafka-config", "`acks` must be set to `all`"),
        ({"config": {"acs": "all"}}, "kafka-config", "No such configuration property"),
    ],
)
def test_a_wish_that_is_never_granted_is_told_as_such(
    topics: Topics, tmp_path: Path, options: dict[str, Any], code: str, told: str
) -> None:
    with pytest.raises(SinkError, match=told) as caught:
        published(topics, tmp_path, topics.make(), **options)
    assert caught.value.code == code


def test_a_topic_that_is_gone_before_its_batch_is_published_is_named_so_and_tried_again(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(8)
    sink, decided = published(topics, tmp_path, topic)
    topics.delete(topic)
    topics.make(2, name=topic)
    with pytest.raises(Unreachable, match=r"a topic does not exist at .* any more, or has fewer partitions than before"):
        sink.publish(decided)
    topics.widen(topic, 8)
    sink.publish(decided)
    assert [published.rows for published in sink.audit(lineage="l1", decided=[decided])] == [1]

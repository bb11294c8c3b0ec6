"""What exactly-once costs the Kafka sink: fence, look at the marker, send and commit, beside a client that only opens.

python benchmarks/kafka_commit.py [--batches 300] [--rows 100]. One process, no Spark: the sink itself over a broker of this program's,
Batch after Batch, each with a new transactional producer; first with a unit that commits by itself, as tasks do, then with Batches that
the driver publishes as a whole. *fence*: from the start (a new producer, its connections) until older ones are refused; *marker*: the
look at the newest marker; *send, commit*: the rest. The first tenth of the Batches is not counted. The rival is what fences at all: a
new producer of the same client, with its defaults, and `init_transactions`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from confluent_kafka import Producer
from kafka_rows import SCHEMA, encode_row
from kafka_topics import BROKER, Topics

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.kafka.markers import MarkerTopic
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.connectors.kafka.transaction import Transaction
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.embedded.kafka import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Callable

MEDIAN_S, P99_S = 0.1, 0.6
"""to reach, of fence and marker together"""
RIVAL = "plain client: open"
BOTH = "fence and marker"
ENDS: dict[str, float] = {}
"""when the sink's last fence and its last look at a marker were through"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--batches", type=int, default=300)
    options.add_argument("--rows", type=int, default=100, help="in each Batch")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-commit-") as name:
        folder = Path(name)
        _note_end(Transaction, "fence")
        _note_end(MarkerTopic, "newest")
        with KafkaCluster(folder / "kafka", properties=BROKER) as cluster:
            topics = Topics(cluster.bootstrap)
            seconds = {RIVAL: [_open(topics, number) for number in range(asked.batches)]}
            for units in (1, 0):
                seconds |= _commit(topics, folder, asked.batches, asked.rows, units=units)
    show(seconds, asked.batches, asked.rows)


def _open(topics: Topics, number: int) -> float:
    begun = time.perf_counter()
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": "plain", "log_level": 0})
    producer.init_transactions()
    return time.perf_counter() - begun


def _commit(topics: Topics, folder: Path, batches: int, rows: int, *, units: int) -> dict[str, list[float]]:
    """With `units` 0 each Batch commits as a whole, else its one unit does so by itself."""
    kind = "unit" if units else "Batch"
    topic = topics.make(f"commits-{units}")
    options = {"bootstrap": topics.bootstrap, "topic": topic, "format": "json"}
    sink = KafkaSink(ConnectorContext("out", folder, options, flow=topic, version="0123456789", work=folder / topic))
    sink.prepare(owner="bench", lineage="l1")
    schema = parse_schema(SCHEMA)
    messages = pa.RecordBatch.from_pylist([orjson.loads(encode_row(row)) for row in range(rows)], arrow_schema(schema))
    ids = [f"in-0@{row}" for row in range(rows)]
    phases = ("fence", "marker", BOTH, "send, commit")
    taken: dict[str, list[float]] = {f"{kind}: {phase}": [] for phase in phases}
    for number in range(batches):
        batch, hash_, behind = BatchId(topic, "out", "l1", number, 1), f"h{number}", sink.behind(units)
        if units:
            begun = time.perf_counter()
            unit = sink.unit_stream(batch, 0, f"a{number}", schema, input_hash=hash_, behind=behind)
            unit.write(messages, ids)
            receipt = unit.close()
            unit.commit({"receipts": [receipt.as_json()]})
            end = time.perf_counter()
            unit.abort()
            sink.publish(Decided(batch, hash_, (receipt,), behind))
        else:
            staged = sink.stream(batch, 0, f"a{number}", schema)
            staged.write(messages, ids)
            decided = Decided(batch, hash_, (staged.close(),), behind)
            begun = time.perf_counter()
            sink.publish(decided)
            end = time.perf_counter()
        fenced, looked = ENDS["fence"], ENDS["newest"]
        for each, seconds in zip(taken.values(), (fenced - begun, looked - fenced, looked - begun, end - looked), strict=True):
            each.append(seconds)
    found = topics.committed(topic)
    if found < batches * rows:
        raise SystemExit(f"{batches * rows:,} rows were sent, and only {found:,} messages are committed")
    return taken


def _note_end(owner: type, name: str) -> None:
    """Each call of the method notes when it was through."""
    method: Callable[..., Any] = getattr(owner, name)

    def noting(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        finally:
            ENDS[name] = time.perf_counter()

    setattr(owner, name, noting)


def show(seconds: dict[str, list[float]], batches: int, rows: int) -> None:
    print(f"{batches:,} Batches of {rows:,} rows, milliseconds")
    print(f"{'':<24}{'median':>8}{'99 %':>8}{'longest':>9}")
    counted = {name: sorted(each[len(each) // 10 :]) for name, each in seconds.items()}
    rival = statistics.median(counted[RIVAL])
    for name, each in counted.items():
        median, p99 = statistics.median(each), each[int(len(each) * 0.99)]
        line = f"{name:<24}{1000 * median:>8.1f}{1000 * p99:>8.1f}{1000 * each[-1]:>9.1f}"
        if name != RIVAL:
            line += f"   {median / rival:.2f} × {RIVAL}"
        if name.endswith(BOTH):
            verdict = "reached" if median < MEDIAN_S and p99 < P99_S else "missed"
            line += f" (to reach: median below {1000 * MEDIAN_S:g}, 99 % below {1000 * P99_S:g}: {verdict})"
        print(line)


if __name__ == "__main__":
    main()

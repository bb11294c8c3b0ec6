"""The contenders of the Kafka benchmarks, each as a person would write it; one process runs one of them.

python kafka_rivals.py NAME JOBS, where JOBS is JSON: {"warm": JOB or null, "timed": JOB}. The process does the warm job, says `@ready`,
waits for a line, does the timed job, says `@done`, waits for a line, and ends. A job without `rows` goes on until the process is killed.

The job is always the same: read JSON from `source`, drop the rows with an amount below 100, write JSON to `sink`. As a *record step* it
also adds a column in Python. Settings are the defaults of each, but for these, said where they stand: durations of commits.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_rows import LEAST_AMOUNT, SCHEMA, banded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTITIONS = 4
CORES = os.cpu_count() or 1
SPARK_MEMORY = "4g"
LINGER_MS = 5
COMMIT_ROWS = 10_000
COMMIT_S = 0.1
"""a transaction of the loop ends after so many rows or so long; 100 ms is what Kafka Streams takes for exactly-once"""


@dataclass(frozen=True)
class Job:
    """`name` is new for every job: of groups, transactions, checkpoints, state. `rows` are all that `source` holds."""

    name: str
    bootstrap: str
    source: str
    sink: str
    folder: str
    rows: int | None
    kept: int | None
    """rows that pass the filter"""
    flow: str = ""
    """another flow file in `folder`/flows than the contender's own, where Scribengin runs one"""

    @property
    def path(self) -> Path:
        path = Path(self.folder, self.name)
        path.mkdir(parents=True, exist_ok=True)
        return path


@contextmanager
def scribengin(flow: str, record_id: str = "header") -> Iterator[Callable[[Job], None]]:
    from scribengin.local.contract import RunSettings
    from scribengin.local.run import run_flow
    from scribengin.spark.session import start_session

    def run(job: Job) -> None:
        asked = {"BOOTSTRAP": job.bootstrap, "SOURCE": job.source, "SINK": job.sink, "RECORD_ID": record_id}
        os.environ.update({f"BENCH_{name}": value for name, value in asked.items()})
        settings = RunSettings(once=job.rows is not None, state=job.path / "state")
        result = run_flow(Path(job.folder, "flows", job.flow or flow), settings, lambda view: None, spark=spark)
        if result.state != "finished" or not result.balanced:
            raise SystemExit(f"{flow}: {result.state}, {result.problems} {result.violations} {[q.error for q in result.queries]}")

    spark = start_session("bench", master="", memory=SPARK_MEMORY, conf={}, folder=Path.cwd() / "spark")
    try:
        yield run
    finally:
        spark.stop()


@contextmanager
def pyspark(shape: Callable[[Any], Any], linger_ms: int | None = None) -> Iterator[Callable[[Job], None]]:
    """Spark's own connector and defaults; its sink is at least once.

    The client of its sink does not linger by default, so a row often travels alone; with `linger_ms` it does as librdkafka's, which the
    contenders in Python have, does by default.
    """
    from scribengin.core.java import find_java
    from scribengin.embedded.jars import fetch

    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.jars", ",".join(map(str, fetch("spark-kafka"))))
    builder = builder.config("spark.driver.memory", SPARK_MEMORY).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def run(job: Job) -> None:
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.bootstrap)
        messages = read.option("subscribe", job.source).option("startingOffsets", "earliest").load()
        rows = messages.select(functions.from_json(functions.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
        out = shape(rows).select(functions.to_json(functions.struct("*")).alias("value"))
        write = out.writeStream.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option("topic", job.sink)
        write = write.option("checkpointLocation", str(job.path / "checkpoint"))
        if linger_ms is not None:
            write = write.option("kafka.linger.ms", str(linger_ms))
        if job.rows is not None:
            write = write.trigger(availableNow=True)
        write.start().awaitTermination()

    try:
        yield run
    finally:
        spark.stop()


def filtered(rows: Any) -> Any:
    return rows.where(f"amount >= {LEAST_AMOUNT}")


def with_row_udf(rows: Any) -> Any:
    """One column goes to Python and one comes back: less than a record step sees, and the least that can be had."""
    from pyspark.sql.functions import udf

    # "not deterministic", or Spark would compute it twice: once for the filter, once for the column
    band = udf(lambda amount: None if amount < 100 else "high" if amount >= 500 else "low", "string").asNondeterministic()
    return rows.withColumn("band", band("amount")).where("band IS NOT NULL")


@contextmanager
def loop(processes: int) -> Iterator[Callable[[Job], None]]:
    """Consume, transform, produce in transactions; partitions are shared out by hand, so nobody waits for a group."""
    import multiprocessing

    import confluent_kafka
    import orjson

    assert confluent_kafka, orjson  # the forked processes find both loaded

    def run(job: Job) -> None:
        shares = [[partition for partition in range(PARTITIONS) if partition % processes == number] for number in range(processes)]
        if processes == 1:
            consume_transform_produce(job, shares[0])
            return
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=consume_transform_produce, args=(job, share), daemon=True) for share in shares]
        for child in children:
            child.start()
        for child in children:
            child.join()
            if child.exitcode:
                raise SystemExit(f"a process of the loop ended with {child.exitcode}")

    yield run


def consume_transform_produce(job: Job, partitions: list[int]) -> None:
    leave_with_parent()
    import orjson
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

    reads = {
        "bootstrap.servers": job.bootstrap,
        "group.id": job.name,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": job.rows is not None,
    }
    consumer = Consumer(reads)
    consumer.assign([TopicPartition(job.source, partition, OFFSET_BEGINNING) for partition in partitions])
    producer = Producer({"bootstrap.servers": job.bootstrap, "transactional.id": f"{job.name}-{partitions[0]}"})
    producer.init_transactions()
    left = set(partitions)
    while left:
        producer.begin_transaction()
        try:
            rows, begun = 0, 0.0
            while left and (not rows or (rows < COMMIT_ROWS and time.monotonic() - begun < COMMIT_S)):
                messages = consumer.consume(1000, timeout=0.01)
                if messages and not rows:
                    begun = time.monotonic()
                for message in messages:
                    if message.error() is not None:
                        if job.rows is None:
                            raise KafkaException(message.error())
                        left.discard(message.partition())
                        continue
                    rows += 1
                    row = banded(orjson.loads(message.value()))
                    if row is not None:
                        producer.produce(job.sink, orjson.dumps(row))
                producer.poll(0)
            places = consumer.position([TopicPartition(job.source, partition) for partition in partitions])
            producer.send_offsets_to_transaction([place for place in places if place.offset >= 0], consumer.consumer_group_metadata())
            producer.commit_transaction()
        except KafkaException:
            producer.abort_transaction()
            raise
    consumer.close()


@contextmanager
def quix_streams() -> Iterator[Callable[[Job], None]]:
    """Exactly once. It commits every 5 s by default, which serves throughput; as long as the loop, where delays are measured."""
    from quixstreams import Application

    def run(job: Job) -> None:
        app = Application(
            job.bootstrap,
            consumer_group=job.name,
            auto_offset_reset="earliest",
            processing_guarantee="exactly-once",
            commit_interval=COMMIT_S if job.rows is None else 5.0,
            auto_create_topics=False,
            state_dir=job.path / "state",
            loglevel="WARNING",
        )
        source = app.topic(job.source, value_deserializer="json")
        sink = app.topic(job.sink, value_serializer="json")
        app.dataframe(source).apply(banded).filter(lambda row: row is not None).to_topic(sink)
        app.run(count=job.kept or 0, collect=False)

    yield run


@contextmanager
def bytewax() -> Iterator[Callable[[Job], None]]:
    """At least once, with its recovery on; one worker, since a second one would wait for the same interpreter."""
    import bytewax.operators as op
    import orjson
    from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource
    from bytewax.connectors.kafka import operators as kop
    from bytewax.dataflow import Dataflow
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.run import cli_main

    def step(message: Any) -> KafkaSinkMessage[None, bytes] | None:
        row = banded(orjson.loads(message.value))
        return None if row is None else KafkaSinkMessage(None, orjson.dumps(row))

    def run(job: Job) -> None:
        flow = Dataflow("bench")
        messages = op.input("read", flow, KafkaSource([job.bootstrap], [job.source], tail=job.rows is None))
        kop.output("write", op.filter_map("step", messages, step), brokers=[job.bootstrap], topic=job.sink)
        init_db_dir(job.path, 1)
        cli_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(job.path))

    yield run


CONTENDERS: dict[str, Callable[[], Any]] = {
    "scribengin-filter": partial(scribengin, "kafka-filter.yaml"),
    "scribengin-filter-none": partial(scribengin, "kafka-filter.yaml", "none"),
    "scribengin-step": partial(scribengin, "kafka-step.yaml"),
    "scribengin-step-none": partial(scribengin, "kafka-step.yaml", "none"),
    "pyspark-filter": partial(pyspark, filtered),
    "pyspark-filter-linger": partial(pyspark, filtered, LINGER_MS),
    "pyspark-udf": partial(pyspark, with_row_udf),
    "pyspark-udf-linger": partial(pyspark, with_row_udf, LINGER_MS),
    "loop": partial(loop, 1),
    "loop-per-core": partial(loop, CORES),
    "quix": quix_streams,
    "bytewax": bytewax,
}


def leave_with_parent() -> None:
    """A contender that goes on for ever must not outlive the benchmark, however that ends; its JVM leaves when its own starter does."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    leave_with_parent()
    name, text = sys.argv[1:]
    jobs = json.loads(text)
    with CONTENDERS[name]() as run:
        if jobs["warm"]:
            run(Job(**jobs["warm"]))
        _say("@ready")
        run(Job(**jobs["timed"]))
        _say("@done")


def _say(word: str) -> None:
    print(word, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

"""A chain of three record steps: in one Query, cut into three tiers over Kafka, and as three hand-written PySpark jobs joined by Kafka.

250-byte JSON records out of files into files; the first step drops one row in ten, the second adds a column, the third changes one.
Each contender runs in a process of its own, first over a fifth of the rows, so that neither starts nor compilers are timed; then timed
from the word to begin until every row of the output is there, whose ids and bands are then checked. Contenders take turns; medians of
the turns' ratios are shown (make bench-tiers, or --rows N --runs N).
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_rows import SCHEMA, band_of, encode_row, kept

from scribengin.embedded.kafka import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
FILES = 8
CORES = 2
BANDED = f"{SCHEMA}, band STRING"
STEPS = """
def kept(row):
    return row["amount"] >= 100

def banded(row):
    row["band"] = "high" if row["amount"] >= 500 else "low"
    return row

def shouted(row):
    row["user"] = row["user"].upper()
    return row
"""
FLOW = f"""
version: 1
name: chain
sources:
  rows: {{type: files, path: "${{env:BENCH_DATA}}", format: json, schema: "{SCHEMA}", max_bytes: 64MiB}}
steps:
  kept: {{from: rows, python: "chain_steps:kept"}}
  banded: {{from: kept, python: "chain_steps:banded", schema: "{BANDED}"}}
  shouted: {{from: banded, python: "chain_steps:shouted"}}
sinks:
  out: {{from: shouted, type: files, path: "${{env:BENCH_OUT}}", format: parquet}}
"""
CUT = """
tiers: {near: {steps: [kept]}, middle: {steps: [banded]}, far: {steps: [shouted]}}
defaults: {edge: {channel: {type: kafka, bootstrap: "${env:BENCH_BOOTSTRAP}"}, %s}}
"""
CONTENDERS = {
    "fused": FLOW,
    "cut": FLOW + CUT % "compression: none",
    "cut, folders": FLOW
    + "tiers: {near: {steps: [kept]}, middle: {steps: [banded]}, far: {steps: [shouted]}}\ndefaults: {edge: {channel: folder}}\n",
    "cut, zstd": FLOW + CUT % "compression: zstd",
    "cut, AES-GCM": FLOW + CUT % "encryption: {keyring: keys}",
    "hand-written": "",
}
TARGETS = (
    ("fused", "cut", 2.5, "at least"),
    ("cut", "hand-written", 1.2, "at least"),
    ("cut", "cut, zstd", 1.15, "at most"),
    ("cut", "cut, AES-GCM", 1.20, "at most"),
)
"""(a, b, bar, …): how many times as long b takes as a"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--only", default="", help="contenders whose name contains one of these, with semicolons between")
    options.add_argument("--contender", help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--turn", default="0", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.contender:
        run_contender(asked.contender, asked.folder, asked.turn)
        return
    wanted = [name for name in CONTENDERS if not asked.only or any(word.strip() in name for word in asked.only.split(";"))]
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name:
        folder = Path(name)
        for part, rows in (("warm", max(20_000, asked.rows // 5)), ("timed", asked.rows)):
            write_rows(folder / part, rows)
            (folder / f"{part}.kept").write_text(f"{sum(map(kept, range(rows)))}")
        (folder / "chain_steps.py").write_text(STEPS)
        (folder / "keys").write_text(f"k1 {base64.b64encode(bytes(range(32))).decode()}\n")
        (folder / "keys").chmod(0o600)
        for number, text in enumerate(CONTENDERS.values()):
            (folder / f"{number}.yaml").write_text(text)
        with KafkaCluster(folder / "kafka") as cluster:
            figures = compare(folder, cluster.bootstrap, wanted, asked.rows, asked.runs)
    show(figures, asked.rows)


def write_rows(folder: Path, rows: int) -> None:
    folder.mkdir()
    for number in range(FILES):
        with (folder / f"rows-{number}.jsonl").open("wb") as file:
            file.writelines(encode_row(row) + b"\n" for row in range(number * rows // FILES, (number + 1) * rows // FILES))


def compare(folder: Path, bootstrap: str, wanted: list[str], rows: int, runs: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in wanted}
    for turn in range(runs):
        # what one leaves behind (a full page cache, a busy broker) is not always the same one's to bear
        order = [*wanted[turn % len(wanted) :], *wanted[: turn % len(wanted)]]
        for name in order if turn % 2 == 0 else reversed(order):
            command = [sys.executable, str(HERE / "tiers.py"), "--contender", name, "--folder", str(folder), "--turn", str(turn)]
            ended = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"BENCH_BOOTSTRAP": bootstrap},
                capture_output=True,
                text=True,
                check=False,
                timeout=1800,
            )
            if ended.returncode:
                sys.exit(f"{name} failed:\n{ended.stderr[-4000:]}")
            told = json.loads(ended.stdout.splitlines()[-1])
            check(Path(told["out"]), rows)
            figures[name].append(told["seconds"])
            print(f"run {turn + 1}  {name:<16} {told['seconds']:7.2f} s  {rows / told['seconds']:>10,.0f} rows/s", file=sys.stderr)
    return figures


def check(out: Path, rows: int) -> None:
    from pyarrow import dataset

    table = dataset.dataset([str(file) for file in out.glob("part-*")], format="parquet").to_table(columns=["id", "user", "amount", "band"])
    expected = [number for number in range(rows) if kept(number)]
    found = table.sort_by("id").to_pylist()
    if [row["id"] for row in found] != expected:
        sys.exit(f"{out}: {len(found)} rows, expected are {len(expected)}, each once")
    if any(row["band"] != band_of(row["amount"]) or row["user"] != row["user"].upper() for row in found[:: max(1, rows // 10_000)]):
        sys.exit(f"{out}: a row is not as the steps make it")


def show(figures: dict[str, list[float]], rows: int) -> None:
    for name, seconds in figures.items():
        median = statistics.median(seconds)
        print(f"{name:<16} {median:7.2f} s ({min(seconds):.2f}–{max(seconds):.2f})  {rows / median:>10,.0f} rows/s")
    for first, second, bar, how in TARGETS:
        if first in figures and second in figures:
            ratio = statistics.median(b / a for a, b in zip(figures[first], figures[second], strict=True))
            reached = ratio >= bar if how == "at least" else ratio <= bar
            print(f"{second} takes {ratio:.2f} × as long as {first} (asked: {how} {bar}; {'reached' if reached else 'missed'})")


# --- one contender, in a process of its own ---


def run_contender(name: str, folder: Path, turn: str) -> None:
    number = list(CONTENDERS).index(name)
    act = hand_written() if name == "hand-written" else flow_of(folder / f"{number}.yaml")
    seconds, out = 0.0, Path()
    for part in ("warm", "timed"):
        out = folder / f"out-{number}-{turn}-{part}"
        begun_s = time.perf_counter()
        act(folder, part, f"{number}-{turn}-{part}", out)
        seconds = time.perf_counter() - begun_s
    print(json.dumps({"seconds": seconds, "out": str(out)}))
    sys.stdout.flush()
    os._exit(0)  # sessions need not end in order: their work is done


def flow_of(path: Path) -> Callable[[Path, str, str, Path], None]:
    from scribengin.local.contract import RunSettings
    from scribengin.local.run import run_flow
    from scribengin.spark.session import start_session

    spark = start_session("bench", master=f"local[{CORES},3]", memory="2g", conf={}, folder=path.parent / f"spark-{os.getpid()}")

    def act(folder: Path, part: str, job: str, out: Path) -> None:
        os.environ |= {"BENCH_DATA": str(folder / part), "BENCH_OUT": str(out)}
        own = path.with_name(f"{job}.yaml")
        own.write_text(path.read_text().replace("name: chain", f"name: chain_{job.replace('-', '_')}"))
        result = run_flow(own, RunSettings(once=True, state=folder / f"state-{job}"), lambda _: None, spark=spark)
        if result.state != "finished" or result.violations:
            sys.exit(f"{result.problems} {result.violations}")

    return act


def hand_written() -> Callable[[Path, str, str, Path], None]:
    """Row UDFs over the columns that they need, JSON between, Spark's own connectors; each job goes on until the last has written all."""
    from scribengin.core.java import find_java
    from scribengin.embedded.jars import fetch

    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.jars", ",".join(map(str, fetch("spark-kafka"))))
    builder = builder.config("spark.driver.memory", "2g").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", CORES)
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    keep = functions.udf(lambda amount: amount >= 100, "boolean")
    band = functions.udf(lambda amount: "high" if amount >= 500 else "low", "string")
    shout = functions.udf(str.upper, "string")
    bootstrap = os.environ["BENCH_BOOTSTRAP"]

    def topic(name: str, schema: str) -> Any:
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
        values = read.option("startingOffsets", "earliest").load().select(functions.col("value").cast("string"))
        return values.select(functions.from_json("value", schema).alias("row")).select("row.*")

    def to_topic(rows: Any, name: str, checkpoint: Path) -> Any:
        write = rows.select(functions.to_json(functions.struct("*")).alias("value")).writeStream.format("kafka")
        write = write.option("kafka.bootstrap.servers", bootstrap).option("topic", name).option("kafka.linger.ms", "5")
        return write.option("checkpointLocation", str(checkpoint)).start()

    def act(folder: Path, part: str, job: str, out: Path) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        names = [f"hand-{job}-{number}" for number in (1, 2)]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(name, 4, 1) for name in names]).values():
            future.result(30)
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(str(folder / part))
        state = folder / f"state-{job}"
        queries = [
            to_topic(read.where(keep("amount")), names[0], state / "1"),
            to_topic(topic(names[0], SCHEMA).withColumn("band", band("amount")), names[1], state / "2"),
        ]
        last = topic(names[1], BANDED).withColumn("user", shout("user"))
        done = threading.Event()
        expected = int((folder / f"{part}.kept").read_text())
        counted: dict[Path, int] = {}

        def take(rows: Any, batch: int) -> None:
            rows.write.mode("append").parquet(str(out))
            counted.update({file: _rows_of(file) for file in out.glob("*.parquet") if file not in counted})
            if sum(counted.values()) >= expected:
                done.set()

        queries.append(last.writeStream.foreachBatch(take).option("checkpointLocation", str(state / "3")).start())
        if not done.wait(1500):
            sys.exit(f"hand-written: {sum(counted.values())} of {expected} rows after 1500 s")
        for query in queries:
            query.stop()

    return act


def _rows_of(file: Path) -> int:
    from pyarrow import parquet

    return int(parquet.read_metadata(file).num_rows)


if __name__ == "__main__":
    main()

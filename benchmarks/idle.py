"""What an idle trigger costs: Scribengin's look at its source beside plain Spark's empty micro-batch, over the same folder of files.

Plain Spark is asked through its own progress events (`triggerExecution` of triggers without data); Scribengin by timing the look
that its waiting Query makes. Medians in milliseconds.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

from rivals import SCHEMA

from harness.tweets import write_tweets
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session
from scribengin.spark.source_input import FedRanges

FLOW = """
version: 1
name: idle
sources:
  tweets: {type: files, path: data, format: json, settle: 0s, schema: "SCHEMA"}
sinks:
  kept: {from: tweets, type: files, path: out, format: parquet}
"""
SECONDS = 20.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="scribengin-idle-") as name:
        folder = Path(name)
        write_tweets(folder / "data", rows=20_000, files=100)
        (folder / "flow.yaml").write_text(FLOW.replace("SCHEMA", SCHEMA))
        conf = {"spark.sql.streaming.noDataProgressEventInterval": "0"}
        spark = start_session("idle", master="", memory="", conf=conf, folder=folder / "spark")
        theirs = _plain(spark, folder)
        ours = _scribengin(spark, folder)
        spark.stop()
    print(f"plain Spark, empty trigger: {theirs:.1f} ms; Scribengin, look at an idle source: {ours:.1f} ms; {ours - theirs:+.1f} ms")


def _plain(spark: object, folder: Path) -> float:
    df = spark.readStream.schema(SCHEMA).json(str(folder / "data"))  # type: ignore[attr-defined]
    writer = df.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start(str(folder / "plain"))
    time.sleep(SECONDS)
    empty = [progress.durationMs["triggerExecution"] for progress in query.recentProgress if progress.numInputRows == 0]
    query.stop()
    return float(statistics.median(empty[1:]))


def _scribengin(spark: object, folder: Path) -> float:
    looks: list[float] = []
    look = FedRanges.next_ranges

    def timed(self: FedRanges, starts: dict[str, int]) -> object:
        begun = time.perf_counter()
        try:
            return look(self, starts)
        finally:
            looks.append(time.perf_counter() - begun)

    FedRanges.next_ranges = timed  # type: ignore[method-assign]
    stop = threading.Event()
    threading.Timer(SECONDS, stop.set).start()
    run_flow(folder / "flow.yaml", RunSettings(stop=stop), lambda view: None, spark=spark)  # type: ignore[arg-type]
    return 1000 * statistics.median(looks[5:])


if __name__ == "__main__":
    main()

"""Tweets in Parquet to a table of Cassandra, beside a bare loop of the same client (python benchmarks/cassandra_tables.py --rows N).

One server of this program's own (commitlog_sync: batch), one warm session, contenders interleaved, `--runs` turns after one that warms
up. Each table is checked (count, sum of ids) before its figure counts. The bare loop binds rows of the same files to the same prepared
INSERT and sends unlogged batches of 50, 32 at once, from one process. Told are rows/s of wall time, medians; ratios turn by turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent
from cassandra.policies import RoundRobinPolicy
from cassandra.query import BatchStatement, BatchType, tuple_factory
from postgres import make_data

from scribengin.embedded.cassandra import Cassandra
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOW = """version: 1
name: {name}
sources: {{tweets: {{type: files, path: "${{env:BENCH_DATA}}", format: parquet}}}}
sinks: {{kept: {{from: tweets, type: cassandra, server: ["${{env:BENCH_SERVER}}"], keyspace: bench, table: {name}{mode}}}}}
"""
BATCH, AT_ONCE = 50, 32
TABLES = {"scribengin: append": "ours", "scribengin: upsert": "by_key", "a bare loop, batches of 50": "bare"}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, Cassandra(Path(name) / "server") as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: Cassandra, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    os.environ["BENCH_DATA"], os.environ["BENCH_SERVER"] = str(folder / "parquet"), server.address
    spark = start_session("bench", master="", memory="2g", conf={}, folder=folder / "spark")
    host, _, port = server.address.rpartition(":")
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=120, row_factory=tuple_factory)
    admin = Cluster([host], int(port), protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile}).connect()
    admin.execute("CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    writers: dict[str, Callable[[int], None]] = {
        "scribengin: append": lambda turn: by_scribengin(spark, folder, "ours", turn, ""),
        "scribengin: upsert": lambda turn: by_scribengin(spark, folder, "by_key", turn, ", mode: upsert, key: [id]"),
        "a bare loop, batches of 50": lambda _: by_loop(admin, folder),
    }
    wall_s: dict[str, list[float]] = {name: [] for name in writers}
    for turn in range(runs + 1):
        named = list(writers.items())
        for name, write in named[turn % len(named) :] + named[: turn % len(named)]:
            for table in (TABLES[name], "scribengin_places"):
                admin.execute(f"DROP TABLE IF EXISTS bench.{table}")
            begun_s = time.perf_counter()
            write(turn)
            spent_s = time.perf_counter() - begun_s
            found = counted(admin, TABLES[name])
            if found != expected:
                raise SystemExit(f"{name}: {found} (rows, sum of ids) in the table, expected {expected}")
            if turn:
                wall_s[name].append(spent_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<42}{spent_s:7.2f} s", file=sys.stderr)
    tell(wall_s, rows)
    admin.cluster.shutdown()
    spark.stop()


def by_scribengin(spark: Any, folder: Path, name: str, turn: int, mode: str) -> None:
    flow = folder / f"{name}.yaml"
    flow.write_text(FLOW.format(name=name, mode=mode))
    result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{name}-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")


def by_loop(session: Any, folder: Path) -> None:
    columns = "id bigint PRIMARY KEY, user text, text text, followers bigint, retweets bigint, ts timestamp"
    session.execute(f"CREATE TABLE bench.bare ({columns})")
    insert = session.prepare("INSERT INTO bench.bare (id, user, text, followers, retweets, ts) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?")

    def batches() -> Iterator[tuple[Any, None]]:
        now = time.time_ns() // 1000
        for file in sorted((folder / "parquet").iterdir()):
            rows = zip(*(column.to_pylist() for column in pq.read_table(file).columns), strict=True)
            batch = BatchStatement(BatchType.UNLOGGED)
            for row in rows:
                batch.add(insert, (*row, now))
                if len(batch) == BATCH:
                    yield batch, None
                    batch = BatchStatement(BatchType.UNLOGGED)
            if len(batch):
                yield batch, None

    for _ in execute_concurrent(session, batches(), concurrency=AT_ONCE, results_generator=True):
        pass


def counted(session: Any, table: str) -> tuple[int, int]:
    """(rows, sum of ids) of a table."""
    count = total = 0
    for (id_,) in session.execute(f"SELECT id FROM bench.{table}"):
        count, total = count + 1, total + id_
    return count, total


def tell(wall_s: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets to a table of Cassandra, rows/s (median of {len(next(iter(wall_s.values())))})")
    for name, each in wall_s.items():
        print(f"  {name:<42}{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})")
    bare = wall_s["a bare loop, batches of 50"]
    for name in ("scribengin: append", "scribengin: upsert"):
        ratio = statistics.median(their / our for their, our in zip(bare, wall_s[name], strict=True))
        print(f"{name} is {ratio:.2f} × a bare loop")


if __name__ == "__main__":
    main()

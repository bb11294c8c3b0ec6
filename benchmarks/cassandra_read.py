"""A table of Cassandra to Parquet: Scribengin beside a bare loop of the same client (python benchmarks/cassandra_read.py --rows N).

One server of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. What was written is
checked (count, sum of ids) before its figure counts. The bare loop reads pages of 5,000 rows over one connection and counts them: it
writes nothing. Told are rows/s of wall time, and CPU seconds of all processes, the server's among them: medians; ratios turn by turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.dataset as pads
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy
from cassandra.query import tuple_factory
from cassandra_tables import by_loop
from cpu import tree_cpu_s
from postgres import make_data

from scribengin.embedded.cassandra import Cassandra
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

FLOW = """version: 1
name: read
sources: {{tweets: {{type: cassandra, server: ["${{env:BENCH_SERVER}}"], keyspace: bench, table: bare, {options}}}}}
sinks: {{kept: {{from: tweets, type: files, path: out, format: parquet, delivery: {delivery}}}}}
"""
BARE = "a bare loop, pages of 5,000"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, Cassandra(Path(name) / "server") as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: Cassandra, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    os.environ["BENCH_SERVER"] = server.address
    server.start()
    host, _, port = server.address.rpartition(":")
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=120, row_factory=tuple_factory)
    admin = Cluster([host], int(port), protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile}).connect()
    admin.execute("CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    by_loop(admin, folder)
    spark = start_session("bench", master="", memory="2g", conf={}, folder=folder / "spark")
    out = folder / "read"
    cut = f"split: {-(-rows // 4)}, max_rows: {rows}"
    readers: dict[str, Callable[[int], tuple[int, int]]] = {
        "scribengin": lambda turn: by_scribengin(spark, out, cut, turn),
        "scribengin: on_change: ignore": lambda turn: by_scribengin(spark, out, f"{cut}, on_change: ignore", turn),
        BARE: lambda _: counted_whole(admin),
    }
    wall_s: dict[str, list[float]] = {name: [] for name in readers}
    cpu_s: dict[str, list[float]] = {name: [] for name in readers}
    for turn in range(runs + 1):
        named = list(readers.items())
        for name, read in named[turn % len(named) :] + named[: turn % len(named)]:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            begun_s, before_s = time.perf_counter(), tree_cpu_s()
            found = read(turn)
            spent_s, used_s = time.perf_counter() - begun_s, tree_cpu_s() - before_s
            if found != expected:
                raise SystemExit(f"{name}: {found} (rows, sum of ids), expected {expected}")
            if turn:
                wall_s[name].append(spent_s)
                cpu_s[name].append(used_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<32}{spent_s:7.2f} s  CPU {used_s:6.2f} s", file=sys.stderr)
    tell(wall_s, cpu_s, expected[0])
    admin.cluster.shutdown()
    spark.stop()


def by_scribengin(spark: Any, out: Path, options: str, turn: int) -> tuple[int, int]:
    flow = out / "flow.yaml"
    flow.write_text(FLOW.format(options=options, delivery="at_least_once" if "ignore" in options else "exactly_once"))
    result = run_flow(flow, RunSettings(once=True, state=out / f"state-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")
    ids = pads.dataset(out / "out", format="parquet").to_table(columns=["id"]).column("id")
    return len(ids), int(pc.sum(ids).as_py())


def counted_whole(session: Any) -> tuple[int, int]:
    """(rows, sum of ids), of rows that are read whole."""
    count = total = 0
    for id_, *_ in session.execute("SELECT id, user, text, followers, retweets, ts FROM bench.bare"):
        count, total = count + 1, total + id_
    return count, total


def tell(wall_s: dict[str, list[float]], cpu_s: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets of a table of Cassandra, rows/s (median of {len(next(iter(wall_s.values())))})")
    for name, each in wall_s.items():
        speeds = f"{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})"
        print(f"  {name:<32}{speeds}  CPU {statistics.median(cpu_s[name]):.1f} s")
    for name, each in wall_s.items():
        if name != BARE:
            ratio = statistics.median(their / our for their, our in zip(wall_s[BARE], each, strict=True))
            print(f"{name} is {ratio:.2f} × a bare loop")


if __name__ == "__main__":
    main()

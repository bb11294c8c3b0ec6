"""A table of HBase to Parquet: Scribengin beside a bare loop of requests (python benchmarks/hbase_read.py --rows N).

One server of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. What was written is
checked (count, sum of ids) before its figure counts. The bare loop asks one scanner for 5,000 rows at a time, decodes them, and counts: it
writes nothing. Told are rows/s of wall time, and CPU seconds of all processes, the server's among them: medians; ratios turn by turn.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pyarrow.compute as pc
import pyarrow.dataset as pads
from cpu import tree_cpu_s
from hbase import sent, staged
from postgres import make_data

from scribengin.embedded.hbase import HBase
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

FLOW = """version: 1
name: read
sources:
  tweets:
    type: hbase
    server: [{server}]
    table: bare
    schema: "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"
    {options}
sinks: {{kept: {{from: tweets, type: files, path: out, format: parquet, delivery: {delivery}}}}}
"""
BARE = "a bare loop, 5,000 rows a time"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, HBase(Path(name) / "server", thrift=True) as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: HBase, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    sent(*staged(folder, server, "bare"))
    spark = start_session("bench", master="", memory="2g", conf={}, folder=folder / "spark")
    out = folder / "read"
    cut = f"split: {-(-rows // 4)}\n    max_rows: {rows}"
    readers: dict[str, Callable[[int], tuple[int, int]]] = {
        "scribengin": lambda turn: by_scribengin(spark, out, server.uri, cut, turn),
        "scribengin: on_change: ignore": lambda turn: by_scribengin(spark, out, server.uri, f"{cut}\n    on_change: ignore", turn),
        "scribengin, Thrift": lambda turn: by_scribengin(spark, out, server.thrift_uri, cut, turn),
        BARE: lambda _: counted_whole(server),
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
    spark.stop()


def by_scribengin(spark: Any, out: Path, server: str, options: str, turn: int) -> tuple[int, int]:
    flow = out / "flow.yaml"
    flow.write_text(FLOW.format(server=server, options=options, delivery="at_least_once" if "ignore" in options else "exactly_once"))
    result = run_flow(flow, RunSettings(once=True, state=out / f"state-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")
    ids = pads.dataset(out / "out", format="parquet").to_table(columns=["id"]).column("id")
    return len(ids), int(pc.sum(ids).as_py())


def counted_whole(server: HBase) -> tuple[int, int]:
    """(rows, sum of ids), of rows that are read whole."""
    count = total = 0
    headers = {"Accept": "application/json"}
    with httpx2.Client(base_url=server.uri, timeout=120, trust_env=False, headers=headers) as http:
        opened = http.put("/bare/scanner", json={"caching": 5000, "maxVersions": 1}).raise_for_status()
        scanner = opened.headers["location"]
        while (answer := http.get(f"{scanner}?n=5000")).status_code == 200:
            for row in msgspec.json.decode(answer.content)["Row"]:
                cells = {cell["column"]: cell["$"] for cell in row["Cell"]}
                count, total = count + 1, total + int(b64decode(cells["ZDppZA=="]))
    return count, total


def tell(wall_s: dict[str, list[float]], cpu_s: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets of a table of HBase, rows/s (median of {len(next(iter(wall_s.values())))})")
    for name, each in wall_s.items():
        speeds = f"{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})"
        print(f"  {name:<32}{speeds}  CPU {statistics.median(cpu_s[name]):.1f} s")
    for name, each in wall_s.items():
        if name != BARE:
            ratio = statistics.median(their / our for their, our in zip(wall_s[BARE], each, strict=True))
            print(f"{name} is {ratio:.2f} × a bare loop")


if __name__ == "__main__":
    main()

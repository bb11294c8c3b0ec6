"""The three filters on tweets: Scribengin beside hand-written PySpark and a plain loop (python benchmarks/tweets.py --rows N).

All contenders read the same JSON lines and write the same Parquet columns. One process, one warm session, contenders interleaved,
the median of `--runs` runs; each output is checked (count and sum of ids) before its figure counts. Wall seconds run from the start
of the query to its end; CPU seconds are those of this process, the JVM and all Python workers.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow.dataset as ds
from cpu import tree_cpu_s
from rivals import RIVALS, Rival

from harness.tweets import write_tweets
from scribengin.spark.session import start_session

NAMES = ("records", "sql", "sql parse: spark")
HERE = Path(__file__).parent


@dataclass
class Figure:
    """One timed run."""

    wall_s: float
    cpu_s: float


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--only", default="", help="names of contenders, with commas")
    options.add_argument("--json", type=Path, help="write the figures there too")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as folder:
        run(Path(folder), asked.rows, asked.runs, {name for name in asked.only.split(",") if name}, asked.json)


def run(folder: Path, rows: int, runs: int, only: set[str], report: Path | None) -> None:
    data = folder / "data"
    written = write_tweets(data, rows=rows)
    spark = start_session("bench", master="", memory="4g", conf={}, folder=folder / "spark")
    for flow in HERE.glob("flows/*"):
        shutil.copy(flow, folder)
    contenders = {rival.name: rival for rival in RIVALS if not only or rival.name in only}
    figures: dict[str, list[Figure]] = {name: [] for name in contenders}
    kept = [*written.kept_ids, *written.undated_ids]
    expected = (len(kept), sum(kept))
    for turn in range(runs + 1):  # the first turn warms up and is not counted
        for name, rival in contenders.items():
            figure = _timed(rival, spark, data, folder / f"out-{turn}-{rival.key}", folder)
            _check(name, folder / f"out-{turn}-{rival.key}", expected)
            shutil.rmtree(folder / f"out-{turn}-{rival.key}")
            if turn:
                figures[name].append(figure)
            print(
                f"{'warm-up' if not turn else f'run {turn}'}  {name:<32} {figure.wall_s:6.2f} s wall {figure.cpu_s:6.2f} s cpu",
                file=sys.stderr,
            )
    spark.stop()
    _print(figures, rows, written.bytes)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(json.dumps({name: [vars(f) for f in runs_] for name, runs_ in figures.items()} | {"rows": rows}, indent=1))


def _timed(rival: Rival, spark: object, data: Path, out: Path, folder: Path) -> Figure:
    cpu, begun = tree_cpu_s(), time.perf_counter()
    rival.run(spark, data, out, folder)
    return Figure(time.perf_counter() - begun, tree_cpu_s() - cpu)


def _check(name: str, out: Path, expected: tuple[int, int]) -> None:
    table = ds.dataset(out, format="parquet", exclude_invalid_files=True).to_table(columns=["id"])
    found = (table.num_rows, sum(table["id"].to_pylist()))
    if found != expected:
        raise SystemExit(f"{name}: {found[0]} rows with an id sum of {found[1]}, expected {expected[0]} and {expected[1]}")


def _print(figures: dict[str, list[Figure]], rows: int, size: int) -> None:
    print(f"{rows:,} tweets, {size / 1e6:.0f} MB; {platform.machine()}, {psutil.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'':<33}{'M rows/s':>10}{'wall s':>9}{'(min–max)':>15}{'cpu s':>8}{'M rows/cpu s':>14}")
    median: dict[str, float] = {}
    for name, runs in figures.items():
        walls, cpus = [f.wall_s for f in runs], [f.cpu_s for f in runs]
        median[name] = statistics.median(walls)
        spread = f"{min(walls):.2f}–{max(walls):.2f}"
        cpu = statistics.median(cpus)
        print(f"{name:<33}{rows / median[name] / 1e6:>10.2f}{median[name]:>9.2f}{spread:>15}{cpu:>8.2f}{rows / cpu / 1e6:>14.2f}")
    for ours, theirs in (
        ("scribengin: records", "pyspark: SQL"),
        ("scribengin: records", "pyspark: row UDFs"),
        ("scribengin: records", "pyspark: mapInArrow"),
        ("scribengin: records", "pyspark: SQL, from_json"),
        ("scribengin: records", "pyspark: SQL, keeping bad lines"),
        ("scribengin: SQL", "pyspark: SQL"),
        ("scribengin: SQL", "pyspark: SQL, from_json"),
        ("scribengin: SQL", "pyspark: SQL, keeping bad lines"),
        ("scribengin: SQL", "scribengin: SQL, engine: spark"),
        ("scribengin: SQL, parse: spark", "pyspark: SQL"),
    ):
        if ours in figures and theirs in figures:
            pairs = [theirs_.wall_s / ours_.wall_s for ours_, theirs_ in zip(figures[ours], figures[theirs], strict=True)]
            print(f"{ours} is {statistics.median(pairs):.2f} × {theirs} (pair by pair, median)")
    if "scribengin: records" in figures and "plain loop (orjson)" in figures:
        ratio = statistics.median(f.cpu_s for f in figures["plain loop (orjson)"]) / statistics.median(
            f.cpu_s for f in figures["scribengin: records"]
        )
        print(f"scribengin: records does {ratio:.2f} × the rows of the plain loop per CPU second")


if __name__ == "__main__":
    main()

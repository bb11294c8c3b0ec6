"""One command from its start to its end: `scribengin run --once` on tweets, beside the same job by hand and beside an earlier commit.

python benchmarks/start.py [--rows 1000000] [--runs 5] [--before COMMIT]

Each figure is of a whole process: Python, Java and all workers, from the command to its exit. Contenders are interleaved; each output is
checked (ids) before its figures count. CPU seconds are those of all processes that the command started, counted after the last has ended.
"First Batch" is the time until a source's log has its first entry, which is written before the Batch's records are read.

The class archive (docs/decisions/0058-how-java-starts.md) is made beforehand, as `make setup` does. `--cold` shows a run without one too.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from harness.tweets import write_tweets

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
ROOT = HERE.parent
BEFORE = "5745b0fa"
_PR_SET_CHILD_SUBREAPER = 36
_JOB = """
import sys
from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"
spark = SparkSession.builder.appName("job").getOrCreate()
tweets = spark.readStream.schema(SCHEMA).json(sys.argv[1])
kept = tweets.where("followers > 5000").where("retweets > 500").where("contains(text, '#PresidentialDebate')")
writer = kept.writeStream.format("parquet").option("checkpointLocation", sys.argv[2] + ".checkpoint")
writer.trigger(availableNow=True).start(sys.argv[2]).awaitTermination()
"""
_FLOW = """version: 1
name: start
sources:
  tweets:
    type: files
    path: data
    format: json
    schema: id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP
steps:
  known: {from: tweets, filter: followers > 5000}
  hot: {from: known, filter: retweets > 500}
  tagged: {from: hot, filter: "contains(text, '#PresidentialDebate')"}
sinks:
  kept: {from: tagged, type: files, path: "${env:BENCH_OUT}", format: parquet}
"""


@dataclass(frozen=True)
class Figure:
    """One run; seconds. `first_batch_s` is None where the contender has no such log."""

    wall_s: float
    cpu_s: float
    first_batch_s: float | None


@dataclass(frozen=True)
class Contender:
    """`command(out)` is what is timed, with `env` on top of this process's."""

    name: str
    command: Callable[[Path], list[str]]
    env: dict[str, str]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--before", default=BEFORE, help="the commit to compare with; empty for none")
    options.add_argument("--cold", action="store_true", help="this checkout without its class archive, too")
    asked = options.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that no process of a contender goes uncounted
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-start-") as folder:
        _run(Path(folder), asked.rows, asked.runs, asked.before, asked.cold)


def _run(folder: Path, rows: int, runs: int, before: str, cold: bool) -> None:
    contenders = _contenders(folder, before, cold)
    written = write_tweets(folder / "data", rows=rows)
    (folder / "flow.yaml").write_text(_FLOW)
    (folder / "job.py").write_text(_JOB)
    figures: dict[str, list[Figure]] = {contender.name: [] for contender in contenders}
    for number in range(runs + 1):
        for contender in contenders:
            out = folder / f"out-{number}"
            figure = _timed(contender, folder, out)
            ids = ds.dataset(sorted(out.glob("part-*.parquet"))).to_table(columns=["id"])["id"].to_pylist()
            if sorted(ids) != sorted([*written.kept_ids, *written.undated_ids]):
                sys.exit(f"{contender.name} wrote {len(ids):,} ids, expected {len(written.kept_ids) + len(written.undated_ids):,}")
            shutil.rmtree(out)
            shutil.rmtree(folder / ".scribengin", ignore_errors=True)
            shutil.rmtree(f"{out}.checkpoint", ignore_errors=True)
            if number:  # the first round fills the disk's cache
                figures[contender.name].append(figure)
    _show(figures, rows)


def _contenders(folder: Path, before: str, cold: bool) -> list[Contender]:
    def ours(_out: Path, python: str = sys.executable) -> list[str]:
        return [python, "-m", "scribengin.cli", "run", str(folder / "flow.yaml"), "--once", "--progress", "off"]

    def by_hand(out: Path) -> list[str]:
        return [sys.executable, str(folder / "job.py"), str(folder / "data"), str(out)]

    contenders = [Contender("job.py by hand", by_hand, {}), Contender("scribengin", ours, {"PYTHONPATH": str(ROOT / "src")})]
    if cold:
        contenders.append(Contender("without archive", ours, {"PYTHONPATH": str(ROOT / "src"), "SCRIBENGIN_CLASS_ARCHIVE": "no"}))
    if before:
        python = str(_earlier(before) / ".venv" / "bin" / "python")
        env = {"SCRIBENGIN_CLASS_ARCHIVE": "no"}  # that commit's `run` never made one
        contenders.append(Contender(f"commit {before}", partial(ours, python=python), env))
    return contenders


def _earlier(commit: str) -> Path:
    """That commit with the packages of its own lock, in the user's cache: it may import what this checkout does not need any more."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    checkout = caches / "scribengin-benchmarks" / commit
    if not (checkout / ".venv" / "ready").exists():
        print(f"commit {commit}: setting it up in {checkout}, a few minutes, once", flush=True)
        shutil.rmtree(checkout, ignore_errors=True)
        checkout.mkdir(parents=True)
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", checkout], input=archive, check=True)
        subprocess.run(["make", "-C", checkout, "setup", f"PYTHON={sys.executable}"], check=True)
    return checkout


def _timed(contender: Contender, folder: Path, out: Path) -> Figure:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "SCRIBENGIN_"))}
    env |= contender.env | {"BENCH_OUT": str(out)}
    before = _children_s()
    began = time.perf_counter()
    first: float | None = None
    with subprocess.Popen(contender.command(out), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        while running.poll() is None:
            if first is None and any(folder.glob(".scribengin/*/main/*/sources/*/*")):
                first = time.perf_counter() - began
            time.sleep(0.02)
        wall = time.perf_counter() - began
        said = running.stdout.read() if running.stdout is not None else ""
    if running.returncode:
        sys.exit(f"{contender.name} has failed:\n{said}")
    while True:  # those that outlived it, as Java does for a moment
        try:
            os.wait()
        except ChildProcessError:
            break
    return Figure(wall, _children_s() - before, first)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _show(figures: dict[str, list[Figure]], rows: int) -> None:
    def median(name: str, of: Callable[[Figure], float]) -> float:
        return statistics.median(of(figure) for figure in figures[name])

    print(f"{rows:,} tweets, {os.cpu_count()} cores, medians of {len(figures['scribengin'])} runs\n")
    print(f"{'':24}{'wall s':>8}{'CPU s':>8}{'first Batch s':>15}{'wall ×':>9}{'CPU ×':>8}")
    for name, found in figures.items():
        wall, cpu = median(name, lambda figure: figure.wall_s), median(name, lambda figure: figure.cpu_s)
        firsts = [figure.first_batch_s for figure in found if figure.first_batch_s is not None]
        first = f"{statistics.median(firsts):.1f}" if firsts else ""
        ratios = (median("scribengin", lambda figure: figure.wall_s) / wall, median("scribengin", lambda figure: figure.cpu_s) / cpu)
        print(f"{name:24}{wall:8.1f}{cpu:8.1f}{first:>15}{ratios[0]:9.2f}{ratios[1]:8.2f}")
    print("\n×: scribengin's figure through that one's.")


if __name__ == "__main__":
    main()

"""What ledger and dead letters cost: the records flow as it is, beside one that drops bad records unwritten and keeps no counts.

python benchmarks/ledger.py [--rows 1000000] [--runs 7]. Interleaved in one warm session; the ratio is of the pairs' wall seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rivals import RIVALS

from harness.tweets import write_tweets
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark import commit
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=7)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-ledger-") as name:
        folder = Path(name)
        write_tweets(folder / "data", rows=asked.rows)
        for file in HERE.glob("flows/*.*"):
            (folder / file.name).write_text(file.read_text())
        flow = (folder / "records.yaml").read_text()
        (folder / "without.yaml").write_text(flow.replace("name: records", "name: without\ndefaults: {on_error: drop}"))
        spark = start_session("ledger", master="", memory="4g", conf={}, folder=folder / "spark")
        walls: dict[str, list[float]] = {"with": [], "without": []}
        records = next(rival for rival in RIVALS if rival.key == "records")
        for turn in range(asked.runs + 1):
            begun = time.perf_counter()
            records.run(spark, folder / "data", folder / f"with-{turn}", folder)
            between = time.perf_counter()
            os.environ["BENCH_OUT"] = str(folder / f"without-{turn}")
            with _no_counts():
                settings = RunSettings(once=True, state=folder / f"state-without-{turn}")
                run_flow(folder / "without.yaml", settings, lambda view: None, spark=spark)
            if turn:
                walls["with"].append(between - begun)
                walls["without"].append(time.perf_counter() - between)
        spark.stop()
    for way, seconds in walls.items():
        print(f"{way:<8} median {statistics.median(seconds):.3f} s ({min(seconds):.3f}–{max(seconds):.3f})")
    ratios = [ours / theirs for ours, theirs in zip(walls["with"], walls["without"], strict=True)]
    print(f"ledger and dead letters cost {100 * (statistics.median(ratios) - 1):+.1f} % (median of {len(ratios)} pairs)")


@contextmanager
def _no_counts() -> Iterator[None]:
    """Decisions without counts: nothing is gathered, written or added up."""
    gather = commit.gather_counts
    commit.gather_counts = lambda *_: {}
    try:
        yield
    finally:
        commit.gather_counts = gather


if __name__ == "__main__":
    main()

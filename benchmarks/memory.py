"""Whether memory stays flat: the peak of the driver and of each Python worker at 1 million and at 10 million rows.

python benchmarks/memory.py [--rows 1000000,10000000]. The JVM is given the same heap both times and is not counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from pathlib import Path

import psutil
from rivals import RIVALS

from harness.tweets import write_tweets
from scribengin.spark.session import start_session

HERE = Path(__file__).parent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", default="1000000,10000000")
    peaks = [_measure(int(rows)) for rows in options.parse_args().rows.split(",")]
    print(f"{'rows':>12}{'driver MiB':>12}{'largest worker MiB':>20}")
    for rows, driver, worker in peaks:
        print(f"{rows:>12,}{driver / 2**20:>12.0f}{worker / 2**20:>20.0f}")
    (fewest, *before), (most, *after) = peaks[0], peaks[-1]
    driver_growth, worker_growth = (late / early for early, late in zip(before, after, strict=True))
    print(f"driver {driver_growth:.2f} ×, workers {worker_growth:.2f} × from {fewest:,} to {most:,} rows")


def _measure(rows: int) -> tuple[int, int, int]:
    """(rows, driver's peak, largest worker's peak) in bytes; each size in a process of its own, since peaks do not go down."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        driver, worker = _run(rows)
        os.write(writer, f"{driver} {worker}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        driver, worker = map(int, answer.read().split())
    os.waitpid(child, 0)
    return rows, driver, worker


def _run(rows: int) -> tuple[int, int]:
    with tempfile.TemporaryDirectory(prefix="scribengin-memory-") as name:
        folder = Path(name)
        write_tweets(folder / "data", rows=rows, files=max(8, rows // 125_000))
        for flow in HERE.glob("flows/*"):
            shutil.copy(flow, folder)
        spark = start_session("memory", master="", memory="2g", conf={}, folder=folder / "spark")
        before = psutil.Process().memory_info().rss
        peaks = {"driver": before, "worker": 0}
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(peaks, done))
        watcher.start()
        next(rival for rival in RIVALS if rival.key == "records").run(spark, folder / "data", folder / "out", folder)
        done.set()
        watcher.join()
        spark.stop()
        return peaks["driver"], peaks["worker"]


def _watch(peaks: dict[str, int], done: threading.Event) -> None:
    me = psutil.Process()
    while not done.wait(0.1):
        peaks["driver"] = max(peaks["driver"], me.memory_info().rss)
        for child in me.children(recursive=True):
            try:
                if child.name().startswith("python"):
                    peaks["worker"] = max(peaks["worker"], child.memory_info().rss)
            except psutil.NoSuchProcess:
                continue


if __name__ == "__main__":
    main()

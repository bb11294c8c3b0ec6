"""Tweets in Parquet to an HDFS: Scribengin beside Spark's own writer and a bare loop (python benchmarks/hdfs.py --rows N).

One NameNode and one DataNode of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. What
Scribengin and Spark have written is checked (rows, sum of ids) before the figure counts. The bare loop (two threads) sends the files of
Scribengin's first turn from memory, without making them. A files sink writes the same to a folder. Told are rows/s of wall time, medians;
ratios are taken turn by turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objects import by_scribengin, make_data

from harness.remote_places import opened
from scribengin.embedded.hdfs import Hdfs
from scribengin.reading import committed
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, Hdfs(Path(name) / "server") as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: Hdfs, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    os.environ["BENCH_DATA"] = str(folder / "parquet")
    spark = start_session("bench", master="", memory="4g", conf={}, folder=folder / "spark")
    files: list[bytes] = []

    def ours(name: str, turn: int, more: str = "") -> None:
        by_scribengin(spark, folder, name, turn, f'type: hdfs, url: "{server.uri}/{name}-{turn}"{more}')

    def by_spark(turn: int) -> None:
        spark.read.parquet(str(folder / "parquet")).write.option("compression", "zstd").parquet(f"{server.uri}/spark-{turn}")

    contenders: dict[str, Callable[[int], None]] = {
        "scribengin": lambda turn: ours("listing", turn),
        "scribengin: by manifest": lambda turn: ours("manifest", turn, ", visible: manifest"),
        "scribengin: files, on the disk": lambda turn: by_scribengin(
            spark, folder, "files", turn, f"type: files, path: {folder}/files-{turn}"
        ),
        "spark's own writer, unchecked": by_spark,
        "bare writing of the same files": lambda turn: by_loop(server, files, turn),
    }
    written = {"scribengin": "listing", "scribengin: by manifest": "manifest", "spark's own writer, unchecked": "spark"}
    wall_s: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(runs + 1):
        named = list(contenders.items()) if turn else list(contenders.items())[:4]
        for name, write in named[turn % len(named) :] + named[: turn % len(named)]:
            begun_s = time.perf_counter()
            write(turn)
            spent_s = time.perf_counter() - begun_s
            if name in written:
                check(spark, f"{server.uri}/{written[name]}-{turn}", expected, by_manifest="manifest" in name)
            if turn:
                wall_s[name].append(spent_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<36}{spent_s:7.2f} s", file=sys.stderr)
        if not turn:
            store = opened(server, "listing-0")
            files += [data for entry in store.list() if entry.key[0] != "_" and (data := store.get(entry.key)) is not None]
    tell(wall_s, expected[0], sum(map(len, files)))
    spark.stop()


def check(spark: Any, url: str, expected: tuple[int, int], *, by_manifest: bool) -> None:
    rows = committed(url).spark(spark) if by_manifest else spark.read.parquet(url)
    found = tuple(rows.selectExpr("count(*)", "sum(id)").first())
    if found != expected:
        raise SystemExit(f"{url}: {found}, expected {expected}")


def by_loop(server: Hdfs, files: list[bytes], turn: int) -> None:
    store = opened(server, f"bare-{turn}")

    def send(nth: int) -> None:
        writer = store.writer(str(nth))
        writer.file.write(files[nth])
        writer.finish()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(send, range(len(files))))


def tell(wall_s: dict[str, list[float]], rows: int, size: int) -> None:
    runs = len(next(iter(wall_s.values())))
    print(f"{rows:,} tweets ({size / 2**20:,.0f} MiB of Parquet) to an HDFS, rows/s (median of {runs})")
    for name, each in wall_s.items():
        print(f"  {name:<36}{rows / statistics.median(each):12,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})")
    ours = wall_s["scribengin"]
    for name in list(wall_s)[1:]:
        ratio = statistics.median(their / our for their, our in zip(wall_s[name], ours, strict=True))
        print(f"scribengin is {ratio:.2f} × {name}")


if __name__ == "__main__":
    main()

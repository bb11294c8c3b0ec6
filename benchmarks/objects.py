"""Tweets in Parquet to an object store: Scribengin beside bare loops of uploads (python benchmarks/objects.py --rows N).

One server of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. What Scribengin has
written is checked (rows, sum of ids) before its figure counts. One bare loop (obstore, two threads) sends the objects of Scribengin's
first turn from memory, without making them; the other reads the files, writes Parquet as Scribengin does, and sends that. A files sink
writes the same to a folder. Told are rows/s of wall time, medians; ratios are taken turn by turn.
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

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from postgres import FILES, read_tweets

from harness.object_stores import opened
from harness.tweets import write_tweets
from scribengin.embedded.objects import BUCKET, ObjectServer
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.reading import committed
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

FLOW = """version: 1
name: {name}
sources: {{tweets: {{type: files, path: "${{env:BENCH_DATA}}", format: parquet}}}}
sinks: {{kept: {{from: tweets, {sink}, format: parquet}}}}
"""
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("text", pa.string()),
        ("followers", pa.int64()),
        ("retweets", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, ObjectServer(Path(name) / "server") as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: ObjectServer, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    os.environ["BENCH_DATA"] = str(folder / "parquet")
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(server.credentials)
    spark = start_session("bench", master="", memory="4g", conf={}, folder=folder / "spark")
    objects: list[bytes] = []

    def sink(name: str, turn: int, more: str = "") -> str:
        return f'type: objects, url: "s3://{BUCKET}/{name}-{turn}", endpoint: "{server.uri}"{more}'

    def ours(name: str, turn: int, more: str = "") -> None:
        by_scribengin(spark, folder, name, turn, sink(name, turn, more))

    contenders: dict[str, Callable[[int], None]] = {
        "scribengin: by manifest": lambda turn: ours("manifest", turn),
        "scribengin: visible: listing": lambda turn: ours("listing", turn, ", visible: listing"),
        "scribengin: files, on the disk": lambda turn: by_scribengin(
            spark, folder, "files", turn, f"type: files, path: {folder}/files-{turn}"
        ),
        "bare upload of the same objects": lambda turn: by_loop(server, objects, turn),
        "pyarrow and a bare upload": lambda turn: by_arrow(server, folder, turn),
    }
    wall_s: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(runs + 1):
        named = list(contenders.items()) if turn else list(contenders.items())[:3]
        for name, write in named[turn % len(named) :] + named[: turn % len(named)]:
            begun_s = time.perf_counter()
            write(turn)
            spent_s = time.perf_counter() - begun_s
            if name.startswith("scribengin: ") and "files" not in name:
                check(server, f"s3://{BUCKET}/{'manifest' if 'manifest' in name else 'listing'}-{turn}", expected)
            if turn:
                wall_s[name].append(spent_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<36}{spent_s:7.2f} s", file=sys.stderr)
        if not turn:
            store = opened(server)
            objects += [data for entry in store.list("manifest-0/data") if (data := store.get(entry.key)) is not None]
    tell(wall_s, expected[0], sum(map(len, objects)))
    spark.stop()


def make_data(folder: Path, rows: int) -> tuple[int, int]:
    """Parquet files; (rows, sum of ids)."""
    write_tweets(folder / "json", rows=rows, files=FILES)
    (folder / "parquet").mkdir()
    count = total = 0
    for file in sorted((folder / "json").iterdir()):
        lines = [line for line in file.read_bytes().splitlines() if line.startswith(b"{") and line.endswith(b"}")]
        table = read_tweets(lines, SCHEMA)
        pq.write_table(table, folder / "parquet" / f"{file.stem}.parquet")
        count, total = count + table.num_rows, total + pc.sum(table.column("id")).as_py()
    return count, total


def check(server: ObjectServer, url: str, expected: tuple[int, int]) -> None:
    found = committed(url, endpoint=server.uri).dataset().to_table(columns=["id"])
    if (found.num_rows, pc.sum(found.column("id")).as_py()) != expected:
        raise SystemExit(f"{url}: {found.num_rows} rows, expected {expected[0]}")


def by_scribengin(spark: Any, folder: Path, name: str, turn: int, sink: str) -> None:
    flow = folder / f"{name}-{turn}.yaml"
    flow.write_text(FLOW.format(name=name, sink=sink))
    result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{name}-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")


def by_loop(server: ObjectServer, objects: list[bytes], turn: int) -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda nth: upload(server, f"bare-{turn}/{nth}", objects[nth]), range(len(objects))))


def by_arrow(server: ObjectServer, folder: Path, turn: int) -> None:
    def send(file: Path) -> None:
        made = pa.BufferOutputStream()
        pq.write_table(pq.read_table(file), made, compression="zstd")
        upload(server, f"arrow-{turn}/{file.name}", made.getvalue().to_pybytes())

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(send, sorted((folder / "parquet").iterdir())))


def upload(server: ObjectServer, key: str, data: bytes) -> None:
    writer = opened(server).writer(key)
    writer.file.write(data)
    writer.finish()


def tell(wall_s: dict[str, list[float]], rows: int, size: int) -> None:
    runs = len(next(iter(wall_s.values())))
    print(f"{rows:,} tweets ({size / 2**20:,.0f} MiB of Parquet) to an object store, rows/s (median of {runs})")
    for name, each in wall_s.items():
        print(f"  {name:<36}{rows / statistics.median(each):12,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})")
    ours = wall_s["scribengin: by manifest"]
    for name in list(wall_s)[1:]:
        ratio = statistics.median(their / our for their, our in zip(wall_s[name], ours, strict=True))
        print(f"scribengin: by manifest is {ratio:.2f} × {name}")


if __name__ == "__main__":
    main()

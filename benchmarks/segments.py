"""What `roll` costs and saves (python benchmarks/segments.py --rows N).

The same tweets go through the same sink without `roll` and with it, in one warm session, interleaved, `--runs` times, many Batches each.
Told are CPU seconds per million rows (this process, the JVM, all Python workers; merges included), files that readers see, and how long
pyarrow takes to read them all. Each output is checked against the first one's (count and sum of ids) before its figure counts.

Then `--merge` bytes of hidden segments are merged alone, for each format: CPU and wall seconds per GiB.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from cpu import tree_cpu_s

from harness.tweets import SCHEMA, write_tweets
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.files.maintenance import roll_folder
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.core.units import show_bytes
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

_WAYS = {"without roll": "", "with roll": ", roll: {size: 128MiB, every: 5s}"}


def compare(rows: int, runs: int, files: int, format: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="segments-"))
    spark = start_session("segments", master="local[2,3]", memory="2g", conf={}, folder=folder / "spark")
    try:
        write_tweets(folder / "data", rows=rows, files=files)
        told: dict[str, list[tuple[float, int, float]]] = {way: [] for way in _WAYS}
        expected = None
        for run in range(runs + 1):  # the first warms up
            for way, roll in _WAYS.items():
                place = folder / f"{run}-{'roll' if roll else 'plain'}"
                place.mkdir()
                flow = place / "flow.yaml"
                flow.write_text(
                    f"version: 1\nname: tweets\nsources:\n"
                    f'  tweets: {{type: files, path: "{folder}/data", format: json, schema: "{SCHEMA}", max_files: 1}}\n'
                    f"sinks:\n  kept: {{from: tweets, type: files, path: out, format: {format}{roll}}}\n"
                )
                before = tree_cpu_s()
                result = run_flow(flow, RunSettings(once=True), lambda _: None, spark=spark)
                spent_s = tree_cpu_s() - before
                assert result.balanced, result.violations
                found = read(place / "out", format)
                expected = expected or found[:2]
                assert found[:2] == expected, f"{way}: {found[:2]}, not {expected}"
                if run:
                    told[way].append((spent_s, *found[2:]))
                shutil.rmtree(place)
        for way, figures in told.items():
            cpu, seen, reading = (statistics.median(column) for column in zip(*figures, strict=True))
            print(f"{format:8} {way:13} {cpu / rows * 1e6:6.1f} CPU s per M rows   {seen:5.0f} files   read in {reading:5.2f} s")
        ratios = [plain[0] / rolled[0] for plain, rolled in zip(*told.values(), strict=True)]
        print(f"{format:8} with roll runs at {statistics.median(ratios):.2f} x the speed, run by run {[round(each, 2) for each in ratios]}")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def read(out: Path, format: str) -> tuple[int, int, int, float]:
    """(rows, sum of ids, files, seconds)"""
    begun = time.perf_counter()
    there = ds.dataset(out, format=format)
    ids: Any = there.to_table(columns=["id"]).column("id")
    return len(ids), pc.sum(ids).as_py(), len(there.files), time.perf_counter() - begun


def merge_alone(total_bytes: int) -> None:
    schema = parse_schema("id BIGINT, text STRING")
    for format, compression in (("json", "none"), ("json", "zstd"), ("csv", "none"), ("parquet", "zstd")):
        folder = Path(tempfile.mkdtemp(prefix="merge-"))
        try:
            options = {"path": "out", "format": format, "compression": compression, "roll": {"size": 2**40, "every": 3600.0}}
            sink = FilesSink(ConnectorContext("kept", folder, SINK.filled(options)))
            sink.prepare(owner="bench", lineage="l")
            made = number = 0
            batch = pa.RecordBatch.from_pylist(
                [{"id": i, "text": f"{i * 7919 % 10**9:09} and more of it"} for i in range(20_000)], arrow_schema(schema)
            )
            while made < total_bytes:
                id_ = BatchId("f", "q", "l", number, 1)
                stream = sink.stream(id_, 0, f"a{number}", schema)
                stream.write(batch)
                receipt = stream.close()
                sink.publish(Decided(id_, f"h{number}", (receipt,)))
                made, number = made + receipt.bytes, number + 1
            wall, cpu = time.perf_counter(), time.process_time()
            done = roll_folder(folder / "out", lambda: None, flush=True)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            gib = made / 2**30
            print(
                f"merge of {done.merged:4} segments, {show_bytes(made):>9} {format:7} {compression:4}: "
                f"{cpu / gib:5.1f} CPU s per GiB, {wall / gib:5.1f} s"
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--files", type=int, default=40, help="one Batch each")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--format", default="parquet", choices=("json", "parquet"))
    parser.add_argument("--merge", type=int, default=256, help="MiB to be merged alone, for each format; 0: none")
    arguments = parser.parse_args()
    if arguments.merge:
        merge_alone(arguments.merge * 2**20)
    if arguments.rows:
        compare(arguments.rows, arguments.runs, arguments.files, arguments.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""SQL steps in the tail's vector engine beside the same steps in Spark (python benchmarks/engines.py --rows N).

The same flow, `engine: auto` and `engine: spark` in turn, over JSON lines, CSV and Parquet: a filter that keeps few rows, one that keeps
most, and computed columns. Outputs are checked against each other. Ratios are of wall and of CPU seconds, the median of pairs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.json
import pyarrow.parquet as pq
from cpu import tree_cpu_s
from rivals import SCHEMA

from harness.tweets import write_tweets
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLOW = """
version: 1
name: {name}
defaults: {{engine: {engine}}}
sources:
  tweets: {{type: files, path: {format}, format: {format}, schema: "{schema}"}}
steps:
{steps}
sinks:
  kept: {{from: last, type: files, path: "{out}", format: parquet}}
"""
CASES = {
    "few": """
  known: {from: tweets, filter: followers > 5000}
  last: {from: known, filter: "retweets > 500 AND contains(text, '#PresidentialDebate')"}""",
    "most": """
  last: {from: tweets, filter: "length(text) > 20 AND NOT user LIKE '%99'"}""",
    "select": """
  last: {from: tweets, select: {id: id, who: "trim(user)", n: followers + retweets, hour: hour(ts), text: text}}""",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--only", default="", help="formats and cases, with commas, such as parquet,few")
    asked = options.parse_args()
    only = {word for word in asked.only.split(",") if word}
    with tempfile.TemporaryDirectory(prefix="scribengin-engines-") as name:
        folder = Path(name)
        write_inputs(folder, asked.rows)
        spark = start_session("engines", master="", memory="4g", conf={}, folder=folder / "spark")
        print(f"{'':<18}{'M rows/s':>10}{'by Spark':>10}{'faster':>9}{'cpu s':>8}{'by Spark':>10}{'ratio':>8}")
        for format_ in ("json", "csv", "parquet"):
            for case in CASES:
                if not only or only & {format_, case}:
                    compare(folder, spark, format_, case, asked.rows, asked.runs)
        spark.stop()


def write_inputs(folder: Path, rows: int) -> None:
    """The same well-formed tweets three times: JSON lines with the bad ones, CSV and Parquet without."""
    write_tweets(folder / "json", rows=rows)
    for name in ("csv", "parquet"):
        (folder / name).mkdir()
    types = pa.schema(
        [(n, pa.string() if t == "STRING" else pa.int64()) for n, t in (each.split() for each in SCHEMA.split(", ")) if n != "ts"]
    )
    for file in sorted((folder / "json").iterdir()):
        lines = [line for line in file.read_bytes().splitlines(keepends=True) if line.startswith(b'{"id":') and line.endswith(b"}\n")]
        good = pa.BufferReader(b"".join(line for line in lines if line.count(b'"ts":"2026-01-01T') == 1 and line.count(b'"id"') == 1))
        explicit = pyarrow.json.ParseOptions(explicit_schema=types.append(pa.field("ts", pa.timestamp("us", tz="UTC"))))
        try:
            table = pyarrow.json.read_json(good, parse_options=explicit)
        except pa.ArrowInvalid:
            table = _one_by_one(lines, explicit)
        pq.write_table(table, folder / "parquet" / f"{file.stem}.parquet")
        texts = table.set_column(5, "ts", pa.compute.strftime(table["ts"], "%Y-%m-%dT%H:%M:%SZ"))
        pyarrow.csv.write_csv(texts, folder / "csv" / f"{file.stem}.csv")


def _one_by_one(lines: list[bytes], options: pyarrow.json.ParseOptions) -> pa.Table:
    import json

    def is_good(line: bytes) -> bool:
        try:
            row = json.loads(line)
        except ValueError:
            return False
        numbers = (row.get(name) for name in ("id", "followers", "retweets"))
        return all(type(number) is int and abs(number) < 1 << 63 for number in numbers) and "-02-30" not in str(row.get("ts"))

    return pyarrow.json.read_json(pa.BufferReader(b"".join(filter(is_good, lines))), parse_options=options)


def compare(folder: Path, spark: SparkSession, format_: str, case: str, rows: int, runs: int) -> None:
    walls: dict[str, list[float]] = {"auto": [], "spark": []}
    cpus: dict[str, list[float]] = {"auto": [], "spark": []}
    for turn in range(runs + 1):  # the first turn warms up
        found = {}
        for engine in ("auto", "spark"):
            name = f"{format_}_{case}_{engine}_{turn}"
            out = folder / f"out-{name}"
            (folder / f"{name}.yaml").write_text(
                FLOW.format(name=name, engine=engine, format=format_, schema=SCHEMA, steps=CASES[case].lstrip("\n"), out=out)
            )
            cpu, begun = tree_cpu_s(), time.perf_counter()
            result = run_flow(
                folder / f"{name}.yaml", RunSettings(once=True, state=folder / f"state-{name}"), lambda view: None, spark=spark
            )
            wall, cpu = time.perf_counter() - begun, tree_cpu_s() - cpu
            if result.state != "finished" or not result.balanced:
                raise SystemExit(f"{name}: {result.state}, {result.problems} {result.violations}")
            table = ds.dataset(out, format="parquet", exclude_invalid_files=True).to_table(columns=["id"])
            found[engine] = (table.num_rows, sum(table["id"].to_pylist()))
            shutil.rmtree(out)
            if turn:
                walls[engine].append(wall)
                cpus[engine].append(cpu)
        if found["auto"] != found["spark"]:
            raise SystemExit(f"{format_} {case}: {found}")
    wall, by_spark = (statistics.median(walls[engine]) for engine in ("auto", "spark"))
    cpu, cpu_by_spark = (statistics.median(cpus[engine]) for engine in ("auto", "spark"))
    faster, ratio = (statistics.median(b / a for a, b in zip(each["auto"], each["spark"], strict=True)) for each in (walls, cpus))
    speeds = f"{rows / wall / 1e6:>10.2f}{rows / by_spark / 1e6:>10.2f}{faster:>8.2f}x"
    print(f"{format_ + ' ' + case:<18}{speeds}{cpu:>8.2f}{cpu_by_spark:>10.2f}{ratio:>7.2f}x")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""CSV into Parquet: a flow beside Spark's own CSV reader and beside an earlier checkout (python benchmarks/csv_read.py --rows N).

Plain cells, and the same rows with every text in quotes, some with delimiters, quotes and line ends. Spark has the schema, PERMISSIVE and
the column of corrupt records, and keeps the rows that have none. First the decoder alone, beside its long way: CPU seconds of cutting and
decoding. Then whole flows in a warm session, contenders in turn, `--runs` turns after one that warms up; count and sums are checked
before a figure counts. Medians, of the ratios pair by pair. With `--before SRC`, the folder `src` of an earlier checkout, that one is a
contender too, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from cpu import tree_cpu_s

from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"
FLOW = """
version: 1
name: {name}
sources: {{rows: {{type: files, path: "{data}", format: csv, schema: "{schema}"}}}}
sinks: {{kept: {{from: rows, type: files, path: "{out}", format: parquet}}}}
"""
FILES = 8
KINDS = ("plain", "quoted")
ALONE = """
import json, sys, time
from pathlib import Path
from scribengin.core.types import parse_schema
try:
    from scribengin.connectors.files.splitting import CsvCutter
except ImportError:  # an earlier checkout
    from scribengin.connectors.files.cutting import CsvCutter
from scribengin.formats.csv import CsvDecoder
folder, schema = Path(sys.argv[1]), parse_schema(sys.argv[2])
decoder = CsvDecoder(schema)
if "long" in sys.argv[3:]:
    decoder.quick = None
spent, rows = [], 0
for turn in range(4):
    begun, rows = time.process_time(), 0
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        data = data[data.index(b"\\n") + 1 :]
        pieces = (data[at : at + 262144] for at in range(0, len(data), 262144))
        for block in CsvCutter(str(path), 1 << 24, header=tuple(schema.names)).cut(pieces, 0):
            rows += decoder.columns(block).batch.num_rows
    spent.append(time.process_time() - begun)
print(json.dumps([rows, min(spent)]))
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--before", type=Path, help="an earlier checkout in which `make setup` was run")
    options.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.serve is not None:
        serve(asked.serve)
        return
    with tempfile.TemporaryDirectory(prefix="scribengin-csv-") as name:
        folder = Path(name)
        for kind in KINDS:
            write_rows(folder / kind, asked.rows, quoted=kind == "quoted")
            alone(folder / kind, kind, asked.before)
        spark = start_session("csv", master="", memory="2g", conf={}, folder=folder / "spark")
        before = None if asked.before is None else start_earlier(folder, asked.before)
        print(f"{'':<34}{'M rows/s':>10}{'wall s':>9}{'cpu s':>8}")
        for kind in KINDS:
            compare(spark, before, folder, kind, asked.rows, asked.runs)
        if before is not None:
            before.communicate()
        spark.stop()


def start_earlier(folder: Path, checkout: Path) -> subprocess.Popen[str]:
    """The earlier checkout's process, which runs flows of the lines that it is sent."""
    command = [str(checkout / ".venv" / "bin" / "python"), __file__, "--serve", str(folder)]
    paths = os.pathsep.join([str(checkout.resolve() / "src"), str(Path(__file__).parent)])
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve(folder: Path) -> None:
    spark = start_session("earlier", master="", memory="2g", conf={}, folder=folder / "spark-earlier")
    for line in sys.stdin:
        data, out, name = line.rstrip("\n").split("\t")
        cpu = tree_cpu_s()
        by_flow(spark, folder, Path(data), Path(out), name)
        print(f"ran {tree_cpu_s() - cpu}", flush=True)
    spark.stop()


def write_rows(folder: Path, rows: int, *, quoted: bool) -> None:
    """The same rows either way, but for the texts."""
    folder.mkdir()
    each = rows // FILES
    for file in range(FILES):
        with (folder / f"{file}.csv").open("w") as out:
            out.write("id,user,text,followers,retweets,ts\n")
            for id_ in range(file * each, (file + 1) * each):
                user, text = f"user{id_ * 7919 % 100_000}", f"Text number {id_} of a tweet with #PresidentialDebate and more words"
                if quoted:
                    more = (", and more", ' ""so they say""', "\nnext line", "")[id_ % 4]
                    user, text = f'"{user}"', f'"{text}{more}"'
                seconds = id_ % 86_400
                at = f"2026-01-{id_ % 28 + 1:02}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
                out.write(f"{id_},{user},{text},{id_ * 31 % 10_007},{id_ * 17 % 1_009},{at}\n")


def alone(data: Path, kind: str, before: Path | None) -> None:
    here = Path(__file__).parent.parent / "src"
    ways = {"now": (here, ""), "the long way": (here, "long")} | ({} if before is None else {"before": (before / "src", "")})
    spent = {}
    for name, (source, way) in ways.items():
        command = [sys.executable, "-c", ALONE, str(data), SCHEMA, way]
        told = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(source.resolve())}, capture_output=True, text=True, check=True)
        rows, spent[name] = json.loads(told.stdout)
        if rows != len(list(data.iterdir())) * (rows // FILES):
            raise SystemExit(f"{kind}, {name}: {rows} rows")
        print(f"{kind}, alone: {name} {rows / spent[name] / 1e6:.2f} M rows/cpu s, {spent[name] / spent['now']:.2f} x the CPU of now")


def compare(spark: SparkSession, before: subprocess.Popen[str] | None, folder: Path, kind: str, rows: int, runs: int) -> None:
    contenders: dict[str, Callable[[Path, str], float]] = {
        "scribengin": lambda out, name: counted(lambda: by_flow(spark, folder, folder / kind, out, name)),
        "Spark's CSV reader": lambda out, _: counted(lambda: by_spark(spark, folder / kind, out)),
    }
    if before is not None:
        contenders["scribengin before"] = lambda out, name: by_earlier(before, folder / kind, out, name)
    walls: dict[str, list[float]] = {name: [] for name in contenders}
    cpus: dict[str, list[float]] = {name: [] for name in contenders}
    found: dict[str, tuple[int, ...]] = {}
    for turn in range(runs + 1):
        for number, (name, run) in enumerate(contenders.items()):
            out = folder / f"out-{kind}-{number}-{turn}"
            begun = time.perf_counter()
            cpu = run(out, f"{kind}_{number}_{turn}")
            wall = time.perf_counter() - begun
            found[name] = outcome(out)
            shutil.rmtree(out)
            if turn:
                walls[name].append(wall)
                cpus[name].append(cpu)
        if len(set(found.values())) > 1 or found["scribengin"][0] != rows // FILES * FILES:
            raise SystemExit(f"{kind}: {found}")
    for name in contenders:
        wall, cpu = statistics.median(walls[name]), statistics.median(cpus[name])
        print(f"{kind + ', ' + name:<34}{rows / wall / 1e6:>10.2f}{wall:>9.2f}{cpu:>8.2f}")
    for name in list(contenders)[1:]:
        faster, cheaper = (
            statistics.median(theirs / ours for ours, theirs in zip(each["scribengin"], each[name], strict=True)) for each in (walls, cpus)
        )
        print(f"{kind}: scribengin is {faster:.2f} x as fast as {name}, {cheaper:.2f} x by CPU seconds")
    sys.stdout.flush()


def outcome(out: Path) -> tuple[int, ...]:
    """What the rows come to."""
    table = ds.dataset(out, format="parquet", exclude_invalid_files=True).to_table()
    lengths = (pc.sum(pc.binary_length(table[name])).as_py() for name in ("user", "text"))
    sums = (pc.sum(table[name].cast("int64")).as_py() for name in ("id", "followers", "retweets"))
    return table.num_rows, *lengths, *sums, pc.sum(table["ts"].cast(pa.timestamp("s", "UTC")).cast("int64")).as_py()


def counted(run: Callable[[], None]) -> float:
    """The CPU seconds of a run."""
    cpu = tree_cpu_s()
    run()
    return tree_cpu_s() - cpu


def by_flow(spark: SparkSession, folder: Path, data: Path, out: Path, name: str) -> None:
    (folder / f"{name}.yaml").write_text(FLOW.format(name=name, data=data, out=out, schema=SCHEMA))
    result = run_flow(folder / f"{name}.yaml", RunSettings(once=True, state=folder / f"state-{name}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{name}: {result.state}, {result.problems} {result.violations}")


def by_earlier(process: subprocess.Popen[str], data: Path, out: Path, name: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{data}\t{out}\t{name}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("ran "):
            return float(line.split()[1])
    raise SystemExit("the earlier checkout's process has ended")


def by_spark(spark: SparkSession, data: Path, out: Path) -> None:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad", "header": "true", "multiLine": "true", "escape": '"'}
    if data.name == "plain":
        del options["multiLine"]
    read = spark.readStream.schema(f"{SCHEMA}, bad STRING").options(**options).csv(str(data))
    writer = read.where("bad IS NULL").drop("bad").writeStream.format("parquet").option("checkpointLocation", f"{out}.checkpoint")
    writer.trigger(availableNow=True).start(str(out)).awaitTermination()


if __name__ == "__main__":
    main()

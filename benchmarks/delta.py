"""Tweets in Parquet to a Delta table: Scribengin beside Delta's own writers (python benchmarks/delta.py --rows N).

Those are delta-spark in the same session, and a bare `write_deltalake`, which takes file after file as Arrow reads it, in this process.
With `--store` two more, into an object store beside (versitygw: that needs Go). Contenders interleaved, `--runs` turns after one that warms
up. Each table is read by another reader and checked (count, sum of ids) before its figure counts. Told are rows/s of wall time, medians;
ratios are taken turn by turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake
from postgres import make_data

from harness.faults.delta_flows import files_of
from harness.object_stores import address
from scribengin.connectors.delta.folder import FolderPlace
from scribengin.connectors.delta.stored import StorePlace
from scribengin.embedded.jars import fetch
from scribengin.embedded.objects import ObjectServer
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.connectors.delta.places import TablePlace

FLOW = """version: 1
name: {name}
sources: {{tweets: {{type: files, path: "${{env:BENCH_DATA}}", format: parquet}}}}
sinks: {{kept: {{from: tweets, type: delta, path: "{path}"{mode}}}}}
"""
EXTENSIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.parquet.compression.codec": "zstd",
}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--store", action="store_true", help="into an object store too")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, ExitStack() as stack:
        server = stack.enter_context(ObjectServer(Path(name, "store"))) if asked.store else None
        run(Path(name), asked.rows, asked.runs, server)


def run(folder: Path, rows: int, runs: int, server: ObjectServer | None) -> None:
    expected = make_data(folder, rows)
    os.environ["BENCH_DATA"] = str(folder / "parquet")
    jars = ",".join(map(str, fetch("delta-spark", lambda line: print(line, file=sys.stderr))))
    spark = start_session("bench", master="", memory="4g", conf={"spark.jars": jars} | EXTENSIONS, folder=folder / "spark")
    contenders: dict[str, tuple[str, Callable[[int], None]]] = {
        "scribengin: append": ("ours", lambda turn: by_scribengin(spark, folder, "ours", turn, "")),
        "scribengin: upsert": ("by_key", lambda turn: by_scribengin(spark, folder, "by_key", turn, ", mode: upsert, key: [id]")),
        "pyspark: delta-spark's append": ("theirs", lambda _: by_delta_spark(spark, folder)),
        "write_deltalake of the files": ("bare", lambda _: by_deltalake(folder)),
    }
    if server is not None:
        store = server
        contenders["scribengin: append into a store"] = ("stored", lambda turn: by_scribengin(spark, folder, "stored", turn, "", store))
        contenders["write_deltalake into a store"] = (
            "bare_stored",
            lambda turn: by_deltalake(folder, stored(store, f"bare_stored-{turn}")),
        )
    wall_s: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(runs + 1):
        named = list(contenders.items())
        for name, (table, write) in named[turn % len(named) :] + named[: turn % len(named)]:
            shutil.rmtree(folder / "lake" / table, ignore_errors=True)
            os.sync()
            begun_s = time.perf_counter()
            write(turn)
            spent_s = time.perf_counter() - begun_s
            found = read_back(FolderPlace("", folder / "lake" / table) if "stored" not in table else stored(server, f"{table}-{turn}"))
            if found != expected:
                raise SystemExit(f"{name}: {found} (rows, sum of ids) in the table, expected {expected}")
            if turn:
                wall_s[name].append(spent_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<42}{spent_s:7.2f} s", file=sys.stderr)
    tell(wall_s, expected[0])
    spark.stop()


def by_scribengin(spark: Any, folder: Path, name: str, turn: int, mode: str, server: ObjectServer | None = None) -> None:
    flow = folder / f"{name}.yaml"
    path = f"lake/{name}"
    if server is not None:
        path = stored(server, f"{name}-{turn}").uri
        mode += f', endpoint: "{server.uri}"'
        os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(server.credentials)
    flow.write_text(FLOW.format(name=name, path=path, mode=mode))
    result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{name}-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")


def by_delta_spark(spark: Any, folder: Path) -> None:
    spark.read.parquet(str(folder / "parquet")).write.format("delta").mode("append").save(str(folder / "lake/theirs"))


def by_deltalake(folder: Path, place: TablePlace | None = None) -> None:
    to = place or FolderPlace("", folder / "lake/bare")
    properties = WriterProperties(compression="ZSTD")
    for file in sorted((folder / "parquet").iterdir()):
        write_deltalake(to.uri, pq.read_table(file), mode="append", writer_properties=properties, storage_options=to.options)


def stored(server: ObjectServer | None, name: str) -> StorePlace:
    """A table in the store."""
    assert server is not None
    return StorePlace(address(server, name))


def read_back(place: TablePlace) -> tuple[int, int]:
    """(rows, sum of ids), by Arrow."""
    table = place.open()
    assert table is not None
    found: ds.Dataset = table.to_pyarrow_dataset(filesystem=files_of(place))
    ids = found.to_table(columns=["id"]).column("id")
    return len(ids), pc.sum(ids).as_py()


def tell(wall_s: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets to a table, rows/s (median of {len(next(iter(wall_s.values())))})")
    for name, each in wall_s.items():
        print(f"  {name:<42}{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})")
    ours = wall_s["scribengin: append"]
    for name in ("pyspark: delta-spark's append", "write_deltalake of the files"):
        ratio = statistics.median(their / our for their, our in zip(wall_s[name], ours, strict=True))
        print(f"scribengin: append is {ratio:.2f} × {name}")
    stored_s = wall_s.get("scribengin: append into a store")
    for name in ("scribengin: append", "write_deltalake into a store") if stored_s else ():
        ratio = statistics.median(their / our for their, our in zip(wall_s[name], stored_s or (), strict=True))
        print(f"scribengin: append into a store is {ratio:.2f} × {name}")


if __name__ == "__main__":
    main()

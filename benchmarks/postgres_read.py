"""A table of PostgreSQL to Parquet: Scribengin beside Spark's JDBC source and a bare COPY (python benchmarks/postgres_read.py --rows N).

One server of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. What was written is
checked (count, sum of ids) before its figure counts. JDBC is given the same ranges of the key, and fetches 10,000 rows at once; by itself
it reads over one connection. The bare COPY goes over one connection into a file of CSV. Told are rows/s of wall time, and
CPU seconds of all processes, the server's among them: medians; ratios are taken turn by turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.compute as pc
import pyarrow.dataset as pads
from cpu import tree_cpu_s
from postgres import COLUMNS, by_copy, make_data

from scribengin.embedded.jars import fetch
from scribengin.embedded.postgres import Postgres
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

SPLITS = 4
FLOW = """version: 1
name: {name}
sources: {{tweets: {{type: postgres, server: "${{env:BENCH_SERVER}}", table: bare, {mode}, split: {split}, max_rows: {rows}}}}}
sinks: {{kept: {{from: tweets, type: files, path: out, format: parquet}}}}
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, Postgres(Path(name) / "server") as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: Postgres, rows: int, runs: int) -> None:
    make_data(folder, rows)
    by_copy(folder, server)
    with psycopg.connect(server.uri, autocommit=True) as admin:
        admin.execute("DELETE FROM bare WHERE ts IS NULL")
        admin.execute("DELETE FROM bare one USING bare other WHERE one.id = other.id AND one.ctid > other.ctid")
        admin.execute("ALTER TABLE bare ADD PRIMARY KEY (id), ALTER ts SET NOT NULL")
        admin.execute("CREATE INDEX ON bare (ts, id)")
        admin.execute("VACUUM ANALYZE bare")
        found = admin.execute("SELECT count(*), sum(id), min(id), max(id) FROM bare").fetchone()
        assert found is not None
    expected = (found[0], int(found[1]))
    os.environ["BENCH_SERVER"] = server.uri
    (jar,) = fetch("postgres-jdbc", lambda line: print(line, file=sys.stderr))
    spark = start_session("bench", master="", memory="4g", conf={"spark.jars": str(jar)}, folder=folder / "spark")
    cut = {"partitionColumn": "id", "lowerBound": str(found[2]), "upperBound": str(found[3]), "numPartitions": str(SPLITS)}
    contenders: dict[str, Callable[[Path, int], None]] = {
        "scribengin: snapshot": lambda out, turn: by_scribengin(spark, out, rows, "snap", turn, "mode: snapshot"),
        "scribengin: incremental": lambda out, turn: by_scribengin(spark, out, rows, "inc", turn, "mode: incremental, by: ts, settle: 0s"),
        "pyspark: JDBC in ranges": lambda out, _: by_jdbc(spark, out, server, {"fetchsize": "10000"} | cut),
        "pyspark: JDBC": lambda out, _: by_jdbc(spark, out, server, {"fetchsize": "10000"}),
        "COPY to a CSV file": lambda out, _: copy_out(out, server),
    }
    wall_s: dict[str, list[float]] = {name: [] for name in contenders}
    cpu_s: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(runs + 1):
        named = list(contenders.items())
        for name, read in named[turn % len(named) :] + named[: turn % len(named)]:
            place = folder / "read"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            begun_s, before_s = time.perf_counter(), tree_cpu_s()
            read(place, turn)
            spent_s, used_s = time.perf_counter() - begun_s, tree_cpu_s() - before_s
            if (there := written(place)) != expected:
                raise SystemExit(f"{name}: {there} (rows, sum of ids) were written, expected {expected}")
            if turn:
                wall_s[name].append(spent_s)
                cpu_s[name].append(used_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<30}{spent_s:7.2f} s  CPU {used_s:6.2f} s", file=sys.stderr)
    tell(wall_s, cpu_s, expected[0])
    spark.stop()


def by_scribengin(spark: Any, out: Path, rows: int, name: str, turn: int, mode: str) -> None:
    flow = out / "flow.yaml"
    flow.write_text(FLOW.format(name=name, mode=mode, split=-(-rows // SPLITS), rows=rows))
    result = run_flow(flow, RunSettings(once=True, state=out / f"state-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")


def by_jdbc(spark: Any, out: Path, server: Postgres, settings: dict[str, str]) -> None:
    given = {
        "user": "postgres",
        "driver": "org.postgresql.Driver",
        "url": f"jdbc:postgresql://{server.address}/postgres",
        "dbtable": "bare",
    }
    spark.read.format("jdbc").options(**(given | settings)).load().write.parquet(str(out / "out"))


def copy_out(out: Path, server: Postgres) -> None:
    names = ", ".join(column.split()[0] for column in COLUMNS.split(", "))
    query = f"COPY bare ({names}) TO STDOUT (FORMAT csv, HEADER)"
    with psycopg.connect(server.uri) as connection, connection.cursor() as cursor:  # noqa: SIM117 (the copy ends before its cursor)
        with cursor.copy(query) as copy, (out / "out.csv").open("wb") as file:
            for data in copy:
                file.write(data)


def written(out: Path) -> tuple[int, int]:
    """(rows, sum of ids)"""
    place = out / "out.csv"
    table = pads.dataset(place, format="csv") if place.exists() else pads.dataset(out / "out", format="parquet")
    ids = table.to_table(columns=["id"]).column("id")
    return len(ids), int(pc.sum(ids).as_py())


def tell(wall_s: dict[str, list[float]], cpu_s: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets of a table, rows/s (median of {len(next(iter(wall_s.values())))})")
    for name, each in wall_s.items():
        speeds = f"{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})"
        print(f"  {name:<30}{speeds}  CPU {statistics.median(cpu_s[name]):.1f} s")
    for name in ("pyspark: JDBC in ranges", "pyspark: JDBC", "COPY to a CSV file"):
        wall, cpu = (
            statistics.median(their / our for their, our in zip(all_s[name], all_s["scribengin: snapshot"], strict=True))
            for all_s in (wall_s, cpu_s)
        )
        print(f"scribengin: snapshot is {wall:.2f} × {name}, by CPU seconds {cpu:.2f} ×")


if __name__ == "__main__":
    main()

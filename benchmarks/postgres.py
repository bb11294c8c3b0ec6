"""Tweets in Parquet to a table of PostgreSQL: Scribengin beside Spark's JDBC sink and a bare COPY (python benchmarks/postgres.py --rows N).

One server of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. Each table is checked
(count, sum of ids) before its figure counts. The bare COPY sends a CSV file that lies there ready, over one connection. Told are rows/s
of wall time, medians; ratios are taken turn by turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from harness.tweets import write_tweets
from scribengin.embedded.jars import fetch
from scribengin.embedded.postgres import Postgres
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = 4
FLOW = """version: 1
name: {name}
sources: {{tweets: {{type: files, path: "${{env:BENCH_DATA}}", format: parquet}}}}
sinks: {{kept: {{from: tweets, type: postgres, server: "${{env:BENCH_SERVER}}", table: {name}{mode}}}}}
"""
IMPOSSIBLE = b"2026-02-30"
"""a day that some tweets have"""
COLUMNS = 'id bigint, "user" text, text text, followers bigint, retweets bigint, ts timestamp with time zone'


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, Postgres(Path(name) / "server") as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: Postgres, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    os.environ["BENCH_DATA"], os.environ["BENCH_SERVER"] = str(folder / "parquet"), server.uri
    (jar,) = fetch("postgres-jdbc", lambda line: print(line, file=sys.stderr))
    spark = start_session("bench", master="", memory="4g", conf={"spark.jars": str(jar)}, folder=folder / "spark")
    contenders: dict[str, Callable[[int], None]] = {
        "scribengin: append": lambda turn: by_scribengin(spark, folder, "ours", turn, ""),
        "scribengin: append, visible: unit": lambda turn: by_scribengin(spark, folder, "by_units", turn, ", visible: unit"),
        "scribengin: upsert": lambda turn: by_scribengin(spark, folder, "by_key", turn, ", mode: upsert, key: [id]"),
        "pyspark: JDBC append": lambda _: by_jdbc(spark, folder, server, "jdbc", {}),
        "pyspark: JDBC append, rewritten inserts": lambda _: by_jdbc(spark, folder, server, "jdbc_many", {"reWriteBatchedInserts": "true"}),
        "COPY of a CSV file": lambda _: by_copy(folder, server),
    }
    tables = dict(zip(contenders, ("ours", "by_units", "by_key", "jdbc", "jdbc_many", "bare"), strict=True))
    wall_s: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(runs + 1):
        named = list(contenders.items())
        for name, write in named[turn % len(named) :] + named[: turn % len(named)]:
            with psycopg.connect(server.uri, autocommit=True) as admin:
                admin.execute(f"DROP TABLE IF EXISTS {tables[name]}; DROP SCHEMA IF EXISTS scribengin CASCADE")
                admin.execute("CHECKPOINT")
                begun_s = time.perf_counter()
                write(turn)
                spent_s = time.perf_counter() - begun_s
                found = admin.execute(f"SELECT count(*), sum(id) FROM {tables[name]}").fetchone()
            if found is None or (found[0], int(found[1])) != expected:
                raise SystemExit(f"{name}: {found} (rows, sum of ids) in the table, expected {expected}")
            if turn:
                wall_s[name].append(spent_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<42}{spent_s:7.2f} s", file=sys.stderr)
    tell(wall_s, rows)
    spark.stop()


def make_data(folder: Path, rows: int) -> tuple[int, int]:
    """Parquet files and the same as CSV; (rows, sum of ids)."""
    write_tweets(folder / "json", rows=rows, files=FILES)
    (folder / "parquet").mkdir()

    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("user", pa.string()),
            ("text", pa.string()),
            ("followers", pa.int64()),
            ("retweets", pa.int64()),
            ("ts", pa.timestamp("us", tz="UTC")),
        ]
    )
    count = total = 0
    with (folder / "rows.csv").open("wb") as out:
        for file in sorted((folder / "json").iterdir()):
            lines = [line for line in file.read_bytes().splitlines() if line.startswith(b"{") and line.endswith(b"}")]
            table = read_tweets(lines, schema)
            pq.write_table(table, folder / "parquet" / f"{file.stem}.parquet")
            pacsv.write_csv(table, out, pacsv.WriteOptions(include_header=False))
            count, total = count + table.num_rows, total + sum(table.column("id").to_pylist())
    return count, total


def read_tweets(lines: list[bytes], schema: pa.Schema) -> pa.Table:
    """Those that are whole and keep the types."""
    import orjson

    rows = []
    for line in lines:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if all(isinstance(row.get(name), int) for name in ("id", "followers", "retweets")) and IMPOSSIBLE not in line:
            rows.append(line)
    read = pajson.read_json(
        pa.BufferReader(b"\n".join(rows)),
        parse_options=pajson.ParseOptions(explicit_schema=schema.set(5, pa.field("ts", pa.timestamp("us")))),
    )
    return read.select(schema.names).cast(schema)


def by_scribengin(spark: Any, folder: Path, name: str, turn: int, mode: str) -> None:
    flow = folder / f"{name}.yaml"
    flow.write_text(FLOW.format(name=name, mode=mode))
    result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{name}-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")


def by_jdbc(spark: Any, folder: Path, server: Postgres, table: str, settings: dict[str, str]) -> None:
    given = {"user": "postgres", "driver": "org.postgresql.Driver"} | settings
    spark.read.parquet(str(folder / "parquet")).write.jdbc(f"jdbc:postgresql://{server.address}/postgres", table, "append", given)


def by_copy(folder: Path, server: Postgres) -> None:
    with psycopg.connect(server.uri) as connection, connection.cursor() as cursor, (folder / "rows.csv").open("rb") as file:
        cursor.execute(f"CREATE TABLE bare ({COLUMNS})")
        with cursor.copy("COPY bare FROM STDIN (FORMAT csv)") as copy:
            while data := file.read(1 << 20):
                copy.write(data)


def tell(wall_s: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets to a table, rows/s (median of {len(next(iter(wall_s.values())))})")
    for name, each in wall_s.items():
        print(f"  {name:<42}{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})")
    for ours in ("scribengin: append", "scribengin: append, visible: unit"):
        for name, target in (("pyspark: JDBC append", 3.0), ("pyspark: JDBC append, rewritten inserts", None), ("COPY of a CSV file", 0.5)):
            ratio = statistics.median(their / our for their, our in zip(wall_s[name], wall_s[ours], strict=True))
            aim = "" if target is None else f", to reach: {target:g}"
            print(f"{ours} is {ratio:.2f} × {name}{aim}")


if __name__ == "__main__":
    main()

"""Tweets in Parquet to a table of HBase: Scribengin beside a bare loop of requests (python benchmarks/hbase.py --rows N).

One server of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. The bare loop sends
messages that lie there ready, to the REST server, with as many connections and as many rows a request. Each table is checked (count, sum
of ids) before its figure counts. `replay` sends a decided Batch again that stands there already: what a driver does that was killed before
it said so. Told are rows/s of wall time, medians; ratios are taken turn by turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pyarrow.parquet as pq
from postgres import make_data

from scribengin.connectors.hbase.gateway import open_gateway
from scribengin.connectors.hbase.gateway_contract import HBaseRow
from scribengin.connectors.hbase.options import SINK
from scribengin.connectors.hbase.scan import HBaseScan
from scribengin.connectors.hbase.store import HBaseStore
from scribengin.connectors.keyed.contract import KeyedRows
from scribengin.connectors.keyed.sink import next_base
from scribengin.embedded.hbase import HBase
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

FLOW = """version: 1
name: ours
sources: {tweets: {type: files, path: "${env:BENCH_DATA}", format: parquet}}
sinks: {kept: {from: tweets, type: hbase, server: [SERVER], table: TABLE}}
"""
REST, THRIFT = "scribengin", "scribengin, Thrift"
CONNECTIONS, SOME = 2, 8_000


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, HBase(Path(name) / "server", thrift=True) as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: HBase, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    os.environ["BENCH_DATA"] = str(folder / "parquet")
    spark = start_session("bench", master="", memory="4g", conf={}, folder=folder / "spark")
    seconds: dict[str, list[float]] = defaultdict(list)
    contenders: list[Callable[[int], dict[str, float]]] = [
        lambda turn: by_scribengin(spark, folder, server, expected, turn, REST),
        lambda turn: by_scribengin(spark, folder, server, expected, turn, THRIFT),
        lambda turn: by_loop(folder, server, expected, turn),
    ]
    for turn in range(runs + 1):
        for write in contenders[:: 1 if turn % 2 else -1]:
            for name, spent_s in write(turn).items():
                print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<24}{spent_s:7.2f} s", file=sys.stderr)
                if turn:
                    seconds[name].append(spent_s)
    tell(seconds, expected[0])
    spark.stop()


def by_scribengin(spark: Any, folder: Path, server: HBase, expected: tuple[int, int], turn: int, name: str) -> dict[str, float]:
    kind = "rest" if name == REST else "thrift"
    address = server.uri if name == REST else server.thrift_uri
    flow, table = folder / "ours.yaml", f"{kind}{turn}"
    flow.write_text(FLOW.replace("TABLE", table).replace("SERVER", address))
    begun_s = time.perf_counter()
    result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{kind}-{turn}"), lambda _: None, spark=spark)
    spent_s = time.perf_counter() - begun_s
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")
    check(server, table, expected)
    store, parts = staged(folder, server, f"again{turn}", address)
    sent(store, parts)
    again_s = sent(store, parts)
    check(server, f"again{turn}", expected)
    drop(server, table, f"again{turn}")
    return {name: spent_s, f"{name}: replay": again_s}


def staged(folder: Path, server: HBase, table: str, address: str = "") -> tuple[HBaseStore, list[KeyedRows]]:
    """The rows as a sink has them behind a decision, and the store of a table that is there, by the REST server or the one at `address`."""
    base = next_base(None, -1)
    make(server, table)
    parts = []
    at = 0
    for file in sorted((folder / "parquet").iterdir()):
        for batch in pq.ParquetFile(file).iter_batches(batch_size=SOME):
            ids = [f"tweets/{file.name}+{at + row}" for row in range(batch.num_rows)]
            parts.append(KeyedRows(ids, ids, base + at, batch))
            at += batch.num_rows
    return HBaseStore("kept", SINK.filled({"server": [address or server.uri], "table": table}), ()), parts


def sent(store: HBaseStore, parts: list[KeyedRows]) -> float:
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for answer in pool.map(store.send, parts):
            if answer.refused or answer.again:
                raise SystemExit(f"rows are not taken: {answer}")
    return time.perf_counter() - begun_s


def by_loop(folder: Path, server: HBase, expected: tuple[int, int], turn: int) -> dict[str, float]:
    table = f"bare{turn}"
    store, parts = staged(folder, server, table)
    messages = [store.cells(part).message() for part in parts]
    with httpx2.Client(base_url=server.uri, timeout=120, trust_env=False) as http:
        begun_s = time.perf_counter()

        def send(message: bytes) -> None:
            http.put(f"/{table}/rows", content=message, headers={"Content-Type": "application/x-protobuf"}).raise_for_status()

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(send, messages))
        spent_s = time.perf_counter() - begun_s
    check(server, table, expected)
    drop(server, table)
    return {"bare loop": spent_s}


def make(server: HBase, table: str) -> None:
    schema = {"name": table, "ColumnSchema": [{"name": "d", "VERSIONS": "1"}]}
    httpx2.put(f"{server.uri}/{table}/schema", json=schema, timeout=60, trust_env=False).raise_for_status()


def drop(server: HBase, *tables: str) -> None:
    for table in tables:
        httpx2.delete(f"{server.uri}/{table}/schema", timeout=60, trust_env=False).raise_for_status()


def check(server: HBase, table: str, expected: tuple[int, int]) -> None:
    rows = total = 0
    for some in HBaseScan(open_gateway("kept", [server.uri], {}), table, HBaseRow, page=SOME).pages(b""):
        rows += len(some)
        total += sum(int(cell.value) for row in some for cell in row.cells if cell.column == b"d:id")
    if (rows, total) != expected:
        raise SystemExit(f"{table}: {rows} rows, {total} found, expected {expected} (rows, sum of ids)")


def tell(seconds: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets to a table of HBase, rows/s (median of {len(next(iter(seconds.values())))})")
    for name, each in seconds.items():
        print(f"  {name:<24}{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})")
    for name in (REST, THRIFT):
        ours = seconds[name]
        ratio = statistics.median(bare / our for bare, our in zip(seconds["bare loop"], ours, strict=True))
        cost = statistics.median(again / our for again, our in zip(seconds[f"{name}: replay"], ours, strict=True))
        print(f"{name} is {ratio:.2f} × the bare loop; a replay takes {cost:.2f} of the time")


if __name__ == "__main__":
    main()

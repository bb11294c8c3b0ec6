"""Rows by HTTP beside a bare loop with the same client, and by a writer of Spark beside the same by hand (python benchmarks/plain.py).

The server is a child of this program that reads requests and counts rows. The bare loop takes the lines of the files as they are, cuts
them into the same bodies and sends these over as many connections, with no guarantee. Spark by hand reads Parquet and writes ORC. One warm
session, contenders in turn, `--runs` turns after one that warms up; what came is counted before a figure counts. Medians of wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTIONS, MANY = 4, 500
HTTP = """version: 1
name: {name}
sources: {{rows: {{type: files, path: "{data}", format: json, schema: "id BIGINT, name STRING, text STRING, amount DOUBLE"}}}}
sinks: {{sent: {{from: rows, type: http, url: "{url}", {how}, connections: {connections}, delivery: at_least_once}}}}
"""
SPARK = """version: 1
name: written
sources: {{rows: {{type: files, path: "{data}", format: parquet}}}}
sinks: {{kept: {{from: rows, type: spark, format: orc, path: "{out}", delivery: at_least_once}}}}
"""


class Counter(asyncio.Protocol):
    """As little of HTTP/1.1 as will do. `X-Rows` counts by the bodies' `"id":`."""

    rows = requests = 0

    def connection_made(self, transport: Any) -> None:
        self.transport, self.data = transport, b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            size = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]) if b"content-length:" in head else 0
            if len(self.data) < end + 4 + size:
                return
            body, self.data = self.data[end + 4 : end + 4 + size], self.data[end + 4 + size :]
            said = b""
            if head.startswith(b"get"):
                said = json.dumps([Counter.rows, Counter.requests]).encode()
                Counter.rows = Counter.requests = 0
            else:
                Counter.rows += body.count(b'"id":')
                Counter.requests += 1
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))


def serve(port: Any) -> None:
    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(Counter, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(forever())


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000, help="in requests of many rows, and by Spark's writer")
    options.add_argument("--single", type=int, default=20_000, help="in requests of one row")
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name:
        run(Path(name), f"http://127.0.0.1:{here.recv()}", asked)
    server.terminate()


def run(folder: Path, url: str, asked: Any) -> None:
    make_lines(folder / "many", asked.rows)
    make_lines(folder / "single", asked.single)
    spark = start_session("bench", master="", memory="4g", conf={}, folder=folder / "spark")
    spark.read.schema("id BIGINT, name STRING, text STRING, amount DOUBLE").json(str(folder / "many")).write.parquet(
        str(folder / "parquet")
    )
    contenders: dict[str, tuple[int, Callable[[int], None]]] = {
        f"scribengin: http, body: array, rows: {MANY}": (
            asked.rows,
            lambda turn: by_flow(spark, folder, turn, "many", HTTP, url=url, how=f"body: array, rows: {MANY}"),
        ),
        f"a bare loop, arrays of {MANY}": (asked.rows, lambda _: by_hand(folder / "many", url, MANY)),
        "scribengin: http, body: object": (
            asked.single,
            lambda turn: by_flow(spark, folder, turn, "single", HTTP, url=url, how="body: object"),
        ),
        "a bare loop, a row a request": (asked.single, lambda _: by_hand(folder / "single", url, 1)),
        "scribengin: spark, orc": (asked.rows, lambda turn: by_flow(spark, folder, turn, "parquet", SPARK, out=folder / "out")),
        "the same by hand": (
            asked.rows,
            lambda _: spark.read.parquet(str(folder / "parquet")).write.format("orc").mode("append").save(str(folder / "out")),
        ),
    }
    wall_s: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(asked.runs + 1):
        for name, (rows, write) in contenders.items():
            begun_s = time.perf_counter()
            write(turn)
            spent_s = time.perf_counter() - begun_s
            if (folder / "out").exists():
                found = spark.read.orc(str(folder / "out")).count()
                shutil.rmtree(folder / "out")
            else:
                found = httpx2.get(url).json()[0]
            if found != rows:
                raise SystemExit(f"{name}: {found} rows came, expected {rows}")
            if turn:
                wall_s[name].append(spent_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<44}{spent_s:7.2f} s", file=sys.stderr)
    tell(wall_s, {name: rows for name, (rows, _) in contenders.items()})
    spark.stop()


def make_lines(folder: Path, rows: int) -> None:
    folder.mkdir()
    for file in range(4):
        lines = [
            json.dumps({"id": id_, "name": f"user {id_ % 977}", "text": "some words that are not so many " * 3, "amount": id_ / 8})
            for id_ in range(file, rows, 4)
        ]
        (folder / f"{file}.jsonl").write_text("".join(line + "\n" for line in lines))


def by_flow(spark: Any, folder: Path, turn: int, data: str, text: str, **given: Any) -> None:
    flow = folder / f"{data}.yaml"
    flow.write_text(text.format(name=data, data=folder / data, connections=CONNECTIONS, **given))
    result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{data}-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")


def by_hand(data: Path, url: str, rows: int) -> None:
    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    with httpx2.Client(limits=limits, headers={"Content-Type": "application/json"}) as client, ThreadPoolExecutor(CONNECTIONS) as pool:

        def send(lines: list[bytes]) -> None:
            body = b"[" + b",".join(lines) + b"]" if rows > 1 else lines[0]
            client.post(url, content=body).raise_for_status()

        for file in sorted(data.iterdir()):
            lines = file.read_bytes().splitlines()
            list(pool.map(send, [lines[first : first + rows] for first in range(0, len(lines), rows)]))


def tell(wall_s: dict[str, list[float]], rows: dict[str, int]) -> None:
    print(f"rows/s on {os.cpu_count()} cores, the server with them (median of {len(next(iter(wall_s.values())))})")
    for name, each in wall_s.items():
        print(
            f"  {name:<44}{rows[name] / statistics.median(each):10,.0f}  ({rows[name] / max(each):,.0f} to {rows[name] / min(each):,.0f})"
        )
    named = list(wall_s)
    for ours, theirs in zip(named[::2], named[1::2], strict=True):
        ratio = statistics.median(their / our for their, our in zip(wall_s[theirs], wall_s[ours], strict=True))
        print(f"{ours} is {ratio:.2f} × {theirs}")


if __name__ == "__main__":
    main()

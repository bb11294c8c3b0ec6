"""Tweets in Parquet to an index: Scribengin beside a bare loop of bulk requests (python benchmarks/opensearch.py --rows N).

One server of this program's own (`--server opensearch` or `elasticsearch`), one warm session, contenders interleaved, `--runs` turns after
one that warms up. The bare loop sends lines that lie there ready, with as many connections and as many documents a request. Each index is
checked (count, sum of ids) before its figure counts. `replay` sends a decided Batch again that stands there already: what a driver does
that was killed before it said so. Told are rows/s of wall time, medians; ratios are taken turn by turn.
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

import httpx2
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from postgres import make_data

from scribengin.connectors.keyed.contract import KeyedRows
from scribengin.connectors.opensearch.options import SINK
from scribengin.connectors.opensearch.store import IndexStore
from scribengin.embedded.elasticsearch import Elasticsearch
from scribengin.embedded.opensearch import OpenSearch
from scribengin.formats.json_lines import json_lines
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOW = """version: 1
name: ours
sources: {tweets: {type: files, path: "${env:BENCH_DATA}", format: parquet}}
sinks: {kept: {from: tweets, type: TYPE, server: ["${env:BENCH_SERVER}"], index: ours}}
"""
SERVERS = {"opensearch": OpenSearch, "elasticsearch": Elasticsearch}
CONNECTIONS, SOME = 2, 8_000


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=400_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--server", choices=SERVERS, default="opensearch")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, SERVERS[asked.server](Path(name) / "server") as server:
        run(Path(name), server, asked.rows, asked.runs)


def run(folder: Path, server: OpenSearch | Elasticsearch, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    docs = [line for file in sorted((folder / "parquet").iterdir()) for line in lines_of(file)]
    os.environ["BENCH_DATA"], os.environ["BENCH_SERVER"] = str(folder / "parquet"), server.uri
    spark = start_session("bench", master="", memory="4g", conf={}, folder=folder / "spark")
    seconds: dict[str, list[float]] = {"scribengin": [], "scribengin: replay": [], "bare bulk loop": []}
    with httpx2.Client(base_url=server.uri, timeout=120, trust_env=False) as http:
        contenders: dict[str, Callable[[int], dict[str, float]]] = {
            "ours": lambda turn: by_scribengin(spark, folder, server, turn),
            "bare": lambda _: by_loop(http, docs),
        }
        for turn in range(runs + 1):
            for index, write in list(contenders.items())[:: 1 if turn % 2 else -1]:
                http.delete(f"/{index}")
                http.delete("/scribengin")
                took = write(turn)
                check(http, index, expected)
                for name, spent_s in took.items():
                    print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<24}{spent_s:7.2f} s", file=sys.stderr)
                    if turn:
                        seconds[name].append(spent_s)
    tell(seconds, len(docs))
    spark.stop()


def lines_of(file: Path) -> list[bytes]:
    return [line for batch in pq.ParquetFile(file).iter_batches() for line in json_lines(batch).splitlines()]


def by_scribengin(spark: Any, folder: Path, server: OpenSearch | Elasticsearch, turn: int) -> dict[str, float]:
    flow = folder / "ours.yaml"
    flow.write_text(FLOW.replace("TYPE", next(name for name, kind in SERVERS.items() if isinstance(server, kind))))
    begun_s = time.perf_counter()
    result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{turn}"), lambda _: None, spark=spark)
    spent_s = time.perf_counter() - begun_s
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")
    return {"scribengin": spent_s, "scribengin: replay": replayed(server)}


def replayed(server: OpenSearch | Elasticsearch) -> float:
    """The requests of a Batch whose documents all stand there."""
    store = IndexStore("kept", SINK.filled({"server": [server.uri], "index": "ours"}))
    with httpx2.Client(base_url=server.uri, timeout=120, trust_env=False) as http:
        there = sorted(held(http))
    parts: list[KeyedRows] = []
    begin = 0
    for end in range(1, len(there) + 1):
        # the versions of one request follow one another
        if end == len(there) or end - begin == SOME or there[end][0] != there[end - 1][0] + 1:
            ids = [id_ for _, id_, _ in there[begin:end]]
            parts.append(KeyedRows(ids, ids, there[begin][0], some([doc for _, _, doc in there[begin:end]])))
            begin = end
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for answer in pool.map(store.send, parts):
            if answer.refused or answer.again:
                raise SystemExit(f"a replay is not taken: {answer}")
    return time.perf_counter() - begun_s


def held(http: httpx2.Client) -> Iterator[tuple[int, str, bytes]]:
    """Version, id and document of all."""
    http.post("/ours/_refresh").raise_for_status()
    found = http.post("/ours/_search?scroll=1m&version=true", json={"size": 10_000, "sort": ["_doc"]}).json()
    while hits := found["hits"]["hits"]:
        yield from ((hit["_version"], hit["_id"], msgspec.json.encode(hit["_source"])) for hit in hits)
        found = http.post("/_search/scroll", json={"scroll": "1m", "scroll_id": found["_scroll_id"]}).json()


def some(docs: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(docs, pa.binary())], names=["doc"])


def by_loop(http: httpx2.Client, docs: list[bytes]) -> dict[str, float]:
    begun_s = time.perf_counter()

    def send(first: int) -> None:
        parts: list[bytes] = []
        for number, doc in enumerate(docs[first : first + SOME], first):
            parts += (b'{"index":{"_id":"%d"}}\n' % number, doc, b"\n")
        headers = {"Content-Type": "application/x-ndjson"}
        answer = http.post("/bare/_bulk?filter_path=errors", content=b"".join(parts), headers=headers)
        if answer.json()["errors"]:
            raise SystemExit("the bare loop is refused")

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(send, range(0, len(docs), SOME)))
    return {"bare bulk loop": time.perf_counter() - begun_s}


def check(http: httpx2.Client, index: str, expected: tuple[int, int]) -> None:
    http.post(f"/{index}/_refresh").raise_for_status()
    body = {"size": 0, "track_total_hits": True, "aggs": {"ids": {"sum": {"field": "id"}}}}
    found = http.post(f"/{index}/_search", json=body).raise_for_status().json()
    if (found["hits"]["total"]["value"], int(found["aggregations"]["ids"]["value"])) != expected:
        raise SystemExit(f"{index}: {found['hits']['total']}, {found['aggregations']} found, expected {expected} (rows, sum of ids)")


def tell(seconds: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets to an index, rows/s (median of {len(next(iter(seconds.values())))})")
    for name, each in seconds.items():
        print(f"  {name:<24}{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})")
    ours = seconds["scribengin"]
    ratio = statistics.median(bare / our for bare, our in zip(seconds["bare bulk loop"], ours, strict=True))
    print(f"scribengin is {ratio:.2f} × the bare bulk loop, to reach: 0.9")
    cost = statistics.median(again / our for again, our in zip(seconds["scribengin: replay"], ours, strict=True))
    print(f"a replay takes {cost:.2f} of the time, to reach: 0.5")


if __name__ == "__main__":
    main()

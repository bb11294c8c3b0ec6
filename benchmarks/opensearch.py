"""Tweets in Parquet to an index: Scribengin beside a bare loop of bulk requests (python benchmarks/opensearch.py --rows N).

One server of this program's own (`--server opensearch` or `elasticsearch`), one warm session, contenders interleaved, `--runs` turns after
one that warms up. The bare loop sends lines that lie there ready, with as many connections and as many documents a request; a second one
has ids and versions like ours, and an index that is made like ours: what it takes longer is the server's. Each index is checked (count,
sum of ids) before its figure counts. `replay` sends a decided Batch again that stands there already: what a driver does that was killed
before it said so. Told are rows/s of wall time, medians, and CPU seconds, which other work on the machine changes less; ratios are taken
turn by turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from cpu import tree_cpu_s
from postgres import make_data

from scribengin.connectors.keyed.contract import KeyedRows
from scribengin.connectors.keyed.sink import next_base
from scribengin.connectors.keyed.staged import brief_ids
from scribengin.connectors.opensearch.options import SINK
from scribengin.connectors.opensearch.store import IndexStore, mapping_of
from scribengin.core.types import parse_schema
from scribengin.embedded.elasticsearch import Elasticsearch
from scribengin.embedded.opensearch import OpenSearch
from scribengin.formats.json_out import json_lines
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
OURS, REPLAY, BARE, LIKE_OURS = "scribengin", "scribengin: replay", "bare bulk loop", "bare, our ids and versions"
MAPPING = mapping_of(parse_schema("id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"))
LABEL = "tweets/tweets-000.parquet[0:-1] … tweets-003.parquet[0:-1] (4 files)+"
"""of a stream of the source: a row's id is made of it and the row's number"""


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
    spent: dict[str, list[Spent]] = {OURS: [], REPLAY: [], BARE: [], LIKE_OURS: []}
    plain, like_ours = [b'{"index":{"_id":"%d"}}\n' % number for number in range(len(docs))], actions_like_ours(len(docs))
    with httpx2.Client(base_url=server.uri, timeout=120, trust_env=False) as http:
        contenders: dict[str, Callable[[int], dict[str, Spent]]] = {
            "ours": lambda turn: by_scribengin(spark, folder, server, turn),
            "bare": lambda _: {BARE: measured(server, lambda: by_loop(http, "bare", plain, docs))},
            "like_ours": lambda _: {LIKE_OURS: measured(server, lambda: by_loop(http, "like_ours", like_ours, docs))},
        }
        for turn in range(runs + 1):
            for index, write in list(contenders.items())[:: 1 if turn % 2 else -1]:
                http.delete(f"/{index}")
                http.delete("/scribengin")
                if index == "like_ours":
                    http.put(f"/{index}", json={"mappings": MAPPING}).raise_for_status()
                took = write(turn)
                check(http, index, expected)
                for name, each in took.items():
                    told = f"{each.wall_s:7.2f} s, CPU {each.server_s:6.2f} s of the server, {each.other_s:6.2f} s of others"
                    print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<28}{told}", file=sys.stderr)
                    if turn:
                        spent[name].append(each)
    tell(spent, len(docs))
    spark.stop()


@dataclass(frozen=True)
class Spent:
    """Seconds of wall time, and of CPU: of the server, and of all else that this program has below it."""

    wall_s: float
    server_s: float
    other_s: float


def measured(server: OpenSearch | Elasticsearch, do: Callable[[], object]) -> Spent:
    def cpu_s() -> tuple[float, float]:
        times = psutil.Process(server.pid).cpu_times()
        return times.user + times.system, tree_cpu_s()

    (server_s, all_s), begun_s = cpu_s(), time.perf_counter()
    do()
    wall_s, (server_then_s, all_then_s) = time.perf_counter() - begun_s, cpu_s()
    return Spent(wall_s, server_then_s - server_s, all_then_s - all_s - (server_then_s - server_s))


def actions_like_ours(rows: int) -> list[bytes]:
    ids = brief_ids(pa.array([f"{LABEL}{number}" for number in range(rows)])).to_pylist()
    base = next_base(None, -1)
    return [
        b'{"index":{"_id":"%s","version":%d,"version_type":"external"}}\n' % (id_.encode(), version)
        for version, id_ in enumerate(ids, base)
    ]


def lines_of(file: Path) -> list[bytes]:
    return [line for batch in pq.ParquetFile(file).iter_batches() for line in json_lines(batch).splitlines()]


def by_scribengin(spark: Any, folder: Path, server: OpenSearch | Elasticsearch, turn: int) -> dict[str, Spent]:
    flow = folder / "ours.yaml"
    flow.write_text(FLOW.replace("TYPE", next(name for name, kind in SERVERS.items() if isinstance(server, kind))))

    def write() -> None:
        result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{turn}"), lambda _: None, spark=spark)
        if result.state != "finished" or not result.balanced:
            raise SystemExit(f"{result.state}, {result.problems} {result.violations}")

    return {OURS: measured(server, write), REPLAY: replayed(server)}


def replayed(server: OpenSearch | Elasticsearch) -> Spent:
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

    def send() -> None:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for answer in pool.map(store.send, parts):
                if answer.refused or answer.again:
                    raise SystemExit(f"a replay is not taken: {answer}")

    return measured(server, send)


def held(http: httpx2.Client) -> Iterator[tuple[int, str, bytes]]:
    """Version, id and document of all."""
    http.post("/ours/_refresh").raise_for_status()
    found = http.post("/ours/_search?scroll=1m&version=true", json={"size": 10_000, "sort": ["_doc"]}).json()
    while hits := found["hits"]["hits"]:
        yield from ((hit["_version"], hit["_id"], msgspec.json.encode(hit["_source"])) for hit in hits)
        found = http.post("/_search/scroll", json={"scroll": "1m", "scroll_id": found["_scroll_id"]}).json()


def some(docs: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(docs, pa.binary())], names=["doc"])


def by_loop(http: httpx2.Client, index: str, actions: list[bytes], docs: list[bytes]) -> None:
    def send(first: int) -> None:
        parts: list[bytes] = []
        for action, doc in zip(actions[first : first + SOME], docs[first : first + SOME], strict=True):
            parts += (action, doc, b"\n")
        headers = {"Content-Type": "application/x-ndjson"}
        answer = http.post(f"/{index}/_bulk?filter_path=errors", content=b"".join(parts), headers=headers)
        if answer.json()["errors"]:
            raise SystemExit("the bare loop is refused")

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(send, range(0, len(docs), SOME)))


def check(http: httpx2.Client, index: str, expected: tuple[int, int]) -> None:
    http.post(f"/{index}/_refresh").raise_for_status()
    body = {"size": 0, "track_total_hits": True, "aggs": {"ids": {"sum": {"field": "id"}}}}
    found = http.post(f"/{index}/_search", json=body).raise_for_status().json()
    if (found["hits"]["total"]["value"], int(found["aggregations"]["ids"]["value"])) != expected:
        raise SystemExit(f"{index}: {found['hits']['total']}, {found['aggregations']} found, expected {expected} (rows, sum of ids)")


def tell(spent: dict[str, list[Spent]], rows: int) -> None:
    print(
        f"{rows:,} tweets to an index, rows/s, and CPU seconds for 100,000 rows of the server and of others (median of {len(spent[OURS])})"
    )
    for name, each in spent.items():
        wall_s = [one.wall_s for one in each]
        server_s, other_s = (
            statistics.median(of) * 100_000 / rows for of in zip(*((one.server_s, one.other_s) for one in each), strict=True)
        )
        print(
            f"  {name:<28}{rows / statistics.median(wall_s):10,.0f}  ({rows / max(wall_s):,.0f} to {rows / min(wall_s):,.0f})"
            f"{server_s:8.2f}{other_s:8.2f}"
        )
    print(f"scribengin is {ratio(spent, BARE, OURS):.2f} × the bare bulk loop, to reach: 0.9")
    print(f"it is {ratio(spent, LIKE_OURS, OURS):.2f} × one with ids and versions like ours")
    print(f"that one is {ratio(spent, BARE, LIKE_OURS):.2f} × the bare bulk loop")
    cpu = statistics.median(
        (bare.server_s + bare.other_s) / (our.server_s + our.other_s) for bare, our in zip(spent[BARE], spent[OURS], strict=True)
    )
    print(f"by CPU seconds it is {cpu:.2f} × the bare bulk loop")
    print(f"a replay takes {ratio(spent, REPLAY, OURS):.2f} of the time, to reach: 0.5")


def ratio(spent: dict[str, list[Spent]], above: str, below: str) -> float:
    """Of wall time, the median of the turns'."""
    return statistics.median(one.wall_s / other.wall_s for one, other in zip(spent[above], spent[below], strict=True))


if __name__ == "__main__":
    main()

"""A table of HBase to Parquet: Scribengin beside a bare loop of requests (python benchmarks/hbase_read.py --rows N).

One server of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. What was written is
checked (count, sum of ids) before its figure counts. The bare loop asks one scanner for 5,000 rows at a time, decodes them, and counts: it
writes nothing. Told are rows/s of wall time, and CPU seconds of all processes, the server's among them: medians; ratios turn by turn.
"""

from __future__ import annotations

import tempfile
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import msgspec
from hbase import sent, staged
from postgres import make_data
from table_reads import asked, by_scribengin, compare

from scribengin.embedded.hbase import HBase
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from table_reads import Found

FLOW = """version: 1
name: read
sources:
  tweets:
    type: hbase
    server: [{server}]
    table: bare
    schema: "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"
    split: {split}
    max_rows: {rows}
    on_change: {on_change}
sinks: {{kept: {{from: tweets, type: files, path: out, format: parquet, delivery: {delivery}}}}}
"""
BARE = "a bare loop, 5,000 rows a time"


def main() -> None:
    given = asked(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, HBase(Path(name) / "server", thrift=True) as server:
        run(Path(name), server, given.rows, given.runs)


def run(folder: Path, server: HBase, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    sent(*staged(folder, server, "bare"))
    spark = start_session("bench", master="", memory="2g", conf={}, folder=folder / "spark")
    out = folder / "read"

    def flow(address: str, on_change: str = "stop", delivery: str = "exactly_once") -> str:
        return FLOW.format(server=address, split=-(-rows // 4), rows=rows, on_change=on_change, delivery=delivery)

    readers = {
        "scribengin": lambda turn: by_scribengin(spark, out, flow(server.uri), turn),
        "scribengin: on_change: ignore": lambda turn: by_scribengin(spark, out, flow(server.uri, "ignore", "at_least_once"), turn),
        "scribengin, Thrift": lambda turn: by_scribengin(spark, out, flow(server.thrift_uri), turn),
        BARE: lambda _: counted_whole(server),
    }
    compare("tweets of a table of HBase", readers, BARE, expected, out, runs)
    spark.stop()


def counted_whole(server: HBase) -> Found:
    """Of rows that are read whole."""
    count = total = 0
    headers = {"Accept": "application/json"}
    with httpx2.Client(base_url=server.uri, timeout=120, trust_env=False, headers=headers) as http:
        opened = http.put("/bare/scanner", json={"caching": 5000, "maxVersions": 1}).raise_for_status()
        scanner = opened.headers["location"]
        while (answer := http.get(f"{scanner}?n=5000")).status_code == 200:
            for row in msgspec.json.decode(answer.content)["Row"]:
                cells = {cell["column"]: cell["$"] for cell in row["Cell"]}
                count, total = count + 1, total + int(b64decode(cells["ZDppZA=="]))
    return count, total


if __name__ == "__main__":
    main()

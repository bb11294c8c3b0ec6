"""A table of Cassandra to Parquet: Scribengin beside a bare loop of the same client (python benchmarks/cassandra_read.py --rows N).

One server of this program's own, one warm session, contenders interleaved, `--runs` turns after one that warms up. What was written is
checked (count, sum of ids) before its figure counts. The bare loop reads pages of 5,000 rows over one connection and counts them: it
writes nothing. Told are rows/s of wall time, and CPU seconds of all processes, the server's among them: medians; ratios turn by turn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy
from cassandra.query import tuple_factory
from cassandra_tables import by_loop
from postgres import make_data
from table_reads import asked, by_scribengin, compare

from scribengin.embedded.cassandra import Cassandra
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from table_reads import Found

FLOW = """version: 1
name: read
sources:
  tweets:
    type: cassandra
    server: ["{server}"]
    keyspace: bench
    table: bare
    split: {split}
    max_rows: {rows}
    on_change: {on_change}
sinks: {{kept: {{from: tweets, type: files, path: out, format: parquet, delivery: {delivery}}}}}
"""
BARE = "a bare loop, pages of 5,000"


def main() -> None:
    given = asked(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name, Cassandra(Path(name) / "server") as server:
        run(Path(name), server, given.rows, given.runs)


def run(folder: Path, server: Cassandra, rows: int, runs: int) -> None:
    expected = make_data(folder, rows)
    host, _, port = server.address.rpartition(":")
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=120, row_factory=tuple_factory)
    admin = Cluster([host], int(port), protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile}).connect()
    admin.execute("CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    by_loop(admin, folder)
    spark = start_session("bench", master="", memory="2g", conf={}, folder=folder / "spark")
    out = folder / "read"

    def flow(on_change: str = "stop", delivery: str = "exactly_once") -> str:
        return FLOW.format(server=server.address, split=-(-rows // 4), rows=rows, on_change=on_change, delivery=delivery)

    readers = {
        "scribengin": lambda turn: by_scribengin(spark, out, flow(), turn),
        "scribengin: on_change: ignore": lambda turn: by_scribengin(spark, out, flow("ignore", "at_least_once"), turn),
        BARE: lambda _: counted_whole(admin),
    }
    compare("tweets of a table of Cassandra", readers, BARE, expected, out, runs)
    admin.cluster.shutdown()
    spark.stop()


def counted_whole(session: Any) -> Found:
    """Of rows that are read whole."""
    count = total = 0
    for id_, *_ in session.execute("SELECT id, user, text, followers, retweets, ts FROM bench.bare"):
        count, total = count + 1, total + id_
    return count, total


if __name__ == "__main__":
    main()

"""Flows into and out of an HDFS, by Spark: what a run does from its start to its audit, and what is left when things die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from harness.faults.hdfs_flows import StruckHdfs
from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from harness.remote_places import opened, options
from scribengin.core.errors import SourceError
from scribengin.core.process import within
from scribengin.embedded.hdfs import Hdfs
from scribengin.reading import committed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE"}}
steps: {large: {from: orders, filter: amount >= 10}}
sinks: {kept: {from: large, type: hdfs, url: "URL", format: parquet, partition_by: [customer]}}
"""


def orders(*ids: int, amount: float = 20.0) -> list[dict[str, Any]]:
    return [{"id": id_, "customer": f"c{id_ % 2}", "amount": amount} for id_ in ids]


def test_rows_come_to_hdfs_and_sparks_own_reader_finds_them(folder: FlowFolder, hdfs: Hdfs, prefix: str) -> None:
    from pyspark.sql import SparkSession

    url = options(hdfs, prefix)["url"]
    folder.flow(FLOW.replace("URL", url))
    folder.data("data/a.jsonl", [*orders(1, 2, 3), *orders(4, amount=1)])
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    folder.data("data/b.jsonl", orders(5, 6))
    assert folder.run().violations == ()
    session = SparkSession.getActiveSession()
    assert session is not None
    found = committed(url)
    for read in (session.read.parquet(url), found.spark(session)):
        assert sorted((row["id"], row["customer"]) for row in read.collect()) == [(1, "c1"), (2, "c0"), (3, "c1"), (5, "c1"), (6, "c0")]
    assert found.rows == 5
    with pytest.raises(SourceError, match="which Arrow cannot read"):
        found.dataset()


def test_files_of_hdfs_are_read_once_over_two_runs(folder: FlowFolder, hdfs: Hdfs, prefix: str) -> None:
    given = 'type: hdfs, url: "URL", names: sorted'.replace("URL", options(hdfs, prefix)["url"])
    folder.flow(
        FLOW.replace("type: files, path: data", given).partition("sinks:")[0]
        + "sinks: {kept: {from: large, type: files, path: out, format: json}}\n"
    )
    store = opened(hdfs, prefix)
    for nth, ids in enumerate(((1, 2, 3), (4, 5))):
        store.put(f"{nth}.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in orders(*ids)) + b"torn\n")
        (query,) = folder.run().queries
        assert query.nodes["orders"].dead == nth + 1
    assert sorted(row["id"] for row in folder.read("out")) == [1, 2, 3, 4, 5]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "aims"),
    [
        ("coins", ("kill@publish.renamed", "server@stage.mid_write", "server@decide.after")),
        ("aggregate", ("kill@publish.record.before", "two@decide.before", "server@publish.record.after")),
    ],
)
def test_a_life_of_kills_loses_and_doubles_nothing(public_path: Path, kind: str, aims: tuple[str, ...]) -> None:
    life = Life(kind, "files-to-hdfs", False, tuple(Aim(*aim.split("@")) for aim in aims))
    outcome = run_life(life, 1, public_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_flow_that_runs_waits_for_a_name_node_that_is_away_for_a_minute(folder: FlowFolder, tmp_path: Path) -> None:
    with Hdfs(tmp_path / "hdfs") as hdfs:
        url = options(hdfs, "out")["url"]
        folder.flow(FLOW.replace("URL", url))
        folder.data("data/a.jsonl", orders(1, 2, 3))
        command = [sys.executable, "-m", "scribengin.cli", "run", "flow.yaml"]
        with subprocess.Popen(command, cwd=folder.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            try:
                assert within(150.0, lambda: rows_at(url) == 3)
                hdfs.name_node.kill()
                folder.data("data/b.jsonl", orders(4, 5))
                time.sleep(60.0)
                assert driver.poll() is None
                hdfs.start()
                assert within(150.0, lambda: rows_at(url) == 5)
            finally:
                driver.send_signal(signal.SIGINT)
                driver.wait(60)
        assert folder.run().violations == ()
        assert rows_at(url) == 5


def rows_at(url: str) -> int:
    try:
        return committed(url).rows
    except SourceError:  # nobody has written there yet
        return 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_run_to_the_end_gives_up_where_the_name_node_is_away_for_a_minute_and_the_next_goes_on(
    public_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = StruckHdfs.start

    def start_late(self: StruckHdfs) -> None:
        if self.data_node.pid is not None:  # only the other one was struck
            time.sleep(60.0)
        start(self)

    monkeypatch.setattr(StruckHdfs, "start", start_late)
    while_it_goes_on = next(seed for seed in range(100) if Random(f"{seed}/0").random() < 0.5)
    aims = (Aim("server", "publish.record.after"),)
    outcome = run_life(Life("coins", "files-to-hdfs", False, aims), while_it_goes_on, public_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert outcome.reached == [True]

"""A query without state whose state is in HDFS: how many files a Batch costs there, and what happens without Spark's log of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.core import faults
from scribengin.core.errors import Unreachable
from scribengin.core.storage import names_in
from scribengin.spark import commit, query
from scribengin.state.lease import BEAT_S

if TYPE_CHECKING:
    from scribengin.embedded.hdfs import Hdfs
    from tests.conftest import FlowFolder

pytestmark = pytest.mark.timeout(900)

FLOW = """
version: 1
name: shop
sources:
  orders: {{type: files, path: data, format: json, settle: 0s, max_files: 1, schema: "id BIGINT NOT NULL"}}
steps:
  some: {{from: orders, filter: id >= 0}}
sinks:
  kept: {{from: some, type: hdfs, url: "{url}", format: json}}
"""


@pytest.fixture
def there(hdfs: Hdfs, prefix: str) -> HdfsPath:
    return HdfsPath.of(f"{hdfs.uri}/{prefix}")


def prepared(folder: FlowFolder, there: HdfsPath) -> FlowFolder:
    return folder.flow(FLOW.format(url=there / "out"))


def ids(there: HdfsPath) -> list[int]:
    parts = [path for path in (there / "out").iterdir() if path.name.startswith("part-")]
    return sorted(json.loads(line)["id"] for path in parts for line in path.read_bytes().splitlines())


def fill(folder: FlowFolder, begin: int, end: int) -> None:
    for number in range(begin, end):
        folder.data(f"data/{number:03}.jsonl", [{"id": number}])


def state_of(there: HdfsPath) -> HdfsPath:
    return there / "state" / "shop" / "main" / "kept"


def written(hdfs: Hdfs) -> dict[str, float]:
    name = hdfs.name_node.asked("service=NameNode,name=NameNodeActivity", 10.0)
    data = hdfs.data_node.asked("service=DataNode,name=DataNodeActivity-*", 10.0)
    # an hsync syncs the data and the checksums of its block
    return {"created": name["CreateFileOps"], "filled": data["BlocksWritten"], "synced": data["FsyncCount"] / 2}


@pytest.mark.long
def test_a_batch_writes_three_files_with_content_besides_its_data(folder: FlowFolder, hdfs: Hdfs, there: HdfsPath) -> None:
    prepared(folder, there)
    costs, begun_s = [], time.monotonic()
    for begin, end in ((0, 2), (2, 14)):  # what does not depend on the number of Batches is the same in both
        fill(folder, begin, end)
        before = written(hdfs)
        result = folder.run(state=there / "state")
        assert (result.state, result.violations) == ("finished", ()), result.problems
        costs.append({kind: count - before[kind] for kind, count in written(hdfs).items()})
    few, many = costs
    # the first run has also begun the lineage and claimed the sink, with files of their own
    batches, beats = 12, (time.monotonic() - begun_s) / BEAT_S + 2
    assert many["filled"] - batches * 4 <= few["filled"] - 2 * 4, "source log, decision, manifest; and the data"
    assert many["synced"] - batches * 4 <= few["synced"] - 2 * 4
    assert many["created"] - batches * 5 <= few["created"] - 2 * 5 + beats, "these, and an empty note that the data is staged"
    assert ids(there) == list(range(14))
    assert not (state_of(there) / "checkpoint").exists()
    noted = [name for name in names_in(state_of(there) / "ledger") if name.startswith("published-")]
    assert [name.rpartition("-")[2] for name in noted] == [f"{13:010d}"], "the last one only: the others have a successor"


def test_another_machine_continues_from_the_decisions_alone(folder: FlowFolder, there: HdfsPath) -> None:
    prepared(folder, there)
    for begin, end in ((0, 2), (2, 4)):
        fill(folder, begin, end)
        result = folder.run(state=there / "state")
        assert (result.state, result.violations) == ("finished", ()), result.problems
        shutil.rmtree(folder.path / ".scribengin")
    assert ids(there) == [0, 1, 2, 3]
    assert len([name for name in names_in(state_of(there) / "decisions") if name.endswith(".json")]) == 4, "no Batch is made again"


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_batch_that_is_decided_and_not_published_is_published_by_the_restart_of_its_query(
    folder: FlowFolder, there: HdfsPath, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    monkeypatch.setattr(query, "BACK_OFF_S", (0.0, 0.0))
    failed, publish = 0, commit.publish

    def away(*words: Any) -> Any:
        nonlocal failed
        if words[0].batch.number == 1 and failed < attempts:
            failed += 1
            raise Unreachable("the sink does not answer", remedy="wait")
        return publish(*words)

    monkeypatch.setattr(commit, "publish", away)
    prepared(folder, there)
    fill(folder, 0, 4)
    result = folder.run(state=there / "state")
    assert (result.state, result.violations) == ("finished", ()), result.problems
    assert failed == attempts
    assert ids(there) == [0, 1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("point", ["decide.before", "decide.after", "publish.record.after", "commit.before"])
def test_a_driver_that_is_killed_loses_and_doubles_nothing(folder: FlowFolder, there: HdfsPath, point: str) -> None:
    prepared(folder, there)
    fill(folder, 0, 3)
    words = [sys.executable, "-m", "scribengin.cli", "run", "--once", str(folder.path / "flow.yaml"), "--state", str(there / "state")]
    struck = os.environ | {faults.VARIABLE: f"{point}@2:kill"}
    with subprocess.Popen(words, env=struck, start_new_session=True, stdout=subprocess.DEVNULL) as driver:
        assert driver.wait(200) == -signal.SIGKILL
    fill(folder, 3, 5)
    result = folder.run(state=there / "state")
    assert (result.state, result.violations) == ("finished", ()), result.problems
    assert ids(there) == [0, 1, 2, 3, 4]

"""Hosts that share no folder, with the state of their flows in an HDFS or a bucket: one is lost for good, with all that lay on it."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from plane import until

from harness.object_stores import or_skipped
from harness.remote_places import at_server
from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.connectors.objects.path import S3Path
from scribengin.core.errors import SourceError
from scribengin.embedded.hdfs import Hdfs
from scribengin.reading import committed
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.tree import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from plane import Plane

    from scribengin.core.remote import RemotePath

pytestmark = pytest.mark.timeout(1200)
WITHIN_S = 300.0
"""a worker starts Spark, beside another one of a test"""
FLOW = """\
version: 1
name: shop
sources:
  orders: {type: TYPE, url: "ROOT/in", format: json, watermark: at 0s, schema: "id BIGINT NOT NULL, at TIMESTAMP"}
steps:
  odd: {from: orders, filter: id % 2 = 1}
  minutes: {from: orders, sql: "SELECT window.start AS minute, count(*) AS n FROM orders GROUP BY window(at, '1 minute')"}
sinks:
  kept: {from: odd, type: TYPE, url: "ROOT/odd", format: json}
  counted: {from: minutes, type: TYPE, url: "ROOT/minutes", format: json}
"""
FILE = 40
"""rows of each, of one minute"""


@pytest.fixture(params=["hdfs", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, RemotePath]]:
    """The type of nodes that lie there, and a folder for all of it."""
    if request.param == "hdfs":
        with Hdfs(tmp_path / "server") as started:
            yield "hdfs", HdfsPath.of(f"{started.uri}/shop")
    else:
        with or_skipped(tmp_path / "server") as store:
            yield f'objects, endpoint: "{store.uri}"', at_server(store, "shop", monkeypatch.setenv)


def write(root: RemotePath, minutes: Sequence[int]) -> None:
    for minute in minutes:
        rows = ({"id": minute * FILE + row, "at": f"2026-01-01T00:{minute:02}:{row:02}Z"} for row in range(FILE))
        assert (root / "in" / f"{minute:02}.jsonl").put("".join(json.dumps(row) + "\n" for row in rows).encode())


def rows(folder: RemotePath) -> list[dict[str, Any]]:
    return [json.loads(line) for path in files(folder) for line in path.read_bytes().splitlines()]


def files(folder: RemotePath) -> list[RemotePath]:
    """Those of decided Batches."""
    if isinstance(folder, S3Path):
        with suppress(SourceError):  # nothing was written there yet
            return [folder / each.key for each in committed(str(folder), endpoint=os.environ["AWS_ENDPOINT_URL"]).objects]
        return []
    return [path for path in folder.iterdir() if path.suffix == ".jsonl"] if folder.is_dir() else []


def odd_through(root: RemotePath, minute: int) -> bool:
    return Counter(row["id"] for row in rows(root / "odd")) == Counter(range(1, (minute + 1) * FILE, 2))


def end_host(plane: Plane, name: str) -> None:
    """Kill all that runs there, and delete its disk."""
    processes = [process for process in psutil.process_iter() if f"SCRIBENGIN_NODE={name}" in _environment(process)]
    plane.kill(name)
    for process in processes:
        process.kill()
    psutil.wait_procs(processes)
    shutil.rmtree(plane.folder / name)


def _environment(process: psutil.Process) -> list[str]:
    try:
        return [f"{key}={value}" for key, value in process.environ().items()]
    except psutil.Error:
        return []


def node_of(plane: Plane) -> str:
    run = plane.registry.read(RUN("shop", "main").path)
    return str(run.value["node"]) if isinstance(run, RegistryEntry) else ""


@pytest.mark.long
def test_a_worker_on_another_host_finds_the_state_when_the_first_host_is_lost_for_good(place: tuple[str, RemotePath], plane: Plane) -> None:
    type_, root = place
    write(root, range(3))
    plane.master("m", state=str(root / "state"))
    for name in ("a", "b"):
        plane.real_node(name)
    (plane.folder / "flow.yaml").write_text(FLOW.replace("ROOT", str(root)).replace("TYPE", type_))
    plane.says("apply", "flow.yaml")
    until(lambda: odd_through(root, 2), "the first three minutes", WITHIN_S)
    lost = node_of(plane)
    end_host(plane, lost)
    write(root, range(3, 6))
    until(lambda: odd_through(root, 5), "the next three, by the other host", WITHIN_S)
    assert node_of(plane) != lost
    # what was counted before is in the state of windows that close only now
    write(root, [6])
    until(lambda: len(rows(root / "minutes")) >= 5, "the windows behind the watermark", WITHIN_S)
    assert {row["n"] for row in rows(root / "minutes")} == {FILE}
    assert len({row["minute"] for row in rows(root / "minutes")}) == len(rows(root / "minutes"))
    plane.says("audit", "shop")  # ends with 0 where it balances
    kept = plane.folder / node_of(plane) / "scratch" / "shop" / "main" / "tmp" / "run.log"
    (log,) = [each for each in plane.says("logs", "shop") if each["file"].endswith("run.log")]
    assert (log["node"], kept.is_file(), bool(log["lines"])) == (node_of(plane), True, True)

"""A flow that is managed, all of it in a real YARN, its state and its rows in HDFS: its driver is killed, then its node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.core.process import within
from scribengin.embedded.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.embedded.yarn import Yarn

WITHIN_S = 400.0
FLOW = """\
version: 1
name: numbers
sources: {{numbers: {{type: files, path: {data}, format: json, schema: "id BIGINT"}}}}
steps: {{odd: {{from: numbers, filter: id % 2 = 1}}}}
sinks: {{kept: {{from: odd, type: hdfs, url: "{hdfs}/numbers", format: json}}}}
tiers:
  all:
    steps: [odd]
    resources:
      executors: 1
      cores: 1
      memory: 512MiB
      spark: {{spark.driver.memory: 512m, spark.driver.memoryOverhead: 256m, spark.executor.memoryOverhead: 256m}}
"""


class Plane:
    """A control plane over ZooKeeper whose only node has its workers in YARN."""

    def __init__(self, folder: Path, yarn: Yarn, registry: str) -> None:
        self.folder, self.yarn, self.files = folder, yarn, 0
        (folder / "data").mkdir()
        login = folder / "login"
        login.write_text("me:a-password-of-some-length\n")
        login.chmod(0o600)
        self.way = ["--registry", f"zk://{registry}/flows", "--login-file", str(login), "--insecure"]
        (folder / "flow.yaml").write_text(FLOW.format(data=folder / "data", hdfs=yarn.hdfs.uri))

    @contextmanager
    def program(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """`scribengin server …`, until the block ends."""
        home = self.folder / words[0]
        command = [sys.executable, "-m", "scribengin.cli", "server", *words, *self.way]
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            environment = os.environ | {"SCRIBENGIN_HOME": str(home)}
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def says(self, *words: str) -> Any:
        command = [sys.executable, "-m", "scribengin.cli", *words, *self.way, "--json"]
        ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        if ended.returncode != 0:
            (self.folder / "cli.log").write_text(f"{words}: {ended.stdout}{ended.stderr}")
            return None
        return json.loads(ended.stdout)["result"]

    def adds(self) -> None:
        path = self.folder / "data" / f".{self.files}"
        path.write_text("".join(f'{{"id": {self.files * 100 + n}}}\n' for n in range(100)))
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def found(self) -> list[int]:
        folder = HdfsPath.of(f"{self.yarn.hdfs.uri}/numbers")
        files = [path for path in folder.iterdir() if path.name.startswith("part-")] if folder.exists() else []
        return sorted(json.loads(line)["id"] for path in files for line in path.read_bytes().splitlines())

    def all_came(self) -> None:
        assert within(WITHIN_S, lambda: len(self.found()) >= 50 * self.files), (self.said(), self.found()[-3:])
        assert self.found() == list(range(1, 100 * self.files, 2)), "each once"

    def applications(self) -> list[dict[str, Any]]:
        return (self.yarn.resource_manager.read("/ws/v1/cluster/apps")["apps"] or {}).get("app", [])

    def said(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in self.folder.rglob("*.log") if path.name != "zookeeper.log")


@pytest.mark.timeout(1500)
def test_its_driver_is_killed_and_its_node_and_each_record_is_there_once(yarn: Yarn, tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as keeper:
        plane = Plane(tmp_path, yarn, keeper.address)
        node = ("node", "--name", "yarn", "--launcher", "yarn", "--yarn-conf", str(yarn.conf))
        plane.adds()
        with plane.program("master", "--state", f"{yarn.hdfs.uri}/state"):
            with plane.program(*node):
                assert within(WITHIN_S, lambda: plane.says("apply", "flow.yaml") is not None), plane.said()
                plane.all_came()
                (first,) = [each["id"] for each in plane.applications() if each["name"] == "numbers.all-1"]
                assert yarn.kill_containers(first.replace("application", "container"))
                plane.adds()
                plane.all_came()
            # the node is gone, its worker goes on; the next node has it
            plane.adds()
            plane.all_came()
            with plane.program(*node):
                assert within(WITHIN_S, lambda: plane.says("stop", "numbers", "--wait") is not None), plane.said()
                live = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
                assert within(WITHIN_S, lambda: not any(each["state"] in live for each in plane.applications()))
                mine = sorted((each["name"], each["finalStatus"]) for each in plane.applications() if each["name"].startswith("numbers."))
                assert (mine[0], mine[-1][1]) == (("numbers.all-1", "FAILED"), "SUCCEEDED")
                assert plane.says("audit", "numbers") is not None, f"it does not balance: {plane.said()}"

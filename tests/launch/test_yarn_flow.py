"""A flow that is managed, all of it in a real YARN, its state and its rows in HDFS: its driver is killed, then its node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from harness.yarn_plane import YarnControl, numbers_flow, parts_in
from scribengin.embedded.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.yarn import Yarn


class Plane(YarnControl):
    """A control plane whose flow reads files of 100 numbers."""

    def __init__(self, folder: Path, yarn: Yarn, keeper: ZooKeeper) -> None:
        super().__init__(folder, yarn, keeper)
        self.files = 0
        (folder / "data").mkdir()
        (folder / "flow.yaml").write_text(numbers_flow("numbers", folder / "data", f"{yarn.hdfs.uri}/numbers"))

    def adds(self) -> None:
        path = self.folder / "data" / f".{self.files}"
        path.write_text("".join(f'{{"id": {self.files * 100 + n}}}\n' for n in range(100)))
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def found(self) -> list[int]:
        return sorted(
            json.loads(line)["id"] for path in parts_in(f"{self.yarn.hdfs.uri}/numbers") for line in path.read_bytes().splitlines()
        )

    def all_came(self) -> None:
        self.wait_for(lambda: len(self.found()) >= 50 * self.files, f"all of {self.files} files")
        assert self.found() == list(range(1, 100 * self.files, 2)), "each once"

    def runs_in_yarn(self) -> bool:
        return any(each.is_live for each in self.applications("numbers"))


@pytest.mark.timeout(1500)
def test_its_driver_is_killed_and_its_node_and_each_record_is_there_once(yarn: Yarn, tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as keeper, Plane(tmp_path, yarn, keeper) as plane:
        plane.adds()
        plane.start_control()
        plane.apply("flow.yaml")
        plane.all_came()
        assert yarn.kill_containers(plane.driver("numbers"))
        plane.adds()
        plane.all_came()
        plane.kill_program("node")
        plane.adds()
        plane.all_came()  # its worker goes on; the next node has it
        plane.start_program("node")
        plane.wait_for(lambda: plane.says("stop", "numbers", "--wait") is not None, "the end of the flow")
        plane.wait_for(lambda: not plane.runs_in_yarn(), "the end of its application")
        ends = [(each.name, each.final_status) for each in plane.applications("numbers")]
        assert (ends[-1], ends[0][1]) == (("numbers.all-1", "FAILED"), "SUCCEEDED")
        assert plane.says("audit", "numbers") is not None, f"it does not balance: {plane.last_words()}"

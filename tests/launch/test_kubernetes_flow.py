"""A flow whose driver and executors are pods of a real Kubernetes: its driver is killed, its pod is deleted, then its node."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harness.control_programs import ControlPrograms, numbers_flow
from scribengin.embedded.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path

    from launch_benches import KubernetesBench

    from harness.kubernetes import ScriptedKubelet

RESOURCES = "{{executors: 1, cores: 1, memory: 512MiB, spark: {{spark.driver.memory: 512m{spark}}}}}"


class KubernetesControl(ControlPrograms):
    """A control plane whose node has its workers in Kubernetes, and a flow that reads files of 100 numbers. All hosts have one disk."""

    def __init__(self, bench: KubernetesBench, keeper: ZooKeeper) -> None:
        super().__init__(bench.folder, keeper)
        self.bench = bench
        self.data, self.out = self.folder / "data", self.folder / "out"
        self.data.mkdir()
        self.write_flow()
        self.files = 0
        self.more: tuple[str, ...] = ()
        """further options of the node"""

    def program_options(self, name: str) -> tuple[str, ...]:
        options = {"--config": self.bench.plane.kubeconfig, "--namespace": self.bench.namespace, "--image": "scribengin"}
        options |= {"--python": sys.executable, "--api": self.bench.plane.server, "--service-account": "driver"}
        words = [str(word) for option, value in options.items() for word in (option.replace("--", "--kubernetes-"), value)]
        return (
            ("--state", str(self.folder / "state"))
            if name == "master"
            else ("--name", "pods", "--launcher", "kubernetes", *words, *self.more)
        )

    def write_flow(self, spark: str = "") -> None:
        """`spark`: further settings of Spark, in YAML."""
        resources = RESOURCES.format(spark=spark)
        (self.folder / "flow.yaml").write_text(numbers_flow("numbers", self.data, f"type: files, path: {self.out}", resources))

    def add(self) -> None:
        path = self.data / f".{self.files}"
        path.write_text("".join(f'{{"id": {self.files * 100 + n}}}\n' for n in range(100)))
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def found(self) -> list[int]:
        parts = [path for path in self.out.glob("part-*") if path.is_file()] if self.out.exists() else []
        return sorted(json.loads(line)["id"] for path in parts for line in path.read_bytes().splitlines())

    def wait_arrival(self) -> None:
        """Add a file, and wait until what is to be kept of it is there."""
        self.add()
        self.wait_for(lambda: len(self.found()) >= 50 * self.files, f"all of {self.files} files")
        assert self.found() == list(range(1, 100 * self.files, 2)), "each once"

    def pods(self, role: str) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{self.bench.namespace}/pods"
        return list(self.bench.plane.api.get(path, labelSelector=f"scribengin.io/role={role}")["items"])

    def driver(self) -> str:
        """The name of the flow's pod that runs."""
        return next(pod["metadata"]["name"] for pod in self.pods("driver") if pod["status"]["phase"] == "Running")


@pytest.mark.timeout(1500)
def test_its_driver_and_its_node_are_killed_and_each_record_is_there_once(
    kubernetes: KubernetesBench, driver_rights: str, kubelet: ScriptedKubelet, tmp_path: Path
) -> None:
    assert driver_rights == "driver"
    with ZooKeeper(tmp_path / "zookeeper") as keeper, KubernetesControl(kubernetes, keeper) as plane:
        plane.start_control()
        plane.apply("flow.yaml")
        plane.wait_arrival()
        first = plane.driver()
        kubelet.kill_container(first, kubernetes.namespace)
        plane.wait_arrival()
        kubernetes.plane.api.delete(f"/api/v1/namespaces/{kubernetes.namespace}/pods/{plane.driver()}")
        plane.wait_arrival()
        plane.kill_program("node")
        plane.wait_arrival()  # its worker goes on; the next node has it
        last = plane.driver()
        plane.start_program("node")
        plane.wait_arrival()
        assert plane.driver() == last
        plane.wait_for(lambda: plane.says("stop", "numbers", "--wait") is not None, "the end of the flow")
        plane.wait_for(lambda: not plane.pods("driver") and not plane.pods("executor"), "the end of its pods")
        assert plane.says("audit", "numbers") is not None, f"it does not balance: {plane.last_words()}"


OLDER = """\
import sys
from collections import namedtuple
Version = namedtuple("Version", "major minor micro releaselevel serial")
sys.version_info = Version(3, 10, *sys.version_info[2:])
"""


def with_module(folder: Path, text: str) -> Path:
    """A folder from which every Python whose PYTHONPATH names it takes this module at its start."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(text)
    return folder


@pytest.mark.timeout(900)
def test_executors_of_another_python_are_the_reason_of_the_flow(kubernetes: KubernetesBench, driver_rights: str, tmp_path: Path) -> None:
    """The executors' Python says of itself that it is 3.10: PySpark's own check refuses it."""
    old = with_module(tmp_path / "old", OLDER)
    with ZooKeeper(tmp_path / "zookeeper") as keeper, KubernetesControl(kubernetes, keeper) as plane:
        plane.write_flow(f', spark.executorEnv.PYTHONPATH: "{old}"')
        plane.start_control()
        plane.apply("flow.yaml")
        plane.add()

        def status() -> dict[str, Any]:
            found = plane.says("status", "numbers")
            return found or {}

        plane.wait_for(lambda: "Python 3.10" in str(status()), "the reason")
        seen = status()
        assert "install the same minor version" in str(seen), seen
        assert plane.found() == []


@pytest.mark.timeout(900)
def test_a_host_whose_clock_is_a_minute_ahead_loses_nothing(kubernetes: KubernetesBench, driver_rights: str, tmp_path: Path) -> None:
    """The clock of Python in the pods is ahead, by which leases, decisions and reports would be wrong if they depended on it."""
    ahead = with_module(tmp_path / "ahead", "import time\n_now = time.time\ntime.time = lambda: _now() + 60.0\n")
    container = {"name": "scribengin", "env": [{"name": "PYTHONPATH", "value": str(ahead)}]}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump({"kind": "Pod", "spec": {"containers": [container]}}))
    with ZooKeeper(tmp_path / "zookeeper") as keeper, KubernetesControl(kubernetes, keeper) as plane:
        plane.more = ("--kubernetes-pod-template", str(tmp_path / "pod.yaml"))
        plane.start_control()
        plane.apply("flow.yaml")
        plane.wait_arrival()
        plane.kill_program("master")
        plane.start_program("master")
        plane.wait_arrival()
        plane.wait_for(lambda: plane.says("stop", "numbers", "--wait") is not None, "the end of the flow")
        assert plane.says("audit", "numbers") is not None, f"it does not balance: {plane.last_words()}"

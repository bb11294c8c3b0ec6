"""One bench for each launcher: how tests make it, what they give it to start, how time passes, what is cleared away in the end."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Protocol

from lightkube import KubeConfig

from harness.manual_clock import ManualClock
from harness.memory_launcher import MemoryCluster, MemoryLauncher
from scribengin.core.process import Process, birth_of, within
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.kubernetes import KubernetesLauncher
from scribengin.launch.kubernetes_cluster import KubernetesCluster
from scribengin.launch.kubernetes_pod import WORKER
from scribengin.launch.local import LocalLauncher
from scribengin.launch.marks import marked_processes
from scribengin.launch.standalone import SparkCluster, StandaloneLauncher

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.kubernetes import KubeCluster
    from scribengin.launch.contract import Launcher, ObservedWorker

WITHIN_S = 90.0
PROGRAM = Path(__file__).with_name("program.py")
SPARK_PROGRAM = Path(__file__).with_name("yarn_program.py")
SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.memoryOverhead": "256m",
    "spark.executor.memoryOverhead": "256m",
    "spark.ui.enabled": "false",
}
"""settings of small containers in YARN"""


class Bench(Protocol):
    """What the tests of the contract need beside a launcher."""

    def launcher(self) -> Launcher:
        """One more over the same workers, as the next master has it."""
        ...

    def order(self, worker: str, *words: str, **more: Any) -> LaunchOrder:
        """For `program.py` with these words."""
        ...

    def until(self, launcher: Launcher, worker: str, true: Callable[[ObservedWorker], bool]) -> ObservedWorker:
        """Let time pass until it is so."""
        ...

    def beginnings(self, worker: str) -> int:
        """How often the worker's program was begun."""
        ...


class ProcessBench:
    """Workers that are processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "node"

    def launcher(self) -> Launcher:
        return LocalLauncher(self.home, orphan_grace_s=0.5)

    def diary(self, worker: str) -> list[str]:
        path = self.folder / f"{worker}.diary"
        return path.read_text().splitlines() if path.exists() else []

    def said(self, worker: str, line: str) -> None:
        assert within(WITHIN_S, lambda: line in self.diary(worker)), self.diary(worker)

    def noted(self, worker: str, word: str) -> int:
        """The process that the diary names, once it does."""
        assert within(WITHIN_S, lambda: any(line.startswith(f"{word} ") for line in self.diary(worker))), self.diary(worker)
        return next(int(line.split()[1]) for line in self.diary(worker) if line.startswith(f"{word} "))

    def order(self, worker: str, *words: str, **more: Any) -> LaunchOrder:
        return LaunchOrder(worker, (sys.executable, "-S", str(PROGRAM), str(self.folder / f"{worker}.diary"), *words), **more)

    def until(self, launcher: Launcher, worker: str, true: Callable[[ObservedWorker], bool]) -> ObservedWorker:
        seen = until(launcher, worker, true, WITHIN_S)
        if seen.state == "running" and not seen.stopping:  # its handler must be there before it is asked to end
            self.came_up(worker, seen)
        return seen

    def came_up(self, worker: str, seen: ObservedWorker) -> None:
        self.said(worker, f"up {seen.pid}")

    def beginnings(self, worker: str) -> int:
        return sum(line.startswith(("up ", "ended ")) for line in self.diary(worker))

    def clear(self) -> None:
        """End whatever is left, by the marks of the processes themselves."""
        keepers = [found for path in self.home.glob("workers/*/keeper.json") if (found := keeper_of(path.parent)) is not None]
        for keeper in keepers:
            keeper.send(SIGKILL)

        def gone() -> bool:
            left = [process for found in marked_processes(self.home.absolute()).values() for process in found]
            for process in left:
                process.send(SIGKILL)
            return not left and not any(keeper.alive() for keeper in keepers)

        assert within(WITHIN_S, gone)


class StandaloneBench(ProcessBench):
    """The same, with executors on a cluster; the programs of the contract's tests do without them."""

    def __init__(self, folder: Path, cluster: SparkCluster) -> None:
        super().__init__(folder)
        self.cluster = cluster

    def launcher(self) -> Launcher:
        return StandaloneLauncher(self.home, self.cluster, orphan_grace_s=2.0)


class KubernetesBench(ProcessBench):
    """Workers that are pods of a real Kubernetes, whose nodes run them as processes of this machine."""

    def __init__(self, folder: Path, plane: KubeCluster, namespace: str) -> None:
        super().__init__(folder)
        self.plane = plane
        self.namespace = namespace
        self.made: list[KubernetesLauncher] = []

    def launcher(self, *, config: Path | None = None, **more: Any) -> KubernetesLauncher:
        given = {"image": "scribengin", "service_account": "default", "python": sys.executable, "template": {}} | more
        access = KubeConfig.from_file(str(config or self.plane.kubeconfig)).get()
        assert access is not None
        cluster = KubernetesCluster(access, self.namespace, api=self.plane.server, **given)
        self.made.append(KubernetesLauncher(self.home, cluster, str(self.folder)))
        return self.made[-1]

    def order(self, worker: str, *words: str, **more: Any) -> LaunchOrder:
        return super().order(worker, *words, **{"spark": {"spark.driver.memory": "64m", "spark.driver.cores": "100m"}} | more)

    def came_up(self, worker: str, seen: ObservedWorker) -> None:
        self.noted(worker, "up")  # its number is not that of a process here

    def bind(self, account: str, rules: list[dict[str, Any]]) -> None:
        """Make a service account in the namespace, with a role of its own."""
        base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        self.plane.api.create(f"/api/v1/namespaces/{self.namespace}/serviceaccounts", {"metadata": {"name": account}})
        self.plane.api.create(f"{base}/roles", {"metadata": {"name": account}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        self.plane.api.create(f"{base}/rolebindings", {"metadata": {"name": account}, "roleRef": reference, "subjects": [subject]})

    def pod_path(self, worker: str) -> str:
        """The pod of a worker in the API."""
        pods = self.plane.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        names = [each["metadata"]["name"] for each in pods if each["metadata"].get("annotations", {}).get(WORKER) == worker]
        return f"/api/v1/namespaces/{self.namespace}/pods/{names[0]}"

    def clear(self) -> None:
        launcher = self.launcher()

        def over() -> bool:
            for seen in launcher.observe():
                if seen.is_over:
                    launcher.forget(seen.worker)
                else:
                    launcher.kill(seen.worker)
            return not launcher.observe()

        assert within(WITHIN_S, over), launcher.observe()
        for each in self.made:
            each.close()


class MemoryBench:
    """Workers that are entries."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = MemoryCluster()
        self.words: dict[str, tuple[str, ...]] = {}

    def launcher(self) -> MemoryLauncher:
        launcher = MemoryLauncher(self.clock, self.cluster)
        launcher.starts_after_s = launcher.ends_after_s = 1.0
        launcher.deaf = {worker for worker, words in self.words.items() if "deaf" in words}
        return launcher

    def order(self, worker: str, *words: str, **more: Any) -> LaunchOrder:
        self.words[worker] = words
        return LaunchOrder(worker, ("program", *words), **more)

    def until(self, launcher: Launcher, worker: str, true: Callable[[ObservedWorker], bool]) -> ObservedWorker:
        assert isinstance(launcher, MemoryLauncher)
        launcher.deaf |= {worker for worker, words in self.words.items() if "deaf" in words}
        for _ in range(100):
            seen = one(launcher, worker)
            if seen is not None and seen.state == "running":
                for word in self.words[worker]:
                    if word.startswith("exit="):
                        launcher.end(worker, int(word.removeprefix("exit=")))
                    elif word == "die":
                        launcher.end(worker, -9)
                seen = one(launcher, worker)
            if seen is not None and true(seen):
                return seen
            self.clock.advance(seconds=0.5)
        raise AssertionError(seen)

    def beginnings(self, worker: str) -> int:
        return sum(order.worker == worker for order in self.cluster.orders)

    def clear(self) -> None:
        pass


def until(launcher: Launcher, worker: str, true: Callable[[ObservedWorker], bool], within_s: float = 240.0) -> ObservedWorker:
    """The worker, as soon as it is so."""
    deadline = time.monotonic() + within_s
    while True:
        seen = one(launcher, worker)
        if seen is not None and true(seen):
            return seen
        assert time.monotonic() < deadline, (seen, [Path(path).read_text()[-2000:] for path in launcher.logs(worker)])
        time.sleep(0.1)


def all_over(launcher: Launcher) -> bool:
    """True if no worker lives; those that do are killed."""
    live = [seen.worker for seen in launcher.observe() if not seen.is_over]
    for worker in live:
        launcher.kill(worker)
    return not live


def one(launcher: Launcher, worker: str) -> ObservedWorker | None:
    """What `look` says of a worker."""
    return next((seen for seen in launcher.observe() if seen.worker == worker), None)


def process_of(pid: int) -> Process:
    """The process that has this number now."""
    return Process(pid, birth_of(pid) or "none")


def keeper_of(records: Path) -> Process | None:
    from scribengin.launch.records import WorkerRecords

    return WorkerRecords(records).keeper()

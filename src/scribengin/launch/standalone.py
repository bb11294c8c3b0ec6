"""Workers whose executors run on a Spark standalone cluster, each submitted in client mode from this machine.

Client mode, with Python as the first process, because

- standalone refuses cluster mode for Python. Its REST API does not, but it ran Python drivers on `local[*]` without any message, and left
  their Python process running when it killed them;
- the worker is then the same process as without a cluster: it outlives its master, is adopted, and has its own exit status and log; -
Spark's JVM, which PySpark starts by `spark-submit`, reads from a pipe of the Python process, and ends when that has ended; in the reverse
  case the worker's supervisor ends the worker. The executors end when the JVM has ended.

The cost: the workers of a machine end with it, and the driver uses its cores and memory; other machines take over their tiers.
"""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from scribengin.core.errors import EnvironmentFault, Unreachable
from scribengin.core.net import is_loopback_master
from scribengin.launch.process_launcher import LOG_BYTES, LOOPBACK_DRIVER, ORPHAN_GRACE_S, LauncherHere, executor_settings

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.launch.contract import LaunchOrder

_ANSWER_S = 5.0
_ANSWER_BYTES = 2**24
_WEB_PORT = 8080


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """The addresses of a standalone cluster: `master` is `spark://host:port`, with commas between several; `web` its web UI,
    `http://host:port`."""

    master: str
    web: str

    @classmethod
    def of(cls, master: str, web: str = "") -> SparkCluster:
        """The cluster of a master. `web`: the address of its web UI; by default the host of the master, on Spark's default port. Raises
        ValueError if it is not a valid standalone master."""
        places = [urlsplit(f"//{place}") for place in master.removeprefix("spark://").split(",")]
        if not master.startswith("spark://") or any(place.hostname is None or place.port is None or place.path for place in places):
            raise ValueError(
                f"{master!r} is not a valid standalone master; expected spark://HOST:PORT, separated by commas if there are several"
            )
        return cls(master, web.rstrip("/") or f"http://{places[0].netloc.rpartition(':')[0]}:{_WEB_PORT}")

    def read_state(self) -> SparkClusterState:
        """The cluster as its master's web UI reports it. Raises Unreachable: it does not answer, or another master leads."""
        url = f"{self.web}/json/"
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
                state = msgspec.json.decode(answer.read(_ANSWER_BYTES), type=SparkClusterState)
        except (OSError, ValueError) as error:
            raise Unreachable(
                f"the Spark cluster {self.master} does not answer at {url}: {error}",
                remedy="check that its master is running and that this is the address of its web UI",
                code="cluster-silent",
            ) from error
        if state.status != "ALIVE":
            raise Unreachable(
                f"the Spark master at {url} is {state.status}, not ALIVE",
                remedy="use the address of the leading Spark master",
                code="cluster-silent",
            )
        return state


class SparkWorker(msgspec.Struct, frozen=True):
    """A worker of a standalone cluster. `memoryfree` is in MiB."""

    state: str
    cores: int
    coresfree: int
    memoryfree: int
    host: str = ""


class SparkClusterState(msgspec.Struct, frozen=True):
    """The state of a standalone master and its workers."""

    status: str
    workers: tuple[SparkWorker, ...]

    @property
    def alive(self) -> list[SparkWorker]:
        """The workers that the master counts as alive."""
        return [worker for worker in self.workers if worker.state == "ALIVE"]


class StandaloneLauncher(LauncherHere):
    """A launcher with executors: each worker is a process of this machine, its executors run on the cluster. Their output stays with the
    cluster's workers.

    A worker is refused if not even one of its executors could start now; the others start when there is room.
    """

    def __init__(self, folder: Path, cluster: SparkCluster, *, log_bytes: int = LOG_BYTES, orphan_grace_s: float = ORPHAN_GRACE_S) -> None:
        super().__init__(folder, log_bytes=log_bytes, orphan_grace_s=orphan_grace_s)
        self._cluster = cluster

    def start(self, order: LaunchOrder) -> None:
        """Start a worker; see `Launcher.start`. Asks the cluster's web UI for its free resources."""
        settings = executor_settings(order) | {"spark.cores.max": str(order.cores * order.executors)}
        environment = {}
        if is_loopback_master(self._cluster.master):
            settings |= LOOPBACK_DRIVER
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._children.start(
            order,
            master=self._cluster.master,
            settings=settings,
            environment=environment,
            fits=lambda _others: self._check(order),
        )

    def _check(self, order: LaunchOrder) -> None:
        memory_mib, alive = order.executor_mib, self._cluster.read_state().alive
        if any(worker.coresfree >= order.cores and worker.memoryfree >= memory_mib for worker in alive):
            return
        free = ", ".join(f"{worker.coresfree} cores and {worker.memoryfree} MiB" for worker in alive) or "nothing: it has no Spark workers"
        could = any(worker.cores >= order.cores for worker in alive)
        raise EnvironmentFault(
            f"{order.worker} needs an executor of {order.cores} cores and {memory_mib} MiB; {self._cluster.master} has free: {free}",
            remedy="stop another worker, or give this one fewer cores or less memory"
            if could
            else "give it fewer cores, or add larger Spark workers to the cluster",
            code="launcher-full",
        )

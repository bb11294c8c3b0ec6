"""A real YARN on 127.0.0.1, over an HDFS of its own: a ResourceManager and NodeManagers, which can be killed separately, from jars."""

from __future__ import annotations

import os
import signal
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from scribengin.core.storage import make_folder
from scribengin.embedded.hdfs import JARS as HDFS_JARS
from scribengin.embedded.hdfs import HadoopProcess, Hdfs, write_site
from scribengin.embedded.jars import fetch
from scribengin.embedded.server import HOST, free_ports, load_or_create

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

JARS = "yarn"
"""the set of jars that the ResourceManager needs besides those of HDFS"""
_ANSWER_S = 5.0
_ANSWER_BYTES = 2**24
_MIN_CONTAINER_MIB = 64
_LOG_KEPT_S = 24 * 3600
_NODE_SILENT_MS = 10_000
_PASSED_ON = ("JAVA_HOME", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""variables of a NodeManager that its containers get"""


class _Ports(msgspec.Struct, frozen=True):
    scheduler: int
    tracker: int
    admin: int


class _Localizer(msgspec.Struct, frozen=True):
    port: int


class YarnProcess(HadoopProcess):
    """A process of YARN, with a REST API."""

    SETS = (HDFS_JARS, JARS)

    @property
    def web(self) -> str:
        """The URL of its web page and REST API."""
        return f"http://{HOST}:{self.web_port}"

    def read(self, path: str) -> Any:
        """The answer of its REST API, as Python objects. Raises OSError if it does not answer, ValueError if the answer is not JSON."""
        request = urllib.request.Request(f"{self.web}{path}", headers={"Accept": "application/json"})
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            return msgspec.json.decode(answer.read(_ANSWER_BYTES))


class ResourceManager(YarnProcess):
    """The ResourceManager, which assigns containers to applications."""

    MAIN = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "YARN ResourceManager", files="resourcemanager")
        self.ports = load_or_create(self.folder / "ports.json", _Ports, lambda: _Ports(*free_ports(3)))


class NodeManager(YarnProcess):
    """A NodeManager, which runs containers. They outlive it; YARN counts them as lost, and the next one in its folder does not know them:
    the store in which it would remember them needs a library that the jars lack."""

    MAIN = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder, f"YARN NodeManager {number}", files="nodemanager")
        self.logs = self.folder / "containers"
        """the folder with the output of its containers"""
        self.localizer_port = load_or_create(self.folder / "ports.json", _Localizer, lambda: _Localizer(free_ports(1)[0])).port


class Yarn:
    """A YARN cluster with an HDFS. Data and ports stay in `folder` over restarts; released processes are found again.

    As a context manager all run inside the block, and end after it, even if this process ends in any other way. Any client that claims to
    be this user (HADOOP_USER_NAME) has full access. Applications survive a restart of the ResourceManager.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        cores: int = 8,
        memory_mib: int = 4096,
        queues: Mapping[str, int] | None = None,
        check_memory: bool = False,
        settings: Mapping[str, object] | None = None,
        scheduler: Mapping[str, object] | None = None,
    ) -> None:
        """Find a running cluster of this folder, or prepare one.

        Args:
            folder: its folder.
            nodes: the number of NodeManagers.
            cores: the cores that each of them offers, whatever the machine has.
            memory_mib: the memory in MiB that each of them offers, whatever the machine has.
            queues: queue → its share in percent, together 100; by default all of it is one queue, `default`.
            check_memory: kill containers that use more memory than they have requested.
            settings: further settings of the ResourceManager.
            scheduler: further settings of its CapacityScheduler; names are relative to `yarn.scheduler.capacity.`.
        """
        self.folder = folder.absolute()
        self.hdfs = Hdfs(self.folder / "hdfs")
        self.resource_manager = ResourceManager(self.folder / "resourcemanager")
        self.nodes = [NodeManager(self.folder / f"nodemanager-{number}", number) for number in range(1, nodes + 1)]
        self._cores = cores
        self._memory_mib = memory_mib
        self._queues = dict(queues or {"default": 100})
        self._check_memory = check_memory
        self._settings = dict(settings or {})
        self._scheduler = dict(scheduler or {})

    @property
    def conf(self) -> Path:
        """The folder with the settings for clients, for HADOOP_CONF_DIR."""
        return self.folder / "client"

    @property
    def uri(self) -> str:
        """The URL of the ResourceManager's web page and REST API."""
        return self.resource_manager.web

    @property
    def pid(self) -> int | None:
        """The ResourceManager's process id; None if it is not running."""
        return self.resource_manager.pid

    @property
    def log(self) -> Path:
        """The ResourceManager's log."""
        return self.resource_manager.log

    def fetch(self, tell: Callable[[str], None]) -> None:
        """Fetch the servers' jars. `tell` is called with a message before."""
        for name in (HDFS_JARS, JARS):
            fetch(name, tell)

    def start(self) -> None:
        """Start the processes that are not running, and return when applications can be submitted. Fetches the jars if the cache lacks
        them. Raises EnvironmentFault: there is no Java, jars cannot be fetched, a port is taken, or a process does not start."""
        begun: list[HadoopProcess] = []
        try:
            confs = self._write_settings()
            begun = [each for each in (self.resource_manager, *self.nodes) if each.begin(confs[each.name])]
            self.hdfs.start()
            for process in (*self.nodes, self.resource_manager):  # a NodeManager that has ended would never register
                process.wait_ready(self.answers)
        except BaseException:
            for each in begun:
                each.kill()
            raise

    def answers(self) -> bool:
        """True if the ResourceManager answers, all NodeManagers have registered with it, and files can be written."""
        with suppress(OSError, ValueError, LookupError):
            metrics = self.resource_manager.read("/ws/v1/cluster/metrics")["clusterMetrics"]
            return int(metrics["activeNodes"]) >= len(self.nodes) and self.hdfs.answers()
        return False

    def release(self) -> None:
        """Keep all processes running after this process ends."""
        for each in (self.resource_manager, *self.nodes):
            each.release()
        self.hdfs.release()

    def stop(self) -> None:
        """End all processes, containers too: the next ResourceManager starts the drivers of unfinished applications again. Does nothing if
        none is running."""
        for each in (self.resource_manager, *self.nodes):
            each.kill()  # they have no state that a clean end would save
        self.kill_containers()
        self.hdfs.stop()

    def kill_containers(self, holding: str = "") -> int:
        """Kill the processes of containers, and return their number; see `signal_containers`."""
        return self.signal_containers(signal.SIGKILL, holding)

    def signal_containers(self, number: signal.Signals, holding: str = "") -> int:
        """Send a signal to the processes of containers, and return their number. Linux only; on other systems none is found.

        Args:
            number: the signal.
            holding: only of containers that have this text in their environment, such as the id of a container, or the folder with the
                output of a NodeManager's containers.
        """
        reached = 0
        marks = [str(node.logs).encode() for node in self.nodes]
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or belongs to another user
                environment = path.read_bytes()
                if any(mark in environment for mark in marks) and holding.encode() in environment:
                    os.kill(int(path.parent.name), number)
                    reached += 1
        return reached

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _write_settings(self) -> dict[str, Path]:
        """Write the settings of clients and servers. Returns process → the folder with its settings."""
        manager = self.resource_manager
        shared = {
            "yarn.resourcemanager.hostname": HOST,
            "yarn.resourcemanager.address": manager.address,
            "yarn.resourcemanager.scheduler.address": f"{HOST}:{manager.ports.scheduler}",
            "yarn.resourcemanager.resource-tracker.address": f"{HOST}:{manager.ports.tracker}",
            "yarn.resourcemanager.admin.address": f"{HOST}:{manager.ports.admin}",
            "yarn.resourcemanager.webapp.address": f"{HOST}:{manager.web_port}",
            "yarn.scheduler.minimum-allocation-mb": _MIN_CONTAINER_MIB,
            "yarn.scheduler.maximum-allocation-mb": self._memory_mib,
            "yarn.scheduler.maximum-allocation-vcores": self._cores,
        }
        self._write_folder(self.conf, shared)
        manager_conf = self._write_folder(
            self.folder / "conf" / "resourcemanager",
            {
                **shared,
                "yarn.resourcemanager.recovery.enabled": "true",
                "yarn.resourcemanager.store.class": ("org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"),
                "yarn.resourcemanager.fs.state-store.uri": (manager.folder / "state").as_uri(),
                "yarn.resourcemanager.am.max-attempts": 2,
                # a killed NodeManager is noticed after 10 s, not after ten minutes
                "yarn.nm.liveness-monitor.expiry-interval-ms": _NODE_SILENT_MS,
                **self._settings,
            },
        )
        write_site(
            manager_conf / "capacity-scheduler.xml",
            {
                "yarn.scheduler.capacity.root.queues": ",".join(self._queues),
                **{f"yarn.scheduler.capacity.root.{queue}.capacity": share for queue, share in self._queues.items()},
                "yarn.scheduler.capacity.maximum-am-resource-percent": 0.9,
                "yarn.scheduler.capacity.resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
                **{f"yarn.scheduler.capacity.{name}": value for name, value in self._scheduler.items()},
            },
        )
        confs = {manager.name: manager_conf}
        for node in self.nodes:
            confs[node.name] = self._write_folder(
                self.folder / "conf" / node.folder.name,
                {
                    **shared,
                    "yarn.nodemanager.hostname": HOST,
                    "yarn.nodemanager.address": node.address,
                    "yarn.nodemanager.localizer.address": f"{HOST}:{node.localizer_port}",
                    "yarn.nodemanager.webapp.address": f"{HOST}:{node.web_port}",
                    "yarn.nodemanager.local-dirs": node.folder / "local",
                    "yarn.nodemanager.log-dirs": node.logs,
                    "yarn.nodemanager.log.retain-seconds": _LOG_KEPT_S,
                    "yarn.nodemanager.resource.memory-mb": self._memory_mib,
                    "yarn.nodemanager.resource.cpu-vcores": self._cores,
                    "yarn.nodemanager.pmem-check-enabled": str(self._check_memory).lower(),
                    "yarn.nodemanager.vmem-check-enabled": "false",
                    # by default the check is left to cgroups, which this NodeManager does not use
                    "yarn.nodemanager.resource.memory.enforced": "false",
                    "yarn.nodemanager.env-whitelist": ",".join(name for name in _PASSED_ON if name in os.environ or name == "JAVA_HOME"),
                    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.5,
                },
            )
        return confs

    def _write_folder(self, folder: Path, yarn: Mapping[str, object]) -> Path:
        """Write a folder with the settings of HDFS's clients and of YARN."""
        make_folder(folder)
        write_site(folder / "core-site.xml", {"fs.defaultFS": self.hdfs.uri, "hadoop.tmp.dir": self.folder / "tmp"})
        write_site(folder / "hdfs-site.xml", {"dfs.replication": 1})
        write_site(folder / "yarn-site.xml", yarn)
        return folder

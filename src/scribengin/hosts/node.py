"""A host of a control plane: its node process, which executes orders for its workers over a launcher. `scribengin server node` runs it."""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from scribengin.api.planner import Planner, from_others
from scribengin.api.serving import Listen, open_listener
from scribengin.api.tokens import Tokens
from scribengin.control.masters import TOKEN, addresses, certificates_of
from scribengin.control.world import RunId
from scribengin.core.errors import Refused
from scribengin.core.net import LOOPBACK
from scribengin.core.time_text import now_text
from scribengin.hosts.folder_keeper import FolderKeeper
from scribengin.hosts.node_door import NodeGate, NodeGlance, check_door, node_app
from scribengin.hosts.node_process import NodeProcess
from scribengin.hosts.presence import runs_here
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.local import LocalLauncher
from scribengin.launch.standalone import SparkCluster, StandaloneLauncher
from scribengin.launch.yarn import YarnClientLauncher, YarnLauncher
from scribengin.launch.yarn_cluster import YarnCluster
from scribengin.local.run_log import open_run_log
from scribengin.registry.contract import Conflict, Delete, RegistryEntry
from scribengin.registry.records import Host
from scribengin.registry.tree import HOST, HOST_UP
from scribengin.worker.sharing import REACHED_AT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from scribengin.control.home import Home
    from scribengin.core.secret import Secret
    from scribengin.hosts.node_process import Making
    from scribengin.launch.contract import Launcher
    from scribengin.launch.kubernetes_cluster import KubernetesCluster
    from scribengin.registry.connection_settings import ConnectionSettings
    from scribengin.registry.contract import Registry
    from scribengin.registry.records import WorkerOrder


# Environment variables that a worker does not inherit from the process that starts it.


_OWN = "SCRIBENGIN_"
_SHARED = frozenset(
    {
        "SCRIBENGIN_CACHE",
        "SCRIBENGIN_CERTIFICATES",
        "SCRIBENGIN_CLASS_ARCHIVE",
        "SCRIBENGIN_CONFIG",
        "SCRIBENGIN_FAULT",
        "SCRIBENGIN_IVY_SETTINGS",
    }
)


def without_own_variables(environment: Mapping[str, str], *secrets: str) -> dict[str, str | None]:
    """Changes for `LaunchOrder.environment` that remove the variables of Scribengin itself (logins, keys, folders).

    All other variables stay, because flows may read their secrets from the environment (`${secret:env/NAME}`). `secrets`: names of
    variables that the order sets as secrets of the worker; they are not removed.

    >>> without_own_variables({"SCRIBENGIN_WORKER_KEY": "abc", "SCRIBENGIN_CACHE": "/c", "KAFKA_PASSWORD": "x"})
    {'SCRIBENGIN_WORKER_KEY': None}
    """
    return {name: None for name in environment if name.startswith(_OWN) and name not in (*_SHARED, *secrets)}


HOME, NODE = "SCRIBENGIN_HOME", "SCRIBENGIN_NODE"
"""environment variables of a worker, besides the connection settings of the registry"""
_FOLDER_AWAY = "home"
"""the folder of a worker on another host, in the folder in which it starts"""
_TAKEN_WITHIN_S = 30.0
"""seconds for which the session of a killed node process may still live"""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that all workers of a host may have together; None: no limit."""

    cores: int | None = None
    memory_bytes: int | None = None


class NodeHost:
    """A node that runs inside the `with` block: registered, with the workers of earlier nodes on the same folder. The workers continue
    after the block."""

    def __init__(
        self,
        home: Home,
        name: str,
        entrance: ConnectionSettings,
        *,
        capacity: Capacity | None = None,
        token: Secret | None = None,
        make: Making | None = None,
        cluster: SparkCluster | YarnCluster | KubernetesCluster | None = None,
        listen: Listen | None = None,
    ) -> None:
        """Prepare a node; the block starts it. Raises Refused if `name` is not valid.

        Args:
            home: its folder.
            name: its name.
            entrance: the connection settings of the registry.
            capacity: the most that its workers may have together; None: no limit.
            token: the token for masters, with which workers fetch packages.
            make: returns what is started for a worker; by default the program `scribengin.worker`.
            cluster: the Spark cluster on which its workers' executors run, or the YARN or Kubernetes cluster that runs its workers; None:
                Spark runs in the workers.
            listen: the address of its page, and of its workers' logs; by default a free port of the loopback.
        """
        self.name = name
        self.home = home
        self._entrance = entrance
        self._capacity = capacity if capacity is not None else Capacity()
        self._token = token
        self._cluster = cluster
        self._listen = listen or Listen()
        away = not (cluster is None or isinstance(cluster, SparkCluster) or (isinstance(cluster, YarnCluster) and cluster.client))
        reached = "" if away else reached_at(self._listen)
        self._make = make if make is not None else worker_order(home, name, entrance, token, reached, away=away)
        self._stack = ExitStack()
        check_name(name)

    def __enter__(self) -> Self:
        """Start the node. Raises Refused if another process has this folder or this name; and as `ConnectionSettings.open`."""
        self._entrance.check_workers()
        self._listen.check_transport()
        with ExitStack() as stack:
            stack.enter_context(self.home.held("node.lock"))
            log = stack.enter_context(open_run_log(self.home.folder / "node.log"))
            registry = self._entrance.open()
            stack.callback(registry.close)
            tokens, key = Tokens(registry), self._entrance.host_key(self.name)
            check_door(self._listen, has_key=key is not None or bool(tokens.rows()))
            listener = stack.enter_context(open_listener(self._listen))
            self.url = listener.url
            launcher = self._launcher()
            stack.callback(launcher.close)
            host = Host(
                host=socket.gethostname(),
                cores=self._capacity.cores or 0,
                memory_bytes=self._capacity.memory_bytes or 0,
                since=now_text(),
                home=str(self.home.folder.absolute()),
                spark="" if self._cluster is None else self._cluster.master,
            )
            about = {"id": self.name, "host": host.host, "pid": os.getpid(), "http": self.url, "since": host.since, "home": host.home}
            _remove_left_over(registry, self.name, about)
            process = NodeProcess(registry, self.name, launcher, self._make, host, about, log=log)
            there = registry.read(HOST_UP(self.name).path)
            if not process.enter(0.0 if isinstance(there, RegistryEntry) and runs_here(there.value) else _TAKEN_WITHIN_S):
                raise _taken(registry, self.name)
            thread = threading.Thread(target=process.run, name="node process")
            stack.callback(thread.join)
            stack.callback(process.stop)
            thread.start()
            shown = {"pid": about["pid"], "registry": str(self._entrance.address)}
            certificates = certificates_of(os.environ)
            fetch = from_others(self.home.packages, lambda: addresses(registry), token=self._token, certificates=certificates)
            keeper = FolderKeeper(registry, self.name, about, log, may=lambda: process.is_up)
            planner = Planner(self.home.packages.folder, fetch=fetch)
            glance = NodeGlance(
                registry, self.name, process, self.home.packages, logs_here(self.home, launcher), shown, planner, keeper.glance
            )
            stack.enter_context(listener.serve(node_app(glance, NodeGate(registry, self._listen, key, tokens))))
            thread = threading.Thread(target=keeper.run, name="upkeep")
            stack.callback(thread.join)
            stack.callback(keeper.stop)
            thread.start()
            log.info("node up", node=self.name, registry=str(self._entrance.address))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _launcher(self) -> Launcher:
        """A launcher over the node's folder: it observes, and can end, the workers of earlier launchers."""
        if isinstance(self._cluster, YarnCluster):
            kind = YarnClientLauncher if self._cluster.client else YarnLauncher
            return kind(self.home.workers, self._cluster)
        if isinstance(self._cluster, SparkCluster):
            return StandaloneLauncher(self.home.workers, self._cluster)
        if self._cluster is not None:
            from scribengin.launch.kubernetes import KubernetesLauncher  # its client is an extra

            return KubernetesLauncher(self.home.workers, self._cluster, f"{self._entrance.address} {self.name}")
        return LocalLauncher(self.home.workers, cores=self._capacity.cores, memory_bytes=self._capacity.memory_bytes)


def logs_here(home: Home, launcher: Launcher) -> Callable[[str], Sequence[str]]:
    """Returns a function: worker → the files of this host with its output, and with its tier's run log if the flow's state is elsewhere."""

    def logs(worker: str) -> Sequence[str]:
        id_ = RunId.parse(worker)
        return [*launcher.logs(worker), *([] if id_ is None else [str(home.scratch / id_.flow / id_.tier / "tmp/run.log")])]

    return logs


def reached_at(listen: Listen) -> str:
    """The address at which workers of other hosts reach those of this host: that of its page, or the host's name if the page listens on all
    addresses."""
    return socket.gethostname() if listen.host in ("0.0.0.0", "::") else listen.host


def worker_order(
    home: Home, name: str, entrance: ConnectionSettings, token: Secret | None = None, host: str = LOOPBACK, *, away: bool = False
) -> Making:
    """Returns a function that makes a launcher's order of a leader's order: the worker's command, and its environment with the connection
    settings of the registry.

    Args:
        home: the folder of the node.
        name: the name of the node.
        entrance: the connection settings of the registry.
        token: the token for masters.
        host: the address of this host; see `reached_at`.
        away: True if the worker runs on another host: it then gets none of this host's variables, and a folder of its own there.
    """

    def make(worker: str, order: WorkerOrder) -> LaunchOrder:
        id_ = RunId.parse(worker)
        if id_ is None:
            raise ValueError(f"{worker!r} is not a valid name of a worker")
        environment, secrets = entrance.of_worker(id_.flow, id_.tier)
        if token is not None:
            secrets = {**secrets, TOKEN: token}
        here = {**without_own_variables(os.environ, *secrets), HOME: str(home.folder.absolute()), REACHED_AT: host}
        return LaunchOrder(
            worker,
            (sys.executable, "-m", "scribengin.worker", worker),
            {**({HOME: _FOLDER_AWAY} if away else here), **environment, NODE: name},
            secrets,
            cores=order.cores,
            memory_bytes=order.memory_bytes,
            executors=order.executors,
            spark=order.spark,
        )

    return make


def check_name(name: str) -> None:
    """Raise Refused if the text cannot be the name of a node."""
    try:
        HOST(name)
    except ValueError:
        raise Refused(
            f'"{name}" cannot be the name of a node',
            remedy="use letters, digits and . _ : -, at most 127, a letter or digit first: --name NAME",
            code="node-name",
        ) from None


def _remove_left_over(registry: Registry, name: str, about: Mapping[str, object]) -> None:
    """Remove the lease of a killed node process, so that its session need not expire first. A lease with this host and folder is of a
    killed node process, because this process has locked the folder."""
    there = registry.read(HOST_UP(name).path)
    if isinstance(there, RegistryEntry) and all(there.value.get(key) == about[key] for key in ("host", "home")):
        with suppress(Conflict):
            registry.commit(Delete(there.path, there.version))


def _taken(registry: Registry, name: str) -> Refused:
    there = registry.read(HOST_UP(name).path)
    value = getattr(there, "value", {})
    return Refused(
        f'the node "{name}" already runs: process {value.get("pid", "?")} on {value.get("host", "?")}',
        remedy="give this one another name: --name NAME",
        code="node-taken",
    )

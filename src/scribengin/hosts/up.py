"""A control plane on one machine, in one process beside its workers: an embedded ZooKeeper, a master, a node."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from scribengin.api.serving import Listen
from scribengin.control.home import LOCAL
from scribengin.control.version_retention import KEPT_VERSIONS
from scribengin.embedded.standalone import StandaloneCluster
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.hosts.embedded_servers import SparkBeside, kept_up
from scribengin.hosts.master import MasterHost
from scribengin.hosts.node import Capacity, NodeAgent, logs_here
from scribengin.launch.local import LocalLauncher
from scribengin.launch.standalone import SparkCluster
from scribengin.registry.access import DEFAULT_ROOT, RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from scribengin.control.home import Home

_POLL_S = 0.2


class House:
    """A control plane that runs inside the `with` block. At its end the workers are requested to end after the current Batches; desired
    states stay, so that the next one continues with every flow. If this process is killed the workers continue, and the next one adopts
    them."""

    def __init__(
        self,
        home: Home,
        *,
        state: Path | None = None,
        listen: Listen | None = None,
        capacity: Capacity | None = None,
        grace_s: float = 300.0,
        tell: Callable[[str], None] = lambda _line: None,
        spark: SparkCluster | Mapping[str, int] | None = None,
        keep_versions: int = KEPT_VERSIONS,
    ) -> None:
        """Prepare a control plane; the block starts it.

        Args:
            home: its folder.
            state: see `MasterHost`.
            listen: the address of the API; by default a free port of the loopback.
            capacity: the most that all workers may have together; None: no limit.
            grace_s: seconds that workers may take to end.
            tell: called with a message before each step that takes long.
            spark: the Spark cluster on which executors run, or the size of one of its own (see `SparkBeside`); None: Spark runs in the
                workers.
            keep_versions: see `MasterHost`.
        """
        self.home = home
        self._state = state
        self._listen = listen or Listen()
        self._capacity = capacity
        self._grace_s = grace_s
        self._tell = tell
        self._spark = spark
        self._keep_versions = keep_versions
        self._stack = ExitStack()
        self._is_up = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.home.held())
            self._tell("starting ZooKeeper")
            server = stack.enter_context(ZooKeeper(self.home.zookeeper))
            stack.enter_context(kept_up(server, "ZooKeeper", self._tell))
            self.address = RegistryAddress((server.address,), DEFAULT_ROOT)
            entrance = ConnectionSettings(self.address, self.home.login())
            cluster = self._open_cluster(stack)
            stack.callback(self._end_workers)
            stack.enter_context(
                NodeAgent(self.home, LOCAL, entrance, capacity=self._capacity, cluster=cluster, listen=Listen(asks=self._listen.asks))
            )
            logs = logs_here(self.home, LocalLauncher(self.home.workers))
            master = stack.enter_context(
                MasterHost(self.home, LOCAL, entrance, listen=self._listen, logs=logs, state=self._state, keep_versions=self._keep_versions)
            )
            self.url = master.url
            self.home.announce(self.address, self.url)
            stack.callback(self.home.withdraw)
            self._is_up = True
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _open_cluster(self, stack: ExitStack) -> SparkCluster | None:
        if isinstance(self._spark, SparkCluster):
            return self._spark
        folder = self.home.folder / "spark"
        if self._spark is None:
            if folder.exists():  # an earlier control plane with a cluster was killed: the executors of its workers may still run
                stack.callback(StandaloneCluster(folder).stop)
            return None
        self._tell("starting a Spark cluster")
        return stack.enter_context(SparkBeside(folder, self._tell, **self._spark)).cluster

    def _end_workers(self) -> None:
        """End all workers at once: what one worker has written and another has not read waits in the channel between them. Does nothing if
        the control plane was never completely started, because the workers are then not its own."""
        if not self._is_up:
            return
        launcher = LocalLauncher(self.home.workers)
        there = [seen.worker for seen in launcher.observe() if not seen.is_over]
        if there:
            self._tell(f"{len(there)} worker{'s end' if len(there) > 1 else ' ends'} after the Batch under way")
        for worker in there:
            launcher.stop(worker, self._grace_s)
        while any(not seen.is_over for seen in launcher.observe()):
            time.sleep(_POLL_S)

"""A control plane on one machine, in one process beside its workers: an embedded ZooKeeper, a master, a node."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from scribengin.api.serving import Listen
from scribengin.control.home import LOCAL
from scribengin.control.version_retention import KEPT_VERSIONS
from scribengin.core.errors import ScribenginError, Unreachable
from scribengin.embedded.standalone import StandaloneCluster
from scribengin.embedded.yarn import Yarn
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.hosts.embedded_servers import SparkBeside, YarnBeside, kept_up
from scribengin.hosts.master import MasterHost
from scribengin.hosts.node import Capacity, NodeHost, logs_here
from scribengin.launch.local import LocalLauncher
from scribengin.launch.standalone import SparkCluster
from scribengin.launch.yarn import YarnLauncher
from scribengin.launch.yarn_cluster import YarnCluster
from scribengin.registry.access import DEFAULT_ROOT, RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.tree import WORKER_ORDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from scribengin.control.home import Home
    from scribengin.launch.contract import Launcher, ObservedWorker

_POLL_S = 0.2
_AWAY_S = 180.0
"""seconds for which a cluster may not answer when all is ended: it may be restarting"""


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
        yarn: YarnCluster | bool = False,
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
            yarn: the YARN cluster that runs the workers, or, in client mode, their executors; True: one of its own, with an HDFS; False:
                none.
            keep_versions: see `MasterHost`.
        """
        self.home = home
        self._state = state
        self._listen = listen or Listen()
        self._capacity = capacity
        self._grace_s = grace_s
        self._tell = tell
        self._spark = spark
        self._yarn = yarn
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
            launcher = (
                YarnLauncher(self.home.workers, cluster)
                if isinstance(cluster, YarnCluster) and not cluster.client
                else LocalLauncher(self.home.workers)
            )
            stack.callback(self._end_workers, launcher, entrance if isinstance(launcher, YarnLauncher) else None)
            stack.enter_context(
                NodeHost(self.home, LOCAL, entrance, capacity=self._capacity, cluster=cluster, listen=Listen(asks=self._listen.asks))
            )
            logs = logs_here(self.home, launcher)
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

    def _open_cluster(self, stack: ExitStack) -> SparkCluster | YarnCluster | None:
        yarn = self.home.folder / "yarn"
        if self._yarn is True:
            self._tell("starting HDFS and YARN")
            return stack.enter_context(YarnBeside(yarn, self._tell)).cluster
        if yarn.exists():  # an earlier control plane with a YARN was killed, and its workers may still run there
            Yarn(yarn).stop()
        if isinstance(self._yarn, YarnCluster):
            return self._yarn
        if isinstance(self._spark, SparkCluster):
            return self._spark
        folder = self.home.folder / "spark"
        if self._spark is None:
            if folder.exists():  # an earlier control plane with a cluster was killed: the executors of its workers may still run
                stack.callback(StandaloneCluster(folder).stop)
            return None
        self._tell("starting a Spark cluster")
        return stack.enter_context(SparkBeside(folder, self._tell, **self._spark)).cluster

    def _end_workers(self, launcher: Launcher, entrance: ConnectionSettings | None) -> None:
        """End all workers at once: what one worker has written and another has not read waits in the channel between them. Does nothing if
        the control plane was never completely started, because the workers are then not its own.

        Args:
            launcher: the launcher of the workers.
            entrance: the connection settings of the registry, if no signal reaches the workers: they read their orders.
        """
        if not self._is_up:
            return
        try:
            self._wait_for_ends(launcher, entrance)
        except Unreachable as error:
            self._tell(f"{error.message}; its workers are not waited for")

    def _wait_for_ends(self, launcher: Launcher, entrance: ConnectionSettings | None) -> None:
        """Let all workers end, and wait. Raises Unreachable: the cluster does not answer."""
        there = [seen.worker for seen in _observed(launcher) if not seen.is_over]
        if there:
            self._tell(f"{len(there)} worker{'s end' if len(there) > 1 else ' ends'} after the Batch under way")
        for worker in there:
            launcher.stop(worker, self._grace_s)
        if entrance is not None:
            self._order_end(entrance, there)
        while any(not seen.is_over for seen in _observed(launcher)):
            time.sleep(_POLL_S)

    def _order_end(self, entrance: ConnectionSettings, workers: Sequence[str]) -> None:
        """Change the orders of workers, so that they end. The next master finds that they have ended, and orders others."""
        with suppress(ScribenginError), closing(entrance.open()) as registry:  # without it they are killed when their time is over
            for worker in workers:
                spot = WORKER_ORDER(LOCAL, worker)
                if isinstance(order := read_record(registry, spot), Stored):
                    registry.commit(put(registry, spot, replace(order.record, ask="stop", grace_s=self._grace_s)))


def _observed(launcher: Launcher) -> list[ObservedWorker]:
    """The workers, as soon as their cluster answers. Raises Unreachable: it does not for some minutes."""
    give_up_s = time.monotonic() + _AWAY_S
    while True:
        try:
            return launcher.observe()
        except Unreachable:
            if time.monotonic() > give_up_s:
                raise
        time.sleep(_POLL_S)

"""Restarts an embedded server that has ended."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, Self

from scribengin.core.errors import ScribenginError
from scribengin.embedded.standalone import StandaloneCluster
from scribengin.embedded.yarn import Yarn
from scribengin.launch.standalone import SparkCluster
from scribengin.launch.yarn_cluster import YarnCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType


LOOK_S = 1.0


class Keepable(Protocol):
    """An embedded server that can be started again."""

    @property
    def pid(self) -> int | None:
        """The process id; None if it does not run."""

    def start(self) -> None:
        """Start the server. Raises ScribenginError if it does not start."""

    def clear(self) -> None:
        """Remove the remains of a server that has ended."""


@contextmanager
def kept_up(server: Keepable, name: str, tell: Callable[[str], None], *, look_s: float = LOOK_S) -> Iterator[None]:
    """Restart a running server whenever its process has ended, inside the block. The number of restarts has no limit, because the cause (a
    full disk, a kill) may last.

    Args:
        server: the server.
        name: its name, for messages.
        tell: called with each end, and with each new reason why it does not start.
        look_s: seconds between two checks.
    """
    ended = threading.Event()

    def watch() -> None:
        why = ""
        while not ended.wait(look_s):
            if server.pid is not None:
                continue
            if not why:
                tell(f"{name} has ended; it is restarted")
            try:
                server.clear()
                server.start()
            except (ScribenginError, OSError) as error:
                if str(error) != why:
                    tell(f"{name} does not start: {error}")
                why = str(error)
            else:
                why = ""

    thread = threading.Thread(target=watch, name=f"{name}-watch")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# Clusters on this machine that belong to `server dev`: for the executors of its workers, or for all of them.


class SparkBeside:
    """A Spark cluster that runs inside the `with` block; a part of it that ends is restarted. If this process is killed, the cluster
    continues, as the workers that use its executors do, and the next process with the same folder finds it."""

    def __init__(self, folder: Path, tell: Callable[[str], None], *, workers: int = 1, cores: int = 2, memory_mib: int = 2048) -> None:
        """Prepare a cluster; the block starts it.

        Args:
            folder: its folder.
            tell: called with messages for people.
            workers: the number of the cluster's workers.
            cores: the cores that each of them offers to executors.
            memory_mib: the memory in MiB that each of them offers to executors.
        """
        self._cluster = StandaloneCluster(folder, workers=workers, cores=cores, memory_mib=memory_mib)
        self._tell = tell
        self._watch: AbstractContextManager[None] | None = None

    @property
    def cluster(self) -> SparkCluster:
        """The address of the cluster."""
        return SparkCluster(self._cluster.address, self._cluster.web)

    @property
    def pid(self) -> int | None:
        """The process id of the cluster's master; None if a part of the cluster does not run."""
        return self._cluster.pid if self._cluster.whole else None

    def start(self) -> None:
        """Start the parts of the cluster that do not run. Raises EnvironmentFault."""
        self._cluster.start()
        self._cluster.release()

    def clear(self) -> None:
        """Does nothing: a part that has ended leaves nothing behind."""

    def __enter__(self) -> Self:
        self.start()
        self._watch = kept_up(self, "the Spark cluster", self._tell)
        self._watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._watch is not None
        self._watch.__exit__(kind, error, trace)
        self._cluster.stop()


class YarnBeside:
    """A YARN with an HDFS of its own that runs inside the `with` block, for `server dev`; a part of it that ends is restarted. If this
    process is killed it continues, with its containers, and the next process with the same folder finds it."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        """Prepare it; the block starts it. `folder`: its folder. `tell`: called with messages for people."""
        self._yarn = Yarn(folder)
        self._tell = tell
        self._watch: AbstractContextManager[None] | None = None

    @property
    def cluster(self) -> YarnCluster:
        """How workers are submitted to it. It must have been started."""
        return YarnCluster.of(self._yarn.conf)

    @property
    def pid(self) -> int | None:
        """The process id of the ResourceManager; None if a part of the cluster does not run."""
        hdfs = self._yarn.hdfs
        parts = (*self._yarn.nodes, hdfs.name_node, hdfs.data_node)
        return self._yarn.pid if all(part.up for part in parts) else None

    def start(self) -> None:
        """Start the parts that do not run. Raises EnvironmentFault."""
        self._yarn.start()
        self._yarn.release()

    def clear(self) -> None:
        """Does nothing: a part that has ended leaves nothing behind."""

    def __enter__(self) -> Self:
        self._yarn.fetch(self._tell)
        self.start()
        self._watch = kept_up(self, "the YARN cluster", self._tell)
        self._watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._watch is not None
        self._watch.__exit__(kind, error, trace)
        self._yarn.stop()

"""A Spark standalone cluster of `up`'s own, on this machine: for the executors of its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from scribengin.embedded.standalone import StandaloneCluster
from scribengin.hosts.kept_up import kept_up
from scribengin.launch.standalone import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType


class SparkBeside:
    """Up inside the `with` block, and started again where a part of it ends. Where this process is killed it lives on, as the workers do
    whose executors it has, and the next one with the same folder finds it."""

    def __init__(self, folder: Path, tell: Callable[[str], None], *, workers: int = 1, cores: int = 2, memory_mib: int = 2048) -> None:
        """`workers` of the cluster, of which each offers so many `cores` and so much memory to executors."""
        self._cluster = StandaloneCluster(folder, workers=workers, cores=cores, memory_mib=memory_mib)
        self._tell = tell
        self._watch: AbstractContextManager[None] | None = None

    @property
    def cluster(self) -> SparkCluster:
        """Where it is."""
        return SparkCluster(self._cluster.address, self._cluster.web)

    @property
    def pid(self) -> int | None:
        """Its master's process; None where a part of it is not there."""
        return self._cluster.pid if self._cluster.whole else None

    def start(self) -> None:
        """Start what is not up. Raises EnvironmentFault."""
        self._cluster.start()
        self._cluster.release()

    def clear(self) -> None:
        """Nothing is left of a part that has ended."""

    def __enter__(self) -> Self:
        self.start()
        self._watch = kept_up(self, "the Spark cluster", self._tell)
        self._watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._watch is not None
        self._watch.__exit__(kind, error, trace)
        self._cluster.stop()

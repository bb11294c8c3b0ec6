"""Workers on this machine, Spark inside them: child processes that outlive their master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault
from scribengin.launch.children import LOG_BYTES, ORPHAN_GRACE_S
from scribengin.launch.cpus import own_cpus
from scribengin.launch.here import LauncherHere

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.secret import Secret
    from scribengin.launch.contract import LaunchOrder
    from scribengin.launch.records import Ordered

_TASK_TRIES = 3
_MIB = 2**20


class LocalLauncher(LauncherHere):
    """Each worker is a process, and Spark runs in it on `local[cores,3]`; there are no executors.

    `cores` and `memory_bytes` are what all workers together may have; None: as many as are ordered. With `cores` each worker has CPUs of
    its own, as many as its cores (`own_cpus`). How it lives: `Children`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cores: int | None = None,
        memory_bytes: int | None = None,
        log_bytes: int = LOG_BYTES,
        orphan_grace_s: float = ORPHAN_GRACE_S,
    ) -> None:
        super().__init__(folder, log_bytes=log_bytes, orphan_grace_s=orphan_grace_s)
        self._cores = cores
        self._memory_bytes = memory_bytes

    def start(self, order: LaunchOrder) -> None:
        """As the contract says."""

        def fits(others: list[Ordered]) -> None:
            cores, memory_bytes = sum(other.cores for other in others), sum(other.memory_bytes for other in others)
            _check(order.worker, "cores", order.cores, self._cores, cores)
            _check(order.worker, "bytes of memory", order.memory_bytes, self._memory_bytes, memory_bytes)

        def cpus(others: list[Ordered]) -> tuple[int, ...]:
            return own_cpus(order.cores, self._cores, {cpu for other in others for cpu in other.cpus})

        settings: dict[str, str | Secret] = {}
        if order.memory_bytes:
            settings["spark.driver.memory"] = f"{max(1, order.memory_bytes // _MIB)}m"
        master = f"local[{order.cores},{_TASK_TRIES}]"
        self._children.start(order, master=master, settings=settings, environment={}, fits=fits, cpus=cpus)


def _check(worker: str, what: str, asked: int, limit: int | None, used: int) -> None:
    if limit is not None and used + asked > limit:
        raise EnvironmentFault(
            f"{worker} needs {asked} {what}, {max(0, limit - used)} of {limit} are free",
            remedy=f"stop another worker, give this one fewer {what}, or raise the node's limit",
            code="launcher-full",
        )

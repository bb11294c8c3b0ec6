"""Workers on this machine, Spark inside them: child processes that outlive their master."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault
from scribengin.launch.process_launcher import LOG_BYTES, ORPHAN_GRACE_S, LauncherHere

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from scribengin.core.secret import Secret
    from scribengin.launch.contract import LaunchOrder
    from scribengin.launch.records import Ordered


# Dedicated CPUs of a worker: it uses only those assigned to it, and no other worker uses them. This needs a limit of cores for all workers
# of the machine that is not above its number of CPUs, so that there is a CPU for each core. Otherwise the system's scheduler decides: a
# worker that was bound to a CPU used by others would be slower.


def own_cpus(cores: int, limit: int | None, taken: Collection[int]) -> tuple[int, ...]:
    """The CPUs for a worker with that many cores. Linux only.

    Args:
        cores: the worker's cores.
        limit: the most cores of all workers of the machine; None: no limit.
        taken: the CPUs of other workers.

    Returns:
        The CPUs; empty: the worker may use any.
    """
    if sys.platform != "linux" or limit is None:
        return ()
    there = sorted(os.sched_getaffinity(0))
    free = [cpu for cpu in there if cpu not in taken]
    return tuple(free[:cores]) if limit <= len(there) and cores <= len(free) else ()


_TASK_TRIES = 3
_MIB = 2**20


class LocalLauncher(LauncherHere):
    """A launcher without executors: each worker is a process, in which Spark runs as `local[cores,3]`. `Children` manages the processes.

    `cores` and `memory_bytes` are the most that all workers together may have; None: no limit. With `cores` each worker has dedicated CPUs,
    as many as its cores (`own_cpus`).
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
        """Start a worker; see `Launcher.start`."""

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
            f"{worker} needs {asked} {what}; {max(0, limit - used)} of {limit} are free",
            remedy=f"stop another worker, give this one fewer {what}, or raise the node's limit",
            code="launcher-full",
        )

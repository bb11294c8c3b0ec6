"""A launcher without processes: its workers are entries in memory. For tests of code that uses a launcher.

It keeps the same contract as the real launchers (one test suite covers all of them), and simulates their faults on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import EnvironmentFault, ScribenginError
from scribengin.launch.contract import ObservedWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.launch.contract import LaunchOrder, State

_KILLED = -9


@dataclass(slots=True)
class _Entry:
    seen: ObservedWorker
    order: LaunchOrder
    up_at_s: float
    ends_at_s: float | None = None
    killed_at_s: float | None = None


@dataclass(slots=True)
class MemoryCluster:
    """The workers, which survive a launcher. Launchers over the same cluster see the same workers. `orders` contains every order that was
    ever started."""

    cores: int = 1_000_000
    workers: dict[str, _Entry] = field(default_factory=dict)
    orders: list[LaunchOrder] = field(default_factory=list)


class MemoryLauncher:
    """A launcher over a `MemoryCluster`.

    Args:
        now_s: The clock, in seconds since 1970, which tests advance by hand.
        starts_after_s: How long a worker takes to start.
        ends_after_s: How long a worker takes to end after it was asked to; a `deaf` one never ends by itself.
        refuse_with: An error that `start` raises, until it is None again.
    """

    def __init__(self, now_s: Callable[[], float], cluster: MemoryCluster | None = None) -> None:
        self.cluster = cluster if cluster is not None else MemoryCluster()
        self.starts_after_s = 0.0
        self.ends_after_s = 0.0
        self.deaf: set[str] = set()
        self.refuse_with: ScribenginError | None = None
        self._now_s = now_s

    def start(self, order: LaunchOrder) -> None:
        """See `Launcher`."""
        self._settle()
        if order.worker in self.cluster.workers:
            return
        if self.refuse_with is not None:
            raise self.refuse_with
        used = sum(other.order.cores for other in self.cluster.workers.values() if other.seen.state in ("starting", "running"))
        if used + order.cores > self.cluster.cores:
            raise EnvironmentFault(
                f"{order.worker} needs {order.cores} cores; {self.cluster.cores - used} of {self.cluster.cores} are free",
                remedy="stop another worker, or give this one fewer cores",
                code="launcher-full",
            )
        now_s = self._now_s()
        seen = ObservedWorker(order.worker, "starting", order.digest, now_s, "an entry")
        self.cluster.workers[order.worker] = _Entry(seen, order, up_at_s=now_s + self.starts_after_s)
        self.cluster.orders.append(order)

    def stop(self, worker: str, grace_s: float) -> None:
        """See `Launcher`."""
        self._settle()
        entry = self.cluster.workers.get(worker)
        if entry is None or entry.seen.state not in ("starting", "running"):
            return
        now_s = self._now_s()
        if entry.ends_at_s is None and worker not in self.deaf:
            entry.ends_at_s = now_s + self.ends_after_s
        entry.killed_at_s = min(now_s + grace_s, entry.killed_at_s if entry.killed_at_s is not None else now_s + grace_s)
        entry.seen = replace(entry.seen, stopping=True)

    def kill(self, worker: str) -> None:
        """See `Launcher`."""
        self._settle()
        entry = self.cluster.workers.get(worker)
        if entry is None:
            return
        if entry.seen.state in ("starting", "running"):
            self._over(entry, "exited", self._now_s(), status=_KILLED, reason="killed, as requested")
        entry.seen = replace(entry.seen, strays=())

    def observe(self) -> list[ObservedWorker]:
        """See `Launcher`."""
        self._settle()
        return [entry.seen for _, entry in sorted(self.cluster.workers.items())]

    def logs(self, worker: str) -> tuple[str, ...]:
        """One line of text that is not a path, if the worker is known."""
        return (f"memory: {worker}",) if worker in self.cluster.workers else ()

    def forget(self, worker: str) -> None:
        """See `Launcher`."""
        self._settle()
        entry = self.cluster.workers.get(worker)
        if entry is not None and entry.seen.state in ("exited", "gone"):
            del self.cluster.workers[worker]

    def close(self) -> None:
        """Does nothing: there are no resources."""

    # --- what happens to workers from outside ---

    def end(self, worker: str, status: int, *, strays: tuple[int, ...] = ()) -> None:
        """Let a worker end by itself, or by a signal (negative `status`); `strays` are the processes that it leaves behind."""
        self._settle()
        reason = f"ended by signal {-status}" if status < 0 else f"ended with status {status}" if status else ""
        entry = self.cluster.workers[worker]
        self._over(entry, "exited", self._now_s(), status=status, reason=reason)
        entry.seen = replace(entry.seen, strays=strays)

    def lose(self, worker: str) -> None:
        """Let a worker disappear with an unknown exit status."""
        self._settle()
        self._over(self.cluster.workers[worker], "gone", self._now_s(), reason="its exit status is unknown")

    # --- pieces ---

    def _settle(self) -> None:
        """Make the changes that are due now, at the times at which they were due."""
        now_s = self._now_s()
        for entry in self.cluster.workers.values():
            if entry.seen.state not in ("starting", "running"):
                continue
            if entry.seen.state == "starting" and entry.up_at_s <= now_s:
                entry.seen = replace(entry.seen, state="running", since_s=entry.up_at_s)
            asked, struck = entry.ends_at_s, entry.killed_at_s
            if asked is not None and asked <= now_s and (struck is None or asked <= struck):
                self._over(entry, "exited", asked, status=0, reason="")
            elif struck is not None and struck <= now_s:
                self._over(entry, "exited", struck, status=_KILLED, reason="killed: it did not stop in the given time")

    def _over(self, entry: _Entry, state: State, at_s: float, **facts: Any) -> None:
        entry.seen = replace(entry.seen, state=state, since_s=at_s, **facts)

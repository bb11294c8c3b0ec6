"""What a launcher guarantees. A launcher starts and stops *workers*: each is the process that runs one tier.

**Orders.** A `LaunchOrder` contains all that a launcher needs: the worker's id, the command, additions to its environment, its resources. A
launcher has no knowledge of flows; the control plane determines the command.

**Once.** A worker's id is `<flow>.<tier>-<n>`, and `n` increases with each start of the tier: the caller counts the starts, and stores the
number durably. A launcher starts each id at most once, even if it is ordered twice, by two masters at the same time, or again after it has
ended: an order for an id that was begun does nothing, until the id is forgotten. If a process is killed during `start`, the next `start`
for that id completes it, or `observe` reports it: there is no worker process that the launcher does not know.

**Only `observe` gives the state.** `start` and `stop` return when the request is on its way. A worker may start late, or not at all.

**Secrets** are in `LaunchOrder.secrets`, or `Secret` values among the Spark settings. They reach the worker through its environment, and
through a file that only its user may read: they are never in a command line, a record or a log, and the launcher does not keep them. The
environment of a worker can be read by its user and by the machine's root, who can read its memory too.

**Outliving.** A worker does not end with the process that ordered it. Any launcher over the same folder, or cluster, in any process,
observes the workers of earlier launchers: their state, how they ended, their logs; and it stops and kills them. It never signals a process
that no launcher of the folder has started: a process with the same number and another start time is another process.

**Strays.** A worker is more than one process (Python, a JVM, Python again). `ObservedWorker.strays` are those that still run when the first
one has ended; `kill` and `forget` remove them. A worker whose JVM has ended is killed after some seconds unless it ends itself.

The launcher does not decide which workers should run: an *orphan* is one that `observe` shows and that is in no desired state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from signal import strsignal
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from scribengin.core.records import canonical
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

State = Literal["starting", "running", "exited", "gone"]
"""starting: ordered, and no process yet; running: its process exists, whatever its flow does; exited: it has ended, and its exit status is
known; gone: it does not exist, and its exit status is unknown, or it never started."""

KILLED = -9
"""the status of a worker that was killed"""
_SIGNALS = 128
_EXECUTOR_MIB = 1024
"""the memory of an executor by Spark's default"""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,199}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """A worker to be started. Raises ValueError for an order that no launcher can carry out.

    The worker starts in a folder of its own, with the environment of the launcher's process, changed by `environment` and `secrets`.

    Attributes:
        worker: its id, `<flow>.<tier>-<n>`.
        argv: the command, without secrets.
        environment: variables to set; None removes one.
        secrets: variables to set whose values are secret.
        cores: if the launcher has executors, the cores of each executor, else those of the worker.
        memory_bytes: the memory of each executor, or of the worker; 0: Spark's default.
        executors: the number of executors, if the launcher has them.
        spark: further Spark settings, which have precedence over those that follow from the other values. Spark's master is set by the
            launcher
            only.
    """

    worker: str
    argv: tuple[str, ...]
    environment: Mapping[str, str | None] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    cores: int = 1
    memory_bytes: int = 0
    executors: int = 1
    spark: Mapping[str, str | Secret] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.worker):
            raise ValueError(f"{self.worker!r} is not a valid worker id: expected at most 200 letters, digits, _, - and dots")
        if self.cores < 1 or self.executors < 1 or self.memory_bytes < 0:
            raise ValueError(f"{self.worker}: expected at least 1 core and 1 executor, and memory of 0 or more")
        if not self.argv or any("\0" in word for word in self.argv):
            raise ValueError(f"{self.worker}: the command is empty or contains a NUL")
        for name in (*self.environment, *self.secrets):
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{self.worker}: {name!r} is not a valid name of an environment variable")
        if twice := self.environment.keys() & self.secrets.keys():
            raise ValueError(f"{self.worker}: {sorted(twice)} are given both as plain variables and as secrets")
        hidden = [secret.reveal() for secret in (*self.secrets.values(), *self.spark.values()) if isinstance(secret, Secret)]
        if any(text and text in word for text in hidden for word in self.argv):
            raise ValueError(f"{self.worker}: the command contains a secret, which every user of the machine could read")

    @property
    def executor_mib(self) -> int:
        """The memory of an executor, in MiB; without `memory_bytes` Spark's default."""
        return max(1, self.memory_bytes // 2**20) if self.memory_bytes else _EXECUTOR_MIB

    @property
    def digest(self) -> str:
        """A digest of the order, equal for orders with the same content. Of a secret it includes only its reference in the flow."""
        text = canonical(
            {
                "argv": self.argv,
                "environment": dict(self.environment),
                "secrets": {name: secret.reference for name, secret in self.secrets.items()},
                "use": [self.cores, self.memory_bytes, self.executors],
                "spark": {name: [value.reference] if isinstance(value, Secret) else value for name, value in self.spark.items()},
            }
        )
        return sha256(text).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ObservedWorker:
    """The observed state of a worker.

    Attributes:
        worker: its id.
        state: its state.
        order: the digest of the order by which it was started; empty if the order's record is lost.
        since_s: when it entered its state, in seconds since the epoch.
        process: where it runs, for people.
        pid: its process on this machine; None if there is none.
        status: the exit status, 0 to 255, or the signal's number as a negative number; None if it has not exited.
        reason: why it does not run, or what hinders its executors, and after a semicolon what to do; empty for one that ended by itself
            with status 0.
        stopping: a stop was requested.
        strays: its processes that still run although its first process has ended.
    """

    worker: str
    state: State
    order: str = ""
    since_s: float = 0.0
    process: str = ""
    pid: int | None = None
    status: int | None = None
    reason: str = ""
    stopping: bool = False
    strays: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """True if none of its processes runs any more."""
        return self.state in ("exited", "gone") and not self.strays


def end_of(code: int) -> tuple[int, str]:
    """The status of a worker and how it ended, by the exit code of a shell or a container: above 128 it is that of a signal."""
    if code > _SIGNALS:
        return _SIGNALS - code, f"ended by signal {code - _SIGNALS} ({strsignal(code - _SIGNALS)})"
    return code, f"ended with status {code}"


def killed_text(grace_s: float) -> str:
    """Why a worker was killed. `grace_s`: the grace of the request to stop it; 0 if it was to be killed."""
    return f"killed: it did not stop within {grace_s:g} s of the stop request" if grace_s else "killed, as requested"


class Launcher(Protocol):
    """Starts, stops and observes workers. May be used by several threads, and by several processes at once over the same folder.

    Every method may be called twice. No method waits for a worker to start or to end.
    """

    def start(self, order: LaunchOrder) -> None:
        """Start a worker, unless it was already started.

        Raises:
            EnvironmentFault: its resources are not free (`launcher-full`), or it cannot be started. Nothing was started.
            Unreachable: the cluster does not answer. Nothing was started.
        """
        ...

    def stop(self, worker: str, grace_s: float) -> None:
        """Request a worker to end gracefully (SIGTERM, once), and kill it if it has not ended after `grace_s` seconds.

        The kill happens even if this process ends meanwhile. If it is requested again, the earlier time counts. Does nothing if the worker
        does not run.
        """
        ...

    def kill(self, worker: str) -> None:
        """Kill a worker and all its processes at once, in any state. Does nothing if there are none."""
        ...

    def observe(self) -> list[ObservedWorker]:
        """All existing workers, and those that have ended and were not forgotten, by id. Raises Unreachable if the launcher cannot find
        out."""
        ...

    def logs(self, worker: str) -> tuple[str, ...]:
        """The paths of the worker's output, oldest first; empty if there is none. The output is bounded, and is kept for a while after
        `forget`."""
        ...

    def forget(self, worker: str) -> None:
        """Remove the record of a worker that has exited or is gone, and its remaining processes; does nothing for other workers."""
        ...

    def close(self) -> None:
        """Release the resources of the launcher. The workers continue to run."""
        ...


@runtime_checkable
class TellsEnds(Protocol):
    """A launcher that is notified when workers end, so that no caller has to poll."""

    def on_end(self, wake: Callable[[], None]) -> None:
        """Set the function to call, from any thread, when a worker that `observe` has shown may have ended. It is a hint. A second call
        replaces the function."""
        ...

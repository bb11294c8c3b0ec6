"""What a launcher promises. A launcher starts and stops *Workers*: each is the process that runs one tier.

**Orders.** An `LaunchOrder` says all that a launcher needs: the worker's id, the command, what its environment gets, what it may use. A
launcher knows nothing of flows; the command is whatever the control plane says.

**Once.** A worker's id is `<flow>.<tier>-<n>`, and `n` rises with each start of the tier: who orders counts them, and keeps the number
where it outlasts him. A launcher starts each id at most once, also when it is ordered twice, by two masters at a time, or again after it
has ended: an order for an id that was begun does nothing, until it is forgotten. What a `start` began before its process was killed is
taken up by the next one for that id, or is seen by `observe`: there is no process of which the launcher does not know.

**Nothing is so until `observe` says so.** `start` and `stop` return when the wish is on its way. A worker may come up late, or not at all.

**Secrets** stand in `LaunchOrder.secrets`, or as `Secret` values among the Spark settings. They reach the worker through its
environment, and through a file that only its user may read: they are never in a command line, a record or a log, and are not kept by the
launcher. Who may look into the environment of a worker is its user and the machine's root, and these can look into its memory too.

**Outliving.** A worker does not end with the process that ordered it. Any launcher over the same folder, or cluster, in any process, sees
the workers of the ones before: their state, how they ended, where their logs are; and stops and kills them. It never strikes a process
that it has not started: what has a worker's process number, and another start time, is another process.

**What is left.** A worker is more than one process (Python, a JVM, Python again). `ObservedWorker.strays` are those that live on when the
first one has ended; `kill` and `forget` remove them. A worker whose JVM has ended is none any more: it is given some seconds to leave.

The launcher does not decide which workers should run: an *orphan* is one that `observe` shows and that is in no desired state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from scribengin.core.records import canonical
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

State = Literal["starting", "running", "exited", "gone"]
"""starting: ordered, and no process yet; running: its process is there, which says nothing of its flow; exited: it has ended, and how is
known; gone: it does not exist, and its exit status is unknown, or it never started."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,199}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """A worker to be started.

    `worker` is `<flow>.<tier>-<n>`; `argv` is the command without secrets. The worker gets the environment of the launcher's process, with
    `environment` (None takes a variable away) and `secrets` over it, and starts in a folder of its own. Where the launcher has executors,
    `cores` and `memory_bytes` are those of each of the `executors`; else those of the worker itself. 0 bytes leave it to Spark. `spark` are
    further Spark settings, which win over what follows from the rest; what names Spark's master is the launcher's alone. Raises ValueError
    for what no launcher can do.
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
    def digest(self) -> str:
        """Equal for orders with the same content. Of a secret it includes only how the flow writes it."""
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

    `order` is the digest of the order that it was started by, "" where no record is left; `since_s` (of the epoch) is when it came into
    its state. `process` says where it runs, for people; `pid` is its process on this machine, where it has one. `status` is known of what
    has exited: 0 to 255, or the signal's number below zero; `reason` says in words why it is not there, "" for one that ended by itself
    with 0. `stopping`: its end was asked for.
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
        """Whether none of its processes runs any more."""
        return self.state in ("exited", "gone") and not self.strays


class Launcher(Protocol):
    """Starts, stops and sees workers. May be used by several threads, and by several processes at once over the same folder.

    Every method may be called twice. None waits for a worker to start or to end.
    """

    def start(self, order: LaunchOrder) -> None:
        """Start a worker, unless it was already started.

        Raises EnvironmentFault if it does not fit in (`launcher-full`), Unreachable where the cluster does not answer; nothing was
        started then.
        """
        ...

    def stop(self, worker: str, grace_s: float) -> None:
        """Ask a worker to stop in order (SIGTERM, once), and kill it if it has not ended after `grace_s` seconds.

        That holds though this process end meanwhile. Asked again, the earlier of the two ends counts. Nothing happens where it is not
        there.
        """
        ...

    def kill(self, worker: str) -> None:
        """Kill a worker and all its processes at once, in any state. Does nothing if there are none."""
        ...

    def observe(self) -> list[ObservedWorker]:
        """All workers that there are, and those that have ended and were not forgotten, by id. Raises Unreachable if it cannot know."""
        ...

    def logs(self, worker: str) -> tuple[str, ...]:
        """Where the worker's output lies, the oldest first; none if there is none. Bounded; it outlasts `forget` for a while."""
        ...

    def forget(self, worker: str) -> None:
        """Remove the record of a worker that has exited or is gone, and what is left of it; nothing happens to others."""
        ...

    def close(self) -> None:
        """Release the resources of the launcher. The workers continue to run."""
        ...


@runtime_checkable
class TellsEnds(Protocol):
    """A launcher that is notified when workers end, so that no caller has to poll."""

    def on_end(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from any thread, when a worker that `observe` has shown may have ended: a hint. The last `wake` counts."""
        ...

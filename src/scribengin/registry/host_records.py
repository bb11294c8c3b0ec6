"""Records between the leader and hosts: kinds for the paths that `registry.tree` declares below `physicalnodes/`."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from typing import Literal

from scribengin.registry.records import Record

Ask = Literal["run", "stop", "kill"]
ProcessState = Literal["starting", "running", "exited", "gone"]


class Decommissioned(Record):
    """A host that gets no new workers, and whose workers move elsewhere if they can."""

    by: str = ""
    at: str = ""


class WorkerOrder(Record):
    """The leader's order to a host about one worker. The host makes its command and environment itself: no secret is sent this way."""

    ask: Ask
    cores: int = 1
    memory_bytes: int = 0
    executors: int = 1
    spark: Mapping[str, str] = {}
    """further Spark settings"""
    grace_s: float = 0.0
    """of a stop: seconds that it may take before it is killed"""
    digest: str = ""
    """distinguishes this order from others"""


class WorkerSeen(Record):
    """A worker, as its host's launcher reports it (`launch.contract.Seen`)."""

    state: ProcessState
    order: int = 0
    """the revision that made the order by which it was started; 0: unknown"""
    since_s: float = 0.0
    process: str = ""
    pid: int | None = None
    status: int | None = None
    reason: str = ""
    stopping: bool = False
    strays: tuple[int, ...] = ()
    logs: tuple[str, ...] = ()

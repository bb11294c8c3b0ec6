"""The records of a worker, in a folder of its own: the order, its supervisor, its process, the request to stop it, and how it ended.

The launcher writes `order.json` before anything is started. The supervisor (`launch/keeper.py`) writes `keeper.json`, `started.json` and
`ended.json`; any process that stops the worker writes `stopping.json`. A torn file counts as missing: the processes themselves decide.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from scribengin.core.errors import StateError
from scribengin.core.process import Process
from scribengin.core.records import seal, unseal
from scribengin.core.storage import explained, read_or_none, replace

if TYPE_CHECKING:
    from pathlib import Path

_KIND, _FORMAT = "worker-order", 1
_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class Ordered(msgspec.Struct, frozen=True):
    """The order, without secrets. `mark` is the mark in the worker's environment; `at_s` is in seconds since the epoch."""

    worker: str
    digest: str
    at_s: float
    argv: tuple[str, ...]
    cores: int
    memory_bytes: int
    mark: str
    log: str
    log_bytes: int
    orphan_grace_s: float
    cpus: tuple[int, ...] = ()
    """the CPUs that the worker may use; empty: any"""


class Started(msgspec.Struct, frozen=True):
    """The worker's process, and when it started, in seconds since the epoch."""

    pid: int
    born: str
    at_s: float


class Ended(msgspec.Struct, frozen=True):
    """How the worker ended: `status` is 0 to 255, or the signal's number as a negative number; `at_s` is in seconds since the epoch."""

    status: int
    reason: str
    at_s: float


class Stopping(msgspec.Struct, frozen=True):
    """The request to stop the worker: when it was made, by the monotonic clock, which all processes of a machine share, and the seconds
    until the worker is killed."""

    asked_s: float
    grace_s: float

    @property
    def dies_at_s(self) -> float:
        """The time at which it is killed, by the monotonic clock in seconds."""
        return self.asked_s + self.grace_s


class _Keeper(msgspec.Struct, frozen=True):
    pid: int
    born: str


class WorkerRecords:
    """The records of one worker, in its folder. A file that a crash or a person has damaged is read as missing, never as an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write_order(self, ordered: Ordered) -> None:
        """Write the order, durably, before anything is started. Raises EnvironmentFault."""
        replace(self.folder / "order.json", seal(_KIND, _FORMAT, msgspec.to_builtins(ordered)))

    def write_stopping(self, grace_s: float) -> None:
        """Write the request to stop the worker, to be killed after `grace_s` seconds from now. Raises EnvironmentFault."""
        replace(self.folder / "stopping.json", msgspec.json.encode(Stopping(time.monotonic(), grace_s)))

    def remove_stopping(self) -> None:
        """Remove the request to stop the worker. Raises EnvironmentFault."""
        with explained(f"{self.folder} cannot be written"):
            (self.folder / "stopping.json").unlink(missing_ok=True)

    def ordered(self) -> Ordered | None:
        """The order; None if it does not exist or cannot be read."""
        path = self.folder / "order.json"
        data = read_or_none(path)
        if data is None:
            return None
        try:
            return msgspec.convert(unseal(data, _KIND, _FORMAT, path), Ordered)
        except (StateError, msgspec.ValidationError):
            return None

    def keeper(self) -> Process | None:
        """The supervisor's process, which may have ended; None if it was not recorded."""
        found = self._read("keeper.json", _Keeper)
        return None if found is None else Process(found.pid, found.born)

    def started(self) -> Started | None:
        """The worker's own process, which may have ended; None if it was not recorded."""
        return self._read("started.json", Started)

    def ended(self) -> Ended | None:
        """How the worker ended; None if that was not recorded."""
        return self._read("ended.json", Ended)

    def stopping(self) -> Stopping | None:
        """The request to stop the worker; None if there is none."""
        return self._read("stopping.json", Stopping)

    def _read(self, name: str, kind: type[_Kind]) -> _Kind | None:
        data = read_or_none(self.folder / name)
        try:
            return None if data is None else msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError:
            return None

"""What holds of a lease, wherever the state lies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.core.errors import FencedError, Refused

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from scribengin.state.folder import StateFolder


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """Who holds a lease."""

    term: int
    pid: int
    host: str
    since: str
    right: str = ""
    """what it holds the lease by, where a registry gives the right to it"""
    process: str = ""
    """where there is no lock: which process of which machine, so that another of that machine can tell whether it is still there"""


class Right(Protocol):
    """The right to run the tier, where a registry gives it: it stands above the lock, which only processes of one machine see."""

    @property
    def path(self) -> str:
        """Which right it is."""

    def check(self) -> None:
        """Raise FencedError where it is not held any more."""


class Lease(ABC):
    """A lease that is held. Release it, or leave its `with` block; the end of the process releases it too."""

    def __init__(self, path: Path, holder: LeaseOwner, right: Right | None = None) -> None:
        """`path` is that of the lock in the tier's folder."""
        self.path = path
        self.holder = holder
        self._right = right

    @property
    def term(self) -> int:
        """This lease's number: higher than that of every lease before."""
        return self.holder.term

    @abstractmethod
    def check(self) -> None:
        """Raise FencedError where it is lost: a newer Term has begun, its records were taken away, or the right to it is over. Costs some
        10 µs on a disk, a question to the NameNode in an HDFS."""

    @abstractmethod
    def release(self) -> None:
        """Let the next one take it."""

    def _lost(self, why: str) -> FencedError:
        return FencedError(lost_text(self.path.parent, self.term, why), remedy="this driver stops; nothing of it is visible")

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


TAKEN = "a newer driver has taken it"


def lost_text(folder: Path, term: int, why: str) -> str:
    """What is said of a lease that is lost."""
    return f"the lease of {folder} (term {term}) is lost: {why}"


def refusal(folder: StateFolder, holder: LeaseOwner | None, more: str = "") -> Refused:
    """What is said to who comes while it is held. `more`: of when that may end by itself."""
    who = "another process" if holder is None else f"process {holder.pid} on {holder.host}, since {holder.since}"
    details: dict[str, Any] = {
        "remedy": f"stop it (kill -INT {holder.pid}) or wait for its end{more}" if holder else "try again",
        "code": "already-running",
    }
    return Refused(f'flow "{folder.flow}" is running already on {folder.path}: {who}', **details)

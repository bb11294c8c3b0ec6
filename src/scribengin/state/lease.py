"""The lease: the right to run a tier on this machine, a lock on a file, with a Term that rises at each take. Where the state lies
elsewhere: see `remote_lease`.

Nothing that keeps records rests on the lease: decisions and sinks hold against a driver that lost it and does not know yet.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from scribengin.core import faults
from scribengin.core.moments import now_text
from scribengin.core.remote import RemotePath
from scribengin.core.storage import make_folder, names_in, put_if_absent
from scribengin.state.holder import TAKEN, Lease, LeaseOwner, Right, refusal
from scribengin.state.remote_lease import read_remote_holder, take_remote_lease

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from scribengin.state.folder import StateFolder

__all__ = ["Lease", "LeaseOwner", "Right", "read_holder", "take_lease", "take_leases"]

_POLL_S = 0.05
_KEPT_TERMS = 10


class FileLease(Lease):
    """See Lease."""

    def __init__(self, path: Path, handle: int, holder: LeaseOwner, right: Right | None = None) -> None:
        super().__init__(path, holder, right)
        self._handle = handle

    def check(self) -> None:
        """See Lease."""
        terms = _terms(self.path)
        if (terms / _name(self.term + 1)).exists():
            raise self._lost(TAKEN)
        if self._handle < 0:
            raise self._lost("it was released")
        try:
            there, mine = self.path.stat(), os.fstat(self._handle)
        except FileNotFoundError:
            raise self._lost(f"{self.path} was taken away") from None
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            raise self._lost(f"{self.path} was replaced")
        if not (terms / _name(self.term)).exists():
            raise self._lost(f"{terms} was emptied")
        if self._right is not None:
            self._right.check()

    def release(self) -> None:
        """See Lease."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def take_lease(folder: StateFolder, *, wait_s: float = 0.0, right: Right | None = None) -> Lease:
    """Take the lease of a tier, waiting up to `wait_s` seconds. Raises Refused, with the holder's pid and host.

    Who comes with a right takes the lock from a process that had it before and does not let go: one that sleeps, or hangs. That one sees it
    at its next look, before it decides anything. A process that came without the right is left alone. Raises FencedError where the right
    is over.
    """
    if isinstance(folder.path, RemotePath):
        return take_remote_lease(folder, folder.path, wait_s, right)
    make_folder(folder.path)
    deadline = time.monotonic() + wait_s
    while (handle := _try_lock(folder.lock)) is None:
        if not _is_held(folder.lock):
            continue  # somebody only looks who holds it, for some microseconds
        if time.monotonic() >= deadline:
            holder = _written_holder(folder)
            if right is None or holder is None or holder.right != right.path:
                raise refusal(folder, holder)
            right.check()
            folder.lock.unlink(missing_ok=True)
        time.sleep(_POLL_S)
    try:
        holder = _next_term(folder, "" if right is None else right.path)
        os.ftruncate(handle, 0)
        os.pwrite(handle, msgspec.json.encode(holder) + b"\n", 0)
        os.fsync(handle)
    except BaseException:
        os.close(handle)
        raise
    faults.reached("lease.taken")
    return FileLease(folder.lock, handle, holder, right)


@contextmanager
def take_leases(folders: Iterable[StateFolder]) -> Iterator[dict[str, Lease]]:
    """Tier → its lease, of all of them, for a block. Raises Refused where a tier runs."""
    with ExitStack() as stack:
        yield {folder.tier: stack.enter_context(take_lease(folder)) for folder in folders}


def read_holder(folder: StateFolder) -> LeaseOwner | None:
    """Who holds the lease now, or None."""
    if isinstance(folder.path, RemotePath):
        return read_remote_holder(folder.path)
    return _written_holder(folder) if _is_held(folder.lock) else None


def _is_held(path: Path) -> bool:
    """Whether somebody has the lock exclusively: those who only look share it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _try_lock(path: Path) -> int | None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(FileNotFoundError):
            # a lock on a file that was taken away meanwhile is none
            if os.path.samestat(path.stat(), os.fstat(handle)):
                return handle
    except BlockingIOError:
        pass
    os.close(handle)
    return None


def _next_term(folder: StateFolder, right: str) -> LeaseOwner:
    """The next Term, durable. Its record is put-if-absent: even drivers whose lock file was taken away never share one."""
    terms = _terms(folder.lock)
    written = _written_holder(folder)
    term = max((int(name[:10]) for name in names_in(terms)), default=0)
    term = max(term, written.term if written is not None else 0)
    while True:
        term += 1
        holder = LeaseOwner(term, os.getpid(), socket.gethostname(), now_text(), right)
        if put_if_absent(terms / _name(term), msgspec.json.encode(holder)):
            break
    for name in names_in(terms):
        if int(name[:10]) <= term - _KEPT_TERMS:
            (terms / name).unlink(missing_ok=True)
    return holder


def _written_holder(folder: StateFolder) -> LeaseOwner | None:
    try:
        return msgspec.json.decode(folder.lock.read_bytes(), type=LeaseOwner)
    except (FileNotFoundError, msgspec.DecodeError):  # a holder that died while it wrote its name
        return None


def _terms(lock: Path) -> Path:
    return lock.parent / "terms"


def _name(term: int) -> str:
    return f"{term:010d}.json"

"""The lease: the exclusive right to run a tier, with a Term that rises whenever it is taken. `FileLease` is a lock on a file of this
machine; `RemoteLease` is a record with heartbeats, for a state folder in another file system.

The stored records do not depend on the lease: decisions and sinks are safe against a driver that has lost it and has not noticed yet.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import threading
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import msgspec

from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, ScribenginError
from scribengin.core.remote import RemotePath
from scribengin.core.storage import make_folder, names_in, put_if_absent
from scribengin.core.time_text import now_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from scribengin.core.remote import RemoteStat
    from scribengin.state.folder import StateFolder


# The common parts of leases, independent of where the state is stored.


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """The holder of a lease."""

    term: int
    pid: int
    host: str
    since: str
    right: str = ""
    """the path of the registry lease that allows the holder to run the tier; empty without a registry"""
    process: str = ""
    """without a lock: identifies the process and its machine, so that another process of that machine can check whether it still exists"""


class Right(Protocol):
    """A registry lease that allows a process to run the tier. It takes precedence over the lock, which only processes of one
    machine see."""

    @property
    def path(self) -> str:
        """The path of the lease in the registry."""

    def check(self) -> None:
        """Raise FencedError if the lease is no longer held."""


class Lease(ABC):
    """A lease that is held. It is released by `release`, at the end of its `with` block, and at the end of the process."""

    def __init__(self, path: Path, holder: LeaseOwner, right: Right | None = None) -> None:
        """Hold a lease that has been taken.

        Args:
            path: The lock file in the tier's folder.
            holder: This process as the holder.
            right: The registry lease that allows it; None without a registry.
        """
        self.path = path
        self.holder = holder
        self._right = right

    @property
    def term(self) -> int:
        """This lease's number: higher than that of every lease before."""
        return self.holder.term

    @abstractmethod
    def check(self) -> None:
        """Raise FencedError if the lease is lost: a newer Term has begun, its records were removed, or the registry lease is over. Costs
        about 10 µs on a disk, and a request to the NameNode on HDFS."""

    @abstractmethod
    def release(self) -> None:
        """Release the lease for the next holder."""

    def _lost(self, why: str) -> FencedError:
        return FencedError(
            lost_text(self.path.parent, self.term, why), remedy="this driver stops; none of its uncommitted output is visible"
        )

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


TAKEN = "a newer driver holds it"


def lost_text(folder: Path, term: int, why: str) -> str:
    """The error message for a lost lease."""
    return f"the lease of {folder} (term {term}) is lost: {why}"


def refusal(folder: StateFolder, holder: LeaseOwner | None, more: str = "") -> Refused:
    """The error for a process that requests a held lease.

    Args:
        folder: The tier.
        holder: The holder; None if it is not known.
        more: Added to the remedy: when the lease may end on its own.
    """
    who = "another process" if holder is None else f"process {holder.pid} on {holder.host}, since {holder.since}"
    details: dict[str, Any] = {
        "remedy": f"stop it (kill -INT {holder.pid}) or wait until it ends{more}" if holder else "try again",
        "code": "already-running",
    }
    return Refused(f'flow "{folder.flow}" is already running on {folder.path}: {who}', **details)


# The lease of a state folder in another file system: there is no lock that ends with its process, so the holder sends a heartbeat every
# few seconds.
#
#     terms/0000000007.json      the holder of Term 7; written if absent
#     terms/0000000007.beat      empty; written again at each heartbeat
#     terms/0000000007.….open/   while it exists, the driver of Term 7 may write into the state: see `RemotePath.guard`
#     terms/0000000007.released  the holder has ended in order
#
# The process that takes Term 8 deletes that folder, and then completes what was begun (`RemotePath.settle`). It has created its own folder
# before it took the Term, so that its successor finds it. From then on nothing that the driver of Term 7 does can become a part of the
# state, whatever it has checked before and however long it was suspended: that is the fence. The heartbeats only determine when another
# process may take over; safety does not depend on clocks.
# not depend on clocks.


BEAT_S = 5.0
"""seconds between two heartbeats"""
EXPIRES_S = 30.0
"""seconds without a heartbeat after which the lease can be taken over: the holder has ended, is cut off, or is suspended"""
POLL_S = 0.5
"""seconds between two checks for a heartbeat"""
_KEPT_TERMS = 10
_NAME = re.compile(r"(\d{10})\.(?:[0-9a-f]{32}\.)?(json|beat|open|released)")


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest Term and its last heartbeat, by the other system's clock."""

    term: int
    sign_s: float
    released: bool


class RemoteLease(Lease):
    """A lease in another file system; see `Lease`. A thread sends the heartbeats."""

    def __init__(self, path: Path, folder: RemotePath, holder: LeaseOwner, drafts: RemotePath, right: Right | None) -> None:
        super().__init__(path, holder, right)
        self._folder = folder
        self._terms = folder / "terms"
        self._drafts = drafts
        self._over = threading.Event()
        folder.guard(drafts, lost_text(folder, holder.term, TAKEN))
        self._beating = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._beating.start()

    def check(self) -> None:
        """Raise FencedError if the lease is lost; see `Lease.check`."""
        if self._over.is_set():
            raise self._lost("it was released")
        names = self._terms.entries()
        if _record_name(self.term + 1, "json") in names:
            raise self._lost(TAKEN)
        if _record_name(self.term, "json") not in names:
            raise self._lost(f"{self._terms} was emptied")
        if self._right is not None:
            self._right.check()

    def release(self) -> None:
        """Release the lease for the next holder; see `Lease.release`."""
        if self._over.is_set():
            return
        self._over.set()
        self._beating.join(BEAT_S)
        with suppress(ScribenginError):  # if this cannot be written, the next process waits until the lease expires
            put_if_absent(self._of("released"), b"")
            self._drafts.remove(all_in_it=True)
        self._folder.guard(None)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            # the system is unavailable: a later heartbeat may succeed, and until one does, nothing is written either
            with suppress(ScribenginError):
                self._of("beat").touch_over()

    def _of(self, form: str) -> RemotePath:
        return self._terms / _record_name(self.term, form)


def take_remote_lease(folder: StateFolder, path: RemotePath, wait_s: float, right: Right | None) -> Lease:
    """Take a lease in another file system; see `take_lease`. It waits until the holder sends a new heartbeat, which proves that it is
    running, or until the lease may be taken over."""
    terms = path / "terms"
    terms.make()
    deadline = time.monotonic() + wait_s
    first: _Newest | None = None
    looked_s = 0.0
    while (newest := _newest(terms.entries())) is not None and not newest.released:
        if first is None or newest.term != first.term:
            first, begun_s, looked_s = newest, time.monotonic(), _now_there(terms)
        holder = _holder(terms, newest.term)
        if holder is not None and _is_gone(holder):
            break
        if right is not None and holder is not None and holder.right == right.path:
            right.check()
            break
        silent_s = looked_s - newest.sign_s + time.monotonic() - begun_s
        if silent_s >= EXPIRES_S:
            break
        if silent_s < 2 * BEAT_S and newest != first and time.monotonic() >= deadline:
            raise refusal(folder, holder, f"; without a report from it for {EXPIRES_S:g} s, its lease expires")
        time.sleep(POLL_S)
    return _taken(folder, path, newest.term + 1 if newest else 1, right)


def _taken(folder: StateFolder, path: RemotePath, term: int, right: Right | None) -> Lease:
    terms = path / "terms"
    holder = LeaseOwner(term, os.getpid(), socket.gethostname(), now_text(), right.path if right else "", _process(os.getpid()))
    drafts = terms / _record_name(term, f"{uuid4().hex}.open")
    drafts.make()
    faults.reached("lease.drafts")
    mine = put_if_absent(terms / _record_name(term, "json"), msgspec.json.encode(holder))
    found = terms.entries()
    newest = _newest(found)
    if not mine or newest is None or newest.term != term:
        drafts.remove(all_in_it=True)
        raise refusal(folder, None if newest is None else _holder(terms, newest.term))
    faults.reached("lease.numbered")
    for name in found:
        known = _NAME.fullmatch(name)
        if known and name != drafts.name and int(known[1]) <= (term if known[2] == "open" else term - _KEPT_TERMS):
            (terms / name).remove(all_in_it=True)
    path.settle()
    put_if_absent(folder.lock, b"")
    lease = RemoteLease(folder.lock, path, holder, drafts, right)
    faults.reached("lease.taken")
    return lease


def read_remote_holder(path: RemotePath) -> LeaseOwner | None:
    """The present holder of the lease, or None. Whether it has expired is judged by this machine's clock, which may differ: for display
    only."""
    newest = _newest((path / "terms").entries())
    if newest is None or newest.released or time.time() - newest.sign_s > EXPIRES_S:
        return None
    holder = _holder(path / "terms", newest.term)
    return None if holder is None or _is_gone(holder) else holder


def _newest(names: Mapping[str, RemoteStat]) -> _Newest | None:
    terms = [int(found[1]) for name in names if (found := _NAME.fullmatch(name)) and found[2] == "json"]
    if not terms:
        return None
    term = max(terms)
    signs = [names[name].modified_s for form in ("json", "beat") if (name := _record_name(term, form)) in names]
    return _Newest(term, max(signs), _record_name(term, "released") in names)


def _holder(terms: RemotePath, term: int) -> LeaseOwner | None:
    data = (terms / _record_name(term, "json")).get()
    return None if data is None else msgspec.json.decode(data, type=LeaseOwner)


def _now_there(terms: RemotePath) -> float:
    """The time by the clock of the other system."""
    file = terms / f".look.{uuid4().hex}"
    file.touch_over()
    seen = file.probe()
    file.remove(all_in_it=False)
    return time.time() if seen is None else seen.modified_s


def _process(pid: int) -> str:
    """An identifier of a process and its machine; empty if there is no such process, or if the machine does not support it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        about = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if about[0] in "ZX" else f"{boot} {Path('/proc/self/ns/pid').readlink()} {pid} {about[19]}"
    except OSError:
        return ""


def _is_gone(holder: LeaseOwner) -> bool:
    """True if the holder was a process of this machine and no longer exists; False if that cannot be determined."""
    mine, theirs = _process(os.getpid()).split()[:2], holder.process.split()
    return bool(mine) and theirs[:2] == mine and _process(holder.pid) != holder.process


def _record_name(term: int, form: str) -> str:
    return f"{term:010d}.{form}"


__all__ = ["Lease", "LeaseOwner", "Right", "read_holder", "take_lease", "take_leases"]

_POLL_S = 0.05


class FileLease(Lease):
    """A lease that is a lock on a file of this machine; see `Lease`."""

    def __init__(self, path: Path, handle: int, holder: LeaseOwner, right: Right | None = None) -> None:
        super().__init__(path, holder, right)
        self._handle = handle

    def check(self) -> None:
        """Raise FencedError if the lease is lost; see `Lease.check`."""
        terms = _terms(self.path)
        if (terms / _name(self.term + 1)).exists():
            raise self._lost(TAKEN)
        if self._handle < 0:
            raise self._lost("it was released")
        try:
            there, mine = self.path.stat(), os.fstat(self._handle)
        except FileNotFoundError:
            raise self._lost(f"{self.path} was removed") from None
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            raise self._lost(f"{self.path} was replaced")
        if not (terms / _name(self.term)).exists():
            raise self._lost(f"{terms} was emptied")
        if self._right is not None:
            self._right.check()

    def release(self) -> None:
        """Release the lease for the next holder; see `Lease.release`."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def take_lease(folder: StateFolder, *, wait_s: float = 0.0, right: Right | None = None) -> Lease:
    """Take the lease of a tier.

    A process with a registry lease takes the lock from an earlier holder that had the same registry lease and does not release the lock,
    because it is suspended or hangs. That holder notices at its next `check`, before it decides anything. Any other holder is left alone.

    Args:
        folder: The tier.
        wait_s: How long to wait for a lease that is held, in seconds.
        right: The registry lease that allows this process to run the tier; None without a registry.

    Raises:
        Refused: The lease is held; the message names the holder's pid and host.
        FencedError: The registry lease is over.
    """
    if isinstance(folder.path, RemotePath):
        return take_remote_lease(folder, folder.path, wait_s, right)
    make_folder(folder.path)
    deadline = time.monotonic() + wait_s
    while (handle := _try_lock(folder.lock)) is None:
        if not _is_held(folder.lock):
            continue  # another process is checking the lock, which takes some microseconds
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
    """Take the leases of several tiers for a block; yields tier → lease. Raises Refused if one of the tiers is running."""
    with ExitStack() as stack:
        yield {folder.tier: stack.enter_context(take_lease(folder)) for folder in folders}


def read_holder(folder: StateFolder) -> LeaseOwner | None:
    """The present holder of the lease, or None."""
    if isinstance(folder.path, RemotePath):
        return read_remote_holder(folder.path)
    return _written_holder(folder) if _is_held(folder.lock) else None


def _is_held(path: Path) -> bool:
    """True if a process holds the lock exclusively. Processes that only check the lock share it."""
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
            # a lock on a file that was deleted meanwhile is not valid
            if os.path.samestat(path.stat(), os.fstat(handle)):
                return handle
    except BlockingIOError:
        pass
    os.close(handle)
    return None


def _next_term(folder: StateFolder, right: str) -> LeaseOwner:
    """Take the next Term, durably. Its record is written if absent: even drivers whose lock file was deleted never share a Term."""
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
    except (FileNotFoundError, msgspec.DecodeError):  # the holder ended while it was writing its name
        return None


def _terms(lock: Path) -> Path:
    return lock.parent / "terms"


def _name(term: int) -> str:
    return f"{term:010d}.json"

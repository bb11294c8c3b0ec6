"""The lease where the state lies in another file system: there is no lock that ends with its process, so the holder sends a heartbeat every
few seconds.

    terms/0000000007.json      who took Term 7: put-if-absent
    terms/0000000007.beat      empty; written again at each heartbeat
    terms/0000000007.….open/   as long as it is there, the driver of Term 7 may write into the state: see `RemotePath.guard`
    terms/0000000007.released  it has ended in order

Who takes Term 8 deletes that folder, and then ends what was begun (`RemotePath.settle`); it has made its own before it took the Term, so
that whoever comes next finds it. From then on nothing that the driver of Term 7 does can become a part of the state, whatever it has
checked before and however long it has slept: that is the fence. The heartbeats only say when another process may take over; safety does not
depend on clocks.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from scribengin.core import faults
from scribengin.core.errors import ScribenginError
from scribengin.core.moments import now_text
from scribengin.core.storage import put_if_absent
from scribengin.state.holder import TAKEN, Lease, LeaseOwner, Right, lost_text, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.remote import RemotePath, RemoteStat
    from scribengin.state.folder import StateFolder

BEAT_S = 5.0
"""seconds between two heartbeats"""
EXPIRES_S = 30.0
"""seconds without a heartbeat after which the lease can be taken over: the holder is gone, cut off, or suspended"""
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
    """See Lease. A thread sends the heartbeats."""

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
        """See Lease."""
        if self._over.is_set():
            raise self._lost("it was released")
        names = self._terms.entries()
        if _name(self.term + 1, "json") in names:
            raise self._lost(TAKEN)
        if _name(self.term, "json") not in names:
            raise self._lost(f"{self._terms} was emptied")
        if self._right is not None:
            self._right.check()

    def release(self) -> None:
        """See Lease."""
        if self._over.is_set():
            return
        self._over.set()
        self._beating.join(BEAT_S)
        with suppress(ScribenginError):  # where it cannot be said, the next one waits until the signs are old
            put_if_absent(self._of("released"), b"")
            self._drafts.remove(all_in_it=True)
        self._folder.guard(None)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            with suppress(ScribenginError):  # it is away: the next sign may reach it; until one does, nothing is written either
                self._of("beat").touch_over()

    def _of(self, form: str) -> RemotePath:
        return self._terms / _name(self.term, form)


def take_remote_lease(folder: StateFolder, path: RemotePath, wait_s: float, right: Right | None) -> Lease:
    """See `take_lease`. Who comes while the last holder has given no sign for some seconds waits until it gives one, or may be followed."""
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
    drafts = terms / _name(term, f"{uuid4().hex}.open")
    drafts.make()
    faults.reached("lease.drafts")
    mine = put_if_absent(terms / _name(term, "json"), msgspec.json.encode(holder))
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
    """The present holder of the lease, or None. Its time is by this machine's clock, which may differ; for display only."""
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
    signs = [names[name].modified_s for form in ("json", "beat") if (name := _name(term, form)) in names]
    return _Newest(term, max(signs), _name(term, "released") in names)


def _holder(terms: RemotePath, term: int) -> LeaseOwner | None:
    data = (terms / _name(term, "json")).get()
    return None if data is None else msgspec.json.decode(data, type=LeaseOwner)


def _now_there(terms: RemotePath) -> float:
    """The time by the clock of the other system."""
    file = terms / f".look.{uuid4().hex}"
    file.touch_over()
    seen = file.probe()
    file.remove(all_in_it=False)
    return time.time() if seen is None else seen.modified_s


def _process(pid: int) -> str:
    """Which process of which machine it is; empty if there is none, or the machine does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        about = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if about[0] in "ZX" else f"{boot} {Path('/proc/self/ns/pid').readlink()} {pid} {about[19]}"
    except OSError:
        return ""


def _is_gone(holder: LeaseOwner) -> bool:
    """True if it was a process of this machine, and is no more; False if that cannot be told."""
    mine, theirs = _process(os.getpid()).split()[:2], holder.process.split()
    return bool(mine) and theirs[:2] == mine and _process(holder.pid) != holder.process


def _name(term: int, form: str) -> str:
    return f"{term:010d}.{form}"

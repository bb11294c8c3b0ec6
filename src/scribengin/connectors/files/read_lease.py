"""The files that a reader still has to read in a folder that a sink writes: nothing deletes them meanwhile.

    <path>/_scribengin/readers/<id>.json      the files, and the expiry of the lease; its holder renews it
    <path>/_scribengin/readers/<flow>.going   the files that a flow's `when_done` is removing, unless a reader holds them

A process that wants to delete files first announces it where readers check (the compactor in its run, `when_done` in `going`), and then
checks for leases; a reader first writes its lease, and then checks for announcements. So for a file that both want, one of the two sees the
other. The lease of a reader that died or was suspended expires; files that it had yet to read may then be missing, and are reported.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.connectors.files.keeping import RetentionSettings
from scribengin.connectors.files.roll_state import FileFrontier, folder_of, last_batch, newest_turn
from scribengin.connectors.files.sink_folders import INTERNAL, READERS, lineages_in
from scribengin.core.errors import ScribenginError
from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, read_or_none, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

HOLDS_S = 60.0
"""seconds after which a lease that is not renewed expires"""
_RENEW_S = 15.0
_KIND, _GOING, _FORMAT = "read-lease", "going", 1
_LEVELS = 12


def kept_top(place: Path) -> Path | None:
    """The sink's folder that contains `place`, or is it; None for a folder that no sink writes."""
    for folder in [place, *place.parents][:_LEVELS]:
        if (folder / INTERNAL / "owner.json").exists():
            return folder
    return None


def leased(top: Path, names: Collection[str], now_s: float, *, but: str = "") -> bool:
    """Whether a live reader, of another flow than `but`, still has to read one of these files, named relative to `top`. A lease that cannot
    be read counts as one."""
    for path in _leases(top):
        try:
            data = read_or_none(path)
            body = None if data is None else unseal(data, _KIND, _FORMAT, path)
        except ScribenginError:
            return True
        if body is None or (but and body["flow"] == but):
            continue
        if body["until_s"] >= now_s and not set(names).isdisjoint(body["files"]):
            return True
    return False


def over(top: Path, now_s: float) -> Iterator[Path]:
    """Leases that expired more than an hour ago: of dead readers."""
    for path in _leases(top):
        try:
            data = read_or_none(path)
            body = None if data is None else unseal(data, _KIND, _FORMAT, path)
        except ScribenginError:
            continue
        if body is not None and body["until_s"] < now_s - 3600:
            yield path


@contextmanager
def going(top: Path, names: Collection[str], flow: str) -> Iterator[None]:
    """Announce that the flow removes these files unless they are held; a reader that wants them meanwhile waits."""
    file = top / INTERNAL / READERS / f"{flow}.going"
    replace(file, seal(_GOING, _FORMAT, {"until_s": time.time() + HOLDS_S, "flow": flow, "files": sorted(names)}))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _going(top: Path, but: str) -> set[str]:
    """The announced files of flows other than `but`."""
    folder = top / INTERNAL / READERS
    found: set[str] = set()
    for name in names_in(folder):
        data = read_or_none(folder / name) if name.endswith(".going") else None
        body = None if data is None else unseal(data, _GOING, _FORMAT, folder / name)
        if body is not None and body["flow"] != but and body["until_s"] >= time.time():
            found.update(body["files"])
    return found


class ReadLease:
    """The lease of one reader, in one folder. Renewed by its own thread while it holds any file; the thread ends with the object."""

    def __init__(self, top: Path, flow: str, *, clock: Callable[[], float] = time.time) -> None:
        self.top = top
        self._flow = flow
        self._path = top / INTERNAL / READERS / f"{flow or 'reader'}-{uuid4().hex[:12]}.json"
        self._clock = clock
        self._files: set[str] = set()
        self.put_off: set[str] = set()
        """of the files requested last: not held, because another flow's `when_done` may be removing them; to be requested again"""
        self._lock = threading.Lock()
        self._renewing: threading.Thread | None = None
        # not an Event: a garbage collection during that thread's check would wait for the thread's own lock
        self._over = SimpleQueue[None]()
        weakref.finalize(self, self._over.put, None)

    def hold(self, names: Collection[str]) -> set[str]:
        """Hold these files too, durably. Returns those that are being deleted and must not be read. See also `put_off`."""
        self.put_off = set()
        with self._lock:
            fresh = set(names) - self._files
            if not fresh:
                return set()
            self._files |= fresh
            self._write()
        self.put_off = fresh & _going(self.top, self._flow)
        doomed = {name for name in fresh - self.put_off if _is_doomed(self.top, name)}
        if doomed or self.put_off:
            self.let_go(doomed | self.put_off)
        if self._renewing is None:
            self._renewing = threading.Thread(target=_renew, args=(weakref.ref(self), self._over), name="read lease", daemon=True)
            self._renewing.start()
        return doomed

    def let_go(self, names: Collection[str]) -> None:
        """They are read and committed."""
        with self._lock:
            before = len(self._files)
            self._files -= set(names)
            if not self._files:
                self._path.unlink(missing_ok=True)
            elif len(self._files) != before:
                self._write()

    def renew(self) -> None:
        """Renew the lease."""
        with self._lock:
            if self._files:
                self._write()

    def _write(self) -> None:
        body = {"until_s": self._clock() + HOLDS_S, "flow": self._flow, "pid": os.getpid(), "files": sorted(self._files)}
        replace(self._path, seal(_KIND, _FORMAT, body))


def _renew(lease: weakref.ref[ReadLease], over: SimpleQueue[None]) -> None:
    while True:
        with suppress(Empty):
            over.get(timeout=_RENEW_S)
            return
        held = lease()
        if held is None:
            return
        try:
            held.renew()
        except (OSError, ScribenginError):  # the disk is full or unavailable: retried before the lease expires
            continue
        finally:
            del held


def _leases(top: Path) -> list[Path]:
    folder = top / INTERNAL / READERS
    return [folder / name for name in sorted(names_in(folder)) if name.endswith(".json")]


def _is_doomed(top: Path, name: str) -> bool:
    if not (top / name).exists():
        return True
    for lineage in lineages_in(top):
        through = FileFrontier.of(newest_turn(lineage)[1]).removing.get(folder_of(name))
        keeping = RetentionSettings.read(lineage)
        last = None if keeping is None or through is None else last_batch(lineage, keeping.sink, name)
        if last is not None and through is not None and last <= through:
            return True
    return False

"""A host's part in the maintenance of sinks' folders: it maintains those that the leader has assigned to it, each under a lease of its own.

It runs in a thread of the host's node process, and in no worker: so it never delays data, it also runs while no worker does, and a worker's
login needs no access rights beyond its tier. Before each step that writes or deletes, the lease is checked by this machine's clock: a host
whose session expired can no longer write there, and the next host has acquired the lease under a higher Term.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.connectors.files.maintenance import MaintenanceRun as Done
from scribengin.connectors.files.maintenance import keep_folder
from scribengin.control.registry_cache import Mirror
from scribengin.control.upkeep import FOLDERS
from scribengin.core.errors import FencedError, Refused, ScribenginError, Unreachable
from scribengin.core.time_text import now_text
from scribengin.registry.contract import Conflict
from scribengin.registry.lease import RegistryLease
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import MaintenanceOwner, MaintenanceReport
from scribengin.registry.tree import KEEPING, UPKEEP_LEASE, UPKEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from scribengin.registry.contract import Registry

EVERY_S = 60.0
"""seconds between two maintenance runs of one folder"""
TOLD_S = 600.0
"""seconds after which a run is reported even if it had no work"""
_LOOK_S = 5.0
_AGAIN_S = 1.0
_BUG_S = 5.0


@dataclass(slots=True)
class _Duty:
    """One folder that this host maintains. Times are of the monotonic clock."""

    lease: RegistryLease
    due_s: float = 0.0
    told_s: float | None = None
    last: MaintenanceReport | None = None
    path: str = ""
    roll_s: float | None = None
    """seconds after the last run at which hidden segments have waited long enough to be compacted; None: no segments wait"""


@dataclass(slots=True)
class FolderKeeper:
    """Maintains the folders that are assigned to the host `node`. `run` is for one thread, `stop` for any.

    Attributes:
        registry: where the assignments are.
        node: the host.
        about: identifies this process to others (id, host, pid).
        log: its log.
        may: returns True if this process is the node process of the host now.
        every_s: seconds between two maintenance runs of one folder.
    """

    registry: Registry
    node: str
    about: Mapping[str, object]
    log: FilteringBoundLogger
    may: Callable[[], bool] = lambda: True
    every_s: float = EVERY_S
    _mirror: Mirror = field(init=False)
    _duties: dict[str, _Duty] = field(default_factory=dict, init=False)
    _stopped: threading.Event = field(default_factory=threading.Event, init=False)
    _said: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._mirror = Mirror(self.registry, FOLDERS)

    def run(self) -> None:
        """Run until `stop` is called."""
        try:
            while not self._stopped.is_set():
                try:
                    wait_s = self.step()
                except (FencedError, Conflict, Unreachable) as error:
                    self.log.debug("upkeep", message=error.message)
                    wait_s = _AGAIN_S
                except ScribenginError as error:  # for example, access rights were withdrawn: it is logged, and tried again
                    self._say("", error.message)
                    wait_s = _LOOK_S
                except Exception:  # a bug: it is logged with its traceback; the host's node process continues
                    self.log.exception("upkeep")
                    wait_s = _BUG_S
                self._mirror.changed.wait(wait_s)
        finally:
            for id_ in [*self._duties]:
                self._duties.pop(id_).lease.close()
            self._mirror.close()

    def stop(self) -> None:
        """End before the next folder is maintained."""
        self._stopped.set()
        self._mirror.changed.set()

    def glance(self) -> list[dict[str, object]]:
        """The folders that the host maintains now, and their last reported results, as JSON. From any thread."""
        said = []
        for duty in self._duties.copy().values():
            last = duty.last or MaintenanceReport(node=self.node)
            done = {"looked_at": last.at, "did_at": last.did_at, "folded": last.folded, "files": last.files, "bytes": last.bytes}
            if duty.lease.held():
                said.append({"path": duty.path, "term": duty.lease.term.number, **done, "error": last.error})
        return sorted(said, key=lambda each: str(each["path"]))

    def step(self) -> float:
        """Read the host's assignments and maintain the folders that are due. Returns the seconds until the next one is. Raises Unreachable,
        Forbidden."""
        self._mirror.refresh()
        mine = self._read_mine() if self.may() else {}
        for id_ in self._duties.keys() - mine.keys():
            self._duties.pop(id_).lease.close()
            self._said.pop(id_, None)
        next_s = _LOOK_S
        for id_, keeping in mine.items():
            if self._stopped.is_set():
                break
            duty = self._duties.get(id_)
            if duty is None:
                duty = self._duties[id_] = _Duty(RegistryLease(self.registry, UPKEEP_LEASE(id_).path, self.about))
            duty.path = keeping.path
            if time.monotonic() >= duty.due_s and (duty.lease.held() or duty.lease.acquire()):
                duty.due_s = time.monotonic() + self.every_s
                try:
                    self._turn(id_, keeping, duty)
                    if duty.roll_s is not None:
                        duty.due_s = min(duty.due_s, time.monotonic() + max(duty.roll_s, _AGAIN_S))
                except (FencedError, Conflict, Refused) as error:  # it concerns this folder only: the others are still maintained
                    duty.last = None
                    self._say(id_, f"{keeping.path}: {error.message}")
            next_s = min(next_s, max(duty.due_s - time.monotonic(), _AGAIN_S))
        return next_s

    def _read_mine(self) -> dict[str, MaintenanceOwner]:
        ids = [id_ for id_ in self._mirror.children(FOLDERS) if KEEPING.fits(id_)]
        self._mirror.fetch([KEEPING(id_).path for id_ in ids])
        found = {id_: self._mirror.stored(KEEPING(id_)) for id_ in ids}
        return {id_: each.record for id_, each in found.items() if isinstance(each, Stored) and each.record.node == self.node}

    def _turn(self, id_: str, keeping: MaintenanceOwner, duty: _Duty) -> None:
        """Do one maintenance run of the folder, and report it."""
        done, error = Done(), ""
        try:
            done = keep_folder(Path(keeping.path), duty.lease.check)
            duty.roll_s = done.due_s
        except FencedError as fenced:  # another host has the lease, or will have it, and reports
            self._say(id_, f"{keeping.path}: {fenced.message}")
            return
        except ScribenginError as failed:
            error = failed.message
        except OSError as failed:
            error = str(failed)
        if error:
            self._say(id_, f"{keeping.path}: {error}")
        elif done.anything:
            rolled = {name: value for name in ("merged", "merged_files", "closed", "expired") if (value := getattr(done, name))}
            self.log.info("upkeep", folder=keeping.path, folded=done.folded, files=done.files, bytes=done.bytes, **rolled)
        self._tell(id_, keeping, duty, done, error)

    def _tell(self, id_: str, keeping: MaintenanceOwner, duty: _Duty, done: Done, error: str) -> None:
        if duty.last is None:
            there = read_record(self.registry, UPKEPT(id_))
            duty.last = there.record if isinstance(there, Stored) else MaintenanceReport(node="")
        at, last, term = now_text(), duty.last, duty.lease.term
        same = (last.node, last.number, last.term, last.error) == (self.node, keeping.number, term.number, error)
        if same and not done.anything and duty.told_s is not None and time.monotonic() - duty.told_s < TOLD_S:
            return
        now = replace(last, node=self.node, number=keeping.number, term=term.number, at=at, error=error)
        if done.anything:
            now = replace(now, did_at=at, folded=done.folded, files=done.files, bytes=done.bytes)
        self.registry.commit(put(self.registry, UPKEPT(id_), now), term=term)
        duty.last, duty.told_s = now, time.monotonic()

    def _say(self, id_: str, text: str) -> None:
        """Log a text, unless it is the last one that was logged for this folder."""
        if self._said.get(id_) != text:
            self._said[id_] = text
            self.log.warning("upkeep", message=text)

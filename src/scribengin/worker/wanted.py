"""What is wanted of a worker, as its registry says: read again where it may have changed, remembered while nobody answers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Damaged
from scribengin.registry.records import Newer, Stored, read_record
from scribengin.registry.tree import LEASE, RUN, SPARE, WANTED

if TYPE_CHECKING:
    from scribengin.control.world import RunId
    from scribengin.registry.contract import Registry
    from scribengin.registry.kinds import Run, TierWish

_LOOK_S = 5.0
"""a watch is a hint: how long to wait for one before looking anyhow"""


@dataclass(frozen=True, slots=True)
class Orders:
    """What is wanted now. `wish` is None where this worker is not wanted any more: its tier was removed, or another serves it."""

    wish: TierWish | None
    spare: bool = False
    """this worker is the one that waits: it takes the tier over when nobody has its lease"""
    why: str = ""
    """where `wish` is None: how the registry says so"""


class DesiredState:
    """For one thread, beside the watch. A record that says nothing changes nothing: what was wanted before still is."""

    def __init__(self, registry: Registry, id_: RunId) -> None:
        self._registry = registry
        self._number = id_.number
        self._run, self._spare, self._wish = RUN(id_.flow, id_.tier), SPARE(id_.flow, id_.tier), WANTED(id_.flow, id_.tier)
        self._changed = threading.Event()
        self._changed.set()
        self._watches = [
            # the lease too: who waits for it need not ask
            registry.watch(path, self._changed.set)
            for path in (self._wish.path, self._run.path, self._spare.path, LEASE(id_.flow, id_.tier).path)
        ]
        self._last: Orders | None = None

    def read(self) -> Orders:
        """What is wanted. Raises Unreachable where that was never known."""
        if self._changed.is_set() or self._last is None:
            self._changed.clear()
            try:
                self._last = self._read()
            except Unreachable:
                self._changed.set()
                if self._last is None:
                    raise
        return self._last

    def wait(self, timeout_s: float = _LOOK_S) -> None:
        """Until something may have changed, or `timeout_s` are over."""
        if not self._changed.wait(timeout_s):
            self._changed.set()

    def close(self) -> None:
        """End the watches."""
        for watch in self._watches:
            watch.close()

    def _read(self) -> Orders:
        run, spare, wish = (read_record(self._registry, spot) for spot in (self._run, self._spare, self._wish))
        if self._last is not None and any(isinstance(found, Damaged | Newer) for found in (run, spare, wish)):
            return self._last
        wanted, nothing = (wish.record, "") if isinstance(wish, Stored) else (None, "nothing is wanted of its tier")
        if self._is_mine(run):
            return Orders(wanted, why=nothing)
        # where the run's number is the higher one the spare is of the past
        newer = isinstance(run, Stored) and isinstance(spare, Stored) and run.record.number > spare.record.number
        if self._is_mine(spare) and not newer:
            return Orders(wanted, spare=True, why=nothing)
        return Orders(None, why=self._said_of(run))

    def _said_of(self, run: Stored[Run] | Damaged | Newer | None) -> str:
        if not isinstance(run, Stored):
            return "the registry names no worker of its tier"
        by = f"its tier's worker is number {run.record.number}"
        return by if run.record.number != self._number else f"its end was noted{f': {run.record.cause}' if run.record.cause else ''}"

    def _is_mine(self, found: Stored[Run] | Damaged | Newer | None) -> bool:
        return isinstance(found, Stored) and found.record.number == self._number and found.record.ended_at is None

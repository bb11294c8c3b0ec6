"""What is wanted of a worker, as its registry says: read again where it may have changed, remembered while nobody answers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Damaged
from scribengin.registry.records import Newer, Stored, read_record
from scribengin.registry.tree import RUN, WANTED

if TYPE_CHECKING:
    from scribengin.control.world import RunId
    from scribengin.registry.contract import Registry
    from scribengin.registry.tree import TierWish

_LOOK_S = 5.0
"""a watch is a hint: how long to wait for one before looking anyhow"""


@dataclass(frozen=True, slots=True)
class Orders:
    """What is wanted now. `wish` is None where this worker is not wanted any more: its tier was removed, or another serves it."""

    wish: TierWish | None


class Wanted:
    """For one thread, beside the watch. A record that says nothing changes nothing: what was wanted before still is."""

    def __init__(self, registry: Registry, id_: RunId) -> None:
        self._registry = registry
        self._number = id_.number
        self._run, self._wish = RUN(id_.flow, id_.tier), WANTED(id_.flow, id_.tier)
        self._changed = threading.Event()
        self._changed.set()
        self._watches = [registry.watch(path, self._changed.set) for path in (self._wish.path, self._run.path)]
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
        run, wish = read_record(self._registry, self._run), read_record(self._registry, self._wish)
        if self._last is not None and (isinstance(run, Damaged | Newer) or isinstance(wish, Damaged | Newer)):
            return self._last
        served = isinstance(run, Stored) and run.record.number == self._number and run.record.ended_at is None
        return Orders(wish.record if served and isinstance(wish, Stored) else None)

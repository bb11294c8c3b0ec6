"""Records that a running worker heeds: read again when somebody has changed them, remembered while nobody answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import ScribenginError, Unreachable
from scribengin.core.said import Said
from scribengin.registry.records import stored_as

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.registry.contract import Damaged, Registry, RegistryWatch
    from scribengin.registry.records import Newer, Spot, Stored

    Found = Stored[Any] | Newer | Damaged | None
    Take = Callable[[Sequence[Found]], None]

_AGAIN_S = 5.0
"""after a look that found out nothing"""


class Followed:
    """Sets of records, each read at once. `close` ends its thread, which is called `name`; `tell` hears why records cannot be read, each
    reason once. `every_s`: a watch is a hint, so long it is waited for before looking anyhow."""

    def __init__(self, registry: Registry, name: str, every_s: float, tell: Callable[[str], None]) -> None:
        self._registry = registry
        self._every_s = every_s
        self._tell = tell
        self._said = Said()
        self._sets: list[tuple[str, Sequence[Spot[Any]], Take]] = []
        self._watches: list[RegistryWatch] = []
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._thread.start()

    def add(self, stays: str, spots: Sequence[Spot[Any]], take: Take) -> None:
        """Follow these, too; `take` is told what is there, once before this returns. Where they cannot be read it is told nothing, and
        `tell` that `stays`."""
        with self._lock:
            if self._closed:
                return
            self._watches += [self._registry.watch(spot.path, self._changed.set) for spot in spots]
            self._sets.append((stays, spots, take))
        if not self._look(stays, spots, take):
            self._changed.set()

    def look(self) -> bool:
        """Read all of them now; whether all could be read."""
        with self._lock:
            sets = [*self._sets]
        could = [self._look(*each) for each in sets]
        return all(could)

    def close(self) -> None:
        """Follow no more."""
        with self._lock:
            self._closed = True
            for watch in self._watches:
                watch.close()
        self._changed.set()
        self._thread.join()

    def _follow(self) -> None:
        wait_s = self._every_s
        while not self._closed:
            self._changed.wait(wait_s)
            self._changed.clear()
            wait_s = self._every_s if self.look() else _AGAIN_S

    def _look(self, stays: str, spots: Sequence[Spot[Any]], take: Take) -> bool:
        """Whether it could."""
        try:
            entries = self._registry.read_many([spot.path for spot in spots])
        except Unreachable:
            return False
        except ScribenginError as error:
            if self._said.is_new(error.message):
                self._tell(f"{stays}: {error.message}")
            return False
        take([None if entry is None else stored_as(entry, spot) for entry, spot in zip(entries, spots, strict=True)])
        return True

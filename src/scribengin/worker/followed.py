"""Records that a running worker follows: read again after a change, and remembered while the registry does not answer."""

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
"""seconds after a check that failed"""


class Followed:
    """Sets of records, each read at once. `close` ends its thread, which has the name `name`; `tell` is called with the reason why records
    cannot be read, once for each reason. `every_s`: seconds to wait for a watch, which is a hint, before checking anyway."""

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
        """Follow these, too; `take` is called with the records, once before this returns. If they cannot be read, it is not called, and
        `tell` is called with `stays`."""
        with self._lock:
            if self._closed:
                return
            self._watches += [self._registry.watch(spot.path, self._changed.set) for spot in spots]
            self._sets.append((stays, spots, take))
        if not self._look(stays, spots, take):
            self._changed.set()

    def refresh(self) -> bool:
        """Read all of them now; returns whether all could be read."""
        with self._lock:
            sets = [*self._sets]
        could = [self._look(*each) for each in sets]
        return all(could)

    def close(self) -> None:
        """Stop following."""
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
            wait_s = self._every_s if self.refresh() else _AGAIN_S

    def _look(self, stays: str, spots: Sequence[Spot[Any]], take: Take) -> bool:
        """Returns whether they could be read."""
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

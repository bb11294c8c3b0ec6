"""What is said of groups while a worker runs: read again when somebody has changed it, remembered while nobody answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from scribengin.connectors.group.health import Turns
from scribengin.core.errors import ScribenginError, Unreachable
from scribengin.core.said import Said
from scribengin.registry.records import Stored, read_record
from scribengin.registry.tree import GROUP
from scribengin.worker.own_log import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.contract import Registry, Watch

_LOOK_S = 5.0
"""a watch is a hint: how long to wait for one before looking anyhow"""


class LiveTurns:
    """Called from any thread with a group's name; it waits for the registry at the first call for each. `close` ends its thread. A record
    that says nothing, or may not be read, changes nothing."""

    def __init__(self, registry: Registry, tell: Callable[[str], None] = tell) -> None:
        self._tell = tell
        self._said = Said()
        self._registry = registry
        self._now: dict[str, Turns] = {}
        self._watches: dict[str, Watch] = {}
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name="turns", daemon=True)
        self._thread.start()

    def __call__(self, group: str) -> Turns:
        """What holds of it now."""
        with self._lock:
            if group not in self._watches and not self._closed:
                self._watches[group] = self._registry.watch(GROUP(group).path, self._changed.set)
                self._look(group)
        return self._now.get(group, Turns())

    def close(self) -> None:
        """Follow no more."""
        with self._lock:
            self._closed = True
            for watch in self._watches.values():
                watch.close()
        self._changed.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closed:
            self._changed.wait(_LOOK_S)
            self._changed.clear()
            for group in list(self._watches):
                self._look(group)

    def _look(self, group: str) -> None:
        try:
            found = read_record(self._registry, GROUP(group))
        except Unreachable:
            return
        except ScribenginError as error:
            if self._said.is_new(error.message):
                self._tell(f"what is said of group {group} stays as it was: {error.message}")
            return
        if found is None:
            self._now[group] = Turns()
        elif isinstance(found, Stored):
            self._now[group] = Turns(found.record.members, found.record.out)

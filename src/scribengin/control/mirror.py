"""The registry as a master reads it: each record once, and again only where it may have changed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.contract import Damaged, Entry, Registry, Watch


class Mirror:
    """What the registry holds. `read` and `children` are for one thread; `changed` is set, from any, when something may be new.

    A watch says only that something may have changed: what it is about is read again at the next use. So a cycle in which nothing has
    changed costs no request, whatever the number of flows.
    """

    def __init__(self, registry: Registry) -> None:
        self.changed = threading.Event()
        self._registry = registry
        self._records: dict[str, Entry | Damaged | None] = {}
        self._children: dict[str, tuple[str, ...]] = {}
        self._watches: dict[str, Watch] = {}
        self._stale: set[str] = set()
        self._lock = threading.Lock()

    def read(self, path: str) -> Entry | Damaged | None:
        """What is there; None where nothing is. Raises Unreachable where it must ask and nobody answers."""
        self._begin(path)
        if path not in self._records:
            self._records[path] = self._registry.read(path)
        return self._records[path]

    def children(self, path: str) -> tuple[str, ...]:
        """The names one level below, sorted."""
        self._begin(path)
        if path not in self._children:
            self._children[path] = self._registry.children(path)
        return self._children[path]

    def refresh(self) -> None:
        """Forget what may have changed; before each look."""
        self.changed.clear()
        with self._lock:
            stale, self._stale = self._stale, set()
        for path in stale:
            self._records.pop(path, None)
            self._children.pop(path, None)

    def forget(self, path: str) -> None:
        """Read it again at the next use: after a write of one's own, whose watch may come later."""
        self._records.pop(path, None)
        self._children.pop(path, None)

    def drop(self, root: str) -> None:
        """Watch nothing below `root` any more: it is gone."""
        for path in [path for path in self._watches if path == root or path.startswith(f"{root}/")]:
            self._watches.pop(path).close()
            self.forget(path)

    def close(self) -> None:
        """End all watches."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()

    def _begin(self, path: str) -> None:
        """Watch first, then read: a change between the two is seen."""
        if path not in self._watches:
            self._watches[path] = self._registry.watch(path, self._wake(path))

    def _wake(self, path: str) -> Callable[[], None]:
        def wake() -> None:
            with self._lock:
                self._stale.add(path)
            self.changed.set()

        return wake

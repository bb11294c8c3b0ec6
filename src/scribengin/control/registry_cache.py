"""A master's cache of the registry: each record is read once, and again only if it may have changed."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from scribengin.registry.contract import is_below, parent_of
from scribengin.registry.record_io import Newer, Record, Stored, stored_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.registry.contract import Create, Damaged, Registry, RegistryEntry, RegistryWatch, Replace
    from scribengin.registry.record_io import Spot


R = TypeVar("R", bound=Record)


class Mirror:
    """The cache. For one thread, except `changed`: it is set from any thread when a cached record may have changed.

    One watch covers all of it. It reports only that something may have changed: that record is read again at its next use. So a cycle
    without changes costs no request, whatever the number of flows; and with `reading` only the readers of what changed need to be evaluated
    again.
    """

    def __init__(self, registry: Registry, root: str = "") -> None:
        """Create an empty cache. `root`: only records there, or below, are read."""
        self.changed = threading.Event()
        self._registry = registry
        self._root = root
        self._records: dict[str, RegistryEntry | Damaged | None] = {}
        self._kinds: dict[str, Stored[Any] | Newer | Damaged] = {}
        self._children: dict[str, tuple[str, ...]] = {}
        self._readers: dict[str, tuple[str, ...]] = {}
        """path of a record, or of a folder with a trailing slash → its readers"""
        self._reader = ""
        self._drops: dict[str, int] = {}
        """folder for which `drops` was asked → how often the folder or a record in it was dropped"""
        self._watch: RegistryWatch | None = None
        self._lock = threading.Lock()
        # guarded by `_lock`
        self._stale: set[str] = set()
        self._all_stale = False

    def read(self, path: str) -> RegistryEntry | Damaged | None:
        """The record; None if there is none. Raises Unreachable if it must be requested and no server answers."""
        self._note(path)
        if path not in self._records:
            self._begin()
            self._records[path] = self._registry.read(path)
        return self._records[path]

    def stored(self, spot: Spot[R]) -> Stored[R] | Newer | Damaged | None:
        """The record decoded as its kind; None if it does not exist. See `record_io.stored_as`."""
        there = self.read(spot.path)
        if there is None:
            return None
        if spot.path not in self._kinds:
            self._kinds[spot.path] = stored_as(there, spot)
        return cast("Stored[R] | Newer | Damaged", self._kinds[spot.path])  # a path has one kind of record

    def children(self, path: str) -> tuple[str, ...]:
        """The names one level below, sorted."""
        self._note(f"{path}/")
        if path not in self._children:
            self._begin()
            self._children[path] = self._registry.children(path)
        return self._children[path]

    def fetch(self, records: Iterable[str], folders: Iterable[str] = ()) -> None:
        """Read the records and folders that are not cached, in few requests, so that later reads need none.

        Args:
            records: paths of records.
            folders: paths whose children are read.
        """
        self._begin()
        lacking = [path for path in records if path not in self._records]
        self._records.update(zip(lacking, self._registry.read_many(lacking), strict=True))
        lacking = [path for path in folders if path not in self._children]
        self._children.update(zip(lacking, self._registry.children_many(lacking), strict=True))

    def put(self, spot: Spot[R], record: R) -> Create | Replace:
        """The write that puts a record in place of the one that was read here; see `Spot.put`."""
        return spot.put(self.read(spot.path), record)

    @contextmanager
    def reading(self, who: str) -> Iterator[None]:
        """Record all reads inside as those of `who`; `refresh` returns these names."""
        self._reader = who
        try:
            yield
        finally:
            self._reader = ""

    def drops(self, folder: str) -> int:
        """A number that stays the same while nothing in the folder is dropped: then all that was read there would be read the same."""
        return self._drops.setdefault(folder, 0)

    def refresh(self) -> set[str]:
        """Drop what may have changed; called before each observation. Returns the readers of what was dropped."""
        self.changed.clear()
        with self._lock:
            stale, self._stale = self._stale, set()
            all_stale, self._all_stale = self._all_stale, False
        if all_stale:
            self._records.clear()
            self._kinds.clear()
            self._children.clear()
            self._drops = {folder: count + 1 for folder, count in self._drops.items()}
            return {who for readers in self._readers.values() for who in readers}
        readers: set[str] = set()
        for path in stale:
            readers.update(self._forget(path))
        return readers

    def forget(self, path: str) -> None:
        """Read the record again at its next use: for after a write of this process, which the watch may report later."""
        with self._lock:
            self._stale.add(path)
        self._forget(path)

    def drop(self, root: str) -> None:
        """Drop everything at and below `root`, which was removed."""
        known: dict[str, Any]
        for known in (self._records, self._kinds, self._children, self._readers):
            for path in [path for path in known if is_below(path.rstrip("/"), root)]:
                del known[path]

    def close(self) -> None:
        """End the watch of the registry."""
        if self._watch is not None:
            self._watch.close()

    def _begin(self) -> None:
        """Start the watch before the first read: so a change between the two is noticed."""
        if self._watch is None:
            self._watch = self._registry.watch_below(self._root, self._wake)

    def _note(self, place: str) -> None:
        if self._reader and self._reader not in (known := self._readers.get(place, ())):
            self._readers[place] = (*known, self._reader)

    def _forget(self, path: str) -> tuple[str, ...]:
        """Drop a record, and the children of the folder above it, which change when a record is created or removed. Returns their
        readers."""
        above = parent_of(path)
        self._records.pop(path, None)
        self._kinds.pop(path, None)
        self._children.pop(above, None)
        if above in self._drops:
            self._drops[above] += 1
        return (*self._readers.get(path, ()), *self._readers.get(f"{above}/", ()))

    def _wake(self, path: str | None) -> None:
        """Called in a thread of the client. Most changes concern records that are not read here: they cause no cycle."""
        with self._lock:
            if path is None:
                self._all_stale = True
            else:
                self._stale.add(path)
        if path is None or path in self._records or parent_of(path) in self._children:
            self.changed.set()

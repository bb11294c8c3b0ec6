"""`If-Match` on what is wanted of a flow: a registry for one write, which holds only while that was written by a certain revision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import Refused
from scribengin.registry.contract import RegistryEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.registry.contract import CommittedWrite, Damaged, Registry, RegistrySession, RegistryWatch, Term, Write


class ExpectingRegistry:
    """The registry, for a write that reads `path` and then replaces what it has read: where that was not written by `revision` (0: is not
    there) the read raises Refused `revision-stale`. What comes between the read and the write makes the write a Conflict: read again.
    """

    def __init__(self, registry: Registry, path: str, revision: int) -> None:
        self._registry = registry
        self._path = path
        self._revision = revision

    def read(self, path: str) -> RegistryEntry | Damaged | None:
        """See the contract."""
        return self._checked(path, self._registry.read(path))

    def _checked(self, path: str, found: RegistryEntry | Damaged | None) -> RegistryEntry | Damaged | None:
        if path == self._path:
            there = 0 if found is None or (isinstance(found, RegistryEntry) and not found.value) else found.changed
            if there != self._revision:
                now = f"by revision {there}" if there else "by nobody"
                raise Refused(
                    f"what is wanted was written {now}, not {f'by {self._revision}' if self._revision else 'by nobody'}: nothing was done",
                    remedy="look at it again, and decide from what is there now",
                    code="revision-stale",
                )
        return found

    def read_many(self, paths: Sequence[str]) -> list[RegistryEntry | Damaged | None]:
        """See the contract."""
        return [self._checked(path, found) for path, found in zip(paths, self._registry.read_many(paths), strict=True)]

    def children(self, path: str) -> tuple[str, ...]:
        """See the contract."""
        return self._registry.children(path)

    def children_many(self, paths: Sequence[str]) -> list[tuple[str, ...]]:
        """See the contract."""
        return self._registry.children_many(paths)

    def commit(self, *writes: Write, term: Term | None = None) -> CommittedWrite:
        """See the contract."""
        return self._registry.commit(*writes, term=term)

    def sync(self, *, at_least: int | None = None) -> int:
        """See the contract."""
        return self._registry.sync(at_least=at_least)

    def watch(self, path: str, wake: Callable[[], None]) -> RegistryWatch:
        """See the contract."""
        return self._registry.watch(path, wake)

    def watch_below(self, path: str, wake: Callable[[str | None], None]) -> RegistryWatch:
        """See the contract."""
        return self._registry.watch_below(path, wake)

    def session(self) -> RegistrySession:
        """See the contract."""
        return self._registry.session()

    def close(self) -> None:
        """Nothing: it is lent."""

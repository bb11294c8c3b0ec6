"""A sign of life in the registry: an ephemeral record that is there as long as its process, also after its session was another."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Conflict, Create, Delete

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from scribengin.registry.contract import Registry

_LOOK_S = 5.0
"""a watch is a hint: how long to wait for one before looking anyhow"""


class Presence:
    """Keeps `about` at `path` inside the `with` block. What stands there of a process that was killed, under the same name, is replaced."""

    def __init__(self, registry: Registry, path: str, about: Mapping[str, Any]) -> None:
        self._registry = registry
        self._path = path
        self._about = {"format": 1, **about}
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="presence", daemon=True)

    def __enter__(self) -> Self:
        """Raises Unreachable, Forbidden."""
        self._watch = self._registry.watch(self._path, self._changed.set)
        self._write()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._changed.set()
        self._thread.join()
        self._watch.close()
        with suppress(Unreachable, Conflict):
            if self._is_mine():
                self._registry.commit(Delete(self._path))

    def _keep(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(_LOOK_S)
            self._changed.clear()
            if not self._ended.is_set():
                with suppress(Unreachable, Conflict):
                    self._write()

    def _write(self) -> None:
        if self._is_mine():
            return
        with suppress(Conflict):
            there = self._registry.read(self._path)
            gone = [] if there is None else [Delete(self._path, there.version)]
            self._registry.commit(*gone)
            self._registry.commit(Create(self._path, self._about, ephemeral=True))

    def _is_mine(self) -> bool:
        there = self._registry.read(self._path)
        return there is not None and there.session == self._registry.session().id

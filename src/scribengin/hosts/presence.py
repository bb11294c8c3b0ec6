"""A sign of life in the registry: an ephemeral record that is there as long as its process, also after its session was another."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from scribengin.core.errors import Refused, Unreachable
from scribengin.core.process import birth_of
from scribengin.registry.contract import Conflict, Create, Delete, RegistryEntry, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from scribengin.registry.contract import Registry

_GONE_WITHIN_S = 30.0
_WAIT_S = 0.5
_LOOK_S = 5.0
"""a watch is a hint: how long to wait for one before looking anyhow"""


class Presence:
    """Keeps `about` at `path` inside the `with` block; `about` names this process by `host` and `pid`."""

    def __init__(self, registry: Registry, path: str, about: Mapping[str, Any]) -> None:
        self._registry = registry
        self._path = path
        self._about = {"format": 1, **about}
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="presence", daemon=True)

    def __enter__(self) -> Self:
        """Raises Refused where another process is there under this name, Unreachable, Forbidden."""
        self._watch = self._registry.watch(self._path, self._changed.set)
        try:
            self._take()
        except BaseException:
            self._watch.close()
            raise
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._changed.set()
        self._thread.join()
        self._watch.close()
        with suppress(Unreachable, Conflict):
            there = self._registry.read(self._path)
            if there is not None and there.session == self._registry.session().id:
                self._registry.commit(Delete(self._path, there.version))

    def _take(self) -> None:
        """Who was there before, and was killed, may be told of until his session has run out."""
        deadline = time.monotonic() + _GONE_WITHIN_S
        while not self._write():
            there = self._registry.read(self._path)
            value = there.value if isinstance(there, RegistryEntry) else {}
            if time.monotonic() >= deadline or lives_here(value):
                raise Refused(
                    f"{shown(self._path)} is of another process that is up: {value.get('pid', '?')} on {value.get('host', '?')}",
                    remedy="give this one another name: --name NAME",
                    code="name-taken",
                )
            self._changed.wait(_WAIT_S)
            self._changed.clear()

    def _keep(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(_LOOK_S)
            self._changed.clear()
            if not self._ended.is_set():
                with suppress(Unreachable):
                    self._write()

    def _write(self) -> bool:
        """Whether it stands there now. It is written anew where nothing stands there, or what is left of an earlier session."""
        there = self._registry.read(self._path)
        if there is not None and there.session == self._registry.session().id:
            return True
        with suppress(Conflict):
            if there is not None:
                value = there.value if isinstance(there, RegistryEntry) else {}
                if not _is_over(value):
                    return False
                self._registry.commit(Delete(self._path, there.version))
            self._registry.commit(Create(self._path, self._about, ephemeral=True))
            return True
        return False


def lives_here(value: Mapping[str, Any]) -> bool:
    """Whether the process that a record names is another one of this machine, and there."""
    pid = value.get("pid")
    return value.get("host") == socket.gethostname() and isinstance(pid, int) and pid != os.getpid() and birth_of(pid) is not None


def _is_over(value: Mapping[str, Any]) -> bool:
    """Whether that process is none any more, or this one: known of those of this machine."""
    pid = value.get("pid")
    if value.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    return pid == os.getpid() or birth_of(pid) is None

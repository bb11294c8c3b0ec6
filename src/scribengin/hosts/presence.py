"""A presence record in the registry: an ephemeral record that exists as long as its process, even if the session is replaced."""

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
"""seconds to wait for a watch before checking anyway: a watch is a hint"""


class Presence:
    """Keeps the record `about` at `path` inside the `with` block. `about` identifies this process by `host` and `pid`."""

    def __init__(self, registry: Registry, path: str, about: Mapping[str, Any]) -> None:
        self._registry = registry
        self._path = path
        self._about = {"format": 1, **about}
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="presence", daemon=True)

    def __enter__(self) -> Self:
        """Create the record. Raises Refused if another process runs under this name, Unreachable, Forbidden."""
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
        """Create the record. The record of an earlier process that was killed may exist until its session has expired."""
        deadline = time.monotonic() + _GONE_WITHIN_S
        while not self._write():
            there = self._registry.read(self._path)
            value = there.value if isinstance(there, RegistryEntry) else {}
            if time.monotonic() >= deadline or runs_here(value):
                raise Refused(
                    f"{shown(self._path)} belongs to another running process: {value.get('pid', '?')} on {value.get('host', '?')}",
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
        """True if the record of this process exists now. It is written again if it does not exist, or is of an earlier session."""
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


def runs_here(value: Mapping[str, Any]) -> bool:
    """True if the process that a record names is another process of this machine, and runs."""
    pid = value.get("pid")
    return value.get("host") == socket.gethostname() and isinstance(pid, int) and pid != os.getpid() and birth_of(pid) is not None


def _is_over(value: Mapping[str, Any]) -> bool:
    """True if that process no longer runs, or is this one; False if unknown, because it is of another machine."""
    pid = value.get("pid")
    if value.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    return pid == os.getpid() or birth_of(pid) is None

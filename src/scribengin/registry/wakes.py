"""Who wants to be told of which path, and the thread that tells them."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOG = logging.getLogger(__name__)
_AGAIN_S = 1.0


@dataclass(eq=False, slots=True)
class _Waker:
    wakes: Wakes
    path: str
    wake: Callable[[], None]

    def close(self) -> None:
        self.wakes.remove(self)


class Wakes:
    """`arm(paths)` has a server tell of the next change of each path, once; it gives back those where it could. A change is told by `one`
    or `all`.

    A path is armed again *before* its watchers are woken: what changes after they have read is told again. A path that could not be
    armed is tried again each second, and at `all`, which is to be called at each change of the connection.
    """

    def __init__(self, arm: Callable[[Sequence[str]], set[str]]) -> None:
        self._arm = arm
        self._changed = threading.Condition()
        self._wakers: dict[str, set[_Waker]] = {}
        self._pending: set[str] = set()
        self._unarmed: set[str] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="registry-wakes", daemon=True)

    def start(self) -> None:
        """Begin to wake."""
        self._thread.start()

    def add(self, path: str, wake: Callable[[], None]) -> _Waker:
        """Arm the path, and wake from now on."""
        waker = _Waker(self, path, wake)
        with self._changed:
            self._wakers.setdefault(path, set()).add(waker)
        self._try([path])
        return waker

    def remove(self, waker: _Waker) -> None:
        """Wake it no more."""
        with self._changed:
            wakers = self._wakers.get(waker.path, set())
            wakers.discard(waker)
            if not wakers:
                self._wakers.pop(waker.path, None)
                self._unarmed.discard(waker.path)

    def one(self, path: str) -> None:
        """Something has changed at the path. Returns at once."""
        with self._changed:
            self._pending.add(path)
            self._changed.notify_all()

    def all(self) -> None:
        """The connection has changed. Returns at once."""
        with self._changed:
            self._pending |= self._wakers.keys()
            self._changed.notify_all()

    def close(self) -> None:
        """Wake everybody a last time, and end."""
        with self._changed:
            self._closed = True
            self._pending |= self._wakers.keys()
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closed, _AGAIN_S if self._unarmed else None)
                paths = self._pending or set(self._unarmed)
                self._pending = set()
                closed = self._closed
            if not closed:
                self._try(sorted(paths))
            self._wake(paths)
            if closed:
                return

    def _wake(self, paths: set[str]) -> None:
        with self._changed:
            wakers = [waker for path in sorted(paths) for waker in self._wakers.get(path, ())]
        for waker in wakers:
            try:
                waker.wake()
            except Exception:
                _LOG.exception("what watches %s failed", waker.path)

    def _try(self, paths: Sequence[str]) -> None:
        with self._changed:
            wanted = [path for path in paths if path in self._wakers]
        armed = self._arm(wanted) if wanted else set()
        with self._changed:
            self._unarmed -= {*paths} - self._wakers.keys() | armed
            self._unarmed |= self._wakers.keys() & {*paths} - armed

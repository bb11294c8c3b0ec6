"""The watches of paths, and the thread that calls them."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.registry.contract import is_below

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_LOG = logging.getLogger(__name__)
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """What a watch covers: a path, or the path and everything below it."""

    path: str
    below: bool = False


@dataclass(eq=False, slots=True)
class _Waker:
    wakes: Wakes
    place: _Place
    wake: Callable[[], None]
    wake_below: Callable[[str | None], None] | None = None

    def close(self) -> None:
        self.wakes.remove(self)


class Wakes:
    """The watches of a client.

    `arm(paths, below)` requests one notification of the next change of each path, and of each change at or below each of `below`; it
    returns those for which that succeeded. A change is reported by `one`, `below` or `all`.

    A path is armed again *before* its watches are called, so that a change after their read is notified again. A path that could not be
    armed is tried again each second, and at `all`, which must be called at each change of the connection.
    """

    def __init__(self, arm: Callable[[Sequence[str], Sequence[str]], tuple[set[str], set[str]]]) -> None:
        self._arm = arm
        self._changed = threading.Condition()
        self._wakers: dict[_Place, set[_Waker]] = {}
        self._below: tuple[_Waker, ...] = ()
        self._pending: set[_Place] = set()
        self._unarmed: set[_Place] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="registry-wakes", daemon=True)

    def start(self) -> None:
        """Start the thread that calls the watches."""
        self._thread.start()

    def add(self, path: str, wake: Callable[[], None]) -> _Waker:
        """Arm the path, and call the watch after each change from now on."""
        return self._add(_Waker(self, _Place(path), wake))

    def add_below(self, path: str, wake: Callable[[str | None], None]) -> _Waker:
        """Arm the path and all below it, and call the watch after each change from now on; with None if any record may have changed."""
        return self._add(_Waker(self, _Place(path, below=True), lambda: wake(None), wake))

    def remove(self, waker: _Waker) -> None:
        """Stop calling the watch."""
        with self._changed:
            wakers = self._wakers.get(waker.place, set())
            wakers.discard(waker)
            self._below = tuple(each for each in self._below if each is not waker)
            if not wakers:
                self._wakers.pop(waker.place, None)
                self._unarmed.discard(waker.place)

    def below(self, path: str) -> None:
        """Report a change at the path: call the watches of folders above it, in this thread."""
        for waker in self._below:
            if waker.wake_below is not None and is_below(path, waker.place.path):
                try:
                    waker.wake_below(path)
                except Exception:
                    _LOG.exception("what watches below %s failed", waker.place.path)

    def one(self, path: str) -> None:
        """Report a change at the path. Returns at once."""
        with self._changed:
            self._pending.add(_Place(path))
            self._changed.notify_all()

    def all(self) -> None:
        """Report a change of the connection. Returns at once."""
        with self._changed:
            self._pending |= self._wakers.keys()
            self._changed.notify_all()

    def close(self) -> None:
        """Call every watch a last time, and end the thread."""
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

    def _add(self, waker: _Waker) -> _Waker:
        with self._changed:
            self._wakers.setdefault(waker.place, set()).add(waker)
            if waker.wake_below is not None:
                self._below = (*self._below, waker)
        self._try([waker.place])
        return waker

    def _wake(self, paths: set[_Place]) -> None:
        with self._changed:
            wakers = [waker for path in sorted(paths) for waker in self._wakers.get(path, ())]
        for waker in wakers:
            try:
                waker.wake()
            except Exception:
                _LOG.exception("what watches %s failed", waker.place.path)

    def _try(self, places: Sequence[_Place]) -> None:
        with self._changed:
            wanted = [place for place in places if place in self._wakers]
        armed = set[_Place]()
        if wanted:
            paths, below = self._arm([each.path for each in wanted if not each.below], [each.path for each in wanted if each.below])
            armed = {_Place(path) for path in paths} | {_Place(path, below=True) for path in below}
        with self._changed:
            self._unarmed -= {*places} - self._wakers.keys() | armed
            self._unarmed |= self._wakers.keys() & {*places} - armed

"""How long a user's function may take, and the outcome of a record that takes longer."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.spark.hangs import Watchpoint


class StepTimeout(BaseException):
    """A record took longer than the step's `time_limit`. It is not an Exception: a user's `except Exception` must not swallow it."""


class TimeLimit:
    """Interrupts what runs for longer than the limit, one record or one call; works in the main thread, where executors run steps.

    Of what it cannot interrupt the daemon knows by `hangs`.
    """

    def __init__(self, hangs: Watchpoint, start: int, length: int, *, checksum: int = 0, remaining: Iterator[Any] | None = None) -> None:
        """`start`, `length` and `checksum` as in Watchpoint.begin; `remaining` tells that records are getting through."""
        self._hangs = hangs
        self._at = (start, length, checksum)
        self._remaining = remaining
        self._left = -1
        self._ticks = 0
        self._old: Any = None
        self._on = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        if self._on:
            self._hangs.begin(*self._at)
            self._old = signal.signal(signal.SIGALRM, self._tick)
            signal.setitimer(signal.ITIMER_REAL, self._hangs.limit_s / 4, self._hangs.limit_s / 4)

    def __exit__(self, *_: object) -> None:
        if self._on:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._old)
            self._hangs.end()

    def _tick(self, *_: object) -> None:
        self._hangs.beat()
        # a list iterator knows how much is left: no progress over four quarters of the limit is one record that hangs
        left = self._remaining.__length_hint__() if self._remaining is not None else 0  # type: ignore[attr-defined]
        self._ticks = self._ticks + 1 if left == self._left else 1
        self._left = left
        if self._ticks > 4:
            self._ticks = 0
            raise StepTimeout(f"took longer than the time limit of {self._hangs.limit_s:g} s")


def hung_error(point: Watchpoint) -> StepTimeout:
    """The error in the dead letter of a record whose processing could not be interrupted."""
    return StepTimeout(
        f"hung for twice the time limit of {point.limit_s:g} s where Python cannot interrupt it; its worker was stopped twice"
    )


def stopped(function: Callable[[Any], Any], row: Any) -> StopIteration:
    """What `map` takes for the end of its records: a StopIteration of the function's own, as of a `next` that finds nothing. The function
    is asked once more, for its line."""
    try:
        function(row)
    except StopIteration as error:
        return error
    except Exception:  # the first time it was another
        pass
    return StopIteration()


def checksum_of(row: Any) -> int:
    """The checksum of a record, never 0."""
    return crc32(repr(row).encode(errors="surrogatepass")) | 1 << 32

"""Detects steps that hang in code which Python cannot interrupt (a C library that waits for ever): the daemon watches the clocks of its
workers.

A worker writes what it processes, and its deadline, into memory that it shares with the daemon: 48 bytes per chunk of records. The daemon
checks once a second. It ends a worker past its deadline with SIGABRT, on which Spark's fault handler reports the line of the user's code,
and remembers what the worker processed. Spark repeats the task; the chunk is then processed record by record, and at the third attempt the
record is known.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# The time that a user's function may take, and the outcome of a record that takes longer.


class StepTimeout(BaseException):
    """A record took longer than the step's `time_limit`. It is not an Exception: a user's `except Exception` must not catch it."""


class TimeLimit:
    """Interrupts a record or a call that takes longer than the limit. Works in the main thread, where executors run steps.

    `hangs` informs the daemon, for code that cannot be interrupted.
    """

    def __init__(self, hangs: Watchpoint, start: int, length: int, *, checksum: int = 0, remaining: Iterator[Any] | None = None) -> None:
        """`start`, `length` and `checksum`: see `Watchpoint.begin`. `remaining` is the iterator over the records, which shows progress."""
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
        # a list iterator knows how many records are left: without progress over four quarters of the limit one record hangs
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
    """The function's own StopIteration, as from a `next` without a default, which `map` takes for the end of its records. The function is
    called again to get its line."""
    try:
        function(row)
    except StopIteration as error:
        return error
    except Exception:  # the second call raised something else
        pass
    return StopIteration()


def checksum_of(row: Any) -> int:
    """The checksum of a record, never 0."""
    return crc32(repr(row).encode(errors="surrogatepass")) | 1 << 32


LOOK_S = 1.0
_WORK = struct.Struct("=qdQqqQ")
"""a worker's slot: pid, deadline (0: idle), then what it processes, as in _HUNG"""
_UNTIL = struct.Struct("=d")
_HUNG = struct.Struct("=QqqQ")
"""key of the task output's step, first record, number of records, checksum of the record (0: unknown which one it is)"""
_COUNT = struct.Struct("=Q")
_SLOTS, _HUNGS = 512, 4096
_FIRST_HUNG = _COUNT.size + _SLOTS * _WORK.size


@dataclass(slots=True)
class _Shared:
    """The shared table, as this process sees it. `slot`: this worker's; None in the daemon, and if all slots are in use."""

    table: mmap.mmap
    daemon: int
    slot: int | None = None


_shared: _Shared | None = None


class Watchpoint:
    """One step of one task output, in a worker. Does nothing in a process that no daemon watches."""

    def __init__(self, name: str, limit_s: float) -> None:
        """`name` is the same in each attempt of the task. The worker is ended if it shows no progress for twice the limit."""
        self.limit_s = limit_s
        self._key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")

    def begin(self, start: int, length: int, checksum: int) -> None:
        """Record that the step starts to process the records from `start` on, `length` of them, in the task output."""
        if _shared is not None and _shared.slot is not None:
            _WORK.pack_into(_shared.table, _at(_shared.slot), os.getpid(), self._until(), self._key, start, length, checksum)

    def beat(self) -> None:
        """Record that Python code runs, so that a hang can be interrupted."""
        if _shared is not None and _shared.slot is not None:
            _UNTIL.pack_into(_shared.table, _at(_shared.slot) + 8, self._until())

    def end(self) -> None:
        """Record that these records have passed the step."""
        if _shared is not None and _shared.slot is not None:
            _UNTIL.pack_into(_shared.table, _at(_shared.slot) + 8, 0.0)

    def hung(self, start: int, length: int) -> dict[int, int] | None:
        """The records among these at which an earlier attempt hung.

        Returns:
            Record → its checksum, for the records that are known; empty if only a range is known; None if no attempt hung here.
        """
        if _shared is None:
            return None
        (count,) = _COUNT.unpack_from(_shared.table, 0)
        found: dict[int, int] | None = None
        for index in range(count):
            key, first, many, checksum = _HUNG.unpack_from(_shared.table, _FIRST_HUNG + index * _HUNG.size)
            if key == self._key and first < start + length and start < first + many:
                found = {} if found is None else found
                if checksum:
                    found[first] = checksum
        return found

    def _until(self) -> float:
        return time.monotonic() + 2 * self.limit_s + LOOK_S


def watch_workers() -> None:
    """Start to watch. Called in the daemon before it forks: share the table, give each worker a slot, check the slots once a second."""
    global _shared
    _shared = _Shared(mmap.mmap(-1, _FIRST_HUNG + _HUNGS * _HUNG.size), os.getpid())
    os.register_at_fork(before=_choose, after_in_child=_take)
    signal.signal(signal.SIGALRM, _check_clocks)
    signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)


def _choose() -> None:
    assert _shared is not None
    if os.getpid() == _shared.daemon:
        pids = (_WORK.unpack_from(_shared.table, _at(slot))[0] for slot in range(_SLOTS))
        _shared.slot = next((slot for slot, pid in enumerate(pids) if not pid or not _lives(pid)), None)


def _take() -> None:
    assert _shared is not None
    if os.getppid() == _shared.daemon:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if _shared.slot is not None:
            _WORK.pack_into(_shared.table, _at(_shared.slot), os.getpid(), 0.0, 0, 0, 0, 0)
    else:
        _shared.slot = None  # a process that a step has started


def _check_clocks(*_: Any) -> None:
    assert _shared is not None
    now = time.monotonic()
    for slot in range(_SLOTS):
        pid, until, *at = _WORK.unpack_from(_shared.table, _at(slot))
        if pid and until and until < now:
            if _lives(pid):
                _remember(at)
                _end(pid, signal.SIGABRT)
                # a worker that the fault handler cannot end either
                _WORK.pack_into(_shared.table, _at(slot), -pid, now + LOOK_S, *at)
            else:
                _WORK.pack_into(_shared.table, _at(slot), 0, 0.0, *at)
        elif pid < 0 and until < now:
            if _lives(pid):
                _end(-pid, signal.SIGKILL)
            _WORK.pack_into(_shared.table, _at(slot), 0, 0.0, *at)


def _remember(at: list[int]) -> None:
    assert _shared is not None
    (count,) = _COUNT.unpack_from(_shared.table, 0)
    if count < _HUNGS:
        _HUNG.pack_into(_shared.table, _FIRST_HUNG + count * _HUNG.size, *at)
        _COUNT.pack_into(_shared.table, 0, count + 1)


def _end(pid: int, with_: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, with_)


def _lives(pid: int) -> bool:
    """True if the pid is a running worker of this daemon; the pid may belong to another process by now."""
    try:
        return os.waitpid(abs(pid), os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _at(slot: int) -> int:
    return _COUNT.size + slot * _WORK.size

"""Calls that may never return, with a time limit: made in separate threads, which are abandoned when the limit is reached."""

from __future__ import annotations

import os
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def limited(call: Callable[[], T], limit_s: float) -> T:
    """Return what `call` returns, or raise what it raises.

    Raises TimeoutError if it has done neither after `limit_s` seconds; the call may still take effect later. Adds about 50 µs to the time
    of the call.
    """
    job = _Job(call)
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.jobs.put(job)
    if not job.done.wait(limit_s):
        raise TimeoutError(f"no answer after {limit_s:g} s")
    if job.error is not None:
        raise job.error
    result: T = job.result
    return result


class _Job:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.done = Event()
        self.result: Any = None
        self.error: BaseException | None = None


class _Worker(Thread):
    """A daemon thread: it ends with the process, even if a call never returns."""

    def __init__(self) -> None:
        super().__init__(name="limited", daemon=True)
        self.jobs: SimpleQueue[_Job] = SimpleQueue()

    def run(self) -> None:
        while True:
            job = self.jobs.get()
            try:
                job.result = job.call()
            except BaseException as error:  # also what the panic of a library raises, which is not an Exception
                job.error = error
            _idle.append(self)
            job.done.set()
            del job


_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)

"""Reports at once when one of the followed processes ends, if the system has process handles (Linux)."""

from __future__ import annotations

import os
import select
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.process import Process


class Endings:
    """`wake` is called, from a thread of this, some milliseconds after a process that is followed has ended. It is a hint: the caller then
    looks.

    On systems other than Linux it is never called.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._followed: dict[int, Process] = {}
        """handle → process"""
        self._lock = threading.Lock()
        self._closed = False
        if sys.platform == "linux":
            self._poll = select.epoll()
            self._end, self._ended = os.pipe()
            self._poll.register(self._end, select.EPOLLIN)
            self._thread = threading.Thread(target=self._run, name="endings", daemon=True)
            self._thread.start()

    def follow(self, process: Process) -> None:
        """Follow this process too; a second call changes nothing."""
        if sys.platform != "linux":
            return
        with self._lock:
            if self._closed or process in self._followed.values():
                return
            with suppress(OSError):  # it has ended already: who looks sees it
                handle = os.pidfd_open(process.pid)
                if not process.alive():
                    os.close(handle)
                    return
                self._followed[handle] = process
                self._poll.register(handle, select.EPOLLIN)

    def close(self) -> None:
        """Stop following all processes."""
        if sys.platform != "linux" or self._closed:
            return
        with self._lock:
            self._closed = True
        os.write(self._ended, b"1")
        self._thread.join()
        for handle in (*self._followed, self._end, self._ended):
            os.close(handle)
        self._followed.clear()
        self._poll.close()

    def _run(self) -> None:
        while True:
            for handle, _ in self._poll.poll():
                if handle == self._end:
                    return
                with self._lock:
                    self._poll.unregister(handle)
                    del self._followed[handle]
                    os.close(handle)
            self._wake()

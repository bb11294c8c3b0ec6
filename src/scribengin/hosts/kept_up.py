"""Restarts a server that has ended."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOK_S = 1.0


class Keepable(Protocol):
    """An embedded server."""

    @property
    def pid(self) -> int | None:
        """The process id; None if it does not run."""

    def start(self) -> None:
        """Raises ScribenginError."""

    def clear(self) -> None:
        """Remove what is left of one that has ended."""


@contextmanager
def kept_up(server: Keepable, name: str, tell: Callable[[str], None], *, look_s: float = LOOK_S) -> Iterator[None]:
    """Inside the block the server, which is running, is restarted whenever its process has ended: without a limit, because the cause (a
    full disk, a kill) may last. `tell` is called with each end, and with each new reason why it does not start."""
    ended = threading.Event()

    def watch() -> None:
        why = ""
        while not ended.wait(look_s):
            if server.pid is not None:
                continue
            if not why:
                tell(f"{name} has ended; it is restarted")
            try:
                server.clear()
                server.start()
            except (ScribenginError, OSError) as error:
                if str(error) != why:
                    tell(f"{name} does not start: {error}")
                why = str(error)
            else:
                why = ""

    thread = threading.Thread(target=watch, name=f"{name}-watch")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

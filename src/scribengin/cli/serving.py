"""Commands that are up until they are asked to end."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from scribengin.core.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def until_asked() -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM; the second one ends the process at once."""
    asked = threading.Event()

    def interrupt(_number: int, _frame: Any) -> None:
        if asked.is_set():
            click.echo("stopped at once; workers keep running, and the next master or node takes them over", err=True)
            os._exit(Exit.INTERRUPTED)
        asked.set()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Waiting for what other processes do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def look_until(what: Callable[[], Any], said: str, within_s: float, pause_s: float = 0.05) -> Any:
    """Look until it is true; what the look gave. A look may be a command of its own, and what is waited for needs the processor too: so
    each pause is as long as the look before it was, at least `pause_s`. AssertionError where it does not come about in time."""
    deadline = time.monotonic() + within_s
    while True:
        begun = time.monotonic()
        if found := what():
            return found
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {said}"
        time.sleep(max(pause_s, time.monotonic() - begun))

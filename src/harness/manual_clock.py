"""A clock that stands still until a test turns it."""

from __future__ import annotations


class ManualClock:
    """Called, it says the time in seconds since the epoch.

    >>> clock = ManualClock(now_s=100.0)
    >>> clock.advance(seconds=5)
    >>> clock()
    105.0
    """

    def __init__(self, now_s: float = 1_750_000_000.0) -> None:
        self._now_s = now_s

    def __call__(self) -> float:
        """The time that it was turned to."""
        return self._now_s

    def advance(self, *, seconds: float) -> None:
        """Turn it forward."""
        self._now_s += seconds

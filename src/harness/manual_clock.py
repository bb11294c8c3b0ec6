"""A clock that a test advances by hand."""

from __future__ import annotations


class ManualClock:
    """Returns the time in seconds since 1970 when it is called.

    >>> clock = ManualClock(now_s=100.0)
    >>> clock.advance(seconds=5)
    >>> clock()
    105.0
    """

    def __init__(self, now_s: float = 1_750_000_000.0) -> None:
        self._now_s = now_s

    def __call__(self) -> float:
        """The current time."""
        return self._now_s

    def advance(self, *, seconds: float) -> None:
        """Advance the time."""
        self._now_s += seconds

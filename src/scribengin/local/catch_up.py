"""Estimated time until the backlog is empty, from the backlog of the source at the last looks."""

from __future__ import annotations

from collections import deque

WINDOW_S = 20.0
_LOOKS = 3
"""kept however old they are: Batches may take longer than the window"""


class CatchUp:
    """The backlog shrinks by the difference between the rates of reading and of arrival; two looks give that difference.

    Only looks that were made at the same point of a Batch can be compared; all seconds are of one clock. For one thread.
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, waits: int) -> None:
        """Record a new look at the source: the size of its backlog."""
        self._looks.append((now_s, waits))
        while len(self._looks) > _LOOKS and self._looks[0][0] < now_s - WINDOW_S:
            self._looks.popleft()

    def forget(self) -> None:
        """Reset the estimate: the Query has caught up."""
        self._looks.clear()

    def seconds(self, now_s: float, waits: int) -> float | None:
        """Seconds until the present backlog is processed; infinity if it does not shrink; None if unknown yet.

        It rises while a look is overdue: a Batch that takes longer than those before makes the rate smaller.
        """
        if len(self._looks) < 2:
            return None
        (first_s, before), (last_s, after) = self._looks[0], self._looks[-1]
        span_s = last_s - first_s
        if span_s <= 0:
            return None
        if after >= before:
            return float("inf")
        overdue_s = max(0.0, now_s - last_s - span_s / (len(self._looks) - 1))
        return waits * (span_s + overdue_s) / (before - after)

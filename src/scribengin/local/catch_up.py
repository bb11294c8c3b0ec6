"""How long until nothing waits any more, as things go: from what waited at the source at the last looks."""

from __future__ import annotations

from collections import deque

WINDOW_S = 20.0
_LOOKS = 3
"""kept however old they are: Batches may take longer than the window"""


class CatchUp:
    """What waits shrinks by the rate of handing out less the rate of arrival: two looks give both at once.

    Only looks that were made at the same point of a Batch can be compared; all seconds are of one clock. For one thread.
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, waits: int) -> None:
        """Something waits, so much: a new look at the source."""
        self._looks.append((now_s, waits))
        while len(self._looks) > _LOOKS and self._looks[0][0] < now_s - WINDOW_S:
            self._looks.popleft()

    def forget(self) -> None:
        """The Query has caught up: what comes next begins a new count."""
        self._looks.clear()

    def seconds(self, now_s: float, waits: int) -> float | None:
        """Until what waits now is through; infinity where it does not shrink; None where nobody can tell yet.

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

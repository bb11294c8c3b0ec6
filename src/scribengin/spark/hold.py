"""Waits before a Batch until the channels that the Query feeds have room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from scribengin.spark.ranges import StopRequested

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from scribengin.spark.commit import CommittedBatch

_LEAST_S, _MOST_S = 0.05, 0.5


@dataclass(frozen=True, slots=True)
class BatchAdmission:
    """Whether the next Batch may begin: after `wait_s` at the earliest, with at most `share` (0 to 1) of what its limits allow; while it is
    `paused`: for an unknown time. `why` is for people; empty if nothing holds it back."""

    wait_s: float = 0.0
    share: float = 1.0
    why: str = ""
    paused: bool = False


class BackPressure(Protocol):
    """Reports how much room the channels have. For the Query's thread."""

    def begun(self) -> None:
        """Record the start of a Batch."""

    def committed(self, batch: CommittedBatch) -> None:
        """Record that the Batch is committed."""

    def admit(self) -> BatchAdmission:
        """Whether the next Batch may begin now."""


@dataclass(frozen=True, slots=True)
class BatchHold:
    """Lets a Batch begin when it may. `tell` hears why it waits, and whether the time is unknown; an empty text when it continues."""

    pressure: BackPressure
    stop: threading.Event
    tell: Callable[[str, bool], None]

    def wait(self) -> float:
        """Wait until the Batch may begin; returns which share of its limits it may take. Raises StopRequested."""
        while True:
            if self.stop.is_set():
                raise StopRequested
            admission = self.pressure.admit()
            self.tell(admission.why, admission.paused)
            if admission.wait_s <= 0.0 and not admission.paused:
                self.pressure.begun()
                return admission.share
            self.stop.wait(min(max(admission.wait_s, _LEAST_S), _MOST_S))

"""Waiting at a Batch's entry until what the Query feeds has room."""

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
    `paused` nobody knows when. `why` is for people; empty where nothing holds it back."""

    wait_s: float = 0.0
    share: float = 1.0
    why: str = ""
    paused: bool = False


class BackPressure(Protocol):
    """What knows how much room there is. For the Query's thread."""

    def begun(self) -> None:
        """A Batch begins."""

    def committed(self, batch: CommittedBatch) -> None:
        """It is through."""

    def admit(self) -> BatchAdmission:
        """Whether the next one may begin now."""


@dataclass(frozen=True, slots=True)
class BatchHold:
    """Lets a Batch begin when it may. `tell` hears why it waits, and whether nobody knows how long; nothing when it goes on."""

    pressure: BackPressure
    stop: threading.Event
    tell: Callable[[str, bool], None]

    def wait(self) -> float:
        """Until it may begin; returns which share of its limits it may take. Raises StopRequested."""
        while True:
            if self.stop.is_set():
                raise StopRequested
            admission = self.pressure.admit()
            self.tell(admission.why, admission.paused)
            if admission.wait_s <= 0.0 and not admission.paused:
                self.pressure.begun()
                return admission.share
            self.stop.wait(min(max(admission.wait_s, _LEAST_S), _MOST_S))

"""The sums of both ends of a channel: what a Batch of the feeder has put in, and what the readers have taken of it.

Batches that were under way when the watch began are not compared, nor those beside which something was passed over or was no whole pack:
what became of these is told elsewhere (`source set`, losses, dead letters).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.formats.origins import DIGESTS
from scribengin.state.taken import NOT_WHOLE

if TYPE_CHECKING:
    from scribengin.state.ack_contract import Reading
    from scribengin.state.taken import Taken


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Batch `batch` of the feeder, as both ends counted it: rows, and the digest of their ids."""

    channel: str
    reading: Reading
    batch: int
    put: tuple[int, int]
    taken: tuple[int, int]

    def __str__(self) -> str:
        (put, digest), (taken, found) = self.put, self.taken
        what = f"{put:,} rows were put in and {taken:,} were taken out" if put != taken else f"{put:,} rows came out as others"
        return (
            f"channel {self.channel}, batch {self.batch} of its feeder: {what} by {self.reading} (ids {digest:016x} and {found:016x}); "
            f"rows were lost, doubled or exchanged in it"
        )


@dataclass(slots=True)
class Tally:
    """One reader of a channel, from when the feeder's newest Batch was `begun`."""

    begun: int
    reached: int = -1
    """the reader's newest Batch that was counted"""
    _found: dict[int, tuple[int, int]] = field(default_factory=dict)

    def skip(self, newest: int) -> None:
        """Of what the feeder has put in so far, up to Batch `newest`, nothing can be said."""
        self.begun = max(self.begun, newest)
        self._found = {number: sums for number, sums in self._found.items() if number > self.begun}

    def count(self, taken: Taken, lineage: str, newest: int) -> None:
        """What a Batch of the reader has taken of the feeder's `lineage`, whose newest Batch is `newest`."""
        if NOT_WHOLE.lineage in taken:
            self.skip(newest)
        for number, (rows, digest) in taken.get(lineage, {}).items():
            if int(number) > self.begun:
                before = self._found.get(int(number), (0, 0))
                self._found[int(number)] = (before[0] + rows, (before[1] + digest) % DIGESTS)

    def compare(self, number: int, put: tuple[int, int] | None) -> tuple[int, int] | None:
        """What was taken of Batch `number`, which is taken whole, where that is not what was put in; else None."""
        found = self._found.pop(number, (0, 0))
        return found if put is not None and number > self.begun and found != put else None

"""The checksums of both ends of a channel: what an upstream Batch has written, and what the readers have read of it.

While a flow runs, Batches that were under way when the watch began are not compared, nor those beside which something was passed over or
was no whole pack: what became of these is reported elsewhere (`offsets set`, losses, dead letters). `channel_audit` compares all that is
known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.state.taken import NOT_WHOLE, added, by_unit, in_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.state.ack_contract import QueryReading
    from scribengin.state.taken import Sums, Taken

NAMED = 5
"""of units, places and ids of a mismatch as many are named, and the rest is counted"""


@dataclass(frozen=True, slots=True)
class UnitSums:
    """A task output of a Batch whose checksums differ. `places`: where the feeder has put its rows, for people; empty if its Batch was
    written as a whole. A unit of -1 stands for packs that do not say theirs."""

    unit: int
    put: Sums
    taken: Sums
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = _differing(self.put, self.taken)
        unit = "record batches without a task output number" if self.unit < 0 else f"task output {self.unit}"
        return f"{unit}{f' ({named(self.places)})' if self.places else ''}: {what}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Batch `batch` of the feeder, as both ends counted it: rows, and the digest of their ids.

    `units` are those that differ, `places` where the feeder has put the Batch, `taken_by` the reader's Batches that have taken of it;
    `late` is True if more of it came after all of it had been taken."""

    channel: str
    reading: QueryReading
    lineage: str
    batch: int
    put: Sums | None
    """None if the feeder's record of it is pruned"""
    taken: Sums
    units: tuple[UnitSums, ...] = ()
    places: tuple[str, ...] = ()
    taken_by: tuple[int, ...] = ()
    late: bool = False

    @property
    def confirmed(self) -> bool:
        """False if both ends' decisions, read anew, agree: what was counted on the way was not all of them. A net below the counting:
        no case is known that it catches."""
        return self.late or self.put != self.taken

    def __str__(self) -> str:
        what = _differing(self.put, self.taken)
        digests = "" if self.put is None else f" (digests of the ids {self.put[1]:016x} and {self.taken[1]:016x})"
        where = f"; written to {named(self.places)}" if self.places else ""
        units = f"; {named([str(unit) for unit in self.units], '; ')}" if self.units else ""
        late = ", some of them after the whole Batch had been read" if self.late else ""
        return f"channel {self.channel}, batch {self.batch} of its upstream: {what} by {self.reading}{late}{digests}{where}{units}"


def named(texts: Sequence[str], between: str = ", ") -> str:
    """The first `NAMED` texts, and the number of the others."""
    more = [f"and {len(texts) - NAMED:,} more"] if len(texts) > NAMED else []
    return between.join([*texts[:NAMED], *more])


def _differing(put: Sums | None, taken: Sums) -> str:
    if put is None:
        return f"{taken[0]:,} rows were read, but the count of rows written is pruned"
    if put[0] != taken[0]:
        return f"{put[0]:,} rows were written, but {taken[0]:,} were read"
    return f"{put[0]:,} rows were written, but different rows were read"


@dataclass(slots=True)
class Tally:
    """One reader of a channel, from when `begun` was the feeder's newest Batch of which something may have been taken."""

    begun: int
    reached: int = -1
    """the reader's newest Batch that was counted"""
    through: int = -1
    """the feeder's newest Batch that was compared, or passed by, with all before"""
    _found: dict[int, Sums] = field(default_factory=dict)

    def skip(self, newest: int) -> None:
        """Of what stands in the channel so far, up to the feeder's Batch `newest`, nothing can be said."""
        self.begun = max(self.begun, newest)
        self._found = {number: sums for number, sums in self._found.items() if number > self.begun}

    def count(self, taken: Taken, lineage: str, newest: int) -> list[int]:
        """What a Batch of the reader has taken of the feeder's `lineage`, of which Batch `newest` is the last that may be in the channel.
        Returns those of the feeder's Batches that were compared before, whole as they were: more of them was in the channel than was put
        in."""
        if NOT_WHOLE.lineage in taken:
            self.skip(newest)
        late = []
        for text, said in taken.get(lineage, {}).items():
            number = int(text)
            if number <= self.begun:
                continue
            if number <= self.through:
                late.append(number)
            else:
                self._found[number] = added(self._found.get(number, (0, 0)), in_all(by_unit(said)))
        return late

    def differs(self, number: int, put: Sums | None) -> bool:
        """True if what was taken of Batch `number`, which is taken whole, is not what was put in. Asked in the order of the Batches."""
        self.through = max(self.through, number)
        found = self._found.pop(number, (0, 0))
        return put is not None and number > self.begun and found != put

"""Counts a query's dead letters in this process, and checks them against the flow's `max_dead`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from scribengin.core.errors import StepError
from scribengin.core.remedies import flow_command
from scribengin.state.dead_letters import read_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scribengin.spec.model import MaxDead
    from scribengin.state.contract import Counts, DeadLetter, LineSegment
    from scribengin.state.folder import QueryFolder


MOSTLY_DEAD = "more than half of the records of this run are dead letters"
_LOOKED_AT = 10_000
"""the most dead letters of a Batch that are read to find their most common cause"""


@dataclass(frozen=True, slots=True)
class Excess:
    """An exceeded bound: the counts of dead letters and records, for the Batch or the run."""

    dead: int
    records: int
    bound: str
    """the bound as the flow file has it"""
    of_run: bool

    def __str__(self) -> str:
        where = "of this run" if self.of_run else "of the Batch"
        share = share_text(self.dead, self.records)
        return f"{self.dead:,} of {self.records:,} records {where} are dead letters{share}; {self._key} is {self.bound}"

    @property
    def cause(self) -> str:
        """The message for a status, without the numbers that grow."""
        return f"more records {'of this run' if self.of_run else 'of a Batch'} are dead letters than {self._key}: {self.bound} allows"

    @property
    def _key(self) -> str:
        return f"max_dead.{'run' if self.of_run else 'batch'}"


@dataclass(slots=True)
class DeadTally:
    """The committed records and dead letters of a query since the run began. Only the query's thread writes it; displays read
    `degraded`."""

    sources: tuple[str, ...]
    bounds: MaxDead | None = None
    lookups: tuple[str, ...] = ()
    """lookup tables: their dead letters count for the bounds, but not for the share of dead records, since their records are not counted"""
    records: int = 0
    dead: int = 0
    looked_up: int = 0
    """how many of the dead letters are records of lookup tables"""
    late: int = 0
    """how many of the dead letters were late"""
    unread: int = 0
    """how many of the dead letters a source could not decode"""
    degraded: Excess | None = None
    """the first exceeded bound under `then: degrade`"""

    @property
    def cause(self) -> str:
        """The reason that the flow is degraded or, without `max_dead`, that most records are dead letters; empty otherwise. It has no
        numbers that grow."""
        if self.degraded is not None:
            return self.degraded.cause
        return MOSTLY_DEAD if self.bounds is None and is_mostly_dead(self.dead - self.looked_up, self.records) else ""

    def __str__(self) -> str:
        dead = self.dead - self.looked_up
        late = f", {self.late:,} of them late" if self.late else ""
        besides = f"; {self.looked_up:,} more from lookup tables" if self.looked_up else ""
        return f"{dead:,} of {self.records:,} records of this run are dead letters{share_text(dead, self.records)}{late}{besides}"

    @property
    def remedy(self) -> str:
        """What to do, besides looking at the dead letters, if most records are dead letters."""
        expected = "if so many are expected, set max_dead: 100%"
        return f"correct `schema:` or `format:` of the source, if these are wrong; {expected}" if self.unread * 2 > self.dead else expected

    @property
    def stops(self) -> bool:
        """True if an exceeded bound stops the query."""
        return self.bounds is not None and self.bounds.then == "fail"

    def excess(self, counts: Mapping[str, Counts]) -> Excess | None:
        """The bound that a Batch with these counts would exceed, or None. Does not add the counts."""
        if self.bounds is None:
            return None
        records, dead = _of(counts, self.sources)
        for bound, found, of, of_run in (
            (self.bounds.batch, dead, records, False),
            (self.bounds.run, self.dead + dead, self.records + records, True),
        ):
            # the dead letters of earlier Batches do not stop a Batch that has none
            if bound is not None and dead and not bound.allows(found, of):
                return Excess(found, of, bound.text(), of_run)
        return None

    def add(self, counts: Mapping[str, Counts]) -> Excess | None:
        """Add the counts of a committed Batch. Returns the bound that they exceed, or None."""
        records, dead = _of(counts, self.sources)
        excess = self.excess(counts)
        if excess is not None and not self.stops:
            self.degraded = self.degraded or excess
        self.records += records
        self.dead += dead
        self.looked_up += min(dead, sum(counts[table].dead for table in self.lookups if table in counts))
        self.late += min(dead, sum(count.late_dead for count in counts.values()))
        self.unread += min(dead, sum(counts[source].dead for source in self.sources if source in counts))
        return excess


def _of(counts: Mapping[str, Counts], sources: Iterable[str]) -> tuple[int, int]:
    """(records that the sources gave, dead letters). Replayed records are not counted: a dead letter that fails again is not a new
    record."""
    replayed = sum(count.replayed for count in counts.values())
    records = sum(counts[source].rows_in - counts[source].replayed for source in sources if source in counts)
    return records, max(0, sum(count.dead for count in counts.values()) - replayed)


def is_mostly_dead(dead: int, records: int) -> bool:
    """True if more than half of the records are dead letters. The limit for a flow without `max_dead`."""
    return dead * 2 > records > 0


def share_text(dead: int, records: int) -> str:
    """` (57 %)`; empty if there are no records, or fewer records than dead letters."""
    return f" ({dead / records:.0%})".replace("%", " %") if 0 < dead <= records else ""


def too_many_dead(excess: Excess, folder: QueryFolder, segments: Sequence[LineSegment], *, committed: int | None) -> StepError:
    """The error that stops the query.

    Args:
        excess: The exceeded bound.
        folder: The query's folder.
        segments: The Batch's dead letters.
        committed: The number of the Batch if it is committed nevertheless, else None.
    """
    letters = [letter for segment in segments for letter in islice(read_segment(folder, segment), _LOOKED_AT)][:_LOOKED_AT]
    node, why = _most_common(letters)
    if committed is None:
        after = "the Batch is not committed and is processed again at the next start"
        given_up = flow_command("offsets skip", "FILE")
        remedy = f"fix the step and restart; if a file is wrong, correct or remove it, then skip the file: {given_up}"
    else:
        after = f"Batch {committed} is committed with its dead letters"
        remedy = "fix the step, replay the dead letters and restart"
    return StepError(f"{excess}; {after}{why}", remedy=f"{remedy}; or raise max_dead", code="max-dead", node=node)


def _most_common(letters: Sequence[DeadLetter]) -> tuple[str, str]:
    """(step, `; most of them: …`) for the most common step and reason, with the first dead letter of that kind."""
    if not letters:
        return "", ""
    (step, reason), _ = Counter((letter.step, letter.reason) for letter in letters).most_common(1)[0]
    first = next(letter for letter in letters if (letter.step, letter.reason) == (step, reason))
    where = ":".join(str(part) for part in (first.file, first.line) if part)
    return step, f"; most of them at {step} ({reason}), first{' ' * bool(where)}{where}: {first.message}"

"""A sink whose place only accepts rows. Rows are staged, decided and written; then the Batch is marked as written in the flow's state.

Exactly the decided rows are written, the same at each attempt, and never before the decision. Between the write and its mark there is one
gap: a process that is killed there writes the Batch again, because the place does not report that it has it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from scribengin.connectors.contract import Published
from scribengin.connectors.plain.marks import BatchMark, Marks, read_claim, write_claim
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused
from scribengin.core.remedies import add_to_outputs, start_over
from scribengin.core.storage import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided


class PlainSink(ABC):
    """The base of these sinks. They are at-least-once, unless a subclass provides more. Executors get a pickled copy, from which they
    create streams."""

    exactly_once = False
    audited_in_state = True

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self._flow = place.flow
        self._work = place.work
        self._owner = ""
        self._notes: list[str] = []

    @abstractmethod
    def check(self) -> None:
        """Check the place against the options, at a start. Raises as `publish`."""

    @abstractmethod
    def give(self, decided: Decided, marks: Marks) -> int:
        """Write the staged rows, of which there is at least one, except those that were written before. Returns the number of times that
        writing was started. Raises Unreachable or SinkError."""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Record the owner of the rows, and check the place. An exactly-once sink raises Refused if the place contains rows of another
        lineage, which it could not distinguish from new ones, unless `adopt`."""
        self._owner = owner
        held = read_claim(self._folder)
        if held is None or (held["owner"], held["lineage"]) != (owner, lineage):
            if held is not None and self.exactly_once and not adopt:
                raise Refused(
                    f'sink "{self.node}": {self}: rows of another lineage were written to it',
                    remedy=f"{add_to_outputs()}; or empty the place, and {start_over(outputs=False)}",
                    code="output-foreign",
                    node=self.node,
                )
            write_claim(self._folder, owner, lineage)
        self.check()

    def publish(self, decided: Decided) -> None:
        """Write the rows and mark the Batch, unless it is marked. Raises FencedError if a later Batch is marked, or this one with another
        decision."""
        batch, marks = decided.batch, self._marks(decided.batch.lineage)
        if not self._is_done(decided, marks):
            tries = self.give(decided, marks) if any(receipt.rows for receipt in decided.receipts) else 1
            faults.reached("publish.record.before")
            mine = BatchMark(decided.input_hash, batch.term, decided.rows, tries)
            stored = marks.put(batch.number, mine)
            if stored.hash != mine.hash:
                raise self._fenced(batch, "it is already marked, with another decision")
            faults.reached("publish.record.after")
        marks.drop_staged(batch.number + 1)

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, then delete the staged rows of decided Batches."""
        if decided is not None:
            self.publish(decided)
        self._marks(lineage).drop_staged(before)

    def audit(
        self,
        *,
        lineage: str,
        decided: Iterable[Decided],
        since: int | None = None,  # noqa: ARG002  a mark comes behind its decision
    ) -> Iterator[Published]:
        """Compare the decisions with the marks. The place itself is not read. `since`: see `group.contract.MemberSink`."""
        marks = self._marks(lineage)
        for each in decided:
            number = each.batch.number
            mark = marks.read(number)
            if mark is None:
                yield Published(number, 0, (f"batch {number} is decided, but not written; the next run writes it",))
            elif mark.hash != each.input_hash:
                yield Published(number, mark.rows, (f"batch {number} was written differently from its decision",), counted=False)
            else:
                yield Published(number, mark.rows, counted=False)

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:  # noqa: ARG002 (the contract's)
        """Raise Refused if any lineage has staged or written rows: written rows cannot be removed from here. Returns 0."""
        if self._work is not None and any((self._work / name).is_dir() for name in names_in(self._work)):
            raise Refused(
                f'sink "{self.node}": rows written to {self} cannot be removed from here',
                remedy="delete them there, and reset without --outputs",
                code="output-stays",
                node=self.node,
            )
        return 0

    def upkeep(self) -> list[str]:
        """Return the notices for people, and forget them."""
        notes, self._notes = self._notes, []
        return notes

    # --- implementation ---

    @property
    def _folder(self) -> Path:
        assert self._work is not None, "a sink needs a work folder to be written to"
        return self._work

    def _marks(self, lineage: str) -> Marks:
        return Marks(self._folder, lineage)

    def _is_done(self, decided: Decided, marks: Marks) -> bool:
        """True if exactly this Batch is marked. Raises FencedError if a later one is marked, or this one with another decision."""
        batch = decided.batch
        newest = marks.newest()
        if newest is None or newest[0] < batch.number:
            if newest is not None and newest[1].term > batch.term:
                raise self._fenced(batch, f"batch {newest[0]} is marked under the newer Term {newest[1].term}")
            return False
        if newest[0] > batch.number:
            raise self._fenced(batch, f"batch {newest[0]} is already marked")
        if newest[1].hash != decided.input_hash:
            raise self._fenced(batch, "it is already marked, with another decision")
        return True

    def _fenced(self, batch: BatchId, why: str) -> FencedError:
        return FencedError(
            f'sink "{self.node}" refuses batch {batch.number} of lineage {batch.lineage}: {why} ({self})',
            remedy="another driver writes here, or the state folder was copied or restored; stop this driver",
            node=self.node,
        )

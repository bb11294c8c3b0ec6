"""The commit of a Batch of staged files, shared by the sinks of folders, object stores and Delta tables.

Tasks stage files that no reader sees. When their Batch is decided, its sink publishes it, in this order. Any step may have been done
before, by this process or by another one: if a process is killed between two steps, the next process that publishes completes the rest.

1. *The claim*: check that this lineage may still write to the place. First, so that a driver whose place was taken over changes nothing
   there.
2. *The order*: the Batch must follow the newest commit record of its lineage. A later record, or one of a newer Term, means that another
   driver has taken over while this one was suspended. Before the record, because afterwards the number is occupied.
3. *The record*, put-if-absent under the number of the Batch. This is the commit: of several drivers that reach this step, one succeeds.
   Before any file is revealed, so that files of two decisions about one Batch are never visible side by side.
4. *The comparison* with the record that is stored. An equal record is of this decision: it was written before, and later steps may be
   missing. Any other record is of another driver, whose files must not be mixed with these.
5. *The files* that the record names are revealed: renamed, uploaded completely, or committed to the log of a table.
6. *The rest* that failed attempts staged is deleted; not earlier, because until then the files of the record are staged there too.
7. *A mark* that all of this is done, where checking each file again is not cheap; and old records are folded.

`StagedCommit.write` does steps 2 to 4. The others are done by the sink: claims and files are kept in different ways at each kind of place.

In a store, a lineage that is taken over is also *closed*: a record that is not a Batch takes its next number. So even a driver that is
suspended between steps 1 and 3 commits nothing more, unless its numbers have gaps, as those of a member of a group have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core import faults
from scribengin.core.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.connectors.contract import BatchId, Decided
    from scribengin.core.numbered_log import NumberedLog

    Record = Mapping[str, Any]

CLOSED_BY = "closed_by"
"""key of the record that closes a lineage; its value is the lineage that has taken over"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """The commit records of one lineage at the place of one sink."""

    sink: str
    where: str
    """the place, for messages"""
    log: NumberedLog
    consecutive: bool
    """True if every number up to the newest has a record, and two reads by name cost less than a listing: then the records of the numbers
    before and after a Batch are enough to check its order"""

    def write(self, decided: Decided, build: Callable[[Decided, Record | None], Record]) -> Record:
        """Write the commit record of a decided Batch, unless it is written already.

        Args:
            decided: The Batch.
            build: Makes the record from the Batch and the record that it follows (None for the first). Must return the same record each
                time.

        Returns:
            The stored record.

        Raises:
            FencedError: The Batch is older than the newest record, has an older Term, was decided differently, or its lineage is closed.
        """
        batch = decided.batch
        record = build(decided, self._followed(batch))
        faults.reached("publish.record.before")
        stored: Record = self.log.put(batch.number, record)
        faults.reached("publish.record.after")
        if stored != record:
            differing = next(name for name in (*record, *stored) if stored.get(name) != record.get(name))
            raise self._fenced(batch, f"batch {batch.number} already exists with another {differing}")
        return stored

    def _followed(self, batch: BatchId) -> Record | None:
        """The record that the Batch follows; None for the first. Raises FencedError if a newer driver has written."""
        number, before = self._newest_before(batch)
        if before is None:
            return None
        if is_closed(before):
            raise self._fenced(batch, "a newer lineage has taken over")
        if before["term"] > batch.term:
            raise self._fenced(batch, f"batch {number} exists under the newer Term {before['term']}; this one has Term {batch.term}")
        return before

    def _newest_before(self, batch: BatchId) -> tuple[int, Record | None]:
        """The number of the newest record below the Batch's number, and the record; (-1, None) if there is none. Raises FencedError if
        there is a record above the Batch's number."""
        if self.consecutive:
            before = self.log.read(batch.number - 1)
            if before is not None and not self.log.has(batch.number + 1):
                return batch.number - 1, before
        newest = self.log.newest()
        if newest is None:
            return -1, None
        if newest > batch.number:
            raise self._fenced(batch, f"batch {newest} already exists")
        if newest < batch.number:
            return newest, self.log.read(newest)
        return self.log.newest_below(batch.number) or (-1, None)

    def _fenced(self, batch: BatchId, why: str) -> FencedError:
        return FencedError(
            f'sink "{self.sink}" refuses batch {batch.number} of lineage {batch.lineage}: {why} ({self.where})',
            remedy="another driver writes here, or the state folder was copied or restored; stop this driver",
            node=self.sink,
        )


def commit_record(decided: Decided, *, sink: str, owner: str, **settings: str) -> dict[str, Any]:
    """The part of a commit record that is the same for every kind of place.

    Args:
        decided: The Batch.
        sink: The id of the sink.
        owner: The installation that has claimed the place.
        settings: The sink's settings that readers of the record need.
    """
    batch = decided.batch
    return {
        "owner": owner,
        "flow": batch.flow,
        "query": batch.query,
        "sink": sink,
        "lineage": batch.lineage,
        "number": batch.number,
        "hash": decided.input_hash,
        "term": batch.term,
        **settings,
        "rows": sum(receipt.rows for receipt in decided.receipts),
        "files": [dict(segment) for receipt in decided.receipts for segment in receipt.segments],
    }


def is_closed(record: Record) -> bool:
    """True if the record is not of a Batch, but closes its lineage."""
    return CLOSED_BY in record

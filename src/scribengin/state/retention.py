"""Deletes details of the ledger, and dead letters under `retain`, after some time. Totals stay for ever."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from scribengin.state.dead_letters import expire_letters, purge_dead
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import past_lineages
from scribengin.state.provenance import forget_trails
from scribengin.state.replays import Replays

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.state.folder import QueryFolder

DETAILS = timedelta(days=30)
"""the time for which the details of a Batch are kept: its write receipts, ranges and counts. The newest 1,000 to 2,000 Batches are kept
longer."""
_EVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The numbers of Batches whose details, and of dead letters, that one call has deleted."""

    batches: int
    letters: int


class Retention:
    """The retention of one query. Used by one thread, which holds the lease. `retain_s` is how long dead letters are kept, in seconds, and
    `retain_bytes` how many bytes of them; None sets no limit."""

    def __init__(
        self,
        query: QueryFolder,
        retain_s: float | None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        retain_bytes: int | None = None,
    ) -> None:
        self._query = query
        self._retain_s = retain_s
        self._retain_bytes = retain_bytes
        self._now = now
        self._next = datetime.min.replace(tzinfo=UTC)

    def apply(self) -> Forgotten:
        """Delete what has expired, at most once an hour; cheap to call after every Batch."""
        now = self._now()
        if now < self._next:
            return Forgotten(0, 0)
        self._next = now + _EVERY
        folders = [self._query, *(folder for folder, _ in past_lineages(self._query))]
        forgotten = [self._forget(folder, now) for folder in folders]
        return Forgotten(sum(each.batches for each in forgotten), sum(each.letters for each in forgotten))

    def _forget(self, query: QueryFolder, now: datetime) -> Forgotten:
        purge_dead(query)  # without the details of a Batch it cannot be determined which dead letters are its own
        batches = Decisions(query.decisions).prune(now - DETAILS)
        before = None if self._retain_s is None else now - timedelta(seconds=self._retain_s)
        letters = 0 if before is None and self._retain_bytes is None else expire_letters(query, before, self._retain_bytes)
        forget_trails(query, before)
        Replays(query.replays).drop_lines(now - DETAILS)
        return Forgotten(batches, letters)

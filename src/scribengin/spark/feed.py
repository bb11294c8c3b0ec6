"""From what a source finds to entries of its log: proposed, logged durably, and only then read by anyone."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.abilities import can_measure, holds, may_look_first, rechecks, tells
from scribengin.connectors.catalog import open_source, source_types
from scribengin.connectors.contract import Backlog, BatchLimits
from scribengin.connectors.group.contract import finishes
from scribengin.core import faults
from scribengin.core.errors import StateError
from scribengin.state.replays import Pending
from scribengin.state.source_log import SourceLog, is_replay

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.connectors.contract import SourceReader, SourceStream
    from scribengin.spark.program import SourceRef


def recheck(ref: SourceRef, log: Path, start: int) -> list[str]:
    """Under the lease, before the Query reads: let the entries from `start` on, which are logged and in no decided Batch, say what is
    gone meanwhile; returns sentences about it. Raises SourceError where the source must not go on without."""
    entries = SourceLog(log, ref.node)
    if entries.length() <= start:
        return []
    reader = open_source(ref.type, ref.place).reader()
    if not rechecks(reader):
        return []
    told = []
    for number in range(start, entries.length()):
        before = entries.read(number)
        if not before:  # dead letters that are replayed: these stay
            continue
        after = reader.recheck(before)
        if after != before:
            entries.amend(number, after)
            told += [f"{ref.node}: {stream.lost}" for stream in after if stream.lost and stream not in before]
    return told


def _reader(ref: SourceRef) -> SourceReader:
    """Of which the first that it hands out is looked at: the place of a source may have been empty when the flow started."""
    reader = open_source(ref.type, ref.place).reader()
    if may_look_first(reader):
        reader.looks_first = True
    return reader


class Feed:
    """One source of one Query. A position is the number of entries that are behind; used by one thread."""

    def __init__(self, ref: SourceRef, log: Path, limits: BatchLimits, *, query: str = "", tells: bool = True) -> None:
        """`query` is told to the source: `flow.query`. `tells`: whether it hears what is committed from here."""
        self.node = ref.node
        self._query = query
        self._tells = tells
        self.final = False
        """True where what is there now is all there will be"""
        self._log = SourceLog(log, ref.node)
        self._ref = ref
        self._folder = log.parent
        self._pending = Pending(self._folder, ref.node)
        self._full = self._limits = limits
        self._reader: SourceReader = _reader(ref)
        self._restored = 0
        self._held = False
        self._is_timely = "timely" in source_types(internal=True)[ref.type].abilities
        self._looked_at: float | None = None
        """when the newest look at the source began, in seconds since 1970"""

    def share(self, share: float) -> None:
        """Take only so much of the limits from the next entry on, 0 to 1; some of it at least."""
        full = self._full
        less = [None if most is None else max(1, int(most * share)) for most in (full.max_bytes, full.max_rows)]
        self._limits = BatchLimits(full.max_files, *less)

    def next(self, start: int) -> int:
        """The end of the next Batch that begins at `start`: one entry further, or `start` where nothing is new."""
        self._restore(start)
        self._hold(start)
        if self._log.length() <= start and not self._take():
            return start
        return start + 1

    def fill(self) -> None:
        """What is there now is all there will be, and waits for nothing to settle: log it, an entry a Batch. What comes later is for the
        next run."""
        self.final = True
        self._restore(self._log.length())
        while self._take():
            pass

    def exhausted(self, start: int) -> bool:
        """True where neither the log nor the source has anything behind `start`; a source with a rate has more, later. Raises Unreachable
        where a part of the source is away."""
        if self._log.length() > start:
            return False
        if finishes(self._reader):
            self._reader.finish()
        return not self._reader.backlog().rows

    def backlog(self, start: int) -> dict[str, Any]:
        """What waits behind `start`: in the log, and seen by the source; as `Backlog`'s fields, unknown while this driver has only a Batch
        before it that an earlier one has logged, for then it has not looked at the place. `clear_at`: all that was there at that moment, in
        seconds since 1970, is in the log; None where that is not known."""
        unseen = self._looked_at is None and can_measure(self._reader)
        waits = asdict(Backlog(more=True) if unseen else self._reader.backlog())
        amounts = [waits[figure] for figure in ("rows", "files", "bytes") if waits[figure] is not None]
        clear_at = self._looked_at if self._is_timely and amounts and not any(amounts) else None
        for stream in self._log.range(start, self._log.length()):
            for figure, amount in (("files", stream.files), ("bytes", stream.bytes), ("rows", stream.rows)):
                if waits[figure] is not None and amount is not None:
                    waits[figure] += amount
        return {**waits, "clear_at": clear_at}

    def committed(self, streams: Sequence[SourceStream]) -> None:
        """Let the source tell the outside world that these are through, where it can."""
        own = [stream for stream in streams if not is_replay(stream)]
        if own and holds(self._reader):
            self._reader.let_go(own)
        if self._tells and own and tells(self._reader):
            self._reader.committed(own, query=self._query)

    def notices(self) -> list[str]:
        """Sentences that a person should see once."""
        return self._reader.notices()

    def _hold(self, start: int) -> None:
        """Once: what an earlier reader has logged, and nobody has committed."""
        if not self._held and holds(self._reader):
            self._reader.hold(self._log.own_range(start, self._log.length()))
        self._held = True

    def _take(self) -> bool:
        """Log the next request to replay letters, else what the source proposes, as the next entry; False where there is nothing new."""
        streams = self._pending.take()
        if not streams:
            began = time.time()
            streams = self._reader.split(self._limits, final=self.final)
            self._looked_at = began
        if not streams:
            return False
        stored = self._log.append(self._restored, streams)
        if _plain(stored) == _plain(streams):
            self._restored += 1
        else:  # another driver's was first: what was proposed here is not handed out, and what stands there may be a request
            self._reader, self._looked_at = _reader(self._ref), None
            self._pending, self._restored = Pending(self._folder, self.node), 0
            self._restore(self._log.length())
        faults.reached("source.logged")
        return True

    def _restore(self, number: int) -> None:
        if self._restored >= number:
            return
        if self._log.length() < number:
            raise StateError(
                f'source "{self.node}": the last decided batch ended at entry {number}, the source\'s log ends at {self._log.length()}',
                remedy="restore the state folder as a whole; its parts belong together",
            )
        logged = islice(self._log.whole(self._restored), number - self._restored)
        self._reader.restore(self._pending.note(entry, streams) for entry, streams in enumerate(logged, self._restored))
        self._restored = number


def _plain(streams: Sequence[SourceStream]) -> list[Any]:
    """As they are in the log, whether they have been there or not."""
    return [msgspec.to_builtins(stream.as_json()) for stream in streams]

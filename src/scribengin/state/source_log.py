"""The log of one source: entry n holds the SourceStreams that were handed out n-th, durable before any is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import SourceStream
from scribengin.core.errors import StateError
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

REPLAY = "replay"
"""of a stream's place: it holds dead letters of the source, and what to do with them; see `state.replays`"""


def is_replay(stream: SourceStream) -> bool:
    """True for a stream of dead letters: nothing of it is the source's to interpret."""
    return REPLAY in stream.place


class SourceLog:
    """Used by Spark's planner process, which appends, and by the driver. One thread at a time."""

    def __init__(self, folder: Path, source: str) -> None:
        self.source = source
        self._log = NumberedLog(folder / source, "source-entry")
        self._length = -1

    def append(self, n: int, streams: Sequence[SourceStream]) -> list[SourceStream]:
        """Write entry `n` durably unless it is there; returns the stored entry, which is another driver's if that was first.

        Raises StateError if entry n-1 is missing: a gap would lose what it held.
        """
        if n > self.length():
            raise StateError(
                f'source "{self.source}": entry {n} would leave a gap: the log in {self._log.folder} ends at {self.length()}',
                remedy="restore the state folder as a whole; its parts belong together",
            )
        stored = self._log.put(n, [stream.as_json() for stream in streams])
        if self._log.wants_folding(n):
            self.fold()
        return _streams(stored)

    def read(self, n: int) -> list[SourceStream]:
        """Entry `n`, as far as it is the source's own: without dead letters that are replayed. Raises StateError if it is missing."""
        return _own(self._whole(n))

    def _whole(self, n: int) -> list[SourceStream]:
        stored = self._log.read(n)
        if stored is None:
            raise StateError(
                f'source "{self.source}": entry {n} is missing in {self._log.folder}, which ends at {self.length()}',
                remedy="restore the state folder as a whole; its parts belong together",
            )
        return _streams(stored)

    def range(self, start: int, end: int) -> list[SourceStream]:
        """The streams to read of entries `start` (inclusive) to `end` (exclusive), in order, replays among them; skipped ones are left
        out."""
        return [stream for n in range(start, end) for stream in self._whole(n) if not stream.skipped]

    def own_range(self, start: int, end: int) -> list[SourceStream]:
        """As `range`, as far as they are the source's own: what its reader may be handed."""
        return _own(self.range(start, end))

    def remarks(self, start: int, end: int) -> list[SourceStream]:
        """Of entries `start` (inclusive) to `end` (exclusive) the streams that say what was gone before it was read (`lost`), or which
        file is read from its start once more (`again`)."""
        return [stream for n in range(start, end) for stream in self.read(n) if stream.lost or stream.again]

    def length(self) -> int:
        """How many entries there are. After the first call it costs one look for the next entry."""
        if self._length < 0:
            newest = self._log.newest()
            self._length = 0 if newest is None else newest + 1
        while self._log.has(self._length):
            self._length += 1
        return self._length

    def entries(self, start: int = 0) -> Iterator[list[SourceStream]]:
        """All entries from `start` on, as `read` gives them, in order, old ones a thousand in memory at a time."""
        for streams in self.whole(start):
            yield _own(streams)

    def whole(self, start: int = 0) -> Iterator[list[SourceStream]]:
        """The entries from `start` on, including the replays; see `entries`."""
        for _, body in self._log.since(start):
            yield _streams(body)

    def amend(self, n: int, streams: Sequence[SourceStream]) -> None:
        """Under the lease, while nothing runs: let entry `n`, which no decided Batch has taken, say otherwise (`offsets skip`, `set`).

        Raises StateError for one that is folded: what it says cannot be changed any more.
        """
        if n <= self._log.high_mark():
            raise StateError(
                f'source "{self.source}": entry {n} in {self._log.folder} is merged with older entries and cannot be changed',
                remedy=start_over(),
            )
        self._log.amend(n, [stream.as_json() for stream in streams])

    def fold(self) -> None:
        """Fold old entries into few files; see `NumberedLog`."""
        self._log.fold(lambda summary, bodies: {"entries": (summary or {"entries": 0})["entries"] + sum(1 for _ in bodies)})


def _own(streams: Iterable[SourceStream]) -> list[SourceStream]:
    return [stream for stream in streams if not is_replay(stream)]


def _streams(body: Iterable[dict[str, Any]]) -> list[SourceStream]:
    return [SourceStream.from_json(data) for data in body]

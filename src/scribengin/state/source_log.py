"""The log of one source: entry n holds the SourceStreams that were assigned n-th, durable before any of them is read."""

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
"""in a stream's place: the stream holds dead letters of the source, and what to do with them; see `state.replays`"""


def is_replay(stream: SourceStream) -> bool:
    """True for a stream of dead letters, which the source itself cannot interpret."""
    return REPLAY in stream.place


class SourceLog:
    """Used by Spark's planner process, which appends, and by the driver. One thread at a time."""

    def __init__(self, folder: Path, source: str) -> None:
        self.source = source
        self._log = NumberedLog(folder / source, "source-entry")
        self._length = -1

    def append(self, n: int, streams: Sequence[SourceStream]) -> list[SourceStream]:
        """Write entry `n` durably unless it exists; returns the stored entry, which may be that of another driver.

        Raises StateError if entry n-1 is missing: a gap would lose its contents.
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
        """The source's own streams in entry `n`, without dead letters that are replayed. Raises StateError if the entry is missing."""
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
        """The streams to read of the entries `start` (inclusive) to `end` (exclusive), in order. Replays are included, skipped streams are
        not."""
        return [stream for n in range(start, end) for stream in self._whole(n) if not stream.skipped]

    def own_range(self, start: int, end: int) -> list[SourceStream]:
        """The source's own streams among those of `range`, which its reader may be given: replays are left out."""
        return _own(self.range(start, end))

    def remarks(self, start: int, end: int) -> list[SourceStream]:
        """The streams in the entries `start` (inclusive) to `end` (exclusive) that record what was deleted before it was read (`lost`), or
        that a file is read from its start again (`again`)."""
        return [stream for n in range(start, end) for stream in self.read(n) if stream.lost or stream.again]

    def length(self) -> int:
        """The number of entries. After the first call it only checks for new ones."""
        if self._length < 0:
            newest = self._log.newest()
            self._length = 0 if newest is None else newest + 1
        while self._log.has(self._length):
            self._length += 1
        return self._length

    def entries(self, start: int = 0) -> Iterator[list[SourceStream]]:
        """All entries from `start` on, as `read` returns them, in order; at most a thousand old ones are in memory at a time."""
        for streams in self.whole(start):
            yield _own(streams)

    def whole(self, start: int = 0) -> Iterator[list[SourceStream]]:
        """The entries from `start` on, including the replays; see `entries`."""
        for _, body in self._log.since(start):
            yield _streams(body)

    def amend(self, n: int, streams: Sequence[SourceStream]) -> None:
        """Change entry `n`, which no decided Batch has taken (`offsets skip`, `offsets set`). The caller holds the lease, and nothing runs.

        Raises StateError for an entry that is folded: it cannot be changed any more.
        """
        if n <= self._log.high_mark():
            raise StateError(
                f'source "{self.source}": entry {n} in {self._log.folder} is merged with older entries and cannot be changed',
                remedy=start_over(),
            )
        self._log.amend(n, [stream.as_json() for stream in streams])

    def fold(self) -> None:
        """Merge old entries into few files; see `NumberedLog`."""
        self._log.fold(lambda summary, bodies: {"entries": (summary or {"entries": 0})["entries"] + sum(1 for _ in bodies)})


def _own(streams: Iterable[SourceStream]) -> list[SourceStream]:
    return [stream for stream in streams if not is_replay(stream)]


def _streams(body: Iterable[dict[str, Any]]) -> list[SourceStream]:
    return [SourceStream.from_json(data) for data in body]

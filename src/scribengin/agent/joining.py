"""Small chunks of one origin become one frame, if no record waits longer than the linger for it; and how fast a lane may read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from scribengin.agent.inputs import RecordChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LEAST_WAIT_S = 1e-4
_MOST_WAITING = 4
"""frames of the largest size that may wait at once, for all origins together"""


class ChunkJoiner:
    """Joins chunks that follow each other. The order of the records of one origin stays; origins may pass one another.

    Args:
        rows: The most records of a frame.
        bytes: The most bytes of a frame.
        linger_s: The longest time that a chunk waits.
    """

    def __init__(self, *, rows: int, bytes: int, linger_s: float) -> None:
        self._rows = rows
        self._bytes = bytes
        self._linger_s = linger_s
        self._waiting: dict[str, _Joined] = {}
        self._size = 0

    def add(self, chunk: RecordChunk, now_s: float) -> list[JoinedChunk]:
        """Take a chunk; returns what is complete now, in order."""
        # a file has one position, whatever it is called: what it gave under its old name stays before what it gives under its new one
        key = chunk.origin.identity or f"{chunk.origin.host}\0{chunk.origin.file}"
        complete: list[JoinedChunk] = []
        joined = self._waiting.get(key)
        if joined is not None and not self._fits(joined, chunk):
            complete.append(self._take(key))
            joined = None
        if joined is None:
            joined = self._waiting[key] = _Joined(chunk, now_s + self._linger_s)
        else:
            joined.append(chunk)
        self._size += len(chunk.payload)
        if chunk.kind != "records" or 2 * joined.size > self._bytes or 2 * joined.count > self._rows:
            complete.append(self._take(key))
        elif self._size > _MOST_WAITING * self._bytes:
            complete += self.take_all()
        return complete

    def due(self, now_s: float) -> list[JoinedChunk]:
        """What has waited long enough."""
        return [self._take(key) for key in [key for key, joined in self._waiting.items() if joined.due_s <= now_s]]

    def take_all(self) -> list[JoinedChunk]:
        """All that waits."""
        return [self._take(key) for key in list(self._waiting)]

    def due_in(self, now_s: float) -> float | None:
        """Seconds until something is due; None if nothing waits."""
        # the first one is the oldest: entries stand in the order in which they came
        return next((max(0.0, joined.due_s - now_s) for joined in self._waiting.values()), None)

    def _take(self, key: str) -> JoinedChunk:
        joined = self._waiting.pop(key)
        self._size -= joined.size
        return joined.finish()

    def _fits(self, joined: _Joined, chunk: RecordChunk) -> bool:
        last, origin = joined.last, chunk.origin
        return (
            chunk.kind == last.kind == "records"
            and chunk.mark == last.mark
            and joined.size + len(chunk.payload) <= self._bytes
            and joined.count + chunk.count <= self._rows
            and origin.tags == last.origin.tags
            and (origin.host, origin.file) == (last.origin.host, last.origin.file)
            and origin.offset == last.origin.end
            and (origin.line == 0) == (last.origin.line == 0)
            and (not origin.line or origin.line == last.origin.line + (last.origin.lines or last.count))
        )


@dataclass(frozen=True, slots=True)
class JoinedChunk:
    """What becomes one frame, and what is to be called when it is safe."""

    chunk: RecordChunk
    done: Sequence[Callable[[], None]]


class _Joined:
    def __init__(self, chunk: RecordChunk, due_s: float) -> None:
        self.chunks = [chunk]
        self.size = len(chunk.payload)
        self.count = chunk.count
        self.due_s = due_s

    @property
    def last(self) -> RecordChunk:
        return self.chunks[-1]

    def append(self, chunk: RecordChunk) -> None:
        self.chunks.append(chunk)
        self.size += len(chunk.payload)
        self.count += chunk.count

    def finish(self) -> JoinedChunk:
        first, last = self.chunks[0], self.chunks[-1]
        done = [chunk.on_durable for chunk in self.chunks if chunk.on_durable is not None]
        if first is last:
            return JoinedChunk(first, done)
        lines = sum(chunk.origin.lines or chunk.count for chunk in self.chunks)
        origin = msgspec.structs.replace(first.origin, end=last.origin.end, lines=lines if lines != self.count else 0)
        payload = b"".join([chunk.payload for chunk in self.chunks])
        return JoinedChunk(RecordChunk(payload, self.count, origin, last.time_ms, first.mark, first.kind), done)


class LaneThrottle:
    """Limits in rows and bytes a second, which may change at any time. What was read beyond them is waited for afterwards, because nothing
    knows the number of rows of what it has not read."""

    def __init__(self, clock: Callable[[], float], *, rows: float = 0.0, bytes: float = 0.0) -> None:
        self._clock = clock
        self._limits = (rows, bytes)
        self._free = [0.0, 0.0]
        """rows and bytes that may be read now; negative: read too early"""
        self._at = clock()

    def change(self, *, rows: float, bytes: float) -> None:
        """Use these limits from now on; 0: none."""
        if self._limits != (rows, bytes):
            self._limits = (rows, bytes)
            self._free = [0.0, 0.0]
            self._at = self._clock()

    def wait_s(self) -> float:
        """Seconds until something may be read; 0: now."""
        self._refill()
        wait = max((-free / limit for free, limit in zip(self._free, self._limits, strict=True) if limit > 0), default=0.0)
        return wait if wait > _LEAST_WAIT_S else 0.0

    def most_bytes(self, most: int) -> int:
        """The most bytes to read at once: a quarter of a second's, so that a low limit does not become bursts."""
        limit = self._limits[1]
        return most if limit <= 0 else max(1, min(most, int(limit / 4)))

    def read(self, rows: int, bytes: int) -> None:
        """So much was read."""
        self._free = [self._free[0] - rows, self._free[1] - bytes]

    def _refill(self) -> None:
        now = self._clock()
        passed, self._at = now - self._at, now
        for place, limit in enumerate(self._limits):
            # nothing is saved up: after a pause it goes on at the limit
            self._free[place] = min(0.0, self._free[place] + passed * limit) if limit > 0 else 0.0

"""Bytes of streams as records: whole lines are cut from what was read, and joined to chunks, without work for each line.

A record ends with a line feed. A record of more than `max_record` bytes becomes a chunk of kind `too_long` with its first bytes, in its
place among the others. A chunk has at most `frame_bytes`, unless one record alone has more.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from scribengin.agent.inputs import RecordChunk
from scribengin.wire.frames import LINE_FEED, FrameOrigin, mark_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.wire.frames import FrameKind
    from scribengin.wire.protocol import LaneConfig

FIRST_BYTES = 4096
"""of a record that is too long: as much of it is sent, or `max_record` if that is less"""
READ_BYTES = 256 * 1024
"""the most that is read from a pipe or a socket at once"""


@cache
def host_name() -> str:
    """The name of this host, for origins."""
    return socket.gethostname()


def origin_of(lane: LaneConfig, file: str, *, identity: str = "", tags: Mapping[str, str] | None = None) -> FrameOrigin:
    """An origin on this host, with the tags of the lane.

    Args:
        lane: Its tags are taken.
        file: The sender or the command.
        identity: By which the position is restored; empty if there is none.
        tags: More tags.
    """
    return FrameOrigin(host=host_name(), file=file, identity=identity, tags={**lane.tags, **(tags or {})})


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records of one stream, each followed by `mark`; the payload of a record that is too long is its first bytes."""

    payload: bytes
    count: int
    kind: FrameKind = "records"
    mark: bytes = LINE_FEED


def too_long(record: bytes, lane: LaneConfig) -> RecordBlock:
    """The block of a record that is larger than `max_record`; its first bytes are enough."""
    return RecordBlock(record[: min(FIRST_BYTES, lane.max_record)], 1, "too_long")


def cut_lines(lines: bytes, lane: LaneConfig) -> Iterator[RecordBlock]:
    """Blocks of whole lines, of at most `frame_bytes`, with each line that is too long in a block of its own.

    >>> from scribengin.wire.protocol import LaneConfig
    >>> lane = LaneConfig("f", "s", "tcp", frame_bytes=6, max_record=4)
    >>> [(block.payload, block.count, block.kind) for block in cut_lines(b"a\\nb\\ncc\\nlonger\\nd\\n", lane)]
    [(b'a\\nb\\n', 2, 'records'), (b'cc\\n', 1, 'records'), (b'long', 1, 'too_long'), (b'd\\n', 1, 'records')]
    """
    start, size, most = 0, len(lines), lane.max_record
    while start < size:
        end = size if size - start <= lane.frame_bytes else lines.rfind(b"\n", start, start + lane.frame_bytes) + 1
        if end <= start:  # one line is larger than a frame
            end = lines.index(b"\n", start) + 1
        at = start
        while end - at - 1 > most:
            feed = lines.rfind(b"\n", at, at + most + 1)
            if feed >= 0:
                at = feed + 1
                continue
            if at > start:
                yield _block(lines[start:at])
            feed = lines.index(b"\n", at)
            yield too_long(lines[at : min(feed, at + FIRST_BYTES)], lane)
            start = at = feed + 1
        if end > start:
            yield _block(lines[start:end])
            start = end


def _block(lines: bytes) -> RecordBlock:
    return RecordBlock(lines, lines.count(b"\n"))


class LineCutter:
    """The lines of one stream of bytes, whose pieces come cut anywhere; keeps the line that has not ended."""

    def __init__(self, lane: LaneConfig, *, carriage_returns: bool = False) -> None:
        """`carriage_returns`: CR LF ends a line, too."""
        self._lane = lane
        self._carriage_returns = carriage_returns
        self._parts: list[bytes] = []
        self._size = 0
        self._first: bytes | None = None
        """of a line that is too long and has not ended"""

    @property
    def kept(self) -> int:
        """The bytes of the line that has not ended."""
        return self._size

    def feed(self, data: bytes) -> list[RecordBlock]:
        """The lines that `data` ends."""
        found: list[RecordBlock] = []
        if self._first is not None:
            feed = data.find(b"\n")
            if feed < 0:
                return found
            found.append(too_long(self._first, self._lane))
            self._first = None
            data = data[feed + 1 :]
        cut = data.rfind(b"\n") + 1
        if cut:
            lines = b"".join((*self._parts, data[:cut])) if self._parts else data[:cut]
            if self._carriage_returns and b"\r\n" in lines:
                lines = lines.replace(b"\r\n", b"\n")
            found += cut_lines(lines, self._lane)
            self._parts, self._size = [], 0
        if cut < len(data):
            self._parts.append(data[cut:])
            self._size += len(data) - cut
            if self._size > self._lane.max_record:
                self._first = b"".join(self._parts)[:FIRST_BYTES]
                self._parts, self._size = [], 0
        return found

    def end(self) -> list[RecordBlock]:
        """The last line, if the stream ended without a line feed."""
        if self._first is not None:
            found = [too_long(self._first, self._lane)]
        else:
            found = list(cut_lines(b"".join((*self._parts, b"\n")), self._lane)) if self._parts else []
        self._parts, self._size, self._first = [], 0, None
        return found


class OriginJoiner:
    """Joins blocks of the same origin to chunks of at most `frame_bytes`; the order of each origin's records is kept."""

    def __init__(self, lane: LaneConfig) -> None:
        self._most = lane.frame_bytes
        self._max_record = lane.max_record
        self._done: list[RecordChunk] = []
        self._open: dict[str, tuple[FrameOrigin, bytes, list[bytes], int, int]] = {}
        """file of the origin → origin, mark, payloads, their bytes, their records"""
        self.size = 0
        """bytes that were added since `take`"""

    def add(self, origin: FrameOrigin, block: RecordBlock) -> None:
        """Add a block behind the others of its origin."""
        self.size += len(block.payload)
        if block.kind != "records":
            for file in list(self._open):
                self._finish(file)
            self._done.append(RecordChunk(block.payload, block.count, origin, _now_ms(), kind=block.kind))
            return
        _, mark, payloads, size, count = self._open.get(origin.file, (origin, block.mark, [], 0, 0))
        if payloads and (mark != block.mark or size + len(block.payload) > self._most):
            self._finish(origin.file)
            payloads, size, count = [], 0, 0
        payloads.append(block.payload)
        self._open[origin.file] = (origin, block.mark, payloads, size + len(block.payload), count + block.count)

    def add_records(self, origin: FrameOrigin, records: Sequence[bytes]) -> None:
        """Add records that are not joined yet; they may contain line feeds."""
        start, size = 0, 0
        for at, record in enumerate(records):
            if size and size + len(record) + 1 > self._most:
                self._add_joined(origin, records[start:at])
                start, size = at, 0
            size += len(record) + 1
        if start < len(records):
            self._add_joined(origin, records[start:])

    def take(self) -> list[RecordChunk]:
        """All chunks since the last call."""
        for file in list(self._open):
            self._finish(file)
        done, self._done, self.size = self._done, [], 0
        return done

    def _add_joined(self, origin: FrameOrigin, records: Sequence[bytes]) -> None:
        payload = b"\n".join((*records, b""))
        mark = LINE_FEED
        if payload.count(b"\n") != len(records):
            mark = mark_for(records)
            payload = mark.join((*records, b""))
        self.add(origin, RecordBlock(payload, len(records), mark=mark))

    def _finish(self, file: str) -> None:
        if file in self._open:
            origin, mark, payloads, _, count = self._open.pop(file)
            payload = payloads[0] if len(payloads) == 1 else b"".join(payloads)
            self._done.append(RecordChunk(payload, count, origin, _now_ms(), mark=mark))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

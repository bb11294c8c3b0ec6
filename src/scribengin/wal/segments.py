"""Segments: the files of frames that a log consists of, and where in them a record is.

A segment's name is the number of its first record, in 20 digits, and `.wal`. Of the frames in it only some are remembered, one for each
64 KiB, so that a log of a gibibyte of small frames needs a few hundred kilobytes of memory; the way from there is read from the heads of
frames.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.core.errors import StateError
from scribengin.wire.frames import FrameHead, encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.wal.files import LogFolder

_EVERY_BYTES = 64 * 1024
_NAME = re.compile(r"(\d{20})\.wal")
_MOST_COUNT = 2**32 - 1
FRAME_START = struct.Struct("<4sII4xQI")
"""magic, length, CRC, sequence, count: the first bytes of a frame"""


def segment_name(first: int) -> str:
    """The name of the segment whose first record has that number."""
    return f"{first:020}.wal"


def first_of(name: str) -> int | None:
    """The number that a segment's name says; None if it is no segment."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


@dataclass(frozen=True, slots=True)
class LostRange:
    """Records that no longer exist: their numbers, and why."""

    first: int
    next: int
    reason: str


@dataclass(slots=True)
class WalSegment:
    """One file of frames. `next` and `bytes` are where the next frame goes, `durable` and `synced` how far it is durable."""

    first: int
    next: int
    bytes: int = 0
    durable: int = 0
    synced: int = 0
    newest_ms: int = 0
    """when the newest record was read"""
    lost: list[LostRange] = field(default_factory=list)
    handle: int = -1
    """open as long as frames are appended or not durable"""
    _sequences: array[int] = field(default_factory=lambda: array("Q"))
    _offsets: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def name(self) -> str:
        """The name of its file."""
        return segment_name(self.first)

    def add(self, count: int, size: int, time_ms: int) -> None:
        """Count a frame that has been written at the end."""
        if not self._offsets or self.bytes - self._offsets[-1] >= _EVERY_BYTES:
            self._sequences.append(self.next)
            self._offsets.append(self.bytes)
        self.next += count
        self.bytes += size
        self.newest_ms = max(self.newest_ms, time_ms)

    def all_durable(self) -> None:
        """Note that everything written is durable."""
        self.durable, self.synced = self.next, self.bytes

    def frame_at(self, folder: LogFolder, handle: int, sequence: int) -> tuple[int, int]:
        """The frame that has the record of that number: the number of its first record, and its offset. Raises StateError."""
        near = bisect_right(self._sequences, sequence) - 1
        first, offset = self._sequences[near], self._offsets[near]
        while True:
            next_first, next_offset = self._step(folder, handle, first, offset)
            if next_first > sequence:
                return first, offset
            first, offset = next_first, next_offset

    def end_within(self, folder: LogFolder, handle: int, first: int, offset: int, most_bytes: int) -> tuple[int, int]:
        """The end of whole durable frames from there on, of at most so many bytes, and at least one frame: the number of the next record,
        and the offset. Raises StateError."""
        if self.synced - offset <= most_bytes:
            return self.durable, self.synced
        near = bisect_right(self._offsets, offset + most_bytes) - 1
        if self._offsets[near] > offset:
            return self._sequences[near], self._offsets[near]
        end = self._step(folder, handle, first, offset)
        while end[1] < self.synced and (after := self._step(folder, handle, *end))[1] - offset <= most_bytes:
            end = after
        return end

    def _step(self, folder: LogFolder, handle: int, first: int, offset: int) -> tuple[int, int]:
        """The frame after the one there."""
        start = folder.read(handle, FRAME_START.size, offset)
        if len(start) == FRAME_START.size:
            _, length, _, sequence, count = FRAME_START.unpack(start)
            if sequence == first and count:
                return sequence + count, offset + 8 + length
        raise damaged_since(folder, self.name, offset)


def damaged_since(folder: LogFolder, name: str, offset: int) -> StateError:
    """The error if a file is no longer what the log has written."""
    return StateError(
        f"{folder.path / name}: the frame at byte {offset:,} has changed since it was written",
        remedy="start the agent again: it sets the damaged bytes aside, and goes on after them",
    )


def lost_frames(lost: Iterable[LostRange], time_ms: int) -> list[tuple[FrameHead, bytes]]:
    """The frames that stand for lost records; neighbours with one reason become one frame."""
    merged: list[LostRange] = []
    for each in lost:
        if merged and merged[-1].next == each.first and merged[-1].reason == each.reason:
            merged[-1] = LostRange(merged[-1].first, each.next, each.reason)
        else:
            merged.append(each)
    frames = []
    for each in merged:
        for first in range(each.first, each.next, _MOST_COUNT):
            reason = each.reason.encode()
            head = FrameHead("lost", "none", first, min(each.next - first, _MOST_COUNT), len(reason), time_ms)
            frames.append((head, encode_frame(head, reason)))
    return frames

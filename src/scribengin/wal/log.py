"""The write-ahead log of one lane of an agent: frames, kept until they are acknowledged.

What a crash may take depends on what crashed:

* **The agent is killed** (`kill -9`): nothing for which `append` has returned. A frame that was being written is cut.
* **The machine stops** (power, kernel): what was appended after the last `sync` that did its work. None of it was sent, as `read` returns
  durable frames only, so its numbers are used again; and `positions` are then those before it, so that files are read again from there.
  Inputs that cannot read again lose that much: what came since the last sync, which is at most the time of the policy (or its size, or,
  with `each`, nothing) and what is appended until the next call of `sync`.
* **A disk damages what was durable**: those frames. Their bytes are set aside in a file `damaged-…`, `faults` says so, and a *lost* frame
  has their numbers. The log continues after them.

A number never has two contents among the frames that `read` has returned; only `drop_oldest` and damage turn records into lost ones.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING

import google_crc32c

from scribengin.core import faults
from scribengin.core.errors import StateError
from scribengin.core.units import parse_bytes, parse_duration_s
from scribengin.wal.checkpoint import (
    FORMAT,
    DurableMark,
    LogCheckpoint,
    LogIdentity,
    no_identity,
    read_checkpoint,
    read_identity,
    write_checkpoint,
    write_identity,
)
from scribengin.wal.files import LogFolder, disk_faults
from scribengin.wal.recovery import LogRecovery, RecoveredLog
from scribengin.wal.segments import FRAME_START, LostRange, WalSegment, damaged_since, first_of, lost_frames, lost_reason
from scribengin.wire.frames import MAGIC, FrameHead, FrameOrigin, find_frames

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

SEGMENT_BYTES = 16 * 2**20
DROPPED = "dropped by the agent, as its write-ahead log was full"
"""why `drop_oldest` has lost records"""
ACKNOWLEDGED = "acknowledged"
"""the reason in a lost frame of records that were not lost, and are never read"""
_LONGEST_WAIT_S = 1.0
"""between syncs, if the policy is a size; and between unsynced writes of what is acknowledged"""
_LEAST_SEGMENTS = 4
"""into which the largest log is divided, so that acknowledged parts of it can be freed"""


class WalFull(Exception):
    """The frame would make the log larger than `most_bytes`; nothing was written."""


@dataclass(frozen=True, slots=True)
class WalPiece:
    """Whole frames of the log: their bytes, the number of the first record, and the number after the last one."""

    bytes: bytes
    sequence: int
    next: int


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """When a log is made durable: after so many seconds, or so many bytes; at once if both are 0."""

    every_s: float = 0.0
    every_bytes: int = 0

    @classmethod
    def parse(cls, text: str) -> SyncPolicy:
        """The policy `each`, a time such as `100ms`, or a size such as `1MiB`. Raises ValueError."""
        if text == "each":
            return cls()
        try:
            return cls(every_s=parse_duration_s(text))
        except ValueError:
            try:
                return cls(every_s=_LONGEST_WAIT_S, every_bytes=parse_bytes(text))
            except ValueError:
                raise ValueError(f'sync is "{text}"; write `each`, a time such as `100ms`, or a size such as `1MiB`') from None

    def is_due(self, waiting_bytes: int, waited_s: float) -> bool:
        """Whether to sync now. A clock that was set back is no reason to wait."""
        return not 0 <= waited_s < self.every_s or (self.every_bytes > 0 and waiting_bytes >= self.every_bytes)


class Wal:
    """A log of frames in a folder of its own. One thread appends, syncs and reads; others may call `acknowledge`.

    Args:
        folder: Made if there is none. It may have files `damaged-…`, which the log never removes.
        most_bytes: The largest size of all segments together; a larger frame never fits.
        segment_bytes: About the size of one segment, the unit in which space is freed; at most a quarter of `most_bytes`.
        sync: The policy, see `SyncPolicy.parse`. With a size, a second is the longest time.
        files: Access to the folder; tests simulate a disk.

    Attributes:
        incarnation: A random id, made with the log: numbers are those of this incarnation.
        next: The number of the next record.
        durable: The number after the last durable record; `read` ends there.
        acknowledged: The number up to which records need not be kept. After a crash of the machine it may be an older one.
        size: The bytes of all segments.
        positions: Identity → the origin of the newest frame of it that is in the log or was acknowledged.
        faults: Sentences: what was found when the log was opened, or read.

    Raises:
        Refused: Another process has the folder.
        StateError: The log has no identity any more, or is of another format.
        EnvironmentFault: The folder cannot be read or written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        sync: str = "100ms",
        files: LogFolder | None = None,
    ) -> None:
        self._policy = SyncPolicy.parse(sync)
        self._most_bytes = most_bytes
        self._segment_bytes = max(1, min(segment_bytes, most_bytes // _LEAST_SEGMENTS))
        self._files = files or LogFolder(folder)
        self._guard = RLock()
        self._mark = DurableMark(self._files)
        self.faults: list[str] = []
        self._segments: list[WalSegment] = []
        self._durable_positions: dict[str, FrameOrigin] = {}
        self._new_positions: dict[str, FrameOrigin] = {}
        """of frames that are not durable"""
        self._new_names = False
        """True if a segment was made whose name is not durable"""
        self._unsure = False
        """True after a failed sync: what the system counts as written may not be on the disk"""
        self._lost_tail = ""
        self._closed = False
        self._marked_acknowledged = 0
        self._checkpoint_bytes = 0
        self._synced_at_s = float("-inf")
        self._reading: tuple[str, int] | None = None
        self._piece_end: tuple[str, int, int] | None = None
        """where the last piece ended: segment, number, offset"""
        self._files.lock()
        try:
            with disk_faults(f"{folder}: the write-ahead log cannot be opened"):
                identity = self._identity()
                self.incarnation = identity.incarnation
                self._base = identity.base
                self._recover()
        except BaseException:
            self._release()
            raise

    def _identity(self) -> LogIdentity:
        """Of the log that is there, or of a new one."""
        identity = read_identity(self._files)
        if identity is None:
            segments = [name for name in self._files.names() if first_of(name) is not None]
            if segments:
                raise no_identity(self._files, segments[0])
            self._mark.create()
            self._files.sync_names()
            identity = LogIdentity(FORMAT, os.urandom(12).hex())
            write_identity(self._files, identity)
            self._files.reserve(0)
        return identity

    def _recover(self) -> None:
        mark = self._mark.read()
        if mark is None:
            self.faults.append(f"{self._files.path / 'durable'} is missing or damaged: all frames that are there are taken for durable")
        checkpoint, fault = read_checkpoint(self._files, self.incarnation)
        if fault:
            self.faults.append(f"{fault}: files of which no frame is left are read from their beginning")
        found = LogRecovery(self._files, base=self._base, mark=mark, checkpoint=checkpoint).run()
        self.faults += found.faults
        self.positions: dict[str, FrameOrigin] = dict(found.positions)
        self._durable_positions = found.positions
        self._use(found)
        self.acknowledged = found.acknowledged
        self._mark.write(self.next, self.acknowledged)
        self._marked_acknowledged = self.acknowledged
        if fault:
            self._write_checkpoint()
        self._free()

    def _use(self, found: RecoveredLog) -> None:
        self._segments = found.segments
        self.next = self.durable = found.next
        self.size = sum(segment.bytes for segment in self._segments)
        self._reading, self._piece_end = None, None

    def append(self, frame: bytes, head: FrameHead) -> None:
        """Write a frame at the end.

        Args:
            frame: Its bytes, as `encode_frame` has made them.
            head: Its head; `sequence` is `next`.

        Raises:
            WalFull: There is no room; there may be after `acknowledge` or `drop_oldest`.
            OSError: The disk is full or failed. The log is as it was before.
            StateError: The disk has lost frames that were appended: open the log again, and continue at its `positions`.
            ValueError: The frame has not the next number, or not the head's.
        """
        magic, length, _, sequence, count = FRAME_START.unpack_from(frame)
        if (magic, length + 8, sequence, count) != (MAGIC, len(frame), head.sequence, head.count) or not count:
            raise ValueError(f"not the frame of the records {head.sequence} to {head.next - 1}")
        with self._guard:
            self._check_tail()
            if sequence != self.next:
                raise ValueError(f"a frame of the record {sequence}; the next one is {self.next}")
            self._make_room(len(frame))
            segment = self._segments[-1] if self._segments else None
            if segment is None or (segment.bytes and segment.bytes + len(frame) > self._segment_bytes):
                segment = self._begin_segment()
            self._open(segment)
            faults.reached("wal.append.before")
            try:
                self._files.write(segment.handle, frame, segment.bytes)
            except OSError:
                self._files.truncate(segment.handle, segment.bytes)
                raise
            faults.reached("wal.append.after")
            segment.add(count, len(frame), head.time_ms)
            if head.kind == "lost":
                segment.lost.append(LostRange(sequence, head.next, lost_reason(frame, next(find_frames(frame)))))
            self.next = segment.next
            self.size += len(frame)
            if head.origin.identity:
                self.positions[head.origin.identity] = self._new_positions[head.origin.identity] = head.origin

    def _check_tail(self) -> None:
        if self._lost_tail:
            raise StateError(
                self._lost_tail, remedy="check the disk, then start the agent again: it reads those records again if they are in files"
            )

    def _make_room(self, count: int) -> None:
        if self.size + count <= self._most_bytes:
            return
        if self.acknowledged >= self.next and self._segments and self._segments[-1].bytes:
            self._begin_segment()
        self._free()
        if self.size + count > self._most_bytes:
            raise WalFull(
                f"{self._files.path}: the log has {self.size:,} bytes of records that are not acknowledged; "
                f"with {count:,} more it would exceed {self._most_bytes:,}"
            )

    def _begin_segment(self) -> WalSegment:
        segment = WalSegment(self.next, self.next, durable=self.next)
        if not self._segments or self._segments[-1].first != segment.first:
            segment.handle = self._files.open(segment.name, create=True)
            self._new_names = True
            if self._segments and self._segments[-1].synced == self._segments[-1].bytes:
                self._close(self._segments[-1])
            self._segments.append(segment)
        return self._segments[-1]

    def _open(self, segment: WalSegment) -> None:
        if segment.handle < 0:
            segment.handle = self._files.open(segment.name)

    def sync(self, *, now_s: float, force: bool = False) -> int:
        """Make what was appended durable, if the policy says that it is time.

        Args:
            now_s: The time, of a clock that does not go back.
            force: Whatever the policy says.

        Returns:
            `durable`.

        Raises:
            EnvironmentFault: It could not be made durable; `durable` is as it was. The next call writes it again.
            StateError: The disk has lost frames that were appended: open the log again, and continue at its `positions`.
        """
        with self._guard:
            self._check_tail()
            waited_s = now_s - self._synced_at_s
            if self.durable < self.next:
                waiting = sum(segment.bytes - segment.synced for segment in self._dirty())
                if force or self._policy.is_due(waiting, waited_s):
                    self._sync()
                    self._synced_at_s = now_s
            elif self._marked_acknowledged < self.acknowledged and (force or not 0 <= waited_s < _LONGEST_WAIT_S):
                with self._failing("what is acknowledged cannot be written"):
                    self._mark.write(self.durable, self.acknowledged, sync=False)
                self._marked_acknowledged = self.acknowledged
                self._synced_at_s = now_s
            return self.durable

    def _failing(self, what: str) -> AbstractContextManager[None]:
        return disk_faults(f"{self._files.path}: {what}")

    def _dirty(self) -> list[WalSegment]:
        """The segments with frames that are not durable: the last ones."""
        dirty = []
        for segment in reversed(self._segments):
            if segment.synced < segment.bytes:
                dirty.append(segment)
            elif segment.bytes:  # an empty one may follow dirty ones
                break
        return dirty[::-1]

    def _sync(self) -> None:
        with self._failing("the write-ahead log cannot be made durable"):
            dirty = self._dirty()
            if self._unsure:
                for segment in dirty:
                    self._write_again(segment)
            self._unsure = True
            faults.reached("wal.sync.before")
            for segment in dirty:
                self._files.sync(segment.handle)
            if self._new_names:
                self._files.sync_names()
            self._unsure = False
            self._new_names = False
            faults.reached("wal.sync.after")
            self._mark.write(self.next, self.acknowledged)
            faults.reached("wal.mark.after")
            self._marked_acknowledged = self.acknowledged
        for segment in dirty:
            segment.all_durable()
            if segment is not self._segments[-1]:
                self._close(segment)
        self.durable = self.next
        self._durable_positions.update(self._new_positions)
        self._new_positions.clear()

    def _write_again(self, segment: WalSegment) -> None:
        """Write the frames that are not durable again, as the system has them in memory: after a failed sync it takes them for written."""
        data = self._files.read(segment.handle, segment.bytes - segment.synced, segment.synced)
        expected = segment.durable
        for found in find_frames(data):
            if found.head is None or found.head.sequence != expected:
                break
            expected = found.head.next
        if expected != segment.next:
            self._lost_tail = (
                f"{self._files.path / segment.name}: the disk has lost the records {expected} to {segment.next - 1}, which were written"
            )
            self._check_tail()
        self._files.write(segment.handle, data, segment.synced)

    def read(self, sequence: int, most_bytes: int) -> WalPiece | None:
        """Whole durable frames, of one segment.

        Args:
            sequence: The number of the first record. If it is within a frame, that frame is the first one; if it is acknowledged, the first
                one that is not.
            most_bytes: The largest size; one frame may be larger.

        Returns:
            The frames; None if there are no durable ones from there on.

        Raises:
            StateError: The file is damaged, and could not be repaired.
            EnvironmentFault: The file cannot be read.
        """
        with self._guard, self._failing("the write-ahead log cannot be read"):
            sequence = max(sequence, self.acknowledged)
            for _ in range(2):
                if sequence >= self.durable:
                    return None
                try:
                    return self._read(sequence, most_bytes)
                except StateError:
                    self._repair()
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    self._repair()
            return self._read(sequence, most_bytes)

    def _read(self, sequence: int, most_bytes: int) -> WalPiece:
        segment = self._segments[self._segment_of(sequence)]
        sequence = max(sequence, segment.first)
        handle = self._reader(segment)
        if self._piece_end is not None and self._piece_end[:2] == (segment.name, sequence):
            first, start = self._piece_end[1:]
        else:
            first, start = segment.frame_at(self._files, handle, sequence)
        after, end = segment.end_within(self._files, handle, first, start, most_bytes)
        data = self._files.read(handle, end - start, start)
        self._check(segment, data, first, start)
        self._piece_end = (segment.name, after, end)
        return WalPiece(data, first, after)

    def _segment_of(self, sequence: int) -> int:
        """The segment that has the record, or the first one."""
        low, high = 0, len(self._segments)
        while low < high:
            middle = (low + high) // 2
            if self._segments[middle].next <= sequence:
                low = middle + 1
            else:
                high = middle
        return low

    def _reader(self, segment: WalSegment) -> int:
        if segment.handle >= 0:
            return segment.handle
        if self._reading is None or self._reading[0] != segment.name:
            self._end_reading()
            try:
                self._reading = (segment.name, self._files.open(segment.name))
            except FileNotFoundError:
                raise damaged_since(self._files, segment.name, 0) from None
        return self._reading[1]

    def _end_reading(self) -> None:
        if self._reading is not None:
            self._files.close(self._reading[1])
            self._reading = None

    def _check(self, segment: WalSegment, data: bytes, first: int, start: int) -> None:
        """Raise StateError if a disk has changed the frames: a gateway would refuse them for ever."""
        at = 0
        while at < len(data):
            if len(data) - at < FRAME_START.size:
                raise damaged_since(self._files, segment.name, start + at)
            magic, length, crc, sequence, count = FRAME_START.unpack_from(data, at)
            end = at + 8 + length
            if magic != MAGIC or sequence != first or end > len(data) or google_crc32c.value(data[at + 12 : end]) != crc:
                raise damaged_since(self._files, segment.name, start + at)
            first, at = sequence + count, end

    def _repair(self) -> None:
        """Set aside what a disk has damaged, as when the log is opened."""
        if self.durable < self.next:
            self._sync()
        self._end_handles()
        self._write_checkpoint()
        checkpoint, _ = read_checkpoint(self._files, self.incarnation)
        found = LogRecovery(self._files, base=self._base, mark=(self.durable, self.acknowledged), checkpoint=checkpoint).run()
        self.faults += found.faults
        self._use(found)

    def acknowledge(self, next: int) -> None:
        """The records before this number need not be kept; whole segments of them are freed. May be called by any thread.

        Raises:
            StateError: The log has no durable record of that number: who says this means another log, or a later state of this one.
        """
        with self._guard:
            if next > self.durable:
                raise StateError(
                    f"{self._files.path}: records before {next} are acknowledged, but the log ends at {self.durable}: "
                    "it was put back to an earlier state, or the gateway has mixed up its agents",
                    remedy="if the folder came back from a copy, move it away: the agent then starts a new log",
                )
            if next > self.acknowledged:
                self.acknowledged = next
                self._free()

    def forget(self, identity: str) -> None:
        """Remove a position, of a file that is gone. It comes back after a crash if frames of it are still in the log."""
        with self._guard:
            for positions in (self.positions, self._durable_positions, self._new_positions):
                positions.pop(identity, None)

    def _free(self) -> None:
        """Remove segments whose records are all acknowledged. The last one stays: its name keeps the next number."""
        if len(self._segments) < 2 or self._segments[0].next > self.acknowledged:
            return
        try:
            self._write_checkpoint()
            while len(self._segments) > 1 and self._segments[0].next <= self.acknowledged:
                self._remove(self._segments[0])
                del self._segments[0]
        except OSError:
            return  # the next call tries again
        self._files.reserve(2 * self._checkpoint_bytes)

    def _write_checkpoint(self) -> None:
        checkpoint = LogCheckpoint(self.incarnation, self.durable, self.acknowledged, self._durable_positions)
        faults.reached("wal.checkpoint.before")
        self._checkpoint_bytes = write_checkpoint(self._files, checkpoint)
        faults.reached("wal.checkpoint.after")

    def _remove(self, segment: WalSegment) -> None:
        self._close(segment)
        if self._reading is not None and self._reading[0] == segment.name:
            self._end_reading()
        self._files.remove(segment.name)
        self.size -= segment.bytes

    def drop_oldest(self, bytes: int) -> int:
        """Drop the oldest segments, until at least so many bytes are free: of their records only the numbers stay, in *lost* frames.

        Returns:
            How many records are lost by that; acknowledged ones are not counted. 0 if there is nothing to drop.

        Raises:
            EnvironmentFault: The disk is full or failed. Nothing is dropped, or all of it.
        """
        with self._guard, self._failing("the oldest frames cannot be dropped"):
            if self.durable < self.next:
                self._sync()
            dropped: list[WalSegment] = []
            frames = lost_frames([], 0)
            lost, records, freed = list[LostRange](), 0, 0
            while freed < bytes and len(dropped) < len(self._segments) and self._segments[len(dropped)].bytes:
                dropped.append(self._segments[len(dropped)])
                lost, records = self._lost_of(dropped)
                frames = lost_frames(lost, max(segment.newest_ms for segment in dropped))
                freed = sum(segment.bytes for segment in dropped) - sum(len(frame) for _, frame in frames)
            if freed <= 0:
                return 0
            if dropped[-1] is self._segments[-1]:
                self._begin_segment()
                self._files.sync_names()
                self._new_names = False
            self._write_checkpoint()
            stays = WalSegment(dropped[0].first, dropped[0].first, lost=lost)
            for head, frame in frames:
                stays.add(head.count, len(frame), head.time_ms)
            stays.all_durable()
            self._close(dropped[0])
            self._end_reading()
            self._files.put(stays.name, b"".join(frame for _, frame in frames))
            self.size += stays.bytes - dropped[0].bytes
            self._segments = [stays, *self._segments[len(dropped) :]]
            self._piece_end = None
            for segment in dropped[1:]:
                self._remove(segment)
            self._files.sync_names()
            self._files.reserve(2 * self._checkpoint_bytes)
            return records

    def _lost_of(self, dropped: Sequence[WalSegment]) -> tuple[list[LostRange], int]:
        """The lost ranges that replace segments, and how many records are lost by that."""
        lost: list[LostRange] = []
        records = 0
        at = dropped[0].first
        if at < self.acknowledged:
            at = min(self.acknowledged, dropped[-1].next)
            lost.append(LostRange(dropped[0].first, at, ACKNOWLEDGED))
        for before in [each for segment in dropped for each in segment.lost if each.next > at]:
            if before.first > at:
                lost.append(LostRange(at, before.first, DROPPED))
                records += before.first - at
            lost.append(LostRange(max(at, before.first), before.next, before.reason))
            at = before.next
        if at < dropped[-1].next:
            lost.append(LostRange(at, dropped[-1].next, DROPPED))
            records += dropped[-1].next - at
        return lost, records

    def close(self) -> None:
        """Make everything durable, and let other processes have the folder. Raises EnvironmentFault if that fails; the log is closed all
        the same, and frames that are not durable are dealt with when it is opened again."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            try:
                if not self._lost_tail:
                    if self.durable < self.next:
                        self._sync()
                    with self._failing("what is acknowledged cannot be written"):
                        self._mark.write(self.durable, self.acknowledged)
            finally:
                self._release()

    def _end_handles(self) -> None:
        for segment in self._segments:
            self._close(segment)
        self._end_reading()

    def _release(self) -> None:
        self._end_handles()
        self._mark.close()
        self._files.unlock()

    def _close(self, segment: WalSegment) -> None:
        if segment.handle >= 0:
            self._files.close(segment.handle)
            segment.handle = -1

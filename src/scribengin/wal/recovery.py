"""What a log does when it is opened: find which frames are there, cut what was never durable, and replace what is damaged or missing by
*lost* frames, so that the numbers have no gap.

The durable mark decides between the two. Frames are sent only when the mark covers them. Damage after the mark is therefore what a crash
did to bytes that no gateway has seen: the log ends there, its numbers are used again, and the positions of files are those of the frames
that remain. Damage before the mark has other causes (a bad disk, a person): the bytes are set aside, and their numbers are lost. Their
records may have been sent before. If neither a later frame of the same file is left nor a checkpoint that is newer, the file is read again
from the last frame that is there, and those records may be read twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.wal.segments import LostRange, WalSegment, first_of, lost_frames, segment_name
from scribengin.wire.frames import BadFrame, FoundFrame, FrameHead, FrameOrigin, find_frames, payload_of

if TYPE_CHECKING:
    from scribengin.wal.checkpoint import LogCheckpoint
    from scribengin.wal.files import LogFolder

DAMAGED = "the agent's write-ahead log was damaged"
"""why records are lost"""


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """What is in a log. Its frames have contiguous numbers, and all of them are durable."""

    segments: list[WalSegment]
    next: int
    acknowledged: int
    positions: dict[str, FrameOrigin]
    faults: list[str]


class LogRecovery:
    """One recovery. It may be stopped by a crash at any point, and then done again.

    Args:
        folder: The folder of the log, locked.
        base: The number of the first record that the log ever had.
        mark: The durable mark, how far the log is durable and acknowledged; None if it cannot be read: then all that is there is taken
            for durable.
        checkpoint: The checkpoint, if it can be read.
    """

    def __init__(self, folder: LogFolder, *, base: int, mark: tuple[int, int] | None, checkpoint: LogCheckpoint | None) -> None:
        self._folder = folder
        self._at = checkpoint.at if checkpoint else base
        """frames before it are in the positions of the checkpoint"""
        durable, acknowledged = mark or (base, base)
        self._acknowledged = max(base, acknowledged, checkpoint.acknowledged if checkpoint else base)
        self._floor = max(durable, self._at, self._acknowledged)
        """numbers before it may have been sent"""
        self._marked = mark is not None
        self._knows_start = self._marked or checkpoint is not None
        self._positions = dict(checkpoint.positions) if checkpoint else {}
        self._faults: list[str] = []
        self._segments: list[WalSegment] = []
        self._next = base
        self._cut = False
        """True once the end of the log has been found: what follows was never durable"""

    def run(self) -> RecoveredLog:
        """Recover the log. Raises OSError."""
        firsts = self._segments_needed()
        for first, following in zip(firsts, [*firsts[1:], None], strict=False):
            if first > self._next and not self._cut:
                self._fill_gap(first)
            if self._cut:
                self._folder.remove(segment_name(first))
                self._faults.append(f"{self._where(first)} was never durable, as the one before it ends too early: removed")
            else:
                self._take(first, following)
        if self._next < self._floor:
            self._put_lost(self._next, self._floor)
            self._faults.append(
                f"{self._folder.path}: the records {self._next} to {self._floor - 1} are missing at the end, and reported as lost"
            )
            self._next = self._floor
        for segment in self._segments:
            segment.all_durable()
        self._folder.sync_names()
        return RecoveredLog(self._segments, self._next, min(self._acknowledged, self._next), self._positions, self._faults)

    def _segments_needed(self) -> list[int]:
        """The first numbers of the segments; removes those that are acknowledged and whose positions the checkpoint has, and drafts."""
        names = self._folder.names()
        for name in names:
            if name.startswith(".") and name.endswith(".new"):
                self._folder.remove(name)
        firsts = [first for name in names if (first := first_of(name)) is not None]
        if firsts and not self._knows_start:
            self._acknowledged = firsts[0]
            self._floor = max(self._floor, self._acknowledged)
        while len(firsts) > 1 and firsts[1] <= min(self._acknowledged, self._at):
            self._folder.remove(segment_name(firsts.pop(0)))
        self._next = min(firsts[0], self._acknowledged) if firsts else self._acknowledged
        return firsts

    def _fill_gap(self, first: int) -> None:
        """A segment is missing before that number."""
        if self._marked and self._next >= self._floor:
            self._cut = True
            return
        end = min(first, self._floor) if self._marked else first
        self._put_lost(self._next, end)
        self._faults.append(f"{self._folder.path}: the records {self._next} to {end - 1} are missing, and reported as lost")
        self._next = end
        self._cut = end < first

    def _put_lost(self, first: int, end: int) -> None:
        """A segment of a lost frame."""
        segment = WalSegment(first, first, lost=[LostRange(first, end, DAMAGED)])
        frames = lost_frames(segment.lost, self._segments[-1].newest_ms if self._segments else 0)
        for head, frame in frames:
            segment.add(head.count, len(frame), head.time_ms)
        if self._segments and self._segments[-1].first == first:  # it was left empty
            self._segments.pop()
        self._folder.put(segment.name, b"".join(frame for _, frame in frames))
        self._segments.append(segment)

    def _take(self, first: int, following: int | None) -> None:
        """The frames of one segment, after which another one may follow."""
        name = segment_name(first)
        data = self._folder.content(name) or b""
        scan = _SegmentScan(first=self._next if first < self._next else first, data=data)
        for found in find_frames(data):
            if found.head is None:
                if self._marked and self._next >= self._floor:
                    self._end_at(name, found, len(data))
                    break
                if following == self._next and found.end == len(data):  # what a full disk has left of a frame that is in the next segment
                    self._faults.append(self._torn(name, found, len(data)))
                    break
                scan.set_aside(found, found.fault)
            elif found.head.sequence != self._next and not self._continues(scan, name, found, found.head):
                break
            elif found.head.sequence == self._next:
                self._keep(scan, found, found.head)
        scan.end()
        if scan.covered and not scan.segment.bytes and not scan.damaged:  # `drop_oldest` was stopped before it had removed it
            self._folder.remove(name)
            return
        for found, why in scan.damaged:
            beside = f"damaged-{first:020}-{found.start}"
            self._folder.put(beside, data[found.start : found.end])
            records = ", ".join(f"{each.first} to {each.next - 1}" for each in scan.missing)
            told = f"; the records {records} are reported as lost" if records else ""
            self._faults.append(
                f"{self._where(first)}, byte {found.start:,}: {why}: {found.end - found.start:,} bytes set aside in {beside}{told}"
            )
        if scan.missing and not scan.damaged:
            records = ", ".join(f"{each.first} to {each.next - 1}" for each in scan.missing)
            self._faults.append(f"{self._where(first)}: the numbers jump: the records {records} are missing, and reported as lost")
        self._store(scan, name)

    def _store(self, scan: _SegmentScan, name: str) -> None:
        """Make the file what the segment is, and all of it durable."""
        segment = scan.segment
        if scan.repaired or segment.name != name:
            if segment.bytes or not scan.covered:
                self._folder.put(segment.name, b"".join(scan.data[part] if isinstance(part, slice) else part for part in scan.parts))
            if segment.name != name:
                self._folder.remove(name)
        else:
            handle = self._folder.open(name)
            try:
                if segment.bytes < len(scan.data):
                    self._folder.truncate(handle, segment.bytes)
                if scan.tail < segment.bytes:
                    # what a failed sync has left in memory counts as written for the system: only a new write reaches the disk
                    self._folder.write(handle, scan.data[scan.tail : segment.bytes], scan.tail)
                self._folder.sync(handle)
            finally:
                self._folder.close(handle)
        if segment.bytes or not scan.covered:
            if self._segments and self._segments[-1].first == segment.first:
                self._segments.pop()
            self._segments.append(segment)

    def _continues(self, scan: _SegmentScan, name: str, found: FoundFrame, head: FrameHead) -> bool:
        """Deal with a frame that has not the next number. False if the log ends before it."""
        if head.sequence < self._next:
            if head.next <= self._next and self._covers(head):
                scan.covered = True
                scan.skip()
            else:
                scan.set_aside(found, f"a frame of the records {head.sequence} to {head.next - 1}, which are there already")
            return True
        if self._marked and self._next >= self._floor:
            self._end_at(name, found, len(scan.data))
            return False
        end = min(head.sequence, self._floor) if self._marked else head.sequence
        scan.lose(LostRange(self._next, end, DAMAGED))
        self._next = end
        if end < head.sequence:
            self._end_at(name, found, len(scan.data))
            return False
        return True

    def _covers(self, head: FrameHead) -> bool:
        """Whether records are already reported as lost."""
        before = self._segments[-1] if self._segments else None
        return (
            before is not None
            and before.first <= head.sequence
            and sum(each.next - each.first for each in before.lost) == before.next - before.first
        )

    def _keep(self, scan: _SegmentScan, found: FoundFrame, head: FrameHead) -> None:
        if self._marked and head.sequence >= self._floor:
            scan.tail = min(scan.tail, found.start)
        scan.keep(found, head)
        self._next = head.next
        if head.origin.identity and head.sequence >= self._at:
            self._positions.pop(head.origin.identity, None)
            self._positions[head.origin.identity] = head.origin
        if head.kind == "lost":
            scan.segment.lost.append(LostRange(head.sequence, head.next, _reason(scan.data, found)))

    def _end_at(self, name: str, found: FoundFrame, size: int) -> None:
        """The log ends before this frame."""
        self._cut = True
        self._faults.append(self._torn(name, found, size))

    def _torn(self, name: str, found: FoundFrame, size: int) -> str:
        what = found.fault or f"the record {self._next} is missing"
        where = f"{self._folder.path / name}, byte {found.start:,}"
        return f"{where}: {what}: the torn tail of {size - found.start:,} bytes, which was never durable, is cut"

    def _where(self, first: int) -> str:
        return str(self._folder.path / segment_name(first))


def _reason(data: bytes, found: FoundFrame) -> str:
    try:
        return payload_of(data, found).decode(errors="replace")
    except BadFrame:
        return DAMAGED


class _SegmentScan:
    """One segment while its frames are looked at: what stays, and what does not."""

    def __init__(self, *, first: int, data: bytes) -> None:
        self.data = data
        self.segment = WalSegment(first, first)
        self.parts: list[slice | bytes] = []
        """what the file becomes if it is repaired"""
        self.damaged: list[tuple[FoundFrame, str]] = []
        self.missing: list[LostRange] = []
        self.repaired = False
        self.covered = False
        """True if it has frames whose records the segment before reports as lost"""
        self.tail = len(data)
        """where the bytes begin that may not be durable"""
        self._kept_from = self._kept_to = 0

    def keep(self, found: FoundFrame, head: FrameHead) -> None:
        if found.start != self._kept_to:
            self._end_run()
            self._kept_from = found.start
        self._kept_to = found.end
        self.segment.add(head.count, found.end - found.start, head.time_ms)

    def skip(self) -> None:
        self.repaired = True

    def set_aside(self, found: FoundFrame, why: str) -> None:
        self.repaired = True
        self.damaged.append((found, why))

    def lose(self, lost: LostRange) -> None:
        self.repaired = True
        self._end_run()
        self._kept_from = self._kept_to
        self.missing.append(lost)
        self.segment.lost.append(lost)
        for head, frame in lost_frames([lost], self.segment.newest_ms):
            self.parts.append(frame)
            self.segment.add(head.count, len(frame), head.time_ms)

    def end(self) -> None:
        self._end_run()

    def _end_run(self) -> None:
        if self._kept_to > self._kept_from:
            self.parts.append(slice(self._kept_from, self._kept_to))
        self._kept_from = self._kept_to

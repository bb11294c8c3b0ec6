"""What a log promises, in plain Python: a list of frames, of which a crash may take those at the end that were not durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from scribengin.core.errors import EnvironmentFault
from scribengin.wal.log import Wal, WalFull
from scribengin.wal.recovery import DAMAGED
from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame, find_frames, payload_of
from tests.wal.simulated_disk import SimulatedDisk, Stopped

FILES = 3
MOST_BYTES, SEGMENT_BYTES = 4000, 700


@dataclass
class Written:
    """A frame that was appended."""

    head: FrameHead
    frame: bytes


def made_frame(sequence: int, count: int, payload: bytes, origin: FrameOrigin, kind: str = "records") -> Written:
    head = FrameHead("records", "none", sequence, count, len(payload), sequence * 10, origin=origin)
    return Written(head, encode_frame(head, payload))


@dataclass
class LogModel:
    """A log, beside the list of what must be in it. `act` does one thing to both, and checks that they agree."""

    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    sync: str = "each"
    frames: list[Written] = field(default_factory=list)
    promised: int = 0
    """the largest `durable`"""
    read_to: int = 0
    """the number after the last record that `read` has returned"""
    acknowledged: int = 0
    droppable: int = 0
    """only records before it may be lost"""
    incarnation: str = ""
    made: int = 0
    wal: Wal | None = None
    now_s: float = 0.0

    def open(self) -> Wal:
        self.wal = Wal(Path("/log"), most_bytes=MOST_BYTES, segment_bytes=SEGMENT_BYTES, sync=self.sync, files=self.disk)
        assert self.incarnation in ("", self.wal.incarnation)
        self.incarnation = self.wal.incarnation
        return self.wal

    def open_after_crashes(self, power: bool, again: int, seed: int) -> None:
        """Open it, and let the recovery be stopped too, so many steps after its begin."""
        self.disk.stop_after = again
        try:
            self.open()
        except Stopped:
            self.disk.crash(power=power, seed=seed)
            self.open()
        self.disk.stop_after = None

    def next(self) -> int:
        return self.frames[-1].head.next if self.frames else 0

    def append(self, size: int, count: int, file: int) -> None:
        assert self.wal is not None
        self.made += 1
        sequence = self.next()
        assert sequence == self.wal.next
        assert sequence >= self.read_to
        ends = [each.head.origin.end for each in self.frames if each.head.origin.identity == str(file)]
        begin = ends[-1] if ends else 0
        payload = Random(self.made).randbytes(size)
        origin = FrameOrigin(file=f"/var/log/{file}", identity=str(file), offset=begin, end=begin + self.made)
        written = made_frame(sequence, count, payload, origin)
        try:
            self.frames.append(written)
            self.wal.append(written.frame, written.head)
        except (WalFull, OSError):
            self.frames.pop()
            assert self.wal.next == sequence

    def make_durable(self, *, force: bool) -> None:
        assert self.wal is not None
        self.now_s += 0.07
        try:
            self.promised = max(self.promised, self.wal.sync(now_s=self.now_s, force=force))
        except EnvironmentFault:
            assert self.wal.durable < self.wal.next
        else:
            assert not force or self.wal.durable == self.wal.next

    def read(self, part: float, most_bytes: int) -> None:
        assert self.wal is not None
        at = int(self.acknowledged + part * (self.wal.durable - self.acknowledged))
        piece = self.wal.read(at, most_bytes)
        if at >= self.wal.durable:
            assert piece is None
            return
        assert piece is not None
        assert piece.sequence <= max(at, self.lowest()) < piece.next <= self.wal.durable
        self.check_piece(piece.bytes, piece.sequence, piece.next, most_bytes)
        self.read_to = max(self.read_to, piece.next)

    def lowest(self) -> int:
        assert self.wal is not None
        return self.wal._segments[0].first

    def check_piece(self, data: bytes, sequence: int, end: int, most_bytes: int = 2**30) -> set[int]:
        """Returns the numbers that are lost."""
        by_number = {each.head.sequence: each for each in self.frames}
        frames = list(find_frames(data))
        assert len(data) <= most_bytes or len(frames) == 1
        lost: set[int] = set()
        for found in frames:
            assert found.head is not None, found.fault
            assert found.head.sequence == sequence
            sequence = found.head.next
            if found.head.kind == "lost":
                assert payload_of(data, found) != DAMAGED.encode()
                assert sequence <= self.droppable
                lost.update(range(found.head.sequence, sequence))
            else:
                assert data[found.start : found.end] == by_number[found.head.sequence].frame
        assert sequence == end
        return lost

    def lost_numbers(self) -> set[int]:
        """All that is not acknowledged and lost; reads everything."""
        assert self.wal is not None
        at, lost = self.wal.acknowledged, set[int]()
        while (piece := self.wal.read(at, 1000)) is not None:
            assert piece.sequence <= max(at, self.lowest())
            lost |= self.check_piece(piece.bytes, piece.sequence, piece.next, 1000)
            at = piece.next
        assert at >= self.wal.durable
        return {number for number in lost if number >= self.wal.acknowledged}

    def acknowledge(self, part: float) -> None:
        assert self.wal is not None
        self.acknowledged = max(self.acknowledged, int(part * self.wal.durable))
        self.wal.acknowledge(self.acknowledged)
        assert self.wal.acknowledged == self.acknowledged

    def drop(self, count: int) -> None:
        assert self.wal is not None
        before, size = self.lost_numbers(), self.wal.size
        before_droppable, self.droppable = self.droppable, max(self.droppable, self.next())
        try:
            records = self.wal.drop_oldest(count)
        except EnvironmentFault:
            return
        self.promised = max(self.promised, self.wal.durable)
        assert records == len(self.lost_numbers() - before)
        assert self.wal.size <= size
        if not records:
            self.droppable = before_droppable

    def crash(self, *, power: bool, again: int, seed: int, unsure: int) -> None:
        """The process or the machine stops, and the log is opened again. `unsure` frames at the end were being appended."""
        assert self.wal is not None
        self.promised = max(self.promised, self.wal.durable)
        last_appended = self.frames[-1 - unsure].head.next if len(self.frames) > unsure else 0
        self.disk.failing_syncs = 0
        self.disk.capacity = None
        self.disk.crash(power=power, seed=seed)
        self.open_after_crashes(power, again, seed + 1)
        assert self.wal.next >= (self.promised if power else last_appended)
        while self.frames and self.frames[-1].head.next > self.wal.next:
            self.frames.pop()
        self.check_all()
        self.acknowledged = self.wal.acknowledged

    def check_all(self) -> None:
        wal = self.wal
        assert wal is not None
        assert wal.next == wal.durable == self.next() >= self.read_to
        self.promised = wal.durable
        assert wal.acknowledged <= min(self.acknowledged, wal.durable)
        newest = {each.head.origin.identity: each.head.origin for each in self.frames}
        assert wal.positions == newest
        assert wal.size == sum(len(self.disk.files[each.name].cache) for each in wal._segments)
        assert wal.size <= MOST_BYTES
        self.lost_numbers()
        assert not [fault for fault in wal.faults if "reported as lost" in fault or "set aside" in fault]

    def close(self) -> None:
        assert self.wal is not None
        acknowledged = self.wal.acknowledged
        try:
            self.wal.close()
        except EnvironmentFault:
            return self.crash(power=False, again=1000, seed=0, unsure=0)
        assert not self.disk.handles
        self.open()
        assert self.wal.faults == []
        assert self.wal.acknowledged == acknowledged
        return self.check_all()

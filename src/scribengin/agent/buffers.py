"""Where the frames of one lane are between its input and a gateway: one kind for each durability.

- `LogBuffer` (`end_to_end`): in the write-ahead log until they are committed.
- `SpillBuffer` (`store_on_failure`): in memory until they are stored; in the log while no gateway takes them, or they do not fit in memory.
- `MemoryBuffer` (`best_effort`): in memory until they are stored; what does not fit is dropped, and its numbers are sent as a lost frame.
"""

from __future__ import annotations

import errno
import secrets
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Protocol

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.storage import read_or_none, replace
from scribengin.wal.log import WalFull
from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame, find_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scribengin.wal.log import Wal

MEMORY_BYTES = 16 * 2**20
"""the most that a lane keeps in memory, compressed"""
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_MOST_POSITIONS = 20_000
_MOST_COUNT = 2**32 - 1
_SAVE_S = 1.0
_AGE_STEP_MS = 1_000


class NoRoom(Exception):
    """A frame does not fit now; the text says why. Nothing has changed: add it again later."""


@dataclass(frozen=True, slots=True)
class FramesPiece:
    """Whole frames: records from `sequence` to before `next`."""

    data: bytes
    sequence: int
    next: int


class LaneBuffer(Protocol):
    """Frames in the order of their numbers. One thread adds and syncs; another takes pieces, and reports what is stored and committed."""

    incarnation: str

    @property
    def dropped(self) -> int:
        """Records that were given up because there was no room for them."""

    @property
    def first(self) -> int:
        """The oldest number that is kept; all before it need not be sent again."""

    @property
    def next(self) -> int:
        """The number of the next record that will be added."""

    @property
    def sendable(self) -> int:
        """The numbers before it may be sent."""

    @property
    def waiting_bytes(self) -> int:
        """The bytes of what is kept."""

    @property
    def oldest_ms(self) -> int:
        """When the oldest record that is kept was read, about; 0 if there is none."""

    def positions(self) -> Mapping[str, FrameOrigin]:
        """Identity → the origin of its newest frame that this buffer has, or had."""

    def add(self, frame: bytes, head: FrameHead, done: Sequence[Callable[[], None]]) -> None:
        """Keep a frame; `done` is called when it is as safe as the durability of the lane promises. Raises NoRoom."""

    def sync(self, now_s: float, *, force: bool = False) -> None:
        """Make durable what is to be, by the policy of the lane; everything, with `force`. Raises NoRoom."""

    def piece(self, sequence: int, most_bytes: int) -> FramesPiece | None:
        """Frames from the one with that number on, at least one; None if there is none to be sent yet."""

    def stored(self, next: int) -> None:
        """Gateways have stored the numbers before it."""

    def committed(self, next: int) -> None:
        """The last tiers have committed the numbers before it."""

    def gateways_failed(self) -> None:
        """No gateway takes frames now."""

    def gateways_work(self) -> None:
        """A gateway takes frames."""

    def close(self) -> None:
        """Release files; what is durable stays."""


class _Callbacks:
    """What to call when numbers are safe, in their order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Sequence[Callable[[], None]]]] = deque()

    def put(self, next: int, done: Sequence[Callable[[], None]]) -> None:
        if done:
            self._waiting.append((next, done))

    def safe(self, next: int) -> None:
        while self._waiting and self._waiting[0][0] <= next:
            for call in self._waiting.popleft()[1]:
                call()


class _Ages:
    """When numbers were read: one entry for about each second, enough to say how old the oldest is."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()

    def put(self, next: int, time_ms: int) -> None:
        if self._marks and time_ms - self._marks[-1][1] < _AGE_STEP_MS:
            self._marks[-1] = (next, self._marks[-1][1])
        else:
            self._marks.append((next, time_ms))

    def oldest(self, first: int) -> int:
        while self._marks and self._marks[0][0] <= first:
            self._marks.popleft()
        return self._marks[0][1] if self._marks else 0


class LogBuffer:
    """Keeps frames in a write-ahead log.

    Args:
        log: The log; the buffer closes it.
        drop_oldest: What to do when the log is full: drop its oldest frames, or wait.
        free_at_stored: Free what gateways have stored, without waiting for commits: for the rest of an earlier `store_on_failure`.
    """

    def __init__(self, log: Wal, *, drop_oldest: bool = False, free_at_stored: bool = False) -> None:
        self.incarnation = log.incarnation
        self.dropped = 0
        self._log = log
        self._drop_oldest = drop_oldest
        self._free_at_stored = free_at_stored
        self._done = _Callbacks()
        self._ages = _Ages()
        if log.acknowledged < log.next and (piece := log.read(log.acknowledged, 1)) is not None:
            for found in find_frames(piece.bytes):
                if found.head is not None:
                    self._ages.put(log.next, found.head.time_ms)
                    break

    @property
    def first(self) -> int:
        """What is not acknowledged, which is: not committed."""
        return self._log.acknowledged

    @property
    def next(self) -> int:
        """Of the log."""
        return self._log.next

    @property
    def sendable(self) -> int:
        """What is durable: a number that a gateway has seen never gets another record."""
        return self._log.durable

    @property
    def waiting_bytes(self) -> int:
        """The size of the log; 0 if all of it is acknowledged."""
        return self._log.size if self._log.acknowledged < self._log.next else 0

    @property
    def oldest_ms(self) -> int:
        """From a list with one entry a second."""
        return self._ages.oldest(self._log.acknowledged)

    def positions(self) -> Mapping[str, FrameOrigin]:
        """Those of the log."""
        return dict(self._log.positions)

    def add(self, frame: bytes, head: FrameHead, done: Sequence[Callable[[], None]]) -> None:
        """Append to the log. Raises NoRoom if the log or the disk is full."""
        try:
            self._append(frame, head)
        except NoRoom:
            # room comes from commits: nothing that waits for them may wait for a later sync
            with suppress(NoRoom):
                self.sync(time.monotonic(), force=True)
            raise
        self._done.put(head.next, done)
        self._ages.put(head.next, head.time_ms)

    def _append(self, frame: bytes, head: FrameHead) -> None:
        try:
            self._log.append(frame, head)
        except WalFull as error:
            if not self._drop_oldest:
                raise NoRoom("the write-ahead log is full: reading waits until its records are committed") from error
            self._make_room(frame, head, error)
        except OSError as error:
            raise _no_space(error) from error

    def _make_room(self, frame: bytes, head: FrameHead, error: WalFull) -> None:
        try:
            self.dropped += self._log.drop_oldest(max(len(frame), 1024 * 1024))
            self._log.append(frame, head)
        except WalFull:
            raise NoRoom("the write-ahead log is full, and nothing in it can be dropped: reading waits") from error
        except EnvironmentFault as fault:
            raise NoRoom(f"{fault.message}: reading waits; {fault.remedy}") from fault
        except OSError as full:
            raise _no_space(full) from full

    def sync(self, now_s: float, *, force: bool = False) -> None:
        """Sync the log by its policy, and call what waits for that."""
        try:
            durable = self._log.sync(now_s=now_s, force=force)
        except EnvironmentFault as error:  # the next call writes it again
            raise NoRoom(f"{error.message}: reading waits; {error.remedy}") from error
        self._done.safe(durable)

    def piece(self, sequence: int, most_bytes: int) -> FramesPiece | None:
        """From the log."""
        if sequence >= self._log.durable:
            return None
        piece = self._log.read(sequence, most_bytes)
        return None if piece is None else FramesPiece(piece.bytes, piece.sequence, piece.next)

    def stored(self, next: int) -> None:
        """Changes nothing, unless stored records need not be kept."""
        if self._free_at_stored:
            self._acknowledge(next)

    def committed(self, next: int) -> None:
        """Free the log up to there."""
        self._acknowledge(next)

    def _acknowledge(self, next: int) -> None:
        next = min(next, self._log.durable)
        if next > self._log.acknowledged:
            self._log.acknowledge(next)

    def gateways_failed(self) -> None:
        """All is in the log already."""

    def gateways_work(self) -> None:
        """All is in the log already."""

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def _no_space(error: OSError) -> Exception:
    """NoRoom for a full disk, to be tried again; other errors of the disk as they are."""
    if error.errno in _FULL_DISK:
        return NoRoom(f"{error.strerror} in the folder of the agent: reading waits. Free some, or lower `spill_bytes` of the source")
    return error


class PositionFile:
    """Identity → the origin of its newest frame that needs not be read again, in a file, for lanes whose log does not have all frames."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = False
        self._saved_at = 0.0
        self.positions: dict[str, FrameOrigin] = {}
        try:
            self.positions = msgspec.json.decode(read_or_none(path) or b"{}", type=dict[str, FrameOrigin])
        except msgspec.MsgspecError:
            path.replace(path.with_name(path.name + ".damaged"))

    def put(self, origin: FrameOrigin) -> None:
        """The records of that origin need not be read again."""
        if origin.identity:
            self.positions.pop(origin.identity, None)
            self.positions[origin.identity] = origin
            self._changed = True

    def save(self, now_s: float, *, force: bool = False) -> None:
        """Write the file if it is old."""
        if self._changed and (force or now_s - self._saved_at >= _SAVE_S):
            while len(self.positions) > _MOST_POSITIONS:
                del self.positions[next(iter(self.positions))]
            replace(self._path, msgspec.json.encode(self.positions))
            self._changed, self._saved_at = False, now_s


@dataclass(slots=True)
class _Kept:
    """A frame in memory, or, without bytes, a run of dropped records."""

    head: FrameHead
    frame: bytes | None
    done: Sequence[Callable[[], None]] = field(default_factory=tuple)


class MemoryBuffer:
    """Keeps frames in memory and drops what does not fit.

    Args:
        positions: Where positions of stored records are saved.
        most_bytes: The most to keep.
    """

    def __init__(self, positions: PositionFile, *, most_bytes: int = MEMORY_BYTES) -> None:
        self.incarnation = secrets.token_hex(16)
        self.dropped = 0
        self._most = most_bytes
        self._positions = positions
        self._lock = RLock()
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._first = self._next = 0

    @property
    def first(self) -> int:
        """What is not stored."""
        return self._first

    @property
    def next(self) -> int:
        """After all that was added or dropped."""
        return self._next

    @property
    def sendable(self) -> int:
        """All."""
        return self._next

    @property
    def waiting_bytes(self) -> int:
        """In memory."""
        return self._bytes

    @property
    def oldest_ms(self) -> int:
        """Of the oldest frame."""
        with self._lock:
            return self._kept[0].head.time_ms if self._kept else 0

    def positions(self) -> Mapping[str, FrameOrigin]:
        """Those of the file, and of what is kept."""
        with self._lock:
            return _with_kept(self._positions.positions, self._kept)

    def add(self, frame: bytes, head: FrameHead, done: Sequence[Callable[[], None]]) -> None:
        """Keep a frame, or drop it."""
        with self._lock:
            self._next = head.next
            if self._bytes + len(frame) <= self._most:
                self._kept.append(_Kept(head, frame, done))
                self._bytes += len(frame)
                return
            self.dropped += head.count
            last = self._kept[-1] if self._kept else None
            if last is not None and last.frame is None and last.head.count + head.count <= _MOST_COUNT:
                self._kept[-1] = _Kept(_lost(last.head.sequence, last.head.count + head.count, head), None)
            else:
                self._kept.append(_Kept(_lost(head.sequence, head.count, head), None))
        for call in done:
            call()

    def sync(self, now_s: float, *, force: bool = False) -> None:
        """Save positions."""
        with self._lock:
            self._positions.save(now_s, force=force)

    def piece(self, sequence: int, most_bytes: int) -> FramesPiece | None:
        """From memory. A run of dropped records that was sent once never grows: its numbers are known to a gateway."""
        with self._lock:
            return _piece_of(self._kept, sequence, most_bytes)

    def stored(self, next: int) -> None:
        """Forget what is stored."""
        done: list[Callable[[], None]] = []
        with self._lock:
            while self._kept and self._kept[0].head.next <= next:
                kept = self._kept.popleft()
                if kept.head.kind != "lost":
                    self._bytes -= len(kept.frame or b"")
                self._first = kept.head.next
                self._positions.put(kept.head.origin)
                done += kept.done
        for call in done:
            call()

    def committed(self, next: int) -> None:
        """What is stored is not waited for."""

    def gateways_failed(self) -> None:
        """Memory is all there is."""

    def gateways_work(self) -> None:
        """Memory is all there is."""

    def close(self) -> None:
        """Save positions. What is in memory is given up; inputs that can read it again do."""
        self.sync(time.monotonic(), force=True)


class SpillBuffer:
    """Keeps frames in memory, and in a log while no gateway takes them. What the log has is sent first: it is older.

    Args:
        log: An empty log, made for this buffer: its incarnation is this one's.
        positions: Where positions of records are saved that are stored, or in the log.
        drop_oldest: What to do when the log is full.
        most_bytes: The most to keep in memory.
    """

    def __init__(self, log: Wal, positions: PositionFile, *, drop_oldest: bool, most_bytes: int = MEMORY_BYTES) -> None:
        self.incarnation = log.incarnation
        self._spilled = LogBuffer(log, drop_oldest=drop_oldest, free_at_stored=True)
        self._log = log
        self._positions = positions
        self._most = most_bytes
        self._lock = RLock()
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._first = self._next = 0
        self._failing = False
        self._unsynced: deque[FrameHead] = deque()

    @property
    def dropped(self) -> int:
        """From the log, when it was full."""
        return self._spilled.dropped

    @property
    def first(self) -> int:
        """What is not stored."""
        return self._first

    @property
    def next(self) -> int:
        """After all that was added."""
        return self._next

    @property
    def sendable(self) -> int:
        """What is in memory, or durable in the log."""
        with self._lock:
            return self._spilled.sendable if self._in_log() else self._next

    @property
    def waiting_bytes(self) -> int:
        """In memory and in the log."""
        return self._bytes + self._spilled.waiting_bytes

    @property
    def oldest_ms(self) -> int:
        """Of the log, or else of the oldest frame in memory."""
        with self._lock:
            return self._spilled.oldest_ms or (self._kept[0].head.time_ms if self._kept else 0)

    def positions(self) -> Mapping[str, FrameOrigin]:
        """Those of the file, of the log, and of what is kept."""
        with self._lock:
            return _with_kept(self._positions.positions | {head.origin.identity: head.origin for head in self._unsynced}, self._kept)

    def add(self, frame: bytes, head: FrameHead, done: Sequence[Callable[[], None]]) -> None:
        """Keep a frame in memory, or append it to the log. Raises NoRoom."""
        with self._lock:
            if self._failing or self._in_log() or self._bytes + len(frame) > self._most:
                self._spill()
                self._append(_Kept(head, frame, done))
            else:
                self._kept.append(_Kept(head, frame, done))
                self._bytes += len(frame)
            self._next = head.next

    def sync(self, now_s: float, *, force: bool = False) -> None:
        """Put into the log what is in memory while no gateway takes it, or with `force`; sync the log, and save positions."""
        with self._lock:
            if self._failing or force:
                self._spill()
            if self._log.durable < self._log.next:
                self._spilled.sync(now_s, force=force)
                while self._unsynced and self._unsynced[0].next <= self._log.durable:
                    self._positions.put(self._unsynced.popleft().origin)
            self._positions.save(now_s, force=force)

    def piece(self, sequence: int, most_bytes: int) -> FramesPiece | None:
        """From the log if it has any, else from memory."""
        with self._lock:
            if self._in_log():
                return self._spilled.piece(sequence, most_bytes)
            return _piece_of(self._kept, sequence, most_bytes)

    def stored(self, next: int) -> None:
        """Forget what is stored."""
        done: list[Callable[[], None]] = []
        with self._lock:
            next = min(next, self.sendable)
            self._first = max(self._first, next)
            self._spilled.stored(next)
            while self._kept and self._kept[0].head.next <= next:
                kept = self._kept.popleft()
                self._bytes -= len(kept.frame or b"")
                self._positions.put(kept.head.origin)
                done += kept.done
        for call in done:
            call()

    def committed(self, next: int) -> None:
        """What is stored is not waited for."""

    def gateways_failed(self) -> None:
        """The next sync puts what is in memory into the log."""
        self._failing = True

    def gateways_work(self) -> None:
        """Memory is enough, once the log is empty."""
        self._failing = False

    def close(self) -> None:
        """Put into the log what is in memory, and close it."""
        try:
            self.sync(time.monotonic(), force=True)
        finally:
            self._spilled.close()

    def _in_log(self) -> bool:
        return self._log.acknowledged < self._log.next

    def _spill(self) -> None:
        while self._kept:
            self._append(self._kept[0])
            self._bytes -= len(self._kept.popleft().frame or b"")

    def _append(self, kept: _Kept) -> None:
        assert kept.frame is not None
        if self._log.next < kept.head.sequence:
            self._pass_over(kept.head)
        self._spilled.add(kept.frame, kept.head, kept.done)
        self._unsynced.append(kept.head)

    def _pass_over(self, head: FrameHead) -> None:
        """Numbers that were sent from memory are stored, but a log has no gaps: a frame stands for them which is freed at once. Should a
        crash bring it back, gateways drop it, because they have stored these numbers."""
        while self._log.next < head.sequence:
            gap = _lost(self._log.next, min(_MOST_COUNT, head.sequence - self._log.next), head, b"sent from memory", origin=FrameOrigin())
            try:
                self._log.append(encode_frame(gap, b"sent from memory"), gap)
            except WalFull as error:
                self._spilled.sync(time.monotonic(), force=True)
                raise NoRoom("the write-ahead log is full: reading waits until a gateway has its records") from error
            except OSError as error:
                raise _no_space(error) from error
        self._spilled.sync(time.monotonic(), force=True)
        self._log.acknowledge(head.sequence)


_LOST = b"dropped at the agent: no gateway took them in time, and memory was full (best_effort)"


def _lost(sequence: int, count: int, head: FrameHead, reason: bytes = _LOST, *, origin: FrameOrigin | None = None) -> FrameHead:
    return FrameHead(
        kind="lost",
        codec="none",
        sequence=sequence,
        count=count,
        raw_bytes=len(reason),
        time_ms=head.time_ms,
        origin=head.origin if origin is None else origin,
    )


def _with_kept(positions: Mapping[str, FrameOrigin], kept: deque[_Kept]) -> dict[str, FrameOrigin]:
    """The positions after all that is kept."""
    return {**positions, **{each.head.origin.identity: each.head.origin for each in kept}}


def _piece_of(kept: deque[_Kept], sequence: int, most_bytes: int) -> FramesPiece | None:
    frames: list[bytes] = []
    size, first, last = 0, sequence, sequence
    for each in kept:
        if each.head.next <= sequence:
            continue
        if each.frame is None:
            each.frame = encode_frame(each.head, _LOST)
        if frames and size + len(each.frame) > most_bytes:
            break
        if not frames:
            first = each.head.sequence
        frames.append(each.frame)
        size, last = size + len(each.frame), each.head.next
    return FramesPiece(b"".join(frames), first, last) if frames else None

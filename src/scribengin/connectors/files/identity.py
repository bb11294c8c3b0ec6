"""The identity of a growing file, independent of its name.

The read part of a file is identified by a `ContentMark`: hashes of its first bytes and of the bytes before the read position. A mark has a
few dozen bytes and costs two short reads. It distinguishes a file that has grown from one that was truncated and rewritten, and a copy or a
renamed file from a new one. This module needs only the standard library.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WINDOW = 4096
"""number of bytes that a mark covers at the start of a file, and before the read position"""
_STEPS = (64, 256, 1024)
"""lengths of prefixes that have their own hashes, so that a file shorter than the read part can be compared too"""
FIXED = frozenset((*_STEPS, WINDOW))
"""lengths of prefixes for which every mark of at least that many bytes has a hash"""


ANY_DEVICE = -1
"""the device of a file that was recorded before devices were stored"""


class FileStatus(NamedTuple):
    """The result of `stat` for a file, as far as it distinguishes it from other files and from its own earlier state."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @staticmethod
    def of(found: os.stat_result) -> FileStatus:
        """The status from a result of `stat` or `fstat`."""
        return FileStatus(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def is_file_of(self, other: FileStatus) -> bool:
        """True if both have the same device and inode: the same file, unless the inode was reused."""
        return self.inode == other.inode and (self.device == other.device or ANY_DEVICE in (self.device, other.device))


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def steps_of(end: int) -> tuple[int, ...]:
    """The lengths of the prefixes whose hashes the mark of `end` bytes contains, the longest last."""
    return (*(step for step in _STEPS if step < end), min(end, WINDOW))


class Head:
    """The first bytes of a content, at most `WINDOW`; hashes of its prefixes, each computed once."""

    def __init__(self, data: bytes) -> None:
        self.data = data[:WINDOW]
        self._hashes: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.data)

    def hash(self, length: int) -> str:
        """The hash of the first `length` bytes, or of all if there are fewer."""
        found = self._hashes.get(length)
        if found is None:
            found = self._hashes[length] = _hash(self.data[:length])
        return found

    def hashes(self, end: int) -> tuple[str, ...]:
        """The hashes for `ContentMark.head` of a content of which `end` bytes were read."""
        return tuple(self.hash(step) for step in steps_of(end))


@dataclass(frozen=True, slots=True)
class ContentMark:
    """Identifies the first `end` bytes of a content. `head`: hashes of its prefixes of `steps_of(end)` bytes; `tail`: hash of at most
    `WINDOW` bytes before `end`. Two contents with equal marks are considered equal up to there."""

    end: int
    head: tuple[str, ...]
    tail: str

    def as_json(self) -> list[Any]:
        """The mark in the form of a log."""
        return [self.end, list(self.head), self.tail]

    @staticmethod
    def from_json(data: Sequence[Any]) -> ContentMark:
        """The mark from the form that `as_json` wrote."""
        end, head, tail = data
        return ContentMark(end, tuple(head), tail)

    def begins_as(self, head: Head) -> bool:
        """False if a content with this beginning certainly differs from the marked one within their common length; True if it may be the
        same. With fewer bytes than the shortest step nothing can be compared."""
        return all(head.hash(step) == known for step, known in zip(steps_of(self.end), self.head, strict=True) if step <= len(head))

    def begins_alike(self, head: Head) -> bool:
        """True if a content with this beginning has at least the first `_STEPS[0]` bytes in common with the marked one."""
        steps = steps_of(self.end)
        return steps[0] == _STEPS[0] <= len(head) and head.hash(steps[0]) == self.head[0]


class OpenFile:
    """A file that is open for reading, by its descriptor: its name may be given to another file meanwhile."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._head: Head | None = None

    def status(self) -> FileStatus:
        """The current status of the file."""
        return FileStatus.of(os.fstat(self.descriptor))

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, fewer if the file ends before."""
        gathered = b""
        while start + len(gathered) < end and (data := os.pread(self.descriptor, end - start - len(gathered), start + len(gathered))):
            gathered += data
        return gathered

    def reader(self) -> IO[bytes]:
        """A stream from the start of the file; one at a time."""
        file = os.fdopen(os.dup(self.descriptor), "rb", buffering=0)
        file.seek(0)
        return file

    def head(self) -> Head:
        """The first bytes. They are read once, or again while there are fewer than a mark covers."""
        if self._head is None or len(self._head) < WINDOW:
            self._head = Head(self.read(0, WINDOW))
        return self._head

    def tail(self, end: int) -> str | None:
        """The hash of the bytes before `end`; None if the file ends before it."""
        start = max(0, end - WINDOW)
        data = self.read(start, end)
        return _hash(data) if len(data) == end - start else None

    def mark(self, end: int) -> ContentMark | None:
        """The mark of the first `end` bytes; None if there are fewer."""
        tail = self.tail(end)
        return None if tail is None else ContentMark(end, self.head().hashes(end), tail)

    def holds(self, mark: ContentMark) -> bool:
        """True if the file begins with the marked content."""
        head = self.head()
        if len(head) < min(mark.end, WINDOW) or head.hash(min(mark.end, WINDOW)) != mark.head[-1]:
            return False
        return self.tail(mark.end) == mark.tail

    def same_until(self, other: OpenFile, end: int) -> bool:
        """True if the first `end` bytes of both are equal, as far as their marks show."""
        return (mark := self.mark(end)) is not None and other.holds(mark)


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of reading a content that can only be read from its start, such as a compressed one: its whole length, the mark of all of
    it, and those of the given marks that it begins with."""

    length: int
    mark: ContentMark
    holds: tuple[ContentMark, ...]


def scan(chunks: Iterable[bytes], marks: Sequence[ContentMark]) -> Scanned:
    """Read a content to its end, in bounded memory, and find those of `marks` that it begins with."""
    head, window, length = b"", b"", 0
    waiting = sorted(marks, key=lambda mark: mark.end)
    holds: list[ContentMark] = []
    for chunk in chunks:
        if len(head) < WINDOW:
            head += chunk[: WINDOW - len(head)]
        reach = window + chunk
        begin = length - len(window)
        length += len(chunk)
        while waiting and waiting[0].end <= length:
            mark = waiting.pop(0)
            tail = reach[max(0, mark.end - WINDOW) - begin : mark.end - begin]
            if _hash(tail) == mark.tail and _hash(head[: min(mark.end, WINDOW)]) == mark.head[-1]:
                holds.append(mark)
        window = reach[-WINDOW:]
    return Scanned(length, ContentMark(length, Head(head).hashes(length), _hash(window)), tuple(holds))


@dataclass(frozen=True, slots=True)
class Trace:
    """The identity of a read file in a log, beside its path, size, time and inode: with it the file is found again.

    `file` is the log's name for it, independent of its path. The range that was read begins at byte `since` of its content; `mark` covers
    the content up to the end of that range, None if that was never seen (a file that was compressed from the start). `packed` covers all
    bytes of a compressed file. `copy` is the file that it is a copy of, or empty; `turn` is its number among the files that were read under
    the path.
    """

    file: str
    since: int
    device: int
    mark: ContentMark | None
    packed: ContentMark | None = None
    copy: str = ""
    turn: int = 0

    def as_json(self) -> list[Any]:
        """The trace in the form of a log."""
        marks = [None if mark is None else mark.as_json() for mark in (self.mark, self.packed)]
        return [self.file, self.since, self.device, *marks, self.copy, self.turn]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Trace:
        """The trace from the form that `as_json` wrote."""
        file, since, device, mark, packed, copy, turn = data
        return Trace(file, since, device, mark and ContentMark.from_json(mark), packed and ContentMark.from_json(packed), copy, turn)


# --- names ---

_PACKED = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz")


def unpacked_name(name: str) -> str:
    """The name without a compression suffix."""
    suffix = next((suffix for suffix in _PACKED if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


def stem(name: str) -> str:
    """The name without a compression suffix and without its last other suffix: `app` for `app.log`, `app.log` for `app.log.1.gz`."""
    name = unpacked_name(name)
    return name.rpartition(".")[0] or name


def openings(name: str) -> list[str]:
    """The prefixes of the name that end with a letter or digit before another kind of character, and the name: `app`, `app.log` and
    `app.log.1` for `app.log.1`."""
    ends = [at for at in range(1, len(name)) if name[at - 1].isalnum() and not name[at].isalnum()]
    return [*(name[:at] for at in ends), name]


def related(one: str, other: str) -> bool:
    """True if one name looks like a rotated form of the other: `app.log` and `app.log.1`, `app.log-20260302.gz`, `app-2026-03-02.log`,
    `app.1.log`; not `host1.log` and `host2.log`."""
    return stem(one) in openings(other) or stem(other) in openings(one)


def is_turn_of(name: str, live: str) -> bool:
    """True if `name` is a rotated form of the name `live`: with a number or a date after it or before its suffix, and perhaps
    compressed."""
    name = unpacked_name(name)
    start, dot, suffix = live.rpartition(".")
    for before, behind in ((live, ""), (start, dot + suffix)):
        middle = name.removeprefix(before).removesuffix(behind) if before and len(name) > len(before) + len(behind) else ""
        if f"{before}{middle}{behind}" == name and _TURN.fullmatch(middle):
            return True
    return False


_TURN = re.compile(r"[._-]\d[\d._:T-]*")

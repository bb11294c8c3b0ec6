"""Files that are followed: what identifies their contents, and how plain and compressed ones are read.

A *content* is what a file has from its creation, or from when it was truncated, to its end. It is known by device and inode, by when it
was first seen, and by a fingerprint of its first bytes, which grows with it to 1 KiB; so an inode that is used again, or a file that was
truncated, is another content, and a copy or a compressed copy of one is recognised. Positions of compressed files are those of their
decompressed content.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import google_crc32c
import msgspec

from scribengin.wire.frames import FrameOrigin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.agent.inputs.lines import RecordCutter

HEAD_BYTES = 1024
"""the largest fingerprint"""
TAIL_BYTES = 128
"""the bytes before the position that are compared before reading on"""
GZIP_MAGIC = b"\x1f\x8b\x08"
OTHER_PACKED = (".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z")
_PIECE = 64 * 1024

FileKey = tuple[int, int]
"""device and inode"""


@dataclass(slots=True, eq=False)
class FileContent:
    """What a file has from its creation, or from when it was truncated, and how far it was read."""

    key: FileKey
    born: int
    """when it was first seen, in milliseconds since 1970; of one inode, no two are equal"""
    path: str
    end: int = 0
    """the position: where the next record begins"""
    line: int = 0
    """the lines before the position; -1: unknown"""
    head_at: int = 0
    """where the fingerprint begins: behind a hole at the beginning"""
    head_bytes: int = 0
    head_crc: int = 0
    tail: bytes = b""
    """the last bytes before the position; empty: unknown"""
    followed: bool = False
    """whether a file that has it is being read"""
    latest: str = ""
    """the newest path that has led to it"""
    complete: bool = False
    """whether it was read to the end that it will ever have"""

    @property
    def identity(self) -> str:
        """The text that positions are restored by."""
        device, inode = self.key
        return f"{device:x}.{inode:x}.{self.born:x}.{self.head_at:x}.{self.head_bytes:x}.{self.head_crc:08x}"

    def has_head(self, beginning: bytes) -> bool:
        """Whether bytes that were read at `head_at` begin with the fingerprint."""
        return len(beginning) >= self.head_bytes and google_crc32c.value(beginning[: self.head_bytes]) == self.head_crc

    def take_head(self, beginning: bytes) -> bool:
        """Extend the fingerprint, to twice the bytes or more, so that a content has few identities. Returns whether it changed."""
        found = len(beginning[:HEAD_BYTES])
        if not found or (found < 2 * self.head_bytes and found < HEAD_BYTES) or found <= self.head_bytes:
            return False
        self.head_bytes, self.head_crc = found, google_crc32c.value(beginning[:found])
        return True


def content_of(identity: str, origin: FrameOrigin) -> FileContent | None:
    """The content that an origin of a frame is of; None if another input has written it."""
    try:
        device, inode, born, head_at, head_bytes, head_crc = (int(part, 16) for part in identity.split("."))
    except ValueError:
        return None
    line = origin.line + origin.lines - 1 if origin.line and origin.lines else -1
    return FileContent((device, inode), born, origin.file, origin.end, line, head_at, head_bytes, head_crc)


def restored_contents(positions: Mapping[str, FrameOrigin]) -> list[FileContent]:
    """The contents that frames are kept of, each with its newest position."""
    newest: dict[tuple[FileKey, int], FileContent] = {}
    for identity, origin in positions.items():
        content = content_of(identity, origin)
        if content is not None:
            other = newest.get((content.key, content.born))
            if other is None or (content.end, content.head_bytes) > (other.end, other.head_bytes):
                newest[content.key, content.born] = content
    return list(newest.values())


class KnownContents:
    """The contents that were read or are being read, by inode and by fingerprint."""

    def __init__(self) -> None:
        self._of_key: dict[FileKey, list[FileContent]] = {}
        self._by_head: dict[tuple[int, int], dict[int, list[FileContent]]] = {}
        self._born = 0

    def __iter__(self) -> Iterator[FileContent]:
        """The newest content of each inode."""
        return iter([max(contents, key=lambda one: one.born) for contents in self._of_key.values() if contents])

    def __contains__(self, key: FileKey) -> bool:
        return bool(self._of_key.get(key))

    def newest(self, key: FileKey) -> FileContent | None:
        """The newest content of an inode."""
        return max(self._of_key.get(key, ()), key=lambda one: one.born, default=None)

    def add(self, content: FileContent) -> None:
        """Know a content, with the fingerprint that it has."""
        self._born = max(self._born, content.born)
        self._of_key.setdefault(content.key, []).append(content)
        if content.head_bytes:
            self._with_head(content).append(content)

    def new(self, key: FileKey, path: str) -> FileContent:
        """A content that is first seen now."""
        self._born = max(self._born + 1, int(time.time() * 1000))
        content = FileContent(key, self._born, path)
        self.add(content)
        return content

    def take_head(self, content: FileContent, beginning: bytes) -> None:
        """Extend the fingerprint of a content, by bytes that were read at `head_at`."""
        before = self._with_head(content)
        if content.take_head(beginning):
            if content in before:
                before.remove(content)
            self._with_head(content).append(content)

    def forget_inode(self, content: FileContent) -> None:
        """The file is deleted: another one that has its inode is another content. Copies are still recognised."""
        contents = self._of_key.get(content.key, [])
        if content in contents:
            contents.remove(content)

    def with_head_of(self, reader: FileReader) -> Iterator[FileContent]:
        """The contents whose fingerprints a file has."""
        heads: dict[int, bytes] = {}
        for (at, length), by_crc in self._by_head.items():
            if at not in heads:
                heads[at] = reader.read(HEAD_BYTES, at)
            if len(heads[at]) >= length > 0:
                yield from by_crc.get(google_crc32c.value(heads[at][:length]), ())

    def _with_head(self, content: FileContent) -> list[FileContent]:
        return self._by_head.setdefault((content.head_at, content.head_bytes), {}).setdefault(content.head_crc, [])


class FileReader(Protocol):
    """Reads the content of an open file."""

    def read(self, size: int, at: int) -> bytes:
        """At most that many bytes from a position on."""

    def close(self) -> None:
        """Close the file."""


class PlainReader:
    """Reads a file as it is."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def read(self, size: int, at: int) -> bytes:
        """At most that many bytes from a position on."""
        return os.pread(self.descriptor, size, at)

    def data_at(self, at: int) -> int:
        """Where the first bytes after a hole begin."""
        try:
            return os.lseek(self.descriptor, at, os.SEEK_DATA)
        except OSError:
            return at

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


class GzipReader:
    """Reads a compressed file, forwards; a step backwards decompresses it from its beginning. A file that is being written can be read."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.fault = ""
        """why the rest cannot be decompressed"""
        self._restart()

    def _restart(self) -> None:
        self._packed = 0
        self._start = 0
        self._buffer = b""
        self._unzip = zlib.decompressobj(31)
        self._whole = False

    def read(self, size: int, at: int) -> bytes:
        """At most that many bytes of the decompressed content from a position on."""
        if at < self._start:
            self._restart()
        parts, found = [self._buffer[at - self._start :]], max(0, self._start + len(self._buffer) - at)
        position = self._start + len(self._buffer)
        while found < size and (piece := self._next_piece()):
            skipped = max(0, at - position)
            position += len(piece)
            if skipped < len(piece):
                parts.append(piece[skipped:])
                found += len(piece) - skipped
        self._buffer = b"".join(parts)
        self._start = at if self._buffer else position
        return self._buffer[:size] if self._start == at else b""

    @property
    def whole(self) -> bool:
        """Whether the last read has reached the end of a stream that is complete, or cannot be decompressed further."""
        return bool(self.fault) or (self._whole and not os.pread(self.descriptor, 1, self._packed))

    def _next_piece(self) -> bytes:
        while not self.fault:
            packed = self._unzip.unconsumed_tail or os.pread(self.descriptor, _PIECE, self._packed)
            if not self._unzip.unconsumed_tail:
                self._packed += len(packed)
            if not packed:
                return b""
            if self._unzip.eof:
                packed = packed.lstrip(b"\0")  # tar pads with them
                if not packed:
                    continue
                self._unzip = zlib.decompressobj(31)
            before = self._unzip.copy()
            try:
                piece = self._unzip.decompress(packed, 2**20)
            except zlib.error as error:
                self.fault = str(error)
                return _before_fault(before, packed)
            self._whole = self._unzip.eof
            if self._unzip.eof:
                self._packed -= len(self._unzip.unused_data)
            if piece:
                return piece
        return b""

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def _before_fault(unzip: Any, packed: bytes) -> bytes:
    """What can be decompressed before damaged bytes."""
    parts = []
    try:
        for at in range(0, len(packed), 64):
            parts.append(unzip.decompress(packed[at : at + 64]))  # noqa: PERF401 - those before the error count
    except zlib.error:
        pass
    return b"".join(parts)


def open_reader(path: str) -> tuple[PlainReader | GzipReader, os.stat_result]:
    """Open a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        packed = os.pread(descriptor, len(GZIP_MAGIC), 0) == GZIP_MAGIC
    except BaseException:
        os.close(descriptor)
        raise
    return GzipReader(descriptor) if packed else PlainReader(descriptor), status


@dataclass(slots=True, eq=False)
class TailedFile:
    """A file that is followed."""

    key: FileKey
    path: str
    content: FileContent
    paths: set[str] = field(default_factory=set)
    reader: PlainReader | GzipReader | None = None
    packed: bool = False
    size: int = 0
    mtime_ns: int = 0
    changed_at: float = 0.0
    moved_at: float | None = None
    """since when its first path does not lead to it"""
    flushed: bool = False
    """whether a last line without a line end may be delivered"""
    after: TailedFile | None = None
    """the file that is read before it: its predecessor of the same path"""
    copied: FileContent | None = None
    """the content that it is a copy of, until that is gone"""
    cutter: RecordCutter | None = None
    rest: bytes = b""
    """what was read and is not a whole record: it may be gone when the file is truncated"""
    long_end: int = 0
    """how far a record that is too long was searched for its end; 0: there is none"""
    queued: bool = False


@dataclass(slots=True)
class UnreadRest:
    """A content that was gone before it was read to its end, as far as known: `seen` bytes of it were there. A copy may have the rest."""

    content: FileContent
    seen: int
    until: float
    partial: bytes = b""
    cutter: RecordCutter | None = None


_ROTATED_WORDS = {"gz", "old", "bak", "backup", "prev", "orig", "copy", "save", "rotated", "archived"}
_DATE = re.compile(r"\d[\dTZ:h]*")


def likely_originals(path: str) -> list[str]:
    """The paths that a file may have had before rotation gave it this one.

    >>> likely_originals("/logs/app.log.1.gz")
    ['/logs/app.log.1', '/logs/app.log', '/logs/app']
    >>> likely_originals("/logs/app-20270101.log.gz")
    ['/logs/app-20270101.log', '/logs/app-20270101', '/logs/app', '/logs/app.log']
    >>> likely_originals("/logs/app-error.log"), likely_originals("/logs/33.log")
    (['/logs/app-error', '/logs/app'], ['/logs/33'])
    """
    folder, name = os.path.split(path)
    names = [name[: found.start()] for found in re.finditer(r"[.\-_~]", name)][::-1]
    first, *rest = re.split(r"([.\-_~]+)", name)
    words = zip(rest[::2], rest[1::2], strict=True)
    names.append(first + "".join(mark + word for mark, word in words if word not in _ROTATED_WORDS and not _DATE.fullmatch(word)))
    return [f"{folder}/{each}" for each in dict.fromkeys(names) if each and each != name]


def is_name_after(path: str, original: str) -> bool:
    """Whether a name is one that rotation gives to a file, in any folder.

    >>> [is_name_after(name, "app.log") for name in ("app.log.1", "app.log-20270101.gz", "old/app-1.log", "app-error.log", "app.log")]
    [True, True, True, False, False]
    """
    return Path(original).name in {Path(each).name for each in likely_originals(path)}


def keys_of_output() -> set[FileKey]:
    """The files that the agent itself writes its log to."""
    keys = set()
    for stream in (sys.stdout, sys.stderr):
        try:
            status = os.fstat(stream.fileno())
        except (OSError, ValueError, AttributeError):
            continue
        if stat.S_ISREG(status.st_mode):
            keys.add((status.st_dev, status.st_ino))
    return keys


def inodes_in(folder: str) -> dict[int, str]:
    """Inode → name of what is in a folder; empty if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return {entry.inode(): entry.name for entry in entries}
    except OSError:
        return {}


def read_positions(path: Path) -> dict[str, FrameOrigin]:
    """The positions that `from: end` has set at the first start of a lane: no frame has them."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, FrameOrigin])
    except (OSError, msgspec.MsgspecError):
        return {}


def write_positions(path: Path, contents: Sequence[FileContent]) -> None:
    """Keep the positions that `from: end` has set, durably: it counts only once."""
    positions = {content.identity: FrameOrigin(file=content.path, end=content.end) for content in contents}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(msgspec.json.encode(positions))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)

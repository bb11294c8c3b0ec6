"""Follows growing files through rotations: where each file is now, which bytes are new, which files are copies, and what is lost.

A rotation renames a file, copies and truncates it, compresses it, or rewrites it. At each poll the files at the paths are compared with the
known files, and each path gets a verdict. The rules are ordered from certain to likely:

1. a known file whose path still has its inode and its content has grown; 2. one that is missing at its path is where its inode is: at
another path of the source, or elsewhere in its folder; 3. otherwise where its content is: in a file that begins with everything that was
read, plain or compressed; 4. a file that begins with the read part of another existing file is a copy, and waits; 5. any other file is new,
and is read from its start.

A poll costs a `stat` for each path that is due, and a few KiB of reading if size, time or inode changed. A compressed file is read to its
end once, when it replaces a known one. This module needs only the standard library and `identity`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol
from uuid import uuid4

from scribengin.connectors.files.identity import (
    WINDOW,
    ContentMark,
    FileStatus,
    Head,
    OpenFile,
    Trace,
    is_turn_of,
    related,
    scan,
    unpacked_name,
)
from scribengin.connectors.files.known_files import Contents, KnownFile, Names, by_end

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_LONG = 1024
"""number of bytes that identify a content, whatever the file's name; the file of a shorter content must also have a similar name"""
_COARSE_NS = 50_000_000
"""in nanoseconds: a file that was modified less than this before it was checked may change again without a change of its time"""
_RECENT_NS = 3600 * 10**9
_SEARCHED_S = 60.0
"""seconds for which a file that is missing at its path is searched in its folder"""


class Packing(Protocol):
    """How compressed files are recognised and read."""

    fault: str
    """why the content that was read last is truncated; empty if it is complete"""

    def of(self, path: str) -> str:
        """The compression, by the path's name; `none` for a plain file."""

    def chunks(self, file: IO[bytes], compression: str) -> Iterator[bytes]:
        """The content, in small chunks, as far as it can be read."""


class Verdict(Enum):
    """The state of the file at a path without a known file."""

    NEW = "new"
    COPY = "copy"
    """its content is, or was, read elsewhere"""
    UNSURE = "unsure"
    """the file was truncated, and begins as before; or it is a compressed file that is not settled"""


@dataclass(slots=True)
class NewFile:
    """The file at a path without a known file. `look`: the number of the poll in which it was first seen; `since_s`: since when it
    is unchanged, monotonic."""

    path: str
    seen: FileStatus
    look: int
    since_s: float
    id: str = field(default_factory=lambda: uuid4().hex[:12])
    verdict: Verdict = Verdict.NEW
    of: KnownFile | None = None
    cut: KnownFile | None = None
    """the bytes that were read before it was truncated or rewritten"""
    outside: bool = False
    """True if it is not at one of the source's paths, but was between two polls"""
    judged: FileStatus | None = None
    head: Head | None = None
    """size of the decompressed content, for a compressed file"""
    before: KnownFile | None = None
    """the file at the path until the poll in which this one was first seen"""


@dataclass(frozen=True, slots=True)
class TruncatedFile:
    """A file that became shorter and begins as before: it is not known whether it was truncated or rewritten."""

    path: str
    before: int
    now: int


class Following:
    """The files of one source below `root`; used by one thread. Raises the OSErrors of the file system."""

    def __init__(self, root: Path, packing: Packing, is_source: Callable[[str], bool], *, settle_s: float) -> None:
        """`is_source` returns True if a path, if it exists, belongs to the source. `settle_s`: seconds after which an unchanged file counts
        as complete."""
        self._root = root
        self._packing = packing
        self._is_source = is_source
        self._settle_s = settle_s
        self._known: dict[str, KnownFile] = {}
        self.at: dict[str, KnownFile] = {}
        """path → the known file there"""
        self.new: dict[str, NewFile] = {}
        """path → the unknown file there"""
        self._lost: dict[str, KnownFile] = {}
        self._listed: set[str] = set()
        self._inodes: dict[int, list[KnownFile]] = {}
        self._contents = Contents()
        self._names = Names()
        self._looks = 0
        self._searching: dict[str, KnownFile] = {}
        self._left: list[tuple[KnownFile, str]] = []
        """files that were renamed to a name outside the source, with their last name inside"""
        self._vanished: list[NewFile] = []
        """non-empty files of which nothing was read, and that are not at their paths any more"""
        self._unplaced: deque[str] = deque()
        self._unsaved: dict[str, KnownFile] = {}
        self.behind: dict[str, KnownFile] = {}
        """path → known file there with unread bytes"""
        self._turns: dict[str, dict[str, int]] = {}
        """path → the number of each file of which something was read under that path"""
        self.notices: list[str] = []
        self.rewritten: list[str] = []
        """paths of files that were rewritten, not appended to, and are read from their start; the caller empties the list"""
        self.cuts: list[TruncatedFile] = []
        """the truncated files of the last poll"""
        self.unclear: list[KnownFile] = []
        """from the last poll: known files that were recorded without a mark, and at whose path there is another file"""

    # --- what was read ---

    def remember(self, path: str, seen: FileStatus, end: int, trace: Trace | None, *, packed: bool, taken: bool) -> None:
        """Apply an entry of the log. Entries are applied in order; also one that is being logged.

        Args:
            path: The path of the file.
            seen: The state of the file.
            end: The position up to which it was read.
            trace: Its identity; None: the file is identified by path and inode.
            packed: The file is compressed.
            taken: False if the entry only records the place of the file.
        """
        id_ = f"path:{path}" if trace is None else trace.file
        known = self._known.get(id_)
        if known is None:
            known = self._known[id_] = KnownFile(id_, path, seen, 0, None, born=self._looks)
        else:
            self._forget(known)
        known.seen, known.end = seen, max(end, known.end) if trace is None else end
        known.trusted = time.time_ns() - seen.mtime_ns > (_RECENT_NS if self._looks == 0 else _COARSE_NS)
        if trace is not None:
            known.mark, known.packed, known.copy = trace.mark, trace.packed, trace.copy
            known.end = end if trace.mark is None else trace.mark.end
        elif packed:
            known.packed = ContentMark(seen.size, (), "")  # identified by inode, size and time alone
        known.rest = None
        self._unsaved.pop(known.id, None)
        if taken:
            self._turns.setdefault(path, {})[known.id] = 0 if trace is None else trace.turn
        self._put(known, path)

    def turn(self, path: str, file: str) -> int:
        """The number of a file among those that are read under this path, from 0. No other file of the path has this number."""
        turns = self._turns.get(path, {})
        return turns.get(file, max(turns.values(), default=-1) + 1)

    def remember_lost(self, file: str) -> None:
        """Apply a log entry which records that the rest of a file is lost."""
        if file in self._known:
            self._known[file].told = True

    def _put(self, known: KnownFile, path: str) -> None:
        """Record that `known` is now at `path`."""
        other = self.at.get(path)
        if other is not None and other is not known:
            self._lose(other)
        known.path, known.found, known.waits = path, True, False
        known.names.add(path)
        self.at[path] = known
        self._compare_length(known)
        self._lost.pop(known.id, None)
        self._searching.pop(known.id, None)
        self.new.pop(path, None)
        self._inodes.setdefault(known.seen.inode, []).insert(0, known)
        self._contents.add(known)
        self._names.add(known)

    def _compare_length(self, known: KnownFile) -> None:
        if known.rest is not None or known.unread:
            self.behind[known.path] = known
        else:
            self.behind.pop(known.path, None)

    def _forget(self, known: KnownFile) -> None:
        """Remove the file from the indexes, before it is added again."""
        if self.at.get(known.path) is known:
            del self.at[known.path]
            self.behind.pop(known.path, None)
        same = self._inodes.get(known.seen.inode, [])
        if known in same:
            same.remove(known)
            if not same:
                del self._inodes[known.seen.inode]
        self._contents.remove(known)
        self._names.remove(known)

    def _lose(self, known: KnownFile) -> None:
        """Record that the file is not at its path any more."""
        if self.at.get(known.path) is known:
            del self.at[known.path]
            self.behind.pop(known.path, None)
        self._names.remove(known)
        known.found, known.lost_s = False, time.monotonic()
        self._lost[known.id] = self._searching[known.id] = known

    def _move(self, known: KnownFile, path: str, seen: FileStatus, *, trusted: bool = True) -> None:
        """Record that the file was found at another path, or became another file."""
        before = known.path
        self._forget(known)
        known.seen = seen
        known.trusted = trusted and time.time_ns() - seen.mtime_ns > _COARSE_NS
        self._unsaved[known.id] = known
        self._put(known, path)
        if not self._is_source(path) and self._is_source(before):
            self._left.append((known, before))

    # --- a poll ---

    def refresh(self, listed: Collection[str] | None, due: Iterable[str], *, final: bool) -> None:
        """Poll: update `at` and `new`.

        Args:
            listed: All paths of the source; None if no folder changed.
            due: The paths of `at` to check.
            final: The existing data is complete.
        """
        now_s = time.monotonic()
        lost = set[str]() if self._looks == 0 else set(self._lost)
        self._looks += 1
        self.cuts, self.unclear, self._left, self._vanished = [], [], [], []
        missing = self._list(listed) if listed is not None else []
        for path in {**dict.fromkeys(due), **dict.fromkeys(missing)}:
            if path in self.at:
                self._check(path)
        self._place_all()
        newly = self._lost.keys() - lost
        names = {folder: self._unlisted(folder) for folder in self._folders_to_search(now_s, again=listed is not None, newly=newly)}
        self._find_by_inode(names)
        self._find_vanished(names)
        # without stable inodes a file at the path of a missing one is more likely that file than a copy of it
        places = {self._lost[id_].path for id_ in newly if id_ in self._lost}
        for new in sorted(self.new.values(), key=lambda each: each.path not in places):
            self._judge(new, final=final, again=bool(newly))
        self._find_by_content(names, final=final)
        for known, before in self._left:
            self._find_between(known, before, names)
        self._place_all()
        for new in list(self.new.values()):
            if new.judged is None:
                self._judge(new, final=final, again=False)
            if new.cut is not None:
                self._judge_cut(new)
        for new in [new for new in self.new.values() if new.before is not None and new.verdict is not Verdict.UNSURE]:
            self._judge_rewritten(new)
        lost_now = [self._lost[id_] for id_ in newly if id_ in self._lost]
        self.unclear = [each for each in lost_now if each.mark is each.packed is None and each.path in self.new]

    def waits_for(self) -> float | None:
        """The seconds until a truncated file in an unclear state can be judged; None if there is none."""
        waiting = (new for new in self.new.values() if new.verdict is Verdict.UNSURE and new.cut is not None)
        left = [self._settle_s - (time.time() - new.seen.mtime_ns / 1e9) for new in waiting]
        return max((wait for wait in left if wait > 0), default=None)

    def lost(self, *, final: bool) -> list[KnownFile]:
        """The files with unread bytes that are not found anywhere; each is returned once."""
        now_s = time.monotonic()
        gone = [
            known
            for known in self._lost.values()
            if not known.told and known.unread and not (known.waits or known.copy) and (final or now_s - known.lost_s >= self._settle_s)
        ]
        for known in gone:
            known.told = True
        return gone

    def unsaved(self) -> list[KnownFile]:
        """The files whose current place is not in the log yet; each is returned once."""
        found = [known for known in self._unsaved.values() if known.found and known.rest is None]
        for known in found:
            del self._unsaved[known.id]
        return found

    @property
    def empty(self) -> bool:
        """True if nothing was ever read."""
        return not self._known

    def has_moved(self, path: str) -> bool:
        """True if the known file at the path was renamed: its writer may soon stop writing to it."""
        return len(self.at[path].names) > 1

    def _list(self, listed: Collection[str]) -> list[str]:
        """Apply the listed paths. Returns the paths of known files that are not among them any more."""
        before, self._listed = self._listed, set(listed)
        for new in [new for path, new in self.new.items() if path not in self._listed and not new.outside]:
            self._vanish(new)
            del self.new[new.path]
        for path in listed:
            if path not in self.at and path not in self.new:
                self._begin(path)
        return [path for path in before if path not in self._listed and path in self.at]

    def _begin(self, path: str, *, outside: bool = False, cut: KnownFile | None = None, before: KnownFile | None = None) -> None:
        status = self.status(path)
        if status is not None:
            self.new[path] = NewFile(path, status, self._looks, time.monotonic(), outside=outside, cut=cut, before=before)
            self._unplaced.append(path)

    def _vanish(self, new: NewFile) -> None:
        if new.seen.size and new.verdict is Verdict.NEW and not new.outside:
            self._vanished.append(replace(new))

    def status(self, path: str) -> FileStatus | None:
        """The current state of the file at the path; None if there is none."""
        try:
            return FileStatus.of(os.stat(f"{self._root}/{path}"))  # noqa: PTH116 (a Path costs more than the call)
        except (FileNotFoundError, NotADirectoryError):
            return None

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[FileStatus, OpenFile] | None]:
        """Open the file at the path. Yields its state and the file; None if there is none."""
        try:
            descriptor = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            file = OpenFile(descriptor)
            yield file.status(), file
        finally:
            os.close(descriptor)

    def _check(self, path: str) -> None:
        """Check whether the known file is still at its path, and whether it has grown there."""
        known = self.at[path]
        now = self.status(path)
        if now is not None and now == known.seen and known.trusted:
            return
        cut = False
        with self.opened(path) as found:
            if found is not None:
                status, file = found
                same = known.seen.is_file_of(status)
                if same and self._is(known, file, status):
                    if known.mark is known.packed is None:
                        self._mark(known, file)
                    if known.copy:
                        self._copy_grows(known, file, status)
                    self._see(known, status)
                    return
                shorter = same and known.packed is None and 0 < status.size < known.end
                cut = shorter and known.mark is not None and known.mark.begins_as(file.head())
        self._lose(known)
        if path in self._listed:
            self._begin(path, cut=known if cut else None, before=known)

    def _mark(self, known: KnownFile, file: OpenFile) -> None:
        """Add the mark of a file that was recorded before marks existed."""
        known.mark = file.mark(known.end)
        self._contents.add(known)
        self._unsaved[known.id] = known

    def _see(self, known: KnownFile, status: FileStatus) -> None:
        known.seen = status
        self._compare_length(known)
        known.trusted = time.time_ns() - status.mtime_ns > _COARSE_NS

    def _is(self, known: KnownFile, file: OpenFile, status: FileStatus) -> bool:
        """True if the file's content begins with the read part of `known`."""
        if known.packed is not None:
            if status.size != known.packed.end:
                return False
            # a compressed file does not grow; one that is renamed keeps its time
            return status.mtime_ns == known.seen.mtime_ns or (bool(known.packed.head) and file.holds(known.packed))
        if status.size < known.end:
            return False
        if known.mark is None:
            return known.end == 0 or file.read(known.end - 1, known.end) == b"\n"
        return file.holds(known.mark)

    def _place_all(self) -> None:
        """Determine the origin of each new path. A file that is displaced by this is new too."""
        self._unplaced = deque(self.new)
        while self._unplaced:
            self._place(self._unplaced.popleft())

    def _place(self, path: str) -> None:
        """Check by its inode whether the file at this path is a known file that was moved."""
        new = self.new.get(path)
        if new is None:
            return
        status = self.status(path) if new.look < self._looks else new.seen
        if status is None or not status.is_file_of(new.seen):
            self._vanish(new)
        if status is None:
            del self.new[path]
            return
        if status != new.seen:
            new.seen, new.since_s = status, time.monotonic()
        for known in list(self._inodes.get(status.inode, ())):
            if not known.seen.is_file_of(status) or known is new.cut:
                continue
            if known.found and known.path != path:
                self._check(known.path)
            if known.found:  # another name of the same file
                if known.path != path and known.seen.is_file_of(status):
                    new.verdict, new.of, new.judged = Verdict.COPY, known, status
                    return
                continue
            with self.opened(path) as file:
                if file is not None and known.seen.is_file_of(file[0]) and self._is(known, file[1], file[0]):
                    self._move(known, path, file[0])
                    return

    # --- search for missing files elsewhere in their folder ---

    def _folders_to_search(self, now_s: float, *, again: bool, newly: Collection[str]) -> set[str]:
        """The folders of missing files to search. A file is searched only for a limited time, and only if something changed in
        its folder."""
        for known in [known for known in self._searching.values() if now_s - known.lost_s > _SEARCHED_S]:
            del self._searching[known.id]
        return {known.path.rpartition("/")[0] for known in self._searching.values() if again or known.waits or known.id in newly} | {
            new.path.rpartition("/")[0] for new in self._vanished
        }

    def _unlisted(self, folder: str) -> dict[str, int]:
        """Path → inode for the files of a folder that do not belong to the source."""
        found: dict[str, int] = {}
        with suppress(OSError), os.scandir(self._root / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path not in self._listed and path not in self.new and entry.name[0] != "." and entry.is_file():
                    found[path] = entry.inode()
        return found

    def _find_by_inode(self, names: Mapping[str, Mapping[str, int]]) -> None:
        for path, inode in ((path, inode) for folder in names.values() for path, inode in folder.items()):
            lost = [known for known in self._inodes.get(inode, ()) if not known.found] if path not in self.at else []
            if lost:
                with suppress(PermissionError), self.opened(path) as found:
                    known = found and next(
                        (each for each in lost if each.seen.is_file_of(found[0]) and self._is(each, found[1], found[0])), None
                    )
                    if found and known:
                        self._move(known, path, found[0])

    def _find_by_content(self, names: Mapping[str, Mapping[str, int]], *, final: bool) -> None:
        """Find copies and compressed forms of missing files that are not among the source's paths, but in the same folder with a similar
        name."""
        for folder, paths in names.items():
            searched = {id_: known for id_, known in self._searching.items() if known.path.rpartition("/")[0] == folder}
            for known in searched.values():
                known.waits = False
            # of several copies the longest has the most unread bytes
            for path in sorted(paths, key=self._length, reverse=True):
                base = path.rpartition("/")[2]
                if path in self.at or not any(related(base, known.path.rpartition("/")[2]) for known in searched.values()):
                    continue
                with suppress(PermissionError), self.opened(path) as found:
                    if found is None:
                        continue
                    status, file = found
                    if self._packing.of(path) == "none":
                        same = [
                            each
                            for each in self._contents.of(file.head())
                            if each.id in self._searching and each.mark and file.holds(each.mark)
                        ]
                        if same:
                            self._move(max(same, key=by_end), path, status)
                    elif not self._is_being_packed(path, head := self._unpacked_head(file, path)):
                        same = [each for each in self._contents.of(head) if each.id in self._searching]
                        if not final and time.time() - status.mtime_ns / 1e9 < self._settle_s:
                            for known in same:
                                known.waits = True
                        elif same:
                            self._take_over(same, path, status, file)

    def _length(self, path: str) -> int:
        status = self.status(path)
        return 0 if status is None else status.size

    def _find_vanished(self, names: Mapping[str, Mapping[str, int]]) -> None:
        """Find new files that were renamed before any of their bytes could be read: by their inodes, under a rotated name."""
        for new in self._vanished:
            folder, _, live = new.path.rpartition("/")
            for path, inode in names.get(folder, {}).items():
                if inode == new.seen.inode and path not in self.at and path not in self.new and related(path.rpartition("/")[2], live):
                    self._begin(path, outside=True)

    def _find_between(self, known: KnownFile, before: str, names: Mapping[str, Mapping[str, int]]) -> None:
        """Find files that had the path `before` after `known` left it, and have left it too: there was more than one rotation. They are
        newer than `known`, and have rotated names."""
        folder, _, live = before.rpartition("/")
        for path in names.get(folder, {}):
            if path not in self.at and path not in self.new and is_turn_of(path.rpartition("/")[2], live):
                status = self.status(path)
                if status is not None and status.mtime_ns >= known.seen.mtime_ns:
                    self._begin(path, outside=True)

    def _take_over(self, known: Sequence[KnownFile], path: str, status: FileStatus, file: OpenFile) -> bool:
        """Continue in the compressed file at `path`: it becomes the known file, among `known`, with the longest content in it. Returns
        False if it contains none."""
        marks = {each.mark: each for each in known if each.mark is not None}
        with file.reader() as stream:
            scanned = scan(self._packing.chunks(stream, self._packing.of(path)), list(marks))
        packed = file.mark(status.size)
        if not scanned.holds or packed is None:
            return False
        if self._packing.fault:
            self.notices.append(f"{path}: {self._packing.fault}; records after that may be lost")
        taken = marks[max(scanned.holds, key=by_end)]
        self._contents.remove(taken)
        taken.packed, taken.rest = packed, scanned.mark if scanned.length > taken.end else None
        self._move(taken, path, status)
        return True

    def _is_being_packed(self, path: str, head: Head) -> bool:
        """True if the plain file that the compressed file was made from still exists."""
        with suppress(PermissionError), self.opened(unpacked_name(path)) as plain:
            return plain is not None and bool(head) and plain[1].head().data[: len(head)] == head.data
        return False

    def _unpacked_head(self, file: OpenFile, path: str) -> Head:
        data = b""
        with file.reader() as stream:
            for chunk in self._packing.chunks(stream, self._packing.of(path)):
                data += chunk
                if len(data) >= WINDOW:
                    break
        return Head(data)

    # --- new paths ---

    def _judge(self, new: NewFile, *, final: bool, again: bool) -> None:
        """Judge an unknown file: compare it with the known files if it changed, or with `again`."""
        if new.path not in self.new or not self._known:
            return
        is_link = new.of is not None and new.of.found and new.seen.is_file_of(new.of.seen)
        is_left = new.of is not None and not new.of.found
        if new.judged == new.seen and (is_link or not (again or is_left or new.verdict is Verdict.UNSURE)):
            return
        with self.opened(new.path) as found:
            if found is None:
                del self.new[new.path]
                return
            if found[0] != new.seen:
                new.head = None
            new.seen = new.judged = found[0]
            new.verdict, new.of = Verdict.NEW, None
            if self._packing.of(new.path) == "none":
                self._judge_plain(new, found[1], found[0])
            else:
                self._judge_packed(new, found[1], found[0], final=final)

    def _judge_plain(self, new: NewFile, file: OpenFile, status: FileStatus) -> None:
        if not status.size:
            return
        same = [known for known in self._candidates(new, file.head()) if known.mark and file.holds(known.mark)]
        lost = [known for known in same if not known.found]
        if lost:
            self._move(max(lost, key=by_end), new.path, status)
            return
        for known in (known for known in same if not _follows(new.path, known)):
            if self._is_part_of(file, status, known):
                self._is_copy(new, known, status, file)
                return
        self._judge_part(new, file, status)

    def _candidates(self, new: NewFile, head: Head) -> list[KnownFile]:
        """The known files whose read part is the beginning of the file, by `head`; compared at their current places."""
        found = [known for known in self._contents.of(head) if self._may_be(known, new)]
        for known in found:
            if known.found:
                self._check(known.path)
        return found

    def _judge_part(self, new: NewFile, file: OpenFile, status: FileStatus) -> None:
        """Judge whether the file is an incomplete copy of an existing file: all of it is the beginning of a file with a similar name."""
        for known in self._names.like(new.path.rpartition("/")[2]):
            if known.packed is not None or status.size >= known.end or _follows(new.path, known) or not self._may_be(known, new):
                continue
            if known.mark is None or not known.mark.begins_as(file.head()):
                continue
            self._check(known.path)
            if known.found and self._is_part_of(file, status, known):
                self._is_copy(new, known, status, file)
                return

    def _is_part_of(self, file: OpenFile, status: FileStatus, known: KnownFile) -> bool:
        """True if all of the file is contained in the known file, which has the same beginning as far as it was read."""
        if known.packed is not None:
            return status.size <= known.end
        with self.opened(known.path) as other:
            return other is not None and file.same_until(other[1], status.size)

    def _is_copy(self, new: NewFile, known: KnownFile, status: FileStatus, file: OpenFile) -> None:
        """Record that a file is a copy of an existing one. When all of its content was read there, and it is complete, it becomes a known
        file itself."""
        new.verdict, new.of = Verdict.COPY, known
        still_s = time.time() - status.mtime_ns / 1e9
        if status.size <= known.end and still_s >= self._settle_s and (mark := file.mark(status.size)) is not None:
            copy = KnownFile(new.id, new.path, status, mark.end, mark, copy=known.id, born=self._looks)
            self._known[copy.id] = self._unsaved[copy.id] = copy
            self._put(copy, new.path)
            self.notices.append(f"{new.path} is a copy of {known.path}: its records are not read twice")

    def _copy_grows(self, copy: KnownFile, file: OpenFile, status: FileStatus) -> None:
        """Read the rest of a copy that was incomplete from its original."""
        known = self._known.get(copy.copy)
        if known is None or not known.found or status.size <= copy.end or known.end < status.size:
            return
        with self.opened(known.path) as other:
            if other is not None and file.same_until(other[1], status.size) and (mark := file.mark(status.size)) is not None:
                self._contents.remove(copy)
                copy.mark, copy.end = mark, mark.end
                self._unsaved[copy.id] = copy
                self._contents.add(copy)

    def _judge_packed(self, new: NewFile, file: OpenFile, status: FileStatus, *, final: bool) -> None:
        for known in self._contents.packed(status.size, file.head()):
            if known.packed is not None and known.born < new.look and file.holds(known.packed):
                if known.found:
                    self._check(known.path)
                if known.found:
                    new.verdict, new.of = Verdict.COPY, known
                else:
                    self._move(known, new.path, status)
                return
        settled = time.time() - status.mtime_ns / 1e9 >= self._settle_s
        head = new.head = new.head or self._unpacked_head(file, new.path)
        if self._is_being_packed(new.path, head) or not (head or settled):
            new.verdict = Verdict.UNSURE
            return
        same = self._candidates(new, head)
        lost = [known for known in same if not known.found]
        if lost and not (settled or final):
            new.verdict = Verdict.UNSURE
            return
        if lost and self._take_over(lost, new.path, status, file):
            return
        for known in [known for known in same if known.found] or self._names.like(new.path.rpartition("/")[2]):
            if known.packed is None and self._may_be(known, new) and known.mark is not None and known.mark.begins_as(head):
                with self.opened(known.path) as other:
                    if other is not None and other[1].head().data[: len(head)] == head.data:
                        new.verdict, new.of = Verdict.COPY, known
                        return

    def _judge_cut(self, new: NewFile) -> None:
        """Judge a file that is shorter than its read part, and begins as before: it was rewritten with the same beginning, is being copied
        over, or was truncated. Its bytes were read already, so it waits until its state is clear, or is ignored."""
        known = new.cut
        if known is None or new.path not in self.new:
            return
        with self.opened(new.path) as found:
            shorter = found is not None and not known.found and 0 < found[0].size < known.end
            begins = shorter and found is not None and known.mark is not None and known.mark.begins_as(found[1].head())
        if not begins:
            new.cut = None
            new.verdict = Verdict.NEW if new.verdict is Verdict.UNSURE else new.verdict
        elif time.time() - new.seen.mtime_ns / 1e9 < self._settle_s:
            new.verdict = Verdict.UNSURE
        elif new.seen.size >= WINDOW:
            new.verdict = Verdict.UNSURE
            self.cuts.append(TruncatedFile(new.path, known.end, new.seen.size))
        else:
            new.cut, new.verdict = None, Verdict.NEW
            self.notices.append(_anew(new.path, known.end, new.seen.size))

    def _judge_rewritten(self, new: NewFile) -> None:
        """Judge whether a file was edited, so that its earlier content is read a second time: it is at least as long as the read part, with
        the same beginning. A rotation leaves the read bytes in the folder; a program that recreates its log begins differently, or shorter.
        """
        known = new.before
        assert known is not None
        if known.waits:
            return
        new.before = None
        if known.found or new.verdict is Verdict.COPY or not known.end:
            return
        if self._packing.of(new.path) != "none":
            self.rewritten.append(new.path)
        elif new.seen.size >= known.end:
            with self.opened(new.path) as found:
                alike = found is not None and known.mark is not None and known.mark.begins_alike(found[1].head())
            if alike:
                self.rewritten.append(new.path)
            elif known.seen.is_file_of(new.seen):
                self.notices.append(_anew(new.path, known.end, new.seen.size))

    def _may_be(self, known: KnownFile, new: NewFile) -> bool:
        """True if equal content is not a coincidence: the read part existed before the file, and is long, or had a similar name."""
        if known.born >= new.look:
            return False
        if new.path == known.path or known.end >= _LONG:
            return True
        name = new.path.rpartition("/")[2]
        return any(related(name, other.rpartition("/")[2]) for other in known.names)


def _anew(path: str, before: int, now: int) -> str:
    return f"{path} was rewritten: {before:,} of its bytes were read, and now it has {now:,}; it is read from its start"


def _follows(path: str, known: KnownFile) -> bool:
    """True if the known file had this path before it was renamed, so that the file there now is its successor, not a copy."""
    name = path.rpartition("/")[2]
    return path in known.names or any(is_turn_of(other.rpartition("/")[2], name) for other in known.names)


# --- the place of a logged range ---


class FollowedFile(NamedTuple):
    """A file at its current place whose content includes the part that a log records as read."""

    path: Path
    file: OpenFile
    compression: str

    def holds(self, trace: Trace) -> bool:
        """True if a plain file still contains that part."""
        mark = trace.mark or trace.packed
        return mark is None or not mark.head or self.file.holds(mark)


@contextmanager
def located(root: Path, path: str, seen: FileStatus, end: int, trace: Trace | None, packing: Packing) -> Iterator[FollowedFile | None]:
    """Find the current place of content that was read, by the log: at its path or anywhere in the same folder, by inode and by content,
    plain or compressed.

    Args:
        root: The root of the source.
        path: The path in the log, relative to `root`.
        seen: The state of the file in the log.
        end: The position up to which it was read.
        trace: Its identity in the log; None for entries without one.
        packing: How compressed files are read.

    Returns:
        The file, open until the end of the block; None if the content does not exist.
    """
    for place in _places(root / path, seen, end, trace, packing):
        yield place
        return
    yield None


def _places(path: Path, seen: FileStatus, end: int, trace: Trace | None, packing: Packing) -> Iterator[FollowedFile]:
    for here in _nearby(path, seen.inode, others=trace is not None and trace.mark is not None and trace.mark.end >= _LONG):
        try:
            descriptor = os.open(here, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except PermissionError:
            if here == path:
                raise
            continue
        try:
            file, compression = OpenFile(descriptor), packing.of(here.name)
            if _is_piece(file, seen, end, trace, compression, packing, named=here == path):
                yield FollowedFile(here, file, compression)
        finally:
            os.close(descriptor)


def _nearby(path: Path, inode: int, *, others: bool) -> Iterator[Path]:
    """The files that may be the one of a log entry: the file at `path`, one with its inode, those with similar names (plain ones first),
    and with `others` all others in its folder."""
    yield path
    found: dict[str, int] = {}
    with suppress(OSError), os.scandir(path.parent) as entries:
        found = {entry.name: entry.inode() for entry in entries if entry.name != path.name and entry.is_file()}
    likely = {name: (at != inode, unpacked_name(name) != name) for name, at in found.items() if at == inode or related(name, path.name)}
    yield from (path.parent / name for name in sorted(likely, key=lambda name: (likely[name], name)))
    if others:
        yield from (path.parent / name for name in sorted(found) if name not in likely)


def _is_piece(file: OpenFile, seen: FileStatus, end: int, trace: Trace | None, compression: str, packing: Packing, *, named: bool) -> bool:
    status = file.status()
    if trace is None:
        return status.size >= end and seen.is_file_of(status)
    if trace.packed is not None:
        return status.size == trace.packed.end and (file.holds(trace.packed) if trace.packed.head else named)
    if trace.mark is None:
        return False
    if compression == "none":
        return file.holds(trace.mark)
    with file.reader() as stream:
        chunks = packing.chunks(stream, compression)
        first = next(chunks, b"")
        if not trace.mark.begins_as(Head(first)):
            return False
        return bool(scan(chain((first,), chunks), [trace.mark]).holds)

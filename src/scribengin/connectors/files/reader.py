"""The driver side of a files source: finds new and finished files, and checks that assigned files are unchanged."""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from os.path import relpath
from typing import TYPE_CHECKING

from scribengin.connectors.contract import Backlog, BatchLimits, SourceStream
from scribengin.connectors.files.pieces import FilePiece, pieces_of, root_of, streams_of
from scribengin.connectors.files.retention import ReadLease, kept_top
from scribengin.core.errors import ScribenginError, SourceError
from scribengin.core.time_text import moment_text

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from scribengin.connectors.files.discovery import Discovery

_RECHECKED = 500
"""number of known files that one `split` checks again, in rotation: about a millisecond"""
_LONG_S = 60.0


@dataclass(slots=True)
class WaitingFile:
    """A file that was seen and not assigned yet. `since_s`: when its current state was first seen, on the monotonic clock."""

    size: int
    mtime_ns: int
    inode: int
    since_s: float


@dataclass(slots=True)
class _Taken:
    """A file that was handed out, up to `end` (bytes)."""

    size: int
    mtime_ns: int
    inode: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of the source that determine how files are read. `whole_files` forbids byte ranges."""

    split_bytes: int
    settle_s: float
    growing: bool
    stop_on_change: bool
    max_files: int | None
    max_bytes: int | None


class FilesReader:
    """Hands out the files of one Discovery, each once (a growing one as it grows); waiting files in the order of their paths.

    `folder` is the flow's folder, `flow` its name. `divide` splits an assigned file into pieces. `grows` returns True if a file can be read
    further from its old end. `whole_lines` returns the end of the last whole line of such a file between two offsets, given whether it is
    settled. `check_first` checks the very first file, with its size, and raises SourceError if it must not be read.
    """

    def __init__(
        self,
        discovery: Discovery,
        taking: ReadOptions,
        *,
        folder: Path,
        divide: Callable[[Path, FilePiece], list[FilePiece]],
        grows: Callable[[str], bool],
        whole_lines: Callable[[Path, int, int, bool], int],
        check_first: Callable[[Path, int], None] = lambda _path, _size: None,
        flow: str = "",
    ) -> None:
        self._flow = flow
        self._discovery = discovery
        self._taking = taking
        self._folder = folder
        inside = discovery.root.is_relative_to(folder)
        self._root = str(discovery.root.relative_to(folder) if inside else discovery.root)
        self._divide = divide
        self._grows = grows
        self._whole_lines = whole_lines
        self._check_first = check_first
        self._waiting: dict[str, WaitingFile] = {}
        self._taken: dict[str, _Taken] = {}
        self._by_inode: dict[int, str] = {}
        """inode → last path, for assigned files"""
        self._turn: Iterator[str] = iter(())
        self._notices: list[str] = []
        self._said: set[str] = set()
        self._leases: dict[Path, ReadLease] = {}
        """the sink's folder → the lease in it"""
        self.checks_first = False
        """True if the very first file is checked: see `ColumnCheckingReader`"""
        self.quiet = False
        """True if other files there are not reported"""
        self.holds = True
        """False if the reader only inspects: no lease is written, and files that others delete in the meantime are skipped"""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Apply the log entries of files that were handed out."""
        copies: list[str] = []
        for streams in entries:
            for stream in streams:
                for path, piece in self._pieces(stream):
                    self._remember(path, piece)
                    if piece.path != path and self._is_copy(piece):
                        self._remember(piece.path, piece)
                        copies.append(_renamed(piece.path, path))
        self._say_not_again(copies)

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next files, as streams of about `split` bytes each. Raises SourceError if an assigned file changed."""
        now_s = time.monotonic()
        self._update_waiting(now_s)
        self._recheck(everything=final)
        pieces: list[FilePiece] = []
        found: dict[str, FilePiece] = {}
        files = total = 0
        max_files = min(limits.max_files or _NONE, self._taking.max_files or _NONE)
        max_bytes = min(limits.max_bytes or _NONE, self._taking.max_bytes or _NONE)
        for path in list(self._waiting):
            piece = self._finished(path, now_s, final=final)
            if piece is None:
                continue
            if files and (files + 1 > max_files or total + piece.bytes > max_bytes):
                break
            files, total = files + 1, total + piece.bytes
            pieces += self._divide(self._discovery.root / path, piece)
            found[path] = piece
        if found and self.checks_first and not self._has_begun():
            path, piece = next(iter(found.items()))
            self._check_first(self._discovery.root / path, piece.end if self._taking.growing else piece.size)
        doomed, put_off = self._hold(found.keys())
        for path in found.keys() - put_off:
            self._remember(path, found[path])
            del self._waiting[path]
        gone = [piece for piece in pieces if piece.path in doomed]
        pieces = [piece for piece in pieces if piece.path not in doomed | put_off]
        streams = streams_of(pieces, root=self._root, stream_bytes=self._taking.split_bytes)
        return streams + [self._lost(stream) for stream in streams_of(gone, root=self._root, stream_bytes=self._taking.split_bytes)]

    def _has_begun(self) -> bool:
        """True if any file was ever assigned."""
        return bool(self._taken)

    def _lost(self, stream: SourceStream) -> SourceStream:
        """Count and report files that are lost; returns the skipped stream for them."""
        names = some(sorted({piece.path for piece in pieces_of(stream)}))
        what = f"{names} below {self._discovery.root} disappeared before being read: deleted, or in a folder that its sink deletes (`keep`)"
        self._notices.append(what)
        return replace(stream, label=f"{stream.label} lost", skipped=True, lost=what)

    def hold(self, streams: Sequence[SourceStream]) -> None:
        """See `HoldingReader`."""
        self._hold({path for stream in streams for path in self._paths(stream)})

    def let_go(self, streams: Sequence[SourceStream]) -> None:
        """See `HoldingReader`."""
        if not self._leases:
            return
        for top, names in self._by_top({path for stream in streams for path in self._paths(stream)}).items():
            if top in self._leases:
                with suppress(OSError, ScribenginError):  # the lease expires by itself
                    self._leases[top].let_go(names.keys())

    def _paths(self, stream: SourceStream) -> list[str]:
        return [path for path, _ in self._pieces(stream)]

    def _pieces(self, stream: SourceStream) -> Iterator[tuple[str, FilePiece]]:
        """The pieces of a stream with their paths relative to the discovery's root. A root that is written differently gives the same
        files."""
        root = root_of(stream)
        for piece in pieces_of(stream):
            yield piece.path if root == self._root else relpath(self._folder / root / piece.path, self._discovery.root), piece

    def _hold(self, paths: Collection[str]) -> tuple[set[str], set[str]]:
        """Hold files that a Scribengin sink wrote. Returns (files that are being deleted, files to retry later)."""
        doomed, put_off = set[str](), set[str]()
        if not self.holds:
            return doomed, put_off
        for top, names in self._by_top(paths).items():
            lease = self._leases.get(top)
            if lease is None:
                lease = self._leases[top] = ReadLease(top, self._flow)
            try:
                doomed |= {names[name] for name in lease.hold(names.keys())}
                put_off |= {names[name] for name in lease.put_off}
            except (OSError, ScribenginError) as error:
                text = f"the files being read in {top} are not locked, and the sink that writes there may delete them meanwhile: {error}"
                self._notices += [] if text in self._said else [text]
                self._said.add(text)
        return doomed, put_off

    def _by_top(self, paths: Collection[str]) -> dict[Path, dict[str, str]]:
        """The files that Scribengin sinks wrote: a sink's folder → name relative to it → path. A glob may include several such folders, and
        a link may lead into one."""
        tops: dict[Path, tuple[Path, Path] | None] = {}
        found: dict[Path, dict[str, str]] = {}
        for path in paths:
            file = self._discovery.root / path
            if file.parent not in tops:
                folder = file.parent.resolve()
                top = kept_top(folder)
                tops[file.parent] = None if top is None else (top, folder.relative_to(top))
            kept = tops[file.parent]
            if kept is not None:
                found.setdefault(kept[0], {})[str(kept[1] / file.name)] = path
        return found

    def backlog(self) -> Backlog:
        """The files seen by the last `split` that were not handed out."""
        waiting = [(seen, left) for path, seen in self._waiting.items() if (left := seen.size - self._end_of(path)) > 0]
        oldest_ns = min((seen.mtime_ns for seen, _ in waiting), default=None)
        return Backlog(
            files=len(waiting),
            bytes=sum(left for _, left in waiting),
            oldest_s=None if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9),
        )

    def measure(self) -> Backlog:
        """See `MeasuringReader`: files that are still being written are included."""
        self._update_waiting(time.monotonic())
        return self.backlog()

    def notices(self) -> list[str]:
        """Notices for people, each shown once."""
        notices, self._notices = self._notices, []
        return notices

    def _update_waiting(self, now_s: float) -> None:
        """Update `_waiting` from the folders. `now_s`: seconds of the monotonic clock."""
        paths = self._discovery.changed()
        if paths is None:
            return
        new: dict[str, WaitingFile] = {}
        renamed: list[str] = []
        for path in paths:
            waiting = self._waiting.get(path)
            if waiting is None and path not in self._taken:
                status = self._stat(path)
                before = None if status is None else self._name_before(status)
                if before is not None:
                    self._taken[path] = self._taken[before]
                    renamed.append(_renamed(path, before))
                elif status is not None:
                    waiting = WaitingFile(status.st_size, status.st_mtime_ns, status.st_ino, now_s)
            if waiting is not None:
                new[path] = waiting
        self._waiting = new
        self._say_not_again(renamed)
        self._say_what_is_passed_over()

    def _name_before(self, status: os.stat_result) -> str | None:
        """The earlier path of an assigned file that was renamed or moved since; None for a new file, or another link to an assigned one."""
        before = self._by_inode.get(status.st_ino)
        if before is None or self._stat(before) is not None:
            return None
        taken = self._taken[before]
        return before if (status.st_size, status.st_mtime_ns) == (taken.size, taken.mtime_ns) else None

    def _say_not_again(self, renamed: Sequence[str]) -> None:
        if renamed and not self.quiet:
            self._notices.append(f"{some(renamed)} in {self._discovery.root} not read again: read under the earlier name, and unchanged")

    def _is_copy(self, piece: FilePiece) -> bool:
        """True if a file that was assigned below another folder also exists here, with its time: the folder was copied or restored."""
        status = None if piece.path in self._taken else self._stat(piece.path)
        return status is not None and (status.st_size, status.st_mtime_ns) == (piece.size, piece.mtime_ns)

    def _say_what_is_passed_over(self) -> None:
        if self.quiet:
            return
        hidden = [name for name in self._discovery.hidden() if name not in self._said]
        if hidden:
            self._said.update(hidden)
            self._notices.append(f"{some(hidden)} in {self._discovery.root} not read: names that begin with _ or . are not data files")
        folders = [name for name in self._discovery.unread_folders() if name not in self._said]
        if folders:
            self._said.update(folders)
            self._notices.append(
                f"{some(folders)} below {self._discovery.root} not read: only files directly in the folder are read; write **/* to "
                "include subfolders"
            )

    def _finished(self, path: str, now_s: float, *, final: bool) -> FilePiece | None:
        """The file as one piece if it may be read now; None otherwise."""
        status = self._stat(path)
        waiting = self._waiting[path]
        if status is None:
            del self._waiting[path]
            return None
        if not (final or self._settled(status, waiting, now_s)):
            self._say_if_long(path, now_s)
            return None
        size = status.st_size
        return FilePiece(path, size, status.st_mtime_ns, status.st_ino, 0, size, size) if size else None

    def _say_if_long(self, path: str, now_s: float) -> None:
        if now_s - self._waiting[path].since_s > _LONG_S and path not in self._said:
            self._said.add(path)
            self._notices.append(f"{path} waits: it was changed within the last {self._taking.settle_s:g} s")

    def _settled(self, status: os.stat_result, waiting: WaitingFile, now_s: float) -> bool:
        if (status.st_size, status.st_mtime_ns, status.st_ino) != (waiting.size, waiting.mtime_ns, waiting.inode):
            waiting.size, waiting.mtime_ns, waiting.inode = status.st_size, status.st_mtime_ns, status.st_ino
            waiting.since_s = now_s
        still_s = max(time.time() - status.st_mtime_ns / 1e9, now_s - waiting.since_s)
        return still_s >= self._taking.settle_s

    def _recheck(self, *, everything: bool) -> None:
        """Check assigned files again: some in each call, and all with `everything`."""
        for path in self._due(self._taken, everything=everything):
            status = self._stat(path)
            if status is None:  # it was read, and archived
                continue
            taken = self._taken[path]
            if status.st_size != taken.size or status.st_mtime_ns not in (taken.mtime_ns, _whole_seconds(taken.mtime_ns)):
                self._changed(path, difference(taken.size, taken.mtime_ns, status), taken, status)

    def check_taken(self) -> list[str]:
        """Check the assigned files like the last `split`, without changes. Raises SourceError if one has changed. Returns the files that
        would be read again from their start."""
        self._recheck(everything=True)
        return []

    def _due(self, paths: Collection[str], *, everything: bool) -> list[str]:
        """The paths that are due to be checked again."""
        due = list(islice(self._turn, _RECHECKED))
        if everything or not due:
            self._turn = iter(list(paths))
            due = list(self._turn if everything else islice(self._turn, _RECHECKED))
        return due

    def _changed(self, path: str, how: str, taken: _Taken, status: os.stat_result) -> None:
        place = self._discovery.root / path
        if self._taking.stop_on_change:
            ways = [
                give_old_time(place, taken.size, taken.mtime_ns, status),
                "put new records into a new file and restore this one with its old modification time (cp -p)",
                "set `on_change: ignore`; the changes are then never read",
            ]
            if status.st_size > taken.size and self._grows(path):
                ways.append("set `growing: true` if lines are appended")
            raise SourceError(f"{place} changed after it was assigned to a Batch: {how}", remedy="; or ".join(filter(None, ways)))
        self._notices.append(f"{place} changed after it was assigned to a Batch ({how}); the change is ignored")
        taken.size, taken.mtime_ns, taken.inode = status.st_size, status.st_mtime_ns, status.st_ino

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return (self._discovery.root / path).stat()
        except FileNotFoundError:
            return None
        except PermissionError:
            raise SourceError(
                f"this user is not allowed to read {self._discovery.root / path}", remedy="make it readable, or move it away"
            ) from None

    def _end_of(self, path: str) -> int:
        taken = self._taken.get(path)
        return 0 if taken is None else taken.end

    def _remember(self, path: str, piece: FilePiece) -> None:
        self._taken[path] = _Taken(piece.size, piece.mtime_ns, piece.inode, max(piece.end, self._end_of(path)))
        self._by_inode[piece.inode] = path


_NONE = 1 << 62


def _renamed(path: str, before: str) -> str:
    return f"{path}, which was {before},"


def _whole_seconds(mtime_ns: int) -> int:
    """A file's modification time, in the resolution of archives (tar, zip, rsync to some disks): a restored file has this time."""
    return mtime_ns - mtime_ns % 10**9


def give_old_time(path: Path, size: int, mtime_ns: int, now: os.stat_result) -> str:
    """The remedy if a file of the same size may be unchanged; empty if it cannot be. Nothing of its content is logged.

    Args:
        path: The file.
        size: In bytes, when it was assigned.
        mtime_ns: Its modification time then.
        now: Its current status.
    """
    if now.st_size != size:
        return ""
    seconds, fraction = divmod(mtime_ns, 10**9)
    moment = f"{moment_text(seconds).removesuffix('+00:00')}.{fraction:09}Z"
    return f"if its content is the same as before, restore its modification time: touch -d {moment} {shlex.quote(str(path))}"


def difference(size: int, mtime_ns: int, now: os.stat_result) -> str:
    """How a file differs from its state when it was assigned, as text.

    Args:
        size: Its size in bytes then.
        mtime_ns: Its modification time then.
        now: Its current status.
    """
    if now.st_size != size:
        return f"it had {size} bytes, and now has {now.st_size}"
    was, new = moment_text(mtime_ns // 10**9), moment_text(now.st_mtime_ns // 10**9)
    if was == new:
        return f"it has {size} bytes as before, but was rewritten within a second"
    return f"it has {size} bytes as before, but its modification time was {was} and is {new}: it was copied or rewritten"


def some(names: Sequence[str]) -> str:
    """The first names, and the number of others, as text."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:3])}{'' if len(names) <= 3 else f' and {len(names) - 3} more'}"

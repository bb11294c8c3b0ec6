"""The driver side of a source of growing and rotated files: finds new bytes, wherever the files are now."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from scribengin.connectors.contract import SourceStream
from scribengin.connectors.files.discovery import missing
from scribengin.connectors.files.following import Following, NewFile, Verdict
from scribengin.connectors.files.identity import ANY_DEVICE, FileStatus, Trace, unpacked_name
from scribengin.connectors.files.pieces import FilePiece
from scribengin.connectors.files.reader import FilesReader, WaitingFile, some
from scribengin.connectors.files.splitting import Damage, UnpackedFile, compression_of, read_compressed
from scribengin.core.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import Backlog, BatchLimits
    from scribengin.connectors.files.known_files import KnownFile

_ENDED_S = 60.0
"""seconds without new bytes after which a last line without a line end is read, in a file that was renamed"""
_LONGEST_WAIT_S = 30.0
"""maximum seconds that a last poll waits for a file that is being rewritten"""


class FilesPacking:
    """Recognises and reads compressed files for a files source; see `following.Packing`."""

    def __init__(self, compression: str) -> None:
        self._compression = compression
        self.fault = ""

    def of(self, path: str) -> str:
        """The compression, by the option and the name."""
        return compression_of(path, self._compression)

    def chunks(self, file: IO[bytes], compression: str) -> Iterator[bytes]:
        """The content up to its first damaged byte."""
        self.fault = ""
        for chunk in read_compressed(file, compression):
            if isinstance(chunk, Damage):
                self.fault = chunk.message
            else:
                yield chunk


class MovedPath:
    """The path of a file for reading. It has the name that the file had when it was assigned to a Batch, and the decompressed content of
    the file that is now at `now`."""

    def __init__(self, called: Path, now: Path, compression: str) -> None:
        self._called, self._now, self._compression = called, now, compression

    def __str__(self) -> str:
        return str(self._called)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._called, name)

    def stat(self) -> os.stat_result:
        """The status of the file at its current place."""
        return self._now.stat()

    def open(self, _mode: str = "rb", buffering: int = 0) -> IO[bytes] | UnpackedFile:
        """Open the content for reads and seeks."""
        assert buffering <= 0
        return self.unpacked(self._now.open("rb", buffering=0))

    def unpacked(self, file: IO[bytes]) -> IO[bytes] | UnpackedFile:
        """The content of an open file, which is the one at the path."""
        return file if self._compression == "none" else UnpackedFile(file, self._compression)


def rest_of(piece: FilePiece) -> FilePiece:
    """The range of the content of a compressed file that a piece covers, for a file that was partly read before it was compressed."""
    trace = piece.trace
    if trace is None or trace.mark is None:
        return piece
    return replace(piece, path=unpacked_name(piece.path), size=trace.mark.end, start=trace.since, end=trace.mark.end)


class GrowingReader(FilesReader):
    """Hands out the bytes that are appended to the files of one Discovery, each byte once, through rotations; see `Following`."""

    def __init__(self, *parts: Any, packing: FilesPacking, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._following = Following(self._discovery.root, packing, self._discovery.wants, settle_s=self._taking.settle_s)
        self._listed: list[str] | None = None
        self._rewritten: list[str] = []
        """losses that the log does not record yet"""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Apply the log entries: the ranges that were handed out, and where the files were then."""
        for streams in entries:
            for stream in streams:
                for path, piece in self._pieces(stream):
                    if stream.lost and piece.start == piece.end and piece.trace is not None:
                        self._following.remember_lost(piece.trace.file)
                    else:
                        self._remember(path, piece)

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next bytes of the files, and known losses. Raises SourceError for a file whose state is not clear."""
        streams = super().split(limits, final=final)
        self._rewritten += self._following.rewritten
        self._following.rewritten = []
        streams = [*(self._gone(known) for known in self._following.lost(final=final)), *streams]
        moved = self._following.unsaved() if streams else []
        if moved:
            place = {"root": self._root, "pieces": [_standing(known).as_json() for known in moved]}
            streams.insert(0, SourceStream(f"where files are: {some([known.path for known in moved])}", place, skipped=True))
        again, self._rewritten = (self._rewritten, []) if streams else ([], self._rewritten)
        return [*(self._again(path) for path in again), *streams]

    def _again(self, path: str) -> SourceStream:
        label = f"{path} written again, {self._following.turn(path, '')}"  # each time another file
        return SourceStream(label, {"root": self._root, "pieces": []}, skipped=True, again=str(self._discovery.root / path))

    def _gone(self, known: KnownFile) -> SourceStream:
        what = (
            f"{self._discovery.root / known.path} was replaced or deleted while {known.unread:,} of its {known.seen.size:,} bytes were "
            "unread, and it is not in its folder any more: these bytes are lost"
        )
        self._notices.append(what)
        place = {"root": self._root, "pieces": [_standing(known).as_json()]}
        return SourceStream(f"{known.path}[{known.end}:{known.seen.size}] lost", place, skipped=True, lost=what)

    def _update_waiting(self, now_s: float) -> None:  # noqa: ARG002
        if self._discovery.awaited is not None:
            if self._following.empty and not self._discovery.awaited.exists():
                raise missing(self._discovery.awaited)
            self._discovery.awaited = None
        self._listed = self._discovery.changed()
        self._say_what_is_passed_over()

    def measure(self) -> Backlog:
        """See `MeasuringReader`; only files whose state is clear."""
        self._listed = self._discovery.changed()
        self._recheck(everything=True, waits=False)
        return self.backlog()

    def _recheck(self, *, everything: bool, waits: bool = True) -> None:
        """Update where the files are. A last poll waits until the state of all files is clear."""
        following = self._following
        deadline_s = time.monotonic() + _LONGEST_WAIT_S
        try:
            following.refresh(self._listed, self._due(following.at, everything=everything), final=everything and waits)
            while everything and waits and (wait_s := following.waits_for()) is not None and time.monotonic() < deadline_s:
                time.sleep(min(wait_s + 0.01, 0.2))
                following.refresh(self._discovery.changed(), list(following.at), final=True)
        except PermissionError as error:
            raise SourceError(f"this user is not allowed to read {error.filename}", remedy="make it readable, or move it away") from None
        self._notices += [f"{self._discovery.root}: {notice}" for notice in following.notices]
        following.notices.clear()
        for cut in following.cuts:
            self._cut(cut.path, f"{cut.before:,} bytes of it were read, then it was truncated to {cut.now:,} bytes, which are unchanged")
        if following.unclear and self._taking.stop_on_change:
            known = following.unclear[0]
            raise SourceError(
                f"{self._discovery.root / known.path} changed after it was assigned to a Batch: {known.end:,} bytes of it were read, "
                "then another file took its name",
                remedy="restore it; or, to read the other file from its start, run once with `on_change: ignore`",
            )
        found = {path: known.seen for path, known in following.behind.items()}
        new = {path: new for path, new in following.new.items() if new.verdict is Verdict.NEW and new.seen.size}
        # files that have left their path first: they may be deleted next
        order = sorted(found, key=lambda path: (not following.has_moved(path), path.split("/")))
        order += sorted(new, key=lambda path: path.split("/"))
        waiting = {}
        for path in order:
            seen, since_s = (found[path], 0.0) if path in found else (new[path].seen, new[path].since_s)
            waiting[path] = WaitingFile(seen.size, seen.mtime_ns, seen.inode, since_s)
        self._waiting = waiting

    def check_taken(self) -> list[str]:
        """Check the assigned files without waiting, as far as their state is clear. Returns the files that were rewritten."""
        self._listed = self._discovery.changed()
        self._recheck(everything=False)
        return [str(self._discovery.root / path) for path in self._following.rewritten]

    def _cut(self, path: str, how: str) -> None:
        if self._taking.stop_on_change:
            raise SourceError(
                f"{self._discovery.root / path} changed after it was assigned to a Batch: {how}",
                remedy="restore it, or move it away and put new records into a new file, or set `on_change: ignore`",
            )
        if path not in self._said:
            self._said.add(path)
            self._notices.append(
                f"{self._discovery.root / path} changed after it was assigned to a Batch ({how}); it is not read until it is longer"
            )

    def _finished(self, path: str, now_s: float, *, final: bool) -> FilePiece | None:
        """The piece of the file that can be read now: whole lines, or all of a compressed one; None if there is nothing to read yet."""
        following = self._following
        known, new = following.at.get(path), following.new.get(path)
        with following.opened(path) as found:
            if found is None or (known is None and new is None):
                del self._waiting[path]
                return None
            status, file = found
            if known is not None and known.rest is not None:
                trace = replace(known.trace(), mark=known.rest)
                return self._piece(path, status, 0, status.size, trace)
            if not self._grows(path):
                if not (final or self._settled(os.fstat(file.descriptor), self._waiting[path], now_s)):
                    self._say_if_long(path, now_s)
                    return None
                return self._piece(path, status, 0, status.size, Trace(_id_of(known, new), 0, status.device, None, file.mark(status.size)))
            start = 0 if known is None else known.end
            if known is not None and known.mark is not None and not file.holds(known.mark):
                return None  # the next poll determines the state of the path
            settled = final or time.time() - status.mtime_ns / 1e9 >= self._taking.settle_s
            end = self._whole_lines(self._discovery.root / path, start, status.size, settled)
            if end == start and known is not None and following.has_moved(path) and time.time() - status.mtime_ns / 1e9 >= _ENDED_S:
                end = status.size
            mark = file.mark(end)
            now = following.status(path)
            if end == start or mark is None or now is None or not now.is_file_of(status):  # it was renamed in the meantime
                return None
            return self._piece(path, status, start, end, Trace(_id_of(known, new), start, status.device, mark))

    def _piece(self, path: str, status: FileStatus, start: int, end: int, trace: Trace) -> FilePiece:
        trace = replace(trace, turn=self._following.turn(path, trace.file))
        return FilePiece(path, status.size, status.mtime_ns, status.inode, start, end, end - start, trace)

    def _has_begun(self) -> bool:
        return not self._following.empty

    def _end_of(self, path: str) -> int:
        known = self._following.at.get(path)
        return 0 if known is None or known.packed is not None else known.end

    def _remember(self, path: str, piece: FilePiece) -> None:
        trace, taken = piece.trace, piece.start < piece.end
        seen = FileStatus(ANY_DEVICE if trace is None else trace.device, piece.inode, piece.size, piece.mtime_ns)
        self._following.remember(path, seen, piece.end, trace, packed=not self._grows(path), taken=taken)


def _id_of(known: KnownFile | None, new: NewFile | None) -> str:
    if known is not None:
        return known.id
    assert new is not None
    return new.id


def _standing(known: KnownFile) -> FilePiece:
    """A piece for the place of a known file, with no bytes to read."""
    seen = known.seen
    return FilePiece(known.path, seen.size, seen.mtime_ns, seen.inode, known.end, known.end, 0, known.trace())

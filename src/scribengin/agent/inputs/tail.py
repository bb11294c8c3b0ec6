"""The input `tail`: follows the files that patterns match, through every known way to rotate them.

A file is asked for its size by name every `poll` seconds, without inotify, so network file systems work too; the patterns are matched again
less often, or at once when a name leads to another file. What happens to a file:

* *renamed*: the open file is read on. The file that took its name is read after it. It is left once nothing was written to it for some
  seconds and its name exists again, or after a longer time; a last line without a line end is then delivered as it is.
* *deleted*: the same, through the open file.
* *truncated*, which is seen by its size, its first bytes, or the bytes before the position: it is read from its beginning. What was not
  read is read from a copy that begins with the same bytes; what no copy has is counted and reported. Zero bytes that a writer without
  O_APPEND leaves at its beginning are skipped.
* *copied or compressed*: a file that begins as a known one is a copy of it. It is read only after the other is gone, from where that was
  read to.

Positions are those of the frames that are kept (`FrameOrigin.identity`, `end`), so nothing is read twice or left out after a crash.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
import time
from collections import OrderedDict, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.agent.inputs import InputReport, RecordChunk
from scribengin.agent.inputs.files import (
    GZIP_MAGIC,
    HEAD_BYTES,
    OTHER_PACKED,
    TAIL_BYTES,
    FileContent,
    FileKey,
    GzipReader,
    KnownContents,
    PlainReader,
    TailedFile,
    UnreadRest,
    inodes_in,
    is_name_after,
    keys_of_output,
    likely_originals,
    open_reader,
    read_positions,
    restored_contents,
    write_positions,
)
from scribengin.agent.inputs.lines import TOO_LONG_HEAD, RecordCutter, RecordRun, TextEncoding, encoding_for
from scribengin.agent.inputs.patterns import PathPatterns
from scribengin.wire.frames import FrameOrigin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.wire.protocol import LaneConfig

BLOCK_BYTES = 2**20
COLD_S = 10.0
"""files that have not changed for that time are asked in parts, `COLD_FILES` at each poll"""
COLD_FILES = 400
SURE_HEAD = 256
"""a fingerprint of at least so many bytes recognises a copy under any name"""
LAST_USED = 10
_KEPT_REST = 256 * 1024


class TailInput:
    """Follows files. Made by `open`."""

    leave_s = 5.0
    """a renamed or deleted file is left when nothing was written to it for that time, and its name exists again"""
    grace_s = 60.0
    """it is left after that time if its name does not exist; and so long a copy of a truncated file is looked for"""
    open_files = 512

    def __init__(self, lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> None:
        options = lane.options
        self._lane = lane
        self._folder = f"{os.path.realpath(folder)}/"
        self._start_file = Path(folder) / f"tail-{lane.flow}.{lane.source}.json"
        self._patterns = PathPatterns(options["path"], options.get("exclude", []))
        self._follow = bool(options.get("follow_links", True))
        self._encoding = str(options.get("encoding", "utf-8"))
        self._multiline: dict[str, Any] | str = options.get("multiline") or ""
        self._quiet_s = 0.0 if isinstance(self._multiline, str) else float(self._multiline.get("timeout", 1.0))
        self._block = max(4096, min(BLOCK_BYTES, lane.frame_bytes))
        self._poll_s = float(options.get("poll", 0.25))
        self._host = os.uname().nodename
        self._cutters: dict[TextEncoding, RecordCutter] = {}
        self._cutter_for(b"")  # refuses what is not valid before anything is read
        self._most_open = max(2 * LAST_USED, min(self.open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._known = KnownContents()
        self._files: dict[FileKey, TailedFile] = {}
        self._paths: dict[str, TailedFile] = {}
        self._ready: deque[TailedFile] = deque()
        self._moved: dict[TailedFile, None] = {}
        self._copies: dict[TailedFile, None] = {}
        self._continued: dict[FileContent, TailedFile] = {}
        self._joining: dict[TailedFile, None] = {}
        self._fresh: dict[TailedFile, None] = {}
        self._hot: dict[TailedFile, None] = {}
        self._opened: OrderedDict[TailedFile, None] = OrderedDict()
        self._rests: list[UnreadRest] = []
        self._urgent: list[RecordChunk] = []
        self._cold_at = 0
        self._refused: dict[str, str] = {}
        self._events: deque[str] = deque(maxlen=8)
        self.lost_bytes = 0
        """bytes that are known to be lost by truncations"""
        self._own_keys = keys_of_output()
        self._next_look = self._next_scan = 0.0
        self._closing = threading.Event()
        now = time.monotonic()
        self._skips = options.get("from") == "end" and not positions and not self._start_file.exists()
        for content in restored_contents({**read_positions(self._start_file), **positions}):
            self._known.add(content)
        self._scan(now, force=True)
        self._find_absent(now)
        if self._skips:
            self._skips = False
            kept = [file.content for file in self._files.values() if file.copied is None]
            write_positions(self._start_file, [content for content in kept if content.end])

    # what the lane calls

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        """What is new in the files, each in its order, at most a block of one before the next one is read."""
        now = time.monotonic()
        if now >= self._next_look:
            self._ask_files(now)
        chunks, self._urgent = self._urgent, []
        left = most_bytes - sum(len(chunk.payload) for chunk in chunks)
        idle = 0
        while left > 0 and idle < len(self._ready):
            file = self._ready.popleft()
            file.queued = False
            read = self._read(file, left, now)
            idle = 0 if read else idle + 1
            left -= sum(len(chunk.payload) for chunk in read)
            chunks += read
        return chunks

    def wait(self, timeout_s: float) -> None:
        """Return when files are asked for their sizes again, or the time is over."""
        if not (self._urgent or any(file.after is None for file in self._ready)):
            self._closing.wait(max(0.0, min(timeout_s, self._next_look - time.monotonic())))

    def report(self) -> InputReport:
        """Files that are followed, what is wrong with them, and the bytes that are not read yet."""
        files = list(self._files.values())
        backlog = sum(max(0, file.size - file.content.end) for file in files if not file.packed and file.copied is None)
        texts = list(dict.fromkeys((*list(self._patterns.faults.values()), *list(self._refused.values()), *list(self._events))))
        more = f"; and {len(texts) - 8} more" if len(texts) > 8 else ""
        return InputReport(len(files), "; ".join(texts[:8]) + more, backlog)

    def close(self) -> None:
        """Close all files."""
        self._closing.set()
        for file in list(self._opened):
            self._close_file(file)

    # what the paths lead to

    def _ask_files(self, now: float) -> None:
        force = False
        for path in self._paths_to_ask(now):
            file = self._paths.get(path)
            try:
                status = os.stat(path)  # noqa: PTH116 - it is called a thousand times a second
            except OSError:
                force = True
                continue
            if file is None or (status.st_dev, status.st_ino) != file.key:
                force = True
            else:
                self._seen(file, status, now)
        for file in [file for file in self._moved if not file.paths and file.reader is not None]:
            assert file.reader is not None
            try:
                self._seen(file, os.fstat(file.reader.descriptor), now)
            except OSError as error:
                self._read_failed(file, error)
        if force or now >= self._next_scan:
            self._scan(now, force=force)
        self._settle(now)
        self._next_look = time.monotonic() + self._poll_s

    def _paths_to_ask(self, now: float) -> list[str]:
        """All of files that changed lately, and a part of the others."""
        paths = list(self._paths)
        if len(paths) <= COLD_FILES:
            return paths
        for file in [file for file in self._hot if now - file.changed_at > COLD_S]:
            del self._hot[file]
        start = self._cold_at % len(paths)
        self._cold_at = start + COLD_FILES
        return [*{*paths[start : start + COLD_FILES], *(path for file in self._hot for path in file.paths)}]

    def _seen(self, file: TailedFile, status: os.stat_result, now: float) -> None:
        if status.st_size == file.size and status.st_mtime_ns == file.mtime_ns:
            return
        size = status.st_size
        if file.copied is None and not file.packed and not self._same_content(file):
            self._truncated(file, now)
            size, file.flushed = 0, False  # the size may be that of a content that is gone again
            self._queue(file)
        if self._files.get(file.key) is not file:
            return
        grown = size > file.size
        file.size, file.mtime_ns, file.changed_at = size, status.st_mtime_ns, now
        file.flushed = file.flushed and not grown
        self._hot[file] = None
        if file.copied is not None and not self._begins_like(file, file.copied, now):
            self._is_no_copy(file)
        if file.packed or file.size > file.content.end:
            self._queue(file)

    def _scan(self, now: float, *, force: bool = False) -> None:
        """Match the patterns again, and find out which files the paths lead to."""
        begin = time.thread_time()
        found: dict[str, os.stat_result | None] = {}
        paths = self._patterns.paths(time.time_ns())
        for path in self._refused.keys() - paths:
            del self._refused[path]
        for path in paths:
            if path in self._paths and not force:
                found[path] = None
                continue
            try:
                status = os.stat(path) if self._follow else os.lstat(path)  # noqa: PTH116
            except FileNotFoundError:
                self._refused.pop(path, None)
            except OSError as error:
                self._refuse(path, error)
            else:
                if stat.S_ISREG(status.st_mode):
                    found[path] = status
        left: dict[str, TailedFile] = {}
        for path, file in list(self._paths.items()):
            status_now = found.get(path)
            if path not in found or (status_now is not None and (status_now.st_dev, status_now.st_ino) != file.key):
                del self._paths[path]
                file.paths.discard(path)
                left[path] = file
        # files that are known take their new names before others are compared with them
        changed = [(path, status) for path, status in found.items() if status is not None and path not in self._paths]
        new = []
        for path, status in changed:
            known = self._files.get((status.st_dev, status.st_ino))
            if known is not None and self._still(known, path, status):
                self._lead_to(path, known, left.get(path))
            else:
                new.append((path, status))
        for path, file in left.items():
            if file.path == path:
                self._move(file, now)
        if new:
            self._take_heads(now)
        for path, status in sorted(new, key=lambda one: (one[1].st_dev, one[1].st_ino) not in self._known):
            adopted = self._files.get((status.st_dev, status.st_ino)) or self._adopt(path, now)
            if adopted is not None:
                self._lead_to(path, adopted, left.get(path))
        self._find_rests(now)
        self._next_scan = now + max(self._poll_s, min(1.0, 4 * self._poll_s), min(10.0, 50 * (time.thread_time() - begin)))

    def _take_heads(self, now: float) -> None:
        """Take the fingerprints of files that were empty, before new files are compared with them."""
        for file in list(self._fresh):
            try:
                if not file.content.head_bytes and self._files.get(file.key) is file and self._opens(file):
                    self._begin(file, now)
            except OSError as error:
                self._read_failed(file, error)
            if file.content.head_bytes or self._files.get(file.key) is not file:
                self._fresh.pop(file, None)

    def _lead_to(self, path: str, file: TailedFile, before: TailedFile | None) -> None:
        self._paths[path] = file
        file.paths.add(path)
        file.content.latest = path
        if file.path == path and file.moved_at is not None:
            file.moved_at = None
            self._moved.pop(file, None)
        if before is not None and before.content.followed and before.copied is None and before.content.born < file.content.born:
            file.after = before

    def _move(self, file: TailedFile, now: float) -> None:
        if file.moved_at is None:
            file.moved_at = now
            file.flushed = False
        self._moved[file] = None
        self._queue(file)

    def _queue(self, file: TailedFile) -> None:
        if not file.queued and file.copied is None:
            file.queued = True
            self._ready.append(file)

    def _still(self, file: TailedFile, path: str, status: os.stat_result) -> bool:
        """Whether an inode has the content that it had; that of an open file cannot be used again."""
        if file.reader is not None:
            return True
        if file.copied is not None or not file.content.head_bytes:
            self._leave(file, complete=False)
            return False
        try:
            reader, _ = open_reader(path)
        except OSError:
            return True
        same = file.content.has_head(reader.read(HEAD_BYTES, file.content.head_at)) and (file.packed or status.st_size >= file.content.end)
        reader.close()
        if not same:
            self._leave(file, complete=False)
        return same

    def _adopt(self, path: str, now: float) -> TailedFile | None:
        """Begin to follow a file that was not known, or not since the agent started. None if it cannot be read, or not yet."""
        if path.endswith(OTHER_PACKED):
            self._refused[path] = f"{path} is compressed in a way that cannot be read: exclude *{Path(path).suffix}, or use gzip"
            return None
        try:
            reader, status = open_reader(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse(path, error)
            return None
        self._refused.pop(path, None)
        key = (status.st_dev, status.st_ino)
        if path.endswith(".gz") and status.st_size < len(GZIP_MAGIC):
            reader.close()  # one is just being made
            return None
        if key in self._own_keys or os.path.realpath(path).startswith(self._folder):
            self._refused[path] = f"{path} belongs to the agent itself and is not read: exclude it"
            reader.close()
            return None
        file = TailedFile(key, path, FileContent(key, 0, path), reader=reader, packed=isinstance(reader, GzipReader))
        file.size, file.mtime_ns, file.changed_at = status.st_size, status.st_mtime_ns, now
        self._opened[file] = None
        try:
            ready = self._find_content(file, now)
        except OSError as error:
            self._refuse(path, error)
            ready = False
        if not ready:
            self._close_file(file)
            return None
        self._files[key] = file
        self._hot[file] = self._fresh[file] = None
        if file.size and file.copied is None and not file.content.head_bytes:
            self._begin(file, now)
        self._queue(file)
        if len(self._opened) > self._most_open:
            self._close_file(file)
        return file

    def _find_content(self, file: TailedFile, now: float) -> bool:
        """Find out which content a file has that was opened, and the position. False if that cannot be known yet."""
        reader = file.reader
        assert reader is not None
        if isinstance(reader, GzipReader) and len(reader.read(HEAD_BYTES, 0)) < HEAD_BYTES and not reader.whole:
            return False
        known = self._known.newest(file.key)
        if known is not None and known.head_bytes:
            if known.has_head(reader.read(HEAD_BYTES, known.head_at)) and (file.packed or file.size >= known.end):
                file.content = known
                known.followed, known.complete = True, False
                known.tail = self._tail_of(file, known.end)
                return True
            if not known.complete and known.path == file.path:
                self._rests.append(UnreadRest(known, known.end, now + self.grace_s))
        file.content = self._known.new(file.key, file.path)
        file.content.followed = True
        if self._skips:
            self._skip_to_end(file)
        return True

    def _original_of(self, file: TailedFile, beginning: bytes, now: float) -> FileContent | None:
        """The content that a file whose first bytes are there is a copy of; None if it is a file of its own."""
        assert file.reader is not None
        originals = [self._paths[path] for path in likely_originals(file.path) if path in self._paths]
        originals = [other for other in originals if other is not file and other.copied is None and not other.packed]
        for other in originals:
            if not self._same_content(other):
                self._truncated(other, now)
            if not other.content.head_bytes and self._opens(other):
                self._begin(other, now)
        if not self._opens(file):
            return None
        likely = []
        for content in list(self._known.with_head_of(file.reader)):
            if self._may_be_copy(content, file, now):
                last = self._continuation_of(content)
                # another file may be read instead of it, which begins in the same way and goes on in another
                if last is content or (last.key != file.key and self._goes_on_like(file, last, now, renamed=True)):
                    likely.append(last)
        if likely:
            return max(likely, key=lambda content: content.end)
        if len(beginning) < HEAD_BYTES and not file.packed:  # a copy that is just being made
            for content in [other.content for other in originals]:
                if content.head_bytes and self._begins_like(file, content, now) and (content.followed or self._has_head_of(file, content)):
                    return content
        return None

    def _continuation_of(self, content: FileContent) -> FileContent:
        """The content that is read instead of one that is gone: that of its copy, or of a copy of that."""
        while (copy := self._continued.get(content)) is not None and copy.content is not content:
            content = copy.content
        return content

    def _has_head_of(self, file: TailedFile, content: FileContent) -> bool:
        return self._opens(file) and file.reader is not None and content.has_head(file.reader.read(HEAD_BYTES, content.head_at))

    def _may_be_copy(self, content: FileContent, file: TailedFile, now: float) -> bool:
        """Whether a file that has the fingerprint of a content may be a copy of it. Files of other programs may begin in the same way."""
        renamed = any(is_name_after(file.path, path) for path in {content.path, content.latest or content.path})
        sure = content.head_bytes >= SURE_HEAD
        if content.key == file.key or not (renamed or sure):
            return False
        return self._goes_on_like(file, content, now, renamed=renamed)

    def _goes_on_like(self, file: TailedFile, content: FileContent, now: float, *, renamed: bool) -> bool:
        """Whether a file that has the fingerprint of a content has also what was read of that, as far as is known."""
        if content.followed:
            return content.path != file.path and self._begins_like(file, content, now)
        assert file.reader is not None
        if not file.packed and file.size < content.end:
            return renamed
        tail = bool(content.tail) and file.reader.read(len(content.tail), content.end - len(content.tail)) == content.tail
        if content.path == file.path:  # a file that was replaced by one that begins with it, as rsync does
            return tail and content.end >= HEAD_BYTES
        return tail and (renamed or content.end > HEAD_BYTES) if content.tail else renamed

    def _begins_like(self, file: TailedFile, content: FileContent, now: float) -> bool:
        """Whether all that a file has now is also in one that has a content, at the same place."""
        original = self._files.get(content.key)
        if original is None or original.content is not content or file.packed:
            return True
        if not self._same_content(original):
            self._truncated(original, now)
            return True
        size = min(file.size, _KEPT_REST)
        if not self._opens(file) or not self._opens(original):
            return True
        assert file.reader is not None
        assert original.reader is not None
        if file.reader.read(size, file.size - size) == original.reader.read(size, file.size - size):
            return True
        if self._same_content(original):
            return False
        self._truncated(original, now)  # meanwhile
        return True

    def _is_no_copy(self, file: TailedFile) -> None:
        """A file that began like another one is a file of its own."""
        file.copied = None
        del self._copies[file]
        file.content = self._known.new(file.key, file.path)
        file.content.followed = True
        self._queue(file)

    # files that were truncated, and copies

    def _truncated(self, file: TailedFile, now: float) -> None:
        """The content of a file is gone, and another one takes its place."""
        old, seen, rest = file.content, max(file.size, file.content.end), file.rest
        old.followed = False
        file.content = self._known.new(file.key, file.path)
        file.content.followed = True
        file.size, file.rest, file.long_end = 0, b"", 0
        self._joining.pop(file, None)
        self._fresh[file] = None
        if not old.head_bytes:
            return
        self._continue_copies(now)
        if old not in self._continued and self._find_copy(old, now):
            self._continue_copies(now)
        if old in self._continued:
            file.after = self._continued[old]
        elif rest and file.cutter is not None:
            # whole lines of a record that was not known to be whole; a part of a line waits for a copy that has all of it
            runs = file.cutter.cut(rest, quiet=True)
            self._urgent += self._chunks(old, runs, rest)
            rest = rest[sum(run.size for run in runs) :]
        self._rests.append(UnreadRest(old, seen, now + self.grace_s, rest, file.cutter))
        self._next_scan = 0.0

    def _continue_copies(self, now: float) -> None:
        for file in list(self._copies):
            original = file.copied
            if original is None:
                continue
            other = self._continued.get(original)
            if other is not None and other is not file:
                file.copied = other.content
            elif not original.followed:
                self._continue_copy(file, original)
            elif now - file.changed_at >= self.leave_s and not file.packed and not is_name_after(file.path, original.path):
                self._is_no_copy(file)

    def _continue_copy(self, file: TailedFile, original: FileContent) -> None:
        """Read a copy on from where its original was read to."""
        if not self._opens(file):
            return
        reader = file.reader
        assert reader is not None
        file.size = os.fstat(reader.descriptor).st_size
        self._is_no_copy(file)
        content, tail, end = file.content, original.tail, original.end
        if not file.packed and file.size <= end:
            end, tail = file.size, b""
        if tail and reader.read(len(tail), end - len(tail)) != tail:
            return  # it only begins like the other
        self._continued[original] = file
        content.head_at = original.head_at
        self._known.take_head(content, reader.read(HEAD_BYTES, original.head_at))
        content.end, content.line = end, original.line if end == original.end else -1
        content.tail = self._tail_of(file, end)
        if file.packed and original.complete:
            content.complete = True
            self._close_file(file)

    def _tail_of(self, file: TailedFile, end: int) -> bytes:
        size = min(TAIL_BYTES, end)
        return file.reader.read(size, end - size) if file.reader is not None and size else b""

    def _find_copy(self, content: FileContent, now: float) -> bool:
        """Look beside a file that is gone for a copy of it, whether a pattern matches it or not."""
        folder = str(Path(content.path).parent)
        paths = [f"{folder}/{name}" for name in sorted(inodes_in(folder).values())]
        paths = [path for path in paths if path not in self._paths and is_name_after(path, content.path)]
        return any(self._adopt_beside(path, content, now) for path in paths)

    def _find_absent(self, now: float) -> None:
        """After a start: look for files with a position that no pattern matches, as they were renamed or compressed meanwhile."""
        folders: dict[str, dict[int, str]] = {}
        for content in self._known:
            if not content.followed:
                folder = str(Path(content.path).parent)
                if folder not in folders:
                    folders[folder] = inodes_in(folder)
                name = folders[folder].get(content.key[1])
                if name is None or not self._adopt_beside(f"{folder}/{name}", content, now):
                    self._find_copy(content, now)
        self._find_rests(now)

    def _find_rests(self, now: float) -> None:
        for rest in self._rests:
            if rest.content not in self._continued:
                self._find_copy(rest.content, now)
        self._continue_copies(now)

    def _adopt_beside(self, path: str, content: FileContent, now: float) -> bool:
        """Follow a file that no pattern matches, if it has a content that was not read to its end, or is a copy of it."""
        if path.endswith(OTHER_PACKED) or self._patterns.excluded(path):
            return False
        try:
            reader, status = open_reader(path)
        except OSError:
            return False
        key = (status.st_dev, status.st_ino)
        fits = content.head_bytes > 0 and key not in self._files and content.has_head(reader.read(HEAD_BYTES, content.head_at))
        reader.close()
        if not fits or (status.st_size <= content.end and isinstance(reader, PlainReader)):
            return False
        file = self._adopt(path, now)
        if file is None:
            return False
        if file.content is not content and file.copied is not content:
            self._leave(file, complete=False)
            return False
        self._move(file, now)
        return True

    def _same_content(self, file: TailedFile) -> bool:
        """Whether a file still has what was read of it. A size alone does not say: a network file system may give an outdated one."""
        content = file.content
        if not content.head_bytes or not self._opens(file):
            return True
        assert file.reader is not None
        try:
            head = file.reader.read(content.head_bytes, content.head_at)
            tail = file.reader.read(len(content.tail), content.end - len(content.tail))
            return content.has_head(head) and tail == content.tail
        except OSError as error:
            self._read_failed(file, error)
            return True

    # files that are left

    def _settle(self, now: float) -> None:
        self._continue_copies(now)
        for file in [file for file in self._joining if now - file.changed_at >= self._quiet_s]:
            self._queue(file)
        for file in list(self._moved):
            quiet = now - max(file.moved_at or now, file.changed_at)
            named = self._paths.get(file.path) not in {None, file}
            if file.queued or file.copied is not None or quiet < (self.leave_s if named else self.grace_s):
                continue
            if not file.flushed:
                file.flushed = True
                self._queue(file)
            elif file.paths:
                del self._moved[file]
            else:
                self._leave(file, complete=True)
        for rest in [rest for rest in self._rests if now >= rest.until or rest.content in self._continued or rest.content.followed]:
            self._rests.remove(rest)
            self._report_rest(rest)

    def _report_rest(self, rest: UnreadRest) -> None:
        content, copy = rest.content, self._continued.get(rest.content)
        if content.followed or content.complete or (copy is not None and (copy.packed or copy.size >= rest.seen)):
            return
        if copy is None and rest.partial and rest.cutter is not None:
            self._urgent += self._chunks(content, rest.cutter.cut(rest.partial, ended=True), rest.partial)
        lost = rest.seen - max(content.end, copy.size if copy is not None else 0)
        self.lost_bytes += max(0, lost)
        what = (
            f"before {lost:,} bytes of it were read, and no copy has them" if lost > 0 else "and what was written just before is in no copy"
        )
        self._events.append(f"{content.path} was truncated {what}: let its program open a new file (logrotate: create, not copytruncate)")

    def _leave(self, file: TailedFile, *, complete: bool) -> None:
        """Follow a file no more."""
        if file.reader is not None and os.fstat(file.reader.descriptor).st_nlink == 0:
            self._known.forget_inode(file.content)
        self._close_file(file)
        file.content.followed, file.content.complete = False, complete or file.content.complete
        self._forget_paths(file)
        for files in (self._moved, self._copies, self._joining, self._hot):
            files.pop(file, None)
        if self._files.get(file.key) is file:
            del self._files[file.key]

    def _forget_paths(self, file: TailedFile) -> None:
        for path in file.paths:
            self._paths.pop(path, None)
        file.paths.clear()

    # reading

    def _read(self, file: TailedFile, most: int, now: float) -> list[RecordChunk]:
        if self._files.get(file.key) is not file or file.copied is not None:
            return []
        if file.after is not None and file.after.queued and self._files.get(file.after.key) is file.after:
            self._queue(file)
            return []
        file.after = None
        if not self._opens(file):
            return []
        try:
            if (file.cutter is None or not file.content.head_bytes) and not self._begin(file, now):
                return []
            return self._read_long(file, now) if file.long_end else self._read_block(file, most, now)
        except OSError as error:
            self._read_failed(file, error)
            return []

    def _begin(self, file: TailedFile, now: float) -> bool:
        """Skip a hole and a byte order mark, and take the fingerprint. False if nothing is there yet."""
        content, reader = file.content, file.reader
        assert reader is not None
        if content.head_bytes:
            file.cutter, _ = self._cutter_for(reader.read(4, content.head_at))
            return True
        at, beginning = 0, reader.read(HEAD_BYTES, 0)
        if beginning.startswith(b"\0"):
            at = reader.data_at(0) if isinstance(reader, PlainReader) else 0
            while (block := reader.read(self._block, at)) and not block.strip(b"\0"):
                at += len(block)
            at += len(block) - len(block.lstrip(b"\0"))
            unit = self._cutter_for(b"")[0].encoding.unit
            at = at - at % unit if unit == 1 or at >= 4 * unit else 0
            beginning = reader.read(HEAD_BYTES, at)
        file.cutter, mark_bytes = self._cutter_for(beginning[:4])
        if len(beginning) < file.cutter.encoding.unit:
            if isinstance(reader, GzipReader) and reader.whole:
                self._finish_packed(file, reader)
            return False
        original = self._original_of(file, beginning, now)
        if file.reader is not reader:  # it was closed meanwhile
            self._queue(file)
            return False
        if original is not None:
            content.followed = False
            file.copied = original
            self._copies[file] = None
            return False
        if at:
            self._events.append(f"{file.path}: {at:,} zero bytes at its beginning were skipped: let its program append (O_APPEND)")
        content.head_at, content.end = at, at + mark_bytes
        self._known.take_head(content, beginning)
        if not file.packed:
            file.size = at + len(beginning)  # what is known to be of this content
        return True

    def _has_head(self, file: TailedFile) -> bool:
        """Whether the file begins as before; its fingerprint grows with it."""
        content = file.content
        if not file.packed:
            assert file.reader is not None
            beginning = file.reader.read(HEAD_BYTES, content.head_at)
            if not content.has_head(beginning):
                return False
            self._known.take_head(content, beginning)
        return True

    def _renew(self, file: TailedFile, now: float) -> None:
        self._truncated(file, now)
        self._queue(file)

    def _read_block(self, file: TailedFile, most: int, now: float) -> list[RecordChunk]:
        content, reader, cutter = file.content, file.reader, file.cutter
        assert reader is not None
        assert cutter is not None
        known = len(content.tail)
        size = min(self._block if cutter.encoding.passes else self._block // 2, max(most, 65536)) & ~3
        data = reader.read(known + size, content.end - known)
        if data[:known] != content.tail:
            self._renew(file, now)
            return []
        block, most_size, first = data[known:], size, False
        at_end, ended, quiet = self._at_end(file, len(block) < size, now)
        runs = cutter.cut(block, ended=ended, quiet=quiet)
        if not at_end and not runs:  # the first record is larger than a block
            most_size, first = max(size, cutter.max_record + 8) & ~3, True
            block = reader.read(most_size, content.end)
            at_end, ended, quiet = self._at_end(file, len(block) < most_size, now)
            runs = cutter.cut(block, ended=ended, quiet=quiet, first=True)
        if not at_end and not runs:
            if not cutter.encoding.first_end(block):
                file.long_end = content.end + len(block)
                self._queue(file)
                return []
            runs = cutter.cut(block, quiet=True, first=True)
        if not self._has_head(file):  # asked after the block is read: all of it was there while the beginning was
            self._renew(file, now)
            return []
        chunks = self._chunks(content, runs, block)
        left = len(block) - sum(run.size for run in runs)
        for run in runs:
            if run.kind == "too_long":
                self._report_long(content, run)
        file.size = file.size if file.packed else max(file.size, content.end + left)
        file.rest = block[len(block) - left :] if at_end and left <= _KEPT_REST else b""
        if not at_end or (first and runs and left):
            self._queue(file)
        elif isinstance(reader, GzipReader) and ended:
            self._finish_packed(file, reader)
        self._joining.pop(file, None)
        if cutter.joins and left and not file.queued and not ended and not quiet:
            self._joining[file] = None
        return chunks

    def _at_end(self, file: TailedFile, at_end: bool, now: float) -> tuple[bool, bool, bool]:
        """Whether a block reaches the end of a file, whether nothing will follow, and whether nothing followed for a time."""
        whole = file.flushed or (isinstance(file.reader, GzipReader) and file.reader.whole)
        return at_end, at_end and whole, at_end and now - file.changed_at >= self._quiet_s

    def _read_long(self, file: TailedFile, now: float) -> list[RecordChunk]:
        """Search for the end of a record that is too long, a block at a time."""
        content, reader, cutter = file.content, file.reader, file.cutter
        assert reader is not None
        assert cutter is not None
        block = reader.read(self._block & ~3, file.long_end)
        full = len(block) == self._block & ~3
        end = cutter.encoding.first_end(block)
        if not end and not full and (file.flushed or (isinstance(reader, GzipReader) and reader.whole)):
            end = len(block)
        elif not end:
            file.long_end += len(block) & ~3
            if full:
                self._queue(file)
            return []
        head = reader.read(TOO_LONG_HEAD, content.end)
        run = cutter.too_long(head, file.long_end + end - content.end)
        tail = reader.read(TAIL_BYTES, content.end + run.size - TAIL_BYTES)
        if not self._has_head(file):
            self._renew(file, now)
            return []
        content.tail = tail
        chunks = self._chunks(content, [run], b"")
        self._report_long(content, run)
        file.long_end = 0
        self._queue(file)
        return chunks

    def _report_long(self, content: FileContent, run: RecordRun) -> None:
        self._events.append(
            f"{content.path}: a record of {run.size:,} bytes that ends at {content.end:,} is longer than max_record "
            f"({self._lane.max_record:,}) and becomes a dead letter: raise max_record if it is valid"
        )

    def _finish_packed(self, file: TailedFile, reader: GzipReader) -> None:
        if reader.fault:
            self._events.append(f"{file.path} cannot be decompressed beyond {file.content.end:,}: {reader.fault}")
        file.content.complete = True
        self._close_file(file)

    def _chunks(self, content: FileContent, runs: Sequence[RecordRun], block: bytes) -> list[RecordChunk]:
        """The chunks of runs, which begin at the position of a content; it is moved behind them."""
        chunks = []
        time_ms = int(time.time() * 1000)
        for run in runs:
            origin = FrameOrigin(
                host=self._host,
                file=content.path,
                identity=content.identity,
                offset=content.end,
                end=content.end + run.size,
                line=content.line + 1,
                lines=run.lines,
                tags=self._lane.tags,
            )
            chunks.append(RecordChunk(run.payload, run.count, origin, time_ms, run.mark, run.kind))
            content.end += run.size
            content.line += run.lines if content.line >= 0 else 0
        if block:
            taken = sum(run.size for run in runs)
            content.tail = (content.tail + block[max(0, taken - TAIL_BYTES) : taken])[-TAIL_BYTES:]
        return chunks

    def _cutter_for(self, beginning: bytes) -> tuple[RecordCutter, int]:
        encoding, mark_bytes = encoding_for(self._encoding, beginning)
        cutter = self._cutters.get(encoding)
        if cutter is None:
            cutter = self._cutters[encoding] = RecordCutter(encoding, self._multiline, self._lane.max_record)
        return cutter, mark_bytes

    # open files

    def _opens(self, file: TailedFile) -> bool:
        """Whether a file is open, or can be opened under one of its names, or under another one in its folder."""
        if file.reader is not None:
            self._opened.move_to_end(file)
            return True
        folder = str(Path(file.path).parent)
        for path in dict.fromkeys((*file.paths, file.path, "")):
            try:
                reader, status = open_reader(path or f"{folder}/{inodes_in(folder).get(file.key[1], '')}")
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    self._refuse(path, error)
                    file.mtime_ns = -1
                    return False
                continue
            if (status.st_dev, status.st_ino) == file.key:
                if self._is_again(file, path, reader):
                    file.reader = reader
                    self._opened[file] = None
                    self._close_idle()
                    return True
                self._forget_paths(file)
                self._next_scan = 0.0
            reader.close()
        file.mtime_ns = -1  # so that it is tried again
        if not file.paths:
            if file.copied is None and not file.packed and file.size > file.content.end:
                self._rests.append(UnreadRest(file.content, file.size, time.monotonic() + self.grace_s))
            self._leave(file, complete=False)
        return False

    def _is_again(self, file: TailedFile, path: str, reader: PlainReader | GzipReader) -> bool:
        """Whether an inode has the file that was closed: after that was deleted, any other file may have its inode."""
        if isinstance(reader, GzipReader) != file.packed:
            return False
        if path in file.paths or not file.content.head_bytes:
            return True
        return file.content.has_head(reader.read(HEAD_BYTES, file.content.head_at))

    def _close_idle(self) -> None:
        if len(self._opened) > self._most_open:
            # those that were used last may be in use now
            before = list(self._opened)[:-LAST_USED]
            idle = (file for file in before if not file.queued and file.paths and not file.rest and file.size <= file.content.end)
            for file in [file for file, _ in zip(idle, range(len(self._opened) - self._most_open), strict=False)]:
                self._close_file(file)

    def _close_file(self, file: TailedFile) -> None:
        if file.reader is not None:
            file.reader.close()
            file.reader = None
        self._opened.pop(file, None)

    def _read_failed(self, file: TailedFile, error: OSError) -> None:
        self._close_file(file)
        file.mtime_ns = -1
        if error.errno != errno.ESTALE:
            self._refuse(file.path, error)

    def _refuse(self, path: str, error: OSError) -> None:
        if error.errno in {errno.EACCES, errno.EPERM}:
            self._refused[path] = f"{path} cannot be read: allow it to the user of the agent (chmod o+r, or a group)"
        elif error.errno in {errno.EMFILE, errno.ENFILE}:
            self._refused[path] = f"{path}: too many open files: raise the limit of the agent (LimitNOFILE=)"
        else:
            self._refused[path] = f"{path}: {error.strerror or error}"

    # `from: end`

    def _skip_to_end(self, file: TailedFile) -> None:
        """Set the position behind the last line end."""
        reader, content = file.reader, file.content
        assert reader is not None
        encoding, end = encoding_for(self._encoding, reader.read(4, 0))[0], file.size
        if file.packed:
            end = 0
            while data := reader.read(self._block, end):
                end += len(data)
        while not file.packed and end > 0:
            begin = max(0, end - self._block)
            begin -= begin % encoding.unit
            if whole := encoding.last_end(reader.read(end - begin, begin)):
                end = begin + whole
                break
            end = begin
        if end:
            self._known.take_head(content, reader.read(HEAD_BYTES, 0))
            content.end, content.line = end, -1
            content.tail = self._tail_of(file, end)


def open(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> TailInput:
    """Follow the files of a lane, from the positions that are kept.

    Raises:
        EnvironmentFault: The encoding or a regular expression is not valid.
    """
    return TailInput(lane, positions, folder)

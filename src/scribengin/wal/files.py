"""The files of a log, as the rest of the package sees them: names in one folder, and what makes them durable. Tests put a simulated disk in
its place, which loses, reorders and tears what was not synced."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault, Refused
from scribengin.core.storage import explained, make_folder, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RESERVE = "reserve"
_BLOCK_BYTES = 4096
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def disk_faults(doing: str) -> Iterator[None]:
    """Raise EnvironmentFault, with the remedy, for whatever the disk does not do: `<doing>: No space left on device`."""
    try:
        with explained(doing):
            yield
    except OSError as error:
        remedy = "look for errors of the disk in the log of the kernel, and replace it if it fails"
        raise EnvironmentFault(f"{doing}: {error.strerror or error}", remedy=remedy) from error


class LogFolder:
    """The folder of one log. Nothing is durable before `sync` (contents) or `sync_names` (new, renamed and removed files) returns.

    Every method raises OSError as the system does.
    """

    reserved_bytes = 256 * 1024
    """the least that `reserve` keeps"""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1

    def lock(self) -> None:
        """Make the folder if there is none, and lock it for this process. Raises Refused, with the id of the process that has it, or
        EnvironmentFault."""
        make_folder(self.path)
        with explained(f"{self.path / 'lock'} cannot be opened"):
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise Refused(
                f"{self.path}: the write-ahead log is in use by process {holder}: two agents on one folder",
                remedy="stop the other agent, or give each agent a folder of its own",
            ) from None
        self._lock = handle
        try:
            os.pwrite(handle, f"{os.getpid():<19}\n".encode(), 0)
        except OSError as error:  # the id only helps to find the holder
            if error.errno not in NO_SPACE:
                raise

    def unlock(self) -> None:
        """Let other processes have the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def names(self) -> list[str]:
        """The names of all files, sorted."""
        return sorted(os.listdir(self.path))  # noqa: PTH208 - names, not paths

    def open(self, name: str, *, create: bool = False) -> int:
        """A handle to read and write a file. With `create`, an empty file of that name, also where there was one."""
        return os.open(self.path / name, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if create else 0), 0o644)

    def size(self, handle: int) -> int:
        """The bytes of a file."""
        return os.fstat(handle).st_size

    def read(self, handle: int, count: int, offset: int) -> bytes:
        """So many bytes from there on, fewer only at the end of the file."""
        data = os.pread(handle, count, offset)
        if len(data) == count or not data:
            return data
        parts = [data]
        while data and (count := count - len(data)) > 0:
            offset += len(data)
            parts.append(data := os.pread(handle, count, offset))
        return b"".join(parts)

    def write(self, handle: int, data: bytes, offset: int) -> None:
        """Write all of it there. After an OSError a part of it may have been written."""
        done = os.pwrite(handle, data, offset)
        while done < len(data):
            done += os.pwrite(handle, memoryview(data)[done:], offset + done)

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file after so many bytes."""
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        """Make the content of a file durable."""
        os.fdatasync(handle)

    def close(self, handle: int) -> None:
        """Give up a handle."""
        os.close(handle)

    def remove(self, name: str) -> None:
        """Remove a file; it is no error if there is none."""
        (self.path / name).unlink(missing_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; a file that had it is gone."""
        os.replace(self.path / old, self.path / new)  # noqa: PTH105

    def sync_names(self) -> None:
        """Make durable which files there are."""
        sync_folder(self.path)

    # what is made of these

    def content(self, name: str) -> bytes | None:
        """All bytes of a file; None if there is none. A block that the disk cannot read is returned as zeros."""
        try:
            handle = self.open(name)
        except FileNotFoundError:
            return None
        try:
            size = self.size(handle)
            try:
                return self.read(handle, size, 0)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
            return b"".join(self._block(handle, min(_BLOCK_BYTES, size - at), at) for at in range(0, size, _BLOCK_BYTES))
        finally:
            self.close(handle)

    def _block(self, handle: int, count: int, offset: int) -> bytes:
        try:
            return self.read(handle, count, offset).ljust(count, b"\0")
        except OSError:
            return bytes(count)

    def put(self, name: str, data: bytes) -> None:
        """Write a file durably and in one step: after a crash there is the old content or the new. When the disk is full, it takes the
        space that `reserve` keeps."""
        draft = f".{name}.new"
        try:
            self._write_draft(draft, data)
        except OSError as error:
            if error.errno not in NO_SPACE or _RESERVE not in self.names():
                raise
            self.remove(_RESERVE)
            self._write_draft(draft, data)
        self.rename(draft, name)
        self.sync_names()

    def _write_draft(self, draft: str, data: bytes) -> None:
        handle = self.open(draft, create=True)
        try:
            self.write(handle, data, 0)
            self.sync(handle)
        except OSError:
            self.remove(draft)
            raise
        finally:
            self.close(handle)

    def reserve(self, least: int) -> None:
        """Keep space on the disk, so that `put` can write that many bytes even when the disk is full: what frees space must not need
        any. If there is no space now, the next call tries again."""
        wanted = max(self.reserved_bytes, least)
        try:
            handle = self.open(_RESERVE, create=_RESERVE not in self.names())
            try:
                if self.size(handle) < wanted:
                    self.write(handle, bytes(wanted), 0)
            finally:
                self.close(handle)
        except OSError:
            self.remove(_RESERVE)

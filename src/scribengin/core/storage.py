"""The one door to files that must survive a crash: durable writes, put-if-absent, atomic renames. Local file systems, and paths of others
(`core.remote`), which do it their own way."""

from __future__ import annotations

import errno
import io
import os
import re
import zlib
from contextlib import contextmanager
from stat import S_IMODE
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.core.errors import EnvironmentFault
from scribengin.core.remote import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa


_BUFFER_BYTES = 256 * 1024
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}")
_REMEDIES = {
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): "make room there, and run it again",
    (errno.EACCES, errno.EPERM, errno.EROFS): "give this user the right to read and write there, or name another folder",
    (errno.ENOTDIR, errno.EEXIST): "name another folder: a file stands on the way to it",
    (errno.ENAMETOOLONG,): "take shorter names",
}


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Raise EnvironmentFault, with the remedy, for what a person can mend about a disk: `<doing>: No space left on device`."""
    try:
        yield
    except OSError as error:
        for numbers, remedy in _REMEDIES.items():
            if error.errno in numbers:
                raise EnvironmentFault(f"{doing}: {os.strerror(error.errno)}", remedy=remedy) from error
        raise


def put_if_absent(path: Path, data: bytes) -> bool:
    """Write `data` to `path` durably, unless something is there: then False, and nothing changed.

    The link of a finished file is the one step that others see: never an empty or torn file, and of any number of
    concurrent callers exactly one gets True. Raises EnvironmentFault (no room, no right); then nothing is visible.
    """
    if isinstance(path, RemotePath):
        return path.put(data)
    make_folder(path.parent)
    draft = _draft(path)
    with explained(f"{path} cannot be written"):
        try:
            _write_synced(draft, data)
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
            sync_folder(path.parent)
            return True
        finally:
            draft.unlink(missing_ok=True)


def replace(path: Path, data: bytes) -> None:
    """Write `data` to `path` durably and at once: readers see the old content or the new, never a part."""
    if isinstance(path, RemotePath):
        path.put_over(data)
        return
    make_folder(path.parent)
    draft = _draft(path)
    with explained(f"{path} cannot be written"):
        try:
            _write_synced(draft, data)
            draft.replace(path)
            sync_folder(path.parent)
        finally:
            draft.unlink(missing_ok=True)


def rewrite(path: Path, data: bytes) -> None:
    """As `replace`, for a file that a person keeps: a link goes on to lead to it, and it keeps its rights."""
    target = path.resolve()
    mode = target.stat().st_mode if target.exists() else None
    draft = _draft(target)
    with explained(f"{path} cannot be written"):
        try:
            _write_synced(draft, data)
            if mode is not None:
                draft.chmod(S_IMODE(mode))
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)


def read_or_none(path: Path) -> bytes | None:
    """The bytes of `path`, or None where there is no such file. Raises EnvironmentFault where they may not be read."""
    if isinstance(path, RemotePath):
        return path.get()
    with explained(f"{path} cannot be read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def mapped(path: Path) -> pa.NativeFile:
    """The bytes of `path` for Arrow: in place, where they lie on a disk. Raises FileNotFoundError."""
    import pyarrow as pa

    return pa.BufferReader(path.read_bytes()) if isinstance(path, RemotePath) else pa.memory_map(str(path))


def names_in(folder: Path) -> list[str]:
    """The names in a folder, in no order, drafts of unfinished writes left out; [] where there is no such folder."""
    return [name for name in _listed(folder) if not name.startswith(".")]


def make_folder(folder: Path) -> None:
    """Make the folder and those above it, durably; no cost where it is there."""
    if isinstance(folder, RemotePath):
        folder.make()
        return
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with explained(f"the folder {folder} cannot be made"):
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise
        sync_folder(folder.parent)


def remove_tree(folder: Path) -> None:
    """Delete the folder and all in it; what vanishes meanwhile is no error, nor is a file that appears: the folder then stays."""
    if isinstance(folder, RemotePath):
        folder.remove(all_in_it=True)
        return
    for name in _listed(folder):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _listed(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def sync_folder(folder: Path) -> None:
    """Make the folder's entries (renames, links, new names) durable."""
    if isinstance(folder, RemotePath):
        return  # they are
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that sync folders by themselves
            raise
    finally:
        os.close(handle)


def remove_drafts(folder: Path) -> None:
    """Delete the drafts that killed writers have left in the folder. A writer that is still at it fails, and has written nothing."""
    for draft in drafts_in(folder):
        draft.unlink(missing_ok=True)


def drafts_in(folder: Path) -> list[Path]:
    """The drafts in the folder, of writers that were killed or are at it; [] where there is no such folder."""
    return [folder / name for name in _listed(folder) if _DRAFT.fullmatch(name)]


def _draft(path: Path) -> Path:
    return path.parent / f".{path.name}.{uuid4().hex}"


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


class SummedFile(io.RawIOBase):
    """A new file that counts and sums what is written to it: `size` in bytes, `crc` (CRC-32). What encoders write to."""

    def __init__(self, path: Path) -> None:
        self._file: Any = path.new() if isinstance(path, RemotePath) else path.open("xb", buffering=_BUFFER_BYTES)
        self.size = 0
        self.crc = 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """Append the bytes."""
        written: int = self._file.write(data)
        self.size += written
        self.crc = zlib.crc32(data, self.crc)
        return written

    def tell(self) -> int:
        """Behind the last byte."""
        return self.size

    def flush(self) -> None:
        """Hand on what is buffered."""
        if not self._file.closed:
            self._file.flush()

    def sync(self) -> None:
        """Make the bytes durable."""
        self._file.flush()
        if isinstance(self._file, io.BufferedWriter):
            os.fsync(self._file.fileno())
        else:
            self._file.sync()

    def close(self) -> None:
        """End it."""
        try:
            self._file.close()
        finally:
            super().close()

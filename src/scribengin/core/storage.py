"""All access to files that must survive a crash: durable writes, put-if-absent, atomic renames. Works on local file systems, and on paths
of other ones (`core.remote`), which implement it themselves."""

from __future__ import annotations

import errno
import io
import os
import re
import zlib
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.core.errors import EnvironmentFault
from scribengin.core.remote import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


_BUFFER_BYTES = 256 * 1024
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}")
_REMEDIES = {
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): "free space there, then run the command again",
    (errno.EACCES, errno.EPERM, errno.EROFS): "give this user read and write permission there, or name another folder",
    (errno.ENOTDIR, errno.EEXIST): "name another folder: a part of its path is a file",
    (errno.ENAMETOOLONG,): "use shorter names",
    (errno.ELOOP,): "name another folder: the links in its path form a cycle",
}
_MOST_NAME_BYTES = 255
_OF_THE_KERNEL = frozenset(
    {"proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "pstore", "bpf", "configfs", "devpts", "mqueue", "efivarfs"}
)
"""file systems of the kernel, in which folders cannot be created"""


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Raise EnvironmentFault, with the remedy, for disk errors that an operator can fix: `<doing>: No space left on device`."""
    try:
        yield
    except OSError as error:
        for numbers, remedy in _REMEDIES.items():
            if error.errno in numbers:
                raise EnvironmentFault(f"{doing}: {os.strerror(error.errno)}", remedy=remedy) from error
        raise


def shown_path(path: Path) -> Path:
    """The path as messages show it: without `..` in it, if that means the same. If it leads through a link or a missing folder it does not,
    and the path is returned unchanged."""
    if isinstance(path, RemotePath) or ".." not in path.parts or not path.parent.exists():
        return path
    short = Path(os.path.normpath(path))
    return short if os.path.realpath(short) == os.path.realpath(path) else path


def put_if_absent(path: Path, data: bytes) -> bool:
    """Write `data` to `path` durably, unless something exists there: then it returns False and changes nothing.

    Other processes see a single step, the link of the complete file: never an empty or torn file, and of any number of concurrent callers
    exactly one gets True. Raises EnvironmentFault (no space, no permission); then nothing is visible.
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


def replace(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write `data` to `path` durably and atomically: readers see the old content or the new, never a part. With `private`, only this user
    may read the file."""
    if isinstance(path, RemotePath):
        path.put_over(data, private=private)
        return
    make_folder(path.parent)
    draft = _draft(path)
    with explained(f"{path} cannot be written"):
        try:
            _write_synced(draft, data, mode=0o600 if private else 0o666)
            draft.replace(path)
            sync_folder(path.parent)
        finally:
            draft.unlink(missing_ok=True)


def rewrite(path: Path, data: bytes) -> None:
    """Replace the contents of a file that a user maintains: a link still leads to it, and its permissions stay. See `replace`."""
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
    """The bytes of `path`, or None if there is no such file. Raises EnvironmentFault if they may not be read."""
    if isinstance(path, RemotePath):
        return path.get()
    with explained(f"{path} cannot be read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def mapped(path: Path) -> pa.NativeFile:
    """The bytes of `path` for Arrow, mapped into memory if the file is on a disk. Raises FileNotFoundError."""
    import pyarrow as pa

    return pa.BufferReader(path.read_bytes()) if isinstance(path, RemotePath) else pa.memory_map(str(path))


def names_in(folder: Path) -> list[str]:
    """The names in a folder, in no particular order, without drafts of unfinished writes; [] if there is no such folder."""
    return [name for name in _listed(folder) if not name.startswith(".")]


def make_folder(folder: Path) -> None:
    """Create the folder and those above it, durably; costs little if it exists."""
    if isinstance(folder, RemotePath):
        folder.make()
        return
    with explained(f"the folder {folder} cannot be made"):
        if folder.is_dir():
            return
        make_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise
        except FileNotFoundError as error:
            if not folder.parent.is_dir():
                raise
            message = f"the folder {folder} cannot be created: {folder.parent} does not accept new folders"
            raise EnvironmentFault(message, remedy="name another folder") from error
        sync_folder(folder.parent)


def folder_fault(folder: Path) -> tuple[str, str] | None:
    """Why nothing can be written to a folder, which need not exist yet, and what to do; None if no reason is known. Changes nothing.

    What only a write can show is not found: a full disk, or an error of the server of a mounted file system.
    """
    if isinstance(folder, RemotePath):
        return None
    try:
        at = _nearest(folder.absolute())
        if not at.is_dir():
            return (f"{at} is a file" if at.exists() else f"{at} is a broken link"), _REMEDIES[errno.ENOTDIR, errno.EEXIST]
        if not os.access(at, os.W_OK | os.X_OK):
            return f"{at}: {os.strerror(errno.EACCES)}", "give this user write permission there, or name another folder"
        if os.statvfs(at).f_flag & os.ST_RDONLY:
            return f"{at}: {os.strerror(errno.EROFS)}", "name another folder, or mount the file system writable"
        kind = _file_system(at)
    except OSError as error:
        remedy = next((remedy for numbers, remedy in _REMEDIES.items() if error.errno in numbers), "name another folder")
        return os.strerror(error.errno or 0), remedy
    if kind in _OF_THE_KERNEL:
        return f"{at} does not accept new folders: {kind} is a kernel file system", "name another folder"
    return None


def _nearest(path: Path) -> Path:
    """The path, or the nearest one above it that exists. Raises OSError for a path that the system does not accept."""
    if any(len(os.fsencode(part)) > _MOST_NAME_BYTES for part in path.parts):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    while True:
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            path = path.parent
        else:
            return path


def _file_system(path: Path) -> str:
    """The type of its file system on Linux, such as `ext4`; empty if it is not known."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        words = line.split()
        if wanted == words[2]:
            return words[words.index("-", 6) + 1]
    return ""


def remove_tree(folder: Path) -> None:
    """Delete the folder and its contents. It is no error if something vanishes meanwhile, or if a new file appears: then the
    folder stays."""
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
        return  # they are durable already
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that make folders durable themselves
            raise
    finally:
        os.close(handle)


def remove_drafts(folder: Path) -> None:
    """Delete the drafts that killed writers have left in the folder. A writer that is still active fails, and has written nothing."""
    for draft in drafts_in(folder):
        draft.unlink(missing_ok=True)


def drafts_in(folder: Path) -> list[Path]:
    """The drafts in the folder, of writers that were killed or are still active; [] if there is no such folder."""
    return [folder / name for name in _listed(folder) if _DRAFT.fullmatch(name)]


def _draft(path: Path) -> Path:
    return path.parent / f".{path.name}.{uuid4().hex}"


def _write_synced(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file durably. `mode` is that of a new file, before the umask of the process is applied."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


class SummedFile(io.RawIOBase):
    """A new file, for encoders, that records what is written to it: `size` in bytes, and `crc`, the CRC-32."""

    def __init__(self, path: Path) -> None:
        self._file: Any = path.new() if isinstance(path, RemotePath) else path.open("xb", buffering=_BUFFER_BYTES)
        self.size = 0
        self.crc = 0

    def writable(self) -> bool:
        """Always True."""
        return True

    def write(self, data: Any) -> int:
        """Append the bytes."""
        written: int = self._file.write(data)
        self.size += written
        self.crc = zlib.crc32(data, self.crc)
        return written

    def tell(self) -> int:
        """The position after the last byte."""
        return self.size

    def flush(self) -> None:
        """Write out what is buffered."""
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
        """Close the file."""
        try:
            self._file.close()
        finally:
            super().close()

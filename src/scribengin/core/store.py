"""The guarantees of every store of objects by key: an object is complete or absent, written once, and listed in order.

`LocalStore` keeps objects as files; stores that are reached over a network are in `connectors/objects`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol, cast
from uuid import uuid4

from scribengin.core.storage import SummedFile, drafts_in, explained, make_folder, put_if_absent, read_or_none, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """An object as a listing shows it. `etag` changes with the content; `modified_s` is in seconds since 1970, by the store's clock."""

    key: str
    size: int
    etag: str
    modified_s: float


class StoreWriter(Protocol):
    """An object that is being written, in parts: no reader sees any of it before `finish`."""

    @property
    def file(self) -> IO[bytes]:
        """The file object to write to."""

    @property
    def size(self) -> int:
        """The number of bytes written so far."""

    @property
    def crc(self) -> int:
        """The CRC-32 of the bytes written so far."""

    def finish(self) -> None:
        """Make what was written the object, durably."""

    def abort(self) -> None:
        """Discard it and its parts, if the store can be reached. Never raises."""


class Store(Protocol):
    """A store of objects. Keys are texts with `/`, and do not begin with one. Every method raises a ScribenginError that names the place
    and the remedy."""

    def put(self, key: str, data: bytes) -> bool:
        """Write an object unless it exists: then it returns False and changes nothing. Of any number of concurrent callers one gets True.

        Over a network, a caller whose answer was lost may get False for what it wrote itself: compare the stored object.
        """

    def get(self, key: str) -> bytes | None:
        """The contents of an object; None if there is none."""

    def range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` (inclusive) to `end` (exclusive), fewer if the object ends before. Raises FileNotFoundError."""

    def head(self, key: str) -> StoreEntry | None:
        """The entry of an object, as in a listing; None if there is none."""

    def list(self, folder: str = "", after: str = "") -> Iterator[StoreEntry]:
        """The objects whose keys begin with `folder/` and come after `after`, in the order of their keys' bytes. Only these are requested
        from the store. Objects that change meanwhile may be included or not."""

    def delete(self, *keys: str) -> None:
        """Delete objects; no error if one does not exist. Many keys cost little more than one."""

    copy_bytes: int
    """the size in bytes of the largest object that `move` accepts"""

    def move(self, key: str, to: str) -> None:
        """Give an object another key, in place of an existing object, without transferring its bytes here. After an interruption the object
        is at one of the keys, or at both. Raises FileNotFoundError."""

    def writer(self, key: str) -> StoreWriter:
        """Begin an object; no other writer may use the key at the same time."""

    def abandon(self, key: str) -> None:
        """Delete the object, and the parts that dead writers of it have left. No reader sees these, but they cost storage."""


class LocalStore:
    """A store that keeps objects as files of a folder, durably if the disk keeps what is synced. Picklable."""

    copy_bytes = sys.maxsize

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def put(self, key: str, data: bytes) -> bool:
        """Write an object unless it exists; see `Store.put`."""
        return put_if_absent(self.folder / key, data)

    def get(self, key: str) -> bytes | None:
        """The contents of an object; None if there is none."""
        return read_or_none(self.folder / key)

    def range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` (inclusive) to `end` (exclusive); see `Store.range`."""
        with explained(f"{self.folder / key} cannot be read"), (self.folder / key).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def head(self, key: str) -> StoreEntry | None:
        """The entry of an object; None if there is none."""
        try:
            status = (self.folder / key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoreEntry(key, status.st_size, _etag(status), status.st_mtime_ns / 1e9)

    def list(self, folder: str = "", after: str = "") -> Iterator[StoreEntry]:
        """The objects below a folder, in order; see `Store.list`."""
        keys = (key for key in self._keys(f"{folder}/" if folder else "") if key.encode() > after.encode())
        for key in sorted(keys, key=str.encode):
            entry = self.head(key)
            if entry is not None:
                yield entry

    def delete(self, *keys: str) -> None:
        """Delete objects; no error if one does not exist."""
        for key in keys:
            with explained(f"{self.folder / key} cannot be deleted"):
                (self.folder / key).unlink(missing_ok=True)

    def move(self, key: str, to: str) -> None:
        """Give an object another key; see `Store.move`."""
        source, target = self.folder / key, self.folder / to
        with explained(f"{source} cannot be moved"):
            make_folder(target.parent)
            source.replace(target)
            sync_folder(target.parent)
            sync_folder(source.parent)

    def writer(self, key: str) -> LocalWriter:
        """Begin an object; see `Store.writer`."""
        return LocalWriter(self.folder / key)

    def abandon(self, key: str) -> None:
        """Delete the object and drafts of it; see `Store.abandon`."""
        self.delete(key)
        path = self.folder / key
        for draft in drafts_in(path.parent):
            if draft.name.startswith(f".{path.name}."):
                draft.unlink(missing_ok=True)

    def _keys(self, under: str) -> Iterator[str]:
        try:
            entries = list(os.scandir(self.folder / under))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.is_dir():
                yield from self._keys(f"{under}{entry.name}/")
            elif not entry.name.startswith("."):  # a draft is not complete
                yield under + entry.name


class LocalWriter:
    """A StoreWriter that writes a draft, and renames it at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.parent / f".{path.name}.{uuid4().hex}"
        with explained(f"{path} cannot be written"):
            make_folder(path.parent)
            self._file = SummedFile(self._draft)

    @property
    def file(self) -> IO[bytes]:
        """The file object to write to."""
        return cast("IO[bytes]", self._file)

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return self._file.size

    @property
    def crc(self) -> int:
        """The CRC-32 of the bytes written so far."""
        return self._file.crc

    def finish(self) -> None:
        """Make what was written the object, durably."""
        with explained(f"{self._path} cannot be written"):
            self._file.sync()
            self._file.close()
            self._draft.replace(self._path)
            sync_folder(self._path.parent)

    def abort(self) -> None:
        """Discard the draft. Never raises."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ino:x}"

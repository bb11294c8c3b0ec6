"""What holds of every place that keeps objects by key, however it does it: whole or absent, written once, listed in order.

`LocalStore` is the one that keeps them as files; those that are reached by a network are in `connectors/objects`.
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
    """An object as a listing tells it. `etag` is another one where its content was changed; `modified_s` is by the store's clock."""

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
        """Of the bytes so far (CRC-32)."""

    def finish(self) -> None:
        """Make it the object, durably."""

    def abort(self) -> None:
        """Discard it and its parts, if the store can be reached. Never raises."""


class Store(Protocol):
    """Keys are texts with `/` and without a leading one. Every method raises a ScribenginError that names the place and the remedy."""

    def put(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one: then False, and nothing changed. Of any number of concurrent callers one gets True.

        Over a network a caller whose answer was lost may get False for what it wrote itself: compare the stored object.
        """

    def get(self, key: str) -> bytes | None:
        """All of it; None if there is none."""

    def range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, fewer where the object ends before. Raises FileNotFoundError."""

    def head(self, key: str) -> StoreEntry | None:
        """What a listing would tell of one; None if there is none."""

    def list(self, folder: str = "", after: str = "") -> Iterator[StoreEntry]:
        """Those whose keys begin with `folder/` and come behind `after`, in the order of their keys' bytes; what is changed meanwhile may
        be among them or not. The store is asked for those behind `after` alone."""

    def delete(self, *keys: str) -> None:
        """No error if there is none. Many cost little more than one."""

    copy_bytes: int
    """the largest object that `move` takes"""

    def move(self, key: str, to: str) -> None:
        """Give an object another key, over what is there, without its bytes coming by here. Killed, the object is at one of the keys, or
        at both. Raises FileNotFoundError."""

    def writer(self, key: str) -> StoreWriter:
        """An object that is being written; no other writer may use the key."""

    def abandon(self, key: str) -> None:
        """Delete the object, and the parts that dead writers of it have left, which no reader sees but which still cost storage."""


class LocalStore:
    """Objects as files of a folder, durable on a disk that keeps what it syncs. Picklable."""

    copy_bytes = sys.maxsize

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def put(self, key: str, data: bytes) -> bool:
        """See Store."""
        return put_if_absent(self.folder / key, data)

    def get(self, key: str) -> bytes | None:
        """See Store."""
        return read_or_none(self.folder / key)

    def range(self, key: str, start: int, end: int) -> bytes:
        """See Store."""
        with explained(f"{self.folder / key} cannot be read"), (self.folder / key).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def head(self, key: str) -> StoreEntry | None:
        """See Store."""
        try:
            status = (self.folder / key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoreEntry(key, status.st_size, _etag(status), status.st_mtime_ns / 1e9)

    def list(self, folder: str = "", after: str = "") -> Iterator[StoreEntry]:
        """See Store."""
        keys = (key for key in self._keys(f"{folder}/" if folder else "") if key.encode() > after.encode())
        for key in sorted(keys, key=str.encode):
            entry = self.head(key)
            if entry is not None:
                yield entry

    def delete(self, *keys: str) -> None:
        """See Store."""
        for key in keys:
            with explained(f"{self.folder / key} cannot be deleted"):
                (self.folder / key).unlink(missing_ok=True)

    def move(self, key: str, to: str) -> None:
        """See Store."""
        source, target = self.folder / key, self.folder / to
        with explained(f"{source} cannot be moved"):
            make_folder(target.parent)
            source.replace(target)
            sync_folder(target.parent)
            sync_folder(source.parent)

    def writer(self, key: str) -> LocalWriter:
        """See Store."""
        return LocalWriter(self.folder / key)

    def abandon(self, key: str) -> None:
        """See Store."""
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
            elif not entry.name.startswith("."):  # half written
                yield under + entry.name


class LocalWriter:
    """See StoreWriter."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.parent / f".{path.name}.{uuid4().hex}"
        with explained(f"{path} cannot be written"):
            make_folder(path.parent)
            self._file = SummedFile(self._draft)

    @property
    def file(self) -> IO[bytes]:
        """See StoreWriter."""
        return cast("IO[bytes]", self._file)

    @property
    def size(self) -> int:
        """See StoreWriter."""
        return self._file.size

    @property
    def crc(self) -> int:
        """See StoreWriter."""
        return self._file.crc

    def finish(self) -> None:
        """See StoreWriter."""
        with explained(f"{self._path} cannot be written"):
            self._file.sync()
            self._file.close()
            self._draft.replace(self._path)
            sync_folder(self._path.parent)

    def abort(self) -> None:
        """See StoreWriter."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ino:x}"

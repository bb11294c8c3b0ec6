"""The storage of numbered logs: folders on a disk, or an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scribengin.core.storage import names_in, put_if_absent, read_or_none, replace

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.store import Store


class Shelf(Protocol):
    """The storage of numbered records: folders on a disk, or an object store."""

    def put_if_absent(self, path: Path, data: bytes) -> bool:
        """Create the file if it does not exist; see `storage.put_if_absent`."""

    def replace(self, path: Path, data: bytes) -> None:
        """Replace the file's contents at once; see `storage.replace`."""

    def read_or_none(self, path: Path) -> bytes | None:
        """The file's contents, or None if it does not exist; see `storage.read_or_none`."""

    def names_in(self, folder: Path) -> list[str]:
        """The names in the folder; see `storage.names_in`. Names of folders may be missing."""

    def delete(self, path: Path) -> None:
        """Delete the file; no error if it does not exist."""

    def exists(self, path: Path) -> bool:
        """True if the file exists."""


class Disk:
    """A Shelf over folders of this machine."""

    put_if_absent = staticmethod(put_if_absent)
    replace = staticmethod(replace)
    read_or_none = staticmethod(read_or_none)
    names_in = staticmethod(names_in)

    @staticmethod
    def delete(path: Path) -> None:
        """Delete the file; no error if it does not exist."""
        path.unlink(missing_ok=True)

    @staticmethod
    def exists(path: Path) -> bool:
        """True if the file exists."""
        return path.exists()


class StoreShelf:
    """A Shelf in an object store: paths are keys."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put_if_absent(self, path: Path, data: bytes) -> bool:
        """Create the object if it does not exist; see `Shelf.put_if_absent`."""
        return self._store.put(path.as_posix(), data)

    def replace(self, path: Path, data: bytes) -> None:
        """Not supported: what is kept in a store is written once."""
        raise NotImplementedError(f"{path} of {self._store}: {len(data)} bytes")

    def read_or_none(self, path: Path) -> bytes | None:
        """The contents of the object, or None if it does not exist."""
        return self._store.get(path.as_posix())

    def names_in(self, folder: Path) -> list[str]:
        """The names directly in the folder, without those of folders."""
        top = f"{folder.as_posix()}/"
        names = (entry.key.removeprefix(top) for entry in self._store.list(folder.as_posix()))
        return [name for name in names if "/" not in name]

    def delete(self, path: Path) -> None:
        """Delete the object; no error if it does not exist."""
        self._store.delete(path.as_posix())

    def exists(self, path: Path) -> bool:
        """True if the object exists."""
        return self._store.head(path.as_posix()) is not None

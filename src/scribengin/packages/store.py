"""The packages of one host: each as a file and unpacked, both named by its hash. An entry with that name is complete.

```
<store>/<sha256>.package     as it came; handed to others
<store>/<sha256>/            unpacked, read-only: flows run from here
<store>/.<…>                 drafts, of writers at work or killed
```
Any number of processes may use one store at once. Entries are written and synced under a draft name, then renamed.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.core.errors import Refused
from scribengin.core.storage import explained, make_folder, remove_tree, sync_folder
from scribengin.packages.package import LIMIT_FILE_BYTES, SUFFIX, open_package, wrong_hash

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from scribengin.packages.package import Package

_ID = re.compile(r"[0-9a-f]{64}")
_DRAFT = re.compile(r"\.(?:put|[0-9a-f]{64})\.[0-9a-f]{32}")
_STALE_S = 3600.0
"""seconds after which an unchanged draft counts as left by a killed process: a package is written within seconds"""
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class StoredPackage:
    """A package in a store, without its content; `size` is that of its file, in bytes."""

    id: str
    size: int
    unpacked: bool


class PackageStore:
    """The packages in one folder, which is created with the first package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, chunks: Iterable[bytes], id: str | None = None) -> Package:
        """Store a package that arrives in pieces. An existing one is replaced by the same bytes.

        Args:
            chunks: its bytes.
            id: its hash; None if not known.

        Raises:
            Refused: it does not match the hash, or is not a valid package. Nothing is stored then.
            EnvironmentFault: the disk fails.
        """
        if id is not None:
            _checked(id)
        make_folder(self.folder)
        draft = self._draft("put")
        try:
            with explained(f"the package cannot be stored in {self.folder}"):
                data = _received(chunks, draft, id)
            package = open_package(data, f"package {id}" if id else "the package", expected=id)
            with explained(f"the package cannot be stored in {self.folder}"):
                draft.chmod(0o444)
                draft.replace(self.file(package.id))
                sync_folder(self.folder)
            return package
        finally:
            draft.unlink(missing_ok=True)

    def file(self, id: str) -> Path:
        """The path of the package's file, for other hosts; the file need not exist."""
        return self.folder / f"{_checked(id)}{SUFFIX}"

    def read(self, id: str) -> Package:
        """The package, verified. Raises Refused: `package-missing`, or as `open_package`."""
        return read_package(self.file(id), expected=id)

    def get(self, id: str) -> Path:
        """The folder with the verified content of the package, which is unpacked first if needed. Raises as `read`, and `package-hash` if
        an unpacked file was changed."""
        package, folder = self.read(id), self.folder / id
        if not folder.is_dir():
            self._unpack(package, folder)
        _compare(package, folder)
        return folder

    def verify(self, id: str) -> None:
        """Verify the package and its unpacked files; nothing is unpacked. Raises as `get`."""
        package, folder = self.read(id), self.folder / id
        if folder.is_dir():
            _compare(package, folder)

    def packages(self) -> tuple[StoredPackage, ...]:
        """The stored packages, by id."""
        files = {path.name.removesuffix(SUFFIX): path for path in sorted(self.folder.glob(f"*{SUFFIX}"))}
        return tuple(
            StoredPackage(id_, path.stat().st_size, (self.folder / id_).is_dir()) for id_, path in files.items() if _ID.fullmatch(id_)
        )

    def keep(self, ids: Collection[str]) -> tuple[str, ...]:
        """Remove all packages except these, and the drafts of killed processes. Returns the removed ids.

        No process may run from a removed folder: pass the ids of all packages in use.
        """
        gone: dict[str, None] = {}
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            id_ = path.name.removesuffix(SUFFIX)
            if _ID.fullmatch(id_) and id_ not in ids:
                gone[id_] = None
                self._remove(path)
            elif _DRAFT.fullmatch(path.name) and _is_stale(path):
                _delete(path)
        return tuple(gone)

    def _remove(self, path: Path) -> None:
        """Remove a file or folder. It is renamed first, in one step, so that no process finds a part of it."""
        draft = self._draft(path.name)
        with explained(f"{path} cannot be removed"):
            try:
                path.rename(draft)
            except FileNotFoundError:  # another process removed it
                return
            sync_folder(self.folder)
            _delete(draft)

    def _unpack(self, package: Package, folder: Path) -> None:
        draft = self._draft(package.id)
        try:
            with explained(f"package {package.id} cannot be unpacked in {self.folder}"):
                _write(package, draft)
                try:
                    draft.rename(folder)
                except OSError:
                    if not folder.is_dir():  # otherwise another process unpacked the same content first
                        raise
                sync_folder(self.folder)
        finally:
            _delete(draft)

    def _draft(self, name: str) -> Path:
        return self.folder / f".{name.removesuffix(SUFFIX)}.{uuid4().hex}"


def read_package(file: Path, *, expected: str | None = None) -> Package:
    """The package in a file, verified. Raises Refused: `package-missing` if the file does not exist, or as `open_package`."""
    with explained(f"{file} cannot be read"):
        try:
            with file.open("rb") as opened:
                data = opened.read(LIMIT_FILE_BYTES + 1)
        except (FileNotFoundError, IsADirectoryError) as error:
            what = "this is a folder, not a package" if isinstance(error, IsADirectoryError) else "the package does not exist"
            remedy = "create it with `scribengin package create DIR`, or copy it from the host where it was applied"
            raise Refused(f"{file}: {what}", remedy=remedy, code="package-missing") from None
    return open_package(data, file, expected=expected)


def _checked(id: str) -> str:
    if not _ID.fullmatch(id):
        remedy = "write all 64 digits of its sha256, as `scribengin package inspect` prints them"
        raise Refused(f'"{id}" is not a valid id of a package', remedy=remedy, code="package-id")
    return id


def _received(chunks: Iterable[bytes], draft: Path, id: str | None) -> bytes:
    """Write all bytes to `draft`, synced, and return them. Stops early if they are too many for a package."""
    received = bytearray()
    with draft.open("xb") as file:
        for chunk in chunks:
            received += chunk
            if len(received) > LIMIT_FILE_BYTES:
                message = f"package {id or ''} is larger than the limit of {LIMIT_FILE_BYTES} bytes".replace("  ", " ")
                raise Refused(message, remedy="remove data from the package; it should contain only code", code="package-size")
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return bytes(received)


def _write(package: Package, folder: Path) -> None:
    """Write the files, synced and read-only; `open_package` has checked that their paths are inside the folder."""
    folders = {folder}
    for name, data in package.content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        folders.update(parent for parent in path.parents if parent.is_relative_to(folder))
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o444)
    for each in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        sync_folder(each)
        each.chmod(0o555)


def _compare(package: Package, folder: Path) -> None:
    """Raise Refused if the unpacked files differ from the package; compiled Python files are allowed beside them."""
    listed = {folder / file.path: file for file in package.manifest.files}
    there = {Path(found, name) for found, _, names in os.walk(folder) for name in names if Path(found).name != "__pycache__"}
    for path in sorted(listed.keys() | there):
        file = listed.get(path)
        wanted = file.sha256 if file is not None else "no file"
        with explained(f"{path} cannot be read"):
            try:
                found = "a file of another size" if file is not None and path.stat().st_size != file.size else _sum(path)
            except (FileNotFoundError, NotADirectoryError):
                found = "no file"
        if found != wanted:
            error = wrong_hash(path, wanted, found)
            error.remedy = f"the file was changed; delete the folder {folder}, and the package is unpacked again"
            raise error


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_stale(draft: Path) -> bool:
    try:
        return time.time() - draft.stat().st_mtime > _STALE_S
    except FileNotFoundError:
        return False


def _delete(draft: Path) -> None:
    """Remove a file, or a read-only folder; do nothing if it does not exist."""
    if not draft.is_dir():
        draft.unlink(missing_ok=True)
        return
    for found, _, _ in os.walk(draft):  # from the top: a folder is made writable before its content is listed
        Path(found).chmod(0o755)
    remove_tree(draft)


def read_pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file in pieces, for `PackageStore.put`. Raises EnvironmentFault if it cannot be read."""
    with explained(f"{path} cannot be read"), path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece

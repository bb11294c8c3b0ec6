"""Packages of one host: each as its file, and unpacked, both under its hash. What stands there under its name is whole.

```
<store>/<sha256>.package     as it came; handed to others
<store>/<sha256>/            unpacked, read-only: flows run from here
<store>/.<…>                 drafts, of writers at work or killed
```
Any number of processes may use one store at once. A name appears by one rename of what was written and synced before.
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
"""after which a draft that nobody writes to is of a killed process: a package is written in seconds"""
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class StoredPackage:
    """One of a store, without a look into it; `size` of its file in bytes."""

    id: str
    size: int
    unpacked: bool


class PackageStore:
    """The packages under one folder, which is made when something is put there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, chunks: Iterable[bytes], id: str | None = None) -> Package:
        """Keep a package that comes in pieces; `id` is its hash, where that is known. One that is there is replaced by the same bytes.

        Raises Refused where it is not the one of that hash, or no whole package: then nothing is kept. EnvironmentFault for the disk.
        """
        if id is not None:
            _checked(id)
        make_folder(self.folder)
        draft = self._draft("put")
        try:
            with explained(f"the package cannot be kept in {self.folder}"):
                data = _received(chunks, draft, id)
            package = open_package(data, f"package {id}" if id else "the package", expected=id)
            with explained(f"the package cannot be kept in {self.folder}"):
                draft.chmod(0o444)
                draft.replace(self.file(package.id))
                sync_folder(self.folder)
            return package
        finally:
            draft.unlink(missing_ok=True)

    def file(self, id: str) -> Path:
        """Where the package's file lies, to be handed to others; it need not be there."""
        return self.folder / f"{_checked(id)}{SUFFIX}"

    def read(self, id: str) -> Package:
        """The package, verified. Raises Refused: `package-missing`, or as `open_package`."""
        return read_package(self.file(id), expected=id)

    def get(self, id: str) -> Path:
        """The folder with what is in the package, verified; unpacked first, where nobody has done so yet.

        Raises as `read`, and `package-hash` where an unpacked file is not what it was.
        """
        package, folder = self.read(id), self.folder / id
        if not folder.is_dir():
            self._unpack(package, folder)
        _compare(package, folder)
        return folder

    def verify(self, id: str) -> None:
        """Read the package again, and what is unpacked of it. Raises as `get`; unpacks nothing."""
        package, folder = self.read(id), self.folder / id
        if folder.is_dir():
            _compare(package, folder)

    def packages(self) -> tuple[StoredPackage, ...]:
        """What is there, by id."""
        files = {path.name.removesuffix(SUFFIX): path for path in sorted(self.folder.glob(f"*{SUFFIX}"))}
        return tuple(
            StoredPackage(id_, path.stat().st_size, (self.folder / id_).is_dir()) for id_, path in files.items() if _ID.fullmatch(id_)
        )

    def keep(self, ids: Collection[str]) -> tuple[str, ...]:
        """Remove all packages but these, files and folders, and the drafts that killed processes left; returns the ids that went.

        Nothing may run from a folder that is removed: name all that does.
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
        """First its name, at once, so that nobody finds a part of it."""
        draft = self._draft(path.name)
        with explained(f"{path} cannot be removed"):
            try:
                path.rename(draft)
            except FileNotFoundError:  # another process was here before
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
                    if not folder.is_dir():  # else another process was first, with the same content
                        raise
                sync_folder(self.folder)
        finally:
            _delete(draft)

    def _draft(self, name: str) -> Path:
        return self.folder / f".{name.removesuffix(SUFFIX)}.{uuid4().hex}"


def read_package(file: Path, *, expected: str | None = None) -> Package:
    """The package in a file, verified. Raises Refused: `package-missing` where there is none, or as `open_package`."""
    with explained(f"{file} cannot be read"):
        try:
            with file.open("rb") as opened:
                data = opened.read(LIMIT_FILE_BYTES + 1)
        except (FileNotFoundError, IsADirectoryError) as error:
            what = "this is a folder, not a package" if isinstance(error, IsADirectoryError) else "there is no such package"
            remedy = "make one with `scribengin package DIR`, or fetch it from where it was applied"
            raise Refused(f"{file}: {what}", remedy=remedy, code="package-missing") from None
    return open_package(data, file, expected=expected)


def _checked(id: str) -> str:
    if not _ID.fullmatch(id):
        remedy = "write all 64 digits of its sha256, as `scribengin package show` prints them"
        raise Refused(f'"{id}" is not a valid id of a package', remedy=remedy, code="package-id")
    return id


def _received(chunks: Iterable[bytes], draft: Path, id: str | None) -> bytes:
    """All of it, durable in `draft`. Ends early where it is too long to be a package."""
    received = bytearray()
    with draft.open("xb") as file:
        for chunk in chunks:
            received += chunk
            if len(received) > LIMIT_FILE_BYTES:
                message = f"package {id or ''} is longer than the {LIMIT_FILE_BYTES} bytes that one may have".replace("  ", " ")
                raise Refused(message, remedy="put less into it: code, not data", code="package-size")
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return bytes(received)


def _write(package: Package, folder: Path) -> None:
    """Durable and read-only; the files of a manifest lie inside, `open_package` has seen to it."""
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
    """Raises Refused where what is unpacked is not what was packed, no more and no less; what Python compiles of it may stand beside it."""
    listed = {folder / file.path: file for file in package.manifest.files}
    there = {Path(found, name) for found, _, names in os.walk(folder) for name in names if Path(found).name != "__pycache__"}
    for path in sorted(listed.keys() | there):
        file = listed.get(path)
        wanted = file.sha256 if file is not None else "no file"
        with explained(f"{path} cannot be read"):
            try:
                found = "another one, of another size" if file is not None and path.stat().st_size != file.size else _sum(path)
            except (FileNotFoundError, NotADirectoryError):
                found = "no file"
        if found != wanted:
            error = wrong_hash(path, wanted, found)
            error.remedy = f"somebody has changed it; delete the folder {folder}: it is unpacked again"
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
    """A file, or a folder that is read-only; nothing where it is gone."""
    if not draft.is_dir():
        draft.unlink(missing_ok=True)
        return
    for found, _, _ in os.walk(draft):  # from the top: a folder is made writable before it is listed
        Path(found).chmod(0o755)
    remove_tree(draft)


def read_pieces(path: Path) -> Iterator[bytes]:
    """A file for `put`. Raises EnvironmentFault where it cannot be read."""
    with explained(f"{path} cannot be read"), path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece

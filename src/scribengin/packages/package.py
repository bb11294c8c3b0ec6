"""A package: the manifest of what is in it, and the one file that holds both.

The file is a ZIP archive of uncompressed entries in a fixed order with a fixed time: the same content gives the same bytes, with any
version of any library, and what an entry declares is what it holds. Its SHA-256 is the package's id.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath
from stat import S_IFMT, S_IFREG
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from scribengin.core.errors import Refused
from scribengin.core.records import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = 1
MANIFEST = "scribengin-package.json"
SUFFIX = ".package"
LIMIT_BYTES = 32 * 2**20
"""of all files in a package together"""
LIMIT_FILES = 10_000
LIMIT_FILE_BYTES = LIMIT_BYTES + 8 * 2**20
"""of the file that holds them, with manifest and directory"""
_TIME = (2020, 1, 1, 0, 0, 0)
_REMEDY = "fetch it again, or make it again with `scribengin package DIR`"


@dataclass(frozen=True, slots=True)
class PackedFlow:
    """A flow's name, and its file in the package."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class PackedFile:
    """`path` with slashes, from the package's top; `size` in bytes."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is in a package. `scribengin` is the version that made it; `requirements` are those of `files` that name what it needs."""

    name: str
    scribengin: str
    flows: tuple[PackedFlow, ...]
    files: tuple[PackedFile, ...]
    requirements: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The object of the package's first entry, with its format."""
        return {"kind": "scribengin-package", "format": FORMAT, **msgspec.to_builtins(self)}


@dataclass(frozen=True, slots=True)
class Package:
    """`id` is the SHA-256 of `data`, the bytes of the file; `content` what the manifest lists."""

    id: str
    manifest: Manifest
    data: bytes
    content: Mapping[str, bytes]

    @property
    def file_name(self) -> str:
        """What the file is called where nobody says."""
        return f"{self.manifest.name}-{self.id[:12]}{SUFFIX}"


def build_package(
    name: str, version: str, flows: Iterable[PackedFlow], requirements: Iterable[str], content: Mapping[str, bytes]
) -> Package:
    """The package of `content`, path → bytes."""
    paths = sorted(content)
    files = tuple(PackedFile(path, hashlib.sha256(content[path]).hexdigest(), len(content[path])) for path in paths)
    manifest = Manifest(name, version, tuple(sorted(flows, key=lambda flow: flow.name)), files, tuple(sorted(requirements)))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for path, data in [(MANIFEST, canonical(manifest.as_json()) + b"\n"), *((path, content[path]) for path in paths)]:
            entry = zipfile.ZipInfo(path, _TIME)
            entry.create_system = 3
            entry.external_attr = (S_IFREG | 0o444) << 16
            archive.writestr(entry, data)
    data = written.getvalue()
    return Package(hashlib.sha256(data).hexdigest(), manifest, data, {path: content[path] for path in paths})


def open_package(data: bytes, where: object, *, expected: str | None = None) -> Package:
    """Read and verify a package from the bytes of its file, of which `where` is said; `expected` is its id, where that is known.

    Raises Refused: `package-hash` for another id, or for a file in it that is not what the manifest says; `package-newer` for a newer
    format; `package-damaged` for what is no package at all.
    """
    found = hashlib.sha256(data).hexdigest()
    if expected is not None and found != expected:
        raise wrong_hash(where, expected, found)
    if len(data) > LIMIT_FILE_BYTES:
        _damaged(where, f"it has {len(data)} bytes, more than the {LIMIT_FILE_BYTES} that a package may have")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_entries(entries, where)
            content = {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError) as error:
        raise _damage(where, f"it is no ZIP archive that can be read: {error}") from error
    manifest = _read_manifest(content.pop(MANIFEST, None), where)
    _check_content(manifest, content, where)
    return Package(found, manifest, data, content)


def wrong_hash(where: object, expected: str, found: str, what: str = "") -> Refused:
    """The one error for bytes that are not what their hash says."""
    return Refused(
        f"{where}: package hash does not match: {what}expected sha256 {expected}, found {found}", remedy=_REMEDY, code="package-hash"
    )


def _check_entries(entries: list[zipfile.ZipInfo], where: object) -> None:
    """Before a byte is read: names, kinds, sizes."""
    if len(entries) > LIMIT_FILES:
        _damaged(where, f"it has {len(entries)} entries, more than {LIMIT_FILES}")
    for entry in entries:
        name = entry.filename
        if not is_inside(name):
            _damaged(where, f'its entry "{name}" does not lie inside it')
        mode = S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() or mode not in (0, S_IFREG):
            _damaged(where, f'its entry "{name}" is no file')
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size or entry.flag_bits & 1:
            _damaged(where, f'its entry "{name}" is compressed or encrypted, which those of a package are not')
    total = sum(entry.file_size for entry in entries)
    if total > LIMIT_FILE_BYTES:
        _damaged(where, f"its entries declare {total} bytes, more than the {LIMIT_FILE_BYTES} that a package may have")
    names = [entry.filename for entry in entries]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        _damaged(where, f'it has the entry "{twice[0]}" twice')
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    if both := folders.intersection(names):
        _damaged(where, f'its entry "{min(both)}" is a file and a folder')


def is_inside(name: str) -> bool:
    """Whether a name in a package is a plain relative path, written in the one way.

    >>> [is_inside(name) for name in ("lib/steps.py", "../steps.py", "/steps.py", "a//b", "a\\\\b", "C:/steps.py", "./a")]
    [True, False, False, False, False, False, False]
    """
    parts = name.split("/")
    return all(part not in ("", ".", "..") for part in parts) and not any(sign in name for sign in "\\:\0") and name.isprintable()


def _read_manifest(data: bytes | None, where: object) -> Manifest:
    if data is None:
        _damaged(where, f"it has no {MANIFEST}")
    try:
        said = msgspec.json.decode(data)
        if not isinstance(said, dict) or said.get("kind") != "scribengin-package" or not isinstance(said.get("format"), int):
            _damaged(where, f"its {MANIFEST} is not a valid manifest of a package")
        if said["format"] > FORMAT:
            raise Refused(
                f"{where} was made by a newer Scribengin (format {said['format']}, this one reads up to {FORMAT})",
                remedy="install the newer version here, or make it again with this one",
                code="package-newer",
            )
        return msgspec.convert(said, Manifest)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise _damage(where, f"its {MANIFEST} cannot be read: {error}") from error


def _check_content(manifest: Manifest, content: Mapping[str, bytes], where: object) -> None:
    listed = {file.path: file for file in manifest.files}
    if len(listed) != len(manifest.files) or listed.keys() != content.keys():
        odd = sorted(listed.keys() ^ content.keys())
        _damaged(where, f"its {MANIFEST} lists other files than it has: {', '.join(odd[:5]) or 'one of them twice'}")
    for path, data in content.items():
        found = hashlib.sha256(data).hexdigest()
        if found != listed[path].sha256 or len(data) != listed[path].size:
            raise wrong_hash(where, listed[path].sha256, found, f'"{path}": ')
    names = Counter(flow.name for flow in manifest.flows)
    if not names or max(names.values()) > 1 or not {flow.path for flow in manifest.flows} <= content.keys():
        _damaged(where, f"its {MANIFEST} names flows twice, or files that it does not have")


def _damage(where: object, what: str) -> Refused:
    return Refused(f"{where} is no whole package: {what}", remedy=_REMEDY, code="package-damaged")


def _damaged(where: object, what: str) -> NoReturn:
    raise _damage(where, what)

"""A package: content with a manifest, in one file.

The file is a ZIP archive of uncompressed entries in a fixed order with a fixed time: the same content gives the same bytes, with any
version of any library, and the declared size of an entry is its real size. Its SHA-256 is the package's id.
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
"""maximum size of all files in a package together, in bytes"""
LIMIT_FILES = 10_000
LIMIT_FILE_BYTES = LIMIT_BYTES + 8 * 2**20
"""maximum size of the package file, with manifest and directory, in bytes"""
_TIME = (2020, 1, 1, 0, 0, 0)
_REMEDY = "fetch it again, or create it again with `scribengin package create DIR`"


@dataclass(frozen=True, slots=True)
class PackedFlow:
    """A flow's name, and its file in the package."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file in a package: its `path` with slashes, from the package's top; its `size` in bytes."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a package. `scribengin` is the version that made it; `requirements` are those of `files` that list required
    packages."""

    name: str
    scribengin: str
    flows: tuple[PackedFlow, ...]
    files: tuple[PackedFile, ...]
    requirements: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The manifest as the JSON object of the package's first entry, with its format."""
        return {"kind": "scribengin-package", "format": FORMAT, **msgspec.to_builtins(self)}


@dataclass(frozen=True, slots=True)
class Package:
    """A package. `id` is the SHA-256 of `data`, the bytes of its file; `content` are the files in it: path → bytes."""

    id: str
    manifest: Manifest
    data: bytes
    content: Mapping[str, bytes]

    @property
    def file_name(self) -> str:
        """The default name of the file."""
        return f"{self.manifest.name}-{self.id[:12]}{SUFFIX}"


def build_package(
    name: str, version: str, flows: Iterable[PackedFlow], requirements: Iterable[str], content: Mapping[str, bytes]
) -> Package:
    """Build a package.

    Args:
        name: its name.
        version: the version of Scribengin that makes it.
        flows: the flows in it.
        requirements: the paths of files that list required packages.
        content: path → bytes of all files in it.
    """
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
    """Read and verify a package from the bytes of its file.

    Args:
        data: the bytes.
        where: its name in messages.
        expected: its id; None if not known.

    Raises:
        Refused: `package-hash` for another id, or for a file in it that does not match the manifest; `package-newer` for a newer format;
            `package-damaged` for other invalid bytes.
    """
    found = hashlib.sha256(data).hexdigest()
    if expected is not None and found != expected:
        raise wrong_hash(where, expected, found)
    if len(data) > LIMIT_FILE_BYTES:
        _damaged(where, f"it has {len(data)} bytes; the limit of a package is {LIMIT_FILE_BYTES}")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_entries(entries, where)
            content = {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError) as error:
        raise _damage(where, f"it is not a readable ZIP archive: {error}") from error
    manifest = _read_manifest(content.pop(MANIFEST, None), where)
    _check_content(manifest, content, where)
    return Package(found, manifest, data, content)


def wrong_hash(where: object, expected: str, found: str, what: str = "") -> Refused:
    """The error for bytes that do not match their hash.

    Args:
        where: the package or file, for the message.
        expected: the expected SHA-256.
        found: the SHA-256 of the bytes.
        what: text before these, such as the path of a file in the package.
    """
    return Refused(
        f"{where}: package hash does not match: {what}expected sha256 {expected}, found {found}", remedy=_REMEDY, code="package-hash"
    )


def _check_entries(entries: list[zipfile.ZipInfo], where: object) -> None:
    """Check names, kinds and sizes of the entries before their content is read."""
    if len(entries) > LIMIT_FILES:
        _damaged(where, f"it has {len(entries)} entries; the limit is {LIMIT_FILES}")
    for entry in entries:
        name = entry.filename
        if not is_inside(name):
            _damaged(where, f'its entry "{name}" is a path outside the package')
        mode = S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() or mode not in (0, S_IFREG):
            _damaged(where, f'its entry "{name}" is not a file')
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size or entry.flag_bits & 1:
            _damaged(where, f'its entry "{name}" is compressed or encrypted; entries of a package must be stored unchanged')
    total = sum(entry.file_size for entry in entries)
    if total > LIMIT_FILE_BYTES:
        _damaged(where, f"its entries declare {total} bytes; the limit of a package is {LIMIT_FILE_BYTES}")
    names = [entry.filename for entry in entries]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        _damaged(where, f'it has the entry "{twice[0]}" twice')
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    if both := folders.intersection(names):
        _damaged(where, f'its entry "{min(both)}" is both a file and a folder')


def is_inside(name: str) -> bool:
    """True if a name in a package is a plain relative path in normal form.

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
                remedy="install the newer version here, or create the package again with this version",
                code="package-newer",
            )
        return msgspec.convert(said, Manifest)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise _damage(where, f"its {MANIFEST} cannot be read: {error}") from error


def _check_content(manifest: Manifest, content: Mapping[str, bytes], where: object) -> None:
    listed = {file.path: file for file in manifest.files}
    if len(listed) != len(manifest.files) or listed.keys() != content.keys():
        odd = sorted(listed.keys() ^ content.keys())
        _damaged(where, f"its {MANIFEST} does not match the files in it: {', '.join(odd[:5]) or 'one of them is listed twice'}")
    for path, data in content.items():
        found = hashlib.sha256(data).hexdigest()
        if found != listed[path].sha256 or len(data) != listed[path].size:
            raise wrong_hash(where, listed[path].sha256, found, f'"{path}": ')
    names = Counter(flow.name for flow in manifest.flows)
    if not names or max(names.values()) > 1 or not {flow.path for flow in manifest.flows} <= content.keys():
        _damaged(where, f"its {MANIFEST} names a flow twice, or a file that is not in the package")


def _damage(where: object, what: str) -> Refused:
    return Refused(f"{where} is not a valid package: {what}", remedy=_REMEDY, code="package-damaged")


def _damaged(where: object, what: str) -> NoReturn:
    raise _damage(where, what)

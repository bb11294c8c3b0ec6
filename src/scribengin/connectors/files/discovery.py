"""Finds the files of a path, repeatedly and at low cost.

A folder is listed again only if its modification time changed (or is too recent to be reliable), so that an idle source with 100,000 files
costs one `stat` per folder.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from scribengin.connectors.files.globs import WILDCARD, glob_of, matches
from scribengin.connectors.files.sink_folders import INTERNAL
from scribengin.core.errors import SourceError, SourceMissing
from scribengin.core.problems import nearest
from scribengin.core.storage import shown_path

if TYPE_CHECKING:
    from pathlib import Path

_COARSE_S = 2.0
"""on coarse file systems, two changes of a folder within this time may leave the same time stamp"""
_MISSPELT = 0.75
"""minimum similarity, 0 to 1, of a suggested name to a missing one"""
_RELIST_S = 30.0
"""seconds after which a folder is listed again, whatever its time stamp: some network file systems do not update it"""


@dataclass(slots=True)
class _Listing:
    mtime_ns: int
    at_s: float
    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)


class Discovery:
    """The files of `path`: one file; the files in a folder, without subfolders; or those that match a glob with `*`, `?`, `[…]`, and `**`
    for any number of folders. Names that begin with `_` or `.` are not data, neither as files nor as folders.

    All found paths are relative to `root`. Raises SourceError if that does not exist or access is denied; a single file that is missing in
    an existing folder may be `awaited`.
    """

    def __init__(self, path: Path, *, awaited: bool = False) -> None:
        self.awaited = path if awaited and not path.exists() and not WILDCARD.search(str(path)) and path.parent.is_dir() else None
        """the single file that was missing"""
        self.root, self._patterns = _divided(path) if self.awaited is None else (path.parent, (path.name,))
        self._literal = path.is_file() or self.awaited is not None
        self._listings: dict[str, _Listing] = {}
        self._list("")  # reports missing and inaccessible folders at once
        self._listings.clear()

    def changed(self) -> list[str] | None:
        """All paths in path order, or None if no folder changed since the last call. Raises SourceError."""
        before = self._listings
        self._listings = {}
        anew = False
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            known = before.get(folder)
            if known is None or self._outdated(folder, known):
                found = self._list(folder)
                if found is None:
                    continue
                anew = anew or known is None or (known.files, known.folders) != (found.files, found.folders)
            else:
                found = self._listings[folder] = known
            waiting += [name for name in found.folders if self._leads_on(name)]
        if not anew and before.keys() == self._listings.keys():
            return None
        return sorted((path for listing in self._listings.values() for path in listing.files if self.wants(path)), key=_order)

    def hidden(self) -> list[str]:
        """The names that were skipped in the last listing."""
        return sorted(name for listing in self._listings.values() for name in listing.hidden)

    def unwanted(self) -> list[str]:
        """The files found in the last listing that do not match the path."""
        return sorted(path for listing in self._listings.values() for path in listing.files if not self.wants(path))

    def unread_folders(self) -> list[str]:
        """Folders beside the files that the path does not include."""
        return sorted(name for listing in self._listings.values() for name in listing.folders if not self._leads_on(name))

    def _outdated(self, folder: str, known: _Listing) -> bool:
        try:
            mtime_ns = (self.root / folder).stat().st_mtime_ns
        except OSError:
            return True
        fresh = known.at_s - mtime_ns / 1e9 < _COARSE_S
        return mtime_ns != known.mtime_ns or fresh or not 0 <= time.time() - known.at_s < _RELIST_S

    def _list(self, folder: str) -> _Listing | None:
        """Read one folder; None for a folder below the root that does not exist any more."""
        place = self.root / folder
        at_s = time.time()
        try:
            listing = _Listing(place.stat().st_mtime_ns, at_s)
            with os.scandir(place) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.name[0] in "_." and not (self._literal and name == self._patterns[0]):
                        if entry.name != INTERNAL:  # a sink's own records, beside its published files
                            listing.hidden.append(name)
                    elif entry.is_dir():
                        listing.folders.append(name)
                    elif entry.is_file():
                        listing.files.append(name)
        except FileNotFoundError:
            if folder:
                return None
            raise missing(place) from None
        except NotADirectoryError:
            raise SourceError(f"{place} is not a folder", remedy="write a folder, a file or a glob as `path`") from None
        except PermissionError:
            raise SourceError(f"this user is not allowed to read {place}", remedy=f"make it readable: chmod a+rx {place}") from None
        self._listings[folder] = listing
        return listing

    def _leads_on(self, folder: str) -> bool:
        """True if files below that folder can match."""
        parts = folder.split("/")
        for part, pattern in zip(parts, self._patterns[:-1], strict=False):
            if pattern == "**":
                return True
            if not fnmatchcase(part, pattern):
                return False
        return len(parts) < len(self._patterns)

    def wants(self, path: str) -> bool:
        """True if a file at that path, relative to `root`, would be found."""
        if self._literal:
            return path == self._patterns[0]
        return self._patterns == ("*",) or matches(path.split("/"), self._patterns)


def _divided(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Divide a path into the root and the patterns of the folders and names below it. An existing name is used literally, even with
    brackets."""
    if path.is_dir():
        return path, ("*",)
    if path.exists():
        return path.parent, (path.name,)
    root, patterns = glob_of(path)
    if root == path:
        raise missing(path)
    return root, patterns


def _order(path: str) -> list[str]:
    return path.split("/")


def missing(path: Path) -> SourceMissing:
    """The error for a missing path. A name with an ending is assumed to be a file, perhaps misspelt: creating a folder of that name would
    give an empty source."""
    siblings = path.parent.iterdir() if path.parent.is_dir() and os.access(path.parent, os.R_OK) else ()
    near = nearest(path.name, (each.name for each in siblings), _MISSPELT)
    first = f'did you mean "{near}"? else ' if near else ""
    make = "create the file" if path.suffix else "create the folder"
    return SourceMissing(
        f"{shown_path(path)} does not exist", remedy=f"{first}{make}, or correct `path`: a relative path starts at the flow file's folder"
    )

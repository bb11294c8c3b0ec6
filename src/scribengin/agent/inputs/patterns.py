"""The paths that the patterns of an input match. Looking again is cheap, as the names of a folder are kept until it changes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAGIC = re.compile(r"[*?\[]")


@dataclass
class PathPatterns:
    """The files that patterns match. The names of a folder are read again only after they have changed.

    `*` does not match a `/`, `**` matches any folders; a name that begins with a full stop is matched by such a pattern only.
    """

    patterns: Sequence[str]
    exclude: Sequence[str] = ()
    faults: dict[str, str] = field(default_factory=dict)
    """folder or pattern → what is wrong with it"""
    _names: dict[str, tuple[int, list[tuple[str, bool]]]] = field(default_factory=dict)
    _matched: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def paths(self, now_ns: int) -> list[str]:
        """The paths that match now, in order. `now_ns`: the time since 1970."""
        self.faults.clear()
        found: dict[str, None] = {}
        for pattern in self.patterns:
            before = len(found)
            parts = Path(os.path.abspath(pattern)).parts  # noqa: PTH100 - it must not follow links
            matches = dict.fromkeys(self._expand(parts[0], parts[1:], now_ns))
            found |= {path: None for path in matches if not self.excluded(path)}
            if len(found) == before and not any(path in found for path in matches) and not self.faults:
                self.faults[pattern] = f"{pattern} matches no file"
        return list(found)

    def excluded(self, path: str) -> bool:
        """Whether a path is excluded, by its whole or by its last name."""
        return any(fnmatchcase(path if "/" in pattern else Path(path).name, pattern) for pattern in self.exclude)

    def _expand(self, folder: str, parts: Sequence[str], now_ns: int) -> Iterator[str]:
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._expand(folder, rest or ("*",), now_ns)
            for name, is_folder in self._listing(folder, now_ns):
                if is_folder and not name.startswith("."):
                    yield from self._expand(f"{folder.rstrip('/')}/{name}", parts, now_ns)
        elif _MAGIC.search(part):
            for name in self._matching(folder, part, now_ns):
                path = f"{folder.rstrip('/')}/{name}"
                if not rest:
                    yield path
                elif Path(path).is_dir():
                    yield from self._expand(path, rest, now_ns)
        elif rest:
            yield from self._expand(f"{folder.rstrip('/')}/{part}", rest, now_ns)
        else:
            path = f"{folder.rstrip('/')}/{part}"
            if os.path.lexists(path):
                yield path

    def _matching(self, folder: str, part: str, now_ns: int) -> list[str]:
        listing = self._listing(folder, now_ns)
        known = self._matched.get((folder, part))
        if known is None:
            match = re.compile(translate(part)).match
            known = [name for name, _ in listing if match(name) and (part.startswith(".") or not name.startswith("."))]
            self._matched[folder, part] = known
        return known

    def _listing(self, folder: str, now_ns: int) -> list[tuple[str, bool]]:
        try:
            changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 - this is called often
            known = self._names.get(folder)
            # what was changed just now may change again with the same time, and the clock of a file server may differ
            if known is not None and known[0] == changed and abs(now_ns - changed) > 3_000_000_000:
                return known[1]
            with os.scandir(folder) as entries:
                names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except PermissionError:
            self.faults[folder] = f"{folder} cannot be listed: allow it to the user of the agent (chmod o+rx, or a group)"
            names, changed = [], 0
        except OSError:
            names, changed = [], 0
        self._names[folder] = (changed, names)
        for key in [key for key in self._matched if key[0] == folder]:
            del self._matched[key]
        return names

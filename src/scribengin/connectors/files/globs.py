"""The meaning of a files source's `path`, independent of existing files: its root, and the patterns below it."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WILDCARD = re.compile(r"[*?\[]")


def glob_of(path: Path) -> tuple[Path, tuple[str, ...]]:
    """(root, patterns of the folders and names below it) of a path. A path without wildcards is a folder: the root, and all names in it."""
    parts = path.parts
    magic = next((index for index, part in enumerate(parts) if WILDCARD.search(part)), len(parts))
    patterns = parts[magic:] or ("*",)
    return Path(*parts[:magic]), (*patterns, "*") if patterns[-1] == "**" else patterns


def matches(parts: Sequence[str], patterns: tuple[str, ...]) -> bool:
    """True if the folders and the name of a path, from the root on, match the patterns."""
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return matches(parts, patterns[1:]) or (bool(parts) and matches(parts[1:], patterns))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and matches(parts[1:], patterns[1:])


def covers(path: Path, file: Path) -> bool:
    """True if a source with that `path` would read the file; like `Discovery`, but also for files that do not exist."""
    if path == file:
        return True
    root, patterns = glob_of(path)
    if not file.is_relative_to(root) or file == root:
        return False
    below = file.relative_to(root).parts
    return not any(part[0] in "_." for part in below) and matches(below, patterns)

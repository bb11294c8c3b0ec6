"""Finds the files of a flow's own code: the `.py` files under its folder. They are sent to executors and included in packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_BYTES = 20 * 2**20
"""the limit for all files together, in bytes"""
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def code_files(folder: Path) -> list[Path]:
    """The files, in path order. Raises EnvironmentFault if they have more than LIMIT_BYTES."""
    files = sorted(_modules(folder))
    total = sum(path.stat().st_size for path in files)
    if total > LIMIT_BYTES:
        raise EnvironmentFault(
            f"the .py files under {folder} have {total / 2**20:.0f} MiB; a flow can ship at most {LIMIT_BYTES // 2**20} MiB of code",
            remedy="move the flow file to a folder of its own, or install the modules as a package",
        )
    return files


def linked_code(folder: Path) -> list[Path]:
    """Links to folders with `.py` files: these are imported through the link, and are not sent."""
    links = (Path(found, name) for found, folders, _ in _walk(folder) for name in folders)
    return sorted(link for link in links if link.is_symlink() and next(link.glob("*.py"), None))


def _modules(folder: Path) -> Iterator[Path]:
    for found, _, names in _walk(folder):
        yield from (Path(found, name) for name in names if name.endswith(".py") and not name.startswith("."))


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for found, folders, names in os.walk(folder):
        # not entered: a folder may contain the state of a flow that has run for a year
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        yield found, folders, names

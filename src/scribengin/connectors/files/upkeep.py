"""The upkeep of a folder that file sinks write into: done once per folder, by whoever has the right to it, beside those who write.

Commit records are folded by the thousand; what attempts have left in `staged/`, and drafts of writers that were killed, are deleted. All
of it may be killed at any point, and done again. What is taken away counts for nothing already: a Batch whose files all have their names
needs nothing that is staged, and a summary stands for the records that it sums up. So a keeper that loses its right between its last look
and its next step can do no harm by that one step, and does no further one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.connectors.files.sink import INTERNAL, lineages_in, summarize_commits
from scribengin.connectors.files.sink_claim import last_lineage
from scribengin.core import faults
from scribengin.core.storage import drafts_in, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scribengin.connectors.files.sink import LineageFolder

OLD_S = 3600.0
"""how long a draft, or what an earlier lineage has staged, is left alone: somebody may still be writing it"""


@dataclass(frozen=True, slots=True)
class Upkept:
    """What one turn has done."""

    folded: int = 0
    """commit records that were folded away"""
    files: int = 0
    """files that nobody needs, deleted"""
    bytes: int = 0
    """what these took"""

    @property
    def anything(self) -> bool:
        """Whether there was something to do."""
        return bool(self.folded or self.files)


def keep_folder(path: Path, check: Callable[[], None], *, now_s: Callable[[], float] = time.time) -> Upkept:
    """One turn. `check` raises where this process may not (any more); it is asked before each step that writes or deletes. A folder that is
    not there, or nobody has written to, is none to keep. Raises what `check` does, StateError for records that are damaged, OSError."""
    folded = files = size = 0
    newest = last_lineage(path / INTERNAL / "owner.json")
    for lineage in lineages_in(path):
        folded += _fold(lineage, check)
        for orphan in [*_orphans(lineage, current=lineage.path.name == newest, before_s=now_s() - OLD_S)]:
            faults.reached("upkeep.orphan")
            check()
            there_bytes = _size(orphan)
            orphan.unlink(missing_ok=True)
            files, size = files + 1, size + there_bytes
        for folder in _emptied(lineage):
            check()
            _remove_empty(folder)
    return Upkept(folded, files, size)


def _fold(lineage: LineageFolder, check: Callable[[], None]) -> int:
    commits = lineage.commits
    newest = commits.newest()
    if newest is None or not (commits.wants_folding(newest, gaps=True) or commits.has_leftovers()):
        return 0
    before = commits.high_mark()
    commits.fold(summarize_commits, check)
    return commits.high_mark() - before


def _orphans(lineage: LineageFolder, *, current: bool, before_s: float) -> Iterator[Path]:
    """Files that nobody needs."""
    mark, commits = lineage.read_mark(), lineage.commits
    for name in names_in(lineage.staged):
        folder = lineage.staged / name
        if not name.isdigit():
            continue
        if int(name) <= mark:  # all its files have their names: these are of attempts that failed, or were late
            yield from _files(folder)
        elif not current and commits.read(int(name)) is None:  # another lineage writes now: this one commits no more
            yield from (file for file in _files(folder) if _time(file) < before_s)
    for folder in (lineage.path.parent, lineage.path, commits.folder, commits.folder / "folded"):
        yield from (draft for draft in drafts_in(folder) if _time(draft) < before_s)


def _emptied(lineage: LineageFolder) -> Iterator[Path]:
    """Folders of Batches in which nothing is left, and whose Batch needs none."""
    mark = lineage.read_mark()
    for name in names_in(lineage.staged):
        folder = lineage.staged / name
        if name.isdigit() and int(name) <= mark and not [*_files(folder)]:
            yield folder


def _files(folder: Path) -> Iterator[Path]:
    try:
        return iter(sorted(path for path in folder.iterdir() if path.is_file()))
    except (FileNotFoundError, NotADirectoryError):
        return iter(())


def _time(path: Path) -> float:
    """When it was last written; one that is gone is new."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # somebody was faster, or has put something there

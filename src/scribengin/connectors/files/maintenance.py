"""Maintenance of a folder that file sinks write into. One process per folder does it beside the writers: the one that holds the maintenance
lease.

Hidden segments are merged (`compaction`); commit records are folded in thousands; leftovers of attempts in `staged/`, and drafts of killed
writers, are deleted. Each step is idempotent and may be interrupted at any point. Deleted data is always obsolete: a Batch whose files are
all renamed needs nothing staged, and a summary replaces the records that it sums up. So a process that loses the lease between its last
check and its next step does no harm by that one step, and does no further one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.compaction import FileCompactor, RollDone, leftovers
from scribengin.connectors.files.compaction_state import summarize_turns
from scribengin.connectors.files.retention import RetentionSettings, over
from scribengin.connectors.files.sink_claim import last_lineage
from scribengin.connectors.files.sink_folders import INTERNAL, lineages_in, remove_empty
from scribengin.connectors.files.sink_records import summarize_commits
from scribengin.core import faults
from scribengin.core.errors import EnvironmentFault, ScribenginError, StateError
from scribengin.core.storage import drafts_in, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from scribengin.connectors.files.compaction_state import Open
    from scribengin.connectors.files.sink_folders import LineageFolder
    from scribengin.core.numbered_log import NumberedLog


OLD_S = 3600.0
"""seconds for which a draft, or staged data of an earlier lineage, is kept: a process may still be writing it"""


@dataclass(frozen=True, slots=True)
class MaintenanceRun:
    """The result of one maintenance run."""

    folded: int = 0
    """number of commit records that were folded"""
    files: int = 0
    """number of unneeded files that were deleted"""
    bytes: int = 0
    """size of these files"""
    merged: int = 0
    """number of segments that were hidden and are visible now"""
    merged_files: int = 0
    """number of files that contain these segments"""
    merged_bytes: int = 0
    closed: int = 0
    """number of folders by time that got their completion marker"""
    expired: int = 0
    """number of files that were deleted with their folder by time"""
    due_s: float | None = field(default=None, compare=False)
    """seconds until waiting segments must be merged; None: none wait"""

    @property
    def anything(self) -> bool:
        """True if there was anything to do."""
        return any((self.folded, self.files, self.merged, self.closed, self.expired))


def roll_folder(path: Path, check: Callable[[], None], *, flush: bool = False, now_s: Callable[[], float] = time.time) -> MaintenanceRun:
    """Do only the compaction of `keep_folder`.

    Args:
        path: The sink's folder.
        check: As in `keep_folder`.
        flush: Make everything visible that is committed.
        now_s: Returns the current time, in seconds since 1970.

    Raises:
        ScribenginError: The first error of a lineage, after the others are compacted; or the error of `check`.
    """
    lineages = lineages_in(path)
    newest_us = max((each for each in map(_newest_us, lineages) if each is not None), default=None)
    newest = last_lineage(path / INTERNAL / "owner.json")
    done: list[RollDone] = []
    failed: ScribenginError | None = None
    busy: set[str] | None = set()
    left: dict[str, Open] = {}
    # the newest comes last: it closes folders that no other lineage has segments for
    for lineage in sorted(lineages, key=lambda each: each.path.name == newest):
        roller = FileCompactor(path, lineage, check, now_s, newest_us, busy, left)
        try:
            done.append(roller.run(flush=flush))
        except (StateError, EnvironmentFault) as error:  # the others are still compacted
            failed = failed or error
            if roller.waiting is None:  # its hidden rows are unknown
                busy = None
        busy = None if busy is None else busy | (roller.waiting or set())
        for folder, known in roller.open.items():
            left[folder] = max(known, left.get(folder, known), key=lambda each: each.version)
    if failed is not None:
        raise failed
    return MaintenanceRun(
        merged=sum(each.segments for each in done),
        merged_files=sum(each.files for each in done),
        merged_bytes=sum(each.bytes for each in done),
        closed=sum(each.closed for each in done),
        expired=sum(each.removed for each in done),
        due_s=min((each.due_s for each in done if each.due_s is not None), default=None),
    )


def keep_folder(path: Path, check: Callable[[], None], *, flush: bool = False, now_s: Callable[[], float] = time.time) -> MaintenanceRun:
    """Maintain a folder once. A folder that does not exist, or has no writer, needs no maintenance.

    Args:
        path: The sink's folder.
        check: Raises if this process may not write (any more); called before each step that writes or deletes.
        flush: Make everything visible that is committed.
        now_s: Returns the current time, in seconds since 1970.

    Raises:
        StateError: A record is damaged.
        OSError: The error of the file system.
    """
    rolled = roll_folder(path, check, flush=flush, now_s=now_s)
    folded = files = size = 0
    newest = last_lineage(path / INTERNAL / "owner.json")
    for lineage in lineages_in(path):
        folded += _fold(lineage.commits, summarize_commits, check) + _fold(lineage.merges, summarize_turns, check)
        for orphan in [*orphans_of(lineage, current=lineage.path.name == newest, before_s=now_s() - OLD_S)]:
            faults.reached("upkeep.orphan")
            check()
            there_bytes = _size(orphan)
            orphan.unlink(missing_ok=True)
            files, size = files + 1, size + there_bytes
        for folder in _emptied(lineage):
            check()
            remove_empty(folder, folder.parent)
    for lease in over(path, now_s()):
        check()
        lease.unlink(missing_ok=True)
    return replace(rolled, folded=folded, files=files, bytes=size)


def _newest_us(lineage: LineageFolder) -> int | None:
    """The newest event time that a lineage has written, if its sink uses folders by time."""
    if RetentionSettings.read(lineage) is None:
        return None
    newest = lineage.commits.newest()
    record = None if newest is None else lineage.commits.read(newest)
    return None if record is None else record.get("newest_us")


def _fold(log: NumberedLog, summarize: Callable[[Any | None, Iterable[Any]], Any], check: Callable[[], None]) -> int:
    newest = log.newest()
    if newest is None or not (log.wants_folding(newest, gaps=True) or log.has_leftovers()):
        return 0
    before = log.high_mark()
    log.fold(summarize, check)
    return log.high_mark() - before


def orphans_of(lineage: LineageFolder, *, current: bool, before_s: float) -> Iterator[Path]:
    """The unneeded files of a lineage.

    Args:
        lineage: The lineage.
        current: True if this lineage may write to the folder now.
        before_s: Of files that a process may still be writing, only those are returned that were last written before this time, in seconds
            since 1970.
    """
    mark, commits = lineage.read_mark(), lineage.commits
    for name in names_in(lineage.staged):
        folder = lineage.staged / name
        if not name.isdigit():
            continue
        if int(name) <= mark:  # all files of the Batch have their final names: these are of attempts that failed, or were late
            yield from _files(folder)
        elif not current and commits.read(int(name)) is None:  # another lineage writes now, and this one commits no more Batches
            yield from (file for file in _files(folder) if _time(file) < before_s)
    yield from leftovers(lineage)
    logs = (commits.folder, lineage.merges.folder)
    for folder in (lineage.path.parent, lineage.path, *logs, *(log / "folded" for log in logs)):
        yield from (draft for draft in drafts_in(folder) if _time(draft) < before_s)


def _emptied(lineage: LineageFolder) -> Iterator[Path]:
    """The empty staging folders of Batches that are published."""
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
    """When the file was last written, in seconds since 1970; a missing one counts as new."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

"""The input of a compactor: committed hidden segments, in groups that may become one file each, and rows in open folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from scribengin.connectors.files.closing import counts
from scribengin.connectors.files.roll_state import Open, folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.connectors.files.keeping import RetentionSettings
    from scribengin.connectors.files.roll_state import FileFrontier
    from scribengin.connectors.files.sink_folders import LineageFolder


class Segment(NamedTuple):
    """The nth file of a Batch, which is hidden."""

    number: int
    nth: int
    file: Mapping[str, Any]

    @property
    def place(self) -> tuple[int, int]:
        """The position that orders the segments."""
        return self.number, self.nth


@dataclass(slots=True)
class UnmergedSegments:
    """The contents of commit records that are not merged or counted yet."""

    runs: dict[str, list[list[Segment]]] = field(default_factory=dict)
    """folder → segments in order. A visible file ends a group, because nothing may be merged past it; so does a segment of another
    format"""
    start: int = 0
    """the first Batch that was read"""
    newest: int = -1
    newest_us: int | None = None
    open: dict[str, Open] = field(default_factory=dict)

    @property
    def waiting(self) -> set[str]:
        """Folders with hidden segments."""
        return {folder for folder, runs in self.runs.items() if any(runs)}

    def add(self, folder: str, rows: int, files: int, version: int = 0, bytes: int = 0) -> None:
        """Count rows of an open folder."""
        before = self.open.get(folder, Open())
        self.open[folder] = Open(before.rows + rows, before.files + files, max(before.version, version), before.bytes + bytes)


def read_unmerged(top: Path, lineage: LineageFolder, frontier: FileFrontier, keeping: RetentionSettings) -> UnmergedSegments:
    """Read the next commit records."""
    counting = counts(keeping) and not frontier.ended
    seen = UnmergedSegments(open=dict(frontier.open))
    mark, commits = lineage.read_mark(), lineage.commits
    start = min(frontier.low, frontier.scanned + 1) if counting else frontier.low
    seen.start, seen.newest = start, start - 1
    for number, record in commits.since(start):
        if number > mark and not _is_published(top, lineage, number, record, frontier):
            break
        seen.newest, seen.newest_us = number, record.get("newest_us")
        for nth, file in enumerate(record["files"]):
            folder = folder_of(file["name"])
            if counting and number > frontier.scanned:
                visible = not file.get("hidden")
                seen.add(folder, file["rows"], int(visible), bytes=file["bytes"] if visible else 0)
            if not file.get("hidden"):
                if seen.runs.get(folder, [[]])[-1]:
                    seen.runs[folder].append([])
            elif not frontier.has_merged(folder, (number, nth)):
                runs = seen.runs.setdefault(folder, [[]])
                if runs[-1] and form_of(runs[-1][-1].file) != form_of(file):
                    runs.append([])
                runs[-1].append(Segment(number, nth, file))
    if seen.newest_us is None and seen.newest >= 0:
        before = commits.read(seen.newest)
        seen.newest_us = None if before is None else before.get("newest_us")
    return seen


def _is_published(top: Path, lineage: LineageFolder, number: int, record: Mapping[str, Any], frontier: FileFrontier) -> bool:
    """Whether all files of a Batch have their final names, although no record confirms it."""
    for nth, (staged, final) in enumerate(lineage.files_of(number, record, top)):
        file = record["files"][nth]
        if staged.exists():
            return False
        if file.get("hidden") and not final.exists() and not frontier.has_merged(folder_of(file["name"]), (number, nth)):
            return False
    return True


def cut(run: list[Segment], size: int) -> tuple[list[list[Segment]], list[Segment]]:
    """(groups of `size` bytes and a little more, the rest)."""
    full: list[list[Segment]] = []
    group: list[Segment] = []
    total = 0
    for segment in run:
        group.append(segment)
        total += segment.file["bytes"]
        if total >= size:
            full.append(group)
            group, total = [], 0
    return full, group


def form_of(file: Mapping[str, Any]) -> tuple[Any, ...]:
    """Segments with the same value can be one file: format and compression, by the suffix, and how CSV was written."""
    return file["name"].rpartition("/")[2].partition(".")[2], bool(file.get("header")), file.get("form")

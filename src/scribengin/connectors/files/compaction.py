"""The compactor: it merges committed hidden segments into large files that readers see, each by one rename.

It is safe beside writers and other compactors, and when it is killed or suspended at any point; `compaction_state` explains why.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from scribengin.connectors.files.compaction_state import FileFrontier, Open, folder_of, newest_turn
from scribengin.connectors.files.merging import FileInput, merge
from scribengin.connectors.files.retention import (
    RetentionSettings,
    closed_now,
    counts,
    expired_now,
    has_files,
    is_expired,
    is_marked,
    put_marker,
    read_marker,
    remove_emptied,
    remove_expired,
    take_marker,
    write_draft,
)
from scribengin.connectors.files.sink_folders import lineages_in, read_mark, write_mark
from scribengin.core import faults
from scribengin.core.errors import EnvironmentFault, FencedError, StateError
from scribengin.core.remedies import start_over
from scribengin.core.storage import explained, make_folder, names_in, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.files.sink_folders import LineageFolder


# The input of a compactor: committed hidden segments, in groups that may become one file each, and rows in open folders.


class Segment(NamedTuple):
    """A hidden file: the nth file of a Batch."""

    number: int
    nth: int
    file: Mapping[str, Any]

    @property
    def place(self) -> tuple[int, int]:
        """The position that orders the segments."""
        return self.number, self.nth


@dataclass(slots=True)
class UnmergedSegments:
    """The contents of the commit records that are not merged or counted yet."""

    runs: dict[str, list[list[Segment]]] = field(default_factory=dict)
    """folder → groups of segments, in order. A visible file ends a group, because nothing may be merged past it; so does a segment of
    another format"""
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
        """Add rows and files to the contents of an open folder.

        Args:
            folder: The folder.
            rows: The number of rows to add.
            files: The number of visible files to add.
            version: The version of the folder's deleted completion marker; 0 if there is none.
            bytes: The size of the visible files to add.
        """
        before = self.open.get(folder, Open())
        self.open[folder] = Open(before.rows + rows, before.files + files, max(before.version, version), before.bytes + bytes)


def read_unmerged(top: Path, lineage: LineageFolder, frontier: FileFrontier, keeping: RetentionSettings) -> UnmergedSegments:
    """Read the commit records after a compaction run, up to the first Batch that is not published completely.

    Args:
        top: The sink's folder.
        lineage: The lineage.
        frontier: The state after the run.
        keeping: The maintenance settings of the lineage.
    """
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
    """True if all files of a Batch have their final names, although the mark of complete Batches does not include it."""
    for nth, (staged, final) in enumerate(lineage.files_of(number, record, top)):
        file = record["files"][nth]
        if staged.exists():
            return False
        if file.get("hidden") and not final.exists() and not frontier.has_merged(folder_of(file["name"]), (number, nth)):
            return False
    return True


def cut(run: list[Segment], size: int) -> tuple[list[list[Segment]], list[Segment]]:
    """Divide segments into groups that have at least `size` bytes each. Returns (groups, remaining segments)."""
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
    """A value that is equal for segments which can be merged into one file: format and compression, by the suffix, and how CSV
    was written."""
    return file["name"].rpartition("/")[2].partition(".")[2], bool(file.get("header")), file.get("form")


_TURN_FILES = 64
_TURN_BYTES = 2**30
"""a compaction run is recorded when it has merged this much: another compactor can then waste at most this much work"""
_MOVES = 1000
"""this many Batches with nothing to do are recorded as a run, so that their records are not read again"""
_TRIES = 20
"""number of runs lost to other compactors after which this one stops"""


@dataclass(slots=True)
class RollDone:
    """The result of a compactor. `due_s`: at most this many seconds until more work is due; None: no segment waits."""

    segments: int = 0
    files: int = 0
    bytes: int = 0
    closed: int = 0
    removed: int = 0
    due_s: float | None = None


@dataclass(slots=True)
class FileCompactor:
    """The compactor of one lineage in the sink's folder `top`. `check` raises if this process may not write (any more)."""

    top: Path
    lineage: LineageFolder
    check: Callable[[], None] = lambda: None
    now_s: Callable[[], float] = time.time
    newest_us: int | None = None
    """the newest event time of all lineages there: it determines the age of folders"""
    busy: Collection[str] | None = ()
    """folders with hidden segments of other lineages, which are not closed; None: these folders are unknown, and no folder is closed"""
    left: Mapping[str, Open] = field(default_factory=dict)
    """the open contents, without a completion marker, of lineages that have ended: this lineage closes the folders that they reopened after
    their end"""
    waiting: set[str] | None = None
    """folders with hidden segments of this lineage; None until they are read"""
    open: Mapping[str, Open] = field(default_factory=dict)
    """the open contents of this lineage, if it has ended"""
    done: RollDone = field(default_factory=RollDone)

    def run(self, *, flush: bool = False) -> RollDone:
        """Do all work that is due now; with `flush` merge all hidden segments. Raises the errors of `check`, EnvironmentFault if the disk
        is full, and StateError for damaged data; nothing is lost in any of these cases."""
        lost = 0
        while lost < _TRIES:
            number, turn = newest_turn(self.lineage)
            # read after the record: a change of the settings requires a new record, and makes this compactor outdated
            keeping = RetentionSettings.read(self.lineage)
            if keeping is None:
                return self.done
            if turn is not None:
                self.settle(number, turn, keeping)
            frontier = FileFrontier.of(turn)
            seen = read_unmerged(self.top, self.lineage, frontier, keeping)
            self.waiting = seen.waiting
            self.open = frontier.open if frontier.ended else {}
            groups, self.done.due_s = self._ready(seen, keeping, flush=flush or frontier.ended)
            record = self._next(number + 1, frontier, seen, keeping, groups)
            if record is None:
                break
            lost += not self._put(number + 1, record, keeping)
        return self.done

    # --- the current contents ---

    def _ready(self, seen: UnmergedSegments, keeping: RetentionSettings, *, flush: bool) -> tuple[list[list[Segment]], float | None]:
        """(groups that become one file each, seconds until the next is due)."""
        groups: list[list[Segment]] = []
        due_s: float | None = None
        size = keeping.roll_bytes
        for folder, runs in seen.runs.items():
            # late rows for a folder with a completion marker may wait: until then the marker is correct
            now = flush or size is None or (keeping.is_closed(folder, seen.newest_us) and not is_marked(self.top, folder))
            for index, run in enumerate(runs):
                full, rest = cut(run, size or 2**62)
                groups += full
                if not rest:
                    continue
                waits_s = keeping.roll_every_s - (self.now_s() - self._oldest_s(rest))
                # more than the interval in the future: the clock was set back, and the waiting time is unknown
                if now or index < len(runs) - 1 or not 0 < waits_s <= 2 * keeping.roll_every_s:
                    groups.append(rest)
                else:
                    due_s = min(waits_s, due_s if due_s is not None else waits_s)
        return groups, due_s

    def _oldest_s(self, run: Sequence[Segment]) -> float:
        """When the first segment of a group was written, in seconds since 1970. 0 for a missing one: another compactor was faster, or the
        loss is reported when the segment is read."""
        try:
            return self._path(run[0]).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _gone(self, path: Path, segment: Segment) -> StateError:
        return StateError(
            f"{path} is missing: {segment.file['rows']} rows of batch {segment.number} that are committed and not merged yet",
            remedy=f"restore it from a backup, or {start_over()}",
        )

    # --- the next record ---

    def _next(
        self, number: int, frontier: FileFrontier, seen: UnmergedSegments, keeping: RetentionSettings, groups: list[list[Segment]]
    ) -> dict[str, Any] | None:
        """The record of the compaction run; None if there is nothing to do, empty if another compactor was faster. A record that merges
        segments neither closes folders nor adds folders to delete."""
        outputs = self._merge_all(number, groups) if groups else []
        if outputs is None:
            return {}
        merged = {(each[0], each[1]) for output in outputs for each in output["inputs"]}
        newest_us = self.newest_us = max((each for each in (self.newest_us, seen.newest_us) if each is not None), default=None)
        expired, emptied = ({}, []) if groups else expired_now(self.top, self.lineage, seen.runs, newest_us, keeping, self.now_s())
        for folder in () if self.busy is None or frontier.ended else sorted({*emptied} - {*self.busy}):
            self.check()
            remove_emptied(self.top, folder)
        expired = {folder: through for folder, through in expired.items() if frontier.removing.get(folder, -1) < through}
        reopened = []
        for folder in sorted({folder_of(output["name"]) for output in outputs}):
            if is_marked(self.top, folder):
                before = read_marker(self.top, folder)
                seen.add(folder, *before)
                reopened.append({"folder": folder, "version": before.version})
        for output in outputs:
            if (folder := folder_of(output["name"])) in seen.open:
                seen.add(folder, 0, 1, bytes=output["bytes"])
        for folder, known in self.left.items() if counts(keeping) and not frontier.ended else ():
            if folder in seen.open or has_files(self.top, folder):
                seen.add(folder, 0, 0, known.version)
        for folder in [folder for folder in seen.open if is_expired(folder, newest_us, keeping, self.now_s())]:
            del seen.open[folder]
        busy = {*seen.waiting, *(self.busy or ()), *frontier.removing}
        closed = [] if groups or frontier.ended or self.busy is None else closed_now(self.top, seen.open, busy, seen.newest_us, keeping)
        for each in closed:
            each["draft"] = self._draft_marker(number, each)
        waiting = [segment.number for runs in seen.runs.values() for run in runs for segment in run if segment.place not in merged]
        low = max(frontier.low, min(waiting, default=seen.newest + 1))
        counting = counts(keeping) and not frontier.ended
        scanned = max(frontier.scanned, seen.newest) if counting else frontier.scanned
        last = dict(frontier.done)
        for output in outputs:
            last[folder_of(output["name"])] = tuple(output["inputs"][-1][:2])
        for folder in (each["folder"] for each in closed):
            del seen.open[folder]
        there = [folder for folder in frontier.removing if (self.top / folder).exists()]
        removing = {folder: frontier.removing[folder] for folder in there if is_expired(folder, newest_us, keeping, self.now_s())}
        withdrawn = len(removing) < len(there)  # `keep` has changed; without this the announced files would never be read
        if not (outputs or closed or expired or withdrawn) and min(low, scanned + 1 if counting else low) < seen.start + _MOVES:
            return None
        done = {folder: place for folder, place in last.items() if place[0] >= low}
        after = FileFrontier(low, done, scanned, seen.open, removing | expired, frontier.ended)
        removed = [{"folder": folder, "through": through} for folder, through in expired.items()]
        return {**after.as_turn(), "outputs": outputs, "closed": closed, "reopened": reopened, "removed": removed}

    def _draft_marker(self, number: int, said: Mapping[str, Any]) -> str:
        self.check()
        draft = self._new_draft(number)
        with explained(f"the completion marker of {said['folder']} cannot be written"):
            write_draft(draft, said)
        return str(draft.relative_to(self.lineage.path))

    def _new_draft(self, number: int) -> Path:
        with explained(f"{self.lineage.drafts} cannot be created"):
            make_folder(self.lineage.drafts)
        return self.lineage.drafts / f"{number:010d}-{uuid4().hex}"

    def _merge_all(self, number: int, groups: list[list[Segment]]) -> list[dict[str, Any]] | None:
        """Merge the groups. Returns the outputs of the compaction run; None if another compactor was faster. Raises EnvironmentFault if
        there is no disk space for any output."""
        outputs: list[dict[str, Any]] = []
        try:
            for whole in groups:
                group = whole
                while group and len(outputs) < _TURN_FILES and sum(output["bytes"] for output in outputs) < _TURN_BYTES:
                    output, taken = self._merge_one(number, group)
                    outputs.append(output)
                    group = group[taken:]
                if group:  # later segments of the folder must wait for it
                    break
            faults.reached("roll.drafts.written")
        except FileNotFoundError as error:
            self._throw_away(outputs)
            if newest_turn(self.lineage)[0] >= number:
                return None
            segments = [each for group in groups for each in group]
            segment = next((each for each in segments if str(self._path(each)) == str(error.filename)), segments[0])
            raise self._gone(self._path(segment), segment) from None
        except EnvironmentFault:
            if not outputs:
                raise
            # record what there was space for: its inputs are then deleted, which frees space for more
        except BaseException:
            self._throw_away(outputs)
            raise
        return outputs

    def _merge_one(self, number: int, group: Sequence[Segment]) -> tuple[dict[str, Any], int]:
        self.check()
        first = group[0]
        if len(group) == 1:
            said = {name: first.file[name] for name in ("name", "rows", "bytes", "crc")}
            draft = self._path(first)
            draft.stat()
            taken = 1
        else:
            draft = self._new_draft(number)
            merged = merge([FileInput(self._path(each), each.file) for each in group], draft)
            taken = merged.taken
            name = first.file["name"] if taken == 1 else _name(first.file["name"], group[taken - 1].number)
            said = {"name": name, "rows": merged.rows, "bytes": merged.bytes, "crc": merged.crc}
        inputs = [[each.number, each.nth, each.file["staged"], each.file["rows"]] for each in group[:taken]]
        return {**said, "draft": str(draft.relative_to(self.lineage.path)), "inputs": inputs}, taken

    def _path(self, segment: Segment) -> Path:
        return self.lineage.hidden_file(segment.number, segment.file)

    def _throw_away(self, outputs: Sequence[Mapping[str, Any]]) -> None:
        for output in outputs:
            if not output["draft"].startswith("hidden/"):
                with suppress(OSError):
                    (self.lineage.path / output["draft"]).unlink(missing_ok=True)

    def put_turn(self, number: int, record: dict[str, Any]) -> dict[str, Any] | None:
        """Put the record of a compaction run, if the number is free. Returns the stored record; None if it is so old that it was folded."""
        try:
            stored: dict[str, Any] = self.lineage.merges.put(number, record)
        except FencedError:
            return None
        return stored

    def _put(self, number: int, record: dict[str, Any], keeping: RetentionSettings) -> bool:
        """Record a compaction run. True if the stored record is this compactor's; the run is then finished, too."""
        if not record:
            return False
        outputs = [*record["outputs"], *record["closed"]]
        try:
            if any(not output["draft"].startswith("hidden/") for output in outputs):
                sync_folder(self.lineage.drafts)
            self.check()
            faults.reached("roll.record.before")
            stored = self.put_turn(number, record)
        except BaseException:
            if newest_turn(self.lineage)[0] < number or self.lineage.merges.read(number) != record:
                self._throw_away(outputs)  # otherwise the record exists, although the call failed
            raise
        faults.reached("roll.record.after")
        if stored is not record:
            self._throw_away(outputs)
            return False
        self.settle(number, record, keeping)
        self.done.segments += sum(len(output["inputs"]) for output in record["outputs"])
        self.done.files += len(record["outputs"])
        self.done.bytes += sum(output["bytes"] for output in record["outputs"])
        self.done.closed += len(record["closed"])
        return True

    # --- the steps of a record ---

    def settle(self, number: int, turn: Mapping[str, Any], keeping: RetentionSettings) -> None:
        """Do the remaining steps of a recorded compaction run. Idempotent. Only the newest run can be unfinished.

        Args:
            number: The number of the run.
            turn: The record of the run.
            keeping: The maintenance settings of the lineage.
        """
        frontier = FileFrontier.of(turn)
        if read_mark(self._settled_path) < number:
            folders = {self.top / folder_of(output["name"]) for output in turn["outputs"]}
            for each in turn["reopened"]:
                self.check()
                take_marker(self.top, each["folder"], each["version"])
                faults.reached("roll.reopened")
            for folder in folders:
                self.check()
                make_folder(folder)
            for output in turn["outputs"]:
                self._reveal(self.lineage.path / output["draft"], self.top / output["name"])
                faults.reached("roll.renamed")
            for folder in folders:
                sync_folder(folder)
            for each in turn["closed"]:
                self.check()
                put_marker(self.top, each["folder"], self.lineage.path / each["draft"])
                faults.reached("roll.marked")
            for output in turn["outputs"]:
                self.check()
                for batch, _, staged, _ in output["inputs"]:
                    self.lineage.hidden_file(batch, {"staged": staged}).unlink(missing_ok=True)
                faults.reached("roll.deleted")
            write_mark(self._settled_path, number)
        for expired, through in frontier.removing.items():
            if is_expired(expired, self.newest_us, keeping, self.now_s()):
                now_s = self.now_s()
                self.done.removed += remove_expired(self.top, self.lineage, keeping.sink, expired, through, self.check, now_s)

    def _reveal(self, draft: Path, final: Path) -> None:
        if final.exists():
            if draft.exists():
                raise StateError(
                    f"{final} already exists, although nothing was merged into it",
                    remedy="move that file away: Scribengin did not write it",
                )
            return
        self.check()
        with suppress(FileNotFoundError):  # the file had its final name, and a reader has removed it since; `audit` reports it
            draft.rename(final)

    @property
    def _settled_path(self) -> Path:
        return self.lineage.path / "settled"


def hidden_in(top: Path, lineages: Iterable[LineageFolder]) -> set[str] | None:
    """The folders with hidden segments of these lineages; None if a lineage is damaged, or has merged files that may not be renamed yet."""
    found = set[str]()
    for lineage in lineages:
        try:
            number, turn = newest_turn(lineage)
            keeping = RetentionSettings.read(lineage)
            if turn is not None and turn["outputs"] and number > read_mark(lineage.path / "settled"):
                return None
            found |= set() if keeping is None else read_unmerged(top, lineage, FileFrontier.of(turn), keeping).waiting
        except (EnvironmentFault, StateError):
            return None
    return found


def leftovers(lineage: LineageFolder) -> Iterator[Path]:
    """The leftovers of killed compactors: drafts that no run can name any more, and merged segments."""
    number, turn = newest_turn(lineage)
    named = set() if turn is None else {PurePosixPath(each["draft"]).name for each in (*turn["outputs"], *turn["closed"])}
    for name in names_in(lineage.drafts):
        if name[:10].isdigit() and int(name[:10]) <= number and name not in named:
            yield lineage.drafts / name
    low = FileFrontier.of(turn).low
    for name in names_in(lineage.hidden):
        if name[:10].isdigit() and int(name[:10]) < low and name not in named:
            yield lineage.hidden / name


def _name(first: str, last: int) -> str:
    """The name of a merged file: that of its first segment, with its last Batch. It sorts like its first segment."""
    stem, dot, suffix = first.rpartition("/")[2].partition(".")
    return f"{folder_of(first)}{stem}-{last:010d}{dot}{suffix}"


# How folders by time pass from one lineage to the next: the successor takes over the open folders, and only the successor closes them from
# then on.
#
# Only one lineage at a time writes completion markers, the last that claimed the folder. The lineage before ends with a compaction run
# that records this: a compactor that read the state before that run is rejected. The open folders of the old lineage are in that run, and
# the successor's first run begins with them.


def begin(top: Path, lineage: LineageFolder, keeping: RetentionSettings, before: LineageFolder | None) -> None:
    """Start a lineage in a folder: the settings `keeping` are in force from now on, and the lineage before it ends. Called before the
    lineage stages anything. Every completion marker that was about to be written exists afterwards. Idempotent: it may be interrupted at
    any point and repeated.

    Args:
        top: The sink's folder.
        lineage: The lineage that starts.
        keeping: Its maintenance settings.
        before: The lineage that wrote to the folder last; None if there is none.
    """
    inherits = before is not None and (RetentionSettings.read(before) is not None or counts(keeping))
    if before is not None and inherits:
        open_ = _end(top, before, keeping).open
        if newest_turn(lineage)[1] is None:
            lineage.merges.put(0, FileFrontier(open=open_).as_turn())
    if keeping.write(lineage, always=inherits):
        faults.reached("keeping.written")
        _fence(top, lineage, keeping)
        keeping.note_fenced(lineage)


def _end(top: Path, lineage: LineageFolder, heirs: RetentionSettings) -> FileFrontier:
    """Record the compaction run that ends a lineage, unless it exists. Returns the state after that run."""
    roller = FileCompactor(top, lineage)
    if not FileFrontier.of(newest_turn(lineage)[1]).ended:
        roller.busy = hidden_in(top, (each for each in lineages_in(top) if each != lineage))
        with suppress(EnvironmentFault, StateError):  # segments that cannot be merged now wait; the maintenance owner reports why
            roller.run(flush=True)
    while True:
        number, turn = newest_turn(lineage)
        frontier = FileFrontier.of(turn)
        if turn is not None:
            roller.settle(number, turn, heirs)
        if frontier.ended:
            return frontier
        seen = read_unmerged(top, lineage, frontier, heirs)
        scanned = max(frontier.scanned, seen.newest) if counts(heirs) else frontier.scanned
        roller.put_turn(number + 1, replace(frontier, open=seen.open, scanned=scanned, ended=True).as_turn())


def _fence(top: Path, lineage: LineageFolder, keeping: RetentionSettings) -> None:
    """Record a compaction run, so that compactors that have read other settings are outdated."""
    roller = FileCompactor(top, lineage)
    while True:
        number, turn = newest_turn(lineage)
        if turn is not None:
            roller.settle(number, turn, keeping)
        record = FileFrontier.of(turn).as_turn()
        if roller.put_turn(number + 1, record) is record:
            return

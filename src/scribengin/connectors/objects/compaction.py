"""The compactor of a store: it merges committed segments into large objects. It is safe beside writers and other compactors, and when it is
killed or suspended at any point; `compaction_log` explains why."""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.connectors.files.compaction import RollDone, Segment, cut, form_of
from scribengin.connectors.files.merging import merge_into, not_as_written
from scribengin.connectors.files.retention import marker_bytes
from scribengin.connectors.objects.compaction_log import CompactionLog, ObjectFrontier, hidden_root, place_of
from scribengin.connectors.objects.manifests import DATA, Manifests, lineages
from scribengin.connectors.objects.ranges import RangedFile
from scribengin.connectors.objects.read_lease import someone_reads
from scribengin.connectors.objects.retention import Closing, OpenFolders, check_folders
from scribengin.connectors.objects.staged_objects import complete, later_of
from scribengin.core import faults
from scribengin.core.errors import FencedError, StateError
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from scribengin.connectors.files.compaction_state import Open
    from scribengin.connectors.files.time_path import TimePath
    from scribengin.core.store import Store


REPLACED_S = 900.0
"""how long merged segments are kept, in seconds: a reader may have read their names from the manifests. A reader that needs longer takes a
lease"""
_READ_S = 30.0
"""interval between checks for readers, in seconds"""
_TURN_OBJECTS, _TURN_BYTES = 64, 2**30
"""a compaction run is recorded when it has merged this much: another compactor can then waste at most this much work"""
_MOVES = 1000
"""this many Batches with nothing to do are recorded as a run, so that their manifests are not read again"""
_TRIES = 20
"""number of runs lost to other compactors after which this one stops"""
_WHOLE = 32 * 2**20
"""a segment of up to this size is fetched once, and held in memory"""


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """A sink's settings for merging."""

    size: int = 2**62
    every_s: float = 0.0
    listed: bool = False
    """segments are hidden, and merged objects are visible to readers that list"""


@dataclass(slots=True)
class ObjectCompactor:
    """The compactor of one lineage at one place. Kept between polls, so that it reads each manifest once."""

    store: Store
    lineage: str
    wants: CompactionOptions
    now_s: Callable[[], float] = time.time
    open: OpenFolders | None = None
    """the open folders, for a sink that closes its folders by time, if this lineage is the one that writes there"""
    busy: Collection[str] = ()
    """folders with hidden rows of other lineages, which are not closed"""
    _settled: int = -1
    _next: int = 0
    """the first Batch whose manifest was not read yet"""
    _waiting: dict[str, list[list[Segment]]] = field(default_factory=dict)
    """folder → groups of segments that may become one object each, in order"""
    _written_s: dict[str, float] = field(default_factory=dict)
    """when the longest waiting segments were written"""
    _making: list[str] = field(default_factory=list)
    """the keys that this compactor writes for the next run"""
    _weighed: int = -1
    """the newest run when deletable segments were last checked"""
    ripe_s: float = 0.0
    """when the next merged segments may be deleted; infinite if there are none"""

    def run(self, *, flush: bool = False) -> RollDone:
        """Do all work that is due now; with `flush` merge all waiting segments. Raises StateError for damaged data, and the store's errors;
        nothing is lost in any of these cases."""
        done = RollDone()
        lost = 0
        while lost < _TRIES:
            turns = CompactionLog(self.store, self.lineage)
            number, turn = turns.newest()
            if turn is not None and number > self._settled:
                self.settle(turns, number, turn)
            frontier = ObjectFrontier.of(turn)
            counts = self.open if not frontier.ended else None
            if counts is not None:
                counts.follow(frontier)
                counts.count_new()
            self._read_commits(frontier)  # after that: its counted contents include all hidden segments
            groups, done.due_s = self._ready(counts, flush=flush)
            markers = [] if groups or counts is None else counts.markers(self.busy, listed=self.wants.listed)
            cleared = self._clear(turns, frontier.cleared, number, done)
            moves = max(self._low() - frontier.low, 0 if counts is None else counts.next - 1 - frontier.scanned)
            if not groups and not markers and cleared == frontier.cleared and moves < _MOVES:
                break
            outputs = self._merge_all(turns, number + 1, groups)
            if outputs is None:
                lost += 1
                continue
            after = self._after(frontier, outputs, cleared)
            if counts is not None:
                bytes_ = {each.place: each.file["bytes"] for group in groups for each in group}
                made = [(output, sum(bytes_[batch, nth] for batch, nth, *_ in output["inputs"])) for output in outputs]
                counts.after(after, made, {each["said"]["folder"] for each in markers})
            record = {"outputs": outputs, "closed": markers, "frontier": after.as_json(), "at_s": self.now_s()}
            if not self._put(turns, number + 1, record):
                lost += 1
                continue
            done.closed += len(markers)
            done.segments += sum(len(output["inputs"]) for output in outputs)
            done.files += len(outputs)
            done.bytes += sum(output["bytes"] for output in outputs)
        return done

    # --- the current contents ---

    @property
    def _root(self) -> str:
        return "" if self.wants.listed else f"{DATA}/"

    def _read_commits(self, frontier: ObjectFrontier) -> None:
        """Update `_waiting` from the manifests that were not read yet."""
        for folder, runs in list(self._waiting.items()):
            left = [[each for each in run if not frontier.is_done(folder, each.place)] for run in runs]
            # the last group continues, even if it is empty, unless it was ended
            self._waiting[folder] = [run for run in left[:-1] if run] + left[-1:]
        self._next = max(self._next, frontier.low)
        for number, record in Manifests(self.store, self.lineage).committed(self._next):
            self._next = number + 1
            for nth, file in enumerate(record["files"]):
                folder = place_of(file["name"])
                if frontier.is_done(folder, (number, nth)):
                    continue
                runs = self._waiting.setdefault(folder, [[]])
                waits = self._waits(file)  # nothing is merged past an object that readers see directly
                if runs[-1] and not (waits and form_of(runs[-1][-1].file) == form_of(file)):
                    if self.wants.listed or len(runs[-1]) > 1:
                        runs.append([])
                    else:  # nothing is added to one that readers see already
                        runs[-1] = []
                if waits:
                    runs[-1].append(Segment(number, nth, file))

    def _waits(self, file: Mapping[str, Any]) -> bool:
        """True if a segment is small enough to be merged with others."""
        if self.wants.listed:
            return str(file["name"]).startswith(hidden_root(self.lineage))
        suffix = file["name"].rpartition("/")[2].partition(".")[2]
        # for CSV that was written before it could be merged, the format is unknown
        return file["name"].startswith(f"{DATA}/") and file["bytes"] < self.wants.size and ("form" in file or "csv" not in suffix)

    @property
    def waiting(self) -> set[str]:
        """Folders with segments that wait for a merge."""
        return {folder for folder, runs in self._waiting.items() if any(runs)}

    def _ready(self, counts: OpenFolders | None, *, flush: bool) -> tuple[list[list[Segment]], float | None]:
        """(groups that become one object each, seconds until the next is due)."""
        groups: list[list[Segment]] = []
        due_s: float | None = None
        written_s: dict[str, float] = {}
        for folder, runs in self._waiting.items():
            now = flush or (counts is not None and counts.is_closed(folder))
            for nth, run in enumerate(runs):
                full, rest = cut(run, self.wants.size)
                groups += full
                # readers that use manifests see a segment as well as an object that was made only from it
                if not rest or (not self.wants.listed and len(rest) == 1):
                    continue
                name = rest[0].file["name"]
                written_s[name] = self._written_s[name] if name in self._written_s else self._since_s(name)
                waits_s = self.wants.every_s - (self.now_s() - written_s[name])
                # written this long after now: one of the two clocks was set back, and its waiting time is unknown
                if now or nth < len(runs) - 1 or not 0 < waits_s <= 2 * self.wants.every_s:
                    groups.append(rest)
                else:
                    due_s = min(waits_s, due_s if due_s is not None else waits_s)
        self._written_s = written_s
        return groups, due_s

    def _since_s(self, name: str) -> float:
        """When the segment was written, by the store's clock; long ago for a missing one."""
        found = self.store.head(name)
        return 0.0 if found is None else found.modified_s

    # --- the next record ---

    def _merge_all(self, turns: CompactionLog, number: int, groups: list[list[Segment]]) -> list[dict[str, Any]] | None:
        """The outputs of a compaction run; None if another compactor was faster."""
        outputs: list[dict[str, Any]] = []
        self._making = []
        try:
            for whole in groups:
                group = whole
                while group and len(outputs) < _TURN_OBJECTS and sum(output["bytes"] for output in outputs) < _TURN_BYTES:
                    output = self._merge_one(turns, number, len(outputs), group)
                    outputs.append(output)
                    group = group[len(output["inputs"]) :]
                if group:  # later segments of the folder must wait for it
                    break
            faults.reached("roll.drafts.written")
        except FileNotFoundError as error:
            self._throw_away(turns, number)
            if turns.newest()[0] >= number:
                return None
            raise StateError(
                f"{self.store} lacks a segment that is committed and not merged yet: {error}",
                remedy=f"check whether a user, or a rule of the store, deletes objects there; restore it from a backup, or {start_over()}",
            ) from None
        except BaseException:
            self._throw_away(turns, number)
            raise
        return outputs

    def _merge_one(self, turns: CompactionLog, number: int, nth: int, group: Sequence[Segment]) -> dict[str, Any]:
        first = group[0]
        suffix = first.file["name"].rpartition("/")[2].partition(".")[2]
        folder = place_of(first.file["name"])
        name = f"{self._root}{folder}part-{first.number:010d}-merged-{number:010d}-{nth:05d}-{uuid4().hex[:8]}.{suffix}"
        self._making.append(name)
        turns.notes.stage(number, name)
        later = later_of(self.store).writer(name) if self.wants.listed else None
        writer = self.store.writer(name) if later is None else later
        try:
            faults.reached("roll.draft.writing")
            taken = merge_into(writer.file, [_StoredInput(self.store, each.file) for each in group])
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        inputs = [[each.number, each.nth, each.file["name"], each.file["rows"]] for each in group[:taken]]
        said = {"name": name, "rows": sum(rows for *_, rows in inputs), "bytes": writer.size, "crc": writer.crc, "inputs": inputs}
        return said if later is None else said | {"upload": later.upload, "etags": later.etags}

    def _after(self, frontier: ObjectFrontier, outputs: Sequence[Mapping[str, Any]], cleared: int) -> ObjectFrontier:
        merged = {(batch, nth) for output in outputs for batch, nth, _, _ in output["inputs"]}
        done = dict(frontier.done)
        for output in outputs:
            done[place_of(output["name"])] = tuple(output["inputs"][-1][:2])
        low = max(frontier.low, self._low(merged))
        return replace(frontier, low=low, done={folder: place for folder, place in done.items() if place[0] >= low}, cleared=cleared)

    def _low(self, merged: Collection[tuple[int, int]] = ()) -> int:
        """The lowest Batch that has waiting segments, given the positions of merged ones."""
        waiting = (each.number for runs in self._waiting.values() for run in runs for each in run if each.place not in merged)
        return min(waiting, default=self._next)

    def _put(self, turns: CompactionLog, number: int, record: dict[str, Any]) -> bool:
        """Record a compaction run. True if the stored record is this compactor's; the run is then finished, too."""
        faults.reached("roll.record.before")
        try:
            stored = turns.log.put(number, record)
        except FencedError:  # so old that others have folded it
            stored = None
        faults.reached("roll.record.after")
        if stored != record:
            self._throw_away(turns, number)
            return False
        self.settle(turns, number, record)
        return True

    def _throw_away(self, turns: CompactionLog, number: int) -> None:
        """Delete the objects that this compactor made for a run that another compactor recorded, or that was not recorded. If the store is
        unavailable, the next compactor that records a run deletes them."""
        with suppress(Exception):
            turns.notes.sweep(number, self._making)

    # --- the steps of a record ---

    def settle(self, turns: CompactionLog, number: int, turn: Mapping[str, Any]) -> None:
        """Do the remaining steps of a recorded compaction run. Idempotent.

        Args:
            turns: The log of compaction runs.
            number: The number of the run.
            turn: The record of the run.
        """
        for output in turn["outputs"]:
            if "upload" in output:
                complete(self.store, later_of(self.store), output, f"compaction run {number}")
            faults.reached("roll.renamed")
        for marker in turn.get("closed", ()):
            self.store.put(marker["key"], marker_bytes(marker["said"]))
            faults.reached("roll.marked")
        for staged, key in list(turns.notes.staged()):
            if staged <= number:
                its = turn if staged == number else turns.log.read(staged) or {"outputs": ()}
                turns.notes.sweep(staged, [key], {output["name"] for output in its["outputs"]})
        if turns.log.wants_folding(number):
            turns.log.fold(summarize)
        self._settled = number

    def _clear(self, turns: CompactionLog, cleared: int, newest: int, done: RollDone) -> int:
        """Delete segments that were merged so long ago that no reader uses them. Returns the number of the last run whose segments are
        deleted."""
        if newest == self._weighed and self.now_s() < self.ripe_s:
            return cleared
        ripe: list[tuple[int, Mapping[str, Any]]] = []
        self._weighed, self.ripe_s = newest, inf
        for number, turn in turns.log.since(cleared + 1):
            at_s = turn["at_s"] + REPLACED_S
            if turn["outputs"] and self.now_s() < at_s:
                self.ripe_s = at_s
                break
            ripe.append((number, turn))
        if not any(turn["outputs"] for _, turn in ripe):
            return cleared
        if someone_reads(self.store, self.now_s()):
            self.ripe_s = self.now_s() + _READ_S
            return cleared
        for number, turn in ripe:
            names = [name for output in turn["outputs"] for _, _, name, _ in output["inputs"]]
            self.store.delete(*names)
            faults.reached("roll.deleted")
            done.removed += len(names)
            cleared = number
        return cleared


class _StoredInput:
    """See `merging.Input`."""

    def __init__(self, store: Store, entry: Mapping[str, Any]) -> None:
        self._store = store
        self.entry = entry

    def blocks(self) -> Iterator[bytes]:
        """See Input."""
        crc = size = 0
        while size < self.entry["bytes"]:
            block = self._store.range(self.entry["name"], size, min(size + _WHOLE, self.entry["bytes"]))
            if not block:
                break
            crc = zlib.crc32(block, crc)
            size += len(block)
            yield block
        if (size, crc) != (self.entry["bytes"], self.entry["crc"]):
            where = f"{self._store}/{self.entry['name']}"
            raise not_as_written(f"{where} was changed after it was written ({self.entry['rows']} rows)", self.entry)

    def checked(self) -> Any:
        """See Input."""
        if self.entry["bytes"] <= _WHOLE:
            return BytesIO(b"".join(self.blocks()))
        for _ in self.blocks():
            pass
        return RangedFile(self._store, self.entry["name"], self.entry["bytes"])


def summarize(summary: Any | None, turns: Any) -> dict[str, int]:
    """The summary of folded records."""
    so_far = summary or {"turns": 0, "objects": 0}
    for turn in turns:
        so_far = {"turns": so_far["turns"] + 1, "objects": so_far["objects"] + len(turn["outputs"])}
    return so_far


# Folders by time from one lineage to the next: which are open, and that only the successor closes them from now on.
#
# Only one lineage at a time writes completion markers, the last that claimed the place. The lineage before ends with a compaction run
# that records this: a compactor that read the state before that run is rejected. As for folders, see `files.compaction`; open contents are
# stored in the successor's `closing.json`.


def begin(store: Store, lineage: str, by: TimePath, *, closes: bool, sink: str, where: str) -> bool:
    """End the lineages before this one, and store how it closes its folders. The caller has claimed the place for the lineage, which has
    not staged anything yet. Idempotent: it may be interrupted at any point and repeated.

    Args:
        store: The place.
        lineage: The lineage of the sink.
        by: The time settings of its folders.
        closes: True if the sink closes its folders.
        sink: The id of the sink, for messages.
        where: The name of the place, for messages.

    Returns:
        True if there may be completion markers of earlier lineages.

    Raises:
        Refused: The time settings differ from those of folders that this lineage has closed.
        StateError: The stored records are damaged.
    """
    earlier = [each for each in lineages(store) if each != lineage]
    stands = Closing.read(store, lineage)
    if stands is not None:
        check_folders(stands.by[0], by, sink=sink, where=where)
        return bool(earlier)
    before = [closing for each in earlier if (closing := Closing.read(store, each)) is not None]
    if before or closes:
        ways = (by, *(each for closing in reversed(before) for each in closing.by))
        closing = Closing(tuple(dict.fromkeys(ways)))
        for each in earlier:
            closing = replace(closing, open=_end(store, each, Closing.read(store, each) or closing))
        if closes:
            faults.reached("keeping.written")
            closing.put(store, lineage)
    return bool(earlier)


def _end(store: Store, lineage: str, closing: Closing) -> Mapping[str, Open]:
    """Record the compaction run that ends a lineage, unless it exists; returns its open contents."""
    turns = CompactionLog(store, lineage)
    roller = ObjectCompactor(store, lineage, CompactionOptions())
    open_ = OpenFolders(store, lineage, closing)
    while True:
        number, turn = turns.newest()
        if turn is not None:
            roller.settle(turns, number, turn)
        frontier = ObjectFrontier.of(turn)
        if frontier.ended:
            return frontier.open
        open_.follow(frontier)
        open_.count_new()
        open_.after(frontier, (), ())
        frontier.ended = True
        turns.log.put(number + 1, {"outputs": [], "closed": [], "frontier": frontier.as_json(), "at_s": time.time()})

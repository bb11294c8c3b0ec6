"""The state of a lineage's compactor: a log of numbered records, one per compaction run. Each is created only if absent, and contains all
that the next run needs.

A compaction run names hidden segments that were merged and the file with their rows (a *draft* until it is renamed), folders that are
closed and the draft of their completion marker, folders that are reopened, and folders that are deleted. The record comes first. Then, in
this order: completion markers of reopened folders are deleted, drafts are renamed, files first, and unneeded files are deleted. Only the
newest run can be unfinished, because the process that records a run has finished the one before. So any number of compactors may work
concurrently: of two with the same number one is rejected, discards its drafts, and continues from the recorded state. A draft can be
renamed only once, so a compactor that was suspended during later runs restores nothing.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from scribengin.core.errors import StateError
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.connectors.files.sink_folders import LineageFolder


NOWHERE = (-1, -1)
_PART = re.compile(r"part-(\d{10,})-\d{5,}-\d{3,}?([0-9a-f]{8})(?:-(\d{10,}))?\.")


class Open(NamedTuple):
    """The contents of a folder by time that no completion marker counts."""

    rows: int = 0
    files: int = 0
    """number of files that readers see"""
    version: int = 0
    """version of the completion marker that was deleted when the folder was reopened"""
    bytes: int = 0
    """size of these files"""


@dataclass(slots=True)
class FileFrontier:
    """The state after a compaction run: which segments are merged and counted. A segment's position is (Batch, index in its commit record);
    in a folder segments are merged in the order of their positions, without a gap."""

    low: int = 0
    """Batches below this number have no hidden segments any more"""
    done: dict[str, tuple[int, int]] = field(default_factory=dict)
    """folder → the last merged position, if that is not below `low`"""
    scanned: int = -1
    """Batches up to this one are counted in `open`"""
    open: dict[str, Open] = field(default_factory=dict)
    """folder by time → contents that no completion marker counts"""
    removing: dict[str, int] = field(default_factory=dict)
    """folder → the Batch up to which its files are to be deleted"""
    ended: bool = False
    """True if another lineage writes there now, and has taken over `open`: this one closes no folders any more"""

    @staticmethod
    def of(turn: Mapping[str, Any] | None) -> FileFrontier:
        """The state after a compaction run; None: before the first run."""
        if turn is None:
            return FileFrontier()
        body = turn["frontier"]
        done = {folder: (batch, nth) for folder, (batch, nth) in body["done"].items()}
        open_ = {folder: Open(*each) for folder, each in body["open"].items()}
        return FileFrontier(body["low"], done, body["scanned"], open_, dict(body["removing"]), body["ended"])

    def as_turn(self) -> dict[str, Any]:
        """The record of a compaction run that only leads to this state."""
        return {"frontier": self.as_json(), "outputs": [], "closed": [], "reopened": [], "removed": []}

    def as_json(self) -> dict[str, Any]:
        """The form in a record."""
        done = {folder: list(place) for folder, place in self.done.items()}
        open_ = {folder: list(each) for folder, each in self.open.items()}
        return {"low": self.low, "done": done, "scanned": self.scanned, "open": open_, "removing": self.removing, "ended": self.ended}

    def has_merged(self, folder: str, place: tuple[int, int]) -> bool:
        """True if the hidden segment with that position is in a merged file."""
        return place[0] < self.low or place <= self.done.get(folder, NOWHERE)


def newest_turn(lineage: LineageFolder) -> tuple[int, Mapping[str, Any] | None]:
    """The number and the record of the newest run; (-1, None) if there is none. Raises StateError if the record is damaged, or has an
    unknown format."""
    number = lineage.merges.newest()
    if number is None:
        return -1, None
    turn = lineage.merges.read(number)
    try:
        wrong = [] if turn is None else [name for name in FileFrontier.of(turn).as_turn() if name not in turn]
        lacks = f"it lacks {', '.join(wrong)}" if wrong else ""
    except KeyError as error:
        lacks = f"it lacks {error.args[0]}"
    except (TypeError, ValueError, AttributeError) as error:
        lacks = str(error)
    if lacks:
        raise StateError(
            f"compaction run {number} in {lineage.merges.folder} has an unknown format: {lacks}",
            remedy=f"run the version of Scribengin that wrote it, or {start_over()}",
        )
    return number, turn


def folder_of(name: str) -> str:
    """The partition folder of a file's name, with its `/`; empty if there is none."""
    return name[: name.rfind("/") + 1]


def is_rolled(lineage: LineageFolder, record: Mapping[str, Any], number: int, nth: int) -> bool:
    """True if a hidden file of a Batch is merged.

    Args:
        lineage: The lineage.
        record: The commit record of the Batch.
        number: The number of the Batch.
        nth: The index of the file in the record.
    """
    frontier = FileFrontier.of(newest_turn(lineage)[1])
    return frontier.has_merged(folder_of(record["files"][nth]["name"]), (number, nth))


def outputs_of(lineage: LineageFolder) -> Iterator[str]:
    """The names of all merged files of a lineage."""
    return (output["name"] for _, turn in lineage.merges.since() for output in turn["outputs"])


def summarize_turns(summary: Any | None, turns: Iterable[Any]) -> dict[str, int]:
    """The summary of folded records."""
    so_far = summary or {"turns": 0, "files": 0, "rows": 0}
    for turn in turns:
        so_far = {
            "turns": so_far["turns"] + 1,
            "files": so_far["files"] + len(turn["outputs"]),
            "rows": so_far["rows"] + sum(output["rows"] for output in turn["outputs"]),
        }
    return so_far


def segment_id(lineage: str, sink: str, folder: str) -> str:
    """A part of file names in a partition folder: it distinguishes lineages and sinks, and folders whose names a file system considers
    equal.

    Args:
        lineage: The lineage.
        sink: The id of the sink.
        folder: The partition folder, with its `/`; empty if there is none.
    """
    return hashlib.sha256(f"{lineage}/{sink}/{folder}".encode()).hexdigest()[:8]


def last_batch(lineage: LineageFolder, sink: str, name: str) -> int | None:
    """The last Batch with rows in a visible file.

    Args:
        lineage: The lineage.
        sink: The id of the sink.
        name: The file's name, relative to the sink's folder.

    Returns:
        The number of the Batch; None for a file of another lineage or writer.
    """
    found = _PART.match(name.rpartition("/")[2])
    if found is None or found[2] != segment_id(lineage.path.name, sink, folder_of(name)):
        return None
    return int(found[3] or found[1])

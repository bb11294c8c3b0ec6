"""What the roller of a lineage has done, turn by turn: a log of numbered records, each put if absent, each with all that the next needs.

A turn names hidden segments that were merged and the file that holds their rows (a *draft* until it gets its name), folders that are
closed and the draft of their marker, folders that are opened again, and folders that are deleted. The record comes first; then, in this
order, markers of folders that are opened again are taken away, drafts get their names, files first, and what is not needed any more is
deleted. Only the newest turn can be unfinished, for who puts a turn has finished the one before. So any number of rollers may be at it: of
two with the same number one is late, throws its drafts away, and goes on from what stands there. A draft can be renamed once, so one that
slept through later turns puts nothing back.
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
    """What is in a folder by time and in no marker."""

    rows: int = 0
    files: int = 0
    """that readers see"""
    version: int = 0
    """of the marker that went when the folder was opened again"""
    bytes: int = 0
    """of these files"""


@dataclass(slots=True)
class FileFrontier:
    """What is merged and counted after a turn. A segment's place is (Batch, index in its commit record); in a folder segments are merged in
    the order of their places, without a gap."""

    low: int = 0
    """nothing of Batches below is hidden any more"""
    done: dict[str, tuple[int, int]] = field(default_factory=dict)
    """folder → the last place that is merged, where that is not below `low`"""
    scanned: int = -1
    """Batches up to this one are counted in `open`"""
    open: dict[str, Open] = field(default_factory=dict)
    """folder by time → what no marker counts there"""
    removing: dict[str, int] = field(default_factory=dict)
    """folder → up to which Batch its files are to be deleted"""
    ended: bool = False
    """another lineage writes there now, and has taken `open` over: this one closes no folder any more"""

    @staticmethod
    def of(turn: Mapping[str, Any] | None) -> FileFrontier:
        """After that turn; None: before the first."""
        if turn is None:
            return FileFrontier()
        body = turn["frontier"]
        done = {folder: (batch, nth) for folder, (batch, nth) in body["done"].items()}
        open_ = {folder: Open(*each) for folder, each in body["open"].items()}
        return FileFrontier(body["low"], done, body["scanned"], open_, dict(body["removing"]), body["ended"])

    def as_turn(self) -> dict[str, Any]:
        """A turn that does nothing but lead here."""
        return {"frontier": self.as_json(), "outputs": [], "closed": [], "reopened": [], "removed": []}

    def as_json(self) -> dict[str, Any]:
        """The form in a turn."""
        done = {folder: list(place) for folder, place in self.done.items()}
        open_ = {folder: list(each) for folder, each in self.open.items()}
        return {"low": self.low, "done": done, "scanned": self.scanned, "open": open_, "removing": self.removing, "ended": self.ended}

    def has_merged(self, folder: str, place: tuple[int, int]) -> bool:
        """Whether the hidden segment of that place is in a merged file."""
        return place[0] < self.low or place <= self.done.get(folder, NOWHERE)


def newest_turn(lineage: LineageFolder) -> tuple[int, Mapping[str, Any] | None]:
    """(its number, the turn), or (-1, None). Raises StateError for one that is damaged, or of a form that is not known here."""
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
            f"turn {number} of the roller in {lineage.merges.folder} has a form that is not known here: {lacks}",
            remedy=f"run the version of Scribengin that wrote it, or {start_over()}",
        )
    return number, turn


def folder_of(name: str) -> str:
    """The partition's folder of a file's name, with its `/`; empty for none."""
    return name[: name.rfind("/") + 1]


def is_rolled(lineage: LineageFolder, record: Mapping[str, Any], number: int, nth: int) -> bool:
    """Whether the nth file of a Batch, a hidden one, is merged."""
    frontier = FileFrontier.of(newest_turn(lineage)[1])
    return frontier.has_merged(folder_of(record["files"][nth]["name"]), (number, nth))


def outputs_of(lineage: LineageFolder) -> Iterator[str]:
    """The names of all merged files."""
    return (output["name"] for _, turn in lineage.merges.since() for output in turn["outputs"])


def summarize_turns(summary: Any | None, turns: Iterable[Any]) -> dict[str, int]:
    """What folded turns come to."""
    so_far = summary or {"turns": 0, "files": 0, "rows": 0}
    for turn in turns:
        so_far = {
            "turns": so_far["turns"] + 1,
            "files": so_far["files"] + len(turn["outputs"]),
            "rows": so_far["rows"] + sum(output["rows"] for output in turn["outputs"]),
        }
    return so_far


def segment_id(lineage: str, sink: str, folder: str) -> str:
    """What names of files in a partition's folder hold: it tells lineages and sinks apart, and folders whose names a file system takes for
    the same."""
    return hashlib.sha256(f"{lineage}/{sink}/{folder}".encode()).hexdigest()[:8]


def last_batch(lineage: LineageFolder, sink: str, name: str) -> int | None:
    """The last Batch with rows in a file that readers see, by its name from the sink's folder on; None for a file of anyone else."""
    found = _PART.match(name.rpartition("/")[2])
    if found is None or found[2] != segment_id(lineage.path.name, sink, folder_of(name)):
        return None
    return int(found[3] or found[1])

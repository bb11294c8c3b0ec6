"""Folders by event time in a store: how a lineage closes them, and what its compactors count until then.

    <url>/_scribengin/<lineage>/closing.json     the time settings of its folders, and what earlier lineages left open; written once
    <url>/data/<folder>/_COMPLETE.json           the completion marker for readers that use manifests; without `data/` if readers list

The closing time is stored in the manifests (`closed_us`). Compactors use it, and so do the tasks of the following Batches: no compactor
closes a folder to which rows may still be added, whatever its options. A completion marker is never deleted, because another compactor
could write it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.compaction_state import Open
from scribengin.connectors.files.late_rows import closed_after
from scribengin.connectors.files.retention import COMPLETE, marker_of
from scribengin.connectors.files.time_path import TimePath
from scribengin.connectors.objects.compaction_log import CountedManifests, ObjectFrontier, hidden_root, is_visible, place_of
from scribengin.connectors.objects.manifests import DATA, INTERNAL, Manifests, lineages
from scribengin.core.errors import Refused
from scribengin.core.records import seal, unseal
from scribengin.core.remedies import add_to_outputs, start_over

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scribengin.core.store import Store


_KIND, _FORMAT = "closing", 1


@dataclass(frozen=True, slots=True)
class Closing:
    """How one lineage of a sink closes its folders, or closed them."""

    by: tuple[TimePath, ...]
    """the time settings of its own folders, then those of earlier lineages, if they differ"""
    open: Mapping[str, Open] = field(default_factory=dict)
    """folder → contents of earlier lineages that no completion marker counts"""

    @staticmethod
    def read(store: Store, lineage: str) -> Closing | None:
        """The stored settings; None if the lineage has closed nothing. Raises StateError."""
        key = _key(lineage)
        data = store.get(key)
        if data is None:
            return None
        body = unseal(data, _KIND, _FORMAT, Path(str(store), key))
        return Closing(tuple(map(TimePath.of, body["by"])), {folder: Open(*each) for folder, each in body["open"].items()})

    def put(self, store: Store, lineage: str) -> None:
        """Write the settings, unless they exist."""
        body = {"by": [each.as_json() for each in self.by], "open": {folder: list(each) for folder, each in self.open.items()}}
        store.put(_key(lineage), seal(_KIND, _FORMAT, body))

    def end_us(self, folder: str) -> int | None:
        """The end of a folder's time, in microseconds since 1970; by several settings the latest one. None: it has no end."""
        return max((end for each in self.by if (end := each.end_us(folder)) is not None), default=None)

    def is_closed(self, folder: str, closed_us: int | None) -> bool:
        """True if a folder is closed by the closing time `closed_us` of a manifest, in microseconds since 1970; None: nothing is closed."""
        end_us = None if closed_us is None else self.end_us(folder)
        return end_us is not None and closed_us is not None and end_us <= closed_us


def check_folders(stands: TimePath, wanted: TimePath, *, sink: str, where: str) -> None:
    """Check that a sink names its folders as it did when it began to close them: otherwise a closed folder could be reopened.

    Args:
        stands: The stored time settings.
        wanted: The sink's present time settings.
        sink: The id of the sink.
        where: The name of the place, for messages.

    Raises:
        Refused: They differ.
    """
    if stands != wanted:
        found, expected = (f"{each.path} of {each.column} in {each.zone}" for each in (wanted, stands))
        raise Refused(
            f'sink "{sink}": {where} has closed folders with `partition_by` {expected}; found {found}',
            remedy=f"restore the old `partition_by`; or {start_over()}; or {add_to_outputs()}",
            code="output-form",
            node=sink,
        )


def marker_key(folder: str, *, listed: bool) -> str:
    """The key of a folder's completion marker. `listed`: for readers that list the place."""
    return f"{'' if listed else f'{DATA}/'}{folder}{COMPLETE}"


def is_marked(store: Store, folder: str) -> bool:
    """True if a folder has a completion marker, for readers of either kind."""
    return any(store.head(marker_key(folder, listed=listed)) is not None for listed in (True, False))


class OpenFolders:
    """The contents of folders that no completion marker counts: those of the newest compaction run, and of the manifests after it. Kept
    between polls, so that it reads each manifest once."""

    def __init__(self, store: Store, lineage: str, closing: Closing) -> None:
        self.closing = closing
        self.next = 0
        """the first Batch that is not counted"""
        self.closed_us: int | None = None
        self._store = store
        self._hidden = hidden_root(lineage)
        self._manifests = Manifests(store, lineage)
        self._of_turn: Mapping[str, Open] = {}
        self._behind: dict[int, dict[str, Open]] = {}

    def follow(self, frontier: ObjectFrontier) -> None:
        """Continue from the contents that a compaction run counted."""
        self._of_turn = self.closing.open if frontier.scanned < 0 else frontier.open
        self._behind = {number: added for number, added in self._behind.items() if number > frontier.scanned}
        if self.next <= frontier.scanned:
            self.next = frontier.scanned + 1
            self._take(self._manifests.commits.read(frontier.scanned))

    def count_new(self) -> None:
        """Count the new manifests."""
        newest: tuple[int, Mapping[str, Any]] | None = None
        for coming in self._manifests.committed(self.next):
            if newest is not None:
                self._add(*newest)
            newest = coming
        # the newest manifest may be partly published, by a driver that is working or was killed
        if newest is not None and is_visible(self._store, newest[1]["files"]):
            self._add(*newest)

    def _add(self, number: int, record: Mapping[str, Any]) -> None:
        added: dict[str, Open] = {}
        for file in record["files"]:
            folder = place_of(file["name"])
            if folder and self.closing.end_us(folder) is not None:
                hidden = file["name"].startswith(self._hidden)
                _count(added, folder, file["rows"], 0 if hidden else 1, 0 if hidden else file["bytes"])
        self._behind[number] = added
        self.next = number + 1
        self._take(record)

    def _take(self, record: Mapping[str, Any] | None) -> None:
        self.closed_us = closed_after(record, ()).get("closed_us")

    def now(self) -> dict[str, Open]:
        """The contents of each folder."""
        found = dict(self._of_turn)
        for added in self._behind.values():
            for folder, each in added.items():
                _count(found, folder, each.rows, each.files, each.bytes)
        return found

    def is_closed(self, folder: str) -> bool:
        """True if no more rows can be added to a folder."""
        return self.closing.is_closed(folder, self.closed_us)

    def markers(self, busy: Collection[str], *, listed: bool) -> list[dict[str, Any]]:
        """The contents of the completion markers of folders that are closed and have none. `busy` folders are left out: they contain hidden
        rows. `listed`: for readers that list the place."""
        closed = {folder: each for folder, each in self.now().items() if folder not in busy and self.is_closed(folder)}
        # contents of earlier lineages may have been merged since they were counted
        closed |= _count_again(self._store, closed.keys() & self.closing.open.keys())
        return [
            {
                "key": marker_key(folder, listed=listed),
                "said": marker_of(folder, counted._replace(version=1), self.closing.end_us(folder), self.closed_us),
            }
            for folder, counted in sorted(closed.items())
        ]

    def after(self, frontier: ObjectFrontier, outputs: Collection[tuple[Mapping[str, Any], int]], closed: Collection[str]) -> None:
        """Update `frontier` to the state after a compaction run.

        Args:
            frontier: The state; `scanned`, `open` and `done` are changed.
            outputs: The entries of the objects that the run made, each with the bytes of its inputs.
            closed: The folders that get a completion marker.
        """
        found = self.now()
        for output, bytes_ in outputs:
            folder = place_of(output["name"])
            if folder in found:
                hidden = output["inputs"][0][2].startswith(self._hidden)
                gone = 0 if hidden else len(output["inputs"])
                _count(found, folder, 0, 1 - gone, output["bytes"] - (0 if hidden else bytes_))
        frontier.scanned = self.next - 1
        frontier.open = {folder: each for folder, each in found.items() if folder not in closed}
        frontier.done |= dict.fromkeys(closed, (self.next - 1, _ALL))


_ALL = 2**31
"""an index greater than those of all segments of a Batch: nothing in a folder with a completion marker is merged again"""


def _count(found: dict[str, Open], folder: str, rows: int, files: int, bytes_: int) -> None:
    before = found.get(folder, Open())
    found[folder] = Open(before.rows + rows, before.files + files, 0, before.bytes + bytes_)


def _count_again(store: Store, folders: Collection[str]) -> dict[str, Open]:
    """The contents of the folders, of all lineages, counted from the manifests and compaction runs."""
    found: dict[str, Open] = {}
    for lineage in lineages(store) if folders else ():
        for each in CountedManifests.of(store, lineage).objects():
            if (folder := place_of(each.said["name"])) in folders:
                _count(found, folder, each.said["rows"], 1, each.said["bytes"])
    return found


def _key(lineage: str) -> str:
    return f"{INTERNAL}/{lineage}/closing.json"

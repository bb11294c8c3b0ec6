"""The data that `reset` and `dead-letter purge` have removed, kept for a week so that their `--undo` can restore it.

<root>/.trash/<flow>/<id>/record.json                 what it is, and where each part came from
<root>/.trash/<flow>/<id>/<n>/...                     a part of the state
<root>/.trash/<flow>/<id>/<batch>/<attempt>.jsonl     purged dead letters of a Batch

Outputs are kept beside where they were written, so that removing and restoring them is a rename. Each step is idempotent: it may be
interrupted at any point and repeated.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from scribengin.connectors.contract import name_before
from scribengin.core import faults
from scribengin.core.errors import Refused
from scribengin.core.records import seal, unseal
from scribengin.core.remedies import flow_command
from scribengin.core.remote import RemotePath
from scribengin.core.storage import make_folder, names_in, read_or_none, remove_tree, sync_folder
from scribengin.core.storage import replace as write_over
from scribengin.state.contract import LineSegment
from scribengin.state.folder import QueryFolder
from scribengin.state.lineage import read_lineage
from scribengin.state.places import located
from scribengin.state.segments import LineWriter, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

_KIND, _FORMAT = "trash", 1
_FOLDER = ".trash"
RESET, PURGE = "reset", "purge"
_UNDO = {RESET: flow_command("reset", "--undo"), PURGE: flow_command("dead-letter purge", "--undo")}
KEPT = timedelta(days=7)
"""how long removed data can be restored"""


@dataclass(frozen=True, slots=True)
class TrashedPath:
    """A folder or file that was moved to the trash: `kept` is where it is now, `place` where it was. Paths on this machine are relative to
    the root of the state, so that a project can be moved as a whole."""

    kept: str
    place: str


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """The output of a sink at a place that has a trash of its own, to which it was moved."""

    sink: str
    place: str


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A purged dead letter: its line, and its repair; None if it was not repaired."""

    line: bytes
    repair: dict[str, Any] | None = None


_LETTER = msgspec.json.Decoder(tuple[int, msgspec.Raw, dict[str, Any] | None])


@dataclass(frozen=True, slots=True)
class PurgedLetters:
    """Purged dead letters of one Batch. `segment` has a line for each; `query` is the folder of the query's state."""

    query: str
    lineage: str
    batch: int
    segment: LineSegment

    @property
    def name(self) -> str:
        """The query's name."""
        return self.query.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Discarded:
    """The record of one `reset`, or one `dead-letter purge`, and of what it has removed.

    `owner` is the installation that owned the state. `lost` describes what was removed, for people and programs. `whole` is False until the
    command has finished: until then the next one continues it. `by` is `reset` or `purge`; only a purge has dead letters.
    """

    id: str
    flow: str
    at: str
    owner: str
    parts: tuple[TrashedPath, ...] = ()
    lost: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    whole: bool = False
    by: str = RESET
    letters: tuple[PurgedLetters, ...] = ()
    outputs: tuple[KeptOutput, ...] = ()

    @property
    def until(self) -> datetime:
        """When it is deleted for good."""
        return datetime.fromisoformat(self.at) + KEPT

    def as_json(self) -> dict[str, str]:
        """Its id, and the time until which it can be restored."""
        return {"id": self.id, "until": self.until.isoformat(timespec="seconds")}


def has_trash_in(root: Path) -> bool:
    """True if the trash of the state folder contains anything that a reset or a purge has removed, of any flow."""
    return bool(names_in(root / _FOLDER))


class Trash:
    """The data that resets of a flow, or purges of its dead letters, have removed. The caller of a method that changes something holds the
    leases of all the flow's tiers; for `drop_expired` one of them is enough."""

    def __init__(self, root: Path, flow: str, by: str = RESET) -> None:
        self._root = root
        self._flow = flow
        self._by = by
        self._folder = root / _FOLDER / flow

    def all(self) -> list[Discarded]:
        """The records of all removals by its command, newest first."""
        return [each for each in self._every() if each.by == self._by]

    def _every(self) -> list[Discarded]:
        found = [found for name in names_in(self._folder) if (found := self._read(name)) is not None]
        return sorted(found, key=lambda each: (each.at, each.id), reverse=True)

    def find(self, id_: str = "") -> Discarded:
        """The removal with that id, or the newest one. Raises Refused if there is none."""
        # one that was interrupted before anything was removed has nothing to restore
        found = [each for each in self.all() if each.whole or each.parts or each.letters or each.outputs]
        chosen = next((each for each in found if id_ in ("", each.id)), None)
        if chosen is None:
            have = f"it has {', '.join(each.id for each in found)}" if found else f"removed data is kept for {KEPT.days} days"
            raise Refused(
                f'the trash of flow "{self._flow}" has no {self._by}' + f' "{id_}"' * bool(id_),
                remedy=have,
                code="trash-missing",
            )
        return chosen

    def hint(self) -> str:
        """A remedy that undoes the newest removal; empty if there is none."""
        return f"restore the data that a {self._by} removed: {_UNDO[self._by]}" if self.all() else ""

    def begin(self, owner: str, lost: Iterable[Mapping[str, Any]]) -> Discarded:
        """A new record of a removal, or the newest one if its command was interrupted."""
        lost = tuple(lost)
        newest = next(iter(self.all()), None)
        now = datetime.now(UTC).isoformat(timespec="microseconds")  # microseconds, so that two in one second have an order
        if newest is not None and not newest.whole:
            return replace(newest, at=now, lost=(*newest.lost, *(each for each in lost if each not in newest.lost)))
        begun = Discarded(f"{now[:10]}-{uuid4().hex[:6]}", self._flow, now, owner, lost=lost, by=self._by)
        self._write(begun)
        return begun

    def folder_of(self, discarded: Discarded) -> Path:
        """The folder of its parts of the state."""
        return self._folder / discarded.id

    def move(self, discarded: Discarded, place: Path) -> Discarded:
        """Move a file or folder of the state to the trash; returns the record with it."""
        # an interruption between the record and the rename leaves a recorded part that does not exist
        again = (kept for part in discarded.parts if self._path(part.place) == place and not (kept := self._path(part.kept)).exists())
        kept = next(again, self.folder_of(discarded) / f"{len(discarded.parts)}" / place.name)
        noted = self.note(discarded, kept, place)
        make_folder(kept.parent)
        place.rename(kept)
        _sync(kept.parent, place.parent)
        faults.reached("trash.moved")
        return noted

    def note(self, discarded: Discarded, kept: Path, place: Path) -> Discarded:
        """Record, before it is done, that a file or folder is moved.

        Args:
            discarded: The removal.
            kept: Where it is moved to.
            place: Where it is now.

        Returns:
            The removal with that part.
        """
        part = TrashedPath(self._text(kept), self._text(place))
        if part in discarded.parts:
            return discarded
        noted = replace(discarded, parts=(*discarded.parts, part))
        self._write(noted)
        return noted

    def note_output(self, discarded: Discarded, output: KeptOutput) -> Discarded:
        """Record, before it is done, that output is moved to its place's own trash; returns the removal with it."""
        if output in discarded.outputs:
            return discarded
        noted = replace(discarded, outputs=(*discarded.outputs, output))
        self._write(noted)
        return noted

    def keep_letters(self, discarded: Discarded, query: QueryFolder, batch: int, letters: Mapping[int, KeptLetter]) -> Discarded:
        """Copy dead letters of a Batch to the trash before they are purged. The copy counts only after `record`.

        Args:
            discarded: The removal.
            query: The folder of the query's state.
            batch: The number of the Batch.
            `letters`: Place in the Batch → the dead letter.

        Returns:
            The removal with the dead letters.
        """
        writer = LineWriter(self.folder_of(discarded), uuid4().hex)
        for place, letter in letters.items():
            writer.append(batch, [place, msgspec.Raw(letter.line), letter.repair])
        segment, lineage = writer.close(), read_lineage(query)
        assert segment is not None, "no dead letters"
        assert lineage is not None, "dead letters of a query that never ran"
        kept = PurgedLetters(self._text(query.path), lineage.id, batch, segment)
        return replace(discarded, letters=(*discarded.letters, kept))

    def letters(self, discarded: Discarded, kept: PurgedLetters) -> dict[int, KeptLetter]:
        """Place in the Batch → dead letter, as `keep_letters` copied them. Raises StateError if they are missing, torn or changed."""
        lines = read_lines(self.folder_of(discarded), kept.segment, "purged dead letters")
        decoded = (_LETTER.decode(line) for line in lines)
        return {place: KeptLetter(bytes(line), repair) for place, line, repair in decoded}

    def query_of(self, kept: PurgedLetters) -> QueryFolder:
        """The folder of the lineage that the dead letters came from, also if a rewind has ended it. Raises Refused if it is gone."""
        query = QueryFolder(self._path(kept.query))
        for folder in (query, query.past(kept.lineage)):
            lineage = read_lineage(folder)
            if lineage is not None and lineage.id == kept.lineage:
                return folder
        raise Refused(
            f"query {query.name} started over since the purge: the purged dead letters belong to its lineage {kept.lineage}",
            remedy=f"if a reset removed that lineage, restore it first: {_UNDO[RESET]}",
            code="trash-taken",
        )

    def record(self, discarded: Discarded) -> None:
        """Store the removal durably: from now on it can be undone."""
        self._write(discarded)

    def complete(self, discarded: Discarded) -> Discarded:
        """Record that the command has finished; returns the removal."""
        whole = replace(discarded, whole=True)
        self._write(whole)
        return whole

    def forget(self, discarded: Discarded) -> None:
        """Delete the record of a removal, because all of it is restored."""
        remove_tree(self.folder_of(discarded))

    def check_back(self, discarded: Discarded) -> list[tuple[Path, Path]]:
        """For each part that is not restored yet: where it is now, and where it was. Raises Refused if something exists again in the place
        of one, or if one is missing."""
        parts = [(self._path(part.kept), self._path(part.place)) for part in reversed(discarded.parts)]
        # parts that an interrupted attempt has moved back are in their places
        left = [(kept, place) for kept, place in parts if kept.exists()]
        for kept, place in parts:
            if not kept.exists() and not place.exists():
                raise Refused(
                    f"{kept} is missing: the data removed from {place} cannot be restored",
                    remedy="restore that folder from a backup",
                    code="trash-missing",
                )
        for kept, place in left:
            _check_free(kept, place, discarded.id)
        return left

    def restore(self, discarded: Discarded) -> None:
        """Move every part back to where it was, outputs before the state. Raises what `check_back` raises before anything is moved."""
        for kept, place in self.check_back(discarded):
            _move_back(kept, place)
            _remove_empty(kept.parent)
            faults.reached("trash.restored")
        self.forget(discarded)

    def drop_expired(
        self, now: datetime | None = None, drop: Callable[[Discarded], bool] = lambda each: not each.outputs
    ) -> list[Discarded]:
        """Delete for good what is older than `KEPT`, whichever command removed it.

        Args:
            now: The present time; None for the clock's.
            drop: Deletes the outputs of a removal. If it returns False, because it cannot do so now, all of that removal stays.

        Returns:
            The removals that were deleted.
        """
        now = now or datetime.now(UTC)
        expired = [each for each in self._every() if each.until <= now and drop(each)]
        for each in expired:
            for part in each.parts:
                kept = self._path(part.kept)
                remove_tree(kept) if kept.is_dir() else kept.unlink(missing_ok=True)
                _remove_empty(kept.parent)
            remove_tree(self.folder_of(each))
        return expired

    def _read(self, id_: str) -> Discarded | None:
        file = self._folder / id_ / "record.json"
        data = read_or_none(file)
        if data is None:
            return None
        body = unseal(data, _KIND, _FORMAT, file)
        letters = (PurgedLetters(**each | {"segment": LineSegment(**each["segment"])}) for each in body.pop("letters", ()))
        parts = tuple(TrashedPath(**part) for part in body["parts"])
        body["outputs"] = tuple(KeptOutput(**each) for each in body.get("outputs", ()))
        return Discarded(**body | {"parts": parts, "lost": tuple(body["lost"]), "letters": tuple(letters)})

    def _write(self, discarded: Discarded) -> None:
        folder = self.folder_of(discarded)
        make_folder(folder)
        write_over(folder / "record.json", seal(_KIND, _FORMAT, asdict(discarded)))

    def _text(self, path: Path) -> str:
        if isinstance(path, RemotePath) or isinstance(self._root, RemotePath):
            return str(path)
        return os.path.relpath(path.absolute(), self._root.absolute())

    def _path(self, text: str) -> Path:
        path = located(text)
        return path if isinstance(path, RemotePath) or path.is_absolute() else self._root / path


def _check_free(kept: Path, place: Path, id_: str) -> None:
    """Raise Refused if something exists in a place to which a part is to be restored."""
    if kept.is_dir():
        for name in names_in(kept):
            _check_free(kept / name, place / name_before(name), id_)
        if not place.exists() or place.is_dir():
            return
    if place.exists():
        raise Refused(
            f"{place} exists again: it was written after the reset",
            remedy=f"move the new one to the trash too: {flow_command('reset', '--outputs')}; then: {flow_command('reset', '--undo', id_)}",
            code="trash-taken",
        )


def _move_back(kept: Path, place: Path) -> None:
    """Move a file or folder back. If the target folder exists, its contents are added, otherwise the folder is renamed as a whole."""
    if kept.is_dir() and place.is_dir():
        # names that begin with `_` record whose files these are, and go last: after an interruption before that, no run uses the files
        for name in sorted(names_in(kept), key=lambda name: (name.startswith("_"), name)):
            to = place / name_before(name)
            if (kept / name).is_dir() and not name.startswith("_"):
                make_folder(to)  # its files have other names in the trash
            _move_back(kept / name, to)
        remove_tree(kept)
        return
    make_folder(place.parent)
    kept.rename(place)
    _sync(kept.parent, place.parent)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _sync(*folders: Path) -> None:
    for folder in folders:
        sync_folder(folder)

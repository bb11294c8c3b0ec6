"""What `reset` and `dead-letter purge` have removed, kept for a week so that their `--undo` can bring it back.

<root>/.trash/<flow>/<id>/record.json                 what it is, and where each part came from
<root>/.trash/<flow>/<id>/<n>/...                     a part of the state
<root>/.trash/<flow>/<id>/<batch>/<attempt>.jsonl     purged dead letters of a Batch

Outputs are kept beside where they were written, so that to remove and to restore is to rename. Each step may be killed at any point and
done again.
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
"""How long what was removed can be brought back."""


@dataclass(frozen=True, slots=True)
class TrashedPath:
    """A folder or file that was moved away: `kept` is where it is now, `place` where it was. Paths of this machine start at the root of the
    state, so that a project can be moved as a whole."""

    kept: str
    place: str


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """What a sink has written to a place with a trash of its own, and is there now."""

    sink: str
    place: str


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A purged dead letter: its line as it was, and its repair; None if it was not repaired."""

    line: bytes
    repair: dict[str, Any] | None = None


_LETTER = msgspec.json.Decoder(tuple[int, msgspec.Raw, dict[str, Any] | None])


@dataclass(frozen=True, slots=True)
class PurgedLetters:
    """Purged dead letters of one Batch: `segment` holds a line for each, `query` is the folder of the Query's state."""

    query: str
    lineage: str
    batch: int
    segment: LineSegment

    @property
    def name(self) -> str:
        """The Query's name."""
        return self.query.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Discarded:
    """What one `reset`, or one `dead-letter purge`, has removed.

    `owner` is the installation whose state it was. `lost` says what it was, for people and programs. `whole` is False until the command is
    through: until then another one goes on with it. `by` is `reset` or `purge`; only a purge has dead letters.
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
        """By which it is named, and how long it can be."""
        return {"id": self.id, "until": self.until.isoformat(timespec="seconds")}


def has_trash_in(root: Path) -> bool:
    """Whether the state folder keeps anything that a reset or a purge has removed, of whatever flow."""
    return bool(names_in(root / _FOLDER))


class Trash:
    """What resets of a flow, or purges of its dead letters, have removed. All that changes something wants the leases of the flow's
    tiers; `drop_expired` wants one of them."""

    def __init__(self, root: Path, flow: str, by: str = RESET) -> None:
        self._root = root
        self._flow = flow
        self._by = by
        self._folder = root / _FOLDER / flow

    def all(self) -> list[Discarded]:
        """The discarded states, newest first."""
        return [each for each in self._every() if each.by == self._by]

    def _every(self) -> list[Discarded]:
        found = [found for name in names_in(self._folder) if (found := self._read(name)) is not None]
        return sorted(found, key=lambda each: (each.at, each.id), reverse=True)

    def find(self, id_: str = "") -> Discarded:
        """The one of that id, or the newest. Raises Refused if there is none."""
        # killed before anything was removed: there is nothing to bring back
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
        """For a remedy, where a reset can be undone: how. Empty if nothing is kept."""
        return f"restore the data that a {self._by} removed: {_UNDO[self._by]}" if self.all() else ""

    def begin(self, owner: str, lost: Iterable[Mapping[str, Any]]) -> Discarded:
        """A new one, or the newest where its command was cut short."""
        lost = tuple(lost)
        newest = next(iter(self.all()), None)
        now = datetime.now(UTC).isoformat(timespec="microseconds")  # two in one second have an order
        if newest is not None and not newest.whole:
            return replace(newest, at=now, lost=(*newest.lost, *(each for each in lost if each not in newest.lost)))
        begun = Discarded(f"{now[:10]}-{uuid4().hex[:6]}", self._flow, now, owner, lost=lost, by=self._by)
        self._write(begun)
        return begun

    def folder_of(self, discarded: Discarded) -> Path:
        """Where its parts of the state lie."""
        return self._folder / discarded.id

    def move(self, discarded: Discarded, place: Path) -> Discarded:
        """Move a file or folder of the state away."""
        # a kill between the record and the rename has left a part that is not there
        again = (kept for part in discarded.parts if self._path(part.place) == place and not (kept := self._path(part.kept)).exists())
        kept = next(again, self.folder_of(discarded) / f"{len(discarded.parts)}" / place.name)
        noted = self.note(discarded, kept, place)
        make_folder(kept.parent)
        place.rename(kept)
        _sync(kept.parent, place.parent)
        faults.reached("trash.moved")
        return noted

    def note(self, discarded: Discarded, kept: Path, place: Path) -> Discarded:
        """Record, before it is done, that what is at `place` is moved to `kept`."""
        part = TrashedPath(self._text(kept), self._text(place))
        if part in discarded.parts:
            return discarded
        noted = replace(discarded, parts=(*discarded.parts, part))
        self._write(noted)
        return noted

    def note_output(self, discarded: Discarded, output: KeptOutput) -> Discarded:
        """Record, before it is done, that what is at a place is moved to the place's own trash."""
        if output in discarded.outputs:
            return discarded
        noted = replace(discarded, outputs=(*discarded.outputs, output))
        self._write(noted)
        return noted

    def keep_letters(self, discarded: Discarded, query: QueryFolder, batch: int, letters: Mapping[int, KeptLetter]) -> Discarded:
        """Copy dead letters of a Batch, by their place in it, before they are purged. Only what `record` has written counts."""
        writer = LineWriter(self.folder_of(discarded), uuid4().hex)
        for place, letter in letters.items():
            writer.append(batch, [place, msgspec.Raw(letter.line), letter.repair])
        segment, lineage = writer.close(), read_lineage(query)
        assert segment is not None, "no dead letters"
        assert lineage is not None, "dead letters of a query that never ran"
        kept = PurgedLetters(self._text(query.path), lineage.id, batch, segment)
        return replace(discarded, letters=(*discarded.letters, kept))

    def letters(self, discarded: Discarded, kept: PurgedLetters) -> dict[int, KeptLetter]:
        """What `keep_letters` has copied. Raises StateError if it is missing, torn or changed."""
        lines = read_lines(self.folder_of(discarded), kept.segment, "purged dead letters")
        decoded = (_LETTER.decode(line) for line in lines)
        return {place: KeptLetter(bytes(line), repair) for place, line, repair in decoded}

    def query_of(self, kept: PurgedLetters) -> QueryFolder:
        """The state that the dead letters came from, also where a rewind has left it. Raises Refused if it is gone."""
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
        """Make it durable: from now on it can be undone."""
        self._write(discarded)

    def complete(self, discarded: Discarded) -> Discarded:
        """Record that the command has finished."""
        whole = replace(discarded, whole=True)
        self._write(whole)
        return whole

    def forget(self, discarded: Discarded) -> None:
        """All of it is back."""
        remove_tree(self.folder_of(discarded))

    def check_back(self, discarded: Discarded) -> list[tuple[Path, Path]]:
        """(where a part is now, where it was) of those that are not back yet. Raises Refused if something is in the place of one by
        now, or where one is missing."""
        parts = [(self._path(part.kept), self._path(part.place)) for part in reversed(discarded.parts)]
        # what an attempt that was killed has moved back already is in its place
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
        """Move every part back to where it was, outputs before the state. Raises, before anything is moved, what `check_back` raises."""
        for kept, place in self.check_back(discarded):
            _move_back(kept, place)
            _remove_empty(kept.parent)
            faults.reached("trash.restored")
        self.forget(discarded)

    def drop_expired(
        self, now: datetime | None = None, drop: Callable[[Discarded], bool] = lambda each: not each.outputs
    ) -> list[Discarded]:
        """Delete for good what is older than `KEPT`, whatever has removed it. `drop` deletes its outputs; False if it cannot now: then
        all of it stays."""
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
    """Raise Refused if something is in the place of a file."""
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
    """A folder that is there is filled; else it is renamed as a whole."""
    if kept.is_dir() and place.is_dir():
        # what says whose the files are goes last: killed before, no run takes them up
        for name in sorted(names_in(kept), key=lambda name: (name.startswith("_"), name)):
            to = place / name_before(name)
            if (kept / name).is_dir() and not name.startswith("_"):
                make_folder(to)  # its files have other names here
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

"""Purging dead letters: they are deleted, stay counted in the ledger, and are kept in the trash for a week."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.core import faults
from scribengin.core.errors import Refused
from scribengin.local.letters import LetterStates
from scribengin.state.dead import dated_letters, read_expired
from scribengin.state.purged import purge_places, read_places, read_purged, restore_places
from scribengin.state.repairs import drop_repair, put_repair, repair_body
from scribengin.state.trash import KeptLetter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.local.letters import Which
    from scribengin.state.contract import LineSegment
    from scribengin.state.folder import QueryFolder
    from scribengin.state.trash import Discarded, Trash


@dataclass
class Doomed:
    """Selected dead letters: by Query; how many of them were not replayed; and where they are."""

    count: int = 0
    unreplayed: int = 0
    by_query: Counter[str] = field(default_factory=Counter)
    places: dict[tuple[QueryFolder, int], tuple[tuple[LineSegment, ...], set[int]]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {"purged": self.count, "unreplayed": self.unreplayed, "queries": dict(self.by_query)}


def find_doomed(queries: Sequence[QueryFolder], which: Which, *, replayed: bool) -> Doomed:
    """The dead letters that are meant; with `replayed` those whose replay has come through."""
    found = Doomed()
    for query in queries:
        states = LetterStates(query)
        for batch, place, letter in dated_letters(query, wanted=which.fits_batch):
            key = (batch.batch, place)
            done = states.came_through(key)
            if which.fits(letter) and which.fits_key(query.name, key) and (done or not replayed):
                found.count += 1
                found.unreplayed += not done
                found.by_query[query.name] += 1
                found.places.setdefault((query, batch.batch), (batch.segments, set()))[1].add(place)
    return found


def purge(doomed: Doomed, trash: Trash) -> Discarded | None:
    """Under the leases: delete dead letters, after a copy to the trash; None if there are none. What was asked to be replayed and waits
    comes through all the same. May be killed at any point and done again: each dead letter is either there, or in the trash."""
    trash.drop_expired()
    if not doomed.count:
        return None
    discarded = trash.begin("", [{"query": query, "dead_letters": count} for query, count in doomed.by_query.items()])
    for kept in discarded.letters:  # of a purge that was cut short behind its letters, before their repairs
        with suppress(Refused):  # its Query has begun anew
            query = trash.query_of(kept)
            mark = read_purged(query, kept.batch)
            for place in () if mark is None else trash.letters(discarded, kept).keys() - set(mark.places):
                drop_repair(query, (kept.batch, place))
    for (query, batch), (segments, places) in doomed.places.items():
        lines = read_places(query, batch, segments)
        copies = {place: KeptLetter(lines[place], repair_body(query, (batch, place))) for place in sorted(places)}
        discarded = trash.keep_letters(discarded, query, batch, copies)
    trash.record(discarded)
    faults.reached("purge.kept")
    for (query, batch), (segments, places) in doomed.places.items():
        purge_places(query, batch, segments, places)
        for place in places:
            drop_repair(query, (batch, place))
    return trash.complete(discarded)


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo has brought back: dead letters by Query. `expired` dead letters have outlived `retain` meanwhile, and stay away."""

    discarded: Discarded
    by_query: Mapping[str, int]
    expired: int

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        count = sum(self.by_query.values())
        return {"id": self.discarded.id, "restored": count, "expired": self.expired, "queries": dict(self.by_query)}


def undo_purge(trash: Trash, id_: str = "") -> Undone:
    """Under the leases: bring back what the newest purge has deleted, or the one of that id. May be killed at any point and done again.

    Raises Refused if there is none, and if the Query has begun anew since.
    """
    found = trash.find(id_)
    back: set[tuple[str, int, int]] = set()
    late: set[tuple[str, int, int]] = set()
    # each Query is looked for before anything is written
    for query, kept in [(trash.query_of(each), each) for each in found.letters]:
        letters = trash.letters(found, kept)
        expired = kept.batch <= read_expired(query).through
        (late if expired else back).update((kept.name, kept.batch, place) for place in letters)
        if expired:
            continue
        for place, letter in letters.items():
            if letter.repair is not None:
                put_repair(query, (kept.batch, place), letter.repair)
        restore_places(query, kept.batch, {place: letter.line for place, letter in letters.items()})
        faults.reached("purge.undone")
    trash.forget(found)
    return Undone(found, Counter(name for name, _, _ in back), len(late))

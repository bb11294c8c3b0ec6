"""Purging dead letters: deleted where they died, counted in the ledger for ever."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.local.letters import LetterStates
from scribengin.state.dead import dated_letters
from scribengin.state.purged import purge_places
from scribengin.state.repairs import drop_repair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.local.letters import Which
    from scribengin.state.contract import LineSegment
    from scribengin.state.folder import QueryFolder


@dataclass
class Doomed:
    """Letters that are meant: by Query; how many of them nobody has replayed; and where they are."""

    count: int = 0
    unreplayed: int = 0
    by_query: Counter[str] = field(default_factory=Counter)
    places: dict[tuple[QueryFolder, int], tuple[tuple[LineSegment, ...], set[int]]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """One object."""
        return {"letters": self.count, "unreplayed": self.unreplayed, "queries": dict(self.by_query)}


def find_doomed(queries: Sequence[QueryFolder], which: Which, *, replayed: bool) -> Doomed:
    """The letters that are meant; with `replayed` those whose replay has come through."""
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


def purge(doomed: Doomed) -> int:
    """Under the leases: delete them; how many there were. What was asked to be replayed and waits comes through all the same."""
    gone = 0
    for (query, batch), (segments, places) in doomed.places.items():
        gone += purge_places(query, batch, segments, places)
        for place in places:
            drop_repair(query, (batch, place))
    return gone

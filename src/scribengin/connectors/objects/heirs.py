"""Folders by time from one lineage to the next: what is open there, and that nobody closes it any more but the heir.

Markers are one lineage's at a time, the last that has claimed the place. The one before ends with a turn that says so: a roller that looked
before that turn comes too late with its own. As over folders, see `files/roll_heir`; what is open stands in the heir's `closing.json`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.connectors.objects.closing import Closing, OpenFolders, check_folders
from scribengin.connectors.objects.manifests import lineages
from scribengin.connectors.objects.roller import CompactionOptions, ObjectCompactor
from scribengin.connectors.objects.turns import CompactionLog, ObjectFrontier
from scribengin.core import faults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.files.roll_state import Open
    from scribengin.connectors.files.time_path import TimePath
    from scribengin.core.store import Store


def begin(store: Store, lineage: str, by: TimePath, *, closes: bool, sink: str, where: str) -> bool:
    """Before a lineage stages anything, and once it has claimed the place: end those before it, and write how it closes its folders. May be
    killed at any point and done again.

    Args:
        store: The place.
        lineage: That of the sink.
        by: How its folders go by time.
        closes: Whether it is to close them.
        sink: Its id, for messages.
        where: What the place is called, for messages.

    Returns:
        Whether markers of earlier lineages may stand there.

    Raises:
        Refused: Folders would go by time otherwise than those that this lineage has closed.
        StateError: What stands there is damaged.
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
    """Put the turn by which a lineage ends, unless it stands there; what it has left open."""
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
        open_.look()
        open_.after(frontier, (), ())
        frontier.ended = True
        turns.log.put(number + 1, {"outputs": [], "closed": [], "frontier": frontier.as_json(), "at_s": time.time()})

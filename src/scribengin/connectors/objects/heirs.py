"""Folders by time from one lineage to the next: which are open, and that only the successor closes them from now on.

Only one lineage at a time writes completion markers, the last that claimed the place. The lineage before ends with a compaction run that
records this: a compactor that read the state before that run is rejected. As for folders, see `files/roll_heir`; open contents are stored
in the successor's `closing.json`.
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
    """Called before a lineage stages anything, and after it has claimed the place: end the lineages before it, and store how it closes its
    folders. May be interrupted at any point and repeated.

    Args:
        store: The place.
        lineage: That of the sink.
        by: The time settings of its folders.
        closes: Whether it closes them.
        sink: Its id, for messages.
        where: The name of the place, for messages.

    Returns:
        Whether there may be completion markers of earlier lineages.

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

"""Folders by time from one lineage to the next: which are open, and that only the successor closes them from now on.

Only one lineage at a time writes completion markers, the last that claimed the folder. The lineage before ends with a compaction run that
records this: a compactor that read the state before that run is rejected. The open folders of the old lineage are in that run, and the
successor's first run begins with them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.connectors.files.closing import counts
from scribengin.connectors.files.keeping import RetentionSettings
from scribengin.connectors.files.roll_seen import read_unmerged
from scribengin.connectors.files.roll_state import FileFrontier, newest_turn
from scribengin.connectors.files.roller import FileCompactor, hidden_in
from scribengin.connectors.files.sink_folders import lineages_in
from scribengin.core import faults
from scribengin.core.errors import EnvironmentFault, StateError

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.files.sink_folders import LineageFolder


def begin(top: Path, lineage: LineageFolder, keeping: RetentionSettings, before: LineageFolder | None) -> None:
    """Called before a lineage stages anything: `keeping` is in force from now on, and `before`, the lineage that wrote there last, is
    ended. Every completion marker that was about to be written exists afterwards. May be interrupted at any point and repeated."""
    inherits = before is not None and (RetentionSettings.read(before) is not None or counts(keeping))
    if before is not None and inherits:
        open_ = _end(top, before, keeping).open
        if newest_turn(lineage)[1] is None:
            lineage.merges.put(0, FileFrontier(open=open_).as_turn())
    if keeping.write(lineage, always=inherits):
        faults.reached("keeping.written")
        _fence(top, lineage, keeping)
        keeping.note_fenced(lineage)


def _end(top: Path, lineage: LineageFolder, heirs: RetentionSettings) -> FileFrontier:
    """Record the compaction run that ends a lineage, unless it exists; returns its result."""
    roller = FileCompactor(top, lineage)
    if not FileFrontier.of(newest_turn(lineage)[1]).ended:
        roller.busy = hidden_in(top, (each for each in lineages_in(top) if each != lineage))
        with suppress(EnvironmentFault, StateError):  # segments that cannot be merged now wait; the maintenance owner reports the reason
            roller.run(flush=True)
    while True:
        number, turn = newest_turn(lineage)
        frontier = FileFrontier.of(turn)
        if turn is not None:
            roller.settle(number, turn, heirs)
        if frontier.ended:
            return frontier
        seen = read_unmerged(top, lineage, frontier, heirs)
        scanned = max(frontier.scanned, seen.newest) if counts(heirs) else frontier.scanned
        roller.put_turn(number + 1, replace(frontier, open=seen.open, scanned=scanned, ended=True).as_turn())


def _fence(top: Path, lineage: LineageFolder, keeping: RetentionSettings) -> None:
    """Make compactors that have read another `keeping` outdated."""
    roller = FileCompactor(top, lineage)
    while True:
        number, turn = newest_turn(lineage)
        if turn is not None:
            roller.settle(number, turn, keeping)
        record = FileFrontier.of(turn).as_turn()
        if roller.put_turn(number + 1, record) is record:
            return

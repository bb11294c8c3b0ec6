"""Folders by time from one lineage to the next: what is open there, and that nobody closes it any more but the heir.

Markers are one lineage's at a time, the last that has claimed the folder. The one before ends with a turn that says so: a roller that
looked before that turn comes too late with its own. What it had open stands in that turn, and the heir's first turn begins with it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.connectors.files.closing import counts
from scribengin.connectors.files.keeping import RetentionSettings
from scribengin.connectors.files.roll_seen import look
from scribengin.connectors.files.roll_state import FileFrontier, newest_turn
from scribengin.connectors.files.roller import FileCompactor, hidden_in
from scribengin.connectors.files.sink_folders import lineages_in
from scribengin.core import faults
from scribengin.core.errors import EnvironmentFault, StateError

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.files.sink_folders import LineageFolder


def begin(top: Path, lineage: LineageFolder, keeping: RetentionSettings, before: LineageFolder | None) -> None:
    """Before a lineage stages anything: `keeping` holds of it from now on, and `before`, the lineage that wrote there last, is ended. Every
    marker that anyone was about to write stands there then. May be killed at any point and done again."""
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
    """Put the turn by which a lineage ends, unless it stands there; what comes of it."""
    roller = FileCompactor(top, lineage)
    if not FileFrontier.of(newest_turn(lineage)[1]).ended:
        roller.busy = hidden_in(top, (each for each in lineages_in(top) if each != lineage))
        with suppress(EnvironmentFault, StateError):  # what cannot be shown now waits; whoever keeps the folder tells why
            roller.run(flush=True)
    while True:
        number, turn = newest_turn(lineage)
        frontier = FileFrontier.of(turn)
        if turn is not None:
            roller.settle(number, turn, heirs)
        if frontier.ended:
            return frontier
        seen = look(top, lineage, frontier, heirs)
        scanned = max(frontier.scanned, seen.newest) if counts(heirs) else frontier.scanned
        roller.put_turn(number + 1, replace(frontier, open=seen.open, scanned=scanned, ended=True).as_turn())


def _fence(top: Path, lineage: LineageFolder, keeping: RetentionSettings) -> None:
    """Let rollers that have read another `keeping` be late."""
    roller = FileCompactor(top, lineage)
    while True:
        number, turn = newest_turn(lineage)
        if turn is not None:
            roller.settle(number, turn, keeping)
        record = FileFrontier.of(turn).as_turn()
        if roller.put_turn(number + 1, record) is record:
            return

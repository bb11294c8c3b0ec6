"""Named crash points: places where a test can make this process die, sleep or fail, to check that a guarantee holds.

Armed by the environment (`SCRIBENGIN_FAULT=point[@nth]:act`, several with commas), so that children inherit them; unarmed
they cost one test of a module constant. Acts: `kill` (SIGKILL to the own process group), `die` (SIGKILL to this process only),
`sleep=SECONDS`, `wait=PATH` (makes `PATH.waiting`, waits until PATH exists), `enospc` (raise "no space left on device"). `@nth`
counts passes per process, from 1. With `once=FOLDER` among them each point strikes once among all processes that inherit it (a task
that is tried again comes through), and leaves a file of its name in FOLDER, by which others see that it was reached.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from itertools import chain
from pathlib import Path

POINTS = (
    "lease.taken",
    "batch.entry",
    "stage.before",
    "stage.mid_write",
    "stage.closed",
    "stage.after",
    "decide.before",
    "decide.after",
    "publish.before",
    "publish.record.before",
    "publish.record.after",
    "publish.renamed",
    "publish.after",
    "commit.before",
    "recovery.before",
    "recovery.mid",
    "recovery.after",
    "fold.before",
    "fold.written",
    "fold.after",
    "source.logged",
)
"""Every point that each sink has, in the order in which a Batch passes them."""

TRANSACTION_POINTS = (
    "fence.before",
    "fence.after",
    "marker.read",
    "transaction.sent",
    "transaction.commit.before",
    "transaction.commit.after",
)
"""Additional points of a sink that commits by transactions."""

OFFER_POINTS = ("offer.sent", "settle.offered", "settle.before", "settle.after")
"""Those of a sink whose place says behind the decision which rows it refuses, beside the others: after each request, and around the
record of what was refused."""

MOVE_POINTS = (
    "move.recovered",
    "move.noted",
    "move.planned",
    "move.lifted",
    "move.left",
    "move.copied",
    "move.begun",
    "move.carried",
    "move.adopted",
    "move.marked",
    "move.written",
)
"""Points of a state migration between tiers, in their order; those of single Queries once for each."""

OUTBOX_POINTS = ("outbox.keep.before", "outbox.keep.after", "outbox.drained", "outbox.dropped")
"""Points of an edge that does not hold back its upstream, while the channel is unavailable and when it is back."""

UPKEEP_POINTS = ("upkeep.orphan",)
"""Points of the maintenance of a folder, before it checks its lease."""

ROLL_POINTS = (
    "roll.draft.writing",
    "roll.drafts.written",
    "roll.record.before",
    "roll.record.after",
    "roll.reopened",
    "roll.renamed",
    "roll.marked",
    "roll.deleted",
)
"""Those of the roller, in their order; where folders by time are closed the record and its marker have a turn of their own."""

KEEPING_POINTS = ("keeping.written",)
"""Those of a start that finds other options for the folder than the run before, between what is said there and the turn behind it."""

LETTER_POINTS = ("replay.asked.before", "replay.asked.after", "purge.kept", "purge.before", "purge.after", "purge.undone")
"""Points of commands that handle dead letters, in the process of the command."""

TRASH_POINTS = ("trash.moved", "trash.restored")
"""Points of `reset` and `reset --undo`."""

ELSEWHERE_POINTS = ("lease.drafts", "lease.numbered", "state.drafted", "state.renamed")
"""Those of a state that does not lie on a disk: while the lease is taken, and around the step that makes a record of a draft."""

BUCKET_POINTS = ("state.moving", "state.carried")
"""Those of a state in a bucket: a folder is moved, its objects are copied and not yet deleted."""

VARIABLE = "SCRIBENGIN_FAULT"


_BESIDE = (
    TRANSACTION_POINTS,
    OFFER_POINTS,
    MOVE_POINTS,
    OUTBOX_POINTS,
    UPKEEP_POINTS,
    ROLL_POINTS,
    KEEPING_POINTS,
    LETTER_POINTS,
    TRASH_POINTS,
    ELSEWHERE_POINTS,
    BUCKET_POINTS,
)
_ALL = tuple(chain(POINTS, *_BESIDE))
_ONCE = "once="


def _parse(text: str) -> dict[str, tuple[int, str]]:
    armed: dict[str, tuple[int, str]] = {}
    for part in filter(None, text.split(",")):
        if part.startswith(_ONCE):
            continue
        where, _, act = part.partition(":")
        point, _, nth = where.partition("@")
        if point not in _ALL or not act:
            known = ", ".join(_ALL)
            raise ValueError(f"{VARIABLE}: {part!r} is not point[@nth]:act with a point of {known}")
        armed[point] = (int(nth or 1), act)
    return armed


def _parse_once(text: str) -> Path | None:
    folders = [Path(part.removeprefix(_ONCE)) for part in text.split(",") if part.startswith(_ONCE)]
    return folders[0] if folders else None


_armed = _parse(os.environ.get(VARIABLE, ""))
_once = _parse_once(os.environ.get(VARIABLE, ""))
_passed: dict[str, int] = {}


def arm(text: str) -> None:
    """Arm this process as `SCRIBENGIN_FAULT=text` does at its start, and count passes anew (tests that fork). Empty disarms."""
    global _armed, _once
    _armed, _once = _parse(text), _parse_once(text)
    _passed.clear()


def reached(point: str) -> None:
    """Mark a crash point in the code. Returns at once unless `point` is armed for this pass."""
    if not _armed or point not in _armed:
        return
    _passed[point] = _passed.get(point, 0) + 1
    nth, act = _armed[point]
    if _passed[point] == nth and _is_first(point):
        _strike(act)


def _is_first(point: str) -> bool:
    """False if the fault has already happened in another process with the same `once=FOLDER`."""
    if _once is None:
        return True
    try:
        with (_once / point).open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _strike(act: str) -> None:
    name, _, value = act.partition("=")
    match name:
        case "kill":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sleep":
            time.sleep(float(value))
        case "wait":
            Path(f"{value}.waiting").touch()
            while not Path(value).exists():
                time.sleep(0.01)
        case "enospc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case _:
            raise ValueError(f"{VARIABLE}: unknown act {act!r}")

"""Named crash points: places where a test can make this process die, sleep or fail, to check that a guarantee holds.

They are armed by the environment (`SCRIBENGIN_FAULT=point[@nth]:act`, several separated by commas), so that child processes inherit them;
unarmed they cost one test of a module constant. Acts: `kill` (SIGKILL to the own process group), `die` (SIGKILL to this process only),
`sleep=SECONDS`, `wait=PATH` (creates `PATH.waiting`, waits until PATH exists), `enospc` (raises "no space left on device"). `@nth` counts
passes per process, from 1. With `once=FOLDER` in the list, each point strikes once among all processes that inherit it, so that a repeated
task succeeds, and leaves a file of its name in FOLDER, which shows other processes that it was reached.
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
"""The points that every sink has, in the order in which a Batch passes them."""

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
"""Additional points of a sink whose target reports after the decision which rows it rejects: after each request, and around the record of
the rejected rows."""

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
"""Points of a state migration between tiers, in their order; those of single queries are passed once for each."""

OUTBOX_POINTS = ("outbox.keep.before", "outbox.keep.after", "outbox.drained", "outbox.dropped")
"""Points of an edge that does not throttle its upstream, while the channel is unavailable and when it is available again."""

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
"""Points of the compactor, in their order. If folders by time are closed, the record and its completion marker are passed in a compaction
run of their own."""

KEEPING_POINTS = ("keeping.written",)
"""Points of a start that finds other options for the folder than the run before: after these are recorded, before the compaction run that
follows."""

LETTER_POINTS = ("replay.asked.before", "replay.asked.after", "purge.kept", "purge.before", "purge.after", "purge.undone")
"""Points of commands that handle dead letters, in the process of the command."""

TRASH_POINTS = ("trash.moved", "trash.restored")
"""Points of `reset` and `reset --undo`."""

ELSEWHERE_POINTS = ("lease.drafts", "lease.numbered", "state.drafted", "state.renamed")
"""Points of a state that is not on a disk: while the lease is taken, and around the step that turns a draft into a record."""

BUCKET_POINTS = ("state.moving", "state.carried")
"""Points of a state in a bucket, while a folder is moved: its objects are copied and not yet deleted."""

WAL_POINTS = (
    "wal.append.before",
    "wal.append.after",
    "wal.sync.before",
    "wal.sync.after",
    "wal.mark.after",
    "wal.checkpoint.before",
    "wal.checkpoint.after",
)
"""Points of an agent's write-ahead log: around a write, around the sync of its segments, after the mark that counts them as durable, and
around the checkpoint that frees segments."""

AGENT_POINTS = ("agent.post.before", "agent.post.after")
"""Points of an agent around a request that sends frames: before it is sent, and when its answer is there but not yet used."""

GATEWAY_POINTS = ("gateway.written", "gateway.indexed")
"""Points of a gateway: after frames are written to the channel, and after their index entry is written."""

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
    WAL_POINTS,
    AGENT_POINTS,
    GATEWAY_POINTS,
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
    """Arm this process as `SCRIBENGIN_FAULT=text` does at its start, and reset the counts of passes (for tests that fork). An empty text
    disarms it."""
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

"""Dead letters: JSON lines in `dead/<batch>/<attempt>.jsonl`. A segment counts only when a decision names it."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from scribengin.core import faults
from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, put_if_absent, read_or_none, remove_tree, replace
from scribengin.core.time_text import now_text
from scribengin.state.contract import DeadLetter, LineSegment
from scribengin.state.decisions import BatchDeadLetters, Decisions, moment
from scribengin.state.segments import LineWriter, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from scribengin.state.folder import QueryFolder
    from scribengin.state.replays import Key


# Purged dead letters: the remaining dead letters of a Batch are in new segments, which a purge record names.
#
# dead/0000000012/<attempt>.jsonl    the segments that the Batch's decision names, until there is a purge record
# dead/0000000012.purged             the purge record: how many are deleted, and where the others are now, each with its old place
#
# Purged dead letters are copied to the trash before; `restore_places` writes them back.


_SUFFIX, _PURGED_KIND = ".purged", "purged-letters"
_WHAT = "dead letters"


@dataclass(frozen=True, slots=True)
class Purged:
    """The purge record of a Batch: `gone` of its dead letters are deleted. `segments` hold the others, and `places` are their places in the
    Batch."""

    gone: int
    places: tuple[int, ...] = ()
    segments: tuple[LineSegment, ...] = ()


def read_purged(query: QueryFolder, batch: int) -> Purged | None:
    """The purge record of a Batch's dead letters; None if none was purged."""
    path = query.dead / f"{batch:010d}{_SUFFIX}"
    data = read_or_none(path)
    if data is None:
        return None
    body = unseal(data, _PURGED_KIND, 1, path)
    return Purged(body["gone"], tuple(body["places"]), tuple(LineSegment(**each) for each in body["segments"]))


def count_purged(query: QueryFolder, expired: Expired, last: int) -> int:
    """The number of purged dead letters of the Batches up to `last`. Batches that `expired` covers are left out: it has counted all their
    dead letters."""
    numbers = [int(name[:10]) for name in names_in(query.dead) if name.endswith(_SUFFIX)]
    return sum(mark.gone for number in numbers if expired.through < number <= last and (mark := read_purged(query, number)) is not None)


def drop_marks(query: QueryFolder, through: int) -> None:
    """Delete the purge records of the Batches up to `through`, which have lost all their dead letters."""
    for name in names_in(query.dead):
        if name.endswith(_SUFFIX) and int(name[:10]) <= through:
            (query.dead / name).unlink(missing_ok=True)


def read_places(query: QueryFolder, batch: int, segments: Sequence[LineSegment]) -> dict[int, bytes]:
    """Place in the Batch → line, of the dead letters that are not purged. Raises StateError if a segment is missing, torn or changed.

    Args:
        query: The folder of the query's state.
        batch: The number of a decided Batch.
        segments: The segments that the Batch's decision names.
    """
    mark = read_purged(query, batch)
    lines = [line for segment in (segments if mark is None else mark.segments) for line in read_lines(query.dead, segment, _WHAT)]
    return dict(zip(range(len(lines)) if mark is None else mark.places, lines, strict=True))


def purge_places(query: QueryFolder, batch: int, segments: Sequence[LineSegment], places: Collection[int]) -> int:
    """Delete dead letters of a decided Batch. The caller holds the lease.

    Idempotent: it may be interrupted at any point and repeated, because the purge record is written when the remaining dead letters are
    durable.

    Args:
        query: The folder of the query's state.
        batch: The number of the Batch.
        segments: The segments that its decision names.
        places: The places, in the Batch, of the dead letters to delete.

    Returns:
        The number of dead letters that this call has deleted.
    """
    before = read_purged(query, batch)
    lines = read_places(query, batch, segments)
    kept = {place: line for place, line in lines.items() if place not in places}
    gone = len(lines) - len(kept)
    if gone:
        _mark(query, batch, kept, gone + (0 if before is None else before.gone))
    _drop_unnamed(query, batch, (*segments, *(() if before is None else before.segments)))
    return gone


def restore_places(query: QueryFolder, batch: int, lines: Mapping[int, bytes]) -> int:
    """Write purged dead letters back to their places. The caller holds the lease. Idempotent: it may be interrupted at any point and
    repeated.

    Args:
        query: The folder of the query's state.
        batch: The number of the Batch.
        lines: Place in the Batch → line.

    Returns:
        The number of dead letters that had been missing.
    """
    before = read_purged(query, batch)
    if before is None:
        return 0  # interrupted before anything of this Batch was purged, or `retain` has deleted its dead letters since
    there = read_places(query, batch, ())
    whole = dict(sorted({**lines, **there}.items()))
    back = len(whole) - len(there)
    if back:
        _mark(query, batch, whole, before.gone - back)
    _drop_unnamed(query, batch, before.segments)
    return back


def _mark(query: QueryFolder, batch: int, lines: Mapping[int, bytes], gone: int) -> None:
    """Write the remaining dead letters of a Batch to new segments, then the purge record that names them."""
    writer = LineWriter(query.dead, f"purged-{uuid4().hex}")
    for line in lines.values():
        writer.append(batch, msgspec.Raw(line))
    segment = writer.close()
    body = {"gone": gone, "places": list(lines), "segments": [] if segment is None else [asdict(segment)]}
    faults.reached("purge.before")
    replace(query.dead / f"{batch:010d}{_SUFFIX}", seal(_PURGED_KIND, 1, body))
    faults.reached("purge.after")


def _drop_unnamed(query: QueryFolder, batch: int, segments: Iterable[LineSegment]) -> None:
    """Delete those segments that the purge record does not name."""
    mark = read_purged(query, batch)
    if mark is None:
        return
    named = {segment.name for segment in mark.segments}
    for segment in segments:
        if segment.name not in named:
            (query.dead / segment.name).unlink(missing_ok=True)


# Repairs of dead letters, until they are replayed: a file for each dead letter; the newest repair counts.
#
# dead/repairs/0000000012-3.json    of dead letter 3 of Batch 12


_FOLDER, _REPAIR_KIND = "repairs", "letter-repair"


@dataclass(frozen=True, slots=True)
class Repair:
    """The repair of a dead letter: either the record as its source is to read it, or the row as it is to reach the step; the
    other is None."""

    payload: bytes | None = None
    came: str | None = None


def write_repair(query: QueryFolder, key: Key, repair: Repair) -> None:
    """Store the repair durably. It replaces an earlier one."""
    payload = None if repair.payload is None else base64.b64encode(repair.payload).decode()
    put_repair(query, key, {"payload": payload, "came": repair.came, "repaired_at": now_text()})


def put_repair(query: QueryFolder, key: Key, body: Mapping[str, Any]) -> None:
    """Store durably what `repair_body` has returned."""
    replace(_path(query, key), seal(_REPAIR_KIND, 1, body))


def repair_body(query: QueryFolder, key: Key) -> dict[str, Any] | None:
    """The body of the stored repair of a dead letter; None if it was not repaired."""
    data = read_or_none(_path(query, key))
    return None if data is None else dict(unseal(data, _REPAIR_KIND, 1, _path(query, key)))


def read_repair(query: QueryFolder, key: Key) -> Repair | None:
    """The repair of a dead letter; None if it was not repaired."""
    body = repair_body(query, key)
    if body is None:
        return None
    return Repair(None if body["payload"] is None else base64.b64decode(body["payload"]), body["came"])


def repaired_keys(query: QueryFolder) -> set[Key]:
    """The keys of the repaired dead letters."""
    stems = (name.removesuffix(".json").split("-") for name in names_in(query.dead / _FOLDER))
    return {(int(batch), int(place)) for batch, place in stems}


def drop_repair(query: QueryFolder, key: Key) -> None:
    """Delete the repair: the dead letter is deleted, or is being replayed."""
    _path(query, key).unlink(missing_ok=True)


def drop_repairs(query: QueryFolder, through: int) -> None:
    """Delete the repairs of the Batches up to `through`, which have lost all their dead letters. The caller holds the lease."""
    for key in repaired_keys(query):
        if key[0] <= through:
            drop_repair(query, key)


def _path(query: QueryFolder, key: Key) -> Path:
    return query.dead / _FOLDER / f"{key[0]:010d}-{key[1]}.json"


_MARK = "purged"
_EXPIRED = ".expired"
_OFTEN_EMPTY = ("came", "form", "alone", "way", "extra", "replays", "replay_of", "repaired")
"""fields that are empty in most dead letters, and are then left out of the line"""
_FIELDS = tuple(field.name for field in fields(DeadLetter))


class DeadWriter(LineWriter):
    """Writes the dead letters of one attempt, all of one Batch, on an executor. Creates no file before the first dead letter."""

    def write(self, letter: DeadLetter) -> None:
        """Append a dead letter, which is durable after `close`. Raises OSError."""
        self.append(letter.batch, letter_as_json(letter))


def read_letters(query: QueryFolder, *, start: int = 0, limit: int | None = None) -> Iterator[DeadLetter]:
    """The dead letters of all decided Batches, in order. Raises StateError for a torn segment.

    Args:
        query: The folder of the query's state.
        start: The number of dead letters to skip.
        limit: The greatest number of dead letters to return; None for all.
    """
    letters = _letters(query, start)
    return islice(letters, limit) if limit is not None else letters


def _letters(query: QueryFolder, start: int) -> Iterator[DeadLetter]:
    skip = start
    for batch in Decisions(query.decisions).letters(read_expired(query).through + 1):
        rows = sum(segment.rows for segment in present_segments(query, batch))
        if skip >= rows:
            skip -= rows
            continue
        yield from islice((letter for _, letter in _placed(query, batch)), skip, None)
        skip = 0


def letters_from(query: QueryFolder, batch: int = 0, place: int = 0) -> Iterator[tuple[int, int, DeadLetter]]:
    """The dead letters of all decided Batches from a given one on, in order. Those that `retain` has deleted are left out.

    Args:
        query: The folder of the query's state.
        batch: The number of the first Batch.
        place: The place of the first dead letter in that Batch.

    Yields:
        The number of the Batch, the place in it, and the dead letter.

    Raises:
        StateError: A segment is torn.
    """
    for letters, number, letter in dated_letters(query, batch):
        if letters.batch != batch or number >= place:
            yield letters.batch, number, letter


def dated_letters(
    query: QueryFolder, batch: int = 0, wanted: Callable[[BatchDeadLetters], bool] = lambda _: True
) -> Iterator[tuple[BatchDeadLetters, int, DeadLetter]]:
    """The dead letters of all decided Batches from number `batch` on, in order.

    Args:
        query: The folder of the query's state.
        batch: The number of the first Batch.
        wanted: Returns False for a Batch whose dead letters are not to be read.

    Yields:
        The dead letters of the Batch as its decision names them, the place in the Batch, and the dead letter.
    """
    for letters in Decisions(query.decisions).letters(max(batch, read_expired(query).through + 1)):
        if wanted(letters):
            for number, letter in _placed(query, letters):
                yield letters, number, letter


def _placed(query: QueryFolder, letters: BatchDeadLetters) -> Iterator[tuple[int, DeadLetter]]:
    """Yields the place in the Batch and the dead letter, for those dead letters of a Batch that are not purged."""
    mark = read_purged(query, letters.batch)
    read = (letter for segment in present_segments(query, letters) for letter in read_segment(query, segment))
    yield from enumerate(read) if mark is None else zip(mark.places, read, strict=True)


def present_segments(query: QueryFolder, letters: BatchDeadLetters) -> tuple[LineSegment, ...]:
    """The segments that hold a Batch's dead letters now: those that its decision names, or the remaining ones if some were purged."""
    mark = read_purged(query, letters.batch)
    return letters.segments if mark is None else mark.segments


def read_segment(query: QueryFolder, segment: LineSegment) -> Iterator[DeadLetter]:
    """The dead letters of one segment. Raises StateError if the file is missing, torn or changed."""
    for line in read_lines(query.dead, segment, "dead letters"):
        yield letter_from_json(msgspec.json.decode(line))


@dataclass(frozen=True, slots=True)
class Expired:
    """The dead letters of the Batches up to `through` have outlived `retain`: these `letters` are deleted and counted only in the
    totals. Those that an operator had purged before are among them."""

    through: int = -1
    letters: int = 0


def read_expired(query: QueryFolder) -> Expired:
    """The record of what `retain` has deleted so far."""
    marks = sorted(name for name in names_in(query.dead) if name.endswith(_EXPIRED))
    data = read_or_none(query.dead / marks[-1]) if marks else None
    if data is None:
        return read_expired(query) if marks else Expired()  # a newer record has replaced it
    return Expired(int(marks[-1][:10]), unseal(data, "expired-letters", 1, query.dead / marks[-1])["letters"])


def expire_letters(query: QueryFolder, before: datetime | None, most_bytes: int | None = None) -> int:
    """Delete the dead letters of the oldest Batches. The caller holds the lease.

    Batches expire in order, as long as they were decided before `before`, or all remaining dead letters take more than `most_bytes`. The
    record of it is durable first, so that no dead letter is ever missing without a reason. Idempotent: it may be interrupted at any point
    and repeated.

    Args:
        query: The folder of the query's state.
        before: Decisions before this time expire; None sets no limit of age.
        most_bytes: The most bytes of dead letters to keep; None sets no limit of size.

    Returns:
        The number of dead letters of the Batches that have expired, including those that had been purged.
    """
    decisions = Decisions(query.decisions)
    was = read_expired(query)
    through, letters = was.through, was.letters
    there = list(decisions.letters(was.through + 1))
    sizes = [sum(segment.bytes for segment in present_segments(query, batch)) for batch in there] if most_bytes is not None else []
    left = sum(sizes)
    for index, batch in enumerate(there):
        too_much = most_bytes is not None and left > most_bytes
        if not too_much and (before is None or moment(batch.decided_at) >= before):
            break
        left -= sizes[index] if sizes else 0
        through, letters = batch.batch, letters + sum(segment.rows for segment in batch.segments)
    if through > was.through:
        put_if_absent(query.dead / f"{through:010d}{_EXPIRED}", seal("expired-letters", 1, {"letters": letters}))
    for name in names_in(query.dead):
        if name.isdigit() and int(name) <= through:
            remove_tree(query.dead / name)
        elif name.endswith(_EXPIRED) and int(name[:10]) < through:
            (query.dead / name).unlink(missing_ok=True)
    drop_marks(query, through)
    drop_repairs(query, through)
    decisions.drop_letters(through)
    return letters - was.letters


def purge_dead(query: QueryFolder) -> int:
    """Delete segments of decided Batches that neither a decision nor a purge record names; returns how many. The caller holds the lease.

    Segments of an undecided Batch are kept: a driver that was suspended may still decide it.
    """
    decisions = Decisions(query.decisions)
    newest = decisions.newest()
    if newest is None:
        return 0
    # before a Batch is pruned, its segments are purged (see `Retention`)
    mark = max(int(read_or_none(query.dead / _MARK) or b"-1"), decisions.pruned_mark())
    purged = 0
    for name in sorted(name for name in names_in(query.dead) if name.isdigit() and mark < int(name) <= newest.batch.number):
        decision = decisions.read(int(name))
        left = read_purged(query, int(name))
        named = left.segments if left is not None else decision.dead if decision is not None else ()
        kept = {segment.name for segment in named}
        orphans = [file for file in names_in(query.dead / name) if f"{name}/{file}" not in kept]
        for file in orphans:
            (query.dead / name / file).unlink(missing_ok=True)
        purged += len(orphans)
        if not kept:
            remove_tree(query.dead / name)
    if query.dead.is_dir():
        replace(query.dead / _MARK, str(newest.batch.number).encode())
    return purged


def letter_as_json(letter: DeadLetter) -> dict[str, Any]:
    """The line of a dead letter as JSON: `payload` is text, or `payload_base64` if the bytes are not valid UTF-8."""
    data: dict[str, Any] = {name: getattr(letter, name) for name in _FIELDS}
    payload = data.pop("payload")
    for name in _OFTEN_EMPTY:
        if not data[name]:
            del data[name]
    try:
        return data | {"payload": payload.decode()}
    except UnicodeDecodeError:
        return data | {"payload_base64": base64.b64encode(payload).decode()}


def letter_from_json(data: dict[str, Any]) -> DeadLetter:
    """The dead letter that `letter_as_json` wrote. Removes the payload from `data`."""
    encoded = data.pop("payload_base64", None)
    text = data.pop("payload", None)  # an answer of a master has null in it if there is `payload_base64`
    payload = base64.b64decode(encoded) if encoded is not None else text.encode()
    return DeadLetter(**data | {"trail": tuple(data.get("trail", ()))}, payload=payload)

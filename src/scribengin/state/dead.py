"""Dead letters: JSON lines in `dead/<batch>/<attempt>.jsonl`. A segment counts only when a decision names it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, put_if_absent, read_or_none, remove_tree, replace
from scribengin.state.contract import DeadLetter
from scribengin.state.decisions import BatchDeadLetters, Decisions, moment
from scribengin.state.purged import drop_marks, read_purged
from scribengin.state.repairs import drop_repairs
from scribengin.state.segments import LineWriter, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from scribengin.state.contract import LineSegment
    from scribengin.state.folder import QueryFolder

_MARK = "purged"
_EXPIRED = ".expired"
_SELDOM = ("came", "form", "alone", "way", "extra", "replays", "replay_of", "repaired")
"""fields that say nothing in most letters, and are left out then"""
_FIELDS = tuple(field.name for field in fields(DeadLetter))


class DeadWriter(LineWriter):
    """The letters of one attempt, all of one Batch. Executor side; no file is made before the first letter."""

    def write(self, letter: DeadLetter) -> None:
        """Append a letter; durable at `close`. Raises OSError."""
        self.append(letter.batch, letter_as_json(letter))


def read_letters(query: QueryFolder, *, start: int = 0, limit: int | None = None) -> Iterator[DeadLetter]:
    """The letters of all decided Batches in order, from number `start` of them on. Raises StateError for a torn segment."""
    letters = _letters(query, start)
    return islice(letters, limit) if limit is not None else letters


def _letters(query: QueryFolder, start: int) -> Iterator[DeadLetter]:
    skip = start
    for batch in Decisions(query.decisions).letters(read_expired(query).through + 1):
        rows = sum(segment.rows for segment in standing_segments(query, batch))
        if skip >= rows:
            skip -= rows
            continue
        yield from islice((letter for _, letter in _placed(query, batch)), skip, None)
        skip = 0


def letters_from(query: QueryFolder, batch: int = 0, place: int = 0) -> Iterator[tuple[int, int, DeadLetter]]:
    """(Batch, place in it, letter) of all decided ones in order, from that place in that Batch on, or behind what `retain` has taken away.
    Raises StateError for a torn segment."""
    for letters, number, letter in dated_letters(query, batch):
        if letters.batch != batch or number >= place:
            yield letters.batch, number, letter


def dated_letters(
    query: QueryFolder, batch: int = 0, wanted: Callable[[BatchDeadLetters], bool] = lambda _: True
) -> Iterator[tuple[BatchDeadLetters, int, DeadLetter]]:
    """(the Batch's letters as its decision has them, place, letter) from that Batch on; those that are not `wanted` are not read."""
    for letters in Decisions(query.decisions).letters(max(batch, read_expired(query).through + 1)):
        if wanted(letters):
            for number, letter in _placed(query, letters):
                yield letters, number, letter


def _placed(query: QueryFolder, letters: BatchDeadLetters) -> Iterator[tuple[int, DeadLetter]]:
    """(place in the Batch, letter) of what is left of a Batch's letters."""
    mark = read_purged(query, letters.batch)
    read = (letter for segment in standing_segments(query, letters) for letter in read_segment(query, segment))
    yield from enumerate(read) if mark is None else zip(mark.places, read, strict=True)


def standing_segments(query: QueryFolder, letters: BatchDeadLetters) -> tuple[LineSegment, ...]:
    """Where a Batch's letters are: what its decision names, or what is left when some were purged."""
    mark = read_purged(query, letters.batch)
    return letters.segments if mark is None else mark.segments


def read_segment(query: QueryFolder, segment: LineSegment) -> Iterator[DeadLetter]:
    """The letters of one segment. Raises StateError where the file is missing, torn or changed."""
    for line in read_lines(query.dead, segment, "dead letters"):
        yield letter_from_json(msgspec.json.decode(line))


@dataclass(frozen=True, slots=True)
class Expired:
    """Batches up to `through` have outlived `retain`: their `letters` are deleted, and stand only in the totals."""

    through: int = -1
    letters: int = 0


def read_expired(query: QueryFolder) -> Expired:
    """What `retain` has taken away so far."""
    marks = sorted(name for name in names_in(query.dead) if name.endswith(_EXPIRED))
    data = read_or_none(query.dead / marks[-1]) if marks else None
    if data is None:
        return read_expired(query) if marks else Expired()  # a later mark took its place
    return Expired(int(marks[-1][:10]), unseal(data, "expired-letters", 1, query.dead / marks[-1])["letters"])


def expire_letters(query: QueryFolder, before: datetime | None, most_bytes: int | None = None) -> int:
    """Under the lease: delete the letters of the oldest Batches, as long as those were decided before that, or all that are left take more
    than `most_bytes`; returns how many.

    The mark is durable first, so that a letter is never just missing. May be killed at any point and done again.
    """
    decisions = Decisions(query.decisions)
    was = read_expired(query)
    through, letters = was.through, was.letters
    there = list(decisions.letters(was.through + 1))
    sizes = [sum(segment.bytes for segment in standing_segments(query, batch)) for batch in there] if most_bytes is not None else []
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
    """Under the lease: delete segments of decided Batches that their decision does not name; returns how many.

    Those of an undecided Batch stay: a driver that sleeps may decide it yet.
    """
    decisions = Decisions(query.decisions)
    newest = decisions.newest()
    if newest is None:
        return 0
    # what is pruned was purged before (`Retention`)
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
    """The letter's line: `payload` is text, or `payload_base64` where the bytes are no UTF-8."""
    data: dict[str, Any] = {name: getattr(letter, name) for name in _FIELDS}
    payload = data.pop("payload")
    for name in _SELDOM:
        if not data[name]:
            del data[name]
    try:
        return data | {"payload": payload.decode()}
    except UnicodeDecodeError:
        return data | {"payload_base64": base64.b64encode(payload).decode()}


def letter_from_json(data: dict[str, Any]) -> DeadLetter:
    """The letter that `letter_as_json` gave."""
    encoded = data.pop("payload_base64", None)
    text = data.pop("payload", None)  # null beside the other, as a master gives it
    payload = base64.b64decode(encoded) if encoded is not None else text.encode()
    return DeadLetter(**data | {"trail": tuple(data.get("trail", ()))}, payload=payload)

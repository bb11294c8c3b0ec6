"""Purged dead letters: the remaining dead letters of a Batch are in new segments, which a mark names.

dead/0000000012/<attempt>.jsonl    the segments that the Batch's decision names, until the mark stands
dead/0000000012.purged             how many are gone, and where the others stand now, each with its old place in the Batch

Purged dead letters are copied to the trash before; `restore_places` writes them back.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from scribengin.core import faults
from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, read_or_none, replace
from scribengin.state.contract import LineSegment
from scribengin.state.segments import LineWriter, read_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scribengin.state.folder import QueryFolder

_SUFFIX, _KIND = ".purged", "purged-letters"
_WHAT = "dead letters"


@dataclass(frozen=True, slots=True)
class Purged:
    """Of one Batch `gone` dead letters are deleted. `segments` hold the others, `places` say which of the Batch's dead letters these
    were."""

    gone: int
    places: tuple[int, ...] = ()
    segments: tuple[LineSegment, ...] = ()


def read_purged(query: QueryFolder, batch: int) -> Purged | None:
    """The purge record of a Batch's dead letters; None if none was purged."""
    path = query.dead / f"{batch:010d}{_SUFFIX}"
    data = read_or_none(path)
    if data is None:
        return None
    body = unseal(data, _KIND, 1, path)
    return Purged(body["gone"], tuple(body["places"]), tuple(LineSegment(**each) for each in body["segments"]))


def count_purged(query: QueryFolder, last: int) -> int:
    """Dead letters that are purged, of Batches up to `last`, as far as `retain` has not taken these away as a whole."""
    numbers = [int(name[:10]) for name in names_in(query.dead) if name.endswith(_SUFFIX)]
    return sum(mark.gone for number in numbers if number <= last and (mark := read_purged(query, number)) is not None)


def drop_marks(query: QueryFolder, through: int) -> None:
    """The Batches up to that number have lost all their dead letters."""
    for name in names_in(query.dead):
        if name.endswith(_SUFFIX) and int(name[:10]) <= through:
            (query.dead / name).unlink(missing_ok=True)


def read_places(query: QueryFolder, batch: int, segments: Sequence[LineSegment]) -> dict[int, bytes]:
    """Place in the Batch → line, of the dead letters that are there. Raises StateError if a segment is missing, torn or changed.

    Args:
        query: The folder of the Query's state.
        batch: The number of a decided Batch.
        segments: Those that the Batch's decision names.
    """
    mark = read_purged(query, batch)
    lines = [line for segment in (segments if mark is None else mark.segments) for line in read_lines(query.dead, segment, _WHAT)]
    return dict(zip(range(len(lines)) if mark is None else mark.places, lines, strict=True))


def purge_places(query: QueryFolder, batch: int, segments: Sequence[LineSegment], places: Collection[int]) -> int:
    """Under the lease: delete the dead letters at those places of a decided Batch; `segments` are those that its decision names. Returns
    how many there were. May be killed at any point and done again: the mark is written when what stays is durable."""
    before = read_purged(query, batch)
    lines = read_places(query, batch, segments)
    kept = {place: line for place, line in lines.items() if place not in places}
    gone = len(lines) - len(kept)
    if gone:
        _mark(query, batch, kept, gone + (0 if before is None else before.gone))
    _drop_unnamed(query, batch, (*segments, *(() if before is None else before.segments)))
    return gone


def restore_places(query: QueryFolder, batch: int, lines: Mapping[int, bytes]) -> int:
    """Under the lease: write purged dead letters back to their places; returns how many there were that had gone. May be killed at any
    point and done again."""
    before = read_purged(query, batch)
    if before is None:
        return 0  # killed before anything of this Batch was purged, or the Batch has outlived `retain`
    there = read_places(query, batch, ())
    whole = dict(sorted({**lines, **there}.items()))
    back = len(whole) - len(there)
    if back:
        _mark(query, batch, whole, before.gone - back)
    _drop_unnamed(query, batch, before.segments)
    return back


def _mark(query: QueryFolder, batch: int, lines: Mapping[int, bytes], gone: int) -> None:
    """Write the dead letters of a Batch to new segments, then the mark that names them."""
    writer = LineWriter(query.dead, f"purged-{uuid4().hex}")
    for line in lines.values():
        writer.append(batch, msgspec.Raw(line))
    segment = writer.close()
    body = {"gone": gone, "places": list(lines), "segments": [] if segment is None else [asdict(segment)]}
    faults.reached("purge.before")
    replace(query.dead / f"{batch:010d}{_SUFFIX}", seal(_KIND, 1, body))
    faults.reached("purge.after")


def _drop_unnamed(query: QueryFolder, batch: int, segments: Iterable[LineSegment]) -> None:
    """Delete the segments that are no longer named."""
    mark = read_purged(query, batch)
    if mark is None:
        return
    named = {segment.name for segment in mark.segments}
    for segment in segments:
        if segment.name not in named:
            (query.dead / segment.name).unlink(missing_ok=True)

"""Dead letters that a person has purged: what is left of a Batch's letters stands in new segments, which a mark names.

dead/0000000012/<attempt>.jsonl    the segments that the Batch's decision names, until the mark stands
dead/0000000012.purged             how many are gone, and where the others stand now, each with its old place in the Batch
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
    from collections.abc import Collection, Sequence

    from scribengin.state.folder import QueryFolder

_SUFFIX, _KIND = ".purged", "purged-letters"
_WHAT = "dead letters"


@dataclass(frozen=True, slots=True)
class Purged:
    """Of one Batch `gone` letters are deleted. `segments` hold the others, `places` say which of the Batch's letters these were."""

    gone: int
    places: tuple[int, ...] = ()
    segments: tuple[LineSegment, ...] = ()


def read_purged(query: QueryFolder, batch: int) -> Purged | None:
    """What was purged of a Batch's letters; None where nothing was."""
    path = query.dead / f"{batch:010d}{_SUFFIX}"
    data = read_or_none(path)
    if data is None:
        return None
    body = unseal(data, _KIND, 1, path)
    return Purged(body["gone"], tuple(body["places"]), tuple(LineSegment(**each) for each in body["segments"]))


def count_purged(query: QueryFolder, last: int) -> int:
    """Letters that are purged, of Batches up to `last`, as far as `retain` has not taken these away as a whole."""
    numbers = [int(name[:10]) for name in names_in(query.dead) if name.endswith(_SUFFIX)]
    return sum(mark.gone for number in numbers if number <= last and (mark := read_purged(query, number)) is not None)


def drop_marks(query: QueryFolder, through: int) -> None:
    """The Batches up to that number have lost all their letters."""
    for name in names_in(query.dead):
        if name.endswith(_SUFFIX) and int(name[:10]) <= through:
            (query.dead / name).unlink(missing_ok=True)


def purge_places(query: QueryFolder, batch: int, segments: Sequence[LineSegment], places: Collection[int]) -> int:
    """Under the lease: delete the letters at those places of a decided Batch; `segments` are those that its decision names. Returns how
    many there were. May be killed at any point and done again: the mark is written when what stays is durable."""
    before = read_purged(query, batch)
    standing = list(segments) if before is None else list(before.segments)
    lines = [line for segment in standing for line in read_lines(query.dead, segment, _WHAT)]
    numbers = range(len(lines)) if before is None else before.places
    kept = [(number, line) for number, line in zip(numbers, lines, strict=True) if number not in places]
    gone = len(lines) - len(kept)
    if gone:
        writer = LineWriter(query.dead, f"purged-{uuid4().hex}")
        for _, line in kept:
            writer.append(batch, msgspec.Raw(line))
        segment = writer.close()
        body = {
            "gone": gone + (0 if before is None else before.gone),
            "places": [number for number, _ in kept],
            "segments": [] if segment is None else [asdict(segment)],
        }
        faults.reached("purge.before")
        replace(query.dead / f"{batch:010d}{_SUFFIX}", seal(_KIND, 1, body))
        faults.reached("purge.after")
    mark = read_purged(query, batch)
    named = {segment.name for segment in ([] if mark is None else mark.segments)}
    for segment in () if mark is None else (*segments, *standing):
        if segment.name not in named:
            (query.dead / segment.name).unlink(missing_ok=True)
    return gone

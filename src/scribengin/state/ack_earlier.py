"""What earlier lineages have put into a channel and a reader has not taken yet: a rewind of the feeder, or a move of it to another tier,
leaves it there, and it waits like any other row.

It does not concern acknowledgements, which name the present lineage. It is used for the backlog and for deletion in channels.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from scribengin.connectors.channel.outbox import waiting_numbers
from scribengin.state.ack_contract import ChannelBacklog
from scribengin.state.ack_cursor import DecisionCursor, read_record
from scribengin.state.ack_intake import taken_of
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder
from scribengin.state.lineage import past_lineages, read_lineage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import SourceStream
    from scribengin.state.ack_contract import ChannelLink, QueryReading
    from scribengin.state.lineage import Lineage


class LeftPiece(NamedTuple):
    """As `ack_intake.Piece`, with its Batch (`lineage/number`) and when that was decided."""

    key: str
    last: int
    rows: int
    bytes: int
    batch: str
    decided_at: str


class Remainder:
    """Of one reader: `pieces` are there, and the entries of its source log from `entry` on may have taken them, in any order."""

    def __init__(self, *, entry: int = 0, pieces: Iterable[Sequence[Any]] = ()) -> None:
        """Continue from a `mark`."""
        self.entry = entry
        self._pieces: dict[str, deque[LeftPiece]] = {}
        for piece in pieces:
            self._pieces.setdefault(piece[0], deque()).append(LeftPiece(*piece))
        self._waiting: ChannelBacklog | None = None

    @property
    def waiting(self) -> ChannelBacklog:
        """The backlog of this reader."""
        if self._waiting is None:
            left = [piece for pieces in self._pieces.values() for piece in pieces]
            self._waiting = ChannelBacklog(
                sum(piece.rows for piece in left),
                sum(piece.bytes for piece in left),
                len({piece.batch for piece in left}),
                min((piece.decided_at for piece in left if piece.decided_at), default=""),
            )
        return self._waiting

    def pass_over(self, reached: int) -> None:
        """If nothing is left the entries up to there need not be read."""
        if not self._pieces:
            self.entry = max(self.entry, reached)

    def take(self, streams: Sequence[SourceStream]) -> None:
        """The reader's next entry holds these."""
        self.entry += 1
        for key, end, _ in taken_of(streams):
            left = self._pieces.get(key)
            while left and left[0].last < end:
                left.popleft()
                self._waiting = None
            if left is not None and not left:
                del self._pieces[key]

    def mark(self) -> dict[str, Any]:
        """The mark from which another object can continue."""
        return {"entry": self.entry, "pieces": [list(piece) for pieces in self._pieces.values() for piece in pieces]}


@dataclass(frozen=True, slots=True)
class Earlier:
    """A lineage that fed a channel: the Query's folder, and the one in which its decisions lie."""

    query: QueryFolder
    part: QueryFolder
    lineage: Lineage

    def record(self) -> dict[str, Any]:
        """Its progress when it was left, if it was recorded."""
        for folder in (self.part, self.query):
            noted = read_record(folder)
            if noted.get("lineage") == self.lineage.id:
                return noted
        return {}


def earlier_feeders(channel: str, folders: Iterable[QueryFolder], present: str) -> list[Earlier]:
    """The lineages other than `present` that fed the channel, newest first. Raises Refused while one of the Queries is being rewound."""
    found = []
    for folder in folders:
        newest = read_lineage(folder)
        lives = [] if newest is None else [*past_lineages(folder), (folder, newest)]
        found += [Earlier(folder, part, each) for part, each in lives if each.id != present and channel in each.parts]
    # they say the second in which they began; of one folder the order is known
    return sorted(found, key=lambda each: each.lineage.created_at)[::-1]


def remainders(link: ChannelLink, reading: QueryReading, lineage: str, earlier: Sequence[Earlier]) -> tuple[Remainder, Remainder]:
    """What is left of these, newest first, to be taken by a reader of that lineage (empty: it never ran): in decided Batches, in
    acknowledged ones. Still with all that the reader has taken since the feeders were last looked at."""
    marks: list[dict[str, Any]] = [{"entry": None, "pieces": []}, {"entry": None, "pieces": []}]
    for each in earlier:
        noted = each.record()
        said = noted.get("links", {}).get(link.channel, {}).get(str(reading))
        at = said if said is not None and said["lineage"] == lineage else None
        for mark, level in zip(marks, ("taken", "committed"), strict=True):
            first = entry = 0
            if at is not None:
                first, entry = at[level]["batch"], at[level]["entry"]
            elif noted and said is None:  # a reader that came later counts from there
                first = noted["acknowledged" if link.holds else "floor"] + 1
            mark["pieces"] += _pieces_of(each, link, first)
            mark["entry"] = entry if mark["entry"] is None else min(mark["entry"], entry)
        older = marks_of(noted, link, reading, lineage)
        if older is not None:
            for mark, known in zip(marks, older, strict=True):
                mark["pieces"] += known["pieces"]
                mark["entry"] = min(mark["entry"], known["entry"])
            break
    taken, committed = (Remainder(entry=mark["entry"] or 0, pieces=mark["pieces"]) for mark in marks)
    return taken, committed


def marks_of(
    record: Mapping[str, Any], link: ChannelLink, reading: QueryReading, lineage: str
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What a feeder's record says of those before it; None if it says nothing that holds for a reader of that lineage."""
    of_channel = record.get("earlier", {}).get(link.channel)
    if of_channel is None:
        return None
    said = of_channel.get(str(reading))
    if said is None:  # a reader that came later
        return {"entry": 0, "pieces": []}, {"entry": 0, "pieces": []}
    return (said["taken"], said["committed"]) if said["lineage"] == lineage else None


def _pieces_of(earlier: Earlier, link: ChannelLink, first: int) -> Iterator[LeftPiece]:
    """The pieces of its Batches from `first` on, oldest first."""
    lineage = earlier.lineage.id
    first = max(first, earlier.lineage.first)
    if Decisions(earlier.part.decisions).pruned_mark() >= first:
        # nobody knows what of it is there still: it holds nobody back, and is never thought to be through
        yield LeftPiece("", 0, 0, 0, f"{lineage}/pruned", "")
    cursor = DecisionCursor(_LeftFolder(earlier.part.path, earlier.query), lineage, {}, [link], waits=False, noted={})
    cursor.newest = cursor.acknowledged = first - 1
    cursor.read_new(jump=False)
    cursor.acknowledged = cursor.newest  # all is published before a lineage is left
    # a Batch that the channel never took is not in it
    never = waiting_numbers(earlier.query.work(link.channel), lineage)
    for number, batch in cursor.batches.items():
        for piece in (cursor.pieces(number, link) or ()) if number not in never else ():
            yield LeftPiece(piece.key, piece.last, piece.rows, piece.bytes, f"{lineage}/{number}", batch.decided_at)


@dataclass(frozen=True, slots=True)
class _LeftFolder(QueryFolder):
    """Of a lineage that was left: what its sinks keep still lies with the Query."""

    query: QueryFolder

    def work(self, sink: str) -> Path:
        """Of the Query."""
        return self.query.work(sink)

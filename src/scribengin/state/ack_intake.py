"""What one reader has taken of what a Query has put into a channel, Batch by Batch: counted as both sides' records are met."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.pieces import pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.connectors.contract import SourceStream

_NAME = re.compile(r"part-(\d{10})-")
_FILE = 1
"""where a file ends, when files are counted as offsets are"""


@dataclass(frozen=True, slots=True)
class ChannelPiece:
    """A part of what a Batch has put into a channel: a file by its name (`last` 0), or messages of a `topic-partition` up to `last`; of one
    that goes to a group `member:topic-partition`."""

    key: str
    last: int
    rows: int
    bytes: int


@dataclass(slots=True)
class _Held:
    """A Batch of which the reader has not taken all, or that stands behind one. `first`: the first entry that took any of it."""

    number: int
    decided_at: str
    left: int = 0
    first: int | None = None


class ChannelIntake:
    """Of one reader. Give it the writer's Batches with `put` and the entries of the reader's source log with `take`, each in order; it
    does not matter which of the two comes first. `through` is the newest Batch that is taken with all before it."""

    def __init__(self, *, batch: int = 0, entry: int = 0, ends: Mapping[str, int] | None = None) -> None:
        """To go on from a `mark`."""
        self.through = batch - 1
        self.added = batch - 1
        """the newest Batch that was put"""
        self.entry = entry
        """the next to be taken"""
        self.put_rows = 0
        """ever, in this object's life; `rows` and `bytes` are of what waits"""
        self.reached = -1
        """the newest Batch of which anything may have been taken"""
        self.rows = 0
        self.bytes = 0
        self._ends = dict(ends or {})
        """of topics: partition → the offset behind what was taken"""
        self._early: dict[str, int] = {}
        """a file whose Batch is not put yet → the entry that took it"""
        self._pending: deque[_Held] = deque()
        self._waiting: dict[str, deque[tuple[ChannelPiece, _Held]]] = {}

    @property
    def oldest_at(self) -> str:
        """When the oldest Batch was decided that waits; empty where none does."""
        return self._pending[0].decided_at if self._pending else ""

    def put(self, number: int, decided_at: str, pieces: Sequence[ChannelPiece]) -> None:
        """Batch `number` of the writer has put this into the channel. Numbers rise; what was pruned between is taken with the next one."""
        held = _Held(number, decided_at)
        self.added = number
        for piece in pieces:
            self.put_rows += piece.rows
            early = self._early.pop(piece.key, None)
            if early is not None:
                held.first = early if held.first is None else min(held.first, early)
            elif piece.last >= self._ends.get(piece.key, 0):
                held.left += 1
                self.rows += piece.rows
                self.bytes += piece.bytes
                self._waiting.setdefault(piece.key, deque()).append((piece, held))
        self._early = {name: entry for name, entry in self._early.items() if _batch_of(name) > number} if self._early else {}
        self._pending.append(held)
        self._advance()

    def take(self, streams: Sequence[SourceStream]) -> None:
        """The reader's next entry holds these; what it passed over is taken too."""
        for key, end, is_file in taken_of(streams):
            waiting = self._waiting.get(key)
            if not is_file:
                self._ends[key] = end
            elif waiting is None and _batch_of(key) > self.added:
                self._early.setdefault(key, self.entry)
            while waiting and waiting[0][0].last < end:
                piece, held = waiting.popleft()
                held.left -= 1
                held.first = self.entry if held.first is None else held.first
                self.reached = max(self.reached, held.number)
                self.rows -= piece.rows
                self.bytes -= piece.bytes
            if waiting is not None and not waiting:
                del self._waiting[key]
            elif waiting and not is_file:
                self.reached = max(self.reached, waiting[0][1].number)
        self.entry += 1
        self._advance()

    def covers(self, streams: Sequence[SourceStream]) -> bool:
        """Whether these streams end before, or in, what was put: no later Batch can be in them."""
        for key, end, is_file in taken_of(streams):
            waiting = self._waiting.get(key)
            if (_batch_of(key) > self.added) if is_file else not waiting or waiting[-1][0].last < end - 1:
                return False
        return True

    def mark(self) -> dict[str, Any]:
        """From where another one can go on: nothing of Batch `batch` or later was taken before entry `entry`."""
        firsts = [held.first for held in self._pending if held.first is not None]
        return {"batch": self.through + 1, "entry": min([self.entry, *firsts, *self._early.values()]), "ends": dict(self._ends)}

    def _advance(self) -> None:
        while self._pending and not self._pending[0].left:
            self.through = self._pending.popleft().number


def taken_of(streams: Sequence[SourceStream]) -> Iterator[tuple[str, int, bool]]:
    """Of an entry: (key of a piece, behind what is taken of it, whether it is a file)."""
    for stream in streams:
        place, member = stream.place, ""
        if "of" in place:  # of a group's member: two clusters have partitions of one name, and files the numbers of their Batches
            place, member = place["of"], f"{place['member']}:"
        if "pieces" in place:
            yield from ((piece.path, _FILE, True) for piece in pieces_of(replace(stream, place=place)))
        elif place.get("partition") is not None:
            yield f"{member}{place['topic']}-{place['partition']}", place["end"], False


def _batch_of(name: str) -> int:
    found = _NAME.match(name)
    return int(found.group(1)) if found else -1

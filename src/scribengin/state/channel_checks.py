"""The checksums of both ends of a channel: what an upstream Batch has written, and what the readers have read of it.

While a flow runs, Batches that were under way when the watch began are not compared, nor those beside which something was passed over or
was no whole pack: their outcome is reported elsewhere (`offsets set`, losses, dead letters). `channel_audit` compares all that is
known.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scribengin.connectors.files.pieces import pieces_of
from scribengin.connectors.kafka.publications import published_log
from scribengin.core.errors import StateError
from scribengin.state.channel_digests import NOT_WHOLE, added, by_unit, in_all
from scribengin.state.decisions import Decisions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import Receipt, SourceStream
    from scribengin.core.numbered_log import NumberedLog
    from scribengin.state.channel_digests import Sums, Taken
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder


NAMED = 5
"""of units, places and ids of a mismatch as many are named, and the rest is counted"""


@dataclass(frozen=True, slots=True)
class UnitSums:
    """A task output of a Batch whose checksums differ. `places`: where the feeder has put its rows, for people; empty if its Batch was
    written as a whole. A unit of -1 stands for packs that do not say theirs."""

    unit: int
    put: Sums
    taken: Sums
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = _differing(self.put, self.taken)
        unit = "record batches without a task output number" if self.unit < 0 else f"task output {self.unit}"
        return f"{unit}{f' ({named(self.places)})' if self.places else ''}: {what}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Batch `batch` of the feeder, as both ends counted it: rows, and the digest of their ids.

    `units` are those that differ, `places` where the feeder has put the Batch, `taken_by` the reader's Batches that have taken of it;
    `late` is True if more of it came after all of it had been taken."""

    channel: str
    reading: QueryReading
    lineage: str
    batch: int
    put: Sums | None
    """None if the feeder's record of it is pruned"""
    taken: Sums
    units: tuple[UnitSums, ...] = ()
    places: tuple[str, ...] = ()
    taken_by: tuple[int, ...] = ()
    late: bool = False

    @property
    def confirmed(self) -> bool:
        """False if both ends' decisions, read anew, agree: what was counted on the way was not all of them. A net below the counting:
        no case is known that it catches."""
        return self.late or self.put != self.taken

    def __str__(self) -> str:
        what = _differing(self.put, self.taken)
        digests = "" if self.put is None else f" (digests of the ids {self.put[1]:016x} and {self.taken[1]:016x})"
        where = f"; written to {named(self.places)}" if self.places else ""
        units = f"; {named([str(unit) for unit in self.units], '; ')}" if self.units else ""
        late = ", some of them after the whole Batch had been read" if self.late else ""
        return f"channel {self.channel}, batch {self.batch} of its upstream: {what} by {self.reading}{late}{digests}{where}{units}"


def named(texts: Sequence[str], between: str = ", ") -> str:
    """The first `NAMED` texts, and the number of the others."""
    more = [f"and {len(texts) - NAMED:,} more"] if len(texts) > NAMED else []
    return between.join([*texts[:NAMED], *more])


def _differing(put: Sums | None, taken: Sums) -> str:
    if put is None:
        return f"{taken[0]:,} rows were read, but the count of rows written is pruned"
    if put[0] != taken[0]:
        return f"{put[0]:,} rows were written, but {taken[0]:,} were read"
    return f"{put[0]:,} rows were written, but different rows were read"


@dataclass(slots=True)
class Tally:
    """One reader of a channel, from when `begun` was the feeder's newest Batch of which something may have been taken."""

    begun: int
    reached: int = -1
    """the reader's newest Batch that was counted"""
    through: int = -1
    """the feeder's newest Batch that was compared, or passed by, with all before"""
    _found: dict[int, Sums] = field(default_factory=dict)

    def skip(self, newest: int) -> None:
        """Of what stands in the channel so far, up to the feeder's Batch `newest`, nothing can be said."""
        self.begun = max(self.begun, newest)
        self._found = {number: sums for number, sums in self._found.items() if number > self.begun}

    def count(self, taken: Taken, lineage: str, newest: int) -> list[int]:
        """What a Batch of the reader has taken of the feeder's `lineage`, of which Batch `newest` is the last that may be in the channel.
        Returns those of the feeder's Batches that were compared before, whole as they were: more of them was in the channel than was put
        in."""
        if NOT_WHOLE.lineage in taken:
            self.skip(newest)
        late = []
        for text, said in taken.get(lineage, {}).items():
            number = int(text)
            if number <= self.begun:
                continue
            if number <= self.through:
                late.append(number)
            else:
                self._found[number] = added(self._found.get(number, (0, 0)), in_all(by_unit(said)))
        return late

    def differs(self, number: int, put: Sums | None) -> bool:
        """True if what was taken of Batch `number`, which is taken whole, is not what was put in. Asked in the order of the Batches."""
        self.through = max(self.through, number)
        found = self._found.pop(number, (0, 0))
        return put is not None and number > self.begun and found != put


# What one reader has taken of what a Query has put into a channel, Batch by Batch: counted as both sides' records are met.


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
        """Continue from a `mark`."""
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
        """When the oldest Batch was decided that waits; empty if none does."""
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
        """The mark from which another object can continue: nothing of Batch `batch` or later was taken before entry `entry`."""
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


# The places of a lineage's Batches in a channel, as the writer has recorded them.


def file_pieces(receipts: Iterable[Receipt]) -> list[ChannelPiece]:
    """The pieces of a Batch in a channel folder, from its write receipts."""
    segments = [segment for receipt in receipts for segment in receipt.segments]
    return [ChannelPiece(segment["name"], 0, segment["rows"], segment["bytes"]) for segment in segments]


class Publications:
    """What the sink of a channel in a topic has noted of a lineage's Batches. To be kept by who asks for many: it remembers folded ones."""

    def __init__(self, work: Path, lineage: str) -> None:
        self._work = work
        self._lineage = lineage
        self._logs: dict[str, NumberedLog] = {}

    def messages(self, number: int, member: str) -> list[dict[str, Any]] | None:
        """The ranges of a Batch (`published_log`); `member` is where it went, empty without a group. None if it is not published yet."""
        if member not in self._logs:
            self._logs[member] = published_log(self._work / member, self._lineage)
        said = self._logs[member].read(number)
        return None if said is None else said["messages"]

    def pieces(self, number: int, member: str, rows: int, bytes: int) -> list[ChannelPiece] | None:
        """Of a Batch of so many rows and bytes; None if it is not published yet."""
        if not rows:
            return []
        messages = self.messages(number, member)
        if messages is None:
            return None
        at = f"{member}:" if member else ""
        return [
            ChannelPiece(f"{at}{each['topic']}-{each['partition']}", each["last"], each["rows"], bytes * each["rows"] // rows)
            for each in messages
        ]


# What the records say of a Batch that did not come out of a channel as it went in: which units, where they lay, which Batches of the
# reader took them. Read only once a mismatch is known: every record of the reader is looked at.


def put_by_unit(receipts: Iterable[Receipt]) -> dict[int, Sums] | None:
    """What the units of a Batch have put into a channel; None if a receipt, of before digests were kept, does not say it."""
    units: dict[int, Sums] = {}
    for receipt in receipts:
        if receipt.rows and receipt.digest is None:
            return None
        units[receipt.unit] = added(units.get(receipt.unit, (0, 0)), (receipt.rows, receipt.digest or 0))
    return units


def mismatch_of(
    link: ChannelLink,
    reading: QueryReading,
    writer: QueryFolder,
    reader: QueryFolder,
    lineage: str,
    number: int,
    *,
    late: bool = False,
    part: QueryFolder | None = None,
) -> Mismatch:
    """Batch `number` of the feeder's `lineage`, as far as the details of both ends' decisions are there. `writer` and `reader` are the
    Queries' folders; `part` is where the lineage's decisions lie, where the feeder has left it."""
    try:
        decision = Decisions((part or writer).decisions).read(number)
    except StateError:  # its details are pruned by now
        decision = None
    receipts = [] if decision is None else [receipt for receipt in decision.receipts if receipt.sink == link.channel]
    known = None if decision is None else put_by_unit(receipts)
    put = known or {}
    taken: dict[int, Sums] = {}
    taken_by = []
    for each in Decisions(reader.decisions).since():
        said = each.taken.get(reading.source, {}).get(lineage, {}).get(str(number))
        if said is not None:
            taken_by.append(each.batch.number)
            for unit, sums in by_unit(said).items():
                taken[unit] = added(taken.get(unit, (0, 0)), sums)
    places = {} if decision is None else _places(link, writer, lineage, decision)
    units = [
        UnitSums(unit, put.get(unit, (0, 0)), taken.get(unit, (0, 0)), places.get(unit, ()))
        for unit in sorted(put.keys() | taken.keys())
        if known is not None and put.get(unit, (0, 0)) != taken.get(unit, (0, 0))
    ]
    everywhere = places.get(-1) or tuple(place for unit in sorted(places) for place in places[unit])
    whole = None if known is None else in_all(known)
    return Mismatch(link.channel, reading, lineage, number, whole, in_all(taken), tuple(units), everywhere, tuple(taken_by), late=late)


def _places(link: ChannelLink, writer: QueryFolder, lineage: str, decision: Decision) -> dict[int, tuple[str, ...]]:
    """Task output → where its rows were written; -1 for a Batch whose task outputs were written together."""
    member = str(decision.behind.get(link.channel, {}).get("member", ""))
    at = f"{member}:" if member else ""
    places: dict[int, tuple[str, ...]] = {}
    for receipt in decision.receipts:
        if receipt.sink != link.channel:
            continue
        for segment in receipt.segments:
            if link.kind == "folder":
                places[receipt.unit] = (*places.get(receipt.unit, ()), f"{at}{segment['name']}")
            elif "messages" in segment:
                places[receipt.unit] = (*places.get(receipt.unit, ()), *_offsets(at, segment["messages"]))
    if link.kind == "kafka" and not places:
        messages = Publications(writer.work(link.channel), lineage).messages(decision.batch.number, member)
        if messages is not None:
            places[-1] = _offsets(at, messages)
    return places


def _offsets(at: str, messages: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    return tuple(
        f"{at}topic {each['topic']}, partition {each['partition']}, offsets {each['first']} to {each['last']}" for each in messages
    )


# The values of acknowledgements: what a flow's Queries and channels are, and their progress.


class QueryKey(NamedTuple):
    """A Query of a flow."""

    tier: str
    query: str


class QueryReading(NamedTuple):
    """A Query that reads a channel, as its source of that id."""

    query: QueryKey
    source: str

    def __str__(self) -> str:
        return f"{self.query.tier}/{self.query.query}/{self.source}"


@dataclass(frozen=True, slots=True)
class ChannelLink:
    """A channel: the sink `channel` of `writer`. If `holds` is false, its writer waits for no reader."""

    channel: str
    writer: QueryKey
    readers: tuple[QueryReading, ...]
    kind: Literal["kafka", "folder"]
    holds: bool = True
    drops: bool = False
    """whether rows may be dropped before the channel takes them"""


@dataclass(frozen=True, slots=True)
class QueryTopology:
    """The Queries of a flow, feeders first, each with its folder, and its channels. A Query in `by_state` acknowledges rows only when they
    have left its state."""

    queries: Mapping[QueryKey, QueryFolder]
    links: tuple[ChannelLink, ...] = ()
    by_state: frozenset[QueryKey] = frozenset()
    left: tuple[QueryFolder, ...] = ()
    """Queries that were removed from the flow: they may have fed a channel earlier"""


@dataclass(frozen=True, slots=True)
class QueryStanding:
    """Batch numbers, -1 for none; positions (source → entries that are behind) of all decided Batches and of the acknowledged ones."""

    lineage: str = ""
    decided: int = -1
    decided_at: str = ""
    published: int = -1
    acknowledged: int = -1
    read: Mapping[str, int] = field(default_factory=dict)
    released: Mapping[str, int] = field(default_factory=dict)
    acknowledged_at: str = ""
    """when the newest acknowledged Batch was decided"""


@dataclass(frozen=True, slots=True)
class ChannelBacklog:
    """The rows of a channel that are not taken yet; `oldest_at` says when the oldest Batch of it was decided, empty if nothing waits."""

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    oldest_at: str = ""

    def __add__(self, other: ChannelBacklog) -> ChannelBacklog:
        oldest = min((each for each in (self.oldest_at, other.oldest_at) if each), default="")
        return ChannelBacklog(self.rows + other.rows, self.bytes + other.bytes, self.batches + other.batches, oldest)


NOTHING = ChannelBacklog()


@dataclass(frozen=True, slots=True)
class LinkStanding:
    """Of one reader of a channel. `taken` and `committed`: the newest Batch of the writer that the reader has decided on, and that the end
    of the chain has committed, with all before. What waits is not yet taken; `open_rows` are not yet committed. All of it is of the
    writer's present lineage, but for `earlier`, what waits of those before it, and `earlier_open`, what of them is not yet committed."""

    taken: int
    committed: int
    waiting_rows: int
    waiting_bytes: int
    waiting_batches: int
    oldest_at: str
    open_rows: int
    put_rows: int = 0
    """rows ever written to the channel, as far as this process has read the records"""
    earlier: ChannelBacklog = NOTHING
    earlier_open: ChannelBacklog | None = None
    """None if it is not known yet"""

    @property
    def waiting(self) -> ChannelBacklog:
        """The whole backlog of the reader."""
        return ChannelBacklog(self.waiting_rows, self.waiting_bytes, self.waiting_batches, self.oldest_at) + self.earlier


@dataclass(frozen=True, slots=True)
class FlowAcks:
    """The progress of a flow; readers by (channel id, reader)."""

    queries: Mapping[QueryKey, QueryStanding]
    links: Mapping[tuple[str, QueryReading], LinkStanding]
    mismatches: tuple[Mismatch, ...] = ()
    """Batches whose rows read from a channel differ from the rows written, found at this look"""

    def of(self, link: ChannelLink) -> tuple[LinkStanding, ...]:
        """A channel's readers, as far as its writer ever ran."""
        return tuple(self.links[link.channel, reading] for reading in link.readers if (link.channel, reading) in self.links)

    def waiting(self, link: ChannelLink) -> ChannelBacklog:
        """The backlog of a channel; with several readers, the largest figures of any."""
        each = [at.waiting for at in self.of(link)]
        return ChannelBacklog(
            max((at.rows for at in each), default=0),
            max((at.bytes for at in each), default=0),
            max((at.batches for at in each), default=0),
            min((at.oldest_at for at in each if at.oldest_at), default=""),
        )

"""The checksums of both ends of a channel: what an upstream Batch has written, and what the readers have read of it.

While a flow runs, Batches that were in progress when the comparison began are not compared, nor those beside which entries were skipped or
an incomplete record batch was read: these are reported elsewhere (`offsets set`, losses, dead letters). `channel_audit` compares all that
is known.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scribengin.connectors.files.pieces import pieces_of
from scribengin.connectors.kafka.publications import published_log
from scribengin.core.errors import StateError
from scribengin.state.channel_digests import NOT_WHOLE, add_sums, by_unit, sum_units
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
"""the most task outputs, places and ids that the text of a mismatch names; the rest is counted"""


@dataclass(frozen=True, slots=True)
class UnitSums:
    """A task output of a Batch whose checksums differ. `places` describes where its rows were written; empty if the Batch was written as a
    whole. A `unit` of -1 stands for record batches that do not name their task output."""

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
    """An upstream Batch for which the two ends differ in the number of rows or the digest of their ids.

    `units` are the task outputs that differ, `places` describes where the Batch was written, `taken_by` are the reader's Batches that took
    a part of it. `late` is True if more of it was read after all of it had been read.
    """

    channel: str
    reading: QueryReading
    lineage: str
    batch: int
    put: Sums | None
    """None if the upstream details are pruned, or have no digests"""
    taken: Sums
    units: tuple[UnitSums, ...] = ()
    places: tuple[str, ...] = ()
    taken_by: tuple[int, ...] = ()
    late: bool = False

    @property
    def confirmed(self) -> bool:
        """True if the decisions of both ends, read again, differ too. False means that the counts on the way were incomplete; no such case
        is known."""
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
    """Counts what one reader has taken of the upstream Batches after `begun`, the newest one that may have been taken in part at
    the start."""

    begun: int
    reached: int = -1
    """the reader's newest Batch that was counted"""
    through: int = -1
    """all upstream Batches up to this number were compared or skipped"""
    _found: dict[int, Sums] = field(default_factory=dict)

    def skip(self, newest: int) -> None:
        """Exclude the upstream Batches up to `newest` from the comparison: it is not known what was taken of them."""
        self.begun = max(self.begun, newest)
        self._found = {number: sums for number, sums in self._found.items() if number > self.begun}

    def count(self, taken: Taken, lineage: str, newest: int) -> list[int]:
        """Count what a Batch of the reader has taken.

        Args:
            taken: The rows and digests that the reader's decision has for the source.
            lineage: The upstream lineage that is compared.
            newest: The newest upstream Batch of which something may be in the channel.

        Returns:
            The upstream Batches that had been compared as complete: more of them was read than was written.
        """
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
                self._found[number] = add_sums(self._found.get(number, (0, 0)), sum_units(by_unit(said)))
        return late

    def differs(self, number: int, put: Sums | None) -> bool:
        """True if what was taken of Batch `number`, which is taken completely, differs from `put`. Called in the order of the Batches;
        False if it is not known."""
        self.through = max(self.through, number)
        found = self._found.pop(number, (0, 0))
        return put is not None and number > self.begun and found != put


# What one reader has taken of a query's output to a channel, Batch by Batch, counted as the records of both sides are read.


_NAME = re.compile(r"part-(\d{10})-")
_FILE = 1
"""the end of a file, if files are counted as offsets are"""


@dataclass(frozen=True, slots=True)
class ChannelPiece:
    """A part of what a Batch has written to a channel: a file by its name (`last` is 0), or the messages of a `topic-partition` up to
    offset `last`. The key is `member:topic-partition` for a channel that writes to a group."""

    key: str
    last: int
    rows: int
    bytes: int


@dataclass(slots=True)
class _PendingBatch:
    """A Batch that the reader has not taken completely, or that comes after such a one. `first` is the first entry that took any of it."""

    number: int
    decided_at: str
    left: int = 0
    first: int | None = None


class ChannelIntake:
    """Follows which of a writer's Batches one reader has taken. Pass the writer's Batches to `put` and the entries of the reader's source
    log to `take`, each in order; the two may alternate in any way. All Batches up to `through` are taken."""

    def __init__(self, *, batch: int = 0, entry: int = 0, ends: Mapping[str, int] | None = None) -> None:
        """Continue from the result of `mark`."""
        self.through = batch - 1
        self.added = batch - 1
        """the newest Batch that was passed to `put`"""
        self.entry = entry
        """the number of the entry that `take` expects next"""
        self.put_rows = 0
        """all rows passed to `put`; `rows` and `bytes` count what is not taken yet"""
        self.reached = -1
        """the newest Batch of which anything may have been taken"""
        self.rows = 0
        self.bytes = 0
        self._ends = dict(ends or {})
        """of topics: partition → the offset after the last one that was taken"""
        self._early: dict[str, int] = {}
        """a file whose Batch was not passed to `put` yet → the entry that took it"""
        self._pending: deque[_PendingBatch] = deque()
        self._waiting: dict[str, deque[tuple[ChannelPiece, _PendingBatch]]] = {}

    @property
    def oldest_at(self) -> str:
        """When the oldest Batch was decided that is not taken completely; empty if there is none."""
        return self._pending[0].decided_at if self._pending else ""

    def put(self, number: int, decided_at: str, pieces: Sequence[ChannelPiece]) -> None:
        """Add a Batch of the writer.

        Args:
            number: Its number, higher than all before; missing ones, which were pruned, count as taken when the next one does.
            decided_at: When it was decided, ISO 8601.
            pieces: What it has written to the channel.
        """
        held = _PendingBatch(number, decided_at)
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
        """Take the reader's next entry. Streams that it skipped count as taken."""
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
        """True if these streams end within what was passed to `put`: no later Batch can be in them."""
        for key, end, is_file in taken_of(streams):
            waiting = self._waiting.get(key)
            if (_batch_of(key) > self.added) if is_file else not waiting or waiting[-1][0].last < end - 1:
                return False
        return True

    def mark(self) -> dict[str, Any]:
        """A JSON value from which another object can continue: nothing of Batch `batch` or later was taken before entry `entry`."""
        firsts = [held.first for held in self._pending if held.first is not None]
        return {"batch": self.through + 1, "entry": min([self.entry, *firsts, *self._early.values()]), "ends": dict(self._ends)}

    def _advance(self) -> None:
        while self._pending and not self._pending[0].left:
            self.through = self._pending.popleft().number


def taken_of(streams: Sequence[SourceStream]) -> Iterator[tuple[str, int, bool]]:
    """Yields, for the streams of an entry: key of the piece, position after what is taken of it, True if it is a file."""
    for stream in streams:
        place, member = stream.place, ""
        if "of" in place:  # two members of a group may have partitions and files of the same names
            place, member = place["of"], f"{place['member']}:"
        if "pieces" in place:
            yield from ((piece.path, _FILE, True) for piece in pieces_of(replace(stream, place=place)))
        elif place.get("partition") is not None:
            yield f"{member}{place['topic']}-{place['partition']}", place["end"], False


def _batch_of(name: str) -> int:
    found = _NAME.match(name)
    return int(found.group(1)) if found else -1


# Where the Batches of a lineage are in a channel, as the writer has recorded it.


def file_pieces(receipts: Iterable[Receipt]) -> list[ChannelPiece]:
    """The pieces of a Batch in a channel folder, from its write receipts."""
    segments = [segment for receipt in receipts for segment in receipt.segments]
    return [ChannelPiece(segment["name"], 0, segment["rows"], segment["bytes"]) for segment in segments]


class Publications:
    """The records of the sink of a channel in a topic about the Batches of a lineage. Keep the object for many calls: it caches folded
    records."""

    def __init__(self, work: Path, lineage: str) -> None:
        self._work = work
        self._lineage = lineage
        self._logs: dict[str, NumberedLog] = {}

    def messages(self, number: int, member: str) -> list[dict[str, Any]] | None:
        """The published ranges of a Batch (see `published_log`); None if it is not published yet. `member` is the member of the group that
        received it, empty without a group."""
        if member not in self._logs:
            self._logs[member] = published_log(self._work / member, self._lineage)
        said = self._logs[member].read(number)
        return None if said is None else said["messages"]

    def pieces(self, number: int, member: str, rows: int, bytes: int) -> list[ChannelPiece] | None:
        """The pieces of a Batch; None if it is not published yet.

        Args:
            number: The number of the Batch.
            member: The member of the group that received it; empty without a group.
            rows: The rows of the whole Batch.
            bytes: The bytes of the whole Batch, which are divided among the pieces by their rows.
        """
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


# Explains why a Batch was not read from a channel as it was written: which task outputs differ, where they are, and which Batches of the
# reader took them. Used only after a mismatch was found, because it reads every decision of the reader.


def put_by_unit(receipts: Iterable[Receipt]) -> dict[int, Sums] | None:
    """Task output → sums of what it wrote to a channel; None if a write receipt has no digest, because it was written before digests
    existed."""
    units: dict[int, Sums] = {}
    for receipt in receipts:
        if receipt.rows and receipt.digest is None:
            return None
        units[receipt.unit] = add_sums(units.get(receipt.unit, (0, 0)), (receipt.rows, receipt.digest or 0))
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
    """Compare both ends of one upstream Batch, as far as the details of the decisions still exist.

    Args:
        link: The channel.
        reading: The reader.
        writer: The folder of the upstream query.
        reader: The folder of the reading query.
        lineage: The upstream lineage.
        number: The number of the upstream Batch.
        late: True if more of the Batch was read after all of it had been read.
        part: The folder with the lineage's decisions, if the upstream query has left that lineage.
    """
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
                taken[unit] = add_sums(taken.get(unit, (0, 0)), sums)
    places = {} if decision is None else _places(link, writer, lineage, decision)
    units = [
        UnitSums(unit, put.get(unit, (0, 0)), taken.get(unit, (0, 0)), places.get(unit, ()))
        for unit in sorted(put.keys() | taken.keys())
        if known is not None and put.get(unit, (0, 0)) != taken.get(unit, (0, 0))
    ]
    everywhere = places.get(-1) or tuple(place for unit in sorted(places) for place in places[unit])
    whole = None if known is None else sum_units(known)
    return Mismatch(link.channel, reading, lineage, number, whole, sum_units(taken), tuple(units), everywhere, tuple(taken_by), late=late)


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


# The values of acknowledgements: the queries and channels of a flow, and their progress.


class QueryKey(NamedTuple):
    """A query of a flow."""

    tier: str
    query: str


class QueryReading(NamedTuple):
    """A query that reads a channel, as its source `source`."""

    query: QueryKey
    source: str

    def __str__(self) -> str:
        return f"{self.query.tier}/{self.query.query}/{self.source}"


@dataclass(frozen=True, slots=True)
class ChannelLink:
    """A channel: the sink `channel` of `writer`. If `holds` is False, no reader delays the acknowledgement of its writer."""

    channel: str
    writer: QueryKey
    readers: tuple[QueryReading, ...]
    kind: Literal["kafka", "folder"]
    holds: bool = True
    drops: bool = False
    """True if rows may be dropped before they reach the channel"""


@dataclass(frozen=True, slots=True)
class QueryTopology:
    """The queries of a flow, upstream ones first, each with its folder, and the channels. A query in `by_state` acknowledges rows only when
    they have left its state."""

    queries: Mapping[QueryKey, QueryFolder]
    links: tuple[ChannelLink, ...] = ()
    by_state: frozenset[QueryKey] = frozenset()
    left: tuple[QueryFolder, ...] = ()
    """queries that were removed from the flow: they may have written to a channel earlier"""


@dataclass(frozen=True, slots=True)
class QueryStanding:
    """The progress of a query. Batch numbers are -1 if there is none. `read` and `released` are the positions (source → entries of its log)
    of all decided Batches and of the acknowledged ones."""

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
    """The rows of a channel that are not taken yet. `oldest_at` is when the oldest Batch with such rows was decided; empty if there is
    none."""

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
    """The progress of one reader of a channel.

    The reader has decided on all Batches of the writer up to `taken`, and the end of the chain has committed all up to `committed`.
    `waiting_…` counts what is not taken yet, `open_rows` what is not committed yet. These refer to the writer's present lineage; `earlier`
    is the backlog of the lineages before it, `earlier_open` what of them is not committed yet.
    """

    taken: int
    committed: int
    waiting_rows: int
    waiting_bytes: int
    waiting_batches: int
    oldest_at: str
    open_rows: int
    put_rows: int = 0
    """rows written to the channel, as far as this process has read the records"""
    earlier: ChannelBacklog = NOTHING
    earlier_open: ChannelBacklog | None = None
    """None if it is not known yet"""

    @property
    def waiting(self) -> ChannelBacklog:
        """The whole backlog of the reader."""
        return ChannelBacklog(self.waiting_rows, self.waiting_bytes, self.waiting_batches, self.oldest_at) + self.earlier


@dataclass(frozen=True, slots=True)
class FlowAcks:
    """The progress of a flow. The keys of `links` are (channel id, reader)."""

    queries: Mapping[QueryKey, QueryStanding]
    links: Mapping[tuple[str, QueryReading], LinkStanding]
    mismatches: tuple[Mismatch, ...] = ()
    """Batches whose rows read from a channel differ from the rows written, found by this call of `Acks.read`"""

    def of(self, link: ChannelLink) -> tuple[LinkStanding, ...]:
        """The progress of a channel's readers; empty if its writer never ran."""
        return tuple(self.links[link.channel, reading] for reading in link.readers if (link.channel, reading) in self.links)

    def waiting(self, link: ChannelLink) -> ChannelBacklog:
        """The backlog of a channel; with several readers, the largest figures and the oldest time of any."""
        each = [at.waiting for at in self.of(link)]
        return ChannelBacklog(
            max((at.rows for at in each), default=0),
            max((at.bytes for at in each), default=0),
            max((at.batches for at in each), default=0),
            min((at.oldest_at for at in each if at.oldest_at), default=""),
        )

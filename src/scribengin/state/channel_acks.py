"""Acknowledgements: how far the last tiers of a flow have committed the input of its first tiers.

A Batch is acknowledged when it is decided and published, and when every reader of its channels has taken its output in Batches that are
acknowledged themselves. The chain starts at the last durable hop: a channel that may drop rows (`best_effort`) does not delay the
acknowledgement of its writer.

Everything is read from the state folders, which any process may do at any time. The stored record (`ledger/acks.json`) only saves reading
older decisions again.

An acknowledgement names a lineage and a Batch number, and does not apply to another lineage. It is never withdrawn: a channel or a reader
that is added later counts from there on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from scribengin.connectors.channel.outbox import dropped_log, waiting_numbers
from scribengin.core.errors import Refused, StateError
from scribengin.core.records import seal, unseal
from scribengin.core.storage import read_or_none, replace
from scribengin.state.channel_checks import (
    ChannelBacklog,
    ChannelIntake,
    ChannelLink,
    FlowAcks,
    LinkStanding,
    Publications,
    QueryKey,
    QueryReading,
    QueryStanding,
    QueryTopology,
    Tally,
    file_pieces,
    mismatch_of,
    put_by_unit,
    taken_of,
)
from scribengin.state.channel_digests import sum_units
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder
from scribengin.state.ledger import is_published
from scribengin.state.lineage import past_lineages, read_lineage
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import Receipt, SourceStream
    from scribengin.state.channel_checks import ChannelPiece, Mismatch
    from scribengin.state.channel_digests import Sums, Taken
    from scribengin.state.contract import Decision
    from scribengin.state.lineage import Lineage


# The decisions of one query as acknowledgements need them: read as they are written, and kept until no reader needs them.


_KIND, _FORMAT = "acks", 1


@dataclass(slots=True)
class DecidedBatch:
    """The data of a decided Batch, kept until it is acknowledged. The `pieces` of a channel in a Kafka topic are None until they are first
    read."""

    decided_at: str
    ends: dict[str, int]
    pieces: dict[str, list[ChannelPiece] | None]
    rows: dict[str, tuple[int, int]]
    members: dict[str, str]
    """for a channel that writes to a group: channel → the member that received the Batch"""
    watermark_us: int | None
    leaves_us: int | None
    sums: dict[str, Sums | None]
    """channel → rows and digest of what was written to it; None if the digest is not known"""
    taken: Mapping[str, Taken]


class DecisionCursor:
    """Reads the decisions of one query, from its newest acknowledged one on."""

    def __init__(
        self,
        folder: QueryFolder,
        lineage: str,
        starts: Mapping[str, int],
        links: list[ChannelLink],
        *,
        waits: bool,
        noted: Mapping[str, Any] | None = None,
        first: int = 0,
    ) -> None:
        """Continue from the stored record, if it is of this lineage.

        Args:
            folder: The folder of the query's state.
            lineage: The id of the lineage that is read.
            starts: Source → the position at which the lineage started; empty if it reads from the start.
            links: The channels that the query writes to.
            waits: True if the query's Batches are acknowledged later than they are published: by readers of its channels, or by its state.
            noted: The record to continue from; None reads it from the folder.
            first: The number of the lineage's first Batch.
        """
        self.folder = folder
        self.lineage = lineage
        self.links = links
        self._dropped: dict[str, set[int]] = {link.channel: set() for link in links if link.drops}
        self._dropped_next = dict.fromkeys(self._dropped, 0)
        self._published: dict[str, Publications] = {}
        """channel → what its Kafka sink has recorded as published"""
        self.batches: dict[int, DecidedBatch] = {}
        self.newest = self.acknowledged = self._before = first - 1
        self.released = dict(starts)
        self.read = dict(starts)
        self.decided_at = self.acknowledged_at = ""
        """when the newest Batch, and the newest acknowledged one, was decided; empty if its details are pruned"""
        self._decisions = Decisions(folder.decisions)
        noted = read_record(folder) if noted is None else noted
        self.record: Mapping[str, Any] = noted if noted.get("lineage") == lineage else {}
        if starts and waits:
            # until the first Batch of this lineage is acknowledged, input of an older lineage may still be in progress downstream
            before = noted.get("released", {})
            self.released = {source: min(start, before.get(source, 0)) for source, start in starts.items()}
        self.floor = first - 1
        """all Batches up to this number are acknowledged, and taken by every reader, including those that do not delay the writer"""
        if self.record:
            self.acknowledged, self.floor = self.record["acknowledged"], self.record["floor"]
            self.newest = self.floor
            self.released = self.read = self.record["released"]
            self._take_over()
        self.from_first = not starts and self.floor < first
        """True if every Batch that the query ever decided, in any lineage, is read here"""

    def read_new(self, *, jump: bool) -> None:
        """Read the new decisions. With `jump`, only the newest two Batches are read if all Batches read so far are acknowledged."""
        self._look_at_dropped()
        begin = self.newest + 1
        if jump and self.newest == self.acknowledged and (newest := self._decisions.newest()) is not None:
            begin = max(begin, newest.batch.number - 1)
        self.from_first = self.from_first and begin <= self.newest + 1
        before = None
        for decision in self._since(begin):
            if before is not None and decision.batch.number != before + 1:
                break  # a folder that grows while it is listed may show a later file and not an earlier one; the next call reads it
            before = self.newest = decision.batch.number
            self.read = {each.source: each.end for each in decision.sources}
            self.decided_at = decision.decided_at
            self.batches[self.newest] = self._kept(decision)

    def _take_over(self) -> None:
        """Take over the times of the newest acknowledged decision, if its details still exist."""
        try:
            decision = self._decisions.read(self.acknowledged)
        except StateError:
            return
        if decision is not None:
            self.decided_at = self.acknowledged_at = decision.decided_at

    def published(self) -> int:
        """The newest Batch that is known to be published: the next one is decided, or a record shows it."""
        if self.newest <= self._before or is_published(self.folder, self.lineage, self.newest):
            return self.newest
        return max(self.acknowledged, self.newest - 1)

    def sums_written(self, number: int, link: ChannelLink) -> Sums | None:
        """Rows and digest of what the Batch wrote to the channel; None if that is not known, or if the Batch was dropped."""
        if number not in self.batches or number in self._dropped.get(link.channel, ()):
            return None
        return self.batches[number].sums[link.channel]

    def counts_written(self, number: int, link: ChannelLink) -> tuple[int, int]:
        """Rows and bytes that the decision counts for the channel; zeros if the Batch is not known here, or was dropped."""
        if number not in self.batches or number in self._dropped.get(link.channel, ()):
            return 0, 0
        return self.batches[number].rows[link.channel]

    def pieces(self, number: int, link: ChannelLink) -> list[ChannelPiece] | None:
        """The pieces that the Batch wrote to the channel; None while they are not known, [] if the Batch was dropped."""
        batch = self.batches[number]
        if link.drops and link.kind == "folder":  # the decision names its files before it is known whether the Batch is dropped
            if number > self.published():
                return None
            self._look_at_dropped()
        if number in self._dropped.get(link.channel, ()):
            return []
        found = batch.pieces.get(link.channel, [])
        if found is None:
            found = batch.pieces[link.channel] = self._published_messages(number, link, batch)
        return found

    def _look_at_dropped(self) -> None:
        for channel, numbers in self._dropped.items():
            log = dropped_log(self.folder.work(channel), self.lineage)
            for nth, body in log.since(self._dropped_next[channel]):
                numbers.add(body["number"])
                self._dropped_next[channel] = nth + 1

    def acknowledge(self, number: int) -> None:
        """Record that all Batches up to `number` are acknowledged; a lower number than before changes nothing."""
        if number <= self.acknowledged:
            return
        self.acknowledged = number
        known = number if number in self.batches else max(each for each in self.batches if each <= number)
        self.released, self.acknowledged_at = self.batches[known].ends, self.batches[known].decided_at

    def forget(self, through: int) -> None:
        """Drop the Batches up to `through` from memory: they are no longer needed."""
        if through <= self.floor:
            return
        self.floor = through
        for each in list(takewhile(lambda number: number <= through, self.batches)):  # the numbers are in ascending order
            del self.batches[each]
        for numbers in self._dropped.values():
            numbers.difference_update([each for each in numbers if each <= through])

    def _since(self, begin: int) -> Iterator[Decision]:
        try:
            if self._decisions.read(begin) is None:
                return
        except StateError:  # pruned or torn: `since` finds out which
            pass
        yield from self._decisions.since(begin)

    def _kept(self, decision: Decision) -> DecidedBatch:
        pieces: dict[str, list[ChannelPiece] | None] = {}
        rows: dict[str, tuple[int, int]] = {}
        for link in self.links:
            receipts = [receipt for receipt in decision.receipts if receipt.sink == link.channel]
            rows[link.channel] = sum(receipt.rows for receipt in receipts), sum(receipt.bytes for receipt in receipts)
            if link.kind == "kafka":
                pieces[link.channel] = None
                continue
            pieces[link.channel] = file_pieces(receipts)
        ends = {each.source: each.end for each in decision.sources}
        times = decision.times
        members = {sink: str(said["member"]) for sink, said in decision.behind.items() if "member" in said}
        sums = {link.channel: _sums([receipt for receipt in decision.receipts if receipt.sink == link.channel]) for link in self.links}
        moments = (times.get("watermark_us"), times.get("leaves_us"))
        return DecidedBatch(decision.decided_at, ends, pieces, rows, members, *moments, sums, decision.taken)

    def _published_messages(self, number: int, link: ChannelLink, batch: DecidedBatch) -> list[ChannelPiece] | None:
        if link.channel not in self._published:
            self._published[link.channel] = Publications(self.folder.work(link.channel), self.lineage)
        return self._published[link.channel].pieces(number, batch.members.get(link.channel, ""), *batch.rows[link.channel])


def _sums(receipts: list[Receipt]) -> Sums | None:
    units = put_by_unit(receipts)
    return None if units is None else sum_units(units)


def _record_path(folder: QueryFolder) -> Path:
    return folder.ledger / "acks.json"


def read_record(folder: QueryFolder) -> dict[str, Any]:
    """The stored record, whatever its lineage is; {} if there is none."""
    path = _record_path(folder)
    data = read_or_none(path)
    body: dict[str, Any] = {} if data is None else unseal(data, _KIND, _FORMAT, path)
    return body


def write_record(folder: QueryFolder, body: Mapping[str, Any]) -> None:
    """Store the record for the next process. The caller holds the lease."""
    replace(_record_path(folder), seal(_KIND, _FORMAT, dict(body)))


# What earlier lineages have written to a channel and a reader has not taken yet. A rewind of the upstream query, or its move to another
# tier, leaves these rows in the channel. Acknowledgements name the present lineage and do not depend on them; the backlog and the deletion
# of channel data do.


class LeftPiece(NamedTuple):
    """A piece that is not acknowledged: the fields of `ChannelPiece`, its Batch (`lineage/number`) and the time of its decision."""

    key: str
    last: int
    rows: int
    bytes: int
    batch: str
    decided_at: str


class Remainder:
    """The pieces of earlier lineages that one reader has not taken. The entries of its source log from `entry` on may take them, in any
    order."""

    def __init__(self, *, entry: int = 0, pieces: Iterable[Sequence[Any]] = ()) -> None:
        """Continue from the result of `mark`."""
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

    def skip_to(self, reached: int) -> None:
        """Skip the entries up to `reached` if no piece is left: they need not be read."""
        if not self._pieces:
            self.entry = max(self.entry, reached)

    def take(self, streams: Sequence[SourceStream]) -> None:
        """Remove the pieces that the reader's next entry takes."""
        self.entry += 1
        for key, end, _ in taken_of(streams):
            left = self._pieces.get(key)
            while left and left[0].last < end:
                left.popleft()
                self._waiting = None
            if left is not None and not left:
                del self._pieces[key]

    def mark(self) -> dict[str, Any]:
        """A JSON value from which another object can continue."""
        return {"entry": self.entry, "pieces": [list(piece) for pieces in self._pieces.values() for piece in pieces]}


@dataclass(frozen=True, slots=True)
class Earlier:
    """An ended lineage that wrote to a channel: `query` is the query's folder, `part` the folder with the lineage's decisions."""

    query: QueryFolder
    part: QueryFolder
    lineage: Lineage

    def record(self) -> dict[str, Any]:
        """The acknowledgement record of the lineage at its end; {} if there is none."""
        for folder in (self.part, self.query):
            noted = read_record(folder)
            if noted.get("lineage") == self.lineage.id:
                return noted
        return {}


def earlier_writers(channel: str, folders: Iterable[QueryFolder], present: str) -> list[Earlier]:
    """The lineages other than `present` that wrote to the channel, newest first. Raises Refused while a rewind of one of the queries is in
    progress."""
    found = []
    for folder in folders:
        newest = read_lineage(folder)
        lives = [] if newest is None else [*past_lineages(folder), (folder, newest)]
        found += [Earlier(folder, part, each) for part, each in lives if each.id != present and channel in each.parts]
    # creation times are in whole seconds; within a folder the stable sort keeps the known order
    return sorted(found, key=lambda each: each.lineage.created_at)[::-1]


def remainders(link: ChannelLink, reading: QueryReading, lineage: str, earlier: Sequence[Earlier]) -> tuple[Remainder, Remainder]:
    """The pieces of earlier lineages that a reader has not taken.

    Args:
        link: The channel.
        reading: The reader.
        lineage: The reader's present lineage; empty if it never ran.
        earlier: The earlier lineages, newest first.

    Returns:
        The pieces not taken by the reader's decided Batches, and those not taken by its acknowledged ones. Both still contain what the
        reader has taken since the records of the earlier lineages were written.
    """
    marks: list[dict[str, Any]] = [{"entry": None, "pieces": []}, {"entry": None, "pieces": []}]
    for each in earlier:
        noted = each.record()
        said = noted.get("links", {}).get(link.channel, {}).get(str(reading))
        at = said if said is not None and said["lineage"] == lineage else None
        for mark, level in zip(marks, ("taken", "committed"), strict=True):
            first = entry = 0
            if at is not None:
                first, entry = at[level]["batch"], at[level]["entry"]
            elif noted and said is None:  # a reader that was added later counts from there
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
    """The stored marks of a writer's earlier lineages; None if the record has none that apply to a reader of that lineage."""
    of_channel = record.get("earlier", {}).get(link.channel)
    if of_channel is None:
        return None
    said = of_channel.get(str(reading))
    if said is None:  # a reader that was added later
        return {"entry": 0, "pieces": []}, {"entry": 0, "pieces": []}
    return (said["taken"], said["committed"]) if said["lineage"] == lineage else None


def _pieces_of(earlier: Earlier, link: ChannelLink, first: int) -> Iterator[LeftPiece]:
    """The pieces of the lineage's Batches from number `first` on, oldest first."""
    lineage = earlier.lineage.id
    first = max(first, earlier.lineage.first)
    if Decisions(earlier.part.decisions).pruned_mark() >= first:
        # it is not known what of the pruned Batches is still there: this piece counts no rows, and is never taken
        yield LeftPiece("", 0, 0, 0, f"{lineage}/pruned", "")
    cursor = DecisionCursor(_LeftFolder(earlier.part.path, earlier.query), lineage, {}, [link], waits=False, noted={})
    cursor.newest = cursor.acknowledged = first - 1
    cursor.read_new(jump=False)
    cursor.acknowledged = cursor.newest  # every Batch is published before its lineage ends
    # a Batch that never reached the channel has no pieces in it
    never = waiting_numbers(earlier.query.work(link.channel), lineage)
    for number, batch in cursor.batches.items():
        for piece in (cursor.pieces(number, link) or ()) if number not in never else ():
            yield LeftPiece(piece.key, piece.last, piece.rows, piece.bytes, f"{lineage}/{number}", batch.decided_at)


@dataclass(frozen=True, slots=True)
class _LeftFolder(QueryFolder):
    """The folder of an ended lineage, whose sinks still keep their work files in the query's own folder."""

    query: QueryFolder

    def work(self, sink: str) -> Path:
        """The folder of a sink in the query's own folder."""
        return self.query.work(sink)


__all__ = [
    "Acks",
    "ChannelBacklog",
    "ChannelLink",
    "FlowAcks",
    "LinkStanding",
    "QueryKey",
    "QueryReading",
    "QueryStanding",
    "QueryTopology",
]

_MOST_EXPLAINED = 5
"""mismatches of one reader that one call of `read` explains; the first one stops the flow"""


class Acks:
    """The acknowledgements of a flow. Each `read` reads only what is new. Used by one thread."""

    def __init__(self, topology: QueryTopology) -> None:
        self.topology = topology
        self._cursors: dict[QueryKey, DecisionCursor] = {}
        self._intakes: dict[tuple[str, QueryReading], tuple[ChannelIntake, ChannelIntake]] = {}
        """what was taken by the reader's decided Batches, and by its acknowledged ones"""
        self._earlier: dict[tuple[str, QueryReading], tuple[Remainder, Remainder]] = {}
        """the same for the writer's earlier lineages; a key is missing while it is not known"""
        self._tallies: dict[tuple[str, QueryReading], Tally] = {}
        self._looked = False
        self._readers = {reading.query for link in topology.links for reading in link.readers}
        self._logs: dict[QueryReading, SourceLog] = {}
        self._kept: dict[QueryKey, Any] = {}

    def read(self) -> FlowAcks:
        """The progress of the flow now. A query that never ran, or whose rewind is in progress, has the empty `QueryStanding`."""
        for key in self.topology.queries:
            self._refresh(key)
        mismatches: list[Mismatch] = []
        for link in self.topology.links:
            for reading in link.readers:
                if link.writer in self._cursors:
                    before = self._intake(link, reading, 0).through
                    mismatches += self._compared(link, reading, before, self._bring_up(link, reading, 0).through)
        for key in reversed(list(self.topology.queries)):
            if key in self._cursors:
                self._acknowledge(key)
        for link in self.topology.links:
            for reading in link.readers:
                if link.writer in self._cursors:
                    self._bring_up_earlier(link, reading)
        self._looked = True
        return FlowAcks(self._query_standings(), self._link_standings(), tuple(mismatches))

    def keep(self, key: QueryKey) -> None:
        """Record the progress of a query, so that the next process need not read all of it again. The caller holds the lease of the query's
        tier."""
        cursor = self._cursors.get(key)
        if cursor is None:
            return
        links: dict[str, Any] = {}
        earlier: dict[str, Any] = {}
        for link in cursor.links:
            for reading in link.readers:
                reader = self._cursors.get(reading.query)
                if (link.channel, reading) in self._earlier:
                    levels = self._earlier[link.channel, reading]
                    left = {name: level.mark() for name, level in zip(("taken", "committed"), levels, strict=True)}
                    earlier.setdefault(link.channel, {})[str(reading)] = {"lineage": reader.lineage if reader else "", **left}
                if reader is not None and (link.channel, reading) in self._intakes:
                    taken, committed = self._intakes[link.channel, reading]
                    marks = {"lineage": reader.lineage, "taken": taken.mark(), "committed": committed.mark()}
                    links.setdefault(link.channel, {})[str(reading)] = marks
        body = {
            "lineage": cursor.lineage,
            "acknowledged": cursor.acknowledged,
            "floor": cursor.floor,
            "released": cursor.released,
            "links": links,
            "earlier": earlier,
        }
        if body != self._kept.get(key):
            write_record(cursor.folder, body)
            self._kept[key] = body

    # --- pieces ---

    def _refresh(self, key: QueryKey) -> None:
        """Read what a query has decided since the last call; start over if it has another lineage."""
        folder = self.topology.queries[key]
        try:
            lineage = read_lineage(folder)
        except Refused:  # a rewind is under way
            lineage = None
        cursor = self._cursors.get(key)
        if lineage is None and cursor is None:
            return
        if lineage is None or cursor is None or cursor.lineage != lineage.id:
            self._cursors.pop(key, None)
            for link in self.topology.links:
                for reading in link.readers:
                    if key in (link.writer, reading.query):
                        self._intakes.pop((link.channel, reading), None)
                        self._earlier.pop((link.channel, reading), None)
                        self._logs.pop(reading, None)
                        self._tallies.pop((link.channel, reading), None)
            if lineage is None:
                return
            links = [link for link in self.topology.links if link.writer == key]
            waits = any(link.holds for link in links) or key in self.topology.by_state
            cursor = self._cursors[key] = DecisionCursor(folder, lineage.id, lineage.starts, links, waits=waits, first=lineage.first)
        # after the first call, the Batches of a query that reads a channel are compared one by one, so that none may be skipped
        follows = key in self._readers and (self._looked or cursor.newest >= 0)
        cursor.read_new(jump=not cursor.links and key not in self.topology.by_state and not follows)

    def _intake(self, link: ChannelLink, reading: QueryReading, level: int) -> ChannelIntake:
        at = (link.channel, reading)
        if at not in self._intakes:
            writer, reader = self._cursors[link.writer], self._cursors.get(reading.query)
            said = writer.record.get("links", {}).get(link.channel, {}).get(str(reading), {})
            known = reader is not None and said.get("lineage") == reader.lineage
            # an acknowledgement is never withdrawn: a reader that delays the writer counts from there, another one from the oldest known
            # Batch
            first = (writer.acknowledged if link.holds else writer.floor) + 1
            marks = [said["taken"], said["committed"]] if known else [{"batch": first}] * 2
            marks = [mark | {"batch": max(mark["batch"], first)} for mark in marks]
            self._intakes[at] = (ChannelIntake(**marks[0]), ChannelIntake(**marks[1]))
        return self._intakes[at][level]

    def _bring_up(self, link: ChannelLink, reading: QueryReading, level: int) -> ChannelIntake:
        """Add to the intake what the writer has decided and what the reader has taken.

        Args:
            link: The channel.
            reading: The reader.
            level: 0 for what the reader's decided Batches have taken, 1 for its acknowledged ones.
        """
        writer, reader = self._cursors[link.writer], self._cursors.get(reading.query)
        intake = self._intake(link, reading, level)
        for number in range(intake.added + 1, writer.newest + 1):
            if number not in writer.batches:
                continue
            pieces = writer.pieces(number, link)
            if pieces is None:
                break
            intake.put(number, writer.batches[number].decided_at, pieces)
        if reader is not None:
            log = self._logs.setdefault(reading, SourceLog(reader.folder.sources, reading.source))
            reached = (reader.read if level == 0 else reader.released).get(reading.source, 0)
            while intake.entry < reached:
                streams = log.read(intake.entry)
                if level == 0 and any(stream.skipped for stream in streams):
                    self._tally(link, reading).skip(self._visible(link))
                intake.take(streams)
        return intake

    def _bring_up_earlier(self, link: ChannelLink, reading: QueryReading) -> None:
        """Remove from the pieces of earlier lineages what the reader has taken since the last call."""
        writer, reader = self._cursors[link.writer], self._cursors.get(reading.query)
        at, lineage = (link.channel, reading), "" if reader is None else reader.lineage
        if at not in self._earlier:
            marks = marks_of(writer.record, link, reading, lineage)
            if marks is not None:
                self._earlier[at] = Remainder(**marks[0]), Remainder(**marks[1])
            else:
                try:
                    earlier = earlier_writers(link.channel, [*self.topology.queries.values(), *self.topology.left], writer.lineage)
                except Refused:  # one of them is being rewound
                    return
                self._earlier[at] = remainders(link, reading, lineage, earlier)
        if reader is None:
            return
        log = self._logs.setdefault(reading, SourceLog(reader.folder.sources, reading.source))
        for remainder, reached in zip(self._earlier[at], (reader.read, reader.released), strict=True):
            remainder.skip_to(reached.get(reading.source, 0))
            while remainder.entry < reached.get(reading.source, 0):
                remainder.take(log.read(remainder.entry))
                remainder.skip_to(reached.get(reading.source, 0))

    def _tally(self, link: ChannelLink, reading: QueryReading) -> Tally:
        reader = self._cursors.get(reading.query)
        untouched = reader is not None and reader.newest < 0
        # a reader that starts after the first call is compared from its first Batch on, if all its Batches are read here
        met = (self._looked or untouched) and (reader is None or reader.from_first)
        begun = -1 if met else self._visible(link)
        return self._tallies.setdefault((link.channel, reading), Tally(begun))

    def _visible(self, link: ChannelLink) -> int:
        """The newest upstream Batch of which something may have been taken by now. Executors commit task outputs to a topic on their own,
        so that readers may take them before their Batch is decided."""
        newest = self._cursors[link.writer].newest
        return newest + 1 if link.kind == "kafka" else newest

    def _compared(self, link: ChannelLink, reading: QueryReading, before: int, through: int) -> list[Mismatch]:
        """Count what the reader has decided since the last call, and compare the upstream Batches that it has taken completely by now."""
        writer, reader = self._cursors[link.writer], self._cursors.get(reading.query)
        tally = self._tally(link, reading)
        if reader is None:
            return []
        late: set[int] = set()
        for number in range(tally.reached + 1, reader.newest + 1):
            if number not in reader.batches:
                continue
            again = tally.count(reader.batches[number].taken.get(reading.source, {}), writer.lineage, self._visible(link))
            if not link.drops:  # a dropped Batch may have reached the channel all the same
                late.update(again)
            tally.reached = number
        wrong = [number for number in range(before + 1, through + 1) if tally.differs(number, writer.sums_written(number, link))]
        found = [
            mismatch_of(link, reading, writer.folder, reader.folder, writer.lineage, number, late=number in late)
            for number in sorted(late.union(wrong))[:_MOST_EXPLAINED]
        ]
        return [each for each in found if each.confirmed]

    def _acknowledge(self, key: QueryKey) -> None:
        cursor = self._cursors[key]
        passed = through = cursor.published()
        for link in cursor.links:
            for reading in link.readers:
                committed = self._bring_up(link, reading, 1).through
                through = min(through, committed) if link.holds else through
                passed = min(passed, committed)
        if key in self.topology.by_state:
            through = _left_the_state(cursor.batches, cursor.acknowledged, through)
        cursor.acknowledge(through)
        cursor.forget(min(passed, cursor.acknowledged))

    def _query_standings(self) -> dict[QueryKey, QueryStanding]:
        return {
            key: QueryStanding()
            if (cursor := self._cursors.get(key)) is None
            else QueryStanding(
                cursor.lineage,
                cursor.newest,
                cursor.decided_at,
                cursor.published(),
                cursor.acknowledged,
                dict(cursor.read),
                dict(cursor.released),
                cursor.acknowledged_at,
            )
            for key in self.topology.queries
        }

    def _link_standings(self) -> dict[tuple[str, QueryReading], LinkStanding]:
        return {
            (link.channel, reading): self._link_standing(link, reading)
            for link in self.topology.links
            for reading in link.readers
            if (link.channel, reading) in self._intakes
        }

    def _link_standing(self, link: ChannelLink, reading: QueryReading) -> LinkStanding:
        """The progress of one reader. Batches that are decided and not yet known to be published count as backlog."""
        taken, committed = self._intakes[link.channel, reading]
        writer = self._cursors[link.writer]
        under_way = [(number, *writer.counts_written(number, link)) for number in range(taken.added + 1, writer.newest + 1)]
        rows, size = sum(rows for _, rows, _ in under_way), sum(size for _, _, size in under_way)
        oldest = next((writer.batches[number].decided_at for number, rows, _ in under_way if rows), "")
        earlier = self._earlier.get((link.channel, reading))
        return LinkStanding(
            taken.through,
            committed.through,
            taken.rows + rows,
            taken.bytes + size,
            max(0, writer.newest - taken.through),
            taken.oldest_at or oldest,
            committed.rows + rows,
            taken.put_rows + rows,
            *(() if earlier is None else (level.waiting for level in earlier)),
        )


def _left_the_state(batches: Mapping[int, DecidedBatch], acknowledged: int, through: int) -> int:
    """The newest Batch up to `through` whose rows, and those of all before it, have left the state by Batch `through`."""
    reached = max(
        (each.watermark_us for number, each in batches.items() if number <= through and each.watermark_us is not None), default=None
    )
    for number in sorted(number for number in batches if acknowledged < number <= through):
        leaves_us = batches[number].leaves_us
        if leaves_us is not None and (reached is None or leaves_us > reached):
            break
        acknowledged = number
    return acknowledged

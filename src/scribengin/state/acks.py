"""Acknowledgements: how far the last tiers of a flow have committed the input of its first tiers.

A Batch is acknowledged when it is decided and published, and each of its channels' readers has taken what it put there in Batches that
are acknowledged themselves. It starts at the last durable hop: a channel that may drop rows (`best_effort`) does not hold back its writer.
All of it is read from the state folders, which any process may do at any time; the record beside them (`ledger/acks.json`) only saves
walking.

An acknowledgement names a lineage and a number, and is void for another lineage. Once given it stays given: a channel or a reader that
is added later counts from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.errors import Refused
from scribengin.state.ack_contract import (
    ChannelBacklog,
    ChannelLink,
    FlowAcks,
    LinkStanding,
    QueryKey,
    QueryReading,
    QueryStanding,
    QueryTopology,
)
from scribengin.state.ack_cursor import DecidedBatch, DecisionCursor, write_record
from scribengin.state.ack_earlier import Remainder, earlier_feeders, marks_of, remainders
from scribengin.state.ack_intake import ChannelIntake
from scribengin.state.checksums import Tally
from scribengin.state.lineage import read_lineage
from scribengin.state.mismatches import mismatch_of
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.state.checksums import Mismatch

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

_TOLD = 5
"""mismatches of one reader that a look explains; the first stops the flow"""


class Acks:
    """The acknowledgements of a flow. Each `look` reads only what is new; used by one thread."""

    def __init__(self, topology: QueryTopology) -> None:
        self.topology = topology
        self._cursors: dict[QueryKey, DecisionCursor] = {}
        self._intakes: dict[tuple[str, QueryReading], tuple[ChannelIntake, ChannelIntake]] = {}
        """(what was taken by decided Batches, by acknowledged ones)"""
        self._earlier: dict[tuple[str, QueryReading], tuple[Remainder, Remainder]] = {}
        """the same of the writer's earlier lineages; missing if it is not known yet"""
        self._tallies: dict[tuple[str, QueryReading], Tally] = {}
        self._looked = False
        self._readers = {reading.query for link in topology.links for reading in link.readers}
        self._logs: dict[QueryReading, SourceLog] = {}
        self._kept: dict[QueryKey, Any] = {}

    def read(self) -> FlowAcks:
        """The progress of the flow now. A Query that never ran, or that is being rewound, is left out."""
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
        """Record the progress, so that the next process need not read all of it again. Call it under the lease of the Query's tier."""
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
        """Meet what a Query has decided; start over where it has another lineage."""
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
        # who reads a channel is counted Batch by Batch from the first look on
        follows = key in self._readers and (self._looked or cursor.newest >= 0)
        cursor.read_new(jump=not cursor.links and key not in self.topology.by_state and not follows)

    def _intake(self, link: ChannelLink, reading: QueryReading, level: int) -> ChannelIntake:
        at = (link.channel, reading)
        if at not in self._intakes:
            writer, reader = self._cursors[link.writer], self._cursors.get(reading.query)
            said = writer.record.get("links", {}).get(link.channel, {}).get(str(reading), {})
            known = reader is not None and said.get("lineage") == reader.lineage
            # an acknowledgement stays given: whoever holds the writer counts from there, and whoever does not from where Batches are known
            first = (writer.acknowledged if link.holds else writer.floor) + 1
            marks = [said["taken"], said["committed"]] if known else [{"batch": first}] * 2
            marks = [mark | {"batch": max(mark["batch"], first)} for mark in marks]
            self._intakes[at] = (ChannelIntake(**marks[0]), ChannelIntake(**marks[1]))
        return self._intakes[at][level]

    def _bring_up(self, link: ChannelLink, reading: QueryReading, level: int) -> ChannelIntake:
        """Feed the intake with what the writer has decided and what the reader has taken: in decided Batches, or (1) acknowledged ones."""
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
        """Compare what the writer's earlier lineages have left in the channel with what the reader has taken."""
        writer, reader = self._cursors[link.writer], self._cursors.get(reading.query)
        at, lineage = (link.channel, reading), "" if reader is None else reader.lineage
        if at not in self._earlier:
            marks = marks_of(writer.record, link, reading, lineage)
            if marks is not None:
                self._earlier[at] = Remainder(**marks[0]), Remainder(**marks[1])
            else:
                try:
                    earlier = earlier_feeders(link.channel, [*self.topology.queries.values(), *self.topology.left], writer.lineage)
                except Refused:  # one of them is being rewound
                    return
                self._earlier[at] = remainders(link, reading, lineage, earlier)
        if reader is None:
            return
        log = self._logs.setdefault(reading, SourceLog(reader.folder.sources, reading.source))
        for remainder, reached in zip(self._earlier[at], (reader.read, reader.released), strict=True):
            remainder.pass_over(reached.get(reading.source, 0))
            while remainder.entry < reached.get(reading.source, 0):
                remainder.take(log.read(remainder.entry))
                remainder.pass_over(reached.get(reading.source, 0))

    def _tally(self, link: ChannelLink, reading: QueryReading) -> Tally:
        reader = self._cursors.get(reading.query)
        untouched = reader is not None and reader.newest < 0
        # who began under the watch, or has not begun, is met from the first Batch on, unless another process has noted how it began
        met = (self._looked or untouched) and (reader is None or reader.from_first)
        begun = -1 if met else self._visible(link)
        return self._tallies.setdefault((link.channel, reading), Tally(begun))

    def _visible(self, link: ChannelLink) -> int:
        """The newest Batch of the feeder of which something may have been taken by now. Units commit to a topic by themselves, on
        executors: what they put there is read before their Batch is decided, however long the feeder, cut off, waits with that."""
        newest = self._cursors[link.writer].newest
        return newest + 1 if link.kind == "kafka" else newest

    def _compared(self, link: ChannelLink, reading: QueryReading, before: int, through: int) -> list[Mismatch]:
        """Count what the reader has decided on since the last look, and compare the feeder's Batches that it has taken whole by now."""
        writer, reader = self._cursors[link.writer], self._cursors.get(reading.query)
        tally = self._tally(link, reading)
        if reader is None:
            return []
        late: set[int] = set()
        for number in range(tally.reached + 1, reader.newest + 1):
            if number not in reader.batches:
                continue
            again = tally.count(reader.batches[number].taken.get(reading.source, {}), writer.lineage, self._visible(link))
            if not link.drops:  # whether a Batch that was given up has gone over all the same, nobody knows
                late.update(again)
            tally.reached = number
        wrong = [number for number in range(before + 1, through + 1) if tally.differs(number, writer.put_in(number, link))]
        found = [
            mismatch_of(link, reading, writer.folder, reader.folder, writer.lineage, number, late=number in late)
            for number in sorted(late.union(wrong))[:_TOLD]
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
        """What is decided and not yet known to be published waits too."""
        taken, committed = self._intakes[link.channel, reading]
        writer = self._cursors[link.writer]
        under_way = [(number, *writer.rows_put(number, link)) for number in range(taken.added + 1, writer.newest + 1)]
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

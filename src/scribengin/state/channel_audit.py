"""Audit of channels: compares, at both ends, every upstream Batch that a reader has taken completely. Reads records only.

Counted, but not compared, are Batches of which earlier lineages of the reader have taken a part, Batches whose details are pruned at either
end, dropped Batches, and Batches beside which entries were skipped or a damaged record batch was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.connectors.channel.outbox import dropped_log
from scribengin.core.errors import Refused
from scribengin.state.channel_checks import NAMED, ChannelIntake, Publications, Tally, file_pieces, mismatch_of, put_by_unit
from scribengin.state.channel_digests import NOT_WHOLE, sum_units
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import past_lineages, read_lineage
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scribengin.connectors.contract import SourceStream
    from scribengin.state.channel_checks import ChannelLink, ChannelPiece, Mismatch, QueryReading, QueryTopology
    from scribengin.state.channel_digests import Sums
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder


@dataclass(frozen=True, slots=True)
class ChannelAudit:
    """The audit of one reader of a channel.

    `compared` and `not_compared` count the upstream Batches that the reader has taken completely and that could, or could not, be compared.
    `mismatches` explains the first five that differ; `more` is the number of the others.
    """

    channel: str
    reading: QueryReading
    compared: int
    not_compared: int
    mismatches: tuple[Mismatch, ...]
    more: int


def audit_channels(topology: QueryTopology) -> list[ChannelAudit]:
    """Audit each reader of every channel, unless it or the writer never ran or is being rewound. Needs no lease; during a run, covers what
    is decided by now."""
    return [found for link in topology.links for reading in link.readers if (found := _audit(topology, link, reading)) is not None]


def _audit(topology: QueryTopology, link: ChannelLink, reading: QueryReading) -> ChannelAudit | None:
    writer, reader = topology.queries[link.writer], topology.queries[reading.query]
    try:
        feeding, lineage = read_lineage(writer), read_lineage(reader)
    except Refused:  # a rewind is under way
        return None
    if feeding is None or lineage is None:
        return None
    compared = not_compared = 0
    wrong: list[tuple[QueryFolder, str, int, bool]] = []
    for part, each in [*past_lineages(writer), (writer, feeding)]:
        walk = _Walk(link, reading, _UpstreamLineage(link, writer, part, each.id), reader)
        walk.run()
        compared, not_compared = compared + walk.compared, not_compared + walk.not_compared
        wrong += [(part, each.id, number, number in walk.late) for number in sorted(walk.wrong | walk.late)]
    explained = [mismatch_of(link, reading, writer, reader, id_, number, late=late, part=part) for part, id_, number, late in wrong[:NAMED]]
    return ChannelAudit(link.channel, reading, compared, not_compared, tuple(explained), len(wrong) - len(explained))


class _UpstreamLineage:
    """The output of one lineage of the upstream query to the channel, read Batch by Batch."""

    def __init__(self, link: ChannelLink, writer: QueryFolder, part: QueryFolder, lineage: str) -> None:
        work = writer.work(link.channel)
        self._link, self.lineage, self._published = link, lineage, Publications(work, lineage)
        decisions = Decisions(part.decisions)
        self.first = decisions.pruned_mark() + 1
        self._decisions: Iterator[Decision] = decisions.since()
        self._dropped: set[int] = set()
        if link.drops:
            self._dropped = {body["number"] for _, body in dropped_log(work, lineage).since()}

    def next(self) -> tuple[int, str, list[ChannelPiece], Sums | None] | None:
        """Number, decision time, pieces and sums of the next Batch; None after the last one, or if its output is not known yet."""
        decision = next(self._decisions, None)
        if decision is None:
            return None
        number, link = decision.batch.number, self._link
        if number in self._dropped:
            return number, decision.decided_at, [], None
        receipts = [receipt for receipt in decision.receipts if receipt.sink == link.channel]
        if link.kind == "folder":
            pieces: list[ChannelPiece] | None = file_pieces(receipts)
        else:
            member = str(decision.behind.get(link.channel, {}).get("member", ""))
            amount = sum(receipt.rows for receipt in receipts), sum(receipt.bytes for receipt in receipts)
            pieces = self._published.pieces(number, member, *amount)
        if pieces is None:
            self._decisions = iter(())
            return None
        units = put_by_unit(receipts)
        return number, decision.decided_at, pieces, None if units is None else sum_units(units)


@dataclass
class _Walk:
    """Compares one lineage of the upstream query with the reader's present one. `wrong` and `late` are numbers of upstream Batches."""

    link: ChannelLink
    reading: QueryReading
    feeder: _UpstreamLineage
    reader: QueryFolder
    compared: int = 0
    not_compared: int = 0
    wrong: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._intake = ChannelIntake(batch=self.feeder.first)
        self._tally = Tally(self.feeder.first - 1)
        self._put: dict[int, Sums | None] = {}
        self._ended = False

    def run(self) -> None:
        """Compare all that the reader's decisions have taken."""
        source = self.reading.source
        log = SourceLog(self.reader.sources, source)
        for decision in Decisions(self.reader.decisions).since():
            ranges = next((each for each in decision.sources if each.source == source), None)
            if ranges is None:
                continue
            if self._intake.entry < ranges.start:
                # another lineage has taken these, or Batches whose details are pruned
                self._take(log, ranges.start)
                self._tally.skip(self._intake.reached)
            # the last Batch of a state that was moved here is counted in its old lineage
            passed_over = self._take(log, ranges.end) or decision.carried
            self._count(decision, passed_over=passed_over)

    def _take(self, log: SourceLog, end: int) -> bool:
        """Take the entries up to `end` (exclusive); True if one of their streams was skipped."""
        passed_over = False
        while self._intake.entry < end:
            streams = log.read(self._intake.entry)
            self._bring_up(streams)
            self._intake.take(streams)
            passed_over = passed_over or any(stream.skipped for stream in streams)
        return passed_over

    def _bring_up(self, streams: Sequence[SourceStream]) -> None:
        """Read upstream Batches until they cover the entry: a Batch must be known before it is taken."""
        while not self._ended and not self._intake.covers(streams):
            given = self.feeder.next()
            if given is None:
                self._ended = True
                return
            number, decided_at, pieces, put = given
            self._put[number] = put
            self._intake.put(number, decided_at, pieces)

    def _count(self, decision: Decision, *, passed_over: bool) -> None:
        source = self.reading.source
        said = decision.taken.get(source)
        counts = decision.counts.get(source)
        if passed_over or (said is None and counts is not None and counts.rows_in) or (said and NOT_WHOLE.lineage in said):
            self._tally.skip(self._intake.reached)
        if said:
            late = self._tally.count(said, self.feeder.lineage, self._intake.reached)
            self.late.update([] if self.link.drops else late)
        for number in [number for number in sorted(self._put) if number <= self._intake.through]:
            put = self._put.pop(number)
            known = put is not None and number > self._tally.begun
            self.compared, self.not_compared = self.compared + known, self.not_compared + (not known)
            if self._tally.differs(number, put):
                self.wrong.add(number)

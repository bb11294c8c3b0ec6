"""One Query's decisions as acknowledgements need them: read as they are written, kept until no reader waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from scribengin.connectors.channel.outbox import dropped_log
from scribengin.core.errors import StateError
from scribengin.core.records import seal, unseal
from scribengin.core.storage import read_or_none, replace
from scribengin.state.decisions import Decisions
from scribengin.state.mismatches import put_by_unit
from scribengin.state.publications import Publications, file_pieces
from scribengin.state.taken import in_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import Receipt
    from scribengin.state.ack_contract import ChannelLink
    from scribengin.state.ack_intake import ChannelPiece
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder
    from scribengin.state.taken import Sums, Taken

_KIND, _FORMAT = "acks", 1


@dataclass(slots=True)
class DecidedBatch:
    """The data of a decided Batch that is kept until it is acknowledged. `pieces` of a channel in a topic are read when they are wanted."""

    decided_at: str
    ends: dict[str, int]
    pieces: dict[str, list[ChannelPiece] | None]
    rows: dict[str, tuple[int, int]]
    members: dict[str, str]
    """channel that goes to a group → the member"""
    watermark_us: int | None
    leaves_us: int | None
    sums: dict[str, Sums | None]
    """channel → rows and digest of what was put in; None if the digest is not known"""
    taken: Mapping[str, Taken]


class DecisionCursor:
    """One Query's decisions from its newest acknowledged one on."""

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
        """`waits`: whether anybody has to commit behind it. `noted`: to go on from there, instead of from what lies in the folder. `first`:
        the number of the lineage's first Batch."""
        self.folder = folder
        self.lineage = lineage
        self.links = links
        self._dropped: dict[str, set[int]] = {link.channel: set() for link in links if link.drops}
        self._dropped_next = dict.fromkeys(self._dropped, 0)
        self._published: dict[str, Publications] = {}
        """channel → what a Kafka sink has noted there"""
        self.batches: dict[int, DecidedBatch] = {}
        self.newest = self.acknowledged = self._before = first - 1
        self.released = dict(starts)
        self.read = dict(starts)
        self.decided_at = self.acknowledged_at = ""
        """when the newest Batch, and the newest acknowledged one, was decided; empty if its details are gone"""
        self._decisions = Decisions(folder.decisions)
        noted = read_record(folder) if noted is None else noted
        self.record: Mapping[str, Any] = noted if noted.get("lineage") == lineage else {}
        if starts and waits:
            # what an older lineage had under way behind it is through when the first of this one's Batches is
            before = noted.get("released", {})
            self.released = {source: min(start, before.get(source, 0)) for source, start in starts.items()}
        self.floor = first - 1
        """the Batches up to here are acknowledged, and taken also by the readers that do not hold back their writer"""
        if self.record:
            self.acknowledged, self.floor = self.record["acknowledged"], self.record["floor"]
            self.newest = self.floor
            self.released = self.read = self.record["released"]
            self._take_over()
        self.from_first = not starts and self.floor < first
        """whether all that the Query ever took, in any lineage, is met here"""

    def read_new(self, *, jump: bool) -> None:
        """Read the new decisions. `jump`: older Batches than the newest two mean nothing."""
        self._look_at_dropped()
        begin = self.newest + 1
        if jump and self.newest == self.acknowledged and (newest := self._decisions.newest()) is not None:
            begin = max(begin, newest.batch.number - 1)
        self.from_first = self.from_first and begin <= self.newest + 1
        before = None
        for decision in self._since(begin):
            if before is not None and decision.batch.number != before + 1:
                break  # a folder that grows while it is listed may show a later file and not an earlier one: met at the next look
            before = self.newest = decision.batch.number
            self.read = {each.source: each.end for each in decision.sources}
            self.decided_at = decision.decided_at
            self.batches[self.newest] = self._kept(decision)

    def _take_over(self) -> None:
        """What the newest acknowledged decision says, where its details are still there."""
        try:
            decision = self._decisions.read(self.acknowledged)
        except StateError:
            return
        if decision is not None:
            self.decided_at = self.acknowledged_at = decision.decided_at

    def published(self) -> int:
        """The newest Batch of which that is known: the next one is decided, or Spark's log says that it is through."""
        if self.newest <= self._before or (self.folder.checkpoint / "commits" / str(self.newest)).exists():
            return self.newest
        return max(self.acknowledged, self.newest - 1)

    def put_in(self, number: int, link: ChannelLink) -> Sums | None:
        """Rows and digest that the Batch has put into the channel; None if that is not known, or it was dropped."""
        if number not in self.batches or number in self._dropped.get(link.channel, ()):
            return None
        return self.batches[number].sums[link.channel]

    def rows_put(self, number: int, link: ChannelLink) -> tuple[int, int]:
        """Rows and bytes that the Batch has decided to put into the channel."""
        if number not in self.batches or number in self._dropped.get(link.channel, ()):
            return 0, 0
        return self.batches[number].rows[link.channel]

    def pieces(self, number: int, link: ChannelLink) -> list[ChannelPiece] | None:
        """What the Batch has put into the channel; None while that is not known."""
        batch = self.batches[number]
        if link.drops and link.kind == "folder":  # its files are named before anybody knows whether it is dropped
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
        """All Batches up to that one."""
        if number <= self.acknowledged:
            return
        self.acknowledged = number
        known = number if number in self.batches else max(each for each in self.batches if each <= number)
        self.released, self.acknowledged_at = self.batches[known].ends, self.batches[known].decided_at

    def forget(self, through: int) -> None:
        """Drop the Batches up to there: they are no longer needed."""
        if through <= self.floor:
            return
        self.floor = through
        for each in list(takewhile(lambda number: number <= through, self.batches)):  # they stand in order
            del self.batches[each]
        for numbers in self._dropped.values():
            numbers.difference_update([each for each in numbers if each <= through])

    def _since(self, begin: int) -> Iterator[Decision]:
        try:
            if self._decisions.read(begin) is None:
                return
        except StateError:  # pruned, or torn: `since` tells which
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
    return None if units is None else in_all(units)


def _record_path(folder: QueryFolder) -> Path:
    return folder.ledger / "acks.json"


def read_record(folder: QueryFolder) -> dict[str, Any]:
    """The stored record, of any lineage; {} if there is none."""
    path = _record_path(folder)
    data = read_or_none(path)
    body: dict[str, Any] = {} if data is None else unseal(data, _KIND, _FORMAT, path)
    return body


def write_record(folder: QueryFolder, body: Mapping[str, Any]) -> None:
    """Store the record for the next process. Call it under the lease."""
    replace(_record_path(folder), seal(_KIND, _FORMAT, dict(body)))

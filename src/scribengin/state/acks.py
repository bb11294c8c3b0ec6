"""Acknowledgements: how far the ends of a cut flow have committed what its first tiers have taken in.

A Batch is acknowledged when it is decided and published, and each of its channels' readers has taken what it put there in Batches that
are acknowledged themselves. It starts at the last durable hop: a channel that may drop rows (`best_effort`) holds nobody. All of it is
read from the state folders, which any process may do at any time; what is kept beside them (`ledger/acks.json`) only saves walking.

An acknowledgement names a lineage and a number, and is void for another lineage. Once given it stays given: a channel or a reader that
is added later counts from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scribengin.core.errors import Refused, StateError
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.records import seal, unseal
from scribengin.core.storage import read_or_none, replace
from scribengin.state.ack_intake import Intake, Piece
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import read_lineage
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder

_KIND, _FORMAT = "acks", 1


class QueryKey(NamedTuple):
    """A Query of a flow."""

    tier: str
    query: str


class Reading(NamedTuple):
    """A Query that reads a channel, as its source of that id."""

    query: QueryKey
    source: str

    def __str__(self) -> str:
        return f"{self.query.tier}/{self.query.query}/{self.source}"


@dataclass(frozen=True, slots=True)
class Link:
    """A channel: the sink `channel` of `writer`. Where it does not hold, its writer waits for nobody behind it."""

    channel: str
    writer: QueryKey
    readers: tuple[Reading, ...]
    kind: Literal["kafka", "folder"]
    holds: bool = True
    drops: bool = False
    """whether rows may be dropped before the channel takes them"""


@dataclass(frozen=True, slots=True)
class Topology:
    """The Queries of a flow, feeders first, each with its folder, and its channels. A Query in `by_state` acknowledges rows only when they
    have left its state."""

    queries: Mapping[QueryKey, QueryFolder]
    links: tuple[Link, ...] = ()
    by_state: frozenset[QueryKey] = frozenset()


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


@dataclass(frozen=True, slots=True)
class LinkStanding:
    """Of one reader of a channel. `taken` and `committed`: the newest Batch of the writer that the reader has decided on, and that the end
    of the chain has committed, with all before. What waits is not yet taken; `open_rows` are not yet committed."""

    taken: int
    committed: int
    waiting_rows: int
    waiting_bytes: int
    waiting_batches: int
    oldest_at: str
    open_rows: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How a flow stands; a reader by the channel's id and itself."""

    queries: Mapping[QueryKey, QueryStanding]
    links: Mapping[tuple[str, Reading], LinkStanding]


@dataclass(slots=True)
class _Batch:
    """What is kept of a decided Batch until it is acknowledged. `pieces` of a channel in a topic are read when they are wanted."""

    decided_at: str
    ends: dict[str, int]
    pieces: dict[str, list[Piece] | None]
    rows: dict[str, tuple[int, int]]
    members: dict[str, str]
    """channel that goes to a group → the member"""
    watermark_us: int | None
    leaves_us: int | None


class _Cursor:
    """One Query's decisions from its newest acknowledged one on."""

    def __init__(self, folder: QueryFolder, lineage: str, starts: Mapping[str, int], links: list[Link]) -> None:
        self.folder = folder
        self.lineage = lineage
        self.links = links
        self._dropped: dict[str, set[int]] = {link.channel: set() for link in links if link.drops}
        self._dropped_next = dict.fromkeys(self._dropped, 0)
        self.batches: dict[int, _Batch] = {}
        self.newest = -1
        self.acknowledged = -1
        self.released = dict(starts)
        self.read = dict(starts)
        self.decided_at = ""
        self._decisions = Decisions(folder.decisions)
        self.record: dict[str, Any] = _read_record(folder, lineage)
        if self.record:
            self.acknowledged = self.newest = self.record["acknowledged"]
            self.released = self.read = self.record["released"]
            self._take_over()

    def look(self, *, jump: bool) -> None:
        """Read what was decided since. `jump`: older Batches than the newest two mean nothing."""
        self._look_at_dropped()
        begin = self.newest + 1
        if jump and self.newest == self.acknowledged and (newest := self._decisions.newest()) is not None:
            begin = max(begin, newest.batch.number - 1)
        for decision in self._since(begin):
            self.newest = decision.batch.number
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
            self.decided_at = decision.decided_at

    def published(self) -> int:
        """The newest Batch of which that is known: the next one is decided, or Spark's log says that it is through."""
        if self.newest < 0 or (self.folder.checkpoint / "commits" / str(self.newest)).exists():
            return self.newest
        return max(self.acknowledged, self.newest - 1)

    def pieces(self, number: int, link: Link) -> list[Piece] | None:
        """What the Batch has put into the channel; None while that is not known."""
        batch = self.batches[number]
        if number in self._dropped.get(link.channel, ()):
            return []
        found = batch.pieces.get(link.channel, [])
        if found is None:
            found = batch.pieces[link.channel] = self._published_messages(number, link, batch)
        return found

    def _look_at_dropped(self) -> None:
        for channel, numbers in self._dropped.items():
            log = NumberedLog(self.folder.work(channel) / self.lineage / "outbox" / "dropped", "dropped")
            for nth, body in log.since(self._dropped_next[channel]):
                numbers.add(body["number"])
                self._dropped_next[channel] = nth + 1

    def acknowledge(self, number: int) -> None:
        """All Batches up to that one."""
        if number <= self.acknowledged:
            return
        self.acknowledged = number
        self.released = self.batches[max(each for each in self.batches if each <= number)].ends
        for each in [each for each in self.batches if each <= number]:
            del self.batches[each]
        for numbers in self._dropped.values():
            numbers.difference_update([each for each in numbers if each <= number])

    def _since(self, begin: int) -> Iterator[Decision]:
        try:
            if self._decisions.read(begin) is None:
                return
        except StateError:  # pruned, or torn: `since` tells which
            pass
        yield from self._decisions.since(begin)

    def _kept(self, decision: Decision) -> _Batch:
        pieces: dict[str, list[Piece] | None] = {}
        rows: dict[str, tuple[int, int]] = {}
        for link in self.links:
            receipts = [receipt for receipt in decision.receipts if receipt.sink == link.channel]
            rows[link.channel] = sum(receipt.rows for receipt in receipts), sum(receipt.bytes for receipt in receipts)
            if link.kind == "kafka":
                pieces[link.channel] = None
                continue
            segments = [segment for receipt in receipts for segment in receipt.segments]
            pieces[link.channel] = [Piece(segment["name"], 0, segment["rows"], segment["bytes"]) for segment in segments]
        ends = {each.source: each.end for each in decision.sources}
        times = decision.times
        members = {sink: str(said["member"]) for sink, said in decision.behind.items() if "member" in said}
        return _Batch(decision.decided_at, ends, pieces, rows, members, times.get("watermark_us"), times.get("leaves_us"))

    def _published_messages(self, number: int, link: Link, batch: _Batch) -> list[Piece] | None:
        rows, bytes_ = batch.rows[link.channel]
        if not rows:
            return []
        work, member = self.folder.work(link.channel), batch.members.get(link.channel, "")
        said = NumberedLog(work / member / self.lineage / "published", "publication").read(number)
        if said is None:
            return None
        return [
            Piece(
                f"{member and f'{member}:'}{each['topic']}-{each['partition']}", each["last"], each["rows"], bytes_ * each["rows"] // rows
            )
            for each in said["messages"]
        ]


class Acks:
    """The acknowledgements of a flow. Each `look` reads only what is new; used by one thread."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._cursors: dict[QueryKey, _Cursor] = {}
        self._intakes: dict[tuple[str, Reading], tuple[Intake, Intake]] = {}
        """(what was taken by decided Batches, by acknowledged ones)"""
        self._logs: dict[Reading, SourceLog] = {}
        self._kept: dict[QueryKey, Any] = {}

    def look(self) -> Standing:
        """How the flow stands now. A Query that never ran, or that is being rewound, stands nowhere."""
        for key in self.topology.queries:
            self._refresh(key)
        for link in self.topology.links:
            for reading in link.readers:
                if link.writer in self._cursors:
                    self._bring_up(link, reading, 0)
        for key in reversed(list(self.topology.queries)):
            if key in self._cursors:
                self._acknowledge(key)
        return Standing(self._query_standings(), self._link_standings())

    def keep(self, key: QueryKey) -> None:
        """Under the lease of the Query's tier: note how it stands, so that the next process need not walk through all of it again."""
        cursor = self._cursors.get(key)
        if cursor is None:
            return
        links: dict[str, Any] = {}
        for link in cursor.links:
            for reading in link.readers:
                reader = self._cursors.get(reading.query)
                if reader is not None and (link.channel, reading) in self._intakes:
                    taken, committed = self._intakes[link.channel, reading]
                    marks = {"lineage": reader.lineage, "taken": taken.mark(), "committed": committed.mark()}
                    links.setdefault(link.channel, {})[str(reading)] = marks
        body = {"lineage": cursor.lineage, "acknowledged": cursor.acknowledged, "released": cursor.released, "links": links}
        if body != self._kept.get(key):
            replace(_record_path(cursor.folder), seal(_KIND, _FORMAT, body))
            self._kept[key] = body

    # --- pieces ---

    def _refresh(self, key: QueryKey) -> None:
        """Meet what a Query has decided; begin anew where it has another lineage."""
        folder = self.topology.queries[key]
        try:
            lineage = read_lineage(folder)
        except Refused:  # a rewind is under way
            lineage = None
        cursor = self._cursors.get(key)
        if lineage is None or cursor is None or cursor.lineage != lineage.id:
            self._cursors.pop(key, None)
            for link in self.topology.links:
                for reading in link.readers:
                    if key in (link.writer, reading.query):
                        self._intakes.pop((link.channel, reading), None)
                        self._logs.pop(reading, None)
            if lineage is None:
                return
            links = [link for link in self.topology.links if link.writer == key]
            cursor = self._cursors[key] = _Cursor(folder, lineage.id, lineage.starts, links)
        cursor.look(jump=not cursor.links and key not in self.topology.by_state)

    def _intake(self, link: Link, reading: Reading, level: int) -> Intake:
        at = (link.channel, reading)
        if at not in self._intakes:
            writer, reader = self._cursors[link.writer], self._cursors.get(reading.query)
            said = writer.record.get("links", {}).get(link.channel, {}).get(str(reading), {})
            known = reader is not None and said.get("lineage") == reader.lineage
            marks = [said["taken"], said["committed"]] if known else [{"batch": writer.acknowledged + 1}] * 2
            # Batches are kept from the acknowledged one on: a mark before it means nothing more
            marks = [mark | {"batch": max(mark["batch"], writer.acknowledged + 1)} for mark in marks]
            self._intakes[at] = (Intake(**marks[0]), Intake(**marks[1]))
        return self._intakes[at][level]

    def _bring_up(self, link: Link, reading: Reading, level: int) -> Intake:
        """Let the intake meet what the writer has decided, and what the reader has taken: in decided Batches, or (1) acknowledged ones."""
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
                intake.take(log.read(intake.entry))
        return intake

    def _acknowledge(self, key: QueryKey) -> None:
        cursor = self._cursors[key]
        through = cursor.published()
        for link in cursor.links:
            for reading in link.readers:
                committed = self._bring_up(link, reading, 1).through
                through = min(through, committed) if link.holds else through
        if key in self.topology.by_state:
            through = _left_the_state(cursor.batches, cursor.acknowledged, through)
        cursor.acknowledge(through)

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
            )
            for key in self.topology.queries
        }

    def _link_standings(self) -> dict[tuple[str, Reading], LinkStanding]:
        return {
            at: LinkStanding(
                taken.through,
                committed.through,
                taken.rows,
                taken.bytes,
                max(0, taken.added - taken.through),
                taken.oldest_at,
                committed.rows,
            )
            for at, (taken, committed) in self._intakes.items()
        }


def _left_the_state(batches: Mapping[int, _Batch], acknowledged: int, through: int) -> int:
    """The newest Batch up to `through` whose rows, and those of all before it, have left the state by Batch `through`."""
    reached = max(
        (each.watermark_us for number, each in batches.items() if number <= through and each.watermark_us is not None), default=None
    )
    for number in sorted(number for number in batches if number <= through):
        leaves_us = batches[number].leaves_us
        if leaves_us is not None and (reached is None or leaves_us > reached):
            break
        acknowledged = number
    return acknowledged


def _record_path(folder: QueryFolder) -> Path:
    return folder.ledger / "acks.json"


def _read_record(folder: QueryFolder, lineage: str) -> dict[str, Any]:
    path = _record_path(folder)
    data = read_or_none(path)
    body: dict[str, Any] = {} if data is None else unseal(data, _KIND, _FORMAT, path)
    return body if body.get("lineage") == lineage else {}

"""The audit of a Kafka sink's topics: checks that every committed message still exists, and that no other message names the flow."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import NEXT_RUN, Published
from scribengin.connectors.kafka.scan import PartitionScan, id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scribengin.connectors.contract import Decided
    from scribengin.core.numbered_log import NumberedLog

_SHOWN = 5


@dataclass(slots=True)
class _Range:
    """The range of one Batch's messages in one partition, and the number of messages found there. Messages of other writers may lie between
    them."""

    lineage: str
    number: int
    first: int
    last: int
    rows: int
    found: int = 0
    gone: int = 0
    """the number of offsets at the beginning of the range that retention has deleted"""


@dataclass(slots=True)
class TopicsAudit:
    """The audit of one sink's topics. `flow` is the beginning of the id header; None if the sink writes no such header: then every message
    in a range counts."""

    node: str
    options: Mapping[str, Any]
    flow: str | None
    logs: Mapping[str, NumberedLog]
    """lineage → the log of its published Batches"""
    rows_in: Callable[[Any], int]
    """returns the number of rows in a message, 0 if it is not the sink's"""
    _ranges: dict[tuple[str, int], list[_Range]] = field(default_factory=lambda: defaultdict(list))
    _strays: list[str] = field(default_factory=list)

    def run(self, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        """Returns a Published per decided Batch, in order; then one with number -1 if messages of the flow exist that no Batch wrote."""
        published: dict[int, str] = {}
        for name, log in self.logs.items():
            for number, body in log.since():
                published |= {number: body["hash"]} if name == lineage else {}
                for each in body["messages"]:
                    self._add((each["topic"], each["partition"]), _Range(name, number, each["first"], each["last"], each["rows"]))
        for place, ranges in self._ranges.items():
            ranges.sort(key=lambda each: each.first)
            self._scan(*place, ranges)
        of_batch: dict[int, list[tuple[str, int, _Range]]] = defaultdict(list)
        for (topic, partition), ranges in self._ranges.items():
            for each in ranges:
                if each.lineage == lineage:
                    of_batch[each.number].append((topic, partition, each))
        for one in decided:
            yield _compare(one, published.get(one.batch.number), of_batch[one.batch.number])
        if self._strays:
            more = f" and {len(self._strays) - _SHOWN} more" if len(self._strays) > _SHOWN else ""
            yield Published(-1, 0, (f"no batch wrote {', '.join(self._strays[:_SHOWN])}{more}",))

    def _add(self, place: tuple[str, int], range_: _Range) -> None:
        """Add a range. Task outputs of one Batch are written concurrently, so their messages are interleaved: their ranges are merged."""
        ranges = self._ranges[place]
        if ranges and (ranges[-1].lineage, ranges[-1].number) == (range_.lineage, range_.number):
            last = ranges[-1]
            last.first, last.last, last.rows = min(last.first, range_.first), max(last.last, range_.last), last.rows + range_.rows
        else:
            ranges.append(range_)

    def _scan(self, topic: str, partition: int, ranges: list[_Range]) -> None:
        """Count the messages of each range."""
        firsts = [each.first for each in ranges]
        with PartitionScan(self.node, self.options, topic, partition, "sink") as scan:
            scan.await_end(ranges[-1].last)
            for each in ranges:
                each.gone = max(0, min(scan.low, each.last + 1) - each.first)
            for message in scan.messages(firsts[0], scan.end):
                self._see(message, (topic, partition), ranges[max(0, bisect_right(firsts, message.offset()) - 1)])

    def _see(self, message: Any, place: tuple[str, int], range_: _Range) -> None:
        inside = range_.first <= message.offset() <= range_.last
        if self.flow is None:
            range_.found += self.rows_in(message) if inside else 0
            return
        ours = id_of(message).startswith(self.flow)
        if ours and inside:
            range_.found += 1
        elif ours:
            self._strays.append(f"{place[0]}-{place[1]} offset {message.offset()}")


def _compare(decided: Decided, hash_: str | None, ranges: list[tuple[str, int, _Range]]) -> Published:
    number, rows = decided.batch.number, sum(receipt.rows for receipt in decided.receipts)
    if hash_ is None:
        return Published(number, 0, (f"batch {number} is decided, but not published; {NEXT_RUN} it",))
    if hash_ != decided.input_hash or rows != sum(each.rows for _, _, each in ranges):
        return Published(number, 0, (f"batch {number} was published differently from its decision",))
    wrong = []
    found = 0
    for topic, partition, each in ranges:
        # records deleted by retention did exist, but cannot be counted any more
        there = each.rows if each.gone else min(each.found, each.rows)
        found += there
        if there < each.rows:
            where = f"{topic}-{partition}[{each.first}:{each.last + 1}]"
            wrong.append(f"batch {number}: {each.rows - there} of its {each.rows} messages are missing in {where}")
    return Published(number, found, tuple(wrong))

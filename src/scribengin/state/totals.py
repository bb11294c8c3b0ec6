"""Totals of the decisions of a lineage."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scribengin.formats.notice import FormatNotice
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.state.contract import Decision


@dataclass(slots=True)
class SinkTotals:
    """Totals of the write receipts of one sink."""

    rows: int = 0
    bytes: int = 0
    files: int = 0


@dataclass(slots=True)
class Noticed:
    """A notice about a source's data, with the first Batch that had it, and when that Batch was decided. `records` of the notice is the sum
    over all Batches."""

    notice: FormatNotice
    batch: int
    at: str

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Noticed:
        """The value that `asdict` returned."""
        return Noticed(FormatNotice(**data["notice"]), data["batch"], data["at"])


@dataclass(slots=True)
class Totals:
    """Sums over `batches` decisions.

    `nodes` maps node id → counts, `sinks` sink id → write receipts; `dead` counts the dead letters in segments. `held` of a node is that of
    the last Batch.
    """

    batches: int = 0
    nodes: dict[str, Counts] = field(default_factory=dict)
    sinks: dict[str, SinkTotals] = field(default_factory=dict)
    dead: int = 0
    last: int = -1
    """the number of the last Batch counted; -1 for none"""
    noticed: dict[tuple[str, str, str], Noticed] = field(default_factory=dict)
    """(source, column, kind) → what the data has that differs from the schema"""
    ends: dict[str, int] = field(default_factory=dict)
    """source → number of entries of its log that were taken, also for sources that the newest Batches no longer read"""

    def add(self, decision: Decision) -> None:
        """Add a Batch. Call it once for each Batch, in order."""
        self.batches += 1
        self.last = decision.batch.number
        self.ends |= {each.source: each.end for each in decision.sources}
        for node, counts in decision.counts.items():
            self.nodes.setdefault(node, Counts()).add_batch(counts)
        for receipt in decision.receipts:
            sink = self.sinks.setdefault(receipt.sink, SinkTotals())
            sink.rows += receipt.rows
            sink.bytes += receipt.bytes
            sink.files += len(receipt.segments)
        for id_, refused in (decision.refused or {}).items():
            self.sinks[id_].rows -= refused.rows
        self.dead += sum(segment.rows for segment in decision.dead)
        for notice in decision.noticed:
            if notice.key not in self.noticed:
                self.noticed[notice.key] = Noticed(replace(notice, records=0), decision.batch.number, decision.decided_at)
            self.noticed[notice.key].notice.records += notice.records

    def as_json(self) -> dict[str, Any]:
        """The totals as they are stored in a summary."""
        told = {"noticed": [asdict(each) for each in self.noticed.values()], "ends": self.ends}
        return {
            "batches": self.batches,
            "nodes": {node: counts.as_json() for node, counts in self.nodes.items()},
            "sinks": {sink: asdict(totals) for sink, totals in self.sinks.items()},
            "dead": self.dead,
            "last": self.last,
        } | {name: part for name, part in told.items() if part}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Totals:
        """The totals that `as_json` wrote."""
        return Totals(
            data["batches"],
            {node: Counts.from_json(counts) for node, counts in data["nodes"].items()},
            {sink: SinkTotals(**totals) for sink, totals in data["sinks"].items()},
            data["dead"],
            data["last"],
            {each.notice.key: each for each in map(Noticed.from_json, data.get("noticed", ()))},
            dict(data.get("ends", {})),
        )

"""The values in the state folder, and the order in which they are written.

`.scribengin/<flow>/<tier>/lock`, and per query `<query>/{lineage.json, checkpoint/, sources/<source>/, decisions/, dead/, ledger/}`.
A Batch's life: log the source entries → stage → decide (one record, put-if-absent) → publish from it → Spark's own commit.
Everything that is in the ledger can be made again from the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import BatchId, Decided, Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.formats.notice import FormatNotice
    from scribengin.state.channel_digests import Taken
    from scribengin.state.clocks import Clock


REPARTITION = "repartition"
"""stands in for the input hash of a Batch without input and counts, which Spark ran to repartition the state"""


@dataclass(slots=True)
class Counts:
    """The rows of one node in one Batch.

    A stateless node balances if rows_in + made == out + filtered + dead; a stateful one if the output of its upstream nodes == rows_in +
    late + dead. `held` is the number of rows or windows in its state.

    `lost` is the greatest possible number of records of a source that were deleted before they were read, and without which the flow
    continued; `lost_unknown` is the number of losses of unknown size. `replayed` of `rows_in` are dead letters that a replay has sent in
    here: no upstream node has written them.
    """

    rows_in: int = 0
    out: int = 0
    filtered: int = 0
    dead: int = 0
    late: int = 0
    made: int = 0
    held: int | None = None
    lost: int = 0
    lost_unknown: int = 0
    replayed: int = 0
    parts: dict[str, Counts] = field(default_factory=dict)
    """for a step of utilities: name → its own counts, in the order in which the utilities ran"""
    late_dead: int = 0
    """those of `dead` that became dead letters because the watermark had passed them"""
    apart: int = 0
    """if there are `parts`: by how much out + dead exceeds rows_in in those Batches in which the step had no utilities"""

    def add(self, other: Counts) -> None:
        """Add the other counts, including `parts`, to these; both are of the same Batch. `held` is not a sum: the later value
        replaces it."""
        self.rows_in += other.rows_in
        self.out += other.out
        self.filtered += other.filtered
        self.dead += other.dead
        self.late += other.late
        self.made += other.made
        self.lost += other.lost
        self.lost_unknown += other.lost_unknown
        self.replayed += other.replayed
        self.late_dead += other.late_dead
        if other.held is not None:
            self.held = other.held
        for name, part in other.parts.items():
            self.parts.setdefault(name, Counts()).add(part)

    def add_batch(self, other: Counts) -> None:
        """Add the counts of another Batch. Unlike in `add`, the step may have utilities in only one of the two."""
        apart = self._beside_parts() + other._beside_parts()
        self.add(other)
        self.apart = apart if self.parts else 0

    def _beside_parts(self) -> int:
        return self.apart if self.parts else self.out + self.dead - self.rows_in

    def as_json(self) -> dict[str, Any]:
        """The counts as JSON: `{"in": …, "out": …, "filtered": …, "dead": …, "late": …, "made": …}`.

        In addition: `held` if the node keeps state; `lost` and `lost_unknown` if records were lost; `replayed`, `late_dead` and `apart` if
        they are not 0; `utilities` (name → the same form) if the step has utilities.
        """
        counts = {"in": self.rows_in, "out": self.out, "filtered": self.filtered, "dead": self.dead, "late": self.late, "made": self.made}
        lost = {"lost": self.lost, "lost_unknown": self.lost_unknown} if self.lost or self.lost_unknown else {}
        again = {"replayed": self.replayed} if self.replayed else {}
        late = {"late_dead": self.late_dead} if self.late_dead else {}
        parts = {"utilities": {name: part.as_json() for name, part in self.parts.items()}} if self.parts else {}
        apart = {"apart": self.apart} if self.apart else {}
        return counts | ({} if self.held is None else {"held": self.held}) | lost | again | late | parts | apart

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Counts:
        """The counts that `as_json` wrote."""
        counts = Counts(data["in"], data["out"], data["filtered"], data["dead"], data["late"], data["made"], data.get("held"))
        counts.lost, counts.lost_unknown = data.get("lost", 0), data.get("lost_unknown", 0)
        counts.replayed = data.get("replayed", 0)
        counts.late_dead = data.get("late_dead", 0)
        counts.apart = data.get("apart", 0)
        counts.parts = {name: Counts.from_json(part) for name, part in data.get("utilities", {}).items()}
        return counts


@dataclass(frozen=True, slots=True)
class LineSegment:
    """A durable file of lines: dead letters, relative to the query's `dead` folder, or provenance, relative to its `trails` folder."""

    name: str
    rows: int
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows of a decided Batch that the target of a sink rejected. `dead` is the segment with their dead letters, None if there are none."""

    rows: int
    dead: LineSegment | None = None


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The entries of a source's log that a Batch took: `start` (inclusive) to `end` (exclusive)."""

    source: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The record of a Batch's outcome. Written once, never changed.

    `counts` maps node id → Counts. It has no node `step.branch`: a step counts its branches together.

    `input_hash` covers lineage, number, source ranges with their streams and the plan's fingerprint, but not the rows: a step may be
    random.
    """

    batch: BatchId
    input_hash: str
    plan: str
    sources: tuple[SourceRange, ...]
    receipts: tuple[Receipt, ...]
    dead: tuple[LineSegment, ...] = ()
    counts: Mapping[str, Counts] = field(default_factory=dict)
    decided_at: str = ""
    """ISO 8601, for people"""
    behind: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """sink → what it reported about its target before the Batch ran; only for sinks that report something"""
    trails: tuple[LineSegment, ...] = ()
    """the provenance of the records that were sampled in the Batch, in the query's `trails` folder"""
    times: Mapping[str, int] = field(default_factory=dict)
    """for a query that keeps state, in microseconds since 1970: `watermark_us`, under which the Batch ran; `leaves_us`, the watermark at
    which all rows that the Batch took in have left the state (the largest number if no watermark removes them)"""
    ran: Mapping[str, str] = field(default_factory=dict)
    """`tier` and `host`; `workers`, the number of workers that staged a part of the Batch, if it is more than one"""
    taken: Mapping[str, Taken] = field(default_factory=dict)
    """source that is a channel → what the Batch has taken from it, for each upstream Batch; see `state.channel_digests`"""
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """step of utilities → how they ran and what was learned about them; see `spark.step_ordering`"""
    noticed: tuple[FormatNotice, ...] = ()
    """columns in the data that differ from the source's schema and that no earlier Batch has reported, and values that became null"""
    offers: tuple[str, ...] = ()
    """sinks whose targets report only after the decision which rows they reject"""
    refused: Mapping[str, RefusedRows] | None = None
    """the rejected rows of these sinks, once they are settled: sink → its rows. They are also part of `counts` and `dead`. None before"""
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    """for a query that keeps state: node with a watermark → how far its event time has come, up to this Batch"""
    lookups: tuple[str, ...] = ()
    """marks of records of static sources that are dead letters of this Batch or of an earlier one; see `state.lookups`"""
    before: Mapping[str, Any] = field(default_factory=dict)
    """what was measured of the Batch before this one, which only its end could tell: `phases_s`, phase → seconds; for a query that keeps
    state `state_rows` and `state_bytes`. Empty if another process ran that Batch"""

    @property
    def open(self) -> bool:
        """True while a target may still reject rows."""
        return bool(self.offers) and self.refused is None

    @property
    def carried(self) -> bool:
        """True for the last Batch of a state that continues in another lineage. A move has written it, with Term 0."""
        return self.batch.term == 0

    @property
    def empty(self) -> bool:
        """True for a record of a Batch in which nothing ran: its state was repartitioned, or continues in another lineage. A chained sink
        (`is_chained`) takes no part in such a Batch."""
        return not (self.counts or self.receipts or self.behind or self.taken)

    def of_sink(self, sink: str) -> Decided:
        """The part of the decision that one sink publishes."""
        receipts = tuple(receipt for receipt in self.receipts if receipt.sink == sink)
        refused = (self.refused or {}).get(sink)
        return Decided(self.batch, self.input_hash, receipts, self.behind.get(sink, {}), refused.rows if refused else 0)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that a step could not process. `payload` is the record's bytes (the first 64 KiB of a larger one)."""

    id: str
    """`<source>/<file>:<place>#<step>`, the same in every run for the same record and step. It ends in `.1` and so on for a further row of
    the record, and in `~1` and so on for a row that died again after a replay"""
    query: str
    batch: int
    step: str
    reason: str
    message: str
    source: str = ""
    file: str = ""
    line: int | None = None
    row: int | None = None
    offset: int | None = None
    exception: str = ""
    code_line: str = ""
    """the line of the user's code that raised, as file and number: steps.py:12"""
    payload: bytes = b""
    truncated: bool = False
    record: str = ""
    """the id of the record in all tiers, from its first coordinates; empty if the row is not from a single record"""
    trail: tuple[Mapping[str, Any], ...] = ()
    """the provenance of the record, hop by hop, the Batch in which it died last"""
    came: str = ""
    """the row as it reached the step, as JSON, if it is known: a replay can begin there; empty if the step is the source"""
    form: str = ""
    """of `payload`: `bytes` is the record as the source reads it, `row` is its row as JSON; empty if no record of a source is known"""
    alone: bool = False
    """True if no earlier Python step, in the stage where it died, had made several rows of one record"""
    way: str = ""
    """for a sink with several inputs: the input by which the row reached it"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """what the source's columns take from outside the payload; for a message `key` (base64), `timestamp_ms`, `headers` (name, base64)"""
    replays: int = 0
    """how often it had been replayed when it died"""
    replay_of: str = ""
    """the dead letter that was replayed, as `<batch>:<place in it>`"""
    repaired: bool = False
    """True if an operator changed it before the replay"""

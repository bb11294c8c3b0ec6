"""The values in the state folder, and the order in which they are written.

`.scribengin/<flow>/<tier>/lock`, and per Query `<query>/{lineage.json, checkpoint/, sources/<source>/, decisions/, dead/, ledger/}`.
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
"""replaces the input hash of a Batch without input and counts, which Spark ran to repartition the state"""


@dataclass(slots=True)
class Counts:
    """The rows of one node in one Batch. A stateless node balances when rows_in + made == out + filtered + dead; a stateful one
    when what its feeders put out == rows_in + late + dead (`held`: rows or windows in its state).

    `lost` counts what never came in: records of a source that were gone before they were read, and that the flow went on without, at
    most; `lost_unknown` the number of losses with an unknown count. `replayed` of `rows_in` are dead letters that a replay has sent in
    here, and no feeder has put out."""

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
    """of a step of utilities: name → its own counts, each in the order in which it ran"""
    late_dead: int = 0
    """of `dead`, rows that became dead letters because the watermark had passed them"""
    apart: int = 0
    """if there are `parts`: by how much `out` and `dead` are more than `rows_in` in Batches in which the step was none of utilities"""

    def add(self, other: Counts) -> None:
        """Add the other's rows to these, with `parts` those of the same Batch; `held` is a level, the later one stands."""
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
        """Add the counts of another Batch, like `add`; a step may be one of utilities in only one of the two."""
        apart = self._beside_parts() + other._beside_parts()
        self.add(other)
        self.apart = apart if self.parts else 0

    def _beside_parts(self) -> int:
        return self.apart if self.parts else self.out + self.dead - self.rows_in

    def as_json(self) -> dict[str, Any]:
        """`{"in": …, "out": …, "filtered": …, "dead": …, "late": …, "made": …}`; `held` if there is state, `lost` and
        `lost_unknown` if records were lost, `replayed` and `late_dead` if there were any, `utilities` (name → the same) if the step has
        them, with `apart` if some Batches had none."""
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
    """A durable file of lines: dead letters, relative to the Query's `dead` folder, or trails, relative to `trails`."""

    name: str
    rows: int
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows of a decided Batch that a sink's place did not take; `dead` are their dead letters, if there are any."""

    rows: int
    dead: LineSegment | None = None


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Which entries of a source's log a Batch took: `start` (inclusive) to `end` (exclusive)."""

    source: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The record of a Batch's outcome. Written once, never changed.

    `counts` maps node id → Counts. It never contains a node `step.branch`, but its step.
    `input_hash` covers lineage, number, source ranges with their streams and the plan's fingerprint; never the rows: a step may be random.
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
    """sink → what it said of its place before the Batch ran; only of those that do"""
    trails: tuple[LineSegment, ...] = ()
    """the ways of the records that were chosen for it, in the Query's `trails` folder"""
    times: Mapping[str, int] = field(default_factory=dict)
    """of a Query that keeps state, in microseconds since 1970: `watermark_us` under which the Batch ran; `leaves_us`, the watermark at
    which all rows that it took in have left the state (the largest number where no watermark ever sees to it)"""
    ran: Mapping[str, str] = field(default_factory=dict)
    """`tier` and `host`; `workers`, how many have staged a part of it, where that is more than one"""
    taken: Mapping[str, Taken] = field(default_factory=dict)
    """source that is a channel → what of it the Batch has taken, as its feeder counts it; see `state.channel_digests`"""
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """step of utilities → how they ran and what was learned of them: see `spark.step_ordering`"""
    noticed: tuple[FormatNotice, ...] = ()
    """of sources whose data have other columns than are declared, where no Batch before has said it, or values that became null"""
    offers: tuple[str, ...] = ()
    """sinks whose places say behind the decision which rows they refuse"""
    refused: Mapping[str, RefusedRows] | None = None
    """what of those came to be known, once it is settled: sink → what it has refused. `counts` and `dead` have it too"""
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    """of a Query that keeps state: node with a watermark → how far it has come, up to this Batch"""
    lookups: tuple[str, ...] = ()
    """of static sources, the records that are dead letters of this Batch or of one before: see `state.lookups`"""

    @property
    def open(self) -> bool:
        """True if a place may still refuse rows."""
        return bool(self.offers) and self.refused is None

    @property
    def carried(self) -> bool:
        """True of the last Batch of a state that goes on in another lineage: a move has written it, under no Term."""
        return self.batch.term == 0

    @property
    def empty(self) -> bool:
        """True of a record for which nothing ran: a state was spread anew, or goes on in another lineage. A sink that is reported
        beforehand what a Batch follows was reported nothing of it, and has no part in it."""
        return not (self.counts or self.receipts or self.behind or self.taken)

    def of_sink(self, sink: str) -> Decided:
        """The part of the decision that one sink publishes."""
        receipts = tuple(receipt for receipt in self.receipts if receipt.sink == sink)
        refused = (self.refused or {}).get(sink)
        return Decided(self.batch, self.input_hash, receipts, self.behind.get(sink, {}), refused.rows if refused else 0)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that a step could not handle. `payload` is the record's bytes (first 64 KiB of a larger one)."""

    id: str
    """`<source>/<file>:<place>#<step>`: the same for the same record and step in every run; a further row of one record ends in `.1`, one
    that a replay has brought to its death again in `~1`, and so on"""
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
    """what the record is called in all tiers, by its first coordinates; empty if no single record stands behind it"""
    trail: tuple[Mapping[str, Any], ...] = ()
    """the way by which it came, stop by stop, this Batch last"""
    came: str = ""
    """as JSON, the row that came to the step, where that is known: a replay can begin there; empty if the step is the source"""
    form: str = ""
    """of `payload`: `bytes` are the record as the source reads it, `row` is its row as JSON; empty if no record of a source is known"""
    alone: bool = False
    """True if no Python step on its way, in the stage where it died, had made several rows of a record"""
    way: str = ""
    """the input by which it came to a sink of several"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """of a message, what the source's columns take from elsewhere: `key` (base64), `timestamp_ms`, `headers` (name, base64)"""
    replays: int = 0
    """how often it had been replayed when it died"""
    replay_of: str = ""
    """the dead letter that was replayed, `<batch>:<place in it>`"""
    repaired: bool = False
    """True if a person has changed it before the replay"""

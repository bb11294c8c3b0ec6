"""Decision records: what each Batch of a Query is, said once. The consensus point; Spark's own log is none."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import BatchId, Receipt
from scribengin.core import faults
from scribengin.core.errors import FencedError, StateError
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.records import canonical
from scribengin.formats.notice import FormatNotice
from scribengin.state.clocks import Clock
from scribengin.state.contract import Counts, Decision, LineSegment, RefusedRows, SourceRange
from scribengin.state.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import SourceStream

_HASH_FORMAT = 1


class Decisions:
    """The decision records of one Query. Reading needs no lease; deciding is safe without one, and pointless."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = NumberedLog(folder, "decision", awaits=lambda body: bool(body.get("offers")))

    def decide(self, decision: Decision, *, hash_under: Callable[[str], str] | None = None) -> Decision:
        """Write the Batch's decision durably if there is none; returns the one that stands there, to be published.

        An earlier one stands, whatever its Term, when it was made over the same input. So does one of an older driver that woke late,
        with the plan before an edit: `hash_under` gives this Batch's input hash under another plan. Raises FencedError where a newer
        Term has decided otherwise, StateError where the numbers leave a gap or the input differs.
        """
        number = decision.batch.number
        self._check_order(decision)
        faults.reached("decide.before")
        stored = decision_from_json(self._log.put(number, decision_as_json(decision)))
        faults.reached("decide.after")
        same_input = (decision.input_hash, self._before_edit(stored, decision, hash_under))
        if stored.batch.lineage != decision.batch.lineage or stored.input_hash not in same_input:
            kind = FencedError if stored.batch.term > decision.batch.term else StateError
            raise kind(
                f"batch {number} of {decision.batch.query} was decided over other input at {stored.decided_at}, "
                f"under term {stored.batch.term}; this is term {decision.batch.term}",
                remedy="stop this driver; restart the flow, which goes on from what was decided",
            )
        if self._log.wants_folding(number):
            self.fold()
        return stored

    def settle(self, number: int, refused: Mapping[str, RefusedRows]) -> Decision:
        """Say durably what the places have refused of Batch `number`, unless that is said; returns the decision with what stands there.
        Raises FencedError where the Batch is long done."""
        faults.reached("settle.before")
        body = self._log.put_beside(number, {"refused": {sink: asdict(each) for sink, each in refused.items()}})
        faults.reached("settle.after")
        return decision_from_json(body)

    def read(self, number: int) -> Decision | None:
        """The decision of Batch `number`, or None where it is undecided. Raises StateError for a torn or edited record."""
        body = self._log.read(number)
        return None if body is None else decision_from_json(body)

    def newest(self) -> Decision | None:
        """The last decided Batch, or None. As fast after 100,000 Batches as after 1,000."""
        number = self._log.newest()
        return None if number is None else self.read(number)

    def since(self, number: int = 0) -> Iterator[Decision]:
        """Decisions from `number` on, in order; old ones a thousand in memory at a time."""
        for _, body in self._log.since(number):
            yield decision_from_json(body)

    def totals(self) -> Totals:
        """What all decisions come to, but for one of which a place may still refuse rows: the folded ones from their summary, the others
        one by one."""
        high, summary = self._log.summary()
        totals = Totals() if summary is None else Totals.from_json(summary)
        for decision in self.since(high + 1):
            if not decision.open:
                totals.add(decision)
        return totals

    def fold(self) -> None:
        """Fold old records into few files, their totals into a summary; see `NumberedLog`."""
        self._log.fold(_summarize)

    def pruned_mark(self) -> int:
        """The last Batch whose details are gone; -1 where none is."""
        return self._log.pruned_mark()

    def pruned(self) -> Totals:
        """What the decisions came to whose details are gone: those up to `last`."""
        _, summary = self._log.pruned()
        return Totals() if summary is None else Totals.from_json(summary)

    def prune(self, before: datetime) -> int:
        """Under the lease: forget the details of folded Batches decided before that; returns of how many.

        Totals stay, and so do the names of their dead letters, until `drop_letters`.
        """
        return self._log.prune(lambda body: moment(body["decided_at"]) < before, _letters_of, _summarize)

    def letters(self, since: int = 0) -> Iterator[BatchDeadLetters]:
        """The dead letters of every Batch that has some, from number `since` on, in order; also where all else of it is pruned."""
        for number, rest in self._log.rests(since):
            yield BatchDeadLetters(number, tuple(LineSegment(**each) for each in rest["dead"]), rest["decided_at"])
        for decision in self.since(since):
            if decision.dead:
                yield BatchDeadLetters(decision.batch.number, decision.dead, decision.decided_at)

    def drop_letters(self, through: int) -> None:
        """Forget the names of pruned Batches' letters, up to number `through`: they are deleted."""
        self._log.drop_rests(through)

    @staticmethod
    def _before_edit(stored: Decision, decision: Decision, hash_under: Callable[[str], str] | None) -> str | None:
        """The input hash that `stored` must have to stand although the plan is another; None where it cannot."""
        return hash_under(stored.plan) if hash_under is not None and stored.batch.term < decision.batch.term else None

    def _check_order(self, decision: Decision) -> None:
        before = self.read(decision.batch.number - 1)
        if before is None:
            newest = self._log.newest()
            if newest is not None and newest < decision.batch.number:
                raise StateError(
                    f"batch {decision.batch.number} of {decision.batch.query} would leave a gap: the last decided one is {newest}",
                    remedy="restore the state folder as a whole; its parts belong together",
                )
        elif before.batch.term > decision.batch.term:
            raise FencedError(
                f"batch {before.batch.number} of {decision.batch.query} was decided under term {before.batch.term}; "
                f"this is term {decision.batch.term}",
                remedy="another driver has taken over; stop this one",
            )


def input_hash(batch: BatchId, ranges: Iterable[SourceRange], streams: Mapping[str, Sequence[SourceStream]], fingerprint: str) -> str:
    """What a Batch is made from, as a SHA-256: lineage, number, the sources' ranges with their streams, the plan.

    Not the Term: a successor may go on from it. Not the rows: a step may be random.
    """
    over = [
        _HASH_FORMAT,
        [batch.flow, batch.query, batch.lineage, batch.number],
        [[each.source, each.start, each.end, [stream.as_json() for stream in streams[each.source]]] for each in ranges],
        fingerprint,
    ]
    return hashlib.sha256(canonical(over)).hexdigest()


def decision_as_json(decision: Decision) -> dict[str, Any]:
    """The body of the record."""
    return {
        "batch": asdict(decision.batch),
        "input_hash": decision.input_hash,
        "plan": decision.plan,
        "sources": [asdict(each) for each in decision.sources],
        "receipts": [receipt.as_json() for receipt in decision.receipts],
        "dead": [asdict(segment) for segment in decision.dead],
        "counts": {node: counts.as_json() for node, counts in decision.counts.items()},
        "decided_at": decision.decided_at,
    } | _given(
        behind={sink: dict(said) for sink, said in decision.behind.items()},
        trails=[asdict(segment) for segment in decision.trails],
        times=dict(decision.times),
        ran=dict(decision.ran),
        taken=decision.taken,
        orders=dict(decision.orders),
        noticed=[each.as_json() for each in decision.noticed],
        offers=list(decision.offers),
        clocks={node: asdict(clock) for node, clock in decision.clocks.items()},
        lookups=list(decision.lookups),
    )


def decision_from_json(body: Mapping[str, Any]) -> Decision:
    """The decision that `decision_as_json` wrote, with what stands beside it."""
    refused = {sink: _refused(each) for sink, each in body.get("refused", {}).items()}
    counts = {node: Counts.from_json(counts) for node, counts in body["counts"].items()}
    for sink, each in refused.items():
        counts[sink].out -= each.rows
        counts[sink].dead += each.rows
    return Decision(
        BatchId(**body["batch"]),
        body["input_hash"],
        body["plan"],
        tuple(SourceRange(**each) for each in body["sources"]),
        tuple(Receipt.from_json(each) for each in body["receipts"]),
        (*(LineSegment(**each) for each in body["dead"]), *(each.dead for each in refused.values() if each.dead is not None)),
        counts,
        body["decided_at"],
        body.get("behind", {}),
        tuple(LineSegment(**each) for each in body.get("trails", ())),
        body.get("times", {}),
        body.get("ran", {}),
        body.get("taken", {}),
        body.get("orders", {}),
        tuple(FormatNotice(**each) for each in body.get("noticed", ())),
        tuple(body.get("offers", ())),
        refused if "refused" in body else None,
        {node: Clock(**clock) for node, clock in body.get("clocks", {}).items()},
        tuple(body.get("lookups", ())),
    )


def _refused(body: Mapping[str, Any]) -> RefusedRows:
    return RefusedRows(body["rows"], None if body["dead"] is None else LineSegment(**body["dead"]))


def _given(**parts: Any) -> dict[str, Any]:
    """Those that say something: a record without them is as it was before they were known."""
    return {name: part for name, part in parts.items() if part}


@dataclass(frozen=True, slots=True)
class BatchDeadLetters:
    """The dead letters of one Batch."""

    batch: int
    segments: tuple[LineSegment, ...]
    decided_at: str


def moment(decided_at: str) -> datetime:
    """When that was; a record that does not say it is never old."""
    return datetime.fromisoformat(decided_at) if decided_at else datetime.max.replace(tzinfo=UTC)


def _letters_of(body: Mapping[str, Any]) -> dict[str, Any] | None:
    dead = [*body["dead"], *(each["dead"] for each in body.get("refused", {}).values() if each["dead"] is not None)]
    return {"dead": dead, "decided_at": body["decided_at"]} if dead else None


def _summarize(summary: Any | None, bodies: Iterable[Any]) -> dict[str, Any]:
    totals = Totals() if summary is None else Totals.from_json(summary)
    for body in bodies:
        totals.add(decision_from_json(body))
    return totals.as_json()

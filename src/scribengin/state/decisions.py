"""Decision records: the outcome of each Batch of a query, written once. They are authoritative, not Spark's own log."""

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
    """The decision records of one query. Reading needs no lease; deciding without a lease is safe, but has no use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = NumberedLog(folder, "decision", awaits=lambda body: bool(body.get("offers")))

    def decide(self, decision: Decision, *, hash_under: Callable[[str], str] | None = None) -> Decision:
        """Write the decision of a Batch durably, if there is none.

        An earlier decision over the same input remains valid, whatever its Term. So does one that an older driver made late, with the plan
        before an edit of the flow.

        Args:
            decision: The decision to write.
            hash_under: Returns the input hash of this Batch under another plan, given the fingerprint of that plan.

        Returns:
            The stored decision, which is to be published.

        Raises:
            FencedError: A newer Term has decided this Batch with other input, or has decided the Batch before it.
            StateError: The numbers would have a gap, or the input differs.
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
                f"batch {number} of {decision.batch.query} was decided with different input at {stored.decided_at}, "
                f"under term {stored.batch.term}; this is term {decision.batch.term}",
                remedy="stop this driver; restart the flow, which continues from the last decided batch",
            )
        if self._log.wants_folding(number):
            self.fold()
        return stored

    def settle(self, number: int, refused: Mapping[str, RefusedRows]) -> Decision:
        """Record durably which rows of Batch `number` the sinks have rejected, unless that is recorded already.

        Returns the decision with the stored record. Raises FencedError if the record is folded by now: another driver
        has completed the Batch.
        """
        faults.reached("settle.before")
        body = self._log.put_beside(number, {"refused": {sink: asdict(each) for sink, each in refused.items()}})
        faults.reached("settle.after")
        return decision_from_json(body)

    def read(self, number: int) -> Decision | None:
        """The decision of Batch `number`, or None if it is undecided. Raises StateError for a torn or edited record."""
        body = self._log.read(number)
        return None if body is None else decision_from_json(body)

    def newest(self) -> Decision | None:
        """The decision of the newest Batch, or None. The time that it takes does not grow with the number of Batches."""
        number = self._log.newest()
        return None if number is None else self.read(number)

    def since(self, number: int = 0) -> Iterator[Decision]:
        """The decisions from `number` on, in order; at most a thousand old ones are in memory at a time."""
        for _, body in self._log.since(number):
            yield decision_from_json(body)

    def totals(self) -> Totals:
        """The totals of all decisions, except one whose rows a sink may still reject. Folded decisions are read from their summary, the
        others one by one."""
        high, summary = self._log.summary()
        totals = Totals() if summary is None else Totals.from_json(summary)
        for decision in self.since(high + 1):
            if not decision.open:
                totals.add(decision)
        return totals

    def fold(self) -> None:
        """Merge old records into few files, and their totals into a summary; see `NumberedLog`."""
        self._log.fold(_summarize)

    def pruned_mark(self) -> int:
        """The last Batch whose details are pruned; -1 if there is none."""
        return self._log.pruned_mark()

    def pruned(self) -> Totals:
        """The totals of the pruned decisions, which are those up to `last`."""
        _, summary = self._log.pruned()
        return Totals() if summary is None else Totals.from_json(summary)

    def prune(self, before: datetime) -> int:
        """Delete the details of folded Batches that were decided before that time; returns how many. The caller holds the lease.

        The totals stay, and so do the names of the segments with dead letters, until `drop_letters`.
        """
        return self._log.prune(lambda body: moment(body["decided_at"]) < before, _letters_of, _summarize)

    def letters(self, since: int = 0) -> Iterator[BatchDeadLetters]:
        """The dead letters of every Batch that has some, from number `since` on, in order, including Batches whose other details are
        pruned."""
        for number, rest in self._log.rests(since):
            yield BatchDeadLetters(number, tuple(LineSegment(**each) for each in rest["dead"]), rest["decided_at"])
        for decision in self.since(since):
            if decision.dead:
                yield BatchDeadLetters(decision.batch.number, decision.dead, decision.decided_at)

    def drop_letters(self, through: int) -> None:
        """Delete the names of the dead letters of pruned Batches up to number `through`. The dead letters themselves are deleted
        by then."""
        self._log.drop_rests(through)

    @staticmethod
    def _before_edit(stored: Decision, decision: Decision, hash_under: Callable[[str], str] | None) -> str | None:
        """The input hash with which `stored` is valid although its plan is another one; None if it cannot be valid."""
        return hash_under(stored.plan) if hash_under is not None and stored.batch.term < decision.batch.term else None

    def _check_order(self, decision: Decision) -> None:
        before = self.read(decision.batch.number - 1)
        if before is None:
            newest = self._log.newest()
            if newest is not None and newest < decision.batch.number:
                raise StateError(
                    f"batch {decision.batch.number} of {decision.batch.query} would leave a gap: the last decided batch is {newest}",
                    remedy="restore the state folder as a whole; its parts belong together",
                )
        elif before.batch.term > decision.batch.term:
            raise FencedError(
                f"batch {before.batch.number} of {decision.batch.query} was decided under term {before.batch.term}; "
                f"this is term {decision.batch.term}",
                remedy="another driver has taken over; stop this driver",
            )


def input_hash(batch: BatchId, ranges: Iterable[SourceRange], streams: Mapping[str, Sequence[SourceStream]], fingerprint: str) -> str:
    """The SHA-256 of what a Batch is made from: lineage, number, the sources' ranges with their streams, and the plan.

    The Term is not part of it, because a successor may continue the Batch, nor are the rows, because a step may be random.

    Args:
        batch: The Batch.
        ranges: The range of each source.
        streams: Source → the streams of its range.
        fingerprint: That of the plan.
    """
    over = [
        _HASH_FORMAT,
        [batch.flow, batch.query, batch.lineage, batch.number],
        [[each.source, each.start, each.end, [stream.as_json() for stream in streams[each.source]]] for each in ranges],
        fingerprint,
    ]
    return hashlib.sha256(canonical(over)).hexdigest()


def decision_as_json(decision: Decision) -> dict[str, Any]:
    """The decision as the body of its record."""
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
        before=dict(decision.before),
    )


def decision_from_json(body: Mapping[str, Any]) -> Decision:
    """The decision that `decision_as_json` wrote, with the contents of its `.beside` file."""
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
        body.get("before", {}),
    )


def _refused(body: Mapping[str, Any]) -> RefusedRows:
    return RefusedRows(body["rows"], None if body["dead"] is None else LineSegment(**body["dead"]))


def _given(**parts: Any) -> dict[str, Any]:
    """The parts that are not empty: a record without them reads like one from before they existed."""
    return {name: part for name, part in parts.items() if part}


@dataclass(frozen=True, slots=True)
class BatchDeadLetters:
    """The dead letters of one Batch."""

    batch: int
    segments: tuple[LineSegment, ...]
    decided_at: str


def moment(decided_at: str) -> datetime:
    """The time of a decision; the latest possible time for a record without one, so that it never counts as old."""
    return datetime.fromisoformat(decided_at) if decided_at else datetime.max.replace(tzinfo=UTC)


def _letters_of(body: Mapping[str, Any]) -> dict[str, Any] | None:
    dead = [*body["dead"], *(each["dead"] for each in body.get("refused", {}).values() if each["dead"] is not None)]
    return {"dead": dead, "decided_at": body["decided_at"]} if dead else None


def _summarize(summary: Any | None, bodies: Iterable[Any]) -> dict[str, Any]:
    totals = Totals() if summary is None else Totals.from_json(summary)
    for body in bodies:
        totals.add(decision_from_json(body))
    return totals.as_json()

"""Audit: read outputs, dead letters and ledger again, and report whether they agree, and if not, what is missing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from scribengin.connectors.abilities import chains_batches
from scribengin.core.errors import StateError
from scribengin.state.dead_letters import count_purged, present_segments, read_expired, read_segment
from scribengin.state.decisions import Decisions
from scribengin.state.ledger import balance, is_published
from scribengin.state.source_log import SourceLog
from scribengin.state.totals import SinkTotals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from scribengin.connectors.contract import SinkConnector, Unaccounted
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder
    from scribengin.state.totals import Totals


# The losses of a query: records that were deleted before they were read, from the logs of its sources.


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were deleted in a source before the query could read them.

    `rows` is the greatest possible number of these records, None if it is unknown. `entry` is the number of the entry in the source's log
    that records the loss.
    """

    source: str
    entry: int
    rows: int | None
    what: str

    def as_json(self) -> dict[str, Any]:
        """The loss as one JSON object."""
        return asdict(self)


def read_losses(query: QueryFolder, starts: Mapping[str, int], ends: Mapping[str, int]) -> Iterator[Loss]:
    """The losses in a range of source log entries, in order. Every entry of the range is read.

    Args:
        query: The folder of the query's state.
        starts: Source → first entry of the range (inclusive); 0 for a source that it does not contain.
        ends: Source → end of the range (exclusive). Only these sources are read.
    """
    for source, end in ends.items():
        start = starts.get(source, 0)
        for number, streams in enumerate(SourceLog(query.sources, source).entries(start), start):
            if number >= end:
                break
            for stream in streams:
                if stream.lost:
                    yield Loss(source, number, stream.rows, stream.lost)


@dataclass(frozen=True, slots=True)
class SinkAudit:
    """The rows decided for a sink, and the rows found in its target now, or, if they were not `counted`, those of its records."""

    sink: str
    decided: int
    found: int
    violations: tuple[str, ...] = ()
    counted: bool = True
    others: tuple[Unaccounted, ...] | None = ()
    """what the sink's target contains in addition, and the flow's state does not account for; None if the audit did not look for it"""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of the audit of one lineage of a query. `violations` includes those of sinks and dead letters; each says what is missing
    or surplus."""

    query: str
    totals: Totals
    sinks: tuple[SinkAudit, ...]
    dead_found: int
    """dead letters that could be read"""
    dead_expired: int = 0
    """dead letters of the Batches that have outlived `retain`, including those that were purged before"""
    violations: tuple[str, ...] = ()
    lineage: str = ""
    starts: Mapping[str, int] = field(default_factory=dict)
    """source → the position at which a rewind started the lineage; empty if it reads from the start"""
    past: bool = False
    """True if a rewind has ended this lineage"""
    losses: tuple[Loss, ...] = ()
    """what was deleted before the lineage could read it; empty for a past lineage, whose losses are counted only in the ledger"""
    dead_purged: int = 0
    """dead letters that were purged by an operator, of Batches that have not outlived `retain`"""
    members: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """for sinks that write to a group: sink → member → number of Batches that were decided for it, among those whose details still exist"""

    left_out: int | None = None
    """the number of the newest Batch, if a run is still processing it and it was not audited"""

    @property
    def balanced(self) -> bool:
        """True if every record that went in is accounted for and still there."""
        return not self.violations


def audit_query(
    query: QueryFolder,
    sinks: Mapping[str, SinkConnector],
    *,
    lineage: str,
    stateful: Collection[str] = (),
    feeders: Mapping[str, Sequence[str]] | None = None,
    fed_by: Callable[[Decision], Mapping[str, Sequence[str]]] = lambda _: {},
    running: bool = False,
) -> AuditReport:
    """Audit one lineage of a query. Reads every output file once, one block in memory at a time. It needs no lease.

    Args:
        query: The folder of the query's state.
        sinks: Sink id → its connector.
        lineage: The id of the lineage that every decision must have.
        stateful: The nodes that keep state; see `ledger.balance`.
        feeders: Node → its upstream nodes, to balance the totals; see `ledger.balance`.
        fed_by: Returns the upstream nodes at the time of a decision: the nodes of a lineage change with its flow.
        running: True if a run may be in progress. The newest Batch is then left out unless it is known to be published.
    """
    decisions = Decisions(query.decisions)
    newest = decisions.newest()
    last = -1 if newest is None else newest.batch.number
    left_out = last if running and last >= 0 and not is_published(query, lineage, last) else None
    last -= left_out is not None
    totals = decisions.pruned()
    violations: list[str] = []
    members: dict[str, dict[str, int]] = {}
    for decision in _decided(query, last):
        for sink, said in decision.behind.items():
            if "member" in said:
                counts = members.setdefault(sink, {})
                counts[said["member"]] = counts.get(said["member"], 0) + 1
        violations += _check_batch(decision, totals, lineage, stateful, fed_by(decision))
        totals.add(decision)
    expired = read_expired(query)
    letters, wrong = _read_dead(query, expired.through + 1, last)
    violations += wrong
    purged = count_purged(query, expired, last)
    if letters + expired.letters + purged != totals.dead and expired.through <= last and not wrong:
        gone = f"{expired.letters} expired (`retain`)" + (f", {purged} were purged" if purged else "")
        violations.append(f"expected {totals.dead} dead letters, found {letters}; {gone}")
    violations += balance(totals.nodes, stateful=stateful, feeders=feeders)
    audits = tuple(_audit_sink(query, id_, sink, lineage, last, totals, running=running) for id_, sink in sinks.items())
    violations += [f'sink "{audit.sink}": {text}' for audit in audits for text in audit.violations]
    return AuditReport(
        query.name, totals, audits, letters, expired.letters, tuple(violations), members=members, dead_purged=purged, left_out=left_out
    )


def _decided(query: QueryFolder, last: int) -> Iterator[Decision]:
    return takewhile(lambda decision: decision.batch.number <= last, Decisions(query.decisions).since())


def _check_batch(
    decision: Decision, before: Totals, lineage: str, stateful: Collection[str], feeders: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    number = decision.batch.number
    if decision.batch.lineage != lineage:
        yield f"batch {number} belongs to another lineage, {decision.batch.lineage}"
    if before.batches and number != before.last + 1:
        yield f"batch {before.last + 1} has no decision record, but batch {number} has one"
    for text in balance(decision.counts, stateful=stateful, feeders=feeders):
        yield f"batch {number}: {text}"
    written: dict[str, int] = {}
    for receipt in decision.receipts:
        written[receipt.sink] = written.get(receipt.sink, 0) + receipt.rows
    for sink, refused in (decision.refused or {}).items():
        written[sink] -= refused.rows
    for sink, rows in written.items():
        if sink in decision.counts and decision.counts[sink].out != rows:
            yield f'batch {number}: sink "{sink}" received {decision.counts[sink].out} rows, but its write receipts have {rows}'
    letters, dead = sum(segment.rows for segment in decision.dead), sum(counts.dead for counts in decision.counts.values())
    if letters > dead:
        yield f"batch {number}: {letters} dead letters, but {dead} dead rows"


def _read_dead(query: QueryFolder, since: int, last: int) -> tuple[int, list[str]]:
    """Returns the number of dead letters of the Batches `since` to `last` that could be read, and the violations."""
    found, wrong = 0, []
    for batch in takewhile(lambda batch: batch.batch <= last, Decisions(query.decisions).letters(since)):
        for segment in present_segments(query, batch):
            try:
                rows = sum(1 for _ in read_segment(query, segment))
            except StateError as error:
                wrong.append(f"batch {batch.batch}: {error.message}")
                continue
            found += rows
            if rows != segment.rows:
                wrong.append(f"batch {batch.batch}: {rows} dead letters in {segment.name}; expected {segment.rows}")
    return found, wrong


def _audit_sink(query: QueryFolder, id_: str, sink: SinkConnector, lineage: str, last: int, totals: Totals, *, running: bool) -> SinkAudit:
    pruned = Decisions(query.decisions).pruned()
    older: int | None = None
    found = 0
    counted = True
    wrong: list[str] = []
    parts = (decision.of_sink(id_) for decision in _decided(query, last) if not (decision.empty and chains_batches(sink)))
    for published in sink.audit(lineage=lineage, decided=parts):
        if running and not 0 <= published.number <= last:
            continue  # a run in progress publishes its newest Batches while the target is read
        if 0 <= published.number <= pruned.last:
            older = (older or 0) + published.rows
        else:
            found += published.rows
        counted &= published.counted
        wrong += published.violations
    # rows of pruned Batches that the sink does not report are counted in the totals only
    found += pruned.sinks.get(id_, SinkTotals()).rows if older is None else older
    decided = totals.sinks.get(id_, SinkTotals()).rows
    if decided != found and not wrong:
        wrong.append(f"expected {decided} rows, found {found}")
    return SinkAudit(id_, decided, found, tuple(wrong), counted)

"""Source positions that an operator sets while the flow is stopped: forward to skip entries, back to read them again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors.channel.outbox import OutboxSink, left_text
from scribengin.core.errors import Refused
from scribengin.core.remedies import flow_command, start_over
from scribengin.local.prepare import limits_of, open_sinks, open_sources, source_place
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import read_lineage, rewind
from scribengin.state.publishing import recover_query
from scribengin.state.replays import missing_lines
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.contract import SourceStream
    from scribengin.local.prepare import Prepared
    from scribengin.spec.model import Flow, Sink
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease
    from scribengin.state.lineage import Lineage


@dataclass(frozen=True, slots=True)
class MovedPosition:
    """A changed position: before and after, in entries of the source's log, and what the entries between them contain.

    If it moved forward, these entries are never read. If it moved back, they are read again in the new lineage `lineage`, and what was
    written for them stays: `doubled` is the greatest possible number of duplicated rows of each sink.
    """

    query: str
    source: str
    before: int
    after: int
    files: int
    bytes: int
    rows: int | None
    lineage: str = ""
    doubled: Mapping[str, int] | None = None

    @property
    def back(self) -> bool:
        """True if records are read again."""
        return self.after < self.before

    def as_json(self) -> dict[str, Any]:
        """The change as one JSON object."""
        return asdict(self) | {"lineage": self.lineage or None, "doubled": dict(self.doubled or {})}


def decided_ends(query: QueryFolder) -> dict[str, int]:
    """Source → number of entries that decided Batches have taken; before the first Batch, the position at which the lineage starts."""
    newest = Decisions(query.decisions).newest()
    if newest is not None:
        return {taken.source: taken.end for taken in newest.sources}
    lineage = read_lineage(query)
    return {} if lineage is None else dict(lineage.starts)


def move_forward(flow: Flow, query: QueryFolder, source: str, position: int | None) -> MovedPosition:
    """Skip the entries of a source from the present position on. The caller holds the lease.

    The next run takes them as empty Batches, so that nothing else in the state changes. Replayed dead letters are not skipped.

    Args:
        flow: The flow.
        query: The folder of the query's state.
        source: The id of the source.
        position: The first entry that is not skipped; None skips everything that exists now.

    Raises:
        Refused: The source cannot reach that position yet. The existing entries are skipped then.
    """
    before = decided_ends(query).get(source, 0)
    log = SourceLog(query.sources, source)
    reader = open_sources(flow)[source].reader()
    reader.restore(log.entries())
    limits = limits_of(source_place(flow, source).options)
    skipped = []
    number = before
    while position is None or number < position:
        streams = log.read(number) if number < log.length() else reader.split(limits, final=True)
        if not streams and number >= log.length():
            break
        passed = [replace(stream, skipped=True) for stream in streams]
        if not streams:  # replays, which are not skipped
            number += 1
            continue
        if number < log.length():
            log.amend(number, passed)
        else:
            log.append(number, passed)
        skipped += passed
        number += 1
    if position is not None and number < position:
        raise Refused(
            (
                f'query "{query.name}": source "{source}" has no entry {position} yet; its log ends at {number}; '
                "the existing entries were skipped"
            ),
            remedy=f"see: {flow_command('offsets show')}",
            code="position-unknown",
        )
    return _moved(query, source, before, number, skipped)


def preview_move_back(query: QueryFolder, source: str, position: int, starts: Mapping[str, int] | None = None) -> MovedPosition:
    """Compute what a rewind to `position`, which is before the present one, would read and write again. Changes nothing.

    Args:
        query: The folder of the query's state.
        source: The id of the source.
        position: The first entry that is read again.
        starts: The new positions of all sources, if others change too.

    Raises:
        Refused: The query keeps state, which cannot be undone; or there are replays among the entries whose dead letters no longer exist,
            while the rewind does not read their records.
    """
    lineage = read_lineage(query)
    assert lineage is not None
    ends = decided_ends(query)
    if lineage.state_fingerprint:
        raise Refused(
            f'query "{query.name}" keeps state that includes all committed data of source "{source}", up to position {ends[source]}: '
            f"it cannot go back to {position}",
            remedy=f"to read everything again, {start_over()}",
            code="position-back",
        )
    streams = SourceLog(query.sources, source).range(position, ends[source])
    if gone := missing_lines(query, streams, {**ends, source: position} if starts is None else starts):
        raise Refused(
            f'query "{query.name}" cannot read source "{source}" again: the dead letters of {", ".join(gone)} no longer exist',
            remedy="go back to a position before those dead letters, or to a later one",
            code="rewind-gone",
        )
    return replace(_moved(query, source, ends[source], position, streams), doubled=_written_since(query, source, position))


def move_back(prepared: Prepared, query: QueryFolder, source: str, position: int, lease: Lease) -> MovedPosition:
    """Begin a new lineage of the query that reads `source` from `position` on, and make it the owner of the sinks' places. The caller holds
    the lease. The other sources keep their positions.

    Args:
        prepared: The tier.
        query: The folder of the query's state.
        source: The id of the source.
        position: The first entry that is read again.
        lease: The lease of the tier.

    Raises:
        Refused: As for `preview_move_back`; a place belongs to another owner by now; or Batches wait for a channel that is unavailable, to
            which the new lineage would never write them.
    """
    moved = preview_move_back(query, source, position)
    begun = go_back(prepared, query, decided_ends(query) | {source: position}, lease)
    return replace(moved, lineage=begun.id)


def go_back(prepared: Prepared, query: QueryFolder, starts: Mapping[str, int], lease: Lease) -> Lineage:
    """Publish what is decided, begin a new lineage that reads from `starts` on, and make it the owner of the sinks' places. The state of
    the old lineage is not taken over. The caller holds the lease.

    Args:
        prepared: The tier.
        query: The folder of the query's state.
        starts: Source → the position from which it is read.
        lease: The lease of the tier.

    Raises:
        Refused: No sink uses the query any more, a place belongs to another owner, or Batches wait for a channel that is unavailable.
    """
    planned = next((each for each in prepared.plan.queries if each.name == query.name), None)
    lineage = read_lineage(query)
    assert lineage is not None
    if planned is None:
        raise Refused(
            f'no sink of the flow uses query "{query.name}" any more', remedy="name another query with --query", code="query-gone"
        )
    owner = prepared.folder.read_owner()
    opened = open_sinks(prepared.plan.flow, prepared.plan, prepared.folder)
    sinks = {id_: opened[id_] for id_ in planned.sinks}
    for sink in sinks.values():
        sink.prepare(owner=owner, lineage=lineage.id)
    recover_query(query, sinks, lineage=lineage.id, lease=lease)
    for id_, sink in sinks.items():
        if isinstance(sink, OutboxSink):
            sink.upkeep()
            waits = left_text(id_, replace(sink.left(), dropped_rows=0)) or (
                "" if sink.is_claimed else f"{id_}: the channel is unavailable"
            )
            if waits:
                raise Refused(
                    f'query "{query.name}" cannot go back yet: {waits}',
                    remedy=(
                        f"make the channel available, then run the flow until all rows passed through it: {flow_command('run', '--once')}"
                    ),
                    code="outbox-waits",
                )
    begun = rewind(query, starts)
    for sink in sinks.values():
        sink.prepare(owner=owner, lineage=begun.id, adopt=True)
    return begun


def closed_text(sink: Sink) -> str:
    """A text on rows that are read again for closed time folders; empty if no folder is closed."""
    close = sink.options.get("close")
    if not close:
        return ""
    if close.get("late", "dead") == "dead":
        return "; rows for closed folders become dead letters (late)"
    return "; a closed folder that receives rows loses its completion marker until it is closed again"


def _written_since(query: QueryFolder, source: str, position: int) -> dict[str, int]:
    """Sink → rows of the Batches that took any entry of `source` from `position` on. If pruned Batches may be among them, all pruned
    Batches are counted, which is too many."""
    decisions = Decisions(query.decisions)
    pruned = decisions.pruned()
    written = dict.fromkeys(pruned.sinks, 0)
    reached = 0
    for decision in decisions.since():
        taken = next((each for each in decision.sources if each.source == source), None)
        if decision.batch.number == pruned.last + 1 and taken is not None:
            reached = taken.start
        if taken is not None and taken.end > position:
            for receipt in decision.receipts:
                written[receipt.sink] = written.get(receipt.sink, 0) + receipt.rows
    if reached > position:
        for sink, totals in pruned.sinks.items():
            written[sink] += totals.rows
    return written


def _moved(query: QueryFolder, source: str, before: int, after: int, streams: Sequence[SourceStream]) -> MovedPosition:
    rows = [stream.rows for stream in streams]
    return MovedPosition(
        query.name,
        source,
        before,
        after,
        sum(stream.files for stream in streams),
        sum(stream.bytes for stream in streams),
        None if None in rows else sum(row for row in rows if row is not None),
    )

"""Publishes decisions at the sinks. If a target reports only then which rows it rejects, that is recorded in between, once.

decided → offered to such targets → rejected rows: durable dead letters, then one record beside the decision → published

A process that is interrupted or suspended on the way, or does this beside another driver, arrives at the same dead letters: the first
record wins, and a target that is offered a row again reports that it has it already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.connectors.abilities import chains_batches, refuses_rows
from scribengin.connectors.group.contract import chooses
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, SinkError
from scribengin.core.remedies import start_over
from scribengin.core.storage import explained, names_in, remove_drafts
from scribengin.formats.constants import PAYLOAD_BYTES
from scribengin.formats.row_ids import Hop, split_id
from scribengin.state.contract import DeadLetter, RefusedRows
from scribengin.state.dead_letters import DeadWriter, purge_dead
from scribengin.state.decisions import Decisions, moment
from scribengin.state.provenance import forget_trails, hop_as_json
from scribengin.state.replays import read_entering
from scribengin.state.source_log import REPLAY, SourceLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import OfferingSink, RefusedRow, SinkConnector
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease


def publish(decision: Decision, sinks: Mapping[str, SinkConnector], decisions: Decisions, query: QueryFolder) -> Decision:
    """Make a decision visible at all sinks, in their order. Idempotent.

    Args:
        decision: The stored decision.
        sinks: Sink id → its connector.
        decisions: The decision records of the query.
        query: The folder of the query's state.

    Returns:
        The decision with the rows that targets have rejected.

    Raises:
        SinkError: A row was rejected and the sink's `on_error` is `fail`. Other errors of sinks are passed on.
    """
    decision = settle(decision, sinks, decisions, query)
    for id_, sink in sinks.items():
        if not (decision.empty and chains_batches(sink)):
            sink.publish(decision.of_sink(id_))
    return decision


def settle(decision: Decision, sinks: Mapping[str, SinkConnector], decisions: Decisions, query: QueryFolder) -> Decision:
    """Offer the rows to the sinks that may reject some, unless that is settled, and record what they reject. A sink that was removed from
    the flow rejects nothing.

    Args:
        decision: The stored decision.
        sinks: Sink id → its connector.
        decisions: The decision records of the query.
        query: The folder of the query's state.

    Returns:
        The decision with the recorded result.
    """
    if not decision.open:
        return decision
    there = {id_: sink for id_ in decision.offers if (sink := sinks.get(id_)) is not None and refuses_rows(sink)}
    refused = {id_: _offer(decision, id_, sink, query) for id_, sink in there.items()}
    return decisions.settle(decision.batch.number, {id_: each for id_, each in refused.items() if each.rows})


def _offer(decision: Decision, id_: str, sink: OfferingSink, query: QueryFolder) -> RefusedRows:
    letters = DeadWriter(query.dead, uuid4().hex)
    replayed = _replayed(decision, query)
    rows = 0

    def refuse(refusal: RefusedRow) -> None:
        nonlocal rows
        if sink.on_error == "fail":
            raise SinkError(
                f'sink "{id_}" rejects a row of batch {decision.batch.number}, {refusal.id}: {refusal.message}',
                remedy="change the target so that it accepts the row, or set on_error: dead_letter on the sink",
                code="row-refused",
                node=id_,
            )
        rows += 1
        if sink.on_error == "dead_letter":
            letters.write(_letter(decision, id_, refusal, replayed))

    try:
        sink.offer(decision.of_sink(id_), refuse)
        dead = letters.close()
    except BaseException:
        letters.abort()
        raise
    faults.reached("settle.offered")
    return RefusedRows(rows, dead)


def _replayed(decision: Decision, query: QueryFolder) -> dict[str, DeadLetter]:
    """Record id → the dead letter that was replayed in this Batch."""
    if not any(counts.replayed for counts in decision.counts.values()):
        return {}
    ranges = ((each.source, SourceLog(query.sources, each.source).range(each.start, each.end)) for each in decision.sources)
    streams = ((source, stream.place) for source, range_ in ranges for stream in range_ if REPLAY in stream.place)
    return {letter.record: letter for source, place in streams for letter in read_entering(query, place, source)}


def _letter(decision: Decision, id_: str, refusal: RefusedRow, replayed: Mapping[str, DeadLetter]) -> DeadLetter:
    """The row itself stands for the record: the source is not read again after a decision."""
    record, way = split_id(refusal.id)
    before = replayed.get(record)
    batch, ran = decision.batch, decision.ran
    stop = Hop(ran.get("tier", ""), batch.query, batch.number, ran.get("host", ""), int(moment(decision.decided_at).timestamp() * 1000))
    return DeadLetter(
        id=f"{record or refusal.id}#{id_}" + (f"~{before.replays}" if before else ""),
        query=batch.query,
        batch=batch.number,
        step=id_,
        reason=refusal.reason,
        message=refusal.message,
        source=record.partition("/")[0],
        payload=refusal.came[:PAYLOAD_BYTES],
        truncated=len(refusal.came) > PAYLOAD_BYTES,
        record=record,
        trail=(hop_as_json(stop),),
        came=refusal.came.decode(),
        way=way,
        replays=before.replays if before else 0,
        replay_of=before.replay_of if before else "",
        repaired=before is not None and before.repaired,
    )


# Recovery after a start, under the lease: publish what was decided, and delete what can no longer be decided.


def recover_query(query: QueryFolder, sinks: Mapping[str, SinkConnector], *, lineage: str, lease: Lease) -> Decision | None:
    """Publish the newest decision at every sink, and delete what is left over from decided Batches. Every older decision was published
    before the next one was made. Idempotent: it may be interrupted at any point and repeated.

    Args:
        query: The folder of the query's state.
        sinks: Sink id → its connector, prepared.
        lineage: The id of the query's lineage.
        lease: The lease of the tier, which the caller holds.

    Returns:
        The newest decision, None if there is none.

    Raises:
        EnvironmentFault: A disk error that an operator can fix, here or at a sink.
        Refused: The newest Batch was decided for a member of a group, and the sink no longer writes to a group.
    """
    with explained(f"query {query.path.name}: the unfinished Batch of its last run cannot be completed"):
        return _recovered(query, sinks, lineage, lease)


def _recovered(query: QueryFolder, sinks: Mapping[str, SinkConnector], lineage: str, lease: Lease) -> Decision | None:
    lease.check()
    faults.reached("recovery.before")
    decisions = Decisions(query.decisions)
    while True:
        newest = decisions.newest()
        try:
            newest = _recover_sinks(newest, sinks, lineage, decisions, query)
            break
        except FencedError:
            # an older driver has resumed, and decided and published one more Batch before it noticed that its lease is lost
            lease.check()
            if decisions.newest() == newest:
                raise
    purge_dead(query)
    forget_trails(query, None)
    for folder in (query.path, query.decisions, *(query.sources / name for name in names_in(query.sources))):
        remove_drafts(folder)
    faults.reached("recovery.after")
    return newest


def _recover_sinks(
    newest: Decision | None, sinks: Mapping[str, SinkConnector], lineage: str, decisions: Decisions, query: QueryFolder
) -> Decision | None:
    before = 0 if newest is None else newest.batch.number + 1
    for id_, sink in sinks.items():
        _refuse_left_group(newest, id_, sink)
    if newest is not None:
        newest = settle(newest, sinks, decisions, query)
    for id_, sink in sinks.items():
        there = newest if newest is not None and not (newest.empty and chains_batches(sink)) else None
        sink.recover(None if there is None else there.of_sink(id_), lineage=lineage, before=before)
        faults.reached("recovery.mid")
    return newest


def _refuse_left_group(newest: Decision | None, id_: str, sink: SinkConnector) -> None:
    """Raise Refused if the Batch was decided for a member of a group and the sink writes elsewhere now: the output is at the member."""
    member = None if newest is None else newest.behind.get(id_, {}).get("member")
    if newest is not None and member is not None and not chooses(sink):
        raise Refused(
            f'sink "{id_}": batch {newest.batch.number} was decided for member "{member}" of a group, but the '
            "sink no longer writes to a group; "
            f"the members are not checked",
            remedy="restore `to` of the sink; or give the sink another id, so that it reads everything again and the data of the members "
            f"is kept; or {start_over()}",
            code="group-changed",
            node=id_,
        )

"""From a decision to published sinks. Where a place says only then which rows it never takes, that is settled in between, once.

decided → offered to the places that choose → what they refused: durable letters, then one record beside the decision → published

Whoever is killed on this way, or sleeps on it, or does it beside another driver, comes to the same letters: the first record stands, and
who offers again is told of each row that it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.connectors.abilities import is_chained, offers
from scribengin.core import faults
from scribengin.core.errors import SinkError
from scribengin.formats.figures import PAYLOAD_BYTES
from scribengin.formats.origins import Hop, split_id
from scribengin.state.contract import DeadLetter, RefusedRows
from scribengin.state.dead import DeadWriter
from scribengin.state.decisions import moment
from scribengin.state.replays import read_entering
from scribengin.state.source_log import REPLAY, SourceLog
from scribengin.state.trails import hop_as_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import OfferingSink, RefusedRow, SinkConnector
    from scribengin.state.contract import Decision
    from scribengin.state.decisions import Decisions
    from scribengin.state.folder import QueryFolder


def publish(decision: Decision, sinks: Mapping[str, SinkConnector], decisions: Decisions, query: QueryFolder) -> Decision:
    """Make what was decided visible at all `sinks`, in their order; returns the decision with what the places refused. Idempotent. Raises
    what the sinks do, and SinkError for a refused row where the sink's `on_error` is `fail`."""
    decision = settle(decision, sinks, decisions, query)
    for id_, sink in sinks.items():
        if not (decision.empty and is_chained(sink)):
            sink.publish(decision.of_sink(id_))
    return decision


def settle(decision: Decision, sinks: Mapping[str, SinkConnector], decisions: Decisions, query: QueryFolder) -> Decision:
    """Offer the rows where that is not settled yet. A sink that has left the flow refuses nothing."""
    if not decision.open:
        return decision
    there = {id_: sink for id_ in decision.offers if (sink := sinks.get(id_)) is not None and offers(sink)}
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
                f'sink "{id_}" refuses a row of batch {decision.batch.number}, {refusal.id}: {refusal.message}',
                remedy="correct the place so that it takes the row, or write on_error: dead_letter at the sink",
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
    """What records are called → the letters as which they entered this Batch."""
    if not any(counts.replayed for counts in decision.counts.values()):
        return {}
    ranges = ((each.source, SourceLog(query.sources, each.source).range(each.start, each.end)) for each in decision.sources)
    streams = ((source, stream.place) for source, range_ in ranges for stream in range_ if REPLAY in stream.place)
    return {letter.record: letter for source, place in streams for letter in read_entering(query, place, source)}


def _letter(decision: Decision, id_: str, refusal: RefusedRow, replayed: Mapping[str, DeadLetter]) -> DeadLetter:
    """The row itself stands for the record: nobody reads the source again behind a decision."""
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

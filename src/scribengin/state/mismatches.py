"""What the records say of a Batch that did not come out of a channel as it went in: which units, where they lay, which Batches of the
reader took them. Read only once a mismatch is known: every record of the reader is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import StateError
from scribengin.state.checksums import Mismatch, UnitSums
from scribengin.state.decisions import Decisions
from scribengin.state.publications import Publications
from scribengin.state.taken import added, by_unit, in_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.connectors.contract import Receipt
    from scribengin.state.ack_contract import ChannelLink, QueryReading
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder
    from scribengin.state.taken import Sums


def put_by_unit(receipts: Iterable[Receipt]) -> dict[int, Sums] | None:
    """What the units of a Batch have put into a channel; None where a receipt, of before digests were kept, does not say it."""
    units: dict[int, Sums] = {}
    for receipt in receipts:
        if receipt.rows and receipt.digest is None:
            return None
        units[receipt.unit] = added(units.get(receipt.unit, (0, 0)), (receipt.rows, receipt.digest or 0))
    return units


def mismatch_of(
    link: ChannelLink,
    reading: QueryReading,
    writer: QueryFolder,
    reader: QueryFolder,
    lineage: str,
    number: int,
    *,
    late: bool = False,
    part: QueryFolder | None = None,
) -> Mismatch:
    """Batch `number` of the feeder's `lineage`, as far as the details of both ends' decisions are there. `writer` and `reader` are the
    Queries' folders; `part` is where the lineage's decisions lie, where the feeder has left it."""
    try:
        decision = Decisions((part or writer).decisions).read(number)
    except StateError:  # its details are pruned by now
        decision = None
    receipts = [] if decision is None else [receipt for receipt in decision.receipts if receipt.sink == link.channel]
    known = None if decision is None else put_by_unit(receipts)
    put = known or {}
    taken: dict[int, Sums] = {}
    taken_by = []
    for each in Decisions(reader.decisions).since():
        said = each.taken.get(reading.source, {}).get(lineage, {}).get(str(number))
        if said is not None:
            taken_by.append(each.batch.number)
            for unit, sums in by_unit(said).items():
                taken[unit] = added(taken.get(unit, (0, 0)), sums)
    places = {} if decision is None else _places(link, writer, lineage, decision)
    units = [
        UnitSums(unit, put.get(unit, (0, 0)), taken.get(unit, (0, 0)), places.get(unit, ()))
        for unit in sorted(put.keys() | taken.keys())
        if known is not None and put.get(unit, (0, 0)) != taken.get(unit, (0, 0))
    ]
    everywhere = places.get(-1) or tuple(place for unit in sorted(places) for place in places[unit])
    whole = None if known is None else in_all(known)
    return Mismatch(link.channel, reading, lineage, number, whole, in_all(taken), tuple(units), everywhere, tuple(taken_by), late=late)


def _places(link: ChannelLink, writer: QueryFolder, lineage: str, decision: Decision) -> dict[int, tuple[str, ...]]:
    """Unit → where its rows were put; -1 for a Batch whose units were written together."""
    member = str(decision.behind.get(link.channel, {}).get("member", ""))
    at = f"{member}:" if member else ""
    places: dict[int, tuple[str, ...]] = {}
    for receipt in decision.receipts:
        if receipt.sink != link.channel:
            continue
        for segment in receipt.segments:
            if link.kind == "folder":
                places[receipt.unit] = (*places.get(receipt.unit, ()), f"{at}{segment['name']}")
            elif "messages" in segment:
                places[receipt.unit] = (*places.get(receipt.unit, ()), *_offsets(at, segment["messages"]))
    if link.kind == "kafka" and not places:
        messages = Publications(writer.work(link.channel), lineage).messages(decision.batch.number, member)
        if messages is not None:
            places[-1] = _offsets(at, messages)
    return places


def _offsets(at: str, messages: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    return tuple(
        f"{at}topic {each['topic']}, partition {each['partition']}, offsets {each['first']} to {each['last']}" for each in messages
    )

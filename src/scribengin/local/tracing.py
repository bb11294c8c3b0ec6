"""Traces single records: which sinks and dead letters they reached, hop by hop; and what is known about records that were not sampled."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from scribengin.connectors import catalog
from scribengin.connectors.abilities import locates_records, traces_origin, traces_rows
from scribengin.core.errors import ScribenginError
from scribengin.formats.row_ids import is_chosen, is_of, split_id, without_ways
from scribengin.local.acks import topology_of
from scribengin.local.dead_letters import KEY, key_text
from scribengin.local.prepare import open_sinks, source_place
from scribengin.plan.tier_flows import CHANNEL
from scribengin.state.channel_acks import Acks, QueryKey
from scribengin.state.dead_letters import dated_letters, read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import past_lineages
from scribengin.state.provenance import detailed, find_arrivals
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scribengin.connectors.contract import SourceConnector, SourceStream
    from scribengin.local.prepare import PreparedFlow
    from scribengin.state.channel_acks import QueryTopology
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder

T = TypeVar("T")
_ID = re.compile(r"(?P<label>(?P<source>[a-z][a-z0-9_]*)/(?P<place>.+)(?P<sign>[+@]))(?P<sequence>\d+)(?P<nth>\.\d+)?", re.DOTALL)
_KEEP_ALL = "set `defaults: {trace: 1}` to keep the provenance of every record from now on"
MOST_FOUND = 1000


def trace_record(prepared: PreparedFlow, prefix: str) -> dict[str, Any]:
    """Trace a record.

    Args:
        prepared: The flow.
        prefix: The id of a record, the key (`kept:0:2`) or id of a dead letter, or the beginning of record ids.

    Returns:
        The object that `trace --json` prints, with at most MOST_FOUND arrivals and dead letters, and a note if there are more.
    """
    topology = topology_of(prepared.plan, prepared.root)
    prefix = without_ways(_record_of(topology, prefix) or prefix)
    told: list[str] = []
    ids = list(_asked(partial(_ids_of, prepared, topology, prefix), told)) or [prefix]
    exact = _ID.fullmatch(prefix) is not None

    def is_meant(id_: str) -> bool:
        return any(is_of(id_, each) for each in ids) if exact else id_.startswith(prefix)

    found = list(islice(_arrivals_and_dead_letters(topology, ids, is_meant), MOST_FOUND + 1))
    more, found = len(found) > MOST_FOUND, found[:MOST_FOUND]
    arrivals = [each for each in found if "sink" in each]
    dead = [each for each in found if "sink" not in each]
    read = _read_by(prepared, topology, prefix)
    came, went = _beyond(prepared, ids, found, read, told)
    rate = prepared.plan.flow.defaults.trace
    notes = _notes(prefix, rate, arrived=bool(arrivals), buried=bool(dead), read=bool(read), went=bool(went)) + list(dict.fromkeys(told))
    if more:
        notes.append(f"more than {MOST_FOUND:,} found: write more of the id")
    said = {"flow": prepared.name, "record": prefix, "trace": rate, "arrivals": arrivals, "dead": dead, "read": read}
    return said | {"notes": notes, "came": came, "went": went}


def _record_of(topology: QueryTopology, key: str) -> str:
    """The id of the record of the dead letter with that key or id; empty if there is none."""
    by_key = KEY.fullmatch(key) is not None
    if not by_key and "#" not in key:  # the id of every dead letter has it
        return ""
    for each, folder in topology.queries.items():
        if not by_key or key.startswith(f"{each.query}:"):
            for letters, place, letter in dated_letters(folder):
                if key == (key_text(each.query, (letters.batch, place)) if by_key else letter.id):
                    return letter.record
    return ""


def _arrivals_and_dead_letters(
    topology: QueryTopology, prefixes: Sequence[str], is_meant: Callable[[str], bool]
) -> Iterator[dict[str, Any]]:
    """Yields arrivals, which have a `sink`, and dead letters, which have none."""
    for key, folder in topology.queries.items():
        for part in (*(past for past, _ in past_lineages(folder)), folder):
            for each in (each for prefix in prefixes for each in find_arrivals(part, prefix)):
                if is_meant(without_ways(each.id)):
                    yield {"id": each.id, "tier": key.tier, "query": key.query, "sink": each.sink, "hops": list(each.hops)}
            for letter in read_letters(part):
                if letter.record and is_meant(without_ways(letter.record)):
                    yield {
                        "id": letter.record,
                        "tier": key.tier,
                        "query": key.query,
                        "step": letter.step,
                        "reason": letter.reason,
                        "message": letter.message,
                        "letter": letter.id,
                        "hops": list(letter.trail),
                    }


def _ids_of(prepared: PreparedFlow, topology: QueryTopology, prefix: str) -> Iterator[str]:
    """The ids of one record, the requested one first: a message has one by its offset, and one by its number in what was read."""
    yield prefix
    if (whole := _whole(prepared, prefix)) is None:
        return
    source = _source_of(prepared, whole)
    if locates_records(source) and whole["sign"] == "@":
        for key in _readers_of(prepared, whole["source"]):
            if (there := _entry_of(topology.queries[key], whole, source)) is not None:
                ordinal = source.find_record(there[1], whole["place"], int(whole["sequence"]))
                yield f"{whole['source']}/{there[1].label}+{ordinal}{whole['nth'] or ''}"
    if not traces_origin(source):
        return
    for key in _readers_of(prepared, whole["source"]):
        if (found := _entry_of(topology.queries[key], whole, source)) is not None:
            _, stream = found
            given = "offset" if whole["sign"] == "@" else "ordinal"
            if (numbers := source.numbers_of(stream, **{given: int(whole["sequence"])})) is not None:
                offset, ordinal = numbers
                place = stream.place
                for id_ in (f"{place['topic']}-{place['partition']}@{offset}", f"{stream.label}+{ordinal}"):
                    if (same := f"{whole['source']}/{id_}{whole['nth'] or ''}") != prefix:
                        yield same
            return


def _beyond(
    prepared: PreparedFlow, ids: Sequence[str], found: Sequence[Mapping[str, Any]], read: Sequence[Mapping[str, Any]], told: list[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(the records of the upstream flow from which the record was made, the places of its rows from which other flows read them)"""
    whole = [there for id_ in ids if (there := _whole(prepared, id_)) is not None]
    if not whole:
        return [], []
    came = [each for there in whole if there["sign"] == "@" for each in _asked(partial(_made_of, prepared, there), told)]
    # if its provenance is not kept, the Batches that took it in are searched
    batches = {(each["hops"][-1]["tier"], each["query"], each["hops"][-1]["batch"]) for each in found if "sink" in each and each["hops"]}
    batches |= {(each["tier"], each["query"], each["batch"]) for each in read}
    return came, [each for at in sorted(batches) for each in _asked(partial(_places_of, prepared, ids, *at), told)]


def _asked(what: Callable[[], Iterator[T]], told: list[str]) -> Iterator[T]:
    """Yields what the call returns, until a place does not answer; the reason is added to `told`."""
    try:
        yield from islice(what(), MOST_FOUND)
    except ScribenginError as error:
        told.append(f"its provenance beyond this flow is not known: {error.message}")


def _whole(prepared: PreparedFlow, id_: str) -> re.Match[str] | None:
    """The parts of an id, if it is a complete id of a record from outside of the flow; otherwise None."""
    whole = _ID.fullmatch(id_)
    sources = prepared.plan.flow.sources
    return whole if whole is not None and whole["source"] in sources and sources[whole["source"]].type != CHANNEL else None


def _source_of(prepared: PreparedFlow, whole: re.Match[str]) -> SourceConnector:
    flow = prepared.plan.flow
    return catalog.open_source(flow.sources[whole["source"]].type, source_place(flow, whole["source"]))


def _made_of(prepared: PreparedFlow, whole: re.Match[str]) -> Iterator[dict[str, Any]]:
    source = _source_of(prepared, whole)
    if traces_origin(source) and (there := source.made_of(whole["place"], int(whole["sequence"]))) is not None:
        yield {"source": whole["source"], "flow": there[0], "record": without_ways(split_id(there[1])[0] or there[1])}


def _places_of(prepared: PreparedFlow, ids: Sequence[str], tier: str, query: str, number: int) -> Iterator[dict[str, Any]]:
    there = next(each for each in prepared.tiers if each.plan.tier == tier)
    wanted = next((each for each in there.plan.queries if each.name == query), None)
    decision = None if wanted is None else detailed(Decisions(there.folder.query(query).decisions), number)
    if wanted is None or decision is None:
        return
    sinks = open_sinks(there.plan.flow, there.plan, there.folder)
    for name in wanted.sinks:
        if traces_rows(sink := sinks[name]):
            for place in sink.places_of(decision.batch.lineage, number, ids):
                yield {"tier": tier, "query": query, "batch": number, "sink": name, "place": place}


def _notes(prefix: str, rate: float, *, arrived: bool, buried: bool, read: bool, went: bool) -> list[str]:
    """Notes on what is not known, and why."""
    whole = _ID.fullmatch(prefix)
    if arrived or went or (whole is None and buried):
        return []
    if whole is None:
        return [
            (
                f'"{prefix}" is not a complete id and not the beginning of a kept one; example of a complete id: '
                "tweets/part-1.jsonl[0:4096]+17"
            ),
            _KEEP_ALL,
        ]
    notes = [] if read or buried else ["no committed Batch has read such a record"]
    chosen = is_chosen(whole["label"], int(whole["sequence"]), rate)
    if rate == 0:
        notes.append(f"provenance is kept only for dead letters (`trace` is 0): {_KEEP_ALL}")
    elif not chosen:
        notes.append(
            f"it is not among the {rate:.6%}".rstrip("%").rstrip("0").rstrip(".") + f" % of records whose provenance is kept: {_KEEP_ALL}"
        )
    elif read and not buried:
        notes.append("its provenance is kept, but it has not reached a sink: a step filtered or changed it, or it is still being processed")
    return notes


def _readers_of(prepared: PreparedFlow, source: str) -> Iterator[QueryKey]:
    """The queries that read that source."""
    return (QueryKey(plan.tier, query.name) for plan in prepared.plan.tiers for query in plan.queries if source in query.sources)


def _read_by(prepared: PreparedFlow, topology: QueryTopology, id_: str) -> list[dict[str, Any]]:
    """The Batches that took the record in from outside, one for each query that did; [] if the id is not complete."""
    if (whole := _whole(prepared, id_)) is None:
        return []
    standing = Acks(topology).read()
    source = _source_of(prepared, whole)
    rows = []
    for key in _readers_of(prepared, whole["source"]):
        found = _entry_of(topology.queries[key], whole, source)
        if found is None:
            continue
        entry, stream = found
        origin = None
        if locates_records(source):
            number = int(whole["sequence"])
            ordinal = source.find_record(stream, whole["place"], number) if whole["sign"] == "@" else number
            origin = None if ordinal is None else source.locate_record(stream, ordinal)
        decision = _batch_of(topology.queries[key], whole["source"], entry)
        if decision is not None:
            rows.append(
                {
                    "tier": key.tier,
                    "query": key.query,
                    "batch": decision.batch.number,
                    "entry": entry,
                    "stream": stream.label,
                    "host": decision.ran.get("host", ""),
                    "decided_at": decision.decided_at,
                    "acknowledged": decision.batch.number <= standing.queries[key].acknowledged,
                }
                | ({} if origin is None else {"origin": dict(origin)})
            )
    return rows


def _entry_of(folder: QueryFolder, whole: re.Match[str], source: SourceConnector) -> tuple[int, SourceStream] | None:
    """The newest entry of the source's log that contains the record, with its number; None if there is none."""
    found = None
    for number, streams in enumerate(SourceLog(folder.sources, whole["source"]).entries()):
        for stream in streams:
            if _holds(stream, whole, source):
                found = number, stream
    return found


def _holds(stream: SourceStream, whole: re.Match[str], source: SourceConnector) -> bool:
    if whole["sign"] == "+":
        return stream.label == whole["place"]
    if locates_records(source):
        return source.find_record(stream, whole["place"], int(whole["sequence"])) is not None
    place = stream.place
    if f"{place.get('topic')}-{place.get('partition')}" != whole["place"]:
        return False
    return bool(place["start"] <= int(whole["sequence"]) < place["end"])


def _batch_of(folder: QueryFolder, source: str, entry: int) -> Decision | None:
    """The decided Batch that took that entry, by binary search; None if there is none, or its details are pruned."""
    decisions = Decisions(folder.decisions)
    newest = decisions.newest()
    low, high = decisions.pruned_mark() + 1, -1 if newest is None else newest.batch.number
    while low <= high:
        middle = (low + high) // 2
        decision = decisions.read(middle)
        taken = next((each for each in _ranges(decision) if each[0] == source), None)
        if decision is None or taken is None or taken[2] <= entry:
            low = middle + 1
        elif taken[1] > entry:
            high = middle - 1
        else:
            return decision
    return None


def _ranges(decision: Decision | None) -> Iterator[tuple[str, int, int]]:
    for each in () if decision is None else decision.sources:
        yield each.source, each.start, each.end

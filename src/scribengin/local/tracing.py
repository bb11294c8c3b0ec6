"""The way of single records: which sinks and dead letters they reached, hop by hop; and what is known of those that were not chosen."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from scribengin.formats.origins import Origins, without_ways
from scribengin.local.acks import topology_of
from scribengin.local.letters import KEY, key_text
from scribengin.plan.split import CHANNEL
from scribengin.state.acks import Acks, QueryKey
from scribengin.state.dead import dated_letters, read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import past_lineages
from scribengin.state.source_log import SourceLog
from scribengin.state.trails import find_arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.connectors.contract import SourceStream
    from scribengin.local.prepare import PreparedFlow
    from scribengin.state.acks import Topology
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder

_ID = re.compile(r"(?P<label>(?P<source>[a-z][a-z0-9_]*)/(?P<place>.+)(?P<sign>[+@]))(?P<sequence>\d+)(?:\.\d+)?", re.DOTALL)
_KEEP_ALL = "write `defaults: {trace: 1}` to keep the way of every record from now on"
MOST_FOUND = 1000


def trace_record(prepared: PreparedFlow, prefix: str) -> dict[str, Any]:
    """One object, as `trace --json` prints it, of the record of that id, or of the dead letter of that key (`kept:0:2`) or id, or, where
    it is no whole one, of those whose id begins so.

    At most MOST_FOUND arrivals and dead letters, and a note where there are more."""
    topology = topology_of(prepared.plan, prepared.root)
    prefix = without_ways(_record_of(topology, prefix) or prefix)
    exact = _ID.fullmatch(prefix) is not None

    def is_meant(id_: str) -> bool:
        return id_ == prefix or id_.startswith(f"{prefix}." if exact else prefix)

    found = list(islice(_found(topology, prefix, is_meant), MOST_FOUND + 1))
    more, found = len(found) > MOST_FOUND, found[:MOST_FOUND]
    arrivals = [each for each in found if "sink" in each]
    dead = [each for each in found if "sink" not in each]
    read = _read_by(prepared, topology, prefix)
    rate = prepared.plan.flow.defaults.trace
    notes = _notes(prefix, rate, arrived=bool(arrivals), buried=bool(dead), read=bool(read))
    if more:
        notes.append(f"there are more than these {MOST_FOUND:,}: write more of the id")
    said = {"flow": prepared.name, "record": prefix, "trace": rate, "arrivals": arrivals, "dead": dead, "read": read}
    return said | {"notes": notes}


def _record_of(topology: Topology, key: str) -> str:
    """The id of the record of a dead letter that is named by its key, or by its own id; empty where none is."""
    by_key = KEY.fullmatch(key) is not None
    if not by_key and "#" not in key:  # which a letter's id has
        return ""
    for each, folder in topology.queries.items():
        if not by_key or key.startswith(f"{each.query}:"):
            for letters, place, letter in dated_letters(folder):
                if key == (key_text(each.query, (letters.batch, place)) if by_key else letter.id):
                    return letter.record
    return ""


def _found(topology: Topology, prefix: str, is_meant: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    """Arrivals, which have a `sink`, and dead letters, which have none."""
    for key, folder in topology.queries.items():
        for part in (*(past for past, _ in past_lineages(folder)), folder):
            for each in find_arrivals(part, prefix):
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


def _notes(prefix: str, rate: float, *, arrived: bool, buried: bool, read: bool) -> list[str]:
    """What cannot be seen, and why."""
    whole = _ID.fullmatch(prefix)
    if arrived or (whole is None and buried):
        return []
    if whole is None:
        return [f'"{prefix}" is no whole id, and begins none that is kept; a whole one looks so: tweets/part-1.jsonl[0:4096]+17', _KEEP_ALL]
    notes = [] if read or buried else ["no committed Batch has read such a record"]
    chosen = len(Origins.of(whole["label"], np.array([int(whole["sequence"])])).chosen(rate)) > 0
    if rate == 0:
        notes.append(f"the way of records is not kept, but for dead letters (`trace` is 0): {_KEEP_ALL}")
    elif not chosen:
        notes.append(
            f"it is not among the {rate:.6%}".rstrip("%").rstrip("0").rstrip(".") + f" % of records whose way is kept: {_KEEP_ALL}"
        )
    elif read and not buried:
        notes.append(
            "its way is kept, and it has reached no sink: a step filtered it out or made other rows of it, or it is still on its way"
        )
    return notes


def _read_by(prepared: PreparedFlow, topology: Topology, id_: str) -> list[dict[str, Any]]:
    """The Batches that took the record in from outside, one of each Query that did; [] where the id is not whole."""
    whole = _ID.fullmatch(id_)
    if whole is None or whole["source"] not in prepared.plan.flow.sources:
        return []
    standing = Acks(topology).look()
    rows = []
    for plan in prepared.plan.tiers:
        for query in plan.queries:
            if whole["source"] not in query.sources or plan.flow.sources[whole["source"]].type == CHANNEL:
                continue
            key = QueryKey(plan.tier, query.name)
            found = _entry_of(topology.queries[key], whole)
            if found is None:
                continue
            entry, stream = found
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
                )
    return rows


def _entry_of(folder: QueryFolder, whole: re.Match[str]) -> tuple[int, SourceStream] | None:
    """The newest entry of the source's log that holds the record."""
    found = None
    for number, streams in enumerate(SourceLog(folder.sources, whole["source"]).entries()):
        for stream in streams:
            if _holds(stream, whole):
                found = number, stream
    return found


def _holds(stream: SourceStream, whole: re.Match[str]) -> bool:
    if whole["sign"] == "+":
        return stream.label == whole["place"]
    place = stream.place
    if f"{place.get('topic')}-{place.get('partition')}" != whole["place"]:
        return False
    return bool(place["start"] <= int(whole["sequence"]) < place["end"])


def _batch_of(folder: QueryFolder, source: str, entry: int) -> Decision | None:
    """The decided Batch that took that entry, by halving; None where there is none, or its details are gone."""
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

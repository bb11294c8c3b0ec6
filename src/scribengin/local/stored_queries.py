"""The queries of a flow in its state folder, in all its tiers, including former ones: to compare a plan with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from scribengin.connectors.channel.outbox import read_left
from scribengin.core.records import canonical
from scribengin.plan.diff import StoredQuery
from scribengin.plan.tiers import MAIN
from scribengin.plan.topology import topology_of
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.intents import Intents
from scribengin.state.ledger import read_totals
from scribengin.state.lineage import past_lineages, read_lineage
from scribengin.state.replays import waiting
from scribengin.state.source_log import SourceLog
from scribengin.state.topology import read_moved, read_topology, tiers_with_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import SourceStream
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.spec.model import Flow
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lineage import Lineage
    from scribengin.state.topology import StoredTopology


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """The stored queries of a flow. Those in `live` continue when the flow runs; moves have ended those in `past`."""

    topology: StoredTopology | None
    live: tuple[StoredQuery, ...]
    past: tuple[StoredQuery, ...]


def read_stored(root: Path, plan: FlowPlan) -> StoredFlow:
    """Read the stored queries and the tier layout of a flow."""
    flow = plan.flow
    topology = read_topology(root, flow.name)
    live: list[StoredQuery] = []
    past: list[StoredQuery] = []
    for tier in tiers_with_state(root, flow.name):
        for folder in tier.queries():
            *earlier, newest = _lives(folder)
            past += [_stored(tier, folder, life, flow, topology) for life in earlier]
            left = (moved := read_moved(folder)) is not None and moved.lineage == newest[-1][1].id
            (past if left else live).append(_stored(tier, folder, newest, flow, topology))
    if topology is None and any(query.tier != MAIN for query in live):
        topology = topology_of(plan)  # it ran before the layout was recorded
    return StoredFlow(topology, tuple(live), tuple(past))


_Life = list[tuple["QueryFolder", "Lineage"]]
"""lineages of which each one began by a rewind of the one before, oldest first"""


def _lives(folder: QueryFolder) -> list[_Life]:
    newest = read_lineage(folder)
    assert newest is not None, "queries() lists folders that have one"
    lives: list[_Life] = []
    for part, lineage in [*past_lineages(folder), (folder, newest)]:
        if lineage.origin or not lives:
            lives.append([])
        lives[-1].append((part, lineage))
    return lives


def _stored(tier: StateFolder, folder: QueryFolder, life: _Life, flow: Flow, topology: StoredTopology | None) -> StoredQuery:
    part, lineage = life[-1]
    newest = Decisions(part.decisions).newest()
    written: dict[str, int] = {}
    read = dict(life[0][1].passed)
    counted = topology is not None or bool(flow.tiers)  # a flow that always had one tier has nothing to compare them with
    for each, of_life in life if counted else []:
        totals = read_totals(each)
        for sink, count in totals.sinks.items():
            dropped = read_left(folder.work(sink), of_life.id).dropped_rows
            written[sink] = written.get(sink, 0) + count.rows - dropped
        for source in lineage.sources:
            if (counts := totals.nodes.get(source)) is not None:
                read[source] = read.get(source, 0) + counts.rows_in - counts.dead
    channels = {channel.id for channel in topology.channels} if topology is not None else set()
    return StoredQuery(
        folder.name,
        lineage.id,
        lineage.fingerprint,
        lineage.state_fingerprint,
        {each.source: each.end for each in newest.sources} if newest else dict(lineage.starts),
        newest.batch.number if newest else None,
        lineage.parts,
        tier.tier,
        lineage.sources,
        tuple(id_ for id_ in lineage.parts if id_ in flow.sinks or id_ in channels),
        written,
        read,
        _pending(folder, lineage, newest.batch.number + 1 if newest else 0),
        lineage.origin,
        letters_waiting(folder),
        lineage.types,
    )


def _pending(folder: QueryFolder, lineage: Lineage, number: int) -> bool:
    """True if a part of its newest output may be at its place, and a part not: task outputs that commit one by one, or Batches that wait
    for a channel."""
    intent = Intents(folder.intents / lineage.id).read(number)
    waiting = any(read_left(folder.work(id_), lineage.id).batches for id_ in lineage.parts)
    return waiting or (intent is not None and intent.units > 0)


def letters_waiting(folder: QueryFolder) -> int:
    """The number of dead letters whose replay is requested, and that no Batch has taken."""
    return sum(len(request.letters) for request in waiting(folder))


def logs_of(folder: QueryFolder, lineage: str) -> Path:
    """The folder of the source logs of a lineage: beside it, if a move has left them there; otherwise that of the whole query."""
    left = folder.past(lineage).sources
    return left if left.exists() else folder.sources


def reached(root: Path, flow: str, query: StoredQuery, source: str) -> bytes:
    """A value that represents the records of a source that a query has decided. It is equal if the same records were read, in whatever
    Batches."""
    folder = StateFolder(root, flow, query.tier).query(query.name)
    entries = islice(SourceLog(logs_of(folder, query.lineage), source).entries(), query.sources.get(source, 0))
    return canonical(sorted(map(canonical, _covered(stream for streams in entries for stream in streams))))


def _covered(streams: Iterable[SourceStream]) -> Iterator[Any]:
    """The ranges that the streams cover, with adjacent ones joined."""
    ends: dict[bytes, list[list[int]]] = {}
    for key, start, end in (piece for stream in streams for piece in _pieces(stream)):
        ends.setdefault(canonical(key), []).append([start, end])
    for name, ranges in ends.items():
        yield [name.decode(), _joined(ranges)]


def _joined(ranges: Sequence[Sequence[int]]) -> list[list[int]]:
    joined: list[list[int]] = []
    for start, end in sorted(map(tuple, ranges)):
        if joined and joined[-1][1] == start:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    return joined


def _pieces(stream: SourceStream) -> Iterator[tuple[Any, int, int]]:
    """Yields (what, start, end) for the ranges in a stream: pieces of files, or a range of a partition; any other stream is one whole."""
    place = dict(stream.place)
    if "of" in place:  # of a group's member
        for what, begin, until in _pieces(replace(stream, place=place["of"])):
            yield [place["member"], what], begin, until
        return
    start, end = place.pop("start", None), place.pop("end", None)
    if "pieces" in place:
        for path, size, mtime_ns, inode, begin, until, *_ in place["pieces"]:
            yield [stream.skipped, place["root"], path, size, mtime_ns, inode], begin, until
    elif isinstance(start, int) and isinstance(end, int):
        yield [stream.skipped, place], start, end
    else:
        yield [stream.skipped, dict(stream.place)], 0, 1

"""Rewinds whole queries to an earlier Batch or time, or starts them over: computes the positions and the rows that are repeated, and
carries it out.

`positions` moves one source by hand; here all sources of a query return to positions that they had at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.abilities import is_handed_over, verifies
from scribengin.connectors.files.source import FilesSource
from scribengin.core.errors import Refused, SourceError
from scribengin.core.units import show_bytes
from scribengin.local.positions import closed_text, decided_ends, go_back, preview_move_back
from scribengin.local.prepare import open_sources
from scribengin.local.summaries import SUMMARY
from scribengin.plan.tier_flows import CHANNEL, source_id
from scribengin.state.decisions import Decisions, moment
from scribengin.state.lineage import read_lineage
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from scribengin.connectors.contract import SourceStream
    from scribengin.local.positions import MovedPosition
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.spec.model import Flow, Sink
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease
    from scribengin.state.lineage import Lineage


_LOOKED_FOR = 5_000
"""the most streams of a source whose files a plan looks for, which takes some hundredths of a second"""


@dataclass(frozen=True, slots=True)
class QueryRewind:
    """The rewind of one query.

    `starts`: source → the position from which it would read; `moved` are the sources that go back. `doubled`: sink → the most rows that
    would be written again. For a channel these rows pass through the tiers downstream of it again, to the sinks that `behind` names.
    """

    tier: str
    query: str
    starts: Mapping[str, int]
    moved: tuple[MovedPosition, ...]
    doubled: Mapping[str, int]
    behind: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def says(self, flow: Flow) -> list[str]:
        """Sentences for people, one for each source and sink."""
        said = [
            f"{_label(self.tier, self.query)} reads source {each.source} again from position {each.after} to {each.before}"
            + (f", {each.rows:,} rows" if each.rows is not None else f", {each.files:,} files" if each.files else "")
            for each in self.moved
        ]
        for sink, rows in self.doubled.items():
            if sink in flow.sinks and flow.sinks[sink].type == SUMMARY:
                said.append(f"summary {sink} is computed again from that position")
            elif sink in flow.sinks:
                said.append(f"sink {sink} ({flow.sinks[sink].place}) receives up to {rows:,} rows again{_twice(flow.sinks[sink])}")
            else:
                ends = [f"{end} ({flow.sinks[end].place}){_twice(flow.sinks[end])}" for end in self.behind.get(sink, ())]
                said.append(f"up to {rows:,} rows pass through channel {sink} again, to sink {'; to sink '.join(ends)}")
        return said

    def as_json(self) -> dict[str, Any]:
        """The rewind as one JSON object."""
        moved = [each.as_json() for each in self.moved]
        rows = {"doubled": dict(self.doubled), "behind": {channel: list(sinks) for channel, sinks in self.behind.items()}}
        return {"tier": self.tier, "query": self.query, "starts": dict(self.starts), "sources": moved, **rows}


def find_rewinds(prepared: PreparedFlow, query: str | None, *, at: datetime | None = None, batch: int | None = None) -> list[QueryRewind]:
    """Compute the rewind of queries to the state after a Batch. Changes nothing.

    Only queries that read data from outside are rewound; queries that read channels follow, because they get the rows again.

    Args:
        prepared: The flow.
        query: The only query to rewind; None for all.
        at: Rewind to the last Batch that was decided until this time.
        batch: Rewind to this Batch; -1 is before the first one. Used if `at` is None.

    Returns:
        One item for each query that goes back.

    Raises:
        Refused: There is no such query, or it cannot go back: it keeps state, the details of the Batch are pruned, or data that it would
            read no longer exists.
    """
    found: list[QueryRewind] = []
    seen: list[str] = []
    for tier in prepared.tiers:
        for planned in tier.plan.queries:
            folder = tier.folder.query(planned.name)
            outside = [source for source in planned.sources if tier.plan.flow.sources[source].type != CHANNEL]
            if not outside or read_lineage(folder) is None:
                continue
            seen.append(planned.name)
            if query in (None, planned.name):
                starts = _starts_at(folder, at) if at is not None else _starts_after(folder, -1 if batch is None else batch)
                # what other tiers have written was acknowledged, and may be deleted: its rows arrive again from their own queries
                starts = {source: starts.get(source, 0) for source in outside}
                found += _back(prepared, tier, folder, starts)
    if query is not None and query not in seen:
        have = f"Queries that read sources and have run are {', '.join(seen)}" if seen else "no query has run yet"
        raise Refused(f'flow "{prepared.name}" has no query "{query}" that can go back', remedy=have, code="query-unknown")
    return found


def _back(prepared: PreparedFlow, tier: Prepared, folder: QueryFolder, starts: Mapping[str, int]) -> Iterator[QueryRewind]:
    ends = decided_ends(folder)
    back = {source: to for source, to in starts.items() if to < ends.get(source, 0)}
    if not back:
        return
    moved = tuple(preview_move_back(folder, source, to, {**ends, **back}) for source, to in back.items())
    for source, to in back.items():
        _check_there(tier, folder, source, SourceLog(folder.sources, source).own_range(to, ends[source]))
    doubled: dict[str, int] = {}
    for each in moved:
        for sink, rows in (each.doubled or {}).items():
            doubled[sink] = max(doubled.get(sink, 0), rows)
    behind = {sink: _behind(prepared, sink) for sink in doubled if sink not in prepared.plan.flow.sinks}
    yield QueryRewind(tier.plan.tier, folder.name, {**ends, **back}, moved, doubled, behind)


def _behind(prepared: PreparedFlow, channel: str) -> tuple[str, ...]:
    """The sinks of the flow that the rows of a channel reach."""
    waiting, passed, ends = [channel], set[str](), dict[str, None]()
    while waiting:
        id_ = waiting.pop()
        passed.add(id_)
        link = next(each for each in prepared.plan.channels if each.id == id_)
        for query in prepared.plan.readers(link):
            if source_id(link) in query.sources:
                ends.update(dict.fromkeys(sink for sink in query.sinks if sink in prepared.plan.flow.sinks))
                known = {each.id for each in prepared.plan.channels}
                waiting += [sink for sink in query.sinks if sink in known and sink not in passed]
    return tuple(ends)


def _starts_after(folder: QueryFolder, number: int) -> Mapping[str, int]:
    """Source → the position after that Batch of the present lineage."""
    lineage = read_lineage(folder)
    assert lineage is not None
    if number < 0:
        return {source: lineage.starts.get(source, 0) for source in lineage.sources}
    decisions = Decisions(folder.decisions)
    newest = decisions.newest()
    if newest is None or number > newest.batch.number:
        last = "none" if newest is None else f"{newest.batch.number}"
        raise Refused(
            f'query "{folder.name}" has no Batch {number}; its newest Batch is {last}', remedy="name an earlier Batch", code="batch-unknown"
        )
    decision = None if number <= decisions.pruned_mark() else decisions.read(number)
    if decision is None:
        raise _forgotten(folder, decisions)
    return {taken.source: taken.end for taken in decision.sources}


def _starts_at(folder: QueryFolder, at: datetime) -> Mapping[str, int]:
    decisions = Decisions(folder.decisions)
    number = decisions.pruned_mark()
    for decision in decisions.since(number + 1):
        if moment(decision.decided_at) > at:
            break
        number = decision.batch.number
    if number >= 0 and number == decisions.pruned_mark():
        raise _forgotten(folder, decisions)
    return _starts_after(folder, number)


def _forgotten(folder: QueryFolder, decisions: Decisions) -> Refused:
    oldest = decisions.read(decisions.pruned_mark() + 1)
    since = "" if oldest is None else f", decided at {oldest.decided_at}"
    return Refused(
        f'query "{folder.name}" no longer has the positions of that Batch',
        remedy=f"go back to Batch {decisions.pruned_mark() + 1} or later{since}",
        code="batch-forgotten",
    )


def _check_there(tier: Prepared, folder: QueryFolder, source: str, streams: Sequence[SourceStream]) -> None:
    """Raise Refused if data that would be read again no longer exists."""
    flow = tier.plan.flow
    opened = open_sources(flow)[source]
    if isinstance(opened, FilesSource) and not is_handed_over(opened):
        for stream in streams:
            if not stream.skipped and (gone := opened.gone(stream)):
                raise _gone(folder, source, f"file {gone}", "restore the file, or go back to a later position")
        return
    reader = opened.reader()
    if verifies(reader):
        try:
            lost = [stream.label for stream in reader.verify(streams) if stream.lost]
        except SourceError as error:
            raise _gone(folder, source, error.message, "go back to a later position") from error
        if lost:
            raise _gone(folder, source, ", ".join(lost), "go back to a later position")


def read_again(tier: Prepared, query: str) -> Iterator[str]:
    """Sentences for a query that would start over, one for each source: how much it has read, and whether that still exists.
    The first thousands of files are looked for; other sources are not accessed."""
    folder = tier.folder.query(query)
    flow = tier.plan.flow
    for source, end in decided_ends(folder).items():
        if source not in flow.sources:
            continue
        streams = SourceLog(folder.sources, source).own_range(0, end)
        files, size = sum(stream.files for stream in streams), sum(stream.bytes for stream in streams)
        much = f"{files:,} file{'s' * (files != 1)}, {show_bytes(size)}" if files else f"{end:,} entries of its log"
        opened = open_sources(flow)[source]
        if not isinstance(opened, FilesSource):
            there = "not checked whether they still exist"
        else:
            looked = streams[:_LOOKED_FOR]
            gone = next((path for stream in looked if (path := opened.gone(stream))), "")
            there = f"{gone} no longer exists" if gone else "all of them exist" if looked == streams else "the first ones exist"
        yield f"{source} from its start, {much}: {there}"


def _gone(folder: QueryFolder, source: str, what: str, remedy: str) -> Refused:
    return Refused(f'query "{folder.name}" cannot read source "{source}" again: {what} no longer exists', remedy=remedy, code="rewind-gone")


def begin_new_lineage(prepared: Prepared, query: QueryFolder, how: str, lease: Lease) -> Lineage | None:
    """Begin a new lineage of the query, without the state of the old one. The caller holds the lease.

    Args:
        prepared: The tier.
        query: The folder of the query's state.
        how: `again` reads all sources from the start, except channels, which keep their positions; `lost` keeps the positions of all
            sources.
        lease: The lease of the tier.

    Returns:
        The new lineage; None if the query never ran, or has just begun in this way.

    Raises:
        Refused: As for `go_back`.
    """
    lineage = read_lineage(query)
    if lineage is None:
        return None
    sources = prepared.plan.flow.sources
    ends = decided_ends(query)
    kept = {source for source in ends if how == "lost" or source not in sources or sources[source].type == CHANNEL}
    starts = {source: end if source in kept else 0 for source, end in ends.items()}
    if Decisions(query.decisions).newest() is None and not query.checkpoint.exists() and dict(lineage.starts) == starts:
        return None
    return go_back(prepared, query, starts, lease)


def _twice(sink: Sink) -> str:
    if sink.type == SUMMARY:
        return ", which counts them again"
    shown = "view" in catalog.sink_types(internal=True)[sink.type].abilities
    return ", printed again" if shown else f", which duplicates existing rows{closed_text(sink)}"


def _label(tier: str, query: str) -> str:
    return query if tier == "main" else f"{tier}.{query}"

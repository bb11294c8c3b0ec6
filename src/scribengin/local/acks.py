"""Acknowledgements while a flow runs: once a second, check how far the ends of the flow have committed, and release the input up to there.

When a range of a source is acknowledged, it is released: a consumer group commits the offsets, and files are deleted or archived if the
flow says so. Files of a channel are deleted when `retention` has passed since all their readers have acknowledged them, including those
that an earlier lineage of the upstream query has written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.abilities import reports_position
from scribengin.core.errors import ScribenginError, text_of
from scribengin.core.records import seal, unseal
from scribengin.core.storage import read_or_none, replace
from scribengin.local.agent_commits import AgentCommits
from scribengin.local.backlog_view import Levels
from scribengin.local.prepare import open_sinks, source_place
from scribengin.local.source_cleanup import DoneFiles
from scribengin.plan.tier_flows import source_id
from scribengin.state.channel_acks import ChannelLink, QueryKey, QueryReading, QueryTopology, earlier_writers
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.source_log import SourceLog
from scribengin.state.topology import tiers_with_state

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.plan.channels import PlannedChannel
    from scribengin.plan.model import QueryPlan
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.spec.model import Source
    from scribengin.state.channel_acks import FlowAcks, LinkStanding, QueryStanding
    from scribengin.state.channel_checks import Mismatch
    from scribengin.state.folder import QueryFolder

_EVERY_S = 1.0
_AGAIN_S = 30.0
"""seconds between a failed release outside of the flow and the next try"""
_KEEP_EVERY_S = 5.0
_MARKS = 100
"""the retention of a channel is divided into so many parts, which is the precision with which its files are deleted"""
_REPORTED_ENTRIES = 1000
"""the most entries of a source's log that are reported at once: the newest ones have the position in each partition"""
_KIND, _FORMAT = "released", 1


def topology_of(plan: FlowPlan, root: Path) -> QueryTopology:
    """The queries and channels of a planned flow whose state is in `root`."""
    queries: dict[QueryKey, QueryFolder] = {}
    by_state = set()
    for tier in plan.tiers:
        folder = StateFolder(root, plan.flow.name, tier.tier)
        for query in tier.queries:
            key = QueryKey(tier.tier, query.name)
            queries[key] = folder.query(query.name)
            if is_by_state(plan, tier.tier, query):
                by_state.add(key)
    own = {folder.path for folder in queries.values()}
    left = [folder for tier in tiers_with_state(root, plan.flow.name) for folder in tier.queries() if folder.path not in own]
    return QueryTopology(queries, tuple(_link(plan, channel) for channel in plan.channels), frozenset(by_state), tuple(left))


def is_by_state(plan: FlowPlan, tier: str, query: QueryPlan) -> bool:
    """True if rows are acknowledged only when they have left the query's state."""
    declared = plan.flow.tiers.get(tier)
    return query.stateful and declared is not None and declared.acknowledge == "state"


def is_released_later(plan: FlowPlan, tier: str, query: QueryPlan) -> bool:
    """True if a committed Batch of the query is acknowledged later: the readers of its channels must commit first, or its rows must leave
    its state."""
    holding = {channel.id for channel in plan.channels if channel.edge.durability != "best_effort"}
    return bool(holding.intersection(query.sinks)) or is_by_state(plan, tier, query)


def _link(plan: FlowPlan, channel: PlannedChannel) -> ChannelLink:
    durability = channel.edge.durability
    return ChannelLink(
        channel.id,
        QueryKey(channel.feeding, plan.feeder(channel).name),
        tuple(QueryReading(QueryKey(channel.reading, query.name), source_id(channel)) for query in plan.readers(channel)),
        "kafka" if channel.channel.type == "kafka" else "folder",
        holds=durability != "best_effort",
        drops=durability == "best_effort",
    )


@dataclass(slots=True)
class _Source:
    """One source of a query that this process runs."""

    key: QueryKey
    tier: Prepared
    query: QueryPlan
    id: str
    log: SourceLog
    reader: Any = None
    """the reader that reports positions outside of the flow, opened for the first report; False if the source has none"""
    again_at: float = 0.0
    """time before which a failed release is not retried"""


@dataclass(slots=True)
class _Record:
    """The record of what was released of the sources and channels of one query; stored in its folder."""

    path: Path
    lineage: str
    told: dict[str, int] = field(default_factory=dict)
    """source → entries that were reported outside of the flow"""
    files: dict[str, int] = field(default_factory=dict)
    """source → entries whose files were released"""
    marks: dict[str, list[list[float]]] = field(default_factory=dict)
    """channel → (Batch, when it was found to be acknowledged by all readers), for some Batches"""
    earlier: dict[str, float] = field(default_factory=dict)
    """channel → when the output of all earlier lineages was found to be acknowledged; 0 once its files are deleted"""

    @staticmethod
    def of(folder: QueryFolder, lineage: str) -> _Record:
        """The stored record, if it belongs to this lineage."""
        path = folder.ledger / "released.json"
        data = read_or_none(path)
        body: dict[str, Any] = {} if data is None else unseal(data, _KIND, _FORMAT, path)
        return _Record(path, **body) if body.get("lineage") == lineage else _Record(path, lineage)

    def write(self) -> None:
        """Write the record durably."""
        body = {"lineage": self.lineage, "told": self.told, "files": self.files, "marks": self.marks, "earlier": self.earlier}
        replace(self.path, seal(_KIND, _FORMAT, body))


class Releases:
    """Releases acknowledged input of the tiers of a run. Used by one thread; `clock` gives seconds since 1970."""

    def __init__(
        self,
        prepared: PreparedFlow,
        levels: Levels | None = None,
        *,
        say: Callable[[str], None] = lambda _: None,
        stop: Callable[[Mismatch], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the release for the tiers of a run.

        Args:
            prepared: The flow.
            levels: The shared view of the flow's progress, if other parts of this process use one.
            say: Receives a text about each release that failed.
            stop: Receives each Batch that was not read from a channel as it was written.
            clock: Seconds since 1970.
        """
        self._prepared = prepared
        self._say = say
        self._stop = stop
        self._broken = False
        self._said: set[str] = set()
        self._clock = clock
        self._levels = levels or Levels(topology_of(prepared.plan, prepared.root))
        self._topology = self._levels.topology
        self._records: dict[QueryKey, _Record] = {}
        self._kept_at, self._stale = clock(), False
        self._sources: list[_Source] = []
        self._sinks: dict[str, Any] = {}
        for tier in prepared.tiers:
            for query in tier.plan.queries:
                key = QueryKey(tier.plan.tier, query.name)
                folder = tier.folder.query(query.name)
                self._sources += [_Source(key, tier, query, id_, SourceLog(folder.sources, id_)) for id_ in query.sources]
        self._mine = {source.key for source in self._sources}
        self._channels = {channel.id: channel for channel in prepared.plan.channels}
        self._files = DoneFiles.of(prepared, self._tell)
        self._agents = AgentCommits(prepared, self._explained)

    @property
    def wanted(self) -> bool:
        """False if nothing depends on acknowledgements: the flow has no channels, and keeps its files."""
        return bool(self._topology.links or self._topology.by_state or self._files.wanted or self._agents.wanted)

    def release_acknowledged(self) -> FlowAcks:
        """Read the progress of the flow, and release what is acknowledged, unless the two ends of a channel have differed. A release that
        fails is reported, not raised."""
        standing = self._levels.acknowledged()
        for mismatch in self._levels.mismatches():
            self._broken = True
            self._stop(mismatch)
        if self._broken:  # data that may show what has happened is not deleted
            return standing
        for key, at in standing.queries.items():
            if at.lineage:
                self._record(key, at)
        changed = set()
        for source in self._sources:
            at = standing.queries[source.key]
            if at.lineage and self._release(source, at):
                changed.add(source.key)
        with self._explained("files"):
            for key, places in self._files.release(standing).items():
                record = self._record(key, standing.queries[key])
                if record.files != places:
                    record.files = places
                    changed.add(key)
        self._agents.report(standing)
        for link in self._topology.links:
            if link.kind == "folder" and link.writer in self._mine and self._sweep(link, standing):
                changed.add(link.writer)
        for key in changed:
            self._records[key].write()
        self._stale = self._stale or bool(changed)
        if self._stale and self._clock() - self._kept_at >= _KEEP_EVERY_S:
            self.keep()
        return standing

    def keep(self) -> None:
        """Record the progress of the queries of this process."""
        self._kept_at, self._stale = self._clock(), False
        for key in self._mine:
            self._levels.keep(key)

    def begin(self) -> None:
        """Start the comparison of both ends of each channel. Call it before anything runs."""
        with self._explained("acknowledgements"):
            self._levels.acknowledged()

    def run(self, ended: threading.Event) -> None:
        """Release once a second until `ended` is set, and once more after that."""
        last = False
        while not last:
            last = ended.wait(_EVERY_S)
            with self._explained("acknowledgements"):
                self.release_acknowledged()
        with self._explained("acknowledgements"):
            self.keep()

    # --- pieces ---

    def _record(self, key: QueryKey, at: QueryStanding) -> _Record:
        record = self._records.get(key)
        if record is None or record.lineage != at.lineage:
            folder = self._topology.queries[key]
            record = self._records[key] = _Record.of(folder, at.lineage)
            self._files.resume_at(key, at.lineage, record.files)
        return record

    def _release(self, source: _Source, at: QueryStanding) -> bool:
        """Report acknowledged entries outside of the flow; True if there were new ones."""
        record = self._record(source.key, at)
        through = at.released.get(source.id, 0)
        told = record.told.get(source.id, 0)
        if through <= told or self._clock() < source.again_at:
            return False
        if is_released_later(source.tier.whole, source.key.tier, source.query):
            # a system that does not answer is not tried at every call, because each attempt waits for an answer
            source.again_at = self._clock() + _AGAIN_S
            with self._explained(f"source {source.id}"):
                if source.reader is None:
                    node = source.tier.plan.flow.sources[source.id]
                    source.reader = _reporting_reader(source.tier, source.id) if _reports_position(node) else False
                if source.reader:
                    name = f"{source.tier.plan.flow.name}.{source.key.query}"
                    source.reader.committed(source.log.own_range(max(told, through - _REPORTED_ENTRIES), through), query=name)
                    for note in source.reader.notices():
                        self._tell(note)
                source.again_at = 0.0
            if source.again_at:
                return False
        record.told[source.id] = through
        return True

    def _sweep(self, link: ChannelLink, standing: FlowAcks) -> bool:
        """Delete files of a channel that have outlived its retention; True if the record has changed."""
        at = standing.queries[link.writer]
        readers = standing.of(link)
        if not at.lineage or len(readers) < len(link.readers) or not readers:
            return False
        record = self._record(link.writer, at)
        retention_s = self._channels[link.channel].edge.retention_s or 0.0
        left = self._sweep_earlier(link, record, readers, retention_s)
        marks = record.marks.setdefault(link.channel, [])
        now, through, noted = self._clock(), min(each.committed for each in readers), False
        if through > (marks[-1][0] if marks else -1) and (not marks or now - marks[-1][1] >= retention_s / _MARKS):
            marks.append([through, now])
            noted = True
        due = [mark for mark in marks if mark[1] + retention_s <= now]
        if due:
            with self._explained(f"channel {link.channel}"):
                self._sink(link).release(lineage=at.lineage, through=int(due[-1][0]))
                del marks[: len(due) - 1]
        return noted or left

    def _sweep_earlier(self, link: ChannelLink, record: _Record, readers: Sequence[LinkStanding], retention_s: float) -> bool:
        """Delete, all at once, what earlier lineages of the upstream query have left in a channel; True if the record has changed."""
        if any(each.earlier_open is None or each.earlier_open.batches for each in readers):
            return record.earlier.pop(link.channel, None) is not None  # a reader was rewound
        since = record.earlier.get(link.channel)
        if since is None:
            record.earlier[link.channel] = self._clock()
            return True
        if not since or since + retention_s > self._clock():
            return False
        with self._explained(f"channel {link.channel}"):
            folders = (*self._topology.queries.values(), *self._topology.left)
            for earlier in earlier_writers(link.channel, folders, record.lineage):
                newest = Decisions(earlier.part.decisions).newest()
                if newest is not None:
                    self._sink(link).release(lineage=earlier.lineage.id, through=newest.batch.number)
            record.earlier[link.channel] = 0.0
            return True
        return False

    def _sink(self, link: ChannelLink) -> Any:
        if link.channel not in self._sinks:
            tier = next(tier for tier in self._prepared.tiers if tier.plan.tier == link.writer.tier)
            sink = open_sinks(tier.plan.flow, tier.plan, tier.folder)[link.channel]
            self._sinks[link.channel] = getattr(sink, "inner", sink)
        return self._sinks[link.channel]

    def _tell(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _explained(self, what: str) -> _ReportedErrors:
        return _ReportedErrors(what, self._tell)


@dataclass(frozen=True, slots=True)
class _ReportedErrors:
    """A block whose errors are reported instead of raised, because it is tried again at the next call: no record depends on it."""

    what: str
    tell: Callable[[str], None]

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, (ScribenginError, OSError)):
            return False
        self.tell(f"{self.what}: not released yet: {text_of(error)}")
        return True


def _reports_position(node: Source) -> bool:
    return "reports_position" in catalog.source_types(internal=True)[node.type].able(node.options)


def _reporting_reader(tier: Prepared, id_: str) -> Any:
    """The source's reader, if it reports positions outside of the flow; otherwise False."""
    node = tier.plan.flow.sources[id_]
    reader = catalog.open_source(node.type, source_place(tier.plan.flow, id_)).reader()
    return reader if reports_position(reader) else False

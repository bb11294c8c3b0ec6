"""Acknowledgements while a flow runs: once a second a look at how far the ends of the flow have come, and what may be released by that.

A source whose range is acknowledged is released: a consumer group hears the offsets, files are deleted or archived where the flow says so.
Files of a channel go once `retention` has passed since all their readers have acknowledged them, those too that an earlier lineage of the
feeder has put there.
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
from scribengin.local.backlog_view import Levels
from scribengin.local.prepare import open_sinks, source_place
from scribengin.local.source_cleanup import DoneFiles
from scribengin.plan.tier_flows import source_id
from scribengin.state.channel_acks import ChannelLink, QueryKey, QueryReading, QueryTopology, earlier_feeders
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
"""into so many parts a channel's retention is divided: so exact is the time at which its files go"""
_TOLD_ENTRIES = 1000
"""of a source's log that are reported at once: the newest say how far each partition is"""
_KIND, _FORMAT = "released", 1


def topology_of(plan: FlowPlan, root: Path) -> QueryTopology:
    """The Queries and channels of a planned flow whose state is in `root`."""
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
    """True if rows count as through only once they have left the Query's state."""
    declared = plan.flow.tiers.get(tier)
    return query.stateful and declared is not None and declared.acknowledge == "state"


def is_released_later(plan: FlowPlan, tier: str, query: QueryPlan) -> bool:
    """True if a committed Batch of the Query is not yet an acknowledged one: others behind it have to commit first."""
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
    """One source of a Query that this process runs."""

    key: QueryKey
    tier: Prepared
    query: QueryPlan
    id: str
    log: SourceLog
    reader: Any = None
    """what tells the world outside, opened when there is something to tell; False if nothing does"""
    again_at: float = 0.0
    """time before which a failed release is not retried"""


@dataclass(slots=True)
class _Record:
    """What was released of one Query's sources and channels, kept in its folder."""

    path: Path
    lineage: str
    told: dict[str, int] = field(default_factory=dict)
    """source → entries that the world outside has heard of"""
    files: dict[str, int] = field(default_factory=dict)
    """source → entries whose files were dealt with"""
    marks: dict[str, list[list[float]]] = field(default_factory=dict)
    """channel → (Batch, when it was seen acknowledged by all readers), some of them"""
    earlier: dict[str, float] = field(default_factory=dict)
    """channel → when all that earlier lineages had put in was seen acknowledged; 0 once its files are gone"""

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
        """`levels` is what looks, where others in this process look too. `stop` hears of Batches that did not come out of a channel as they
        went in."""
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

    @property
    def wanted(self) -> bool:
        """False if nothing waits for acknowledgements: in a flow that is not cut and keeps its files."""
        return bool(self._topology.links or self._topology.by_state or self._files.wanted)

    def release_acknowledged(self) -> FlowAcks:
        """Look how the flow stands, and release what is acknowledged, unless a channel's ends have disagreed. Raises nothing that may
        pass; it is said."""
        standing = self._levels.acknowledged()
        for mismatch in self._levels.mismatches():
            self._broken = True
            self._stop(mismatch)
        if self._broken:  # what it takes to find out what happened is not deleted
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
        """Record the progress of the Queries of this process."""
        self._kept_at, self._stale = self._clock(), False
        for key in self._mine:
            self._levels.keep(key)

    def begin(self) -> None:
        """Start the comparison of both ends of each channel. Call it before anything runs."""
        with self._explained("acknowledgements"):
            self._levels.acknowledged()

    def run(self, ended: threading.Event) -> None:
        """Look once a second until the end, and once more."""
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
            self._files.go_on(key, at.lineage, record.files)
        return record

    def _release(self, source: _Source, at: QueryStanding) -> bool:
        """Report acknowledged entries outside of the flow; True if there were new ones."""
        record = self._record(source.key, at)
        through = at.released.get(source.id, 0)
        told = record.told.get(source.id, 0)
        if through <= told or self._clock() < source.again_at:
            return False
        if is_released_later(source.tier.whole, source.key.tier, source.query):
            # whoever does not answer is asked again, but not at every look: each waits for an answer
            source.again_at = self._clock() + _AGAIN_S
            with self._explained(f"source {source.id}"):
                if source.reader is None:
                    node = source.tier.plan.flow.sources[source.id]
                    source.reader = _position_reader(source.tier, source.id) if _reports_position(node) else False
                if source.reader:
                    name = f"{source.tier.plan.flow.name}.{source.key.query}"
                    source.reader.committed(source.log.own_range(max(told, through - _TOLD_ENTRIES), through), query=name)
                    for note in source.reader.notices():
                        self._tell(note)
                source.again_at = 0.0
            if source.again_at:
                return False
        record.told[source.id] = through
        return True

    def _sweep(self, link: ChannelLink, standing: FlowAcks) -> bool:
        """Delete files of a channel that have outlived its retention; True if something was noted."""
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
        """The same with what a rewind or a move of the feeder has left there, all of it at once; True if something was noted."""
        if any(each.earlier_open is None or each.earlier_open.batches for each in readers):
            return record.earlier.pop(link.channel, None) is not None  # a reader has gone back
        since = record.earlier.get(link.channel)
        if since is None:
            record.earlier[link.channel] = self._clock()
            return True
        if not since or since + retention_s > self._clock():
            return False
        with self._explained(f"channel {link.channel}"):
            folders = (*self._topology.queries.values(), *self._topology.left)
            for earlier in earlier_feeders(link.channel, folders, record.lineage):
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

    def _explained(self, what: str) -> _Said:
        return _Said(what, self._tell)


@dataclass(frozen=True, slots=True)
class _Said:
    """What fails inside is said, and tried again at the next look: nothing that keeps records rests on it."""

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


def _position_reader(tier: Prepared, id_: str) -> Any:
    """The source's reader, if it reports outside of the flow; else False."""
    node = tier.plan.flow.sources[id_]
    reader = catalog.open_source(node.type, source_place(tier.plan.flow, id_)).reader()
    return reader if reports_position(reader) else False

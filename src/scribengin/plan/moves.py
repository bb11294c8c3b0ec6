"""From one tier to several, back, and a step to another tier: which Queries go on in place of which, from where, and where they cannot.

A Query that begins in place of others may do so only where nothing is lost or doubled: none of them keeps state, all have read the same
of each source, and every channel that lay between is empty. It then begins where they ended, and takes over what they wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.core.remedies import flow_command
from scribengin.plan.diff import letters
from scribengin.plan.fingerprint import node_fingerprints
from scribengin.plan.graph import Graph, flat_name
from scribengin.plan.tiers import MAIN
from scribengin.plan.topology import topology_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from scribengin.plan.diff import StoredQuery
    from scribengin.plan.model import QueryPlan
    from scribengin.plan.split import FlowPlan
    from scribengin.spec.model import Flow
    from scribengin.state.topology import KnownChannel, Topology

Key = tuple[str, str]
"""(tier, Query)"""
_ELSEWHERE = "give it another topic or path"
DRAIN = f"undo the change, run the flow until all is through, {flow_command('run', '--once')}, then change it"


@dataclass(frozen=True, slots=True)
class Donor:
    """Whose log of a source is taken over, and up to which entry it is behind."""

    query: StoredQuery
    source: str
    position: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A Query that goes on in place of `after`. `donors`: source → the log it goes on with; `passed`: channel's source → rows of it that
    others have read; `adopts`: sink → the lineages of which one has written there last; `through`: leaving Queries whose part it takes
    over with theirs, as they fed them."""

    tier: str
    query: QueryPlan
    after: tuple[StoredQuery, ...]
    donors: Mapping[str, Donor] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    adopts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    through: tuple[StoredQuery, ...] = ()

    @property
    def key(self) -> Key:
        """Whose folder it is."""
        return self.tier, self.query.name


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a Query cannot begin in place of others."""

    key: Key
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Moves:
    """`arrivals` are to be carried out together, and only where there are no `refusals`. `leaving`: Query → those that go on in its place,
    none where its sinks are gone."""

    arrivals: tuple[Arrival, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    leaving: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)


class _Unsafe(Exception):
    def __init__(self, why: str, remedy: str = DRAIN) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


def plan_moves(
    plan: FlowPlan,
    known: Topology | None,
    live: Iterable[StoredQuery],
    past: Iterable[StoredQuery],
    reached: Callable[[StoredQuery, str], Hashable],
    *,
    drained: bool = False,
) -> Moves:
    """What must move. `live` are the stored Queries, `past` the lineages that earlier moves have left. `reached` tells what of a source a
    stored Query has decided, as a value that is equal where the same was read. `drained`: as it will be when the old plan has read all that
    is under way."""
    stored = {each.key: each for each in live}
    if not plan.flow.tiers and all(tier == MAIN for tier, _ in stored):
        return Moves()  # never cut: Queries that change are compared one by one
    return _Planner(plan, known, stored, list(past), reached, drained=drained).plan()


def lies_in(query: StoredQuery, known: Topology | None) -> dict[str, KnownChannel]:
    """Source of a stored Query → the channel that it was."""
    channels = known.channels if known is not None else ()
    return {each.source: each for each in channels if not each.gone and each.reading == query.tier and each.source in query.reads}


def undelivered(channel: KnownChannel, reader: StoredQuery, stored: Iterable[StoredQuery]) -> int:
    """Rows that were written to the channel, in all its life, and that `reader` has not taken (0 or less: all is through)."""
    return sum(query.written.get(channel.id, 0) for query in stored) - reader.read.get(channel.source, 0)


def sink_fingerprints(flow: Flow, sink: str) -> frozenset[str]:
    """What a sink's definition may be fingerprinted as, in the whole flow and in a tier, where an input `r.big` may be `r_big`."""
    node = flow.sinks[sink]
    types = {"source_types": catalog.source_types(internal=True), "sink_types": catalog.sink_types(internal=True)}
    found = set()
    for inputs in (node.inputs, tuple(map(flat_name, node.inputs))):
        named = replace(flow, sinks={sink: replace(node, inputs=inputs)})
        found |= set(node_fingerprints(named, Graph(named), (sink,), **types).values())
    return frozenset(found)


class _Planner:
    def __init__(
        self,
        plan: FlowPlan,
        known: Topology | None,
        live: Mapping[Key, StoredQuery],
        past: list[StoredQuery],
        reached: Callable[[StoredQuery, str], Hashable],
        *,
        drained: bool,
    ) -> None:
        self._flow = plan.flow
        self._drained = drained
        self._live = live
        self._past = past
        self._known = known
        self._reached = reached
        self._planned = {(tier.tier, query.name): query for tier in plan.tiers for query in tier.queries}
        self._channels = {channel.id: channel for channel in topology_of(plan).channels}
        self._before = {channel.id: channel for channel in known.channels if not channel.gone} if known is not None else {}
        self._staying = {key for key, query in self._planned.items() if key in live and self._same_ends(query, live[key])}
        self._writers = {sink: query for key, query in live.items() if key not in self._staying for sink in query.sinks}

    def plan(self) -> Moves:
        arrivals, refusals = [], []
        leaving: dict[Key, list[Key]] = {key: [] for key in self._live if key not in self._staying}
        for key in self._planned:
            if key in self._staying:
                continue
            after = self._before_it(key, set())
            try:
                arrival = self._arrival(key, after)
            except _Unsafe as error:
                refusals.append(Refusal(key, error.why, error.remedy))
                arrival = None
            for query in after if arrival is None else (*after, *arrival.through):
                leaving[query.key].append(key)
            if arrival is None:
                continue
            if arrival.donors or arrival.adopts or after or any(query.key == key for query in (*self._past, *self._live.values())):
                arrivals.append(arrival)
        return Moves(tuple(arrivals), tuple(refusals), {key: tuple(to) for key, to in leaving.items()})

    def _same_ends(self, query: QueryPlan, stored: StoredQuery) -> bool:
        """It reads the same channels as before, in the same places, and the channel that it feeds, if any, lies where it lay."""
        reads = {channel.identity for channel in lies_in(stored, self._known).values()}
        will = {channel.identity for channel in self._arriving(stored.tier, query).values()}
        feeds = {self._before[sink].identity for sink in stored.sinks if sink in self._before}
        return reads == will and feeds == {self._channels[sink].identity for sink in query.sinks if sink in self._channels}

    def _arriving(self, tier: str, query: QueryPlan) -> dict[str, KnownChannel]:
        """Source → the channel that it is, of a planned Query."""
        return {each.source: each for each in self._channels.values() if each.reading == tier and each.source in query.sources}

    def _before_it(self, key: Key, seen: set[Key]) -> tuple[StoredQuery, ...]:
        """Who wrote what the Query is going to write, or, where that is a channel which is new, what those behind it will write."""
        seen.add(key)
        found: dict[Key, StoredQuery] = {}
        for sink in self._planned[key].sinks:
            writer = self._writer(sink)
            if writer is not None:
                found[writer.key] = writer
            elif sink in self._channels:
                channel = self._channels[sink]
                for reader, query in self._planned.items():
                    if (
                        reader not in seen
                        and reader not in self._staying
                        and reader[0] == channel.reading
                        and channel.source in query.sources
                    ):
                        found |= {each.key: each for each in self._before_it(reader, seen)}
        return tuple(found.values())

    def _writer(self, sink: str) -> StoredQuery | None:
        """The leaving Query that wrote to the sink; of a channel only where it lies where it lay."""
        if sink in self._channels and (sink not in self._before or self._before[sink].identity != self._channels[sink].identity):
            return None
        return self._writers.get(sink)

    def _arrival(self, key: Key, after: tuple[StoredQuery, ...]) -> Arrival:
        query = self._planned[key]
        self._check(query, after)
        channels = self._arriving(key[0], query)
        donors, passed = {}, {}
        way: dict[Key, StoredQuery] = {}
        for source in query.sources:
            donor = self._of_channel(channels[source], after, way) if source in channels else self._of_source(source, after, way)
            if donor is not None:
                donors[source] = donor
                if source in channels:
                    passed[source] = sum(each.written.get(channels[source].id, 0) for each in self._all())
        through = tuple(each for each in way.values() if each.key not in self._staying and each not in after)
        self._check(query, through)
        return Arrival(key[0], query, after, donors, passed, self._adopts(query), through)

    def _all(self) -> Iterator[StoredQuery]:
        yield from self._live.values()
        yield from self._past

    def _check(self, query: QueryPlan, after: tuple[StoredQuery, ...]) -> None:
        """Raise _Unsafe where what was there cannot be left."""
        for stored in after:
            if stored.state_fingerprint:
                raise _Unsafe(f'what "{stored.label}" remembers cannot be taken along into another tier', "")
            if query.stateful:
                raise _Unsafe(f'it would keep state, and "{stored.label}", in whose place it would go on, has none', "")
            if stored.pending and not self._drained:
                raise _Unsafe(f'"{stored.label}" has begun to hand over a Batch, and not all of it is through')
            if stored.waiting:
                raise _Unsafe(f'{letters(stored.waiting)} to be replayed in "{stored.label}", in whose place it would go on')
            for sink in query.sinks:
                if sink in stored.sinks and sink not in self._channels and stored.parts[sink] not in sink_fingerprints(self._flow, sink):
                    raise _Unsafe(f'sink "{sink}" has changed, and cannot be taken over in the same step', "change one after the other")

    def _adopts(self, query: QueryPlan) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for sink in query.sinks:
            writer = self._writer(sink)
            if writer is not None:
                found[sink] = (writer.lineage,)
            elif sink in self._channels and self._earlier(self._channels[sink]):
                found[sink] = tuple(each.lineage for each in self._all() if sink in each.sinks)
        return {sink: lineages for sink, lineages in found.items() if lineages}

    def _earlier(self, channel: KnownChannel) -> bool:
        """The channel was there once, in the same place, and was given up."""
        channels = self._known.channels if self._known is not None else ()
        return any(each.gone and each.identity == channel.identity for each in channels)

    def _of_channel(self, channel: KnownChannel, after: tuple[StoredQuery, ...], way: dict[Key, StoredQuery]) -> Donor | None:
        """Where reading a channel begins: at its start where it is new, else where those ended who read it, themselves or by way of
        tiers between."""
        before = self._before.get(channel.id)
        if before is not None and before.identity == channel.identity:
            donors = [donor for query in after for donor in self._positions(query, channel.source, channel, set(), way)]
            if donors:
                return self._agreed(channel.source, donors)
            if not after:
                return None
            raise _Unsafe(f'it would begin to read channel "{channel.id}", which is there already, in the middle', "")
        if self._earlier(channel):
            readers = [each for each in self._all() if each.tier == channel.reading and channel.source in each.reads]
            through = [each for each in readers if undelivered(channel, each, self._all()) <= 0]
            if not through:
                raise _Unsafe(f'channel "{channel.id}" was there before, and not all that it holds was read', _ELSEWHERE)
            newest = through[0]
            return Donor(newest, channel.source, newest.sources.get(channel.source, 0))
        channels = self._known.channels if self._known is not None else ()
        explicit = ":" in channel.place
        if explicit and any(each.place == channel.place and each.id not in self._channels for each in channels):
            raise _Unsafe(f'what lies in the place of channel "{channel.id}" was written by another channel', _ELSEWHERE)
        return None

    def _of_source(self, source: str, after: tuple[StoredQuery, ...], way: dict[Key, StoredQuery]) -> Donor | None:
        """Where reading a source begins: where all those ended in whose place it goes on. None where none of them read it."""
        return self._agreed(source, [donor for query in after for donor in self._positions(query, source, None, set(), way)])

    def _positions(
        self, query: StoredQuery, source: str, wanted: KnownChannel | None, seen: set[Key], way: dict[Key, StoredQuery]
    ) -> Iterator[Donor]:
        """How far a Query has come in a source, or in the channel `wanted`, itself and by way of the channels that it reads. `way` gets
        the Queries on that way."""
        seen.add(query.key)
        channels = lies_in(query, self._known)
        there = channels.get(source)
        if source in query.reads and (None if there is None else there.identity) == (None if wanted is None else wanted.identity):
            way[query.key] = query
            yield Donor(query, source, query.sources.get(source, 0))
        for channel in channels.values():
            feeder = next((each for each in self._live.values() if channel.id in each.sinks), None)
            if feeder is None or feeder.key in seen or (wanted is not None and channel.identity == wanted.identity):
                continue
            donors = list(self._positions(feeder, source, wanted, seen, way))
            rows = undelivered(channel, query, self._all()) if donors else 0
            if rows < 0:
                raise _Unsafe(f'"{query.label}" has read rows of channel "{channel.id}" more than once', "")
            if rows > 0 and not self._drained:
                raise _Unsafe(f'{rows:,} rows in channel "{channel.id}" have not been read by "{query.label}"')
            if donors and feeder.pending and not self._drained:
                raise _Unsafe(f'"{feeder.label}" has begun to hand over a Batch, and not all of it is through')
            if donors:
                way[query.key] = query
            yield from donors

    def _agreed(self, source: str, donors: list[Donor]) -> Donor | None:
        if len(donors) < 2:
            return donors[0] if donors else None
        if len({self._reached(each.query, each.source) for each in donors}) > 1:
            names = " and ".join(f'"{each.query.label}" (position {each.position})' for each in donors)
            raise _Unsafe(f"{names} have not read the same of {source}")
        return donors[0]

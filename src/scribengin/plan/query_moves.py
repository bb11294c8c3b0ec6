"""Plans moves when the tiers of a flow change: which queries replace which, from which positions, and which cannot.

A query may replace others only if nothing is lost or duplicated: it continues with the state of a query, or none of them keeps state; all
have read to the same position of each source; and every channel between them is empty. It then starts where they ended, and takes over
their output.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.core.remedies import flow_command, start_over
from scribengin.plan.diff import letters
from scribengin.plan.fingerprint import node_fingerprints, state_fingerprint
from scribengin.plan.graph import Graph, branches, flat_name
from scribengin.plan.resolve import resolve
from scribengin.plan.tier_flows import read_as
from scribengin.plan.tiers import MAIN
from scribengin.plan.topology import topology_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from scribengin.plan.diff import StoredQuery
    from scribengin.plan.model import QueryPlan
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.spec.model import Flow
    from scribengin.state.topology import KnownChannel, StoredTopology


Key = tuple[str, str]
"""(tier, query)"""
_ELSEWHERE = "give the channel another topic or path"
_REBUILD = f"undo the change; or {start_over()}, which rebuilds the state from the start of the sources"
DRAIN = f"undo the change, process all input with {flow_command('run', '--once')}, then change the flow"


@dataclass(frozen=True, slots=True)
class Donor:
    """The query whose log of a source is taken over, and the log position up to which it is processed."""

    query: StoredQuery
    source: str
    position: int


@dataclass(frozen=True, slots=True)
class MovedQuery:
    """A query that replaces others.

    Attributes: tier: Its tier. query: Its plan. after: The stored queries that it replaces. donors: Source → the log with which it
    continues. passed: Source of a channel → rows of the channel that others have read. adopts: Sink → the lineages, one of which wrote to
    the sink last. through: Further queries that leave, and whose part it takes over, because they were upstream of the replaced ones.
    """

    tier: str
    query: QueryPlan
    after: tuple[StoredQuery, ...]
    donors: Mapping[str, Donor] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    adopts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    through: tuple[StoredQuery, ...] = ()
    state: StoredQuery | None = None
    """the query whose state it continues with; None if there is none"""

    @property
    def key(self) -> Key:
        """The query whose folder it uses."""
        return self.tier, self.query.name


@dataclass(frozen=True, slots=True)
class MoveRefusal:
    """Why a query cannot replace others."""

    key: Key
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Moves:
    """The planned moves. `arrivals` are carried out together, and only if there are no `refusals`. `leaving`: query → the queries that
    replace it; empty if its sinks were removed."""

    arrivals: tuple[MovedQuery, ...] = ()
    refusals: tuple[MoveRefusal, ...] = ()
    leaving: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)


class _Unsafe(Exception):
    def __init__(self, why: str, remedy: str = DRAIN) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


def plan_moves(
    plan: FlowPlan,
    known: StoredTopology | None,
    live: Iterable[StoredQuery],
    past: Iterable[StoredQuery],
    reached: Callable[[StoredQuery, str], Hashable],
    *,
    drained: bool = False,
) -> Moves:
    """Plan what must move.

    Args:
        plan: The new plan.
        known: The stored tiers and channels; None if there are none.
        live: The stored queries.
        past: The lineages that earlier moves have left.
        reached: (stored query, source) → what it has decided of the source, as a value that is equal if the same was read.
        drained: True: plan for the state after the old plan has read all rows in channels.
    """
    stored = {each.key: each for each in live}
    if not plan.flow.tiers and all(tier == MAIN for tier, _ in stored):
        return Moves()  # the flow never had tiers: queries that change are compared one by one
    return _Planner(plan, known, stored, list(past), reached, drained=drained).plan()


def channels_read_by(query: StoredQuery, known: StoredTopology | None) -> dict[str, KnownChannel]:
    """Source of a stored query → the channel that it is."""
    channels = known.channels if known is not None else ()
    return {each.source: each for each in channels if not each.gone and each.reading == query.tier and each.source in query.reads}


def undelivered(channel: KnownChannel, reader: StoredQuery, stored: Iterable[StoredQuery]) -> int:
    """The number of rows that were ever written to the channel and that `reader` has not read; 0 or less if it has read all."""
    return sum(query.written.get(channel.id, 0) for query in stored) - reader.read.get(channel.source, 0)


def is_same_sink(flow: Flow, sink: str, fingerprint: str, before: Iterable[str]) -> bool:
    """True if the sink's definition has that fingerprint, apart from its input: in a tier an input `r.big` may be `r_big`, and the input
    may be another node.

    Args:
        flow: The flow.
        sink: The sink.
        fingerprint: The stored fingerprint of the sink.
        before: The nodes of the sink's stored query, any of which may have been its input.
    """
    node = flow.sinks[sink]
    types = {"source_types": catalog.source_types(internal=True), "sink_types": catalog.sink_types(internal=True)}
    others: list[tuple[str, ...]] = []
    if len(node.inputs) == 1:
        routed = [f"{id_}.{branch}" for id_, step in flow.steps.items() for branch in branches(step)]
        others = [(name,) for name in (*before, *routed, *map(flat_name, routed))]
    for inputs in dict.fromkeys((node.inputs, tuple(map(flat_name, node.inputs)), *others)):
        named = replace(flow, sinks={sink: replace(node, inputs=inputs)}, steps={})
        if fingerprint in node_fingerprints(named, Graph(named), (sink,), **types).values():
            return True
    return False


class _Planner:
    def __init__(
        self,
        plan: FlowPlan,
        known: StoredTopology | None,
        live: Mapping[Key, StoredQuery],
        past: list[StoredQuery],
        reached: Callable[[StoredQuery, str], Hashable],
        *,
        drained: bool,
    ) -> None:
        self._flow = plan.flow
        self._tiers = {tier.tier: tier.flow for tier in plan.tiers}
        self._drained = drained
        self._live = live
        self._past = past
        self._known = known
        self._reached = reached
        self._planned = {(tier.tier, query.name): query for tier in plan.tiers for query in tier.queries}
        self._channels = {channel.id: channel for channel in topology_of(plan).channels}
        self._before = {channel.id: channel for channel in known.channels if not channel.gone} if known is not None else {}
        self._staying = {key for key, query in self._planned.items() if key in live and self._same_ends(query, live[key])}
        self._carried = self._continued_queries()
        """planned query that keeps state → the leaving query whose state it continues"""
        self._writers = {sink: query for key, query in live.items() if key not in self._staying for sink in query.sinks}

    def plan(self) -> Moves:
        arrivals, refusals = [], []
        leaving: dict[Key, list[Key]] = {key: [] for key in self._live if key not in self._staying}
        for key in self._planned:
            if key in self._staying:
                continue
            after = self._before_it(key, set())
            if (state := self._carried.get(key)) is not None and state not in after:
                after = (state, *after)
            try:
                arrival = self._arrival(key, after)
            except _Unsafe as error:
                refusals.append(MoveRefusal(key, error.why, error.remedy))
                arrival = None
            for query in after if arrival is None else (*after, *arrival.through):
                leaving[query.key].append(key)
            if arrival is None:
                continue
            if arrival.donors or arrival.adopts or after or any(query.key == key for query in (*self._past, *self._live.values())):
                arrivals.append(arrival)
        return Moves(tuple(arrivals), tuple(refusals), {key: tuple(to) for key, to in leaving.items()})

    def _continued_queries(self) -> dict[Key, StoredQuery]:
        """Planned query → the stored query whose state it continues: one with the same stateful steps and inputs of the same names. If
        there are several, first one of the same tier and name, then one with a sink in common, then one of the same name."""
        free = {key: query for key, query in self._live.items() if key not in self._staying and query.state_fingerprint}
        found: dict[Key, StoredQuery] = {}
        for key, query in self._planned.items():
            if key in self._staying or not query.state_fingerprint:
                continue
            fits = [each for each in free.values() if each.state_fingerprint == query.state_fingerprint and self._feeds(each, key)]
            if fits:
                best = max(fits, key=lambda each: (each.key == key, not set(each.sinks).isdisjoint(query.sinks), each.name == key[1]))
                found[key] = free.pop(best.key)
        return found

    def _feeds(self, stored: StoredQuery, key: Key) -> bool:
        """True if the stored query reads inputs of the same names as the planned one, and the same of them are channels."""
        query = self._planned[key]
        arriving = self._arriving(key[0], query)
        return set(stored.reads) == set(query.sources) and channels_read_by(stored, self._known).keys() == arriving.keys()

    def _same_ends(self, query: QueryPlan, stored: StoredQuery) -> bool:
        """True if it reads the same channels as before, in the same locations, and if the channels that it writes have not moved either."""
        reads = {channel.identity for channel in channels_read_by(stored, self._known).values()}
        will = {channel.identity for channel in self._arriving(stored.tier, query).values()}
        feeds = {self._before[sink].identity for sink in stored.sinks if sink in self._before}
        return reads == will and feeds == {self._channels[sink].identity for sink in query.sinks if sink in self._channels}

    def _arriving(self, tier: str, query: QueryPlan) -> dict[str, KnownChannel]:
        """Source of a planned query → the channel that it is."""
        return {each.source: each for each in self._channels.values() if each.reading == tier and each.source in query.sources}

    def _before_it(self, key: Key, seen: set[Key]) -> tuple[StoredQuery, ...]:
        """The stored queries that wrote to the sinks of the planned query; for a new channel, those that wrote what its readers will
        write."""
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
        """The leaving query that wrote to the sink; for a channel only if the channel has not moved. None if there is none."""
        if sink in self._channels and (sink not in self._before or self._before[sink].identity != self._channels[sink].identity):
            return None
        return self._writers.get(sink)

    def _arrival(self, key: Key, after: tuple[StoredQuery, ...]) -> MovedQuery:
        query = self._planned[key]
        state = self._carried.get(key)
        self._check(key, after)
        channels = self._arriving(key[0], query)
        donors, passed = {}, {}
        way: dict[Key, StoredQuery] = {}
        for source in query.sources:
            if state is not None:
                donors[source] = self._of_state(state, source, channels.get(source))
                if source in channels:
                    passed[source] = sum(each.written.get(channels[source].id, 0) for each in self._all())
                continue
            donor = self._of_channel(channels[source], after, way) if source in channels else self._of_source(source, after, way)
            if donor is not None:
                donors[source] = donor
                if source in channels:
                    passed[source] = sum(each.written.get(channels[source].id, 0) for each in self._all())
        through = tuple(each for each in way.values() if each.key not in self._staying and each not in after)
        self._check(key, through)
        return MovedQuery(key[0], query, after, donors, passed, self._adopts(query), through, state)

    def _of_state(self, state: StoredQuery, source: str, channel: KnownChannel | None) -> Donor:
        """The log of a source for a query that continues with state: the one from which the state was made. If its channel has moved, the
        old channel must have no unread rows."""
        before = channels_read_by(state, self._known).get(source)
        if channel is not None and before is not None and before.identity != channel.identity:
            self._check_read(before, state)
            if self._earlier(channel):
                raise _Unsafe(f'channel "{channel.id}" was used before, and the state does not cover its content', _ELSEWHERE)
        return Donor(state, source, state.sources.get(source, 0))

    def _check_read(self, channel: KnownChannel, reader: StoredQuery) -> None:
        """Raise _Unsafe if the channel has unread rows."""
        rows = undelivered(channel, reader, self._all())
        if rows < 0:
            raise _Unsafe(f'"{reader.label}" has read rows of channel "{channel.id}" more than once', "")
        if rows > 0 and not self._drained:
            raise _Unsafe(f'{rows:,} rows in channel "{channel.id}" have not been read by "{reader.label}"')
        feeder = next((each for each in self._live.values() if channel.id in each.sinks), None)
        if feeder is not None and feeder.pending and not self._drained:
            raise _Unsafe(f'"{feeder.label}" has a Batch that is not completely written to its channels')

    def _all(self) -> Iterator[StoredQuery]:
        yield from self._live.values()
        yield from self._past

    def _check(self, key: Key, after: tuple[StoredQuery, ...]) -> None:
        """Raise _Unsafe if the earlier queries cannot be replaced."""
        query = self._planned[key]
        for stored in after:
            if stored.state_fingerprint and stored not in self._carried.values():
                raise self._not_carried(stored)
            if query.stateful and key not in self._carried:
                raise _Unsafe(f'it would keep state, but "{stored.label}", which it would replace, has none', _REBUILD)
            if stored.pending and not self._drained:
                raise _Unsafe(f'"{stored.label}" has a Batch that is not completely written to its channels')
            if stored.waiting:
                raise _Unsafe(f'{letters(stored.waiting)} to be replayed in "{stored.label}", which it would replace')
            for sink in query.sinks:
                mine = sink in stored.sinks and sink not in self._channels
                if mine and not is_same_sink(self._flow, sink, stored.parts[sink], stored.parts):
                    raise _Unsafe(
                        f'sink "{sink}" has changed; a sink cannot change and move to another tier at the same time',
                        "make the two changes one after the other",
                    )

    def _not_carried(self, stored: StoredQuery) -> _Unsafe:
        """The reason that no query can continue with its state, with the remedy to keep or rebuild it."""
        remembers = f'the state of "{stored.label}" ({stored.progress}) cannot be moved'
        comes = {key: query for key, query in self._planned.items() if key not in self._staying and query.state_fingerprint}
        for key in comes:
            if (names := self._other_name(stored, key)) is not None:
                now, before = names
                why = f"its stateful steps would read {now}, but they read {before} before"
                remedy = f"to keep the state, name their input {before}, and rename the step that has that name now; or {_REBUILD}"
                return _Unsafe(f"{remembers}: {why}", remedy)
        if any(query.state_fingerprint == stored.state_fingerprint for query in comes.values()):
            return _Unsafe(f"{remembers}: its stateful steps occur more than once, or have other inputs", _REBUILD)
        why = "no tier has exactly its stateful steps" if comes else "no step of the flow keeps that state any more"
        return _Unsafe(f"{remembers}: {why}", _REBUILD)

    def _other_name(self, stored: StoredQuery, key: Key) -> tuple[str, str] | None:
        """(the name of a channel that the planned query reads, the name that the stored query had for it) if the state differs by that
        alone; else None."""
        query = self._planned[key]
        now, before = set(query.sources) - set(stored.reads), set(stored.reads) - set(query.sources)
        if len(now) != 1 or len(before) != 1 or not now <= self._arriving(key[0], query).keys():
            return None
        (new,), (old,) = now, before
        flow = self._tiers[key[0]]
        if old in flow.sources or old in flow.steps:
            return None
        renamed = {new: old}
        steps = {id_: read_as(step, renamed) for id_, step in flow.steps.items()}
        sinks = {id_: read_as(sink, renamed) for id_, sink in flow.sinks.items()}
        sources = {renamed.get(id_, id_): replace(source, id=renamed.get(id_, id_)) for id_, source in flow.sources.items()}
        graph = Graph(replace(flow, sources=sources, steps=steps, sinks=sinks))
        members = tuple(renamed.get(node.id, node.id) for node in query.nodes)
        return (new, old) if state_fingerprint(graph, resolve(graph), members, query.sinks) == stored.state_fingerprint else None

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
        """True if the channel existed earlier in the same location and was removed."""
        channels = self._known.channels if self._known is not None else ()
        return any(each.gone and each.identity == channel.identity for each in channels)

    def _of_channel(self, channel: KnownChannel, after: tuple[StoredQuery, ...], way: dict[Key, StoredQuery]) -> Donor | None:
        """Where reading a channel begins. None: at its start, if the channel is new; else where the replaced queries that read it ended,
        either themselves or through tiers in between."""
        before = self._before.get(channel.id)
        if before is not None and before.identity == channel.identity:
            donors = [donor for query in after for donor in self._positions(query, channel.source, channel, set(), way)]
            if donors:
                return self._agreed(channel.source, donors)
            if not after:
                return None
            raise _Unsafe(f'it would start to read the existing channel "{channel.id}" in the middle', "")
        if self._earlier(channel):
            readers = [each for each in self._all() if each.tier == channel.reading and channel.source in each.reads]
            through = [each for each in readers if undelivered(channel, each, self._all()) <= 0]
            if not through:
                raise _Unsafe(f'channel "{channel.id}" was used before, and has unread rows', _ELSEWHERE)
            newest = through[0]
            return Donor(newest, channel.source, newest.sources.get(channel.source, 0))
        channels = self._known.channels if self._known is not None else ()
        explicit = ":" in channel.place
        if explicit and any(each.place == channel.place and each.id not in self._channels for each in channels):
            raise _Unsafe(f'the topic or folder of channel "{channel.id}" has rows of another channel', _ELSEWHERE)
        return None

    def _of_source(self, source: str, after: tuple[StoredQuery, ...], way: dict[Key, StoredQuery]) -> Donor | None:
        """The start position in a source: where all replaced queries ended. None if none of them read it."""
        return self._agreed(source, [donor for query in after for donor in self._positions(query, source, None, set(), way)])

    def _positions(
        self, query: StoredQuery, source: str, wanted: KnownChannel | None, seen: set[Key], way: dict[Key, StoredQuery]
    ) -> Iterator[Donor]:
        """How far a query has read a source, or the channel `wanted`, either itself or through the channels that it reads. The queries on
        the path are added to `way`."""
        seen.add(query.key)
        channels = channels_read_by(query, self._known)
        there = channels.get(source)
        if source in query.reads and (None if there is None else there.identity) == (None if wanted is None else wanted.identity):
            way[query.key] = query
            yield Donor(query, source, query.sources.get(source, 0))
        for channel in channels.values():
            feeder = next((each for each in self._live.values() if channel.id in each.sinks), None)
            if feeder is None or feeder.key in seen or (wanted is not None and channel.identity == wanted.identity):
                continue
            donors = list(self._positions(feeder, source, wanted, seen, way))
            if donors:
                self._check_read(channel, query)
                way[query.key] = query
            yield from donors

    def _agreed(self, source: str, donors: list[Donor]) -> Donor | None:
        if len(donors) < 2:
            return donors[0] if donors else None
        if len({self._reached(each.query, each.source) for each in donors}) > 1:
            names = " and ".join(f'"{each.query.label}" (position {each.position})' for each in donors)
            raise _Unsafe(f"{names} have read {source} to different positions")
        return donors[0]

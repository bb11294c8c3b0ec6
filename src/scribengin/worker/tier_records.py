"""A worker's records about its tier in the registry, besides its report: the nodes with which the tier begins and ends, its state, and its
tasks.

They are for people and other programs; no master decides by them. They are checked every few seconds and written when they have changed; so
are acknowledgements. Tasks and counts of columns are written at most every half minute, never per Batch. A write that fails is repeated at
the next check.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from scribengin.core.errors import ScribenginError
from scribengin.core.time_text import now_text
from scribengin.registry.contract import Delete
from scribengin.registry.record_io import Stored, put, read_record, read_records
from scribengin.registry.records import Ack, ColumnsRecord, Ends, NodeState, QueryAck, Task
from scribengin.registry.tree import ACK, COLUMNS, NODE_SINK, NODE_SOURCE, NODE_STATE, TASK
from scribengin.state.channel_acks import Acks
from scribengin.state.decisions import Decisions
from scribengin.state.source_log import SourceLog
from scribengin.worker.attempt import standing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scribengin.connectors.contract import SourceStream
    from scribengin.control.world import RunId
    from scribengin.local.contract import RunView
    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.lease import RegistryLease
    from scribengin.registry.record_io import Spot
    from scribengin.registry.records import FlowState
    from scribengin.state.channel_acks import FlowAcks, QueryTopology
    from scribengin.state.contract import Decision
    from scribengin.state.folder import StateFolder

LOOK_S, TASKS_S = 5.0, 30.0
_MARKS, _CLEARED = 40, 1000
"""the most times of a source that are reported, and the most that wait to be acknowledged"""
MOST_TASKS = 100
"""the most tasks of a tier that are reported"""
MOST_COLUMNS, _LONGEST, _LISTED = 100, 500, 10
"""the most columns of a tier (the newest); characters of a type, and of a file's name; the most columns of one sink"""


def tasks_of(query: str, decision: Decision, streams: Mapping[str, Sequence[SourceStream]], owner: str) -> list[Task]:
    """The tasks of a query's newest decided Batch.

    Task n reads the n-th stream of each source and writes task output n of each sink. If rows are shuffled between the two, Spark does them
    in two tasks.

    Args:
        query: the query.
        decision: its newest decided Batch.
        streams: source → the streams that the Batch has read.
        owner: the worker.
    """
    units: dict[int, dict[str, Any]] = {}
    for receipt in decision.receipts:
        units.setdefault(receipt.unit, {})[receipt.sink] = {"unit": receipt.unit, "rows": receipt.rows, "bytes": receipt.bytes}
    count = max([1, *(len(each) for each in streams.values()), *(unit + 1 for unit in units)])
    position = {taken.source: taken.end for taken in decision.sources}
    return [
        Task(
            query=query,
            batch=decision.batch.number,
            sources={source: [each.label for each in found[number : number + 1]] for source, found in streams.items()},
            sinks=units.get(number, {}),
            owner=owner,
            position=position,
        )
        for number in range(min(count, MOST_TASKS))
    ]


class TierRecords:
    """Writes the records of a tier under the tier's lease. `show` takes the present view of the tier, from any thread; `close` ends its
    thread."""

    def __init__(
        self,
        registry: Registry,
        id_: RunId,
        lease: RegistryLease,
        folder: StateFolder,
        host: str,
        *,
        topology: Callable[[], QueryTopology | None] = lambda: None,
    ) -> None:
        """Prepare it; `start` starts its thread.

        Args:
            registry: where the records are.
            id_: the run of the worker.
            lease: the tier's lease.
            folder: the tier's state.
            host: the name of this machine.
            topology: returns the queries and channels of the whole flow: a new object if the flow was planned again, None before.
        """
        self._topology = topology
        self._acks: Acks | None = None
        self._throughs: dict[tuple[str, str], Through] = {}
        """(query, external source) → the times up to which it is acknowledged by the flow"""
        self._acked_at = 0.0
        """when acknowledgements were last written, by the monotonic clock"""
        self._registry = registry
        self._id = id_
        self._node = f"{id_.flow}.{id_.tier}"
        self._lease = lease
        self._folder = folder
        self._host = host
        self._view: RunView | None = None
        self._state: tuple[FlowState, str] = ("starting", now_text())
        self._written: dict[str, Any] = {}
        self._session = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tier-records", daemon=True)

    def start(self) -> None:
        """Start the thread that writes the records."""
        self._thread.start()

    def show(self, view: RunView) -> None:
        """Set the present view of the tier."""
        self._view = view

    def close(self) -> None:
        """End the thread. The state record is removed with this process's session."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(LOOK_S)

    def write(self) -> None:
        """Write the nodes with which the tier begins and ends, and its state, if they have changed. Raises as `Registry.commit`."""
        if (session := self._registry.session().id) != self._session:
            self._written, self._session = {}, session
        view = self._view
        if view is not None:
            ends = [
                (NODE_SOURCE, _names(query.sources for query in view.queries)),
                (NODE_SINK, _names(query.sinks for query in view.queries)),
            ]
            for branch, nodes in ends:
                if nodes:
                    self._put(branch(self._node), Ends(nodes=nodes))
        state = _state(view)
        if state != self._state[0]:
            self._state = (state, now_text())
        self._put_state(NodeState(state=state, host=self._host, since=self._state[1]))

    def write_columns(self, *, counts: bool = True) -> None:
        """Write the differences found in columns. `counts`: write them even if only the counts have changed. Raises as
        `Registry.commit`."""
        if self._view is None or not self._view.queries:
            return  # before a run has begun, nothing is known
        spot = COLUMNS(self._id.flow, self._id.tier)
        record = ColumnsRecord(
            noticed=tuple(map(_bounded, self._view.noticed[-MOST_COLUMNS:])),
            accepted=tuple(map(_bounded, self._view.accepted[-MOST_COLUMNS:])),
        )
        if spot.path not in self._written:
            there = read_record(self._registry, spot)
            self._written[spot.path] = there.record if isinstance(there, Stored) else ColumnsRecord()
        before = self._written[spot.path]
        if counts or _named(record) != _named(before):
            self._put(spot, record)

    def end(self) -> None:
        """Write what has not been written yet, before the worker releases its lease."""
        if self._lease.held():
            _try(self.write_acks)
            _try(self.write_columns)

    def write_acks(self) -> None:
        """Write how far downstream tiers have acknowledged this tier's input. Raises as `Registry.commit`, and as reading the states
        does."""
        topology = self._topology()
        if topology is None:
            return
        spot = ACK(self._id.flow, self._id.tier)
        if self._acks is None:  # continue with the times that the previous worker recorded
            there = read_record(self._registry, spot)
            for name, ack in there.record.queries.items() if isinstance(there, Stored) else ():
                self._throughs |= {(name, source): Through(ack.lineage, marks) for source, marks in ack.through.items()}
        if self._acks is None or self._acks.topology is not topology:
            self._acks = Acks(topology)
        view = self._view
        for query in () if view is None else view.queries:
            for source, end in query.sources.items():
                if end.clear_at is not None:
                    log = SourceLog(self._folder.query(query.name).sources, source)
                    self._throughs.setdefault((query.name, source), Through()).clear(end.clear_at, log.length)
        standing = self._acks.read()
        now = time.time()
        for key, at in standing.queries.items():
            for (query_name, source), through in self._throughs.items():
                if key == (self._id.tier, query_name):
                    through.released(at.lineage, at.released.get(source, 0), now)
        found = acked(self._id.tier, topology, standing, {key: through.marks() for key, through in self._throughs.items()})
        before = self._written.get(spot.path)
        if before is not None and _bare(before) == _bare(found) and time.monotonic() - self._acked_at < TASKS_S:
            return  # if only the times have changed, they are written less often
        if found.queries and found != before:
            self._put(spot, found)
            self._acked_at = time.monotonic()

    def write_tasks(self) -> None:
        """Write the tasks that differ from those in the registry. Raises as `Registry.commit`."""
        tasks = [task for query in self._folder.queries() for task in self._of_query(query.name)][:MOST_TASKS]
        if not tasks:
            return
        folder = TASK(self._id.flow, self._id.tier, "0").path.rpartition("/")[0]
        spots = [TASK(self._id.flow, self._id.tier, str(number)) for number in range(len(tasks))]
        there = read_records(self._registry, spots)
        writes: list[Write] = [
            put(self._registry, spot, task)
            for spot, task, found in zip(spots, tasks, there, strict=True)
            if not isinstance(found, Stored) or found.record != task
        ]
        names = [name for name in self._registry.children(folder) if name.isdigit() and int(name) >= len(tasks)]
        writes += [Delete(f"{folder}/{name}") for name in names]
        if writes:
            self._registry.commit(*writes, term=self._lease.term)

    def _of_query(self, name: str) -> list[Task]:
        query = self._folder.query(name)
        decision = Decisions(query.decisions).newest()
        if decision is None:
            return []
        streams = {each.source: SourceLog(query.sources, each.source).range(each.start, each.end) for each in decision.sources}
        return tasks_of(name, decision, streams, str(self._id))

    def _put(self, spot: Spot[Any], record: Any) -> None:
        if self._written.get(spot.path) != record:
            self._registry.commit(put(self._registry, spot, record), term=self._lease.term)
            self._written[spot.path] = record

    def _put_state(self, record: NodeState) -> None:
        """Write the state. The record is ephemeral; one of another session is removed first."""
        spot = NODE_STATE(self._node)
        if self._written.get(spot.path) == record:
            return
        found = read_record(self._registry, spot)
        if isinstance(found, Stored) and found.entry.session == self._session:
            self._registry.commit(found.replace(record), term=self._lease.term)
        else:
            if (there := self._registry.read(spot.path)) is not None:
                self._registry.commit(Delete(spot.path, there.version), term=self._lease.term)
            self._registry.commit(spot.create(record, ephemeral=True), term=self._lease.term)
        self._written[spot.path] = record

    def _run(self) -> None:
        tasks_at = time.monotonic() + LOOK_S
        while not self._closed.wait(LOOK_S):
            if not self._lease.held():
                continue
            _try(self.write)
            _try(self.write_acks)
            _try(partial(self.write_columns, counts=False))
            if time.monotonic() >= tasks_at:
                tasks_at = time.monotonic() + TASKS_S
                _try(self.write_tasks)
                _try(self.write_columns)


class Through:
    """The times up to which one external source is acknowledged by the flow; see `QueryAck.through`. Not thread-safe."""

    def __init__(self, lineage: str = "", marks: Iterable[tuple[float, float]] = ()) -> None:
        """Continue with `marks` that were recorded in that lineage."""
        self._cleared: deque[tuple[float, int]] = deque(maxlen=_CLEARED)
        """(time, number of log entries that include everything that existed then), not yet acknowledged"""
        self._marks = list(marks)
        self._lineage = lineage

    def clear(self, moment: float, entries: Callable[[], int]) -> None:
        """Record that the log, which has `entries()` entries now, includes everything that existed at `moment`."""
        newest = max([moment_ for moment_, _ in (*self._cleared, *self._marks)], default=0.0)
        if moment > newest:
            self._cleared.append((moment, entries()))

    def released(self, lineage: str, entries: int, now: float) -> None:
        """Record that this number of entries of that lineage was acknowledged before `now`."""
        if lineage != self._lineage and self._lineage:  # a new lineage: entries that were acknowledged are read again
            self._cleared.clear()
            self._marks = []
        self._lineage = lineage
        moment = 0.0
        while self._cleared and self._cleared[0][1] <= entries:
            moment, _ = self._cleared.popleft()
        if moment:
            self._marks = _thinned([*self._marks, (moment, now)])

    def marks(self) -> tuple[tuple[float, float], ...]:
        """The recorded times; see `QueryAck.through`."""
        return tuple((round(moment, 3), round(at, 3)) for moment, at in self._marks)


def _thinned(marks: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The marks, thinned to fit a record: every second one of the older half is dropped."""
    if len(marks) <= _MARKS:
        return marks
    half = len(marks) // 2
    return marks[:half:2] + marks[half:]


def _bare(ack: Ack) -> Mapping[str, QueryAck]:
    """The acknowledgements without the values that change even if nothing arrives."""
    return {name: structs.replace(query, through={}) for name, query in ack.queries.items()}


def acked(
    tier: str, topology: QueryTopology, standing: FlowAcks, through: Mapping[tuple[str, str], tuple[tuple[float, float], ...]] | None = None
) -> Ack:
    """The acknowledgements of the queries of a tier that have ever run.

    Args:
        tier: the tier.
        topology: the queries and channels of the whole flow.
        standing: the acknowledgements of all its queries.
        through: (query, source) → its marks.
    """
    found = {}
    for key, at in standing.queries.items():
        if key.tier == tier and at.lineage:
            links = [link for link in topology.links if link.writer == key]
            committed = {link.channel: [reader.committed for reader in standing.of(link)] for link in links}
            found[key.query] = QueryAck(
                lineage=at.lineage,
                decided=at.decided,
                decided_at=at.decided_at,
                acknowledged=at.acknowledged,
                acknowledged_at=at.acknowledged_at,
                read=at.read,
                released=at.released,
                channels={channel: min(numbers, default=-1) for channel, numbers in committed.items()},
                through={source: marks for (query, source), marks in (through or {}).items() if query == key.query and marks},
            )
    return Ack(queries=found)


def _try(what: Callable[[], None]) -> None:
    with suppress(ScribenginError, OSError):
        what()


def _bounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: [_cut(each) for each in value[:_LISTED]] if isinstance(value, list) else _cut(value) for name, value in row.items()}


def _cut(value: Any) -> Any:
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value


def _named(record: ColumnsRecord) -> object:
    """The identity of the differences in a record, without their counts."""
    return [{name: value for name, value in row.items() if name != "records"} for row in (*record.noticed, *record.accepted)]


def _names(of_queries: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted({name for names in of_queries for name in names}))


def _state(view: RunView | None) -> FlowState:
    """The tier's state; a worker that holds the lease and runs nothing is paused, or has just started."""
    if view is None:
        return "starting"
    if view.phase in ("stopping", "ended"):
        return "paused"
    standing = standing_of(view)
    if standing is None:
        return "starting"
    return standing.state if standing.state in ("running", "degraded", "recovering") else "starting"

"""The simulated control plane: the real master on a registry in memory, simulated hosts and workers, and what happens to them in a week.

The master's passes are on whole seconds. It passes whenever the registry has changed, as `Master.run` does, and when a time limit of a
worker is over; the passes between, in which nothing is different, are left out, except one in `SimulationLoad.idle_s` seconds.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from msgspec.structs import replace

from harness.simulation.checks import LostHosts, Missed, UndoneActions
from harness.simulation.hosts import EventQueue, Faultiness, SimulatedHosts
from scribengin.control.decide import decide
from scribengin.control.master import Master
from scribengin.control.standbys import SILENT_S
from scribengin.control.worker_lifecycle import FIRST_SIGN_S, REACHED_S, REGAIN_S, back_off_s, needs_worker, next_start_at, waits
from scribengin.control.world import Action, World, flow_of
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.contract import Delete
from scribengin.registry.memory import MemoryRegistry, MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Decommissioned, Desired, Spec, StatusRecord, TierSpec
from scribengin.registry.tree import DECOMMISSIONED, DESIRED, SPEC, STATUS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from harness.simulation.hosts import SimulatedWorker
    from scribengin.control.world import ObservedTier
    from scribengin.registry.contract import CommittedWrite, Damaged, RegistryEntry, Term, Write
    from scribengin.registry.records import Goal, TierWish

    Deciding = Callable[[World, Collection[str] | None], list[Action]]

WEEK_S = 7 * 86_400.0
_LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
_BEGIN_S = 1_000_000.0
_SINCE = "2026-01-01T00:00:00+00:00"
_AT_WORK = 50
"""flows whose records are written in one commit"""
_SUBMITTED = 500
"""flows that are submitted in one second at the beginning"""
_STATES: dict[Goal, str] = {"running": "running", "paused": "paused", "drained": "stopped", "stopped": "stopped"}
"""desired state of a flow → its state when that is reached"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationLoad:
    """The size of a simulation, and what happens in it. Numbers of events are for the whole time."""

    flows: int = 1_000
    hosts: int = 100
    tiers: int = 10
    seconds: float = WEEK_S
    seed: int = 1
    at_work: bool = False
    """the flows run at the beginning; False: they are submitted, and the master starts them"""
    idle_s: float = 900.0
    """seconds after the last pass until the next one, if nothing happens"""
    lost_hosts: int = 7
    node_processes_away: int = 5
    """restarts of hosts' node processes, in which the workers go on"""
    drained_hosts: int = 3
    crashes: int = 30
    lost_sessions: int = 8
    """sessions of workers that end and begin again"""
    versions: int = 6
    pauses: int = 10
    stops: int = 3
    """flows that are drained, and resumed"""
    failing: int = 1
    """flows that fail at each start, for ten minutes"""
    faults: Faultiness = field(default_factory=Faultiness)

    @property
    def workers(self) -> int:
        """The number of workers if all flows run."""
        return self.flows * self.tiers


@dataclass(eq=False)
class CountedRegistry(MemoryRegistry):
    """The master's client, which counts what it asks of the registry, and what the registry tells it."""

    counts: Counter[str] = field(default_factory=Counter)
    has_changed: bool = False
    """something has changed since this was set to False"""

    def read(self, path: str) -> RegistryEntry | Damaged | None:
        """Read one record."""
        self.counts["records read"] += 1
        return super().read(path)

    def children(self, path: str) -> tuple[str, ...]:
        """Read the names one level below."""
        self.counts["folders read"] += 1
        return super().children(path)

    def commit(self, *writes: Write, term: Term | None = None) -> CommittedWrite:
        """Do all writes or none."""
        self.counts["commits"] += 1
        self.counts["records written"] += len(writes)
        return super().commit(*writes, term=term)

    def wake(self, paths: frozenset[str] | None = None, records: Iterable[str] = ()) -> None:
        """Tell the watches of a change."""
        records = tuple(records)
        self.counts["changes told"] += len(records)
        self.has_changed = True
        super().wake(paths, records)


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of the master: when, what it cost, and what it did."""

    at_s: float
    wall_s: float
    cpu_s: float
    selected: int
    actions: int
    counts: Counter[str]


@dataclass(slots=True)
class Happening:
    """An event from which the control plane is to recover, or which it is to carry out."""

    kind: str
    began_s: float
    flows: set[str]
    """those that have not come to rest yet"""
    host: str = ""
    """a host that must have no workers"""
    passes: int = 0
    """passes that decided something about its flows"""
    settled_s: float | None = None


class SimulatedPlane:
    """A control plane in simulated time. `run` simulates it; the results are in the attributes."""

    def __init__(self, load: SimulationLoad, deciding: Deciding = decide) -> None:
        """Create hosts and a master.

        Args:
            load: the size, and what happens.
            deciding: `decide`, or a broken one that the checks must catch.
        """
        self.load = load
        self.passes: list[Pass] = []
        self.actions: Counter[str] = Counter()
        self.missed: list[Missed] = []
        self.happenings: list[Happening] = []
        self.decided: list[tuple[float, Action]] = []
        """every action with the time of its pass; only if `keep_decided`"""
        self.keep_decided = False
        self.stops_when_missed = False
        """nothing more happens when a bar was missed"""
        self.started_s = math.inf
        """when all flows ran for the first time"""
        self.lost_hosts = LostHosts()
        self.store = MemoryStore()
        self.queue = EventQueue(_BEGIN_S)
        self._deciding = deciding
        self._chance = random.Random(load.seed)
        self.undone = UndoneActions()
        self._disturbed: set[str] = set()
        """flows to which something has happened since the last pass, "" for all"""
        self._waiting: set[str] = set()
        """flows about which the passing of time may decide something"""
        self._deadline_s = math.inf
        self._open: list[Happening] = []
        self._recorded_s = (0.0, 0.0)
        self._selected = self._actions = 0
        self._person = self.store.client()
        self.hosts = SimulatedHosts(self.store.client(), self.queue, random.Random(load.seed + 1), load.faults, self._disturb)
        self.registry = CountedRegistry(self.store, frozenset({"world:anyone"}))
        self._master = Master(self.registry, {}, _order, {"id": "master"}, log=_LOG, clock=lambda: self.queue.now_s, decides=self._decide)
        self.names = [f"flow{number:05d}" for number in range(load.flows)]
        hosts = [f"host{number:04d}" for number in range(load.hosts)]
        self.hosts.add(hosts, cores=max(4, math.ceil(2.0 * load.workers / load.hosts)))
        assert self._master.contend()

    @property
    def watches(self) -> int:
        """The number of the master's watches."""
        return len(self.registry.watches) + len(self.registry.watches_below)

    def run(self) -> None:
        """Start all flows, then simulate what `load` says, to the end."""
        self.start_all()
        end_s = self.queue.now_s + self.load.seconds
        self._plan_events(end_s)
        self.advance(end_s)

    def start_all(self) -> None:
        """Let all flows run: submit them, and simulate until they do; or, if the load says so, write the records of flows that do."""
        if self.load.at_work:
            for at in range(0, len(self.names), _AT_WORK):
                self._put_to_work(self.names[at : at + _AT_WORK])
            self.advance(self.queue.now_s + 10.0)
            self.started_s = self.queue.now_s
            return
        for at in range(0, len(self.names), _SUBMITTED):
            names = self.names[at : at + _SUBMITTED]
            self.queue.after(at / _SUBMITTED, lambda names=names: self._submit(names))  # type: ignore[misc]
        latest_s = self.queue.now_s + 3_600.0
        self.advance(self.queue.now_s + len(self.names) / _SUBMITTED + 1.0)
        while self._open and self.queue.now_s < latest_s and not (self.missed and self.stops_when_missed):
            self.advance(self.queue.now_s + 60.0)
        if self._open:
            self.missed.append(
                Missed(self.queue.now_s, "all flows run an hour after their submission", f"{len(self._open[0].flows)} do not")
            )
        self.started_s = self.queue.now_s

    def advance(self, until_s: float) -> None:
        """Let everything happen until that time."""
        while not (self.missed and self.stops_when_missed):
            next_s = self._next_pass_s()
            if min(next_s, self.queue.next_at_s) > until_s:
                break
            if self.queue.next_at_s <= next_s:
                self.queue.step()
            else:
                self.queue.now_s = next_s
                self._pass()
        self.queue.now_s = until_s

    # --- passes ---

    def _next_pass_s(self) -> float:
        """The time of the next pass: a whole second after the last one."""
        last_s = self.passes[-1].at_s if self.passes else _BEGIN_S - 1.0
        if self.registry.has_changed:
            return max(last_s + 1.0, math.ceil(self.queue.now_s))
        return max(last_s + 1.0, math.ceil(min(last_s + self.load.idle_s, self._deadline_s)))

    def _pass(self) -> None:
        """One cycle of the master. What the simulation does in between is not counted as its time."""
        self.registry.has_changed = False
        self._recorded_s = (0.0, 0.0)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        self._master.cycle()
        wall_s, cpu_s = time.perf_counter() - began_s - self._recorded_s[0], time.process_time() - began_cpu_s - self._recorded_s[1]
        counts = Counter(self.registry.counts)
        self.passes.append(Pass(self.queue.now_s, wall_s, cpu_s, self._selected, self._actions, counts))
        self.registry.counts.clear()

    def _decide(self, world: World, only: Collection[str] | None = None) -> list[Action]:
        actions = self._deciding(world, only)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        self._record(world, world.flows if only is None else only, actions)
        self._recorded_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        return actions

    def _record(self, world: World, selected: Collection[str], actions: Sequence[Action]) -> None:
        self._selected, self._actions = len(selected), len(actions)
        self.actions.update(type(action).__name__ for action in actions)
        if self.keep_decided:
            self.decided += [(world.now, action) for action in actions]
        self.missed += self.undone.see(world, actions, lambda flow: bool(self._disturbed & {"", flow}))
        self.missed += self.lost_hosts.see(world, actions)
        self._disturbed.clear()
        for name in selected:
            if any(waits(tier) for tier in world.flows[name].tiers.values()):
                self._waiting.add(name)
            else:
                self._waiting.discard(name)
        self._waiting &= world.flows.keys()
        limits = (limit for name in self._waiting for tier in world.flows[name].tiers.values() for limit in _limits_s(tier))
        self._deadline_s = min((limit for limit in limits if limit > world.now), default=math.inf)
        self._settle(world, {flow_of(action) for action in actions})

    def _settle(self, world: World, decided: Collection[str]) -> None:
        """Note which events are over."""
        for event in self._open:
            event.passes += not event.flows.isdisjoint(decided)
            event.flows = {name for name in event.flows if name in decided or not self._is_settled(world, name, event.host)}
            if not event.flows:
                event.settled_s = world.now
        self._open = [event for event in self._open if event.flows]

    def _is_settled(self, world: World, name: str, left: str) -> bool:
        """True if a flow has reached its desired state, with no worker on the host `left`."""
        flow = world.flows.get(name)
        if flow is None or flow.status is None or flow.status.generation != flow.wish.generation:
            return False
        runs = [tier.run for tier in flow.tiers.values() if tier.run is not None and tier.run.ended_at is None]
        if any(run.node == left or run.node not in world.nodes for run in runs):
            return False
        return flow.status.state == _STATES[flow.wish.goal] and not any(waits(tier) for tier in flow.tiers.values())

    # --- what happens ---

    def _plan_events(self, end_s: float) -> None:
        """Draw the times of all events. The last ones leave time to come to rest."""
        events: list[tuple[int, Callable[[], None]]] = [
            (self.load.lost_hosts, self._lose_host),
            (self.load.node_processes_away, self._restart_node_process),
            (self.load.drained_hosts, self._drain_host),
            (self.load.crashes, self._crash),
            (self.load.lost_sessions, self._lose_session),
            (self.load.versions, self._apply_version),
            (self.load.pauses, self._pause),
            (self.load.stops, self._stop),
            (self.load.failing, self._fail),
        ]
        latest_s = max(0.0, end_s - self.queue.now_s - 3_600.0)
        for count, event in events:
            for _ in range(count):
                self.queue.after(self._chance.uniform(0.0, latest_s), event)

    def _disturb(self, flow: str) -> None:
        self._disturbed.add(flow)
        if flow:
            self.lost_hosts.excuse(flow)

    def _happens(self, kind: str, began_s: float, flows: Iterable[str], host: str = "") -> None:
        """Note an event that the master can see from now on."""
        event = Happening(kind, began_s, {*flows}, host)
        self.happenings.append(event)
        self._open.append(event)

    def _lose_host(self) -> None:
        host = self._some_host()
        if host is None:
            return
        began_s = self.queue.now_s

        def seen(lost: list[SimulatedWorker]) -> None:
            served = [worker.tier for worker in lost if worker.leased and self._desired(worker.id.flow).state == "running"]
            self.lost_hosts.add(host, [tier for tier in served if tier[0] not in self.hosts.failing])
            self._happens("a host is lost", began_s, {worker.id.flow for worker in lost} - self.hosts.failing)

        self.hosts.lose(host, seen)
        self.queue.after(self._chance.uniform(60.0, 3_600.0), lambda: self.hosts.bring_back(host))

    def _restart_node_process(self) -> None:
        host = self._some_host()
        if host is not None:
            self.hosts.end_node_process(host)
            self.queue.after(self._chance.uniform(5.0, 120.0), lambda: self.hosts.node_process_is_back(host))

    def _drain_host(self) -> None:
        host = self._some_host()
        if host is None:
            return
        self._disturb("")
        self._person.commit(DECOMMISSIONED(host).create(Decommissioned(by="person")))
        flows = {worker.id.flow for worker in self.hosts.hosts[host].living} - self.hosts.failing
        self._happens("a host is drained", self.queue.now_s, flows, host)

        def back() -> None:
            self._disturb("")
            self._person.commit(Delete(DECOMMISSIONED(host).path))

        self.queue.after(self._chance.uniform(3_600.0, 7_200.0), back)

    def _crash(self) -> None:
        worker, began_s = self._some_worker(), self.queue.now_s
        if worker is not None:
            flow = worker.id.flow
            self.hosts.crash(worker)  # its node process reports it within a second
            self.queue.after(1.0, lambda: self._happens("a worker crashes", began_s, {flow}))

    def _lose_session(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            back_after_s = self._chance.uniform(1.0, 40.0)
            kind = f"a session is lost {'longer than' if back_after_s > REGAIN_S else 'up to'} {REGAIN_S:.0f} s"
            self.hosts.lose_session(worker, back_after_s)
            self._happens(kind, self.queue.now_s, {worker.id.flow})

    def _apply_version(self) -> None:
        if (name := self._some_flow()) is not None:
            self._next_version(name)
            self._happens("a new version", self.queue.now_s, {name})

    def _pause(self) -> None:
        self._ask_and_resume("paused", "a flow is paused")

    def _stop(self) -> None:
        self._ask_and_resume("drained", "a flow is drained")

    def _ask_and_resume(self, goal: Goal, kind: str) -> None:
        name = self._some_flow()
        if name is None:
            return
        self._ask(name, goal)
        self._happens(kind, self.queue.now_s, {name})

        def resume() -> None:
            self._ask(name, "running")
            self._happens(f"{kind.removesuffix(goal)}resumed from {goal}", self.queue.now_s, {name})

        self.queue.after(self._chance.uniform(600.0, 3_600.0), resume)

    def _fail(self) -> None:
        name = self._some_flow()
        if name is None:
            return
        self.hosts.failing.add(name)
        for tier in sorted(self.hosts.living):
            if tier[0] == name:
                for worker in [*self.hosts.living[tier]]:
                    self.hosts.crash(worker)

        def mend() -> None:
            self.hosts.failing.discard(name)
            self._next_version(name)
            self._happens("a failing flow is mended", self.queue.now_s, {name})

        self.queue.after(600.0, mend)

    # --- people ---

    def _put_to_work(self, names: Sequence[str]) -> None:
        """Write the records of flows that run."""
        self._submit(names)
        self._open.clear()
        self.happenings.clear()
        there = self._person.read(DESIRED(names[0]).path)
        assert there is not None
        self.hosts.put_to_work([(name, f"t{tier}") for name in names for tier in range(self.load.tiers)], there.changed)
        status = StatusRecord(state="running", since=_SINCE, version=1, generation=there.changed, goal="running")
        self._person.commit(*(STATUS(name).create(status) for name in names))

    def _submit(self, names: Sequence[str]) -> None:
        """Submit flows, each a chain of tiers."""
        chain = [f"t{number}" for number in range(self.load.tiers)]
        tiers = {tier: TierSpec(feeders=tuple(chain[at - 1 : at] if at else ())) for at, tier in enumerate(chain)}
        spec = Spec(package="0" * 64, path="flow.yaml", base="/data", state="/state", tiers=tiers, by="person", at=_SINCE)
        desired = Desired(state="running", version=1, by="person", at=spec.at)
        for name in names:
            self._disturb(name)
        self._person.commit(*(write for name in names for write in (SPEC(name, "1").create(spec), DESIRED(name).create(desired))))
        self._happens("a flow is submitted", self.queue.now_s, names)

    def _next_version(self, name: str) -> None:
        """Submit another version of a flow, with other code."""
        desired = self._desired(name)
        spec = read_record(self._person, SPEC(name, str(desired.version)))
        assert isinstance(spec, Stored)
        version = desired.version + 1
        self._disturb(name)
        wish = put(self._person, DESIRED(name), replace(desired, version=version))
        self._person.commit(SPEC(name, str(version)).create(replace(spec.record, package=f"{version:064x}")), wish)

    def _ask(self, name: str, goal: Goal) -> None:
        self._disturb(name)
        self._person.commit(put(self._person, DESIRED(name), replace(self._desired(name), state=goal)))

    def _desired(self, name: str) -> Desired:
        stored = read_record(self._person, DESIRED(name))
        assert isinstance(stored, Stored)
        return stored.record

    # --- chance ---

    def _some_host(self) -> str | None:
        """A host that is up, with a node process, and takes workers; None if few others do, so that there is room for all workers."""
        working = [name for name, host in self.hosts.hosts.items() if host.has_node_process]
        up = [name for name in working if self._person.read(DECOMMISSIONED(name).path) is None]
        return self._chance.choice(up) if len(up) > 0.7 * self.load.hosts else None

    def _some_worker(self) -> SimulatedWorker | None:
        """A worker that serves a flow to which nothing happens at present; None if none is found."""
        name = self._some_flow()
        living = [
            worker for tier in range(self.load.tiers) for worker in self.hosts.living.get((name or "", f"t{tier}"), ()) if worker.leased
        ]
        return self._chance.choice(living) if living else None

    def _some_flow(self) -> str | None:
        """A flow that is to run, and to which nothing happens at present; None if none is found."""
        busy = {name for event in self._open for name in event.flows} | self.hosts.failing
        for _ in range(20):
            name = self._chance.choice(self.names)
            if name not in busy and self._desired(name).state == "running":
                return name
        return None


def _limits_s(tier: ObservedTier) -> Iterator[float]:
    """The times at which something may be decided about a tier although nothing has changed."""
    run, wish = tier.run, tier.wish
    if run is None or run.ended_at is not None:
        if wish is not None and needs_worker(tier):
            yield from _start_s(tier, wish)
    elif run.unleased_since is not None:
        yield run.unleased_since + (REGAIN_S if run.leased else REACHED_S)
    elif not run.leased:
        yield run.asked_at + FIRST_SIGN_S
    if tier.spare is not None:
        yield tier.spare.asked_at + SILENT_S
        yield (tier.spare.ended_at or 0.0) + back_off_s(tier.spare.failures)


def _start_s(tier: ObservedTier, wish: TierWish) -> Iterator[float]:
    at_s = next_start_at(tier, wish)
    if at_s is not None:
        yield at_s


def _order(id_: Any) -> LaunchOrder:
    return LaunchOrder(str(id_), (str(id_),))

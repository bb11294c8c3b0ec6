"""Simulated hosts and workers. They read and write the registry as `hosts.node_process` and `worker.service` do, with delays; nothing runs.

Everything happens at a time of the simulation's clock, in the order of the queue. All delays are drawn from one seeded generator.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from scribengin.control.world import RunId
from scribengin.registry.contract import Create, Delete, RegistryEntry, Replace, fence_of
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import HolderRecord, Host, Hosted, Report, Run, TierWish, WorkerOrder, WorkerSeen
from scribengin.registry.tree import HOST, HOST_UP, HOSTED, HOSTS, LEASE, REPORT, RUN, WANTED, WORKER_ORDER, WORKER_SEEN

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from scribengin.registry.contract import Write
    from scribengin.registry.memory import MemoryRegistry
    from scribengin.registry.records import WorkerState

SESSION_S = 10.0
"""seconds from the end of a process to the end of its session"""
_TICK_S = 1.0
"""seconds within which the sessions of the processes of one host end"""
_NODE_PROCESS_S = (0.1, 0.5)
_WORKER_S = (0.1, 1.0)
"""seconds until a node process, a worker follows a change of its records"""
_STARTS_S = (5.0, 20.0)
"""seconds from the start of a process to its first Batch"""
_SLOW_S = (60.0, 240.0)
"""the same for a slow start: less than `worker_lifecycle.FIRST_SIGN_S`, after which a silent worker is stuck"""
_LAST_BATCH_S = (0.5, 5.0)
_DRAIN_S = (10.0, 60.0)
_FAILS_S = (1.0, 5.0)
"""seconds from its first report to the end of a worker of a flow that always fails"""
_AT_ONCE = 500
"""writes of one commit"""


class EventQueue:
    """What will happen, by time; at equal times in the order in which it was added."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._added = 0

    @property
    def next_at_s(self) -> float:
        """The time of the next event; infinite if there is none."""
        return self._events[0][0] if self._events else float("inf")

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Let it happen after so many seconds."""
        self._added += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._added, event))

    def step(self) -> None:
        """Advance the clock to the next event, and let it happen."""
        self.now_s, _, event = heapq.heappop(self._events)
        event()


@dataclass(eq=False, slots=True)
class SimulatedWorker:
    """A process that serves a tier."""

    id: RunId
    host: str
    version: int
    state: Literal["starting", "ready", "ending", "ended"] = "starting"
    leased: bool = False
    commits: int = 0
    told: Report | None = None
    doing: TierWish | None = None
    """the desired state that it is about to reach"""
    is_stuck: bool = False
    is_cut: bool = False
    """it has no session"""

    @property
    def lives(self) -> bool:
        """True if the process has not ended."""
        return self.state != "ended"

    @property
    def tier(self) -> tuple[str, str]:
        """(flow, tier)."""
        return self.id.flow, self.id.tier


@dataclass(eq=False, slots=True)
class SimulatedHost:
    """A machine with a node process."""

    name: str
    cores: int
    is_up: bool = True
    has_node_process: bool = True
    workers: dict[str, SimulatedWorker] = field(default_factory=dict)
    """the processes that were started since the machine was, by name; those that have ended until their order is removed"""

    @property
    def living(self) -> list[SimulatedWorker]:
        """The workers that have not ended."""
        return [worker for worker in self.workers.values() if worker.lives]


@dataclass(frozen=True, slots=True)
class Faultiness:
    """How often a start goes wrong, as shares of 1."""

    slow: float = 0.02
    stuck: float = 0.002


class SimulatedHosts:
    """All hosts and their workers, on one client of the registry: a session that ends is a record that is deleted."""

    def __init__(
        self,
        registry: MemoryRegistry,
        queue: EventQueue,
        chance: random.Random,
        faults: Faultiness,
        disturb: Callable[[str], None],
    ) -> None:
        """Create it without hosts.

        Args:
            registry: the client of all hosts and workers.
            queue: what will happen.
            chance: the generator of all delays and faults.
            faults: how often a start goes wrong.
            disturb: called with a flow, or "" for all flows, when its records show something that no master has caused.
        """
        self.hosts: dict[str, SimulatedHost] = {}
        self.failing: set[str] = set()
        """flows whose workers end soon after each start"""
        self.living: dict[tuple[str, str], set[SimulatedWorker]] = {}
        """(flow, tier) → its workers that have not ended"""
        self._registry = registry
        self._queue = queue
        self._chance = chance
        self._faults = faults
        self._disturb = disturb
        registry.watch_below(HOSTS, self._host_changed)
        registry.watch_below("flows", self._flow_changed)

    def add(self, names: Iterable[str], cores: int) -> None:
        """Register hosts whose workers may have so many cores together."""
        writes: list[Write] = []
        for name in names:
            self.hosts[name] = SimulatedHost(name, cores)
            writes += [HOST(name).create(Host(host=name, cores=cores)), HOST_UP(name).create(HolderRecord(host=name), ephemeral=True)]
        self._commit(writes)

    def put_to_work(self, tiers: Sequence[tuple[str, str]], generation: int) -> None:
        """Let workers serve tiers, as if a master had started them long ago: their records are written, one host after the other.

        Args:
            tiers: (flow, tier) of each.
            generation: of the desired state that they have reached.
        """
        names = sorted(self.hosts)
        at = sum(len(workers) for workers in self.living.values())
        workers = [
            SimulatedWorker(RunId(*tier, 1), names[(at + n) % len(names)], 1, "ready", leased=True, commits=1)
            for n, tier in enumerate(tiers)
        ]
        orders = [WORKER_ORDER(each.host, str(each.id)).create(WorkerOrder(ask="run")) for each in workers]
        made = self._registry.commit(*orders).revision
        writes: list[Write] = []
        for each in workers:
            self.hosts[each.host].workers[str(each.id)] = each
            self.living[each.tier] = {each}
            each.doing = TierWish(version=1, goal="running", generation=generation)
            each.told = Report(run=1, generation=generation, version=1, state="running", commits=1, ready=True)
            run = Run(number=1, node=each.host, asked_at=self._queue.now_s, generation=generation, leased=True)
            holder, lease = {"format": 1, "run": 1, "host": each.host}, LEASE(*each.tier).path
            writes += [
                WANTED(*each.tier).create(each.doing),
                RUN(*each.tier).create(run),
                REPORT(*each.tier).create(each.told),
                Create(fence_of(lease), holder),
                Create(lease, holder, ephemeral=True),
                WORKER_SEEN(each.host, str(each.id)).create(WorkerSeen(state="running", order=made, since_s=self._queue.now_s)),
                HOSTED(each.host, str(each.id)).create(Hosted()),
            ]
        self._registry.commit(*writes)

    # --- what happens to hosts and workers from outside ---

    def lose(self, name: str, seen: Callable[[list[SimulatedWorker]], None]) -> None:
        """Turn a machine off. `seen` is called with its workers when the last of their sessions has ended."""
        host = self.hosts[name]
        lost = host.living
        host.is_up = host.has_node_process = False
        for worker in lost:
            self._die(worker)
        host.workers.clear()
        paths = [HOST_UP(name).path, *(LEASE(*worker.tier).path for worker in lost if worker.leased)]
        owners = {LEASE(*worker.tier).path: worker.id.number for worker in lost}
        ends = sorted((self._chance.uniform(SESSION_S, SESSION_S + _TICK_S), path) for path in paths)

        def end(path: str, *, is_last: bool) -> None:
            self._disturb("")
            self._delete(path, owners.get(path))
            if is_last:
                seen(lost)

        for after_s, path in ends:
            self._queue.after(after_s, lambda path=path, is_last=path == ends[-1][1]: end(path, is_last=is_last))  # type: ignore[misc]

    def bring_back(self, name: str) -> None:
        """Turn a machine on: its node process finds none of the workers that it had."""
        host = self.hosts[name]
        host.is_up = True
        self.node_process_is_back(name)

    def end_node_process(self, name: str) -> None:
        """End a host's node process; the workers continue."""
        self.hosts[name].has_node_process = False

        def gone() -> None:
            if not self.hosts[name].has_node_process:
                self._disturb("")
                self._delete(HOST_UP(name).path)

        self._queue.after(SESSION_S, gone)

    def node_process_is_back(self, name: str) -> None:
        """Start a host's node process: it compares its orders with the workers that it finds."""
        host = self.hosts[name]
        if not host.is_up or host.has_node_process:
            return
        host.has_node_process = True
        self._disturb("")
        if self._registry.read(HOST_UP(name).path) is None:
            self._registry.commit(HOST_UP(name).create(HolderRecord(host=name), ephemeral=True))
        known = {*self._registry.children(f"{HOSTS}/{name}/orders"), *self._registry.children(f"{HOSTS}/{name}/seen")}
        for worker in sorted(known):
            self._follow(name, worker)

    def crash(self, worker: SimulatedWorker) -> None:
        """End a worker's process at once."""
        self._exit(worker, -9, from_outside=True)

    def lose_session(self, worker: SimulatedWorker, back_after_s: float) -> None:
        """End a worker's session; it takes the lease again after that time."""
        if not worker.leased:
            return
        self._disturb(worker.id.flow)
        worker.leased, worker.is_cut = False, True
        self._delete(LEASE(*worker.tier).path, worker.id.number)

        def back() -> None:
            self._disturb(worker.id.flow)
            worker.is_cut = False
            self._obey(worker)

        self._queue.after(back_after_s, back)

    # --- node processes ---

    def _host_changed(self, path: str | None) -> None:
        parts = (path or "").split("/")
        if len(parts) == 4 and parts[2] == "orders":
            self._queue.after(self._chance.uniform(*_NODE_PROCESS_S), lambda: self._follow(parts[1], parts[3]))

    def _follow(self, name: str, worker: str) -> None:
        """Do what the host's order for a worker says, and report."""
        host = self.hosts[name]
        if not host.has_node_process:
            return
        order, process = read_record(self._registry, WORKER_ORDER(name, worker)), host.workers.get(worker)
        if not isinstance(order, Stored):
            if process is None or not process.lives:
                host.workers.pop(worker, None)
                self._delete(WORKER_SEEN(name, worker).path)
            return
        if process is not None:
            if order.record.ask == "kill" and process.lives:
                self._exit(process, -9)
            elif not process.lives:
                self._tell(process, 0)
        elif order.record.ask != "run" or self._registry.read(WORKER_SEEN(name, worker).path) is not None:
            self._say_of(name, worker, WorkerSeen(state="gone", order=order.entry.made, reason="no record of it is left on this host"))
        elif len(host.living) >= host.cores:
            why = f"it was not started: {host.cores} of {host.cores} cores are taken"
            self._disturb(worker.partition(".")[0])
            self._say_of(name, worker, WorkerSeen(state="gone", order=order.entry.made, reason=why))
        else:
            self._start(host, worker, order.entry.made)

    def _start(self, host: SimulatedHost, name: str, made: int) -> None:
        id_ = RunId.parse(name)
        assert id_ is not None
        wish = read_record(self._registry, WANTED(id_.flow, id_.tier))
        worker = SimulatedWorker(id_, host.name, wish.record.version if isinstance(wish, Stored) else 0)
        host.workers[name] = worker
        self.living.setdefault(worker.tier, set()).add(worker)
        self._say_of(host.name, name, WorkerSeen(state="running", order=made, since_s=self._queue.now_s))
        chance = self._chance.random()
        if chance < self._faults.stuck:
            worker.is_stuck = True
            return
        first_s = self._chance.uniform(*(_SLOW_S if chance < self._faults.stuck + self._faults.slow else (1.0, 3.0)))
        self._queue.after(first_s, lambda: self._obey(worker))

        def ready() -> None:
            if worker.state == "starting":
                worker.state = "ready"
                self._obey(worker)

        self._queue.after(first_s + self._chance.uniform(*_STARTS_S), ready)

    def _say_of(self, host: str, worker: str, seen: WorkerSeen) -> None:
        spot = WORKER_SEEN(host, worker)
        there = read_record(self._registry, spot)
        if not isinstance(there, Stored) or there.record != seen:
            self._registry.commit(put(self._registry, spot, seen))

    def _tell(self, worker: SimulatedWorker, status: int) -> None:
        """Report that a worker has ended."""
        host, name = self.hosts[worker.host], str(worker.id)
        order = self._registry.read(WORKER_ORDER(host.name, name).path)
        if not host.has_node_process or host.workers.get(name) is not worker or not isinstance(order, RegistryEntry):
            return
        there = read_record(self._registry, WORKER_SEEN(host.name, name))
        if isinstance(there, Stored) and there.record.state == "exited":
            return
        reason = "" if status >= 0 else f"ended by signal {-status}"
        seen = WorkerSeen(state="exited", order=order.made, since_s=self._queue.now_s, status=status, reason=reason)
        self._say_of(host.name, name, seen)

    # --- workers ---

    def _flow_changed(self, path: str | None) -> None:
        parts = (path or "").split("/")
        if len(parts) < 4 or (parts[2] not in ("wanted", "runs") and parts[-1] != "lease"):
            return
        for worker in sorted(self.living.get((parts[1], parts[3]), ()), key=lambda each: each.id.number):
            self._queue.after(self._chance.uniform(*_WORKER_S), lambda worker=worker: self._obey(worker))  # type: ignore[misc]

    def _obey(self, worker: SimulatedWorker) -> None:
        """Do what is desired of a worker that has started, as `WorkerService.serve` does."""
        if worker.state not in ("starting", "ready") or worker.is_stuck or worker.is_cut:
            return
        wish, run = read_record(self._registry, WANTED(*worker.tier)), read_record(self._registry, RUN(*worker.tier))
        if not isinstance(wish, Stored) or not isinstance(run, Stored):
            return
        goal = wish.record.goal
        mine = run.record.number == worker.id.number and run.record.ended_at is None
        if not mine:
            self._leave(worker, None)
        elif goal == "stopped" or wish.record.version != worker.version:
            self._later(worker, wish.record, _LAST_BATCH_S if worker.commits else (0.0, 0.1), lambda: self._leave(worker, "stopped"))
        elif not worker.leased and not self._take(worker):
            self._say(worker, wish.record, "starting")
        elif worker.state == "starting":
            self._say(worker, wish.record, "starting")
            if worker.id.flow in self.failing:
                self._queue.after(self._chance.uniform(*_FAILS_S), lambda: self._fail(worker))
        elif goal == "paused":
            self._later(worker, wish.record, _LAST_BATCH_S, lambda: self._say(worker, wish.record, "paused"))
        elif goal == "drained":
            self._later(worker, wish.record, _DRAIN_S, lambda: self._leave(worker, "drained"))
        else:
            worker.doing = wish.record
            worker.commits = max(worker.commits, 1)
            self._say(worker, wish.record, "running")

    def _later(self, worker: SimulatedWorker, wish: TierWish, delay_s: tuple[float, float], then: Callable[[], None]) -> None:
        """Reach a desired state after some time, unless another one is desired by then."""
        if worker.doing == wish:
            return
        worker.doing = wish

        def reach() -> None:
            now = read_record(self._registry, WANTED(*worker.tier))
            if worker.state in ("starting", "ready") and worker.doing == wish and isinstance(now, Stored) and now.record == wish:
                then()

        self._queue.after(self._chance.uniform(*delay_s), reach)

    def _say(self, worker: SimulatedWorker, wish: TierWish, state: WorkerState, **more: Any) -> None:
        """Write a worker's report, if it has changed and the worker is still the tier's."""
        report = Report(
            run=worker.id.number,
            generation=wish.generation,
            version=worker.version,
            state=state,
            commits=worker.commits,
            ready=worker.commits > 0,
            **more,
        )
        if report != worker.told:
            worker.told = report
            self._registry.commit(put(self._registry, REPORT(*worker.tier), report))

    def _take(self, worker: SimulatedWorker) -> bool:
        path = LEASE(*worker.tier).path
        if self._registry.read(path) is not None:
            return False
        holder = {"format": 1, "run": worker.id.number, "host": worker.host}
        fence = self._registry.read(fence_of(path))
        last = Create(fence_of(path), holder) if fence is None else Replace(fence, holder)
        worker.leased = True
        self._registry.commit(Create(path, holder, ephemeral=True), last)
        return True

    def _leave(self, worker: SimulatedWorker, state: Literal["stopped", "drained"] | None) -> None:
        """End in order: report it, release the lease, end the process."""
        worker.state = "ending"
        wish = read_record(self._registry, WANTED(*worker.tier))
        if state is not None and isinstance(wish, Stored):
            self._say(worker, wish.record, state)
        self._exit(worker, 0)

    def _fail(self, worker: SimulatedWorker) -> None:
        wish = read_record(self._registry, WANTED(*worker.tier))
        if worker.state != "starting" or not isinstance(wish, Stored):
            return
        self._disturb(worker.id.flow)
        self._say(worker, wish.record, "failed", cause="the store refuses it", remedy="mend the store")
        self._exit(worker, 1, from_outside=True)

    def _exit(self, worker: SimulatedWorker, status: int, *, from_outside: bool = False) -> None:
        if not worker.lives:
            return
        leased = worker.leased
        self._die(worker)
        lease = LEASE(*worker.tier).path

        def seen() -> None:
            if from_outside:
                self._disturb(worker.id.flow)
            self._tell(worker, status)

        def expired() -> None:
            if from_outside:
                self._disturb(worker.id.flow)
            self._delete(lease, worker.id.number)

        if leased and status == 0:
            self._delete(lease, worker.id.number)
        elif leased:
            self._queue.after(SESSION_S, expired)
        self._queue.after(self._chance.uniform(*_NODE_PROCESS_S), seen)

    def _die(self, worker: SimulatedWorker) -> None:
        worker.state = "ended"
        self.living[worker.tier].discard(worker)

    # --- the registry ---

    def _delete(self, path: str, run: int | None = None) -> None:
        """Delete a record, if it is there; a lease only if it is that run's."""
        there = self._registry.read(path)
        if there is None or (run is not None and isinstance(there, RegistryEntry) and there.value.get("run") != run):
            return
        self._registry.commit(Delete(path))

    def _commit(self, writes: list[Write]) -> None:
        for at in range(0, len(writes), _AT_ONCE):
            self._registry.commit(*writes[at : at + _AT_ONCE])

"""A control plane without threads or processes: masters that die at a given point, and workers that do at once what is wanted of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from harness.memory_launcher import MemoryCluster, MemoryLauncher
from scribengin.control import flow_records, flow_requests
from scribengin.control.master import Master
from scribengin.control.world import RunId
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.flow_ends import ExternalPlace, Outside
from scribengin.registry.lease import RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Report, TierSpec
from scribengin.registry.tree import LEASE, OPERATION, REPORT, RUN, WANTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.control.flow_files import FlowFiles
    from scribengin.registry.contract import Term
    from scribengin.registry.memory import MemoryRegistry
    from scribengin.registry.records import Operation

LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(50))
_STEP_S = 3.0


class MasterDied(BaseException):
    """It had done so many things, and was killed right after the last."""


@dataclass
class Life:
    """How many things a master may still do to the world outside."""

    left: int | None = None
    done: int = 0

    def spend(self) -> None:
        self.done += 1
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise MasterDied


class MortalLauncher(MemoryLauncher):
    """One whose master dies after it has started, killed or forgotten something."""

    life = Life()

    def start(self, order: LaunchOrder) -> None:
        super().start(order)
        self.life.spend()

    def kill(self, worker: str) -> None:
        super().kill(worker)
        self.life.spend()

    def forget(self, worker: str) -> None:
        super().forget(worker)
        self.life.spend()


@dataclass
class Plane:
    """`lives`: what each master in turn may do before it dies; the last one may do all. `part` is a worker's part of an operation."""

    lives: list[int] = field(default_factory=list)
    part: Callable[[RunId, Operation], str] = lambda _id, _operation: ""
    taking: Callable[[MemoryRegistry], FlowFiles] | None = None
    """what takes up flow files that stand in the registry, at once, for the master with that client"""
    ill: frozenset[str] = frozenset()
    """tiers whose workers fail for good when they are to read all that is there"""

    def __post_init__(self) -> None:
        self.store = MemoryStore()
        self.cluster = MemoryCluster()
        self.person = self.store.client()
        self.now = 1_000.0
        self.workers: dict[RunId, tuple[MemoryRegistry, RegistryLease, int]] = {}
        self.life = Life()
        self.masters = 0
        self.most_at_work = 0
        self.drained: list[tuple[str, int]] = []
        """(tier, version) in the order in which they had read all"""
        self.parts: list[tuple[str, str]] = []
        """(tier, operation) in the order in which they were done"""
        self._next_master()

    def _next_master(self) -> None:
        registry = self.store.client()
        launcher = MortalLauncher(lambda: self.now, self.cluster)
        self.registry = registry
        self.master = Master(
            registry,
            {"here": launcher},
            lambda id_: LaunchOrder(str(id_), ("true",)),
            {"id": f"m{self.masters}"},
            log=LOG,
            clock=lambda: self.now,
            takes=self._take,
        )
        self.masters += 1
        assert self.master.contend()
        self.life = launcher.life = Life(self.lives.pop(0) if self.lives else None)
        commit = registry.commit

        def mortal(*writes: Any, **options: Any) -> Any:
            done = commit(*writes, **options)
            if self.life is launcher.life and options.get("term") is not None:
                self.life.spend()
            return done

        registry.commit = mortal  # type: ignore[method-assign]

    def _take(self, files: Mapping[str, int], term: Term) -> None:
        if self.taking is not None:
            taking = self.taking(self.registry)
            for flow in sorted(files):
                taking.take(flow, term)

    def kill_master(self) -> None:
        """Another one leads from now on."""
        self.store.expire(self.registry)
        self.registry.close()
        self._next_master()

    def turn(self) -> None:
        """A cycle of the master, and what the workers do then; three seconds pass."""
        try:
            self.master.cycle()
        except MasterDied:
            self.kill_master()
        self._workers()
        self.now += _STEP_S

    def comes_to(self, flow: str, state: str) -> int:
        """How many turns it takes."""
        for turns in range(400):
            status = flow_records.read_flow(self.person, flow).status
            desired = flow_records.known_flow(self.person, flow)
            if status is not None and status.state == state and status.generation == desired.entry.changed and not self._moved():
                return turns
            self.turn()
        raise AssertionError(f"{flow} never came to {state}: {flow_records.describe(self.person, flow)}")

    def _moved(self) -> bool:
        """Whether a further turn changes anything."""
        before, self.now = self.store.revision, self.now + _STEP_S
        self.turn()
        return self.store.revision != before

    def _workers(self) -> None:
        for order in list(self.cluster.orders):
            id_ = RunId.parse(order.worker)
            assert id_ is not None
            if id_ not in self.workers:
                registry = self.store.client()
                wish = read_record(registry, WANTED(id_.flow, id_.tier))
                version = wish.record.version if isinstance(wish, Stored) else 0
                self.workers[id_] = (registry, RegistryLease(registry, LEASE(id_.flow, id_.tier).path, {"run": id_.number}), version)
        for id_ in sorted(self.workers):
            entry = self.cluster.workers.get(str(id_))
            if entry is not None and entry.seen.state in ("starting", "running"):
                self._obey(id_)
        alive = [str(id_).rpartition("-")[0] for id_, (_, lease, _) in self.workers.items() if lease.held()]
        self.most_at_work = max([self.most_at_work, *(alive.count(tier) for tier in alive)])

    def _obey(self, id_: RunId) -> None:
        """As `worker.service` does, at once."""
        registry, lease, version = self.workers[id_]
        wish, run, told = (read_record(registry, branch(id_.flow, id_.tier)) for branch in (WANTED, RUN, REPORT))
        assert isinstance(wish, Stored)
        assert isinstance(run, Stored)
        before = told.record if isinstance(told, Stored) and told.record.run == id_.number else None
        report = before or Report(run=id_.number, generation=0, version=version, state="starting")
        now = wish.record
        open_task = now.task not in ("", report.task)
        served = run.record.number == id_.number and run.record.ended_at is None
        if not served or now.version != version or (now.goal == "stopped" and not open_task):
            self._says(id_, report, now.generation, state="stopped")
            self._ends(id_)
            return
        if not lease.acquire():
            return
        if open_task:
            operation = read_record(registry, OPERATION(id_.flow, now.task))
            assert isinstance(operation, Stored)
            self.parts.append((id_.tier, now.task))
            error = self.part(id_, operation.record)
            self._says(id_, report, now.generation, state="starting", task=now.task, task_error=error)
        elif now.goal == "drained" and id_.tier in self.ill:
            self._says(id_, report, now.generation, state="failed", cause="the store refuses it", permanent=True)
            self._ends(id_)
        elif now.goal == "drained":
            self.drained.append((id_.tier, version))
            self._says(id_, report, now.generation, state="drained")
            self._ends(id_)
        else:
            self._says(id_, report, now.generation, state=now.goal, commits=1)

    def _says(self, id_: RunId, report: Report, generation: int, **said: Any) -> None:
        registry = self.workers[id_][0]
        told = type(report)(**{**{name: getattr(report, name) for name in report.__struct_fields__}, "generation": generation, **said})
        spot = REPORT(id_.flow, id_.tier)
        there = read_record(registry, spot)
        if not isinstance(there, Stored) or there.record != told:
            registry.commit(put(registry, spot, told))

    def _ends(self, id_: RunId) -> None:
        registry, lease, _ = self.workers[id_]
        lease.close()
        registry.close()
        launcher = MemoryLauncher(lambda: self.now, self.cluster)
        launcher.end(str(id_), 0)


def met(plane: Plane, flow: str, reads: str, writes: str, **tiers: tuple[str, ...]) -> flow_requests.Submission:
    """Submit a flow that reads and writes those folders."""
    ends = Outside(reads={"in": (ExternalPlace(kind="folder", at=reads),)}, writes={"out": (ExternalPlace(kind="folder", at=writes),)})
    specs = {tier: TierSpec(feeders=feeders) for tier, feeders in tiers.items()}
    submission = flow_requests.Submission(flow, "0", "flow.yaml", "/base", specs, outside=ends)
    flow_requests.apply(plane.person, submission, state=lambda _: "/state", by="me")
    return submission


def applied(plane: Plane, flow: str, package: str = "0", **tiers: tuple[str, ...]) -> flow_requests.Submission:
    """A submission of a flow with these tiers and who feeds them."""
    specs = {tier: TierSpec(feeders=feeders) for tier, feeders in tiers.items()}
    submission = flow_requests.Submission(flow, package, "flow.yaml", "/base", specs)
    flow_requests.apply(plane.person, submission, state=lambda _: "/state", by="me")
    return submission

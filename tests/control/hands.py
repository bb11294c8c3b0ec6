"""A master and workers that do what is wanted of them, on any registry: what people do to its records by hand is the test's."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import structlog

from harness.memory_launcher import MemoryCluster, MemoryLauncher
from scribengin.control import flow_requests
from scribengin.control.master import Master
from scribengin.control.world import RunId
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.contract import Create, Delete, RegistryEntry
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Report, StatusRecord, TierSpec
from scribengin.registry.tree import LEASE, LEASE_TERM, REPORT, RUN, STATUS, WANTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Goal

WAIT_S = 120.0
LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def until(what: Callable[[], Any], said: str) -> None:
    """Ask again and again, with a deadline."""
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, f"never came: {said}"
        time.sleep(0.01)


class Plane:
    """`open_client` gives another client of the same registry, `open_masters` that of the first master."""

    def __init__(
        self,
        open_client: Callable[[], Registry],
        open_masters: Callable[[], Registry] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self.person, self.hands, self.registry = open_client(), open_client(), (open_masters or open_client)()
        self.launchers = {node: MemoryLauncher(clock, MemoryCluster()) for node in ("here", "there")}
        self.master = self.another(self.registry)

    def another(self, registry: Registry) -> Master:
        """A master, which leads when it can."""
        master = Master(registry, self.launchers, order, {"id": "m"}, log=LOG, clock=self._clock)
        until(lambda: master.contend(1.0), "the lead")
        return master

    def apply(self, flow: str, package: str = "0", **tiers: tuple[str, ...]) -> flow_requests.Applied:
        specs = {tier: TierSpec(feeders=feeders) for tier, feeders in tiers.items()}
        return flow_requests.apply(
            self.person, flow_requests.Submission(flow, package, "flow.yaml", "/base", specs), state=lambda _: "/state", by="me"
        )

    def want(self, flow: str, goal: Goal) -> None:
        flow_requests.want(self.person, flow, goal, by="me")

    def look(self) -> None:
        """The master does what there is to do, and so do all workers."""
        self.registry.sync()
        self.master.cycle()
        self.obey()

    def obey(self) -> None:
        """All workers do what is wanted of them."""
        self.hands.sync()
        for launcher in self.launchers.values():
            for seen in launcher.observe():
                if seen.state in ("starting", "running"):
                    self._obey(launcher, RunId.parse(seen.worker))

    def workers(self) -> list[str]:
        """All that were ever started, by name."""
        return sorted(order.worker for launcher in self.launchers.values() for order in launcher.cluster.orders)

    def lose(self, flow: str, tier: str, *, forget: bool = False) -> None:
        """The tier's worker is gone, and so is its lease."""
        run = read_record(self.person, RUN(flow, tier))
        assert isinstance(run, Stored)
        launcher, worker = self.launchers[run.record.node], f"{flow}.{tier}-{run.record.number}"
        launcher.lose(worker)
        if forget:
            launcher.forget(worker)
        self.hands.commit(Delete(LEASE(flow, tier).path))

    def run(self, flow: str, tier: str) -> int:
        """The number of the tier's newest run."""
        run = read_record(self.person, RUN(flow, tier))
        return run.record.number if isinstance(run, Stored) else 0

    def node(self, flow: str, tier: str) -> str:
        """Where the tier's worker runs."""
        run = read_record(self.person, RUN(flow, tier))
        return run.record.node if isinstance(run, Stored) and run.record.ended_at is None else ""

    def status(self, flow: str) -> StatusRecord:
        self.person.sync()
        status = read_record(self.person, STATUS(flow))
        return status.record if isinstance(status, Stored) else StatusRecord(state="created")

    def comes_to(self, flow: str, state: str, why: Callable[[StatusRecord], bool] = lambda _: True) -> StatusRecord:
        def there() -> bool:
            self.look()
            return self.status(flow).state == state and why(self.status(flow))

        until(there, f"{flow} {state}: {self.status(flow)}")
        return self.status(flow)

    def rests(self) -> None:
        """Nothing more is done."""
        before = -1
        while before != (before := self.hands.sync()):
            self.look()

    def _obey(self, launcher: MemoryLauncher, id_: RunId | None) -> None:
        assert id_ is not None
        wanted = read_record(self.hands, WANTED(id_.flow, id_.tier))
        if not isinstance(wanted, Stored):
            return
        wish, lease = wanted.record, LEASE(id_.flow, id_.tier).path
        over = wish.goal in ("stopped", "drained")
        report = Report(run=id_.number, generation=wish.generation, version=wish.version, state=wish.goal, commits=1)
        there = read_record(self.hands, REPORT(id_.flow, id_.tier))
        if not isinstance(there, Stored) or there.record != report:
            self.hands.commit(put(self.hands, REPORT(id_.flow, id_.tier), report))
        if over:
            if self.hands.read(lease) is not None:
                self.hands.commit(Delete(lease))
            launcher.end(str(id_), 0)
        elif not isinstance(self.hands.read(lease), RegistryEntry):
            fence = LEASE_TERM(id_.flow, id_.tier).path
            last = () if self.hands.read(fence) is not None else (Create(fence, {"run": id_.number}),)
            self.hands.commit(Create(lease, {"run": id_.number}, ephemeral=True), *last)


def order(id_: RunId) -> LaunchOrder:
    return LaunchOrder(str(id_), ("true",))

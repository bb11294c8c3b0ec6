"""Masters and workers on one registry, in memory: real services, real observing and acting, only processes and flows are stood in for."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest
import structlog

from harness.memory_launcher import MemoryCluster, MemoryLauncher
from scribengin.control import flow_records, flow_requests
from scribengin.control.master import Master
from scribengin.control.world import RunId
from scribengin.core.errors import Exit, FencedError, Refused, Unreachable
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.contract import Delete
from scribengin.registry.lease import RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import TierSpec
from scribengin.registry.tree import DESIRED, LEASE, REPORT, RUN
from scribengin.worker.registry_watch import DesiredState
from scribengin.worker.service import AttemptOutcome, AttemptStatus, WorkerService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.registry.memory import MemoryRegistry
    from scribengin.registry.records import Goal, StatusRecord

WAIT_S = 120
LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def until(what: Callable[[], bool], said: str) -> None:
    """Wait for it, with a deadline."""
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, f"never came: {said}"
        time.sleep(0.01)


@dataclass
class Worker:
    """A service in a thread, over a tier that does nothing, until it is told to fail."""

    id: RunId
    registry: MemoryRegistry
    version: int
    outcome: AttemptOutcome | None = None
    runs: int = 0
    exit: list[Exit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lease = RegistryLease(self.registry, LEASE(self.id.flow, self.id.tier).path, {"run": self.id.number})
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        wanted = DesiredState(self.registry, self.id)
        self.exit.append(WorkerService(self.registry, self.id, self.lease, wanted, self.version, self._attempt).serve())

    def _attempt(self, *, once: bool, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> AttemptOutcome:
        self.runs += 1
        tell(AttemptStatus("running", 1))
        while not stop.wait(0.01):
            if self.outcome is not None:
                return self.outcome
            if once:
                return AttemptOutcome("finished")
        return AttemptOutcome("stopped")


class House:
    """A registry, a cluster of workers, and as many masters as a test wants."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.cluster = MemoryCluster()
        self.person = self.store.client()
        self.workers: dict[RunId, Worker] = {}
        self.masters: list[tuple[Master, MemoryRegistry]] = []
        self.launcher = MemoryLauncher(time.time, self.cluster)

    def master(self) -> Master:
        registry = self.store.client()
        master = Master(registry, {"here": self.launcher}, self._order, {"id": f"m{len(self.masters)}"}, log=LOG)
        assert master.contend()
        self.masters.append((master, registry))
        return master

    def _order(self, id_: RunId) -> LaunchOrder:
        return LaunchOrder(str(id_), ("true",))

    def apply(self, flow: str, package: str = "0", **tiers: tuple[str, ...]) -> flow_requests.Applied:
        specs = {tier: TierSpec(feeders=feeders) for tier, feeders in tiers.items()}
        return flow_requests.apply(
            self.person, flow_requests.Submission(flow, package, "flow.yaml", "/base", specs), state=lambda _: "/state", by="me"
        )

    def wish(self, flow: str, goal: Goal) -> None:
        flow_requests.want(self.person, flow, goal, by="me")

    def status(self, flow: str) -> StatusRecord:
        status = flow_records.read_flow(self.person, flow).status
        assert status is not None
        return status

    def step(self, master: Master) -> None:
        """One cycle, and what the launcher does of it."""
        master.cycle()
        for order in self.cluster.orders:
            id_ = RunId.parse(order.worker)
            assert id_ is not None
            if id_ not in self.workers:
                version = flow_records.read_flow(self.person, id_.flow).desired.version
                self.workers[id_] = Worker(id_, self.store.client(), version)
        for id_, worker in self.workers.items():
            if worker.exit and str(id_) in self.cluster.workers:
                self.launcher.end(str(id_), worker.exit[0])

    def comes_to(self, flow: str, state: str, master: Master) -> None:
        def there() -> bool:
            self.step(master)
            status = flow_records.read_flow(self.person, flow).status
            return status is not None and status.state == state

        until(there, f"{flow} {state}")


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    with ExitStack() as stack:
        yield house
        for worker in house.workers.values():
            stack.callback(worker.registry.close)
    for worker in house.workers.values():
        worker.outcome = AttemptOutcome("stopped")


def test_a_flow_is_started_paused_resumed_drained_and_stays_so(house: House) -> None:
    master = house.master()
    house.apply("tweets", edge=(), core=("edge",))
    house.comes_to("tweets", "running", master)
    first = {id_: worker.runs for id_, worker in house.workers.items()}
    assert set(first) == {RunId("tweets", "edge", 1), RunId("tweets", "core", 1)}
    house.wish("tweets", "paused")
    house.comes_to("tweets", "paused", master)
    house.wish("tweets", "running")
    house.comes_to("tweets", "running", master)
    assert {id_: worker.runs for id_, worker in house.workers.items()} == {id_: runs + 1 for id_, runs in first.items()}
    house.wish("tweets", "drained")
    house.comes_to("tweets", "stopped", master)
    assert [worker.exit for worker in house.workers.values()] == [[Exit.DONE], [Exit.DONE]]
    assert house.status("tweets").reason == "drained"


def test_the_next_master_adopts_what_runs_and_starts_nothing_again(house: House) -> None:
    first = house.master()
    house.apply("tweets", main=())
    house.comes_to("tweets", "running", first)
    orders = list(house.cluster.orders)
    house.store.expire(house.masters[0][1])
    with pytest.raises(FencedError):
        first.cycle()
    second = house.master()
    for _ in range(3):
        house.step(second)
    assert house.cluster.orders == orders
    assert house.status("tweets").state == "running"


def test_a_master_that_slept_writes_nothing(house: House) -> None:
    sleeper = house.master()
    house.apply("tweets", main=())
    house.comes_to("tweets", "running", sleeper)
    registry = house.masters[0][1]
    registry.cut()
    house.store.advance(60)
    successor = house.master()
    house.wish("tweets", "stopped")
    house.comes_to("tweets", "stopped", successor)
    registry.mend()
    before = house.store.revision
    with pytest.raises((FencedError, Unreachable)):
        sleeper.cycle()
    assert house.status("tweets").state == "stopped"
    assert house.store.revision - before <= 1  # its new session, at most


def test_a_worker_whose_session_ends_takes_the_lease_again_and_is_not_started_again(house: House) -> None:
    master = house.master()
    house.apply("tweets", main=())
    house.comes_to("tweets", "running", master)
    worker = house.workers[RunId("tweets", "main", 1)]
    before, runs = worker.lease.term.number, worker.runs
    house.store.expire(worker.registry)
    until(lambda: worker.lease.held() and worker.lease.term.number > before and worker.runs > runs, "the lease again")
    house.comes_to("tweets", "running", master)
    assert len(house.cluster.orders) == 1


def test_a_permanent_failure_waits_and_a_passing_one_is_tried_again(house: House) -> None:
    master = house.master()
    house.apply("tweets", main=())
    house.comes_to("tweets", "running", master)
    house.workers[RunId("tweets", "main", 1)].outcome = AttemptOutcome("failed", "the broker is away", "start it")
    until(lambda: house.step(master) or RunId("tweets", "main", 2) in house.workers, "a second worker")  # type: ignore[func-returns-value]
    house.comes_to("tweets", "running", master)
    house.workers[RunId("tweets", "main", 2)].outcome = AttemptOutcome("failed", "the topic is another", "rewind it", permanent=True)
    house.comes_to("tweets", "failed", master)
    assert house.status("tweets").reason == "tier main: the topic is another"
    assert house.status("tweets").next == "rewind it; then: scribengin resume tweets"
    for _ in range(3):
        house.step(master)
    assert len(house.cluster.orders) == 2
    house.wish("tweets", "running")
    house.comes_to("tweets", "running", master)
    assert len(house.cluster.orders) == 3


def test_a_damaged_record_stops_nothing_and_unknown_keys_stay(house: House) -> None:
    master = house.master()
    house.apply("tweets", main=())
    house.apply("other", main=())
    house.comes_to("tweets", "running", master)
    house.comes_to("other", "running", master)
    path = DESIRED("tweets").path
    house.store.write_raw(path, b'{"goal": "fast"}')
    for _ in range(3):
        house.step(master)
    assert list(master.problems) == [path]
    assert all(not worker.exit for worker in house.workers.values())
    house.wish("other", "stopped")
    house.comes_to("other", "stopped", master)
    run = read_record(house.person, RUN("other", "main"))
    assert isinstance(run, Stored)
    house.store.write_raw(RUN("other", "main").path, msgspec.json.encode(run.entry.value | {"colour": "blue"}))
    house.wish("other", "running")
    house.comes_to("other", "running", master)
    again = read_record(house.person, RUN("other", "main"))
    assert isinstance(again, Stored)
    assert (again.record.number, again.entry.value["colour"]) == (run.record.number + 1, "blue")


def test_a_worker_says_again_what_was_damaged_or_removed_of_what_it_said(house: House) -> None:
    master = house.master()
    house.apply("tweets", main=())
    house.comes_to("tweets", "running", master)
    spot = REPORT("tweets", "main")

    def said() -> bool:
        house.step(master)
        found = read_record(house.person, spot)
        return isinstance(found, Stored) and found.record.state == "running"

    for harm in (lambda: house.store.write_raw(spot.path, b"oops"), lambda: house.person.commit(Delete(spot.path))):
        harm()
        until(said, "the report again")
        house.comes_to("tweets", "running", master)
    assert len(house.cluster.orders) == 1


def test_a_version_is_gone_back_to_and_a_flow_is_forgotten_but_not_its_numbers(house: House) -> None:
    master = house.master()
    house.apply("tweets", "a", main=())
    house.comes_to("tweets", "running", master)
    assert house.apply("tweets", "a", main=()) == flow_requests.Applied("tweets", 1, changed=False)
    assert house.apply("tweets", "b", main=()).version == 2
    house.comes_to("tweets", "running", master)
    assert [(each.version, each.wanted, each.package) for each in flow_records.history(house.person, "tweets")] == [
        (2, True, "b"),
        (1, False, "a"),
    ]
    for version, code in ((2, "version-same"), (7, "version-unknown")):
        with pytest.raises(Refused) as refused:
            flow_requests.rollback(house.person, "tweets", version, by="me")
        assert refused.value.code == code
    flow_requests.rollback(house.person, "tweets", 1, by="me")
    house.comes_to("tweets", "running", master)
    assert house.status("tweets").version == 1
    with pytest.raises(Refused, match="not stopped"):
        flow_requests.delete(house.person, "tweets")
    house.wish("tweets", "stopped")
    house.comes_to("tweets", "stopped", master)
    flow_requests.delete(house.person, "tweets")
    assert flow_records.read_flows(house.person) == ()
    with pytest.raises(Refused, match='no flow "tweets"'):
        house.wish("tweets", "running")
    house.step(master)
    started = len(house.cluster.orders)
    assert house.apply("tweets", "c", main=()).version == 1
    house.comes_to("tweets", "running", master)
    assert [order.worker for order in house.cluster.orders[started:]] == [f"tweets.main-{started + 1}"]


def test_a_cycle_in_which_nothing_has_changed_asks_the_registry_nothing(house: House) -> None:
    master = house.master()
    house.apply("tweets", main=())
    house.comes_to("tweets", "running", master)
    house.step(master)
    house.masters[0][1].read = None  # type: ignore[method-assign,assignment]  # whoever calls it fails
    house.masters[0][1].children = None  # type: ignore[method-assign,assignment]
    master.cycle()


def test_a_master_that_meets_a_bug_lets_others_lead_and_tries_again(house: House) -> None:
    bugs = [ZeroDivisionError("a bug"), ZeroDivisionError("again")]

    def order(id_: RunId) -> LaunchOrder:
        if bugs:
            raise bugs.pop()
        return LaunchOrder(str(id_), ("true",))

    registry = house.store.client()
    master = Master(registry, {"here": house.launcher}, order, {"id": "m"}, log=LOG)
    house.apply("tweets", main=())
    thread = threading.Thread(target=master.run, daemon=True)
    thread.start()
    until(lambda: len(house.cluster.orders) == 1, "started at the third try")
    assert not bugs
    master.stop()
    thread.join()

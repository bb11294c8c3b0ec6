"""A worker's part of operations, and versions that it goes on with: real services over a registry in memory."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from scribengin.control.world import RunId
from scribengin.core.errors import Exit, Refused, Unreachable
from scribengin.registry.lease import RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Report, Run, TierWish
from scribengin.registry.tree import LEASE, REPORT, RUN, WANTED
from scribengin.worker.registry_watch import DesiredState
from scribengin.worker.service import AttemptOutcome, AttemptStatus, WorkerService

if TYPE_CHECKING:
    from collections.abc import Callable

ID = RunId("f", "main", 1)


class Tier:
    """One tier, its worker in a thread, and who says what is wanted of it."""

    def __init__(self, part: Callable[[str], None], reload: Callable[[int], bool] | None = None, **wish: object) -> None:
        self.store = MemoryStore()
        self.person = self.store.client()
        self.registry = self.store.client()
        self.attempts: list[int] = []
        self.generation = 0
        self.person.commit(RUN("f", "main").create(Run(number=1, node="a", asked_at=0.0, generation=1)))
        self.wants(**wish)
        self.lease = RegistryLease(self.registry, LEASE("f", "main").path, {"run": 1})
        wanted = DesiredState(self.registry, ID)
        self.service = WorkerService(self.registry, ID, self.lease, wanted, 1, self.attempt, task=part, reload=reload)
        self.exit: list[Exit] = []
        self.thread = threading.Thread(target=lambda: self.exit.append(self.service.serve()), daemon=True)
        self.thread.start()

    def attempt(self, *, once: bool, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> AttemptOutcome:
        self.attempts.append(threading.get_ident())
        tell(AttemptStatus("running", 1))
        stop.wait(120)
        return AttemptOutcome("stopped")

    def wants(self, **said: object) -> None:
        self.generation += 1
        wish = TierWish(**{"version": 1, "goal": "running", "generation": self.generation, **said})  # type: ignore[arg-type]
        self.person.commit(put(self.person, WANTED("f", "main"), wish))

    def report(self) -> Report | None:
        found = read_record(self.person, REPORT("f", "main"))
        return found.record if isinstance(found, Stored) else None

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not what():
            assert time.monotonic() < deadline, self.report()
            time.sleep(0.01)

    def ends(self, status: Exit = Exit.DONE) -> Report:
        self.until(lambda: bool(self.exit))
        assert self.exit == [status]
        report = self.report()
        assert report is not None
        return report


def test_a_part_is_done_under_the_lease_and_told_before_the_worker_ends() -> None:
    done: list[tuple[str, bool]] = []
    tiers: list[Tier] = []
    ready = threading.Event()

    def part(id_: str) -> None:
        ready.wait(120)
        done.append((id_, tiers[0].lease.held()))

    tier = Tier(part, goal="stopped", task="7")
    tiers.append(tier)
    ready.set()
    report = tier.ends()
    assert (done, report.task, report.task_error, report.state) == ([("7", True)], "7", "", "stopped")
    assert tier.attempts == []


def test_a_part_that_cannot_be_done_or_is_a_mistake_of_ours_is_told_with_its_cause() -> None:
    def refuses(_: str) -> None:
        raise Refused("the source is another", remedy="name it")

    def breaks(_: str) -> None:
        raise ZeroDivisionError("by none")

    assert Tier(refuses, goal="stopped", task="1").ends().task_error == "the source is another; name it"
    assert "ZeroDivisionError: by none" in Tier(breaks, goal="stopped", task="1").ends().task_error


def test_a_part_that_may_go_through_later_is_left_to_the_next_worker() -> None:
    def away(_: str) -> None:
        raise Unreachable("the broker is away")

    report = Tier(away, goal="stopped", task="1").ends(Exit.FAILED)
    assert (report.task, report.state, report.permanent, report.cause) == ("", "failed", False, "the broker is away")


def test_a_running_worker_does_its_part_once_and_goes_on() -> None:
    done: list[str] = []
    tier = Tier(done.append)
    tier.until(lambda: len(tier.attempts) == 1)
    tier.wants(goal="paused", task="3")
    tier.until(lambda: (report := tier.report()) is not None and (report.task, report.state) == ("3", "paused"))
    tier.wants()
    tier.until(lambda: len(tier.attempts) == 2)
    assert done == ["3"]
    tier.wants(goal="stopped")
    tier.ends()


def test_a_version_is_taken_up_between_two_attempts_where_that_can_be_and_ends_the_worker_where_not() -> None:
    asked: list[int] = []

    def reload(version: int) -> bool:
        asked.append(version)
        return version == 2

    tier = Tier(lambda _: None, reload)
    tier.until(lambda: len(tier.attempts) == 1)
    tier.wants(version=2)
    tier.until(lambda: (report := tier.report()) is not None and (report.version, report.state) == (2, "running"))
    assert (len(tier.attempts), tier.exit) == (2, [])
    tier.wants(version=3)
    assert tier.ends().version == 2
    assert asked == [2, 3]

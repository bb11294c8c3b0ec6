"""What a worker writes of itself, and when it may."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from farm import until

from scribengin.control.world import RunId
from scribengin.core.errors import Exit
from scribengin.registry.lease import RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Report, Run, TierWish
from scribengin.registry.tree import LEASE, REPORT, RUN, WANTED
from scribengin.worker.registry_watch import DesiredState, Orders
from scribengin.worker.service import AttemptOutcome, WorkerService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.registry.contract import Registry

ID = RunId("tweets", "main", 1)
WISH = TierWish(version=1, goal="running", generation=1)


class Remembering(DesiredState):
    """What was wanted when it last heard of it, for so many looks."""

    def __init__(self, registry: Registry, looks: int) -> None:
        super().__init__(registry, ID)
        self.looks = looks

    def read(self) -> Orders:
        self.looks -= 1
        return Orders(WISH if self.looks >= 0 else None)


def _never(**_: object) -> AttemptOutcome:
    raise AssertionError("it has no lease")


def test_a_worker_that_has_not_heard_yet_that_another_serves_its_tier_does_not_speak_for_it() -> None:
    store = MemoryStore()
    mine, other = store.client(), store.client()
    report = Report(run=2, generation=1, version=1, state="running", commits=7)
    other.commit(put(other, RUN(ID.flow, ID.tier), Run(number=2, node="a", asked_at=0.0, generation=1)))
    other.commit(put(other, WANTED(ID.flow, ID.tier), WISH))
    with (
        RegistryLease(other, LEASE(ID.flow, ID.tier).path, {"run": 2}) as theirs,
        RegistryLease(mine, LEASE(ID.flow, ID.tier).path, {"run": 1}) as lease,
    ):
        assert theirs.acquire()
        other.commit(put(other, REPORT(ID.flow, ID.tier), report), term=theirs.term)
        service = WorkerService(mine, ID, lease, Remembering(mine, looks=2), 1, _never)  # type: ignore[arg-type]
        assert service.serve() is Exit.DONE
        there = read_record(other, REPORT(ID.flow, ID.tier))
    assert isinstance(there, Stored)
    assert there.record == report


def test_a_worker_that_waits_for_its_lease_says_that_it_is_there() -> None:
    store = MemoryStore()
    mine, other = store.client(), store.client()
    other.commit(put(other, RUN(ID.flow, ID.tier), Run(number=1, node="a", asked_at=0.0, generation=1)))
    other.commit(put(other, WANTED(ID.flow, ID.tier), WISH))
    with (
        RegistryLease(other, LEASE(ID.flow, ID.tier).path, {"run": 0}) as theirs,
        RegistryLease(mine, LEASE(ID.flow, ID.tier).path, {"run": 1}) as lease,
    ):
        assert theirs.acquire()
        service = WorkerService(mine, ID, lease, DesiredState(mine, ID), 1, _never)  # type: ignore[arg-type]
        thread = threading.Thread(target=service.serve)
        thread.start()
        try:
            until(lambda: isinstance(read_record(other, REPORT(ID.flow, ID.tier)), Stored), "its word")
            there = read_record(other, REPORT(ID.flow, ID.tier))
        finally:
            service.stop()
            thread.join(120)
    assert isinstance(there, Stored)
    assert (there.record.run, there.record.state) == (1, "starting")


@contextmanager
def serving(attempt: Any, wish: TierWish = WISH, run: int = 1) -> Iterator[tuple[Registry, WorkerService, list[str]]]:
    """Worker 1 of a tier that is wanted so, whose worker is `run`; and why it has ended."""
    store, ends = MemoryStore(), list[str]()
    mine, other = store.client(), store.client()
    other.commit(put(other, RUN(ID.flow, ID.tier), Run(number=run, node="a", asked_at=0.0, generation=1)))
    other.commit(put(other, WANTED(ID.flow, ID.tier), wish))
    with RegistryLease(mine, LEASE(ID.flow, ID.tier).path, {"run": 1}) as lease:
        yield other, WorkerService(mine, ID, lease, DesiredState(mine, ID), 1, attempt, on_end=ends.append), ends


@pytest.mark.parametrize(
    ("wish", "run", "said"),
    [
        (WISH, 2, "stopped: it is no longer needed: its tier's worker is number 2"),
        (TierWish(version=1, goal="stopped", generation=1), 1, "stopped: the desired state is its tier stopped"),
        (TierWish(version=2, goal="running", generation=1), 1, "stopped: the desired state is version 2; this worker has version 1"),
    ],
)
def test_a_worker_that_is_not_wanted_says_why_it_ends(wish: TierWish, run: int, said: str) -> None:
    with serving(_never, wish, run) as (_, service, ends):
        assert service.serve() is Exit.DONE
    assert ends == [said]


def test_a_worker_that_was_asked_to_end_by_a_signal_leaves_that_where_masters_read_it() -> None:
    with serving(_never) as (registry, service, ends):
        service.stop()
        assert service.serve() is Exit.DONE
        there = read_record(registry, REPORT(ID.flow, ID.tier))
    assert ends == ["stopped: it received SIGTERM"]
    assert isinstance(there, Stored)
    assert (there.record.state, there.record.cause) == ("stopped", "it received SIGTERM")


def test_an_attempt_that_fails_is_told_beside_the_registry_too() -> None:
    def fails(**_: object) -> AttemptOutcome:
        return AttemptOutcome("failed", "the broker does not answer", "start it")

    with serving(fails) as (_, service, ends):
        assert service.serve() is Exit.FAILED
    assert ends == ["failed: the broker does not answer; start it"]


@pytest.mark.parametrize("fails", [True, False], ids=["it fails by that", "it goes on"])
def test_a_worker_whose_folder_is_deleted_ends_and_another_one_may_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def attempt(*, stop: threading.Event, **_: object) -> AttemptOutcome:
        (tmp_path / "container").rmdir()
        if not fails:
            assert stop.wait(60), "it is told to end"
            return AttemptOutcome("stopped")
        raise FileNotFoundError(2, "No such file or directory")

    (tmp_path / "container").mkdir()
    monkeypatch.chdir(tmp_path / "container")
    with serving(attempt) as (registry, service, _):
        assert service.serve() is Exit.FAILED
        there = read_record(registry, REPORT(ID.flow, ID.tier))
    assert isinstance(there, Stored)
    assert (there.record.state, there.record.permanent, there.record.cause) == ("failed", False, "the folder of its process was deleted")

"""What a worker writes of itself, and when it may."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from farm import until

from scribengin.control.world import RunId
from scribengin.core.errors import Exit
from scribengin.registry.kinds import Report, Run, TierWish
from scribengin.registry.lease import Lease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.records import Stored, put, read_record
from scribengin.registry.tree import LEASE, REPORT, RUN, WANTED
from scribengin.worker.service import Outcome, Service
from scribengin.worker.wanted import Orders, Wanted

if TYPE_CHECKING:
    from scribengin.registry.contract import Registry

ID = RunId("tweets", "main", 1)
WISH = TierWish(version=1, goal="running", generation=1)


class Remembering(Wanted):
    """What was wanted when it last heard of it, for so many looks."""

    def __init__(self, registry: Registry, looks: int) -> None:
        super().__init__(registry, ID)
        self.looks = looks

    def read(self) -> Orders:
        self.looks -= 1
        return Orders(WISH if self.looks >= 0 else None)


def _never(**_: object) -> Outcome:
    raise AssertionError("it has no lease")


def test_a_worker_that_has_not_heard_yet_that_another_serves_its_tier_does_not_speak_for_it() -> None:
    store = MemoryStore()
    mine, other = store.client(), store.client()
    report = Report(run=2, generation=1, version=1, state="running", commits=7)
    other.commit(put(other, RUN(ID.flow, ID.tier), Run(number=2, node="a", asked_at=0.0, generation=1)))
    other.commit(put(other, WANTED(ID.flow, ID.tier), WISH))
    with Lease(other, LEASE(ID.flow, ID.tier).path, {"run": 2}) as theirs, Lease(mine, LEASE(ID.flow, ID.tier).path, {"run": 1}) as lease:
        assert theirs.acquire()
        other.commit(put(other, REPORT(ID.flow, ID.tier), report), term=theirs.term)
        service = Service(mine, ID, lease, Remembering(mine, looks=2), 1, _never)  # type: ignore[arg-type]
        assert service.serve() is Exit.DONE
        there = read_record(other, REPORT(ID.flow, ID.tier))
    assert isinstance(there, Stored)
    assert there.record == report


def test_a_worker_that_waits_for_its_lease_says_that_it_is_there() -> None:
    store = MemoryStore()
    mine, other = store.client(), store.client()
    other.commit(put(other, RUN(ID.flow, ID.tier), Run(number=1, node="a", asked_at=0.0, generation=1)))
    other.commit(put(other, WANTED(ID.flow, ID.tier), WISH))
    with Lease(other, LEASE(ID.flow, ID.tier).path, {"run": 0}) as theirs, Lease(mine, LEASE(ID.flow, ID.tier).path, {"run": 1}) as lease:
        assert theirs.acquire()
        service = Service(mine, ID, lease, Wanted(mine, ID), 1, _never)  # type: ignore[arg-type]
        thread = threading.Thread(target=service.serve)
        thread.start()
        try:
            until(lambda: isinstance(read_record(other, REPORT(ID.flow, ID.tier)), Stored), "its word")
            there = read_record(other, REPORT(ID.flow, ID.tier))
        finally:
            service.stop()
            thread.join(20)
    assert isinstance(there, Stored)
    assert (there.record.run, there.record.state) == (1, "starting")

"""What was decided of many flows is written in few commits, of each flow all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from harness.memory_launcher import MemoryLauncher
from scribengin.control.attempts import attempts_with_reports
from scribengin.control.executor import Actor
from scribengin.control.registry_cache import Mirror
from scribengin.control.world import Note, SetWorkerGoal, Start, Tell
from scribengin.core.errors import FencedError, Unreachable
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.contract import Conflict, Create, Delete, RegistryEntry
from scribengin.registry.lease import Election
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import Run, StatusRecord, TierWish
from scribengin.registry.tree import LEASE, RUN, STATUS, WANTED

if TYPE_CHECKING:
    from scribengin.control.world import Action

FLOWS = [f"f{number}" for number in range(9)]


class Bench:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.registry, self.person = self.store.client(), self.store.client()
        self.election = Election(self.registry, {})
        assert self.election.acquire()
        self.mirror = Mirror(self.registry)
        self.launcher = MemoryLauncher(lambda: 0.0)
        launchers: dict[str, Any] = {"here": self.launcher}
        self.actor = Actor(self.registry, self.mirror, launchers, lambda id_: LaunchOrder(str(id_), ("true",)), lambda _flow, _tier: None)

    def actions(self, generation: int) -> list[Action]:
        return [
            action
            for flow in FLOWS
            for action in (
                SetWorkerGoal(flow, "main", TierWish(version=1, goal="running", generation=generation)),
                Start(flow, "main", Run(number=generation, node="here", asked_at=0.0, generation=generation)),
                Tell(flow, StatusRecord(state="starting", generation=generation)),
            )
        ]

    def perform(self, generation: int) -> list[Any]:
        return list(self.actor.perform_all(self.actions(generation), self.election.term, self.election.check))

    def written(self, flow: str) -> set[int]:
        found = [read_record(self.person, spot) for spot in (WANTED(flow, "main"), STATUS(flow), RUN(flow, "main"))]
        return {each.entry.value.get("generation", each.entry.value.get("number")) for each in found if isinstance(each, Stored)}


def test_all_is_written_in_one_commit_and_then_started() -> None:
    bench = Bench()
    before = bench.store.revision
    assert bench.perform(1) == []
    assert bench.store.revision == before + 1
    assert [bench.written(flow) for flow in FLOWS] == [{1}] * len(FLOWS)
    assert len(bench.launcher.observe()) == len(FLOWS)


@pytest.mark.parametrize("taken", [("f0",), ("f8",), ("f3", "f4"), tuple(FLOWS)])
def test_where_somebody_was_faster_nothing_is_done_for_that_flow_and_all_for_the_others(taken: tuple[str, ...]) -> None:
    bench = Bench()
    assert bench.perform(1) == []
    for flow in FLOWS:
        bench.mirror.fetch([WANTED(flow, "main").path, RUN(flow, "main").path, STATUS(flow).path])
    for flow in taken:
        bench.store.write_raw(STATUS(flow).path, b'{"state":"failed","generation":7}')
    errors = bench.perform(2)
    assert [type(error) for error in errors] == [Conflict] * len(taken)
    for flow in FLOWS:
        assert bench.written(flow) == ({1, 7} if flow in taken else {2})
    started = {seen.worker for seen in bench.launcher.observe() if seen.worker.endswith("-2")}
    assert started == {f"{flow}.main-2" for flow in FLOWS if flow not in taken}
    bench.mirror.refresh()
    assert bench.perform(3) == [], "the next look has read what is there"


def test_a_record_of_a_newer_program_holds_up_its_flow_only() -> None:
    bench = Bench()
    bench.store.write_raw("flows", b"")
    bench.store.write_raw("flows/f4", b"")
    bench.store.write_raw(STATUS("f4").path, b'{"format":9}')
    (error,) = bench.perform(1)
    assert error.code == "registry-newer-format"
    assert [bench.written(flow) for flow in FLOWS if flow != "f4"] == [{1}] * 8
    assert bench.written("f4") == set()


def test_who_leads_no_more_writes_and_starts_nothing() -> None:
    bench = Bench()
    bench.store.expire(bench.registry)
    with pytest.raises(FencedError):
        bench.perform(1)
    assert bench.launcher.observe() == []
    assert bench.person.children("flows") == ()


def test_one_node_that_does_not_answer_holds_up_no_other() -> None:
    bench = Bench()
    bench.launcher.refuse_with = Unreachable("the node is away")
    errors = bench.perform(1)
    assert [error.message for error in errors] == ["the node is away"] * len(FLOWS)
    assert [bench.written(flow) for flow in FLOWS] == [{1}] * len(FLOWS)


def test_the_processes_that_served_a_tier_are_remembered_with_where_they_ran_and_why_they_ended() -> None:
    bench = Bench()
    first = Run(number=1, node="here", asked_at=10.0, generation=1)

    def does(*actions: Action) -> None:
        bench.mirror.refresh()
        assert list(bench.actor.perform_all(actions, bench.election.term, bench.election.check)) == []

    does(Start("f", "main", first))
    lease = LEASE("f", "main").path
    bench.person.commit(Create(lease, {"run": 1, "pid": 77, "host": "h1"}, ephemeral=True))
    does(Note("f", "main", replace(first, leased=True)))
    does(Note("f", "main", replace(first, leased=True, ended_at=25.0, failures=1, cause="steps.py:12: KeyError: 'id'", remedy="mend it")))
    does(Start("f", "main", Run(number=2, node="here", asked_at=27.0, generation=1, failures=1)))  # the old lease is there for a moment
    bench.person.commit(Delete(lease))
    does(Start("f", "main", Run(number=3, node="here", asked_at=30.0, generation=1), spare=True))
    newest, oldest = attempts_with_reports(bench.person, "f")
    assert (newest["worker"], newest["state"], newest["pid"], newest["ended"], newest["cause"]) == ("f.main-2", "running", None, None, "")
    assert (oldest["state"], oldest["host"], oldest["pid"], oldest["since"], oldest["ended"]) == ("ended", "h1", 77, 10.0, 25.0)
    assert (oldest["cause"], oldest["remedy"], oldest["in_a_row"]) == ("steps.py:12: KeyError: 'id'", "mend it", 1)
    told = {"tier": "main", "worker": "f.main-2", "since": 28.0, "ended": None, "cause": "", "remedy": ""}
    told |= {"batches": 4, "rows_in": 40, "restarts": 0, "failures": [{"cause": "no"}]}
    newest, oldest = attempts_with_reports(bench.person, "f", [told])
    assert (newest["batches"], newest["failures"], oldest["batches"], oldest["failures"]) == (4, [{"cause": "no"}], None, [])
    for number in range(3, 200):
        does(Start("f", f"t{number % 40}", Run(number=number, node="here", asked_at=float(number), generation=1)))
    found = attempts_with_reports(bench.person, "f")
    assert (len(found), found[0]["worker"]) == (100, "f.t39-199")
    for number in range(200, 330):
        long = Run(
            number=number, node="here", asked_at=float(number), generation=1, ended_at=1.0, cause="\U0001f4a5" * 900, remedy="é" * 900
        )
        does(Note("f", f"t{number % 40}", long))
    kept = bench.person.read("flows/f/attempts")
    assert isinstance(kept, RegistryEntry)
    assert len(str(kept.value).encode()) < 60_000, "far below what a record may have, whatever causes say"
    assert attempts_with_reports(bench.person, "f")[0]["worker"] == "f.t9-329"

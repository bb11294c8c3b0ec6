"""The simulated control plane: the same seed gives the same decisions, the real `decide` meets the bars, and broken ones are caught."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from harness.simulation.__main__ import main
from harness.simulation.hosts import Faultiness
from harness.simulation.plane import SimulatedPlane, SimulationLoad
from scribengin.control.decide import decide
from scribengin.control.world import Action, Kill, Note, RunId, SetWorkerGoal, Start, Tell, World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Deciding = Callable[[World, Collection[str] | None], list[Action]]

SMALL = SimulationLoad(
    flows=12,
    hosts=5,
    tiers=2,
    seconds=4 * 3_600.0,
    idle_s=300.0,
    lost_hosts=4,
    node_processes_away=2,
    drained_hosts=1,
    crashes=6,
    lost_sessions=4,
    versions=4,
    pauses=4,
    stops=2,
    failing=1,
)
UNDONE, ELSEWHERE = "no action is undone by the next pass", "a lost host's workers are elsewhere within 3 passes"


def run(load: SimulationLoad = SMALL, deciding: Deciding = decide, *, stops: bool = False) -> SimulatedPlane:
    plane = SimulatedPlane(load, deciding)
    plane.keep_decided, plane.stops_when_missed = True, stops
    plane.run()
    return plane


@pytest.fixture(scope="module")
def plane() -> SimulatedPlane:
    return run()


def test_the_bars_are_met_and_everything_comes_to_rest(plane: SimulatedPlane) -> None:
    assert plane.missed == []
    assert [event for event in plane.happenings if event.settled_s is None] == []
    assert max(lost.passes for lost in plane.lost_hosts.met) == 3
    assert {event.kind for event in plane.happenings} >= {
        "a host is lost",
        "a host is drained",
        "a worker crashes",
        "a failing flow is mended",
    }
    assert {kind for kind in ("Start", "Kill", "Note", "Tell", "SetWorkerGoal", "FreeLease", "Forget") if not plane.actions[kind]} <= {
        "Kill"
    }


def test_the_same_seed_gives_the_same_decisions_and_writes(plane: SimulatedPlane) -> None:
    again, other = run(), run(replace(SMALL, seed=2))
    assert again.decided == plane.decided
    assert [(each.at_s, each.counts) for each in again.passes] == [(each.at_s, each.counts) for each in plane.passes]
    assert again.store.revision == plane.store.revision
    assert other.decided != plane.decided


def test_the_passes_that_are_left_out_would_decide_nothing() -> None:
    load = replace(SMALL, seconds=4_000.0, faults=Faultiness(slow=0.1, stuck=0.1))
    every, some = run(replace(load, idle_s=1.0)), run(load)
    assert every.decided == some.decided
    assert len(every.passes) > 2 * len(some.passes)
    assert any(isinstance(action, Kill) for _, action in some.decided), "a worker was stuck"


def test_a_pass_after_one_in_which_nothing_changed_asks_the_registry_nothing(plane: SimulatedPlane) -> None:
    idle = [
        now for before, now in zip(plane.passes, plane.passes[1:], strict=False) if not before.actions and not now.counts["changes told"]
    ]
    assert len(idle) > 10
    assert {(now.counts["records read"], now.counts["folders read"], now.counts["commits"]) for now in idle} == {(0, 0, 0)}


def kills_what_it_has_started() -> Deciding:
    started: list[Start] = []

    def deciding(world: World, only: Collection[str] | None) -> list[Action]:
        kills = [Kill(RunId(start.flow, start.tier, start.run.number), start.run.node, "by mistake") for start in started]
        actions = decide(world, only)
        started[:] = [action for action in actions if isinstance(action, Start) and action.run.number > 1][:1]
        return [*actions, *kills]

    return deciding


def never_replaces() -> Deciding:
    def deciding(world: World, only: Collection[str] | None) -> list[Action]:
        return [action for action in decide(world, only) if not isinstance(action, Start) or action.run.number == 1]

    return deciding


def replaces_late() -> Deciding:
    due: dict[tuple[str, str], float] = {}

    def deciding(world: World, only: Collection[str] | None) -> list[Action]:
        def may(action: Action) -> bool:
            if not isinstance(action, Start) or action.run.number == 1:
                return True
            return world.now >= due.setdefault((action.flow, f"{action.tier}-{action.run.number}"), world.now + 2.0)

        return [action for action in decide(world, only) if may(action)]

    return deciding


def sets_a_goal_and_sets_it_back() -> Deciding:
    def deciding(world: World, only: Collection[str] | None) -> list[Action]:
        first = world.flows["flow00000"].tiers["t0"].wish
        actions = decide(world, only)
        if first is None or world.now % 100:
            return actions
        return [*actions, SetWorkerGoal("flow00000", "t0", msgspec.structs.replace(first, goal="paused"))]

    return deciding


def tells_a_status_that_is_not_so() -> Deciding:
    def deciding(world: World, only: Collection[str] | None) -> list[Action]:
        status = world.flows["flow00000"].status
        actions = decide(world, only)
        if status is None or world.now % 100:
            return actions
        return [*actions, Tell("flow00000", msgspec.structs.replace(status, state="degraded"))]

    return deciding


def gives_up_what_it_has_started() -> Deciding:
    def deciding(world: World, only: Collection[str] | None) -> list[Action]:
        actions = decide(world, only)
        tier = world.flows["flow00000"].tiers["t0"]
        if tier.run is not None and tier.run.ended_at is None and world.now - tier.run.asked_at == 1.0:
            actions.append(Note("flow00000", "t0", msgspec.structs.replace(tier.run, ended_at=world.now)))
        return actions

    return deciding


@pytest.mark.parametrize(
    ("broken", "bar"),
    [
        (kills_what_it_has_started, UNDONE),
        (sets_a_goal_and_sets_it_back, UNDONE),
        (tells_a_status_that_is_not_so, UNDONE),
        (gives_up_what_it_has_started, UNDONE),
        (never_replaces, ELSEWHERE),
        (replaces_late, ELSEWHERE),
    ],
)
def test_a_broken_decide_misses_a_bar(broken: Callable[[], Deciding], bar: str) -> None:
    assert bar in {missed.bar for missed in run(SMALL, broken(), stops=True).missed}


def test_the_program_reports_what_it_has_simulated() -> None:
    arguments = "--flows 6 --hosts 3 --tiers 2 --days 0.1 --events 0.1 --seed 3"
    answer = CliRunner().invoke(main, arguments.split())
    assert answer.exit_code == 0, answer.output
    for words in ("6 flows of 2 tiers on 3 hosts, 12 workers", "a host is lost", "Start", "2 watches of the master", "no action is undone"):
        assert words in answer.output

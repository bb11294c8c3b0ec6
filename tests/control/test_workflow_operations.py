"""Operations over workflows: the master is killed after each thing that it does, and the end is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.control import flow_records, flow_requests
from scribengin.control.operation_requests import KEPT, begin_workflow_operation, cancel_workflow_operation, read_operations, rows_of
from scribengin.control.workflows import Workflows
from scribengin.core.errors import Refused
from scribengin.registry.contract import Create
from tests.control.obedient import Plane, met

if TYPE_CHECKING:
    from scribengin.registry.records import Goal

FLOWS = ("orders", "bills", "mail")
"""each feeds the next one"""


def made() -> Plane:
    plane = Plane()
    met(plane, "orders", "/in", "/orders", edge=(), core=("edge",))
    met(plane, "bills", "/orders", "/bills", main=())
    met(plane, "mail", "/bills", "/mail", main=())
    for flow in FLOWS:
        plane.comes_to(flow, "running")
    return plane


def asked(plane: Plane, goal: Goal) -> str:
    return begin_workflow_operation(plane.person, Workflows(plane.person).of("bills"), goal, by="ann")


def states(plane: Plane) -> dict[str, str]:
    return {row.flow: "created" if row.status is None else row.status.state for row in flow_records.read_flows(plane.person)}


def over(plane: Plane) -> list[dict[str, str]]:
    """What the states were, each time they were others, until the operation was over."""
    seen = [states(plane)]
    for _ in range(400):
        plane.turn()
        if states(plane) != seen[-1]:
            seen.append(states(plane))
        if read_operations(plane.person)[0].step != "ask":
            return seen
    raise AssertionError(f"it never ends: {read_operations(plane.person)[0]}")


def rests_before(seen: list[dict[str, str]], first: str, then: str, state: str) -> bool:
    """Whether `then` was left alone until `first` had come to the state."""
    begun = seen[0][then]
    return all(now[first] == state for now in seen if now[then] != begun)


@pytest.mark.parametrize(("goal", "state"), [("drained", "stopped"), ("stopped", "stopped"), ("paused", "paused")])
def test_from_the_sources_down_and_from_the_sinks_up(goal: Goal, state: str) -> None:
    plane = made()
    asked(plane, goal)
    down = over(plane)
    assert down[-1] == dict.fromkeys(FLOWS, state)
    assert rests_before(down, "orders", "bills", state)
    assert rests_before(down, "bills", "mail", state)
    asked(plane, "running")
    up = over(plane)
    assert up[-1] == dict.fromkeys(FLOWS, "running")
    assert rests_before(up, "mail", "bills", "running")
    assert rests_before(up, "bills", "orders", "running")
    assert [each.step for each in read_operations(plane.person)] == ["done", "done"]


def played(goal: Goal, lives: list[int]) -> Plane:
    plane = made()
    if goal == "running":
        asked(plane, "stopped")
        over(plane)
    plane.lives = lives
    plane.life.left = lives.pop(0) if lives else None
    plane.life.done = 0
    asked(plane, goal)
    over(plane)
    return plane


def end_of(plane: Plane) -> Any:
    newest = read_operations(plane.person)[0]
    tiers = {
        flow: [(tier["tier"], tier["state"], tier["failures"]) for tier in flow_records.describe(plane.person, flow)["tiers"]]
        for flow in FLOWS
    }
    return newest.step, newest.error, states(plane), tiers


@pytest.mark.parametrize("goal", ["drained", "running"])
def test_the_end_is_the_same_wherever_a_master_is_killed(goal: Goal) -> None:
    quiet = played(goal, [])
    expected, points = end_of(quiet), quiet.life.done
    assert expected[0] == "done"
    assert (quiet.masters, points > 10) == (1, True)
    for point in range(1, points + 1):
        plane = played(goal, [point])
        assert plane.masters == 2 or point == points, f"point {point} of {points}"
        assert end_of(plane) == expected, f"killed after thing {point} of {points}"
        assert plane.most_at_work == 1
    assert end_of(played(goal, [2] * 300)) == expected


def test_the_last_word_of_a_person_stands() -> None:
    plane = made()
    id_ = asked(plane, "drained")
    plane.turn()
    flow_requests.want(plane.person, "orders", "running", by="bob")
    over(plane)
    (operation,) = read_operations(plane.person, "mail")
    assert (operation.id, operation.step) == (id_, "failed")
    assert operation.error.startswith("another command set flow orders to running")
    for flow in FLOWS:
        plane.comes_to(flow, "running")
    first, second = asked(plane, "drained"), asked(plane, "paused")
    assert {each.id: each.step for each in read_operations(plane.person)[:2]} == {first: "cancelled", second: "ask"}
    over(plane)
    assert set(states(plane).values()) == {"paused"}


def test_it_says_what_it_waits_for_and_asks_nobody_else_once_it_is_cancelled() -> None:
    plane = made()
    plane._obey = lambda _id: None  # type: ignore[method-assign]
    id_ = asked(plane, "drained")
    for _ in range(5):
        plane.turn()
    (row,) = rows_of(plane.person, "bills")
    assert (row.id, row.kind, row.under_way) == (id_, "workflow drained", True)
    assert row.arguments["waits_for"][0].startswith("flow orders is draining: waits for")
    cancel_workflow_operation(plane.person, id_)
    for _ in range(5):
        plane.turn()
    assert {flow: flow_records.read_flow(plane.person, flow).desired.state for flow in FLOWS} == {
        "orders": "drained",
        "bills": "running",
        "mail": "running",
    }
    for wrong, code in ((id_, "operation-over"), ("w7", "operation-unknown"), ("7", "operation-unknown"), ("w", "operation-unknown")):
        with pytest.raises(Refused) as refused:
            cancel_workflow_operation(plane.person, wrong)
        assert refused.value.code == code


def test_a_flow_that_is_deleted_meanwhile_holds_nobody_up_and_old_operations_are_forgotten() -> None:
    plane = made()
    flow_requests.want(plane.person, "orders", "stopped", by="ann")
    plane.comes_to("orders", "stopped")
    workflow = Workflows(plane.person).of("bills")
    flow_requests.delete(plane.person, "orders")
    with pytest.raises(Refused) as gone:
        begin_workflow_operation(plane.person, workflow, "drained", by="ann")
    assert gone.value.code == "flow-unknown"
    met(plane, "orders", "/in", "/orders", main=())
    flow_requests.want(plane.person, "orders", "stopped", by="ann")
    plane.comes_to("orders", "stopped")
    asked(plane, "drained")
    flow_requests.delete(plane.person, "orders")
    over(plane)
    assert states(plane) == {"bills": "stopped", "mail": "stopped"}
    for _ in range(KEPT + 5):
        asked(plane, "drained")
    assert len(read_operations(plane.person)) <= KEPT + 2


def test_an_agreement_to_other_columns_outlives_it() -> None:
    plane = made()
    again = met(plane, "orders", "/in", "/orders", edge=(), core=("edge",))
    flow_requests.apply_all(plane.person, [again], {"orders": 1}, state=lambda _: "/state", by="bob", columns=True)
    agreed = flow_records.read_flow(plane.person, "orders").desired.accepts
    assert agreed["by"] == "bob"
    goals: tuple[Goal, ...] = ("stopped", "running")
    for goal in goals:
        asked(plane, goal)
        over(plane)
        wanted = flow_records.read_flow(plane.person, "orders").desired
        assert (wanted.state, wanted.by, wanted.accepts) == (goal, "ann", agreed)


def test_one_that_says_nothing_is_in_the_way_of_no_other() -> None:
    plane = made()
    assert asked(plane, "paused") == "w1"
    plane.person.commit(Create("workflows/7", {"goal": 5, "format": 1}))
    assert asked(plane, "stopped") == "w8"
    assert over(plane)[-1] == dict.fromkeys(FLOWS, "stopped")

"""A tier has as many workers as its version says, or a person: they come and leave beside the one that holds its lease."""

from __future__ import annotations

import pytest

from scribengin.control import flow_records, flow_requests
from scribengin.control.placement import apart, choose_node, on_each_host
from scribengin.control.registry_cache import Mirror
from scribengin.control.resources import set_workers
from scribengin.control.snapshot import Observer
from scribengin.control.world import FlowSeen, ObservedTier, Wish, WorkerNode
from scribengin.core.errors import Refused
from scribengin.registry.contract import Create, Delete
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import Decommissioned, Run, TierSpec, WorkerCount, Workers
from scribengin.registry.tree import DECOMMISSIONED, STATUS, WORKERS
from tests.control.hands import Plane as TwoHosts
from tests.control.hands import until
from tests.control.obedient import Plane

TIERS = {
    "edge": TierSpec(),
    "core": TierSpec(feeders=("edge",), workers=2),
    "last": TierSpec(feeders=("core",), alone="step by_hour keeps state"),
}


@pytest.fixture
def plane() -> Plane:
    plane = Plane()
    flow_requests.apply(plane.person, flow_requests.Submission("f", "0", "flow.yaml", "/base", TIERS), state=lambda _: "/state", by="me")
    plane.comes_to("f", "running")
    plane.turn()
    plane.turn()
    return plane


def workers(plane: Plane) -> dict[str, str]:
    for _ in range(6):
        plane.turn()
    return {tier["tier"]: tier["worker"] for tier in flow_records.describe(plane.person, "f")["tiers"] if tier["state"] == "running"}


ALL = {"edge": "f.edge-1", "core": "f.core-1", "core~2": "f.core~2-1", "last": "f.last-1"}


def test_a_version_says_how_many_workers_a_tier_has(plane: Plane) -> None:
    assert workers(plane) == ALL


def test_workers_come_and_leave_and_those_that_are_there_go_on(plane: Plane) -> None:
    assert set_workers(plane.person, "f", ["core"], 3)
    assert workers(plane) == ALL | {"core~3": "f.core~3-1"}
    assert not set_workers(plane.person, "f", ["core"], 3)
    assert set_workers(plane.person, "f", ["core"], 1)
    assert workers(plane) == {name: worker for name, worker in ALL.items() if name != "core~2"}
    assert set_workers(plane.person, "f", ["core"], 2)
    assert workers(plane) == ALL | {"core~2": "f.core~2-2"}
    said = read_record(plane.person, WORKERS("f"))
    assert isinstance(said, Stored)
    assert said.record == Workers()  # as the version says, which needs no word


@pytest.mark.parametrize(
    ("tiers", "count", "why"),
    [
        (["core"], 0, "cannot have 0 workers: expected 1 to 16"),
        (["core"], 17, "expected 1 to 16, or each"),
        (["last"], "each", "tier last cannot have a worker on each host: step by_hour keeps state"),
        (["last"], 2, "tier last cannot have 2 workers: step by_hour keeps state"),
        ([], 2, "tier last cannot have 2 workers"),
        (["cor"], 2, 'flow f has no tier "cor"'),
    ],
    ids=["none", "many", "each", "state", "all", "unknown"],
)
def test_a_number_that_cannot_be_is_refused_and_changes_nothing(plane: Plane, tiers: list[str], count: WorkerCount, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        set_workers(plane.person, "f", tiers, count)
    assert refused.value.code == ("scale-workers" if tiers != ["cor"] else "tier-unknown")
    assert workers(plane) == ALL


def test_a_number_that_a_person_writes_by_hand_is_taken_up_or_told_beside_it(plane: Plane) -> None:
    plane.person.commit(WORKERS("f").create(Workers(tiers={"core": 3, "last": 4})))
    assert workers(plane) == ALL | {"core~3": "f.core~3-1"}
    status = read_record(plane.person, STATUS("f"))
    assert isinstance(status, Stored)
    assert status.record.refused[WORKERS("f").path]["why"] == "tier last cannot have 4 workers: step by_hour keeps state"


def test_workers_follow_the_hosts_once_a_person_says_each() -> None:
    store = MemoryStore()
    plane = TwoHosts(store.client)
    flow_requests.apply(
        plane.person, flow_requests.Submission("f", "0", "flow.yaml", "/base", {"core": TierSpec()}), state=lambda _: "/state", by="me"
    )
    plane.comes_to("f", "running")

    def comes_to(*, helper: str, workers: WorkerCount, wanted: int) -> None:
        until(lambda: plane.look() or plane.node("f", "core~2") == helper, f"the helper on {helper or 'no host'}")  # type: ignore[func-returns-value]
        plane.rests()
        rows = {tier["tier"]: tier for tier in flow_records.describe(plane.person, "f")["tiers"]}
        assert (rows["core"]["workers"], rows["core"]["wanted_workers"]) == (workers, wanted)
        assert (rows["core~2"]["workers"], rows["core~2"]["wanted_workers"]) == (None, 0)
        assert plane.status("f").state == "running"
        observer = Observer(Mirror(store.client()), plane.launchers)
        assert observer.observe(1.0).flows["f"] is observer.observe(2.0).flows["f"], "nothing has changed"

    other = "there" if plane.node("f", "core") == "here" else "here"
    assert set_workers(plane.person, "f", [], "each")
    comes_to(helper=other, workers="each", wanted=2)
    assert not set_workers(plane.person, "f", [], "each")
    plane.person.commit(DECOMMISSIONED(other).create(Decommissioned()))
    comes_to(helper="", workers="each", wanted=1)
    plane.person.commit(Delete(DECOMMISSIONED(other).path))
    comes_to(helper=other, workers="each", wanted=2)
    assert set_workers(plane.person, "f", ["core"], 1)
    comes_to(helper="", workers=1, wanted=1)


def test_a_word_that_a_person_writes_by_hand_is_each_or_told_beside_it(plane: Plane) -> None:
    plane.person.commit(Create(WORKERS("f").path, {"format": 1, "tiers": {"core": "every"}}))
    assert workers(plane) == ALL
    status = read_record(plane.person, STATUS("f"))
    assert isinstance(status, Stored)
    refused = status.record.refused[WORKERS("f").path]
    assert "'every'" in refused["why"]
    assert refused["remedy"].endswith("scribengin scale f.TIER --workers N (or each)")


def test_who_stops_or_drains_the_flow_need_not_think_of_helpers(plane: Plane) -> None:
    for goal in ("drained", "running", "paused", "running", "stopped"):
        flow_requests.want(plane.person, "f", goal, by="me")
        plane.comes_to("f", {"drained": "stopped"}.get(goal, goal))
    assert workers(plane) == {}


def test_of_many_hosts_those_with_the_lowest_cost_get_a_helper() -> None:
    nodes = {f"h{number:02}": WorkerNode() for number in range(20)}
    costs = {name: float(20 - number) for number, name in enumerate(nodes)}
    flow = FlowSeen("f", Wish(1, "running", 1), {"core": ObservedTier("core", group="g", hosts=costs)}, each=frozenset({"core"}))
    found = on_each_host(flow, nodes, {})
    helped = {tier.node for name, tier in found.tiers.items() if name != "core"}
    assert helped == {f"h{number:02}" for number in range(4, 19)}, "h19 is for the worker of the tier"


def test_of_nodes_that_cost_the_same_each_worker_of_a_tier_has_its_own() -> None:
    nodes = {"a": WorkerNode(False), "b": WorkerNode(False)}
    tiers = {"core": ObservedTier("core", run=Run(number=1, node="a", asked_at=0.0, generation=1)), "core~2": ObservedTier("core~2")}
    load = {"a": 1, "b": 5}
    assert choose_node(nodes, tiers["core~2"], apart(load, tiers, "core~2")) == "b"
    assert choose_node(nodes, ObservedTier("other"), apart(load, tiers, "other")) == "a"

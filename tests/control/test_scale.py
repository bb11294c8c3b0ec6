"""Which workers stay when a version comes: of a scaled tier alone new ones, of a comment none."""

from __future__ import annotations

import pytest

from scribengin.control import flow_records, flow_requests
from scribengin.control.executor import ordering
from scribengin.control.resources import scale
from scribengin.control.world import RunId
from scribengin.core.errors import Refused
from scribengin.registry.records import Host, Mapped, TierSpec
from scribengin.registry.tree import HOST, MAPPED
from tests.control.obedient import Plane, applied

TIERS = {"edge": (), "core": ("edge",), "store": ("core",)}


def running(package: str = "0") -> Plane:
    plane = Plane()
    applied(plane, "f", package, **TIERS)
    plane.comes_to("f", "running")
    return plane


def workers(plane: Plane) -> list[str]:
    return [str(tier["worker"]) for tier in flow_records.describe(plane.person, "f")["tiers"]]


def test_only_the_tier_that_is_scaled_gets_another_worker_and_it_stays_so_when_the_flow_comes_again() -> None:
    plane = running()
    assert scale(plane.person, "f", ["core"], cores=4, by="me") == flow_requests.Applied("f", 2, changed=True)
    plane.comes_to("f", "running")
    assert workers(plane) == ["f.core-2", "f.edge-1", "f.store-1"]
    assert scale(plane.person, "f", ["core"], cores=4, by="me").changed is False
    specs = {tier: TierSpec(feeders=feeders) for tier, feeders in TIERS.items()}
    same = flow_requests.Submission("f", "0", "flow.yaml", "/base", specs)
    assert flow_requests.apply(plane.person, same, state=lambda _: "/state", by="me").changed is False
    other = flow_requests.Submission("f", "1", "flow.yaml", "/base", specs)
    assert flow_requests.apply(plane.person, other, state=lambda _: "/state", by="me").version == 3
    plane.comes_to("f", "running")
    assert workers(plane) == ["f.core-3", "f.edge-2", "f.store-2"]
    assert flow_records.wanted(plane.person, "f")[1].tiers["core"].cores == 4  # type: ignore[union-attr]
    flow_requests.rollback(plane.person, "f", 1, by="me")
    plane.comes_to("f", "running")
    assert flow_records.wanted(plane.person, "f")[1].tiers["core"].cores == 1  # type: ignore[union-attr]


def test_all_tiers_are_scaled_from_the_sources_down() -> None:
    plane = running()
    scale(plane.person, "f", executors=2, memory_bytes=2**30, by="me")
    ended = []
    for _ in range(40):
        plane.turn()
        now = {tier for tier in TIERS if not any(lease.held() for id_, (_, lease, _) in plane.workers.items() if id_.tier == tier)}
        ended += [tier for tier in now if tier not in ended]
    assert ended == ["edge", "core", "store"]
    plane.comes_to("f", "running")
    assert plane.most_at_work == 1


def test_a_version_that_changes_nothing_that_runs_leaves_all_workers() -> None:
    plane = running()
    specs = {tier: TierSpec(feeders=feeders) for tier, feeders in TIERS.items()}
    for package in ("1", "2"):
        comment = flow_requests.Submission("f", package, "flow.yaml", "/base", specs)
        flow_requests.apply_all(plane.person, [comment], None, state=lambda _: "/state", by="me", effects={"f": "in place"})
        plane.comes_to("f", "running")
    assert workers(plane) == ["f.core-1", "f.edge-1", "f.store-1"]
    assert flow_records.read_flow(plane.person, "f").status.version == 3  # type: ignore[union-attr]
    scale(plane.person, "f", ["edge"], cores=2, by="me")
    plane.comes_to("f", "running")
    assert workers(plane) == ["f.core-1", "f.edge-2", "f.store-1"]
    code = flow_requests.Submission("f", "3", "flow.yaml", "/base", specs)
    flow_requests.apply_all(plane.person, [code], None, state=lambda _: "/state", by="me", effects={"f": "restart"})
    plane.comes_to("f", "running")
    assert workers(plane) == ["f.core-2", "f.edge-3", "f.store-2"]


def test_a_worker_that_cannot_go_on_between_two_batches_is_replaced_as_for_any_version() -> None:
    plane = running()
    specs = {tier: TierSpec(feeders=feeders) for tier, feeders in TIERS.items()}
    pace = flow_requests.Submission("f", "1", "flow.yaml", "/base", specs)
    flow_requests.apply_all(plane.person, [pace], None, state=lambda _: "/state", by="me", effects={"f": "next Batch"})
    plane.comes_to("f", "running")
    assert workers(plane) == ["f.core-2", "f.edge-2", "f.store-2"]


def test_executors_where_no_node_has_some_are_refused() -> None:
    plane = running()
    plane.person.commit(HOST("h1").create(Host(host="pc7")))
    with pytest.raises(Refused) as refused:
        scale(plane.person, "f", ["core"], executors=3, by="me")
    assert refused.value.code == "scale-executors"
    assert "on h1 Spark runs inside the worker" in refused.value.message
    assert "scribengin scale f.core --cores 3" in refused.value.remedy
    assert scale(plane.person, "f", ["core"], executors=1, by="me").changed is False
    plane.person.commit(HOST("h2").create(Host(host="pc8", spark="spark://pc8:7077")))
    assert scale(plane.person, "f", ["core"], executors=3, by="me").changed is True
    assert scale(plane.person, "f", ["core"], executors=1, by="me").changed is True
    plane.person.commit(MAPPED("h1", "f.core").create(Mapped()))
    with pytest.raises(Refused, match="tier core cannot have executors"):
        scale(plane.person, "f", executors=3, by="me")


def test_executors_are_looked_for_on_the_hosts_of_a_tier_s_group() -> None:
    plane = Plane()
    plane.person.commit(HOST("h1").create(Host(host="pc7")), HOST("h2").create(Host(host="pc8", spark="spark://pc8:7077")))
    tiers = {"core": TierSpec(group="pcs", hosts={"pc7": 1.0}), "edge": TierSpec(group="sparks", hosts={"h2": 1.0})}
    flow_requests.apply(
        plane.person, flow_requests.Submission("f", "0" * 64, "flow.yaml", "/base", tiers), state=lambda _: "/state", by="me"
    )
    assert scale(plane.person, "f", ["edge"], executors=3, by="me").changed is True
    with pytest.raises(Refused, match="tier core cannot have executors"):
        scale(plane.person, "f", executors=3, by="me")


def test_what_cannot_be_is_refused() -> None:
    plane = running()
    before = plane.store.revision
    for tiers, asked, code in (
        ([], {}, "scale-nothing"),
        ([], {"cores": 0}, "scale-least"),
        ([], {"memory_bytes": 5}, "scale-least"),
        (["cor"], {"cores": 2}, "tier-unknown"),
    ):
        with pytest.raises(Refused) as refused:
            scale(plane.person, "f", tiers, **asked, by="me")  # type: ignore[arg-type]
        assert refused.value.code == code
    with pytest.raises(Refused, match="no flow"):
        scale(plane.person, "g", cores=2, by="me")
    assert plane.store.revision == before


def test_the_order_for_a_worker_has_all_resources_of_its_tier() -> None:
    plane = Plane()
    applied(plane, "f", "0", all=())
    spec = TierSpec(cores=2, memory_bytes=2**30, executors=3, spark={"spark.yarn.queue": "etl"})
    flow_requests.apply(
        plane.person, flow_requests.Submission("f", "1", "flow.yaml", "/base", {"all": spec}), state=lambda _: "/state", by="me"
    )
    plane.comes_to("f", "running")
    order = ordering(plane.person)(RunId("f", "all", 2))
    assert (order.cores, order.memory_bytes, order.executors, order.spark) == (2, 2**30, 3, {"spark.yarn.queue": "etl"})

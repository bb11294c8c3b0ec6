"""Verbs that look before they act, by REST: real HTTP, a registry in memory, looking in real processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.client.change_models import Rewind, Scale, SetLimit, SetOffset, SetQuota, Topology
from scribengin.client.models import Submit
from scribengin.control import operation_requests
from scribengin.core.errors import InputError, Refused
from scribengin.registry.record_io import put
from scribengin.registry.records import Operation, StatusRecord
from scribengin.registry.tree import STATUS

if TYPE_CHECKING:
    from conftest import Bench

FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {odd: {from: numbers, filter: id % 2 = 1}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""
OTHER = FLOW.replace("name: numbers", "name: letters")


def test_two_flows_are_planned_agreed_to_by_a_hash_and_come_as_one(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    package = bench.package(FLOW, **{"other.yaml": OTHER})
    flows = tuple(Submit(package.id, path, str(bench.folder)) for path in ("flow.yaml", "other.yaml"))
    packages = {package.id: package.data}
    plan = client.plan_topology(Topology(flows), packages).plan
    assert client.flows() == [], "a plan changes nothing"
    assert [(each.flow, each.version, each.changes[0].what) for each in plan.flows] == [("numbers", 0, "flow"), ("letters", 0, "flow")]
    done = client.apply_topology(Topology(flows, plan=plan.hash), packages)
    assert [(each.flow, each.version, each.changed) for each in done.applied] == [("numbers", 1, True), ("letters", 1, True)]
    again = client.apply_topology(Topology(flows), packages)
    assert [each.changed for each in again.applied] == [False, False]
    with pytest.raises(Refused) as stale:
        client.apply_topology(Topology(flows, plan=plan.hash), packages)
    assert stale.value.code == "plan-stale"

    paced = bench.package(FLOW.replace("path: data", "path: data, max_files: 2"), **{"other.yaml": OTHER})
    flows = tuple(Submit(paced.id, path, str(bench.folder)) for path in ("flow.yaml", "other.yaml"))
    plan = client.apply_topology(Topology(flows), {paced.id: paced.data}).plan
    assert [change.effect for each in plan.flows for change in each.changes] == ["next Batch", "in place"]
    assert client.rollback("letters", 1).versions == {"letters": 1, "numbers": 1}


def test_one_flow_with_a_mistake_is_none_of_them(bench: Bench) -> None:
    master = bench.master()
    client = bench.client()
    swapped = OTHER.replace("path: data", "path: there").replace("path: out", "path: data").replace("path: there", "path: out")
    package = bench.package(FLOW, **{"other.yaml": swapped})
    flows = tuple(Submit(package.id, path, str(bench.folder)) for path in ("flow.yaml", "other.yaml"))
    with pytest.raises(InputError) as circle:
        client.apply_topology(Topology(flows), {package.id: package.data})
    assert [problem.code for problem in circle.value.problems] == ["flows-circle"]
    twice = Topology((flows[0], flows[0]))
    with pytest.raises(Refused) as claimed:
        client.apply_topology(twice, {package.id: package.data})
    assert claimed.value.code == "tier-two-flows"
    assert client.flows() == []
    for body, code in (
        ({"flows": []}, "body"),
        ({"flows": [{"package": "x", "path": "flow.yaml", "base": "/"}]}, "body"),
        ({"flows": [{"package": package.id, "path": "none.yaml", "base": "/"}]}, "flow-path"),
        ({"flows": [{"package": package.id, "path": "flow.yaml", "base": "rel"}]}, "body"),
        ({"flows": [{"package": "0" * 64, "path": "flow.yaml", "base": "/"}]}, "package-missing"),
    ):
        for path in ("/v1/topology", "/v1/topology/plan"):
            answer = master.ask("POST", path, json=body)
            said = answer.json()
            found = said["problems"][0]["code"] if said.get("problems") else said["code"]
            assert (answer.status_code < 500, found) == (True, code), body


def test_operations_positions_scale_and_limits(bench: Bench) -> None:
    master = bench.master()
    client = bench.client()
    package = bench.package()
    client.apply_topology(Topology((Submit(package.id, "flow.yaml", str(bench.folder)),)), {package.id: package.data})

    assert client.offsets("numbers") == []
    for ask, code in (
        (lambda: client.rewind("numbers", Rewind(to_batch=3)), "rewind-nothing"),
        (lambda: client.set_offset("numbers", SetOffset("numbers", "end")), "flow-not-stopped"),
        (lambda: client.scale("numbers", Scale(partitions=3)), "scale-stateless"),
        (lambda: client.scale("numbers", Scale()), "scale-nothing"),
        (lambda: client.limit("numbers", SetLimit("number", 5)), "limit-unknown"),
        (lambda: client.limit("nobody", SetLimit("", 5)), "flow-unknown"),
        (lambda: client.cancel("numbers", "1"), "operation-unknown"),
    ):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.code == code
    status = StatusRecord(state="stopped", generation=1)
    bench.person.commit(put(bench.person, STATUS("numbers"), status))
    client.want("numbers", "stopped")
    with pytest.raises(Refused) as never_run:
        client.set_offset("numbers", SetOffset("numbers", "end", yes=True))
    assert never_run.value.code == "query-unknown"

    assert client.limit("numbers", SetLimit("numbers", 5.0)).limits == {"numbers": {"rows_per_s": 5.0}}
    assert client.limit("numbers", SetLimit("numbers")).limits == {}
    assert client.limits("numbers").limits == {}
    scaled = client.scale("numbers", Scale(cores=3))
    assert (scaled.version, scaled.changed, scaled.operation) == (2, True, None)
    assert client.scale("numbers", Scale(workers="each")).changed
    assert [tier.workers for tier in client.flow("numbers").tiers] == ["each"]
    assert client.scale("numbers", Scale(workers=1)).changed
    assert [tier.workers for tier in client.flow("numbers").tiers] == [1]
    assert master.ask("POST", "/v1/flows/numbers/scale", json={"workers": "all"}).status_code == 422

    operation_requests.begin(bench.person, "numbers", Operation(kind="rewind", step="stop", version=2, tiers=("main",)), by="bob")
    (row,) = client.operations("numbers")
    assert (row.id, row.kind, row.under_way, row.by) == ("1", "rewind", True, "bob")
    assert client.operations() == [row]
    with pytest.raises(Refused) as busy:
        client.scale("numbers", Scale(cores=4))
    assert busy.value.code == "operation-under-way"
    client.cancel("numbers", "1")
    assert client.operations("numbers")[0].step == "cancelled"
    for body in ({}, {"to_time": "yesterday"}, {"to_time": "2026-01-01", "to_batch": 1}, {"to_batch": "x"}):
        assert master.ask("POST", "/v1/flows/numbers/rewind", json=body).status_code in (400, 422), body


def test_flows_are_chosen_by_labels(bench: Bench) -> None:
    master = bench.master()
    client = bench.client()
    labelled = "labels: {team: shop, stage: test}\n"
    package = bench.package(FLOW + labelled, **{"other.yaml": OTHER + "labels: {team: shop}\n"})
    flows = tuple(Submit(package.id, path, str(bench.folder)) for path in ("flow.yaml", "other.yaml"))
    client.apply_topology(Topology(flows), {package.id: package.data})
    assert [row.flow for row in client.flows({"team": "shop"})] == ["letters", "numbers"]
    assert [row.flow for row in client.flows({"team": "shop", "stage": "test"})] == ["numbers"]
    assert client.flows({"team": "other"}) == []
    assert master.ask("GET", "/v1/flows?label=team").status_code in (400, 422)
    moved = bench.package(FLOW + labelled.replace("test", "live"), **{"other.yaml": OTHER + "labels: {team: shop}\n"})
    plan = client.apply_topology(Topology((Submit(moved.id, "flow.yaml", str(bench.folder)),)), {moved.id: moved.data}).plan
    assert [(change.what, change.effect) for change in plan.flows[0].changes] == [("labels", "in place")]
    assert [row.flow for row in client.flows({"stage": "live"})] == ["numbers"]


def test_quotas_are_said_shown_to_whom_they_concern_and_removed_by_an_admin(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    package = bench.package(FLOW + "labels: {team: search}\n")
    client.apply_topology(Topology((Submit(package.id, "flow.yaml", str(bench.folder)),)), {package.id: package.data})
    row = client.set_quota("team=search", SetQuota(cores=4, rows_per_s=900))
    assert (row.cores, row.memory_bytes, row.rows_per_s, row.over, row.taken.cores) == (4, None, 900.0, False, 0)
    assert [(flow.flow, flow.waits) for flow in row.flows] == [("numbers", True)]
    assert client.set_quota("team=search", SetQuota(memory_bytes=2**30, off=("cores",))).cores is None
    assert [(each.quota, each.memory_bytes, each.rows_per_s) for each in client.quotas()] == [("team=search", 2**30, 900.0)]
    for ask, code in (
        (lambda: client.set_quota("team", SetQuota(cores=1)), "quota-name"),
        (lambda: client.set_quota("team=search", SetQuota(cores=0)), "quota-value"),
        (lambda: client.remove_quota("team=web"), "quota-unknown"),
    ):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.code == code
    client.remove_quota("team=search")
    assert client.quotas() == []

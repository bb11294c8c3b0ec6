"""Flows by REST, over the registry's twin in memory: real HTTP, real planning processes. By one master, and by three of which each request
comes to any, while sessions end and the lead goes from one to another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scribengin.client.change_models import Topology
from scribengin.client.models import Submit
from scribengin.control import flow_requests
from scribengin.core.errors import Refused, ScribenginError
from scribengin.registry.record_io import put
from scribengin.registry.records import StatusRecord, TierSpec
from scribengin.registry.tree import STATUS

if TYPE_CHECKING:
    from conftest import Bench


@pytest.fixture(params=[pytest.param(1, id="one master", marks=pytest.mark.long), pytest.param(3, id="three masters")])
def bench(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    bench.each = request.param
    return bench


def submitted(bench: Bench, flow: str = "numbers", package: str = "0" * 64) -> None:
    """A flow that somebody has submitted before."""
    submission = flow_requests.Submission(flow, package, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(bench.person, submission, state=lambda _: "/state", by="bob")


def test_a_flow_is_brought_planned_and_wanted_to_run(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    package = bench.package()
    flow = Submit(package.id, "flow.yaml", str(bench.folder))

    applied = client.apply("numbers", flow, package.data)

    assert (applied.flow, applied.version, applied.changed) == ("numbers", 1, True)
    assert client.apply("numbers", flow, package.data).changed is False
    (row,) = client.flows()
    assert (row.flow, row.wanted, row.state, row.version) == ("numbers", "running", "created", 1)
    view = client.flow("numbers")
    assert (view.wanted.by, view.status, [tier.tier for tier in view.tiers]) == ("ann", None, ["main"])
    (version,) = client.versions("numbers")
    assert (version.package, version.wanted, version.tiers) == (package.id, True, ("main",))


def test_a_flow_that_is_there_is_replaced_only_by_who_knows_what_he_replaces(bench: Bench) -> None:
    bench.master()
    client = bench.client()

    def submit(filter_: str) -> tuple[Submit, bytes]:
        package = bench.package(bench.flow.replace("id % 2 = 1", filter_))
        return Submit(package.id, "flow.yaml", str(bench.folder)), package.data

    client.apply("numbers", *submit("id % 2 = 1"))
    before = client.flow("numbers").wanted
    for blind in (submit("id % 2 = 0"), submit("id % 3 = 1")):
        with pytest.raises(Refused) as told:
            client.apply("numbers", *blind)
        assert told.value.code == "plan-needed"
    assert client.flow("numbers").wanted == before, "nothing was done"
    assert client.apply("numbers", *submit("id % 2 = 1")).changed is False, "the same again replaces nothing"

    # by what was looked at; by a plan that is stale; by the ETag
    flow, data = submit("id % 3 = 1")
    plan = client.plan_topology(Topology((flow,)), {flow.package: data}).plan
    assert client.submit("numbers", flow, plan=plan.hash).version == 2
    with pytest.raises(Refused) as told:
        client.submit("numbers", submit("id % 2 = 1")[0], plan=plan.hash)
    assert told.value.code == "plan-stale"
    assert client.apply("numbers", *submit("id % 5 = 1"), expected=client.flow("numbers").wanted.revision).version == 3
    assert client.submit("numbers", flow, accept="again").version == 4
    flow, data = submit("id % 7 = 1")
    with pytest.raises(Refused) as told:
        client.apply("numbers", flow, data, plan=plan.hash)
    assert told.value.code == "plan-stale"
    assert client.apply("numbers", flow, data, accept="again").version == 5


def test_what_is_wanted_of_a_flow_is_said_and_taken_back(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    submitted(bench)
    for goal in ("paused", "drained", "stopped", "running"):
        written = client.want("numbers", goal)
        view = client.flow("numbers")
        assert (view.wanted.state, view.wanted.revision, view.wanted.by) == (goal, written.revision, "ann")


def test_every_answer_says_the_revision(bench: Bench) -> None:
    master = bench.master()
    submitted(bench)
    for path in ("/v1/flows", "/v1/flows/numbers", "/v1/flows/nope", "/nowhere", "/v1/registry/flows"):
        assert int(master.ask("GET", path).headers["Scribengin-Revision"]) == bench.store.revision, path


def test_versions_go_back_and_a_stopped_flow_is_forgotten(bench: Bench) -> None:
    bench.master()
    client = bench.client()
    submitted(bench)
    submitted(bench, package="1" * 64)
    assert client.flow("numbers").wanted.version == 2
    client.rollback("numbers", 1)
    assert [(row.version, row.wanted) for row in client.versions("numbers")] == [(2, False), (1, True)]
    written = client.want("numbers", "stopped")
    with pytest.raises(Refused) as told:
        client.delete("numbers")
    assert (told.value.code, told.value.message) == ("flow-not-stopped", "flow numbers is not reconciled yet, not stopped")
    bench.person.commit(STATUS("numbers").create(StatusRecord(state="stopped", version=1, generation=written.revision - 1)))
    with pytest.raises(Refused) as earlier:
        client.delete("numbers")
    assert (earlier.value.code, earlier.value.message) == ("flow-not-stopped", "the stop of flow numbers is not carried out yet")
    status = StatusRecord(state="stopped", version=1, generation=written.revision)
    bench.person.commit(put(bench.person, STATUS("numbers"), status))
    client.delete("numbers")
    assert client.flows() == []


def test_the_last_lines_of_a_run_log_are_shown(bench: Bench) -> None:
    master = bench.master()
    log = bench.folder / "state" / "numbers" / "main" / "tmp" / "run.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    flow_requests.apply(
        bench.person,
        flow_requests.Submission("numbers", "0" * 64, "flow.yaml", "/base", {"main": TierSpec()}),
        state=lambda _: str(bench.folder / "state"),
        by="bob",
    )
    (shown,) = bench.client().logs("numbers", lines=3)
    assert shown.lines == ("line 99997", "line 99998", "line 99999")
    assert master.ask("GET", "/v1/flows/numbers/logs?lines=0").json()["code"] == "parameter"


class TestIfMatch:
    def test_a_write_that_was_decided_from_something_else_is_refused(self, bench: Bench) -> None:
        master = bench.master()
        client = bench.client()
        submitted(bench)
        seen = client.flow("numbers").wanted.revision
        assert master.ask("GET", "/v1/flows/numbers").headers["ETag"] == f'"{seen}"'
        client.want("numbers", "paused")
        for write in (
            lambda: client.want("numbers", "running", expected=seen),
            lambda: client.rollback("numbers", 1, expected=seen),
            lambda: client.delete("numbers", expected=seen),
        ):
            with pytest.raises(Refused) as told:
                write()
            assert told.value.code == "revision-stale"
        assert client.flow("numbers").wanted.state == "paused", "nothing was done"
        client.want("numbers", "running", expected=client.flow("numbers").wanted.revision)

    def test_a_stale_one_is_answered_with_412(self, bench: Bench) -> None:
        master = bench.master()
        submitted(bench)
        told = master.ask("PUT", "/v1/flows/numbers/wanted", json={"state": "paused"}, headers={"If-Match": '"1"'})
        assert (told.status_code, told.json()["code"]) == (412, "revision-stale")

    def test_a_flow_that_must_be_new_is_refused_where_it_is_there(self, bench: Bench) -> None:
        bench.master()
        client = bench.client()
        package = bench.package()
        flow = Submit(package.id, "flow.yaml", str(bench.folder))
        client.upload(package.id, package.data)
        submitted(bench, package=package.id)
        with pytest.raises(Refused) as told:
            client.submit("numbers", flow, expected=0)
        assert told.value.code == "revision-stale"


class TestKeys:
    def ask(self, bench: Bench, state: str, key: str = "k1") -> tuple[int, str, dict]:
        said = bench.any_master.ask("PUT", "/v1/flows/numbers/wanted", json={"state": state}, headers={"Idempotency-Key": key})
        return said.status_code, said.headers.get("Idempotency-Replayed", ""), said.json()

    def test_a_repeated_key_gives_the_first_answer_by_any_master(self, bench: Bench) -> None:
        bench.master()
        submitted(bench)
        status, again, first = self.ask(bench, "paused")
        assert (status, again) == (200, "")
        self.ask(bench, "running", "k2")
        assert self.ask(bench, "paused") == (200, "true", first)
        assert bench.client().flow("numbers").wanted.state == "running", "it was not done again"

    def test_a_key_is_refused_for_another_body(self, bench: Bench) -> None:
        bench.master()
        submitted(bench)
        self.ask(bench, "paused")
        status, _, told = self.ask(bench, "stopped")
        assert (status, told["code"]) == (422, "key-used")

    def test_a_refusal_is_repeated_too(self, bench: Bench) -> None:
        bench.master()
        status, _, told = self.ask(bench, "paused")
        assert (status, told["code"]) == (404, "flow-unknown")
        submitted(bench)
        assert self.ask(bench, "paused") == (404, "true", told)


class TestAudit:
    def lines(self, bench: Bench) -> list[dict]:
        return [json.loads(line) for line in bench.audit.read_text().splitlines()]

    def test_each_write_is_noted_with_who_what_and_outcome_and_no_secret(self, bench: Bench) -> None:
        bench.tokens.add("root", "admin", {})
        operator = bench.tokens.add("oscar", "operator", {})
        from scribengin.api.serving import Listen

        master = bench.master(listen=Listen(asks=True))
        submitted(bench)
        client = bench.client(token=operator)
        written = client.want("numbers", "paused")
        with pytest.raises(ScribenginError):
            client.delete("numbers")
        with pytest.raises(ScribenginError):
            client.want("nope", "paused")
        master.ask("GET", "/v1/flows", headers={"Authorization": "Bearer wrong"})
        noted = [(line["who"], line["what"], line["target"], line["outcome"]) for line in self.lines(bench)]
        assert noted == [
            ("oscar", "paused", "numbers", "done"),
            ("oscar", "DELETE /v1/flows/numbers", "", "role-lacking"),
            ("oscar", "paused", "nope", "flow-unknown"),
            ("", "GET /v1/flows", "", "token-unknown"),
        ]
        assert self.lines(bench)[0]["revision"] >= written.revision
        assert operator not in bench.audit.read_text()

"""Flows that meet, as masters tell it: who feeds whom, who is ill, as a graph; and a circle is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scribengin.api.serving import Listen
from scribengin.api.views import RegistryView
from scribengin.cli.commands.drain import command as drain
from scribengin.cli.commands.graph import command as graph
from scribengin.cli.commands.list import command as list_flows
from scribengin.cli.commands.status import command as status
from scribengin.client.client import Client
from scribengin.client.models import ThroughRow, Waits
from scribengin.control import flow_requests
from scribengin.control.workflows import Workflows
from scribengin.core.errors import InputError, Refused
from scribengin.local.contract import EndView, QueryView
from scribengin.registry.flow_ends import ExternalPlace, Outside
from scribengin.registry.record_io import put
from scribengin.registry.records import Ack, MaintenanceOwner, QueryAck, StatusRecord, TierSpec, id_of_folder
from scribengin.registry.tree import ACK, KEEPING, STATUS
from scribengin.watching.progress import TierProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .conftest import Bench


def submitted(bench: Bench, flow: str, reads: str, writes: str, **labels: str) -> None:
    ends = Outside(reads={"in": (ExternalPlace(kind="folder", at=reads),)}, writes={"out": (ExternalPlace(kind="folder", at=writes),)})
    tiers = {"edge": TierSpec(), "core": TierSpec(feeders=("edge",))}
    submission = flow_requests.Submission(flow, f"{bench.person.sync():064}", "flow.yaml", "/base", tiers, labels=labels, outside=ends)
    flow_requests.apply(bench.person, submission, state=lambda _: "/s", by="ann")
    stands(bench, flow, "running")


def stands(bench: Bench, flow: str, state: str, reason: str = "", next_: str = "") -> None:
    said = StatusRecord(state=state, since="2026-01-31T12:00:00+00:00", reason=reason, next=next_)  # type: ignore[arg-type]
    bench.person.commit(put(bench.person, STATUS(flow), said))


def chain(bench: Bench) -> None:
    """orders -> bills -> mail; alone meets nobody."""
    submitted(bench, "orders", "/in", "/orders")
    submitted(bench, "bills", "/orders", "/bills")
    submitted(bench, "mail", "/bills", "/mail")
    submitted(bench, "alone", "/x", "/y")


def test_a_failed_member_is_named_on_the_others_and_changes_none_of_them(bench: Bench) -> None:
    master = bench.master()
    chain(bench)
    stands(bench, "orders", "failed", "tier core: disk full", "make room; then: scribengin resume orders")
    with Client([master.url]) as client:
        for plane in (client, RegistryView(bench.person)):
            part = plane.flow("mail").workflow
            assert part is not None
            assert (part.name, part.flows) == ("orders", ("orders", "bills", "mail"))
            assert [(each.feeding, each.place) for each in part.fed_by] == [("bills", "folder /bills")]
            assert part.feeds == ()
            (ill,) = part.ill
            assert (ill.flow, ill.relation, ill.state) == ("orders", "feeds this one", "failed")
            assert ill.reason == "tier core: disk full"
            assert plane.flow("orders").workflow.ill == ()  # type: ignore[union-attr]
            assert plane.flow("mail").status.state == "running"  # type: ignore[union-attr]
            assert plane.flow("alone").workflow is None
            rows = {row.flow: (row.workflow, row.fed_by, row.feeds) for row in plane.flows()}
            assert rows == {
                "alone": ("", (), ()),
                "bills": ("orders", ("orders",), ("mail",)),
                "mail": ("orders", ("bills",), ()),
                "orders": ("orders", (), ("bills",)),
            }
        stands(bench, "mail", "stopped")
        assert [(each.flow, each.relation) for each in client.flow("bills").workflow.ill] == [  # type: ignore[union-attr]
            ("orders", "feeds this one"),
            ("mail", "is fed by this one"),
        ]
    said = CliRunner().invoke(status, ["mail", "--master", master.url], standalone_mode=False).output
    assert "is fed by bills, at folder /bills" in said
    assert "orders, which feeds this one, is failed since 2026-01-31T12:00:00Z: tier core: disk full; make room" in said
    listed = CliRunner().invoke(list_flows, ["--master", master.url], standalone_mode=False).output
    assert "fed by" in listed


def test_the_graph_has_the_flows_where_they_meet_and_what_waits(bench: Bench) -> None:
    master = bench.master()
    chain(bench)
    assert master.plane.watch is not None
    reads = QueryView("all", "running", sources={"in": EndView(lag_rows=1_200, lag_bytes=2**20)})
    master.plane.watch.board.take(TierProgress(flow="mail", tier="edge", run=1, version=1, at=0.0, phase="running", queries=(reads,)))
    with Client([master.url]) as client:
        assert [(row.workflow, dict(row.states)) for row in client.workflows()] == [
            ("orders", {"orders": "running", "bills": "running", "mail": "running"})
        ]
        found = client.workflow("bills")
        assert [node.flow for node in found.nodes] == ["orders", "bills", "mail"]
        assert [(each.feeding, each.sink, each.reading, each.source) for each in found.edges] == [
            ("bills", "out", "mail", "in"),
            ("orders", "out", "bills", "in"),
        ]
        assert [each.waits for each in found.edges] == [Waits(1_200, bytes=2**20), None]
        assert [node.flow for node in client.workflow("alone").nodes] == ["alone"]
        with pytest.raises(Refused) as unknown:
            client.workflow("nobody")
        assert unknown.value.code == "flow-unknown"
    texts = {
        form: CliRunner().invoke(graph, ["bills", *form, "--master", master.url], standalone_mode=False).output
        for form in ((), ("--dot",), ("--mermaid",))
    }
    assert "out -> mail.in, at folder /bills: 1,200 rows wait, 1.0 MiB" in texts[()]
    assert "tiers edge -> core" in texts[()]
    assert "orders -> bills [label=" in texts["--dot",]
    assert 'bills_ -->|"folder /bills<br>1,200 rows wait' in texts["--mermaid",]


def test_who_may_see_some_flows_only_sees_no_other_in_a_workflow(bench: Bench) -> None:
    submitted(bench, "orders", "/in", "/orders", team="shop")
    submitted(bench, "bills", "/orders", "/bills", team="shop")
    submitted(bench, "mail", "/bills", "/mail", team="post")
    view = RegistryView(bench.person, {"team": "shop"})
    assert view.workflow("orders").nodes[-1].flow == "bills"
    assert view.flow("bills").workflow.feeds == ()  # type: ignore[union-attr]
    assert [row.feeds for row in view.flows()] == [(), ("bills",)]
    assert RegistryView(bench.person, {"team": "post"}).flow("mail").workflow is None
    assert RegistryView(bench.person, {"team": "post"}).workflows() == []


def test_who_may_see_some_flows_only_sees_no_other_that_writes_a_folder(bench: Bench) -> None:
    written = {"out": TierSpec(folders=("/shared",))}
    for flow, team in (("orders", "shop"), ("mail", "post")):
        submission = flow_requests.Submission(flow, "0" * 64, "flow.yaml", "/base", written, labels={"team": team})
        flow_requests.apply(bench.person, submission, state=lambda _: "/s", by="ann")
    keeping = MaintenanceOwner(path="/shared", node="a", writers=("mail.out", "orders.out"))
    bench.person.commit(put(bench.person, KEEPING(id_of_folder("/shared")), keeping))
    (folder,) = RegistryView(bench.person).flow("orders").folders
    assert folder.writers == ("mail.out", "orders.out")
    (folder,) = RegistryView(bench.person, {"team": "shop"}).flow("orders").folders
    assert folder.writers == ("orders.out",)


def test_a_circle_through_flows_that_are_there_is_refused_with_its_way(bench: Bench) -> None:
    chain(bench)
    before = bench.person.sync()
    with pytest.raises(InputError) as circle:
        submitted(bench, "back", "/mail", "/in")
    (problem,) = circle.value.problems
    assert problem.code == "flows-circle"
    assert "back.out -> orders.in, orders.out -> bills.in, bills.out -> mail.in, mail.out -> back.in" in problem.message
    assert "orders and bills and mail exist already" in problem.message
    assert bench.person.sync() == before, "nothing is written"
    submitted(bench, "mail", "/bills", "/elsewhere")
    submitted(bench, "back", "/mail", "/in")
    with pytest.raises(InputError) as again:
        flow_requests.rollback(bench.person, "mail", 1, by="ann")
    assert [problem.code for problem in again.value.problems] == ["flows-circle"]


def test_versions_are_read_once_and_a_flow_that_comes_again_is_another(bench: Bench) -> None:
    chain(bench)
    read: list[str] = []
    registry = bench.store.client()
    read_many = registry.read_many

    def counted(paths: Sequence[str]) -> Any:
        read.extend(paths)
        return read_many(paths)

    registry.read_many = counted  # type: ignore[method-assign]
    workflows = Workflows(registry)
    assert workflows.of("mail").name == "orders"
    assert sum("/spec/" in path for path in read) == 4
    read.clear()
    assert workflows.of("alone").meetings == ()
    assert not [path for path in read if "/spec/" in path]
    stopped = StatusRecord(state="stopped", generation=flow_requests.want(bench.person, "orders", "stopped", by="ann"))
    bench.person.commit(put(bench.person, STATUS("orders"), stopped))
    flow_requests.delete(bench.person, "orders")
    assert workflows.of("mail").name == "bills"
    submitted(bench, "orders", "/in", "/nowhere")
    assert workflows.of("mail").name == "bills"


def test_a_verb_over_a_workflow_is_one_operation_that_is_listed_and_cancelled(bench: Bench) -> None:
    master = bench.master()
    chain(bench)
    runner = CliRunner()
    said = runner.invoke(drain, ["bills", "mail", "--workflow", "--master", master.url], standalone_mode=False)
    assert said.output == "workflow orders: orders, bills, mail wanted drained: operation w1 has begun\n"
    with Client([master.url]) as client:
        assert {flow: client.flow(flow).wanted.state for flow in ("orders", "bills", "mail")} == dict.fromkeys(
            ("orders", "bills", "mail"), "running"
        ), "the masters ask them"
        part = client.flow("mail").workflow
        assert part is not None
        assert part.operation is not None
        assert (part.operation.id, part.operation.goal, part.operation.flows) == ("w1", "drained", ("orders", "bills", "mail"))
        assert [(row.flow, row.id, row.kind, row.under_way) for row in client.operations()] == [("orders", "w1", "workflow drained", True)]
        assert [row.id for row in client.operations("mail")] == ["w1"]
        assert client.operations("alone") == []
        with pytest.raises(Refused) as other:
            client.cancel("alone", "w1")
        assert other.value.code == "operation-unknown"
        client.cancel("mail", "w1")
        assert client.workflow("mail").operations[0].step == "cancelled"
        begun = client.want_workflow("alone", "paused")
        assert (begun.workflow, begun.flows) == ("alone", ("alone",))
        with pytest.raises(Refused) as unknown:
            client.want_workflow("nobody", "paused")
        assert unknown.value.code == "flow-unknown"


def test_who_may_see_some_of_its_flows_only_cannot_move_it(bench: Bench) -> None:
    submitted(bench, "orders", "/in", "/orders", team="shop")
    submitted(bench, "bills", "/orders", "/bills", team="shop")
    submitted(bench, "mail", "/bills", "/mail", team="post")
    shop, all_ = bench.tokens.add("shop", "operator", {"team": "shop"}), bench.tokens.add("all", "operator", {})
    bench.master(listen=Listen(asks=True))
    theirs = bench.client(token=shop)
    with pytest.raises(Refused) as lacking:
        theirs.want_workflow("orders", "drained")
    assert lacking.value.code == "role-lacking"
    begun = bench.client(token=all_).want_workflow("orders", "drained")
    assert begun.flows == ("orders", "bills", "mail")
    wanted = flow_requests.want(bench.person, "mail", "drained", by="ann")
    bench.person.commit(put(bench.person, STATUS("mail"), StatusRecord(state="failed", reason="mail is full", generation=wanted)))
    (asks,) = bench.client(token=all_).workflow("mail").operations
    assert asks.stuck == ("mail",)
    assert [row.arguments["flows"] for row in theirs.operations("orders")] == [["orders", "bills"]]
    assert "mail" not in repr(theirs.workflow("orders")) + repr(theirs.flow("orders"))
    with pytest.raises(Refused) as hidden:
        theirs.cancel("orders", begun.operation)
    assert hidden.value.code == "flow-unknown"


def test_a_flow_says_up_to_when_its_sources_are_through_all_flows_behind_it(bench: Bench) -> None:
    master = bench.master()
    chain(bench)

    def says(flow: str, *moments: tuple[float, float]) -> None:
        ack = QueryAck(lineage="l", decided=3, acknowledged=1, through={"in": moments})
        bench.person.commit(put(bench.person, ACK(flow, "edge"), Ack(queries={"all": ack})))

    says("orders", (0.0, 10.0), (100.0, 110.0), (200.0, 210.0))
    says("bills", (112.0, 120.0), (208.0, 250.0))
    with Client([master.url]) as client:
        part = client.flow("orders").workflow
        assert part is not None
        assert part.through == {"in": ThroughRow(unknown="mail.in")}
        says("mail", (130.0, 140.0))
        part, row = client.flow("orders").workflow, client.flow("orders").acknowledged[0]
        assert part is not None
        assert part.through == {"in": ThroughRow("1970-01-01T00:01:40+00:00")}
        assert (row.tier, row.query, row.decided, row.acknowledged) == ("edge", "all", 3, 1)
    said = CliRunner().invoke(status, ["orders", "--master", master.url], standalone_mode=False).output
    assert "acknowledged to the end of the workflow, of in: everything that was there at 1970-01-01T00:01:40Z" in said
    assert "query all: acknowledged to the end of the flow up to Batch 1 of 3\n" in said


def test_a_flow_behind_that_may_not_be_seen_is_not_named(bench: Bench) -> None:
    submitted(bench, "orders", "/in", "/orders", team="shop")
    submitted(bench, "bills", "/orders", "/bills", team="shop")
    submitted(bench, "mail", "/bills", "/mail", team="post")
    for flow in ("orders", "bills"):
        ack = QueryAck(lineage="l", through={"in": ((100.0, 110.0),)})
        bench.person.commit(put(bench.person, ACK(flow, "edge"), Ack(queries={"all": ack})))
    part = RegistryView(bench.person, {"team": "shop"}).flow("orders").workflow
    assert part is not None
    assert part.through == {"in": ThroughRow(unknown="another flow")}

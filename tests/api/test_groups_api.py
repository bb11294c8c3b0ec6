"""Groups of flows, by REST and by command: members are seen, taken out and let back; and workers hear of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.api.serving import Listen
from scribengin.cli.main import main
from scribengin.client.models import SetMember, Submit
from scribengin.connectors.group.health import MemberOverrides, MemberSeen
from scribengin.control import flow_requests
from scribengin.core.errors import Refused
from scribengin.local.contract import QueryView
from scribengin.registry.contract import Create
from scribengin.registry.records import TierSpec
from scribengin.watching.progress import TierProgress, decode, encode
from scribengin.worker.registry_watch import LiveTurns

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench

FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks:
  kept: {from: numbers, type: files, path: out, format: json, to: disks}
  one: {from: numbers, type: files, path: one, format: json, to: disks.near}
groups: {disks: {members: [{at: /near, name: near}, {at: /far, name: far, cost: 2}]}}
"""


def submits(bench: Bench, token: str | None = None) -> None:
    client, package = bench.client(token=token), bench.package(FLOW)
    client.apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)


def test_members_are_seen_taken_out_and_let_back(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    master = bench.master()
    client = bench.client()
    assert client.groups() == []
    submits(bench)
    (group,) = client.groups()
    assert (group.group, group.flows, group.refused) == ("disks", ("numbers",), "")
    assert [(each.member, each.cost, each.out, each.seen) for each in group.members] == [("near", 1.0, False, ()), ("far", 2.0, False, ())]

    seen = (
        MemberSeen("near", 1.0, batches=7, group="disks", place="path /mnt/a/kept"),
        MemberSeen("far", 2.0, "failed", "no answer", 4.0, group="disks"),
    )
    told = TierProgress(
        flow="numbers",
        tier="main",
        run=1,
        version=1,
        at=0.0,
        phase="running",
        queries=(QueryView("kept", "running", members={"kept": seen}),),
    )
    assert decode(encode(told)) == told
    assert master.plane.watch is not None
    master.plane.watch.board.take(told)
    near, far = client.group("disks").members
    assert near.seen == (
        {
            "flow": "numbers",
            "tier": "main",
            "query": "kept",
            "sink": "kept",
            "place": "path /mnt/a/kept",
            "state": "healthy",
            "reason": "",
            "again_s": 0.0,
            "batches": 7,
        },
    )
    assert (far.seen[0]["state"], far.seen[0]["reason"]) == ("failed", "no answer")

    near, far = client.set_member("disks", "near", SetMember(out=True, why="disk is swapped")).members
    assert (near.out, near.why, far.out) == (True, "disk is swapped", False)
    client.set_member("disks", "far", SetMember(cost=5.0))
    assert client.record("groups/disks").value == {"format": 1, "members": {"far": 5.0}, "out": {"near": "disk is swapped"}}
    for ask, code, status in (
        (("disks", "far", {"out": True}), "group-last", 409),
        (("disks", "fra", {"out": True}), "member-unknown", 404),
        (("disk", "far", {"out": True}), "group-unknown", 404),
        (("disks", "far", {"cost": -1}), "group-cost", 422),
        (("disks", "far", {"away": True}), "body", 422),
    ):
        answer = master.ask("PUT", f"/v1/groups/{ask[0]}/members/{ask[1]}", json=ask[2])
        assert (answer.status_code, answer.json()["code"], bool(answer.json()["remedy"])) == (status, code, True)
    assert [each.out for each in client.set_member("disks", "near", SetMember(out=False)).members] == [False, False]
    client.set_member("disks", "far", SetMember(cost=0))
    assert bench.person.read("groups/disks") is None, "nothing is said of it any more"

    with pytest.raises(SystemExit):
        main(["groups", "set", "disks", "far", "--out", "--master", master.url])
    assert "far  cost 2, out: disabled by" in capfd.readouterr().out
    with pytest.raises(SystemExit):
        main(["group", "list", "--master", master.url, "--json"])
    assert json.loads(capfd.readouterr().out)["result"][0]["members"][1]["out"] is True


def test_all_members_out_by_hand_is_refused_beside_and_holds_not(bench: Bench) -> None:
    bench.master()
    submits(bench)
    bench.person.commit(Create("groups", {}))
    bench.person.commit(Create("groups/disks", {"format": 1, "members": {}, "out": {"near": "", "far": ""}}))
    assert bench.client().group("disks").refused == "all members that numbers may use are disabled; the disabling is ignored there"


def test_members_are_taken_out_by_operators_of_all_flows_only(bench: Bench) -> None:
    tokens = {name: bench.tokens.add(name, role, labels) for name, role, labels in (
        ("vera", "viewer", {}), ("otto", "operator", {}), ("lisa", "operator", {"team": "x"}), ("edda", "editor", {}),
    )}  # fmt: skip
    bench.master(listen=Listen(asks=True))
    submits(bench, tokens["edda"])
    for name in ("vera", "lisa"):
        with pytest.raises(Refused) as refused:
            bench.client(token=tokens[name]).set_member("disks", "near", SetMember(out=True))
        assert refused.value.code == "role-lacking"
    assert bench.client(token=tokens["lisa"]).groups() == [], "none of the flows that she may see has any"
    assert bench.client(token=tokens["otto"]).set_member("disks", "near", SetMember(out=True)).members[0].why == "disabled by otto"


def test_members_that_only_flows_of_others_name_are_shown_to_none_who_may_not_see_these(bench: Bench) -> None:
    for flow, members in (("mine", {"near": 1.0}), ("theirs", {"near": 1.0, "secret": 2.0})):
        tiers = {"main": TierSpec(groups={"disks": members})}
        submission = flow_requests.Submission(flow, "0" * 64, "flow.yaml", "/base", tiers, labels={"of": flow})
        flow_requests.apply(bench.person, submission, state=lambda _: "/s", by="ann")
    bench.person.commit(Create("groups", {}))
    bench.person.commit(Create("groups/disks", {"format": 1, "members": {"secret": 3.0}, "out": {"secret": "it burns", "near": "slow"}}))
    narrow = bench.tokens.add("ann", "viewer", {"of": "mine"})
    bench.master()
    assert [each.member for each in bench.client().group("disks").members] == ["near", "secret"]
    (group,) = bench.client(token=narrow).groups()
    assert (group.flows, [(each.member, each.out) for each in group.members]) == (("mine",), [("near", True)])
    assert "secret" not in repr(bench.client(token=narrow).group("disks"))


def test_a_worker_hears_what_is_said_of_a_group_and_keeps_it_where_that_is_damaged(bench: Bench) -> None:
    bench.person.commit(Create("groups", {}))
    bench.person.commit(Create("groups/disks", {"format": 1, "members": {"far": 3}, "out": {}}))
    live = LiveTurns(bench.store.client())
    try:
        assert live("disks") == MemberOverrides({"far": 3.0}, {})
        assert live("others") == MemberOverrides()
        bench.store.write_raw("groups/disks", b'{"members": {}, "out": {"near": "swapped"}}')
        until(lambda: live("disks") == MemberOverrides({}, {"near": "swapped"}))
        bench.store.write_raw("groups/disks", b"oops")
        bench.person.commit(Create("groups/others", {"format": 1, "members": {"a": 1}}))
        until(lambda: live("others") == MemberOverrides({"a": 1.0}, {}))
        assert live("disks") == MemberOverrides({}, {"near": "swapped"})
    finally:
        live.close()


def until(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)

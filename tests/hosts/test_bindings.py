"""Which tiers run where: the verbs of a person, over real masters and hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from plane import until

from scribengin.registry.contract import RegistryEntry
from scribengin.registry.records import TierSpec
from scribengin.registry.tree import RUN

if TYPE_CHECKING:
    from plane import Plane

pytestmark = pytest.mark.timeout(400)


def on(plane: Plane, tier: str) -> str:
    """The host that a tier of `tweets` runs on."""
    return str(plane.holder("tweets", tier).get("host", ""))


@pytest.mark.long
def test_tiers_are_mapped_moved_spawned_and_hosts_taken_out_and_back(plane: Plane) -> None:
    plane.master("m1")
    assert plane.says("node", "list") == []
    plane.node("a")
    plane.apply("tweets", edge=(), core=("edge",))
    plane.comes_to("tweets", "running")
    plane.node("b", cores=4)
    assert [(each["node"], each["state"], each["cores"]) for each in plane.says("node", "list")] == [("a", "up", 0), ("b", "up", 4)]

    # mapped elsewhere it ends in order, and goes on there; the other one stays
    core = plane.worker("tweets", "core")
    edge = plane.worker("tweets", "edge")
    assert plane.says("node", "map", "tweets.edge", "b", "--wait")["changed"] is True
    assert plane.says("node", "map", "tweets.edge", "b")["changed"] is False
    assert (on(plane, "edge"), on(plane, "core")) == ("b", "a")
    assert not edge.is_running()
    assert plane.worker("tweets", "core") == core
    assert [each["mapped"] for each in plane.says("node", "list")] == [[], ["tweets.edge"]]
    run = plane.registry.read(RUN("tweets", "edge").path)
    assert isinstance(run, RegistryEntry)
    assert run.value.get("failures", 0) == 0, "a move is no failure"

    # to another: one host at each moment
    plane.says("node", "map", "tweets.edge", "a", "--wait")
    assert [each["mapped"] for each in plane.says("node", "list")] == [["tweets.edge"], []]
    assert plane.says("node", "unmap", "tweets.edge")["changed"] is True
    assert plane.says("node", "unmap", "tweets.edge")["changed"] is False

    # a host is taken out: all of its workers go on elsewhere first
    assert plane.says("node", "drain", "a", "--wait")["workers"] == []
    plane.comes_to("tweets", "running")
    assert (on(plane, "edge"), on(plane, "core")) == ("b", "b")
    assert [each["state"] for each in plane.says("node", "list")] == ["decommissioned", "up"]
    assert plane.says("node", "map", "tweets.core", "a", status=2)[0]["code"] == "node-decommissioned"
    # the last one keeps what nobody else can take
    late = plane.says("node", "drain", "b", "--wait", "3s", status=1)
    assert "still has tweets.core-" in late[0]["message"]
    assert plane.state("tweets") == "running"
    plane.says("node", "undrain", "a")
    until(lambda: (on(plane, "edge"), on(plane, "core")) == ("a", "a"), "all of it is on a again")
    plane.says("node", "undrain", "b")

    # started on a host
    plane.says("stop", "tweets", "--wait")
    plane.says("node", "start-tier", "tweets.edge", "b", "--wait")
    assert on(plane, "edge") == "b"

    # and forgotten, when its machine is gone
    assert plane.says("node", "remove", "b", status=2)[0]["code"] == "node-up"
    plane.kill("b")
    until(lambda: plane.registry.read("physicalnodes/b/up") is None, "b is away")
    assert [each["state"] for each in plane.says("node", "list")] == ["up", "away"]
    plane.says("node", "remove", "b")
    assert [each["node"] for each in plane.says("node", "list")] == ["a"]
    assert plane.registry.children("physicalnodes/b/lns") == ()
    assert plane.worker("tweets", "edge").is_running(), "its worker holds its lease, and goes on"

    # what makes no sense
    for words, code in (
        (("map", "tweets.edgy", "a"), "tier-unknown"),
        (("map", "tweets", "a"), "tier-unknown"),
        (("map", "tweet.edge", "a"), "flow-unknown"),
        (("spawn", "tweets.edge", "c"), "node-unknown"),
        (("decommission", "c"), "node-unknown"),
    ):
        assert plane.says(*words, status=2)[0]["code"] == code, words


def test_a_host_that_is_full_gets_nothing_and_what_fits_nowhere_waits(plane: Plane) -> None:
    plane.node("a", cores=2)
    plane.node("b", cores=1)
    plane.master("m1")  # after both: one that knew of "a" alone could put "core" there, and then "edge" fits nowhere
    plane.apply("tweets", by={"edge": TierSpec(cores=2), "core": TierSpec(cores=1)})
    plane.comes_to("tweets", "running")
    assert (on(plane, "edge"), on(plane, "core")) == ("a", "b")
    plane.apply("large", by={"main": TierSpec(cores=1)})
    until(lambda: "no available node has room for main" in str(plane.says("list")[0]["reason"]), "it waits")
    plane.says("stop", "tweets", "--wait")
    plane.comes_to("large", "running")


def test_a_tier_with_a_group_of_hosts_waits_for_one_of_them(plane: Plane) -> None:
    plane.node("a")
    plane.master("m1")
    plane.apply("tweets", by={"edge": TierSpec(), "core": TierSpec(group="onlyb", hosts={"b": 1.0})})
    until(lambda: "tier core runs on group onlyb: b does not answer" in str(plane.says("list")[0]["reason"]), "it waits")
    until(lambda: on(plane, "edge") == "a", "the other tier runs")
    assert on(plane, "core") == ""
    plane.node("b")
    plane.comes_to("tweets", "running")
    assert (on(plane, "edge"), on(plane, "core")) == ("a", "b")

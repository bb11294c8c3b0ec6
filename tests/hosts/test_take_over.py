"""Several masters and hosts, real processes over a real ZooKeeper: killed, stopped and woken, one after the other."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from plane import until

from scribengin.control import flow_requests
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.records import Mapped
from scribengin.registry.tree import DESIRED, MAPPED, RUN, STATUS, WANTED

if TYPE_CHECKING:
    from plane import Plane

SESSION_S = 10.0
pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.long)])
def test_when_the_leader_is_killed_another_leads_and_workers_are_adopted(plane: Plane, kills: int) -> None:
    for number in range(kills + 1):
        plane.master(f"m{number + 1}")
    for name in ("a", "b"):
        plane.node(name)
    # a leader that has not heard of the second host yet would take the first for both
    plane.registry.commit(*(MAPPED(host, f"tweets.{tier}").create(Mapped()) for host, tier in (("a", "edge"), ("b", "core"))))
    plane.apply("tweets", edge=(), core=("edge",))
    plane.comes_to("tweets", "running")
    workers = {tier: plane.worker("tweets", tier) for tier in ("edge", "core")}
    assert {plane.holder("tweets", tier)["host"] for tier in workers} == {"a", "b"}, "one on each host"
    took = []
    state, other = "running", "paused"
    for _ in range(kills):
        leader = plane.leader()
        plane.kill(leader)
        begun = time.monotonic()
        until(lambda gone=leader: plane.leader() not in ("", gone), "another leads")
        took.append(time.monotonic() - begun)
        # it does not only lead but acts
        state, other = other, state
        flow_requests.want(plane.registry, "tweets", state, by="me")
        plane.comes_to("tweets", state)
        assert {tier: plane.worker("tweets", tier) for tier in workers} == workers, "adopted, not started again"
    print(f"take-over after {', '.join(f'{each:.1f} s' for each in took)}")
    assert max(took) < SESSION_S + 60

    # no master at all: they go on; the registry still answers; the next one adopts them
    plane.kill(plane.leader())
    until(lambda: plane.leader() == "", "nobody leads")
    assert plane.says("list")[0]["state"] == state
    assert plane.says("status", "tweets")["tiers"][0]["process"]["pid"] == workers["core"].pid
    assert all(worker.is_running() for worker in workers.values())
    plane.master("m4")
    flow_requests.want(plane.registry, "tweets", other, by="me")
    plane.comes_to("tweets", other)
    assert {tier: plane.worker("tweets", tier) for tier in workers} == workers


def test_a_leader_that_slept_past_its_session_changes_nothing(plane: Plane) -> None:
    plane.node("a")
    sleeper = plane.sleeper("m1")
    until(lambda: plane.leader() == "m1", "it leads")
    plane.master("m2")
    plane.apply("tweets", main=())
    run = RUN("tweets", "main").path
    until(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED, "it sleeps in the middle of what it has decided")
    assert plane.registry.read(run) is not None
    assert plane.registry.children("physicalnodes/a/orders") == ()
    # meanwhile another one does it, and all of it is over again: what the sleeper still has to write would make sense to ZooKeeper
    until(lambda: plane.leader() == "m2", "another leads")
    plane.comes_to("tweets", "running")
    flow_requests.want(plane.registry, "tweets", "stopped", by="me")
    plane.comes_to("tweets", "stopped")
    until(lambda: not plane.registry.children("physicalnodes/a/orders"), "it is forgotten")
    until(lambda: not plane.registry.children("physicalnodes/a/seen"), "by the host, too")
    paths = [run, WANTED("tweets", "main").path, STATUS("tweets").path, "physicalnodes/a/orders"]

    def changes() -> dict[str, tuple[int, int]]:
        return {path: (there.made, there.changed) for path in paths if isinstance(there := plane.registry.read(path), RegistryEntry)}

    before = changes()
    sleeper.send_signal(signal.SIGCONT)
    log = plane.folder / "m1" / "master.log"
    until(lambda: "leadership lost" in log.read_text(), "it knows that it leads no more", 60)
    assert plane.registry.children("physicalnodes/a/orders") == ()
    # and it may lead again, by a right of its own
    plane.kill("m2")
    until(lambda: plane.leader() == "m1", "it leads again")
    plane.apply("other", main=())
    plane.comes_to("other", "running")
    assert changes() == before
    assert plane.registry.children("physicalnodes/a/orders") == ("other.main-1",)


@pytest.mark.long
def test_a_host_that_is_gone_gives_its_workers_to_others_and_kills_the_orphans_when_it_is_back(plane: Plane) -> None:
    plane.master("m1", regain_s=3.0)
    plane.node("a")
    plane.apply("tweets", main=())
    plane.comes_to("tweets", "running")
    first = plane.worker("tweets", "main")
    plane.node("b")
    # its node process alone: the worker holds its lease, and stays
    plane.kill("a")
    until(lambda: plane.registry.read("physicalnodes/a/up") is None, "a is away")
    time.sleep(2)  # that nothing happens can only be waited for
    assert plane.worker("tweets", "main") == first
    # the worker sleeps past its lease, and nobody can kill it there
    first.suspend()
    until(lambda: plane.holder("tweets", "main").get("host") == "b", "it runs on b")
    plane.comes_to("tweets", "running")
    second = plane.worker("tweets", "main")
    # back again: what it finds there, nobody wants any more
    assert first.is_running()
    plane.node("a")
    until(lambda: not first.is_running() or first.status() == psutil.STATUS_ZOMBIE, "the orphan is killed")
    until(lambda: not plane.registry.children("physicalnodes/a/seen"), "and forgotten")
    assert plane.registry.children("physicalnodes/a/orders") == ()
    assert plane.worker("tweets", "main") == second
    assert plane.state("tweets") == "running"


@pytest.mark.long
def test_the_node_process_of_a_host_is_killed_at_any_moment_and_the_next_one_goes_on(plane: Plane) -> None:
    plane.master("m1")
    plane.node("a")
    for number in range(4):
        plane.apply(f"flow{number}", main=())
    plane.kill("a")  # in the middle of starting them
    plane.node("a")
    for number in range(4):
        plane.comes_to(f"flow{number}", "running")
    workers = [plane.worker(f"flow{number}", "main") for number in range(4)]
    for number in range(4):
        flow_requests.want(plane.registry, f"flow{number}", "stopped", by="me")
    plane.kill("a")
    plane.node("a")
    for number in range(4):
        plane.comes_to(f"flow{number}", "stopped")
    assert not any(worker.is_running() for worker in workers)
    runs = [plane.registry.read(RUN(f"flow{number}", "main").path) for number in range(4)]
    assert all(isinstance(run, RegistryEntry) and run.value["number"] <= 2 for run in runs)
    until(lambda: plane.registry.children("physicalnodes/a/seen") == (), "all of them are forgotten")


def test_an_order_is_taken_up_at_once(plane: Plane) -> None:
    plane.master("m1")
    plane.node("a")
    plane.apply("tweets", main=())
    plane.comes_to("tweets", "running")
    entry = plane.registry.read(DESIRED("tweets").path)
    assert isinstance(entry, RegistryEntry)
    begun = time.monotonic()
    flow_requests.want(plane.registry, "tweets", "stopped", by="me")
    plane.comes_to("tweets", "stopped")
    print(f"stopped after {time.monotonic() - begun:.2f} s")
    begun = time.monotonic()
    flow_requests.want(plane.registry, "tweets", "running", by="me")
    until(lambda: "tweets.main-2" in plane.registry.children("physicalnodes/a/seen"), "its process is there")
    took = time.monotonic() - begun
    print(f"ordered and begun after {took:.2f} s")
    assert took < 60, "in well under a second on a quiet machine"


def test_a_name_is_one_process_and_a_folder_too(plane: Plane) -> None:
    plane.master("m1")
    plane.node("a")
    refused = plane.says("node", "--name", "a", status=2)
    assert [(each["code"], "already runs" in each["message"]) for each in refused] == [("node-taken", True)]
    assert plane.says("master", "--name", "m1", status=2)[0]["code"] == "name-taken"
    # who was killed leaves his name to the next one
    for name, start in (("m1", plane.master), ("a", plane.node)):
        plane.kill(name)
        begun = time.monotonic()
        start(name)
        print(f"{name} is there again after {time.monotonic() - begun:.1f} s")

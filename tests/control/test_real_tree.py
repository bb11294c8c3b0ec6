"""The tree as an interface, on a real ZooKeeper: its own shell writes, sessions end, servers go away, and masters go on."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from harness.zookeeper_shell import run_shell
from scribengin.control import flow_records, flow_requests
from scribengin.core.secret import Secret
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.registry.access import DigestLogin, RegistryAddress
from scribengin.registry.contract import ANYONE, Grant, May, RegistryEntry
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import Limit
from scribengin.registry.tree import DESIRED, LEADER_TERM, LIMIT, MAPPED, RUN, STATUS
from scribengin.registry.zookeeper import ZooKeeperRegistry, open_zookeeper
from tests.control.hands import Plane, until
from tests.registry.registry_benches import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOGIN = DigestLogin(Secret("masters:sesame", "${secret:env/MASTERS}"))
WAIT_S = 90.0
_ROOTS = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


class Clients:
    """Of one root; each behind a wire of its own, that can be cut."""

    def __init__(self, server: ZooKeeper, stack: ExitStack) -> None:
        self.address = RegistryAddress((server.address,), f"/tree{next(_ROOTS)}")
        self._stack = stack
        self._port = int(server.address.rpartition(":")[2])
        self.wires: dict[int, Wire] = {}

    def __call__(self, session_s: float = 30.0) -> ZooKeeperRegistry:
        wire = Wire(self._port)
        self._stack.callback(wire.close)
        address = RegistryAddress((f"127.0.0.1:{wire.port}",), self.address.root)
        client = open_zookeeper(address, login=LOGIN, grants=(Grant(ANYONE, May.READ),), session_s=session_s, wait_s=WAIT_S)
        self._stack.callback(client.close)
        self.wires[id(client)] = wire
        return client

    def expire(self, client: ZooKeeperRegistry) -> None:
        """As a server ends a session: it learns it when it is told."""
        before = client.session().id
        twin = KazooClient(f"127.0.0.1:{self._port}", client_id=client._zookeeper._client.client_id)
        twin.start(timeout=WAIT_S)
        twin.stop()
        twin.close()
        until(lambda: client.session().id not in (0, before), "another session")


@pytest.fixture
def clients(server: ZooKeeper) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(server, stack)


@pytest.fixture
def plane(clients: Clients) -> Plane:
    plane = Plane(clients)
    plane.apply("tweets", edge=(), core=("edge",))
    plane.apply("other", main=())
    plane.comes_to("tweets", "running")
    plane.comes_to("other", "running")
    return plane


def lead(plane: Plane) -> int:
    """Which take of the lead is the newest."""
    plane.person.sync()
    fence = plane.person.read(LEADER_TERM().path)
    assert isinstance(fence, RegistryEntry)
    return fence.version


@contextmanager
def running(plane: Plane) -> Iterator[Callable[[], None]]:
    """Its master leads and works in a thread. Gives what the workers do once."""
    thread = threading.Thread(target=plane.master.run)
    thread.start()
    try:
        yield plane.obey
        assert thread.is_alive(), "the master has died"
    finally:
        plane.master.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_zookeepers_own_shell_says_what_is_wanted_and_is_answered_beside_it(clients: Clients, plane: Plane) -> None:
    root = clients.address.root
    plane.person.commit(LIMIT("tweets").create(Limit(rows_per_s=5)))
    started = plane.workers()
    node = plane.node("other", "main")
    to = {"here": "there", "there": "here"}[node]
    said = run_shell(
        clients.address,
        (
            f'set {root}/flows/tweets/desired \'{{"state": "paused", "version": 1, "why": "by hand"}}\'',
            f'create {root}/flows/tweets/note \'{{"text": "unknown to all"}}\'',
            f"create {root}/flows/READ_ME none",
            f'set {root}/limits/tweets \'{{"rows_per_s": "fast"}}\'',
            f'set {root}/flows/other/desired \'{{"state": "running", "version": 9}}\'',
            f'create {root}/physicalnodes ""',
            *(f'create {root}/physicalnodes/{host} ""' for host in (to, "ghost")),
            *(f'create {root}/physicalnodes/{host}/lns ""' for host in (to, "ghost")),
            f'create {root}/physicalnodes/{to}/lns/other.main ""',
            f"create {root}/physicalnodes/ghost/lns/tweets.core '{{}}'",
            f"set {root}/flows/tweets/runs/core garbage",
        ),
        login=LOGIN,
    )
    assert "Exception" not in said, said
    status = plane.comes_to("tweets", "paused", lambda status: len(status.refused) == 2)
    assert {path.partition("/")[0] for path in status.refused} == {"limits", "physicalnodes"}
    assert "never registered" in status.refused[MAPPED("ghost", "tweets.core").path]["why"]
    other = plane.comes_to("other", "running", lambda status: bool(status.refused) and plane.node("other", "main") == to)
    assert "version 9, which does not exist; there are 1" in other.refused[DESIRED("other").path]["why"]
    run = read_record(plane.person, RUN("tweets", "core"))
    assert isinstance(run, Stored), "it was set aside, and made anew"
    assert flow_records.describe(plane.person, "tweets")["set_aside"][0]["path"] == RUN("tweets", "core").path
    assert [name for name in plane.workers() if name.startswith("tweets")] == [name for name in started if name.startswith("tweets")]
    mended = run_shell(
        clients.address,
        (
            f'set {root}/flows/other/desired \'{{"state": "stopped", "version": 1}}\'',
            f"set {root}/flows/tweets/desired garbage",
            f"delete {root}/physicalnodes/ghost/lns/tweets.core",
            f"delete {root}/limits/tweets",
        ),
        login=LOGIN,
    )
    assert "Exception" not in mended, mended
    assert plane.comes_to("other", "stopped").refused == {}
    refused = plane.comes_to("tweets", "paused", lambda status: len(status.refused) == 1 and DESIRED("tweets").path in status.refused)
    assert "is not valid JSON" in refused.refused[DESIRED("tweets").path]["why"]
    plane.want("tweets", "running")
    plane.comes_to("tweets", "running", lambda status: not status.refused)
    assert plane.person.read("flows/tweets/note") is not None
    assert plane.person.read("flows/READ_ME") is not None


def test_a_master_goes_on_after_the_server_was_restarted(server: ZooKeeper, clients: Clients, plane: Plane) -> None:
    before, term = plane.workers(), lead(plane)
    with running(plane) as obey:
        server.kill()
        until(lambda: plane.registry.session().link.value == "suspended", "suspended")
        server.start()
        plane.want("tweets", "paused")
        until(lambda: obey() or plane.status("tweets").state == "paused", "paused")  # type: ignore[func-returns-value]
        plane.want("tweets", "running")
        until(lambda: obey() or plane.status("tweets").state == "running", "running")  # type: ignore[func-returns-value]
    assert plane.workers() == before
    assert lead(plane) == term, "its session has lived on, and so has its lead"


def test_a_master_whose_session_was_ended_leads_again_under_another_term(clients: Clients, plane: Plane) -> None:
    before, term = plane.workers(), lead(plane)
    with running(plane) as obey:
        clients.expire(plane.registry)
        plane.want("other", "paused")
        until(lambda: obey() or plane.status("other").state == "paused", "paused")  # type: ignore[func-returns-value]
    assert plane.workers() == before
    assert lead(plane) > term


def test_a_master_that_is_cut_off_does_nothing_and_then_what_is_due_by_then(clients: Clients, plane: Plane) -> None:
    before = plane.workers()
    with running(plane) as obey:
        wire = clients.wires[id(plane.registry)]
        wire.cut()
        until(lambda: plane.registry.session().link.value == "suspended", "suspended")
        plane.lose("other", "main")
        plane.want("tweets", "paused")
        begun = time.monotonic()
        until(lambda: time.monotonic() > begun + 3, "its clock has struck a few times")
        assert plane.workers() == before, "it cannot know what is wanted by now"
        wire.mend()
        until(lambda: obey() or len(plane.workers()) > len(before), "another worker")  # type: ignore[func-returns-value]
        until(lambda: obey() or plane.status("other").state == "running", "running")  # type: ignore[func-returns-value]
        until(lambda: obey() or plane.status("tweets").state == "paused", "paused, as was wanted meanwhile")  # type: ignore[func-returns-value]
    assert plane.workers() == sorted([*before, "other.main-2"])


def test_a_master_that_was_cut_off_past_its_session_leaves_what_another_has_done(clients: Clients) -> None:
    plane = Plane(clients, lambda: clients(4.0))
    plane.apply("tweets", main=())
    plane.comes_to("tweets", "running")
    before = plane.workers()
    with running(plane) as obey:
        wire = clients.wires[id(plane.registry)]
        wire.cut()
        other = clients()
        second = plane.another(other)
        plane.want("tweets", "stopped")
        until(lambda: (other.sync(), second.cycle(), obey()) and plane.status("tweets").state == "stopped", "stopped")
        stopped = plane.person.sync()
        wire.mend()
        until(lambda: plane.registry.session().link.value == "connected", "connected")
        for _ in range(20):
            second.cycle()
            obey()
        assert plane.status("tweets").state == "stopped"
        assert plane.workers() == before
        status = plane.person.read(STATUS("tweets").path)
        assert isinstance(status, RegistryEntry)
        assert status.changed <= stopped, "nobody has written it since"
        assert second.leads


def test_little_is_left_of_flows_that_were_deleted_and_no_more_of_a_name_that_comes_again(clients: Clients) -> None:
    plane = Plane(clients)

    def count() -> int:
        paths, found = [""], 0
        while paths:
            found += len(paths)
            paths = [
                f"{path}/{name}".lstrip("/") for path, names in zip(paths, plane.person.children_many(paths), strict=True) for name in names
            ]
        return found

    def lives(flows: range) -> None:
        for number in flows:
            plane.apply(f"f{number}", edge=(), core=("edge",))
        for goal, state in (("running", "running"), ("stopped", "stopped")):
            for number in flows:
                if goal == "stopped":
                    plane.want(f"f{number}", "stopped")
            for number in flows:
                plane.comes_to(f"f{number}", state)
        for number in flows:
            flow_requests.delete(plane.person, f"f{number}")

    lives(range(1))
    one = count()
    lives(range(1, 11))
    each = (count() - one) / 10
    assert each <= 9, f"{each} records are left of a flow of two tiers: folders, a run and a Term each"
    lives(range(11))
    assert count() == one + 10 * each, "a name that comes again leaves nothing more"

"""What only a real ZooKeeper can show: processes that sleep, servers that restart, passwords, its own shell."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from registry_benches import DEADLINE_S, LOGIN, READABLE, SHORT_S, STRANGER, Wire, until

from harness.zookeeper_shell import run_shell
from scribengin.core.errors import Refused, Unreachable
from scribengin.registry.access import RegistryAddress
from scribengin.registry.contract import ANYONE, Create, Damaged, Forbidden, Grant, May, RegistryEntry, SessionState
from scribengin.registry.lease import LEADER, Election, RegistryLease
from scribengin.registry.record_io import Stored, read_record, set_aside
from scribengin.registry.records import Desired, Limit
from scribengin.registry.tree import DESIRED, LIMIT, right_of_tier
from scribengin.registry.zookeeper import open_zookeeper

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from scribengin.embedded.zookeeper import ZooKeeper
    from scribengin.registry.zookeeper import ZooKeeperRegistry

PROGRAM = Path(__file__).with_name("holder_program.py")


@pytest.fixture
def address(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> RegistryAddress:
    """A root of the test's own."""
    return RegistryAddress((zookeeper.address,), f"/tests/{abs(hash(request.node.nodeid)):x}")


@pytest.fixture
def client(address: RegistryAddress) -> Iterator[ZooKeeperRegistry]:
    with closing(open_zookeeper(address, login=LOGIN, grants=(READABLE,), wait_s=DEADLINE_S)) as registry:
        yield registry


class HolderProcess:
    """The program beside this one, told and heard over pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.term = int(self.heard())

    def ask(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.heard()

    def heard(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], DEADLINE_S)[0], "it says nothing"
        return self.process.stdout.readline().strip()


@contextmanager
def holder(address: RegistryAddress, right: str) -> Iterator[HolderProcess]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(address), right, str(SHORT_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "REGISTRY_LOGIN": LOGIN.secret.reveal()},
    )
    try:
        yield HolderProcess(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("right", [LEADER, right_of_tier("tweets", "edge")], ids=["leader", "worker"])
def test_a_holder_stopped_past_its_session_and_continued_changes_nothing_and_learns_it(
    address: RegistryAddress, client: ZooKeeperRegistry, right: str
) -> None:
    with holder(address, right) as sleeper, RegistryLease(client, right, {}) as follower:
        assert sleeper.ask("held") == "True"
        sleeper.process.send_signal(signal.SIGSTOP)
        assert follower.acquire(wait_s=DEADLINE_S)
        assert follower.term.number > sleeper.term
        sleeper.process.send_signal(signal.SIGCONT)
        assert sleeper.ask("held") == "False", "its own clock says so, before any server does"
        assert sleeper.ask("write") == "fenced"
        assert sleeper.ask("held") == "False"
        assert client.sync()
        assert client.read("written") is None
        assert follower.held()
        # without the Term the same process writes, in the new session that it has by now: the check above is not for nothing
        assert sleeper.ask("write-without-term") == "written"
        assert client.sync()
        assert client.read("written") is not None


def test_a_holder_stopped_past_its_session_is_fenced_where_nobody_has_followed_yet(
    address: RegistryAddress, client: ZooKeeperRegistry
) -> None:
    with holder(address, LEADER) as sleeper:
        sleeper.process.send_signal(signal.SIGSTOP)
        until(lambda: client.read(LEADER) is None, "its session ends")
        sleeper.process.send_signal(signal.SIGCONT)
        assert sleeper.ask("write") == "fenced"
        assert client.read("written") is None


def test_a_holder_that_is_killed_is_followed_within_its_session(address: RegistryAddress, client: ZooKeeperRegistry) -> None:
    with holder(address, LEADER) as leader, Election(client, {"id": "m2"}) as standby:
        assert not standby.acquire()
        leader.process.kill()
        begun = time.monotonic()
        assert standby.acquire(wait_s=DEADLINE_S)
        assert time.monotonic() - begun < SHORT_S + 60  # the machine may be slow; the session's time is what counts


def test_over_a_restart_of_the_server_the_session_is_suspended_and_the_lease_still_held(
    zookeeper: ZooKeeper, address: RegistryAddress
) -> None:
    with ExitStack() as closes:
        client = closes.enter_context(closing(open_zookeeper(address, login=LOGIN, session_s=40, wait_s=DEADLINE_S)))
        lease = closes.enter_context(RegistryLease(client, right_of_tier("tweets", "edge"), {}))
        assert lease.acquire()
        term, session = lease.term, client.session().id
        zookeeper.kill()
        try:
            until(lambda: client.session().link is SessionState.SUSPENDED, "suspended")
            assert lease.held()
            lease.check()
        finally:
            zookeeper.start()
        until(lambda: client.session().link is SessionState.CONNECTED, "connected")
        assert (client.session().id, lease.held(), lease.term) == (session, True, term)
        client.commit(Create("written", {}), term=term)


def test_a_server_that_takes_a_connection_and_never_answers_does_not_cost_the_session(
    zookeeper: ZooKeeper, address: RegistryAddress
) -> None:
    wire = Wire(int(zookeeper.address.rpartition(":")[2]))
    with ExitStack() as closes:
        closes.callback(wire.close)
        through = RegistryAddress((f"127.0.0.1:{wire.port}",), address.root)
        client = closes.enter_context(closing(open_zookeeper(through, login=LOGIN, session_s=30, wait_s=DEADLINE_S)))
        session = client.session().id
        silent: list[socket.socket] = []
        wire.silent = silent
        wire.cut()
        until(lambda: silent, "it tries again")
        wire.silent = None
        wire.mend()
        until(lambda: client.session().link is SessionState.CONNECTED, "connected")
        assert client.session().id == session
        for one in silent:
            one.close()


def test_the_session_lives_as_long_as_the_server_grants(zookeeper: ZooKeeper, address: RegistryAddress) -> None:
    for asked_s, granted_s in ((300.0, 60.0), (0.2, 1.0), (7.0, 7.0)):
        with closing(open_zookeeper(address, login=LOGIN, session_s=asked_s, wait_s=DEADLINE_S)) as client:
            assert client._zookeeper._granted_s == pytest.approx(granted_s, abs=0.01)
            assert client.session().left_s <= granted_s


def test_a_session_that_does_nothing_is_kept_alive(address: RegistryAddress, client: ZooKeeperRegistry) -> None:
    kept = False
    for number in range(5):  # where the machine leaves a thread no processor for a session's time, it is over: another try
        with closing(open_zookeeper(address, login=LOGIN, session_s=SHORT_S, wait_s=DEADLINE_S)) as idle:
            session, end = idle.session().id, time.monotonic() + 2 * SHORT_S
            idle.commit(Create(f"idle{number}", {}, ephemeral=True))
            until(lambda end=end: time.monotonic() > end, "two sessions' time")  # type: ignore[misc]
            kept = (idle.session().id, idle.session().lives) == (session, True) and client.read(f"idle{number}") is not None
        if kept:
            break
    assert kept


def test_who_knows_no_password_cannot_enter_what_is_not_readable_to_all(address: RegistryAddress) -> None:
    with closing(open_zookeeper(address, login=LOGIN, wait_s=DEADLINE_S)) as client:
        client.commit(Create("a", {}))
        for login in (STRANGER, None):
            with pytest.raises(Forbidden) as caught:
                open_zookeeper(address, login=login, wait_s=DEADLINE_S)
            assert caught.value.remedy
            assert address.root in str(caught.value)
            assert "guess" not in str(caught.value)


def test_a_root_that_everybody_can_write_to_is_refused_unless_that_is_meant(zookeeper: ZooKeeper) -> None:
    address = RegistryAddress((zookeeper.address,), "/open/to/all")
    with pytest.raises(Refused, match="without a login, any client that reaches it could change it"):
        open_zookeeper(address, wait_s=DEADLINE_S)
    with closing(open_zookeeper(address, insecure=True, wait_s=DEADLINE_S)) as client:
        client.commit(Create("a/b", {}))
    for login in (LOGIN, None):
        with pytest.raises(
            Refused, match=r"any client that reaches zk://.* can change it: world:anyone \(read, write, create, delete, admin\)"
        ):
            open_zookeeper(address, login=login, wait_s=DEADLINE_S)
    with closing(open_zookeeper(address, insecure=True, wait_s=DEADLINE_S)) as client:
        assert client.read("a/b") is not None


@pytest.mark.parametrize("right", [May.WRITE, May.CREATE, May.DELETE, May.ADMIN])
def test_each_right_of_everybody_but_reading_makes_a_root_open(address: RegistryAddress, right: May) -> None:
    with pytest.raises(Refused, match="at its root"):
        open_zookeeper(address, login=LOGIN, grants=(Grant(ANYONE, right | May.READ),), wait_s=DEADLINE_S)


def test_where_nobody_answers_that_is_said_in_time() -> None:
    nobody = RegistryAddress(("127.0.0.1:1",), "/x")
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=f"{nobody} does not answer"):
        open_zookeeper(nobody, login=LOGIN, wait_s=1)
    assert time.monotonic() - begun < DEADLINE_S


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_whose_connection_has_met_a_bug_says_so_and_does_not_wait(zookeeper: ZooKeeper, address: RegistryAddress) -> None:
    wire = Wire(int(zookeeper.address.rpartition(":")[2]))
    with ExitStack() as closes:
        closes.callback(wire.close)
        through = RegistryAddress((f"127.0.0.1:{wire.port}",), address.root)
        client = closes.enter_context(closing(open_zookeeper(through, login=LOGIN, session_s=60, wait_s=DEADLINE_S)))
        client._zookeeper._client.handler.create_connection = lambda **_: {}["a bug"]
        wire.cut()
        until(lambda: client.session().link is SessionState.LOST, "its thread ends")
        with pytest.raises(Unreachable, match="has ended: 'a bug'") as caught:
            client.read("a")
        assert caught.value.code == "registry-client-ended"


def test_no_thread_and_no_open_socket_is_left_of_a_closed_client(address: RegistryAddress, client: ZooKeeperRegistry) -> None:
    import threading

    import psutil

    def now() -> tuple[int, int]:
        return threading.active_count(), len(psutil.Process().net_connections("tcp"))

    before = now()
    for _ in range(3):
        with closing(open_zookeeper(address, login=LOGIN, wait_s=DEADLINE_S)) as more:
            more.watch("a", lambda: None)
    until(lambda: now() <= before, "all gone")


def test_passwords_are_not_logged(address: RegistryAddress, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"), closing(open_zookeeper(address, login=LOGIN, wait_s=DEADLINE_S)) as client:
        client.commit(Create("a", {}))
    assert LOGIN.secret.reveal().partition(":")[2] not in caplog.text


# --- its own shell


def shell(address: RegistryAddress, *words: str, commands: tuple[str, ...] = ()) -> str:
    """What ZooKeeper's own shell says to one command of words, or to commands given as the masters."""
    return run_shell(address, commands, login=LOGIN, word=words)


def test_changes_made_with_zookeepers_own_shell_are_read_like_any_other(address: RegistryAddress, client: ZooKeeperRegistry) -> None:
    client.commit(
        DESIRED("tweets").create(Desired(state="running", version=1)),
        DESIRED("orders").create(Desired(state="running", version=1)),
        LIMIT("tweets").create(Limit(rows_per_s=5)),
    )
    root = address.root
    commands = (
        f'set -v 0 {root}/flows/tweets/desired \'{{"state": "paused", "version": 1, "why": "by hand"}}\'',
        f"set -v 7 {root}/limits/tweets '{{\"rows_per_s\": 9}}'",
        f"set {root}/flows/orders/desired '{{state: paused'",
        f'create {root}/flows/tweets/note \'{{"text": "unknown to all"}}\'',
    )
    said = shell(address, commands=commands)
    assert "version No is not valid" in said, said
    client.sync()
    valid = read_record(client, DESIRED("tweets"))
    assert isinstance(valid, Stored)
    assert valid.record == Desired(state="paused", version=1)
    client.commit(valid.replace(Desired(state="running", version=1)))
    there = client.read(DESIRED("tweets").path)
    assert isinstance(there, RegistryEntry)
    assert there.value["why"] == "by hand"
    assert client.children("flows/tweets") == ("desired", "note")

    unchanged = read_record(client, LIMIT("tweets"))
    assert isinstance(unchanged, Stored)
    assert unchanged.record == Limit(rows_per_s=5), "the shell's version was not the record's"

    invalid = read_record(client, DESIRED("orders"))
    assert isinstance(invalid, Damaged)
    assert invalid.raw == b"{state: paused"
    set_aside(client, invalid)
    assert read_record(client, DESIRED("orders")) is None


def test_what_another_login_writes_with_the_shell_is_refused_by_zookeeper(address: RegistryAddress, client: ZooKeeperRegistry) -> None:
    client.commit(LIMIT("tweets").create(Limit(rows_per_s=5)))
    assert "Insufficient permission" in shell(address, "set", f"{address.root}/limits/tweets", "{}")
    unchanged = read_record(client, LIMIT("tweets"))
    assert isinstance(unchanged, Stored)
    assert unchanged.record == Limit(rows_per_s=5)

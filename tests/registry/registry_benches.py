"""The two registries as the conformance suite drives them: clients, cut connections, time, other people's bytes."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.core.secret import Secret
from scribengin.registry.access import DigestLogin, RegistryAddress
from scribengin.registry.contract import ANYONE, Grant, May, Registry, Unsettled
from scribengin.registry.memory import MemoryRegistry, MemoryStore
from scribengin.registry.zookeeper import ZooKeeperRegistry, open_zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.embedded.zookeeper import ZooKeeper
    from scribengin.registry.contract import Write

DEADLINE_S = 90.0
SHORT_S = 4.0
"""a session's time, for tests that wait until it is over"""
LONG_S = 60.0
"""a session's time, for tests in which it must not be over"""
LOGIN = DigestLogin(Secret("masters:sesame", "${secret:env/MASTERS}"))
WORKER = DigestLogin(Secret("tweets-edge:open", "${secret:env/WORKER}"))
STRANGER = DigestLogin(Secret("masters:guess", "${secret:env/STRANGER}"))
READABLE = Grant(ANYONE, May.READ)


def until(true: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Ask until it is true."""
    end = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)


class Bench(Protocol):
    """One registry, empty, whose root the login LOGIN may do all to and everybody may read."""

    def client(self, login: DigestLogin = LOGIN, session_s: float = LONG_S) -> Registry: ...

    def cut(self, client: Registry) -> None:
        """Until the session is SUSPENDED."""

    def mend(self, client: Registry) -> None: ...

    def outlast(self, client: Registry) -> None:
        """Let more time pass than the session of a client that is cut off has; its ephemeral records are gone then."""

    def expire(self, client: Registry) -> None:
        """End its session behind its back, until it has a new one."""

    def write_raw(self, path: str, data: bytes) -> None: ...

    def commit_unanswered(self, client: Registry, *writes: Write) -> None:
        """Do that commit, break the connection before its answer, and let the client come back."""

    def close(self) -> None: ...


class MemoryBench:
    def __init__(self) -> None:
        self.store = MemoryStore(grants=(Grant(LOGIN.who, May.ALL), READABLE))
        self.clients: list[MemoryRegistry] = []

    def client(self, login: DigestLogin = LOGIN, session_s: float = LONG_S) -> MemoryRegistry:
        self.clients.append(self.store.client(login.who))
        return self.clients[-1]

    def cut(self, client: Registry) -> None:
        assert isinstance(client, MemoryRegistry)
        client.cut()

    def mend(self, client: Registry) -> None:
        assert isinstance(client, MemoryRegistry)
        client.mend()

    def outlast(self, client: Registry) -> None:
        self.store.advance(self.store.session_s)

    def expire(self, client: Registry) -> None:
        assert isinstance(client, MemoryRegistry)
        self.store.expire(client)

    def write_raw(self, path: str, data: bytes) -> None:
        self.store.write_raw(path, data)

    def commit_unanswered(self, client: Registry, *writes: Write) -> None:
        assert isinstance(client, MemoryRegistry)
        client.mute()
        with suppress(Unsettled):
            client.commit(*writes)
            raise AssertionError("it was answered")
        client.mend()

    def close(self) -> None:
        for client in self.clients:
            client.close()


class Wire:
    """A TCP proxy before one server: cut and mended, or made to keep the server's answers."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.passes = True
        self.mute = False
        self.silent: list[socket.socket] | None = None
        """connections that are taken and never answered, where it is a list"""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self.passes = False
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.mute = False
        self.passes = True

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.silent is not None:
                    self.silent.append(near)
                    continue
                if not self.passes:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._open |= {near, far}
                threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not (answers and self.mute):
                    target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        if answers:
            with self._lock:
                self._open -= {source, target}
            source.close()
            target.close()


_ROOTS = itertools.count(1)


class ZooKeeperBench:
    def __init__(self, server: ZooKeeper) -> None:
        self.port = int(server.address.rpartition(":")[2])
        self.root = f"/tests/bench{next(_ROOTS)}"
        self.wires: dict[int, Wire] = {}
        self.clients: list[ZooKeeperRegistry] = []
        self.other = self.client()

    def client(self, login: DigestLogin = LOGIN, session_s: float = LONG_S) -> ZooKeeperRegistry:
        wire = Wire(self.port)
        address = RegistryAddress((f"127.0.0.1:{wire.port}",), self.root)
        client = open_zookeeper(address, login=login, grants=(READABLE,), session_s=session_s, wait_s=DEADLINE_S)
        self.wires[id(client)] = wire
        self.clients.append(client)
        return client

    def cut(self, client: Registry) -> None:
        self.wires[id(client)].cut()
        until(lambda: client.session().link.value == "suspended", "suspended")

    def mend(self, client: Registry) -> None:
        self.wires[id(client)].mend()
        until(lambda: client.session().link.value == "connected", "connected")

    def outlast(self, client: Registry) -> None:
        session = client.session().id
        until(lambda: client.session().left_s <= 0, "the session's time is over")
        until(lambda: not self._ephemerals(session), "the session is over")

    def expire(self, client: Registry) -> None:
        assert isinstance(client, ZooKeeperRegistry)
        session = client.session().id
        kazoo = client._zookeeper._client
        from kazoo.client import KazooClient

        twin = KazooClient(f"127.0.0.1:{self.port}", client_id=kazoo.client_id)
        twin.start(timeout=DEADLINE_S)
        twin.stop()
        twin.close()
        until(lambda: client.session().id not in (0, session), "another session")

    def write_raw(self, path: str, data: bytes) -> None:
        kazoo, place = self.other._zookeeper._client, f"{self.root}/{path}"
        if kazoo.exists(place):
            kazoo.set(place, data)
        else:
            from kazoo.security import OPEN_ACL_UNSAFE

            kazoo.create(place, data, acl=OPEN_ACL_UNSAFE)

    def commit_unanswered(self, client: Registry, *writes: Write) -> None:
        wire = self.wires[id(client)]
        before = self.other.sync()
        failed: list[BaseException] = []

        def commit() -> None:
            try:
                client.commit(*writes)
            except BaseException as error:
                failed.append(error)

        assert isinstance(client, ZooKeeperRegistry)
        transact = client._zookeeper.transact

        def mute(steps: Any) -> Any:  # what a commit asks before, folders and rights, must be answered
            wire.mute = True
            return transact(steps)

        client._zookeeper.transact = mute  # type: ignore[method-assign]
        thread = threading.Thread(target=commit)
        thread.start()
        until(lambda: self.other.sync() > before, "the commit takes effect")
        wire.cut()
        thread.join(DEADLINE_S)
        client._zookeeper.transact = transact  # type: ignore[method-assign]
        assert [type(one) for one in failed] == [Unsettled], failed
        self.mend(client)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for wire in self.wires.values():
            wire.close()

    def _ephemerals(self, session: int) -> bool:
        paths = [""]
        while paths:
            path = paths.pop()
            found = self.other.read(path)
            if found is not None and found.session == session:
                return True
            paths += [f"{path}/{name}".lstrip("/") for name in self.other.children(path)]
        return False

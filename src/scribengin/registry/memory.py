"""The registry in memory, for tests: any number of clients on one store. A test cuts connections and advances the time. Nothing happens
automatically: `MemoryStore.advance` is the clock, and a watch's `wake` runs in the thread that made the change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from threading import RLock
from typing import TYPE_CHECKING

from scribengin.core.errors import Unreachable
from scribengin.registry.contract import (
    ANYONE,
    CommittedWrite,
    Conflict,
    Create,
    Damaged,
    Delete,
    Forbidden,
    Grant,
    May,
    RegistryEntry,
    RegistrySession,
    Replace,
    Require,
    SessionState,
    Unsettled,
    check_path,
    distinct,
    fence_of,
    is_below,
    parent_of,
    refusal,
    shown,
)
from scribengin.registry.record_io import data_of, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scribengin.registry.contract import Term, Write

_OPEN = (Grant(ANYONE, May.ALL),)


@dataclass(frozen=True, slots=True)
class _Node:
    data: bytes
    version: int
    made: int
    changed: int
    session: int
    grants: tuple[Grant, ...]
    numbered: int = 0
    """the number of numbered children that were created in it"""


class _Tree:
    """The records of a store, and the names below each path: a read or a write costs the same in a store of any size."""

    def __init__(self, nodes: Mapping[str, _Node]) -> None:
        self.nodes: dict[str, _Node] = {}
        self._names: dict[str, set[str]] = {}
        self.change(nodes)

    def change(self, changes: Mapping[str, _Node | None]) -> None:
        """Put the records; None removes one."""
        for path, node in changes.items():
            above, _, name = path.rpartition("/")
            if node is None:
                self.nodes.pop(path, None)
                self._names.get(above, set()).discard(name)
                continue
            self.nodes[path] = node
            if path:
                self._names.setdefault(above, set()).add(name)

    def names(self, path: str) -> set[str]:
        """The names one level below."""
        return self._names.get(path, set())


class _Changes:
    """What a commit has changed so far in a tree, which stays as it is until the commit succeeds."""

    def __init__(self, tree: _Tree) -> None:
        self._tree = tree
        self.made: dict[str, _Node | None] = {}
        """path → its new record; None if it is removed"""

    def get(self, path: str) -> _Node | None:
        """The record as the commit has left it."""
        return self.made[path] if path in self.made else self._tree.nodes.get(path)

    def is_empty(self, path: str) -> bool:
        """True if there is nothing below the path."""
        made = {one.rpartition("/")[2] for one, node in self.made.items() if node is not None and one and parent_of(one) == path}
        return not made and all(f"{path}/{name}" in self.made for name in self._tree.names(path))


class MemoryStore:
    """The state shared by all clients. `grants` are the access rights at the root; a session lives `session_s` seconds without contact."""

    def __init__(self, *, grants: tuple[Grant, ...] = _OPEN, session_s: float = 10.0) -> None:
        self.session_s = session_s
        self.now_s = 0.0
        self.revision = 1
        self.tree = _Tree({"": _Node(b"", 0, 1, 1, 0, grants)})
        self.lock = RLock()
        self._clients: list[MemoryRegistry] = []
        self._sessions = 0

    @property
    def nodes(self) -> Mapping[str, _Node]:
        """The records by path, with their folders."""
        return self.tree.nodes

    def client(self, who: str = ANYONE) -> MemoryRegistry:
        """A new connected client, with the access rights of `who` in addition to those of every client."""
        return MemoryRegistry(self, frozenset({ANYONE, who}))

    def advance(self, seconds: float) -> None:
        """Advance the time. Sessions of clients that are cut off expire, and their ephemeral records are removed."""
        with self.lock:
            self.now_s += seconds
            over = [client for client in self._clients if not client.stay_in_touch()]
        for client in over:
            self.expire(client)

    def expire(self, client: MemoryRegistry) -> None:
        """End a client's session, as a server does. A connected client sees it at once, others when they reconnect."""
        self._remove_of(client.session().id)
        client.notice_end()

    def write_raw(self, path: str, data: bytes) -> None:
        """Write bytes at the path of a record, as an operator with ZooKeeper's shell can."""
        with self.lock:
            node = self.nodes.get(path)
            new = self.revision + 1
            grants = self.nodes[parent_of(path)].grants
            changed = (
                _Node(data, 0, new, new, 0, grants) if node is None else replace(node, data=data, version=node.version + 1, changed=new)
            )
            self.apply({path: changed}, {path, parent_of(path)} if node is None else {path})

    def apply(self, changes: Mapping[str, _Node | None], changed: Iterable[str]) -> None:
        """Make the changes, under the next revision, and wake the watches of the changed paths. None removes a record."""
        paths = frozenset(changed)
        with self.lock:
            records = frozenset(path for path in paths if path in changes)
            self.tree.change(changes)
            self.revision += 1
            clients = tuple(self._clients)
        for client in clients:
            client.wake(paths, records)

    def join(self, client: MemoryRegistry) -> int:
        """Open a session; returns its id."""
        with self.lock:
            if client not in self._clients:
                self._clients.append(client)
            self._sessions += 1
            return self._sessions

    def leave(self, client: MemoryRegistry) -> None:
        """End the session of a closed client."""
        with self.lock:
            self._clients.remove(client)
        self._remove_of(client.session().id)

    def _remove_of(self, session: int) -> None:
        gone = {path for path, node in self.nodes.items() if session and node.session == session}
        if gone:
            self.apply(dict.fromkeys(gone), gone | {parent_of(path) for path in gone})


@dataclass(eq=False, slots=True)
class _MemoryWatch:
    client: MemoryRegistry
    path: str
    wake: Callable[[], None]

    def close(self) -> None:
        self.client.watches.discard(self)


@dataclass(eq=False, slots=True)
class _MemoryWatchBelow:
    client: MemoryRegistry
    path: str
    wake: Callable[[str | None], None]

    def close(self) -> None:
        self.client.watches_below.discard(self)


@dataclass(eq=False)
class MemoryRegistry:
    """A client of a MemoryStore: `registry.contract.Registry`, and the faults that a test can cause."""

    store: MemoryStore
    who: frozenset[str]
    watches: set[_MemoryWatch] = field(default_factory=set)
    watches_below: set[_MemoryWatchBelow] = field(default_factory=set)
    _cut: bool = False
    _mute: bool = False
    _lag: bool = False
    _closed: bool = False
    _id: int = 0
    _over: bool = False
    """the session has ended at the store, which this client has not noticed yet"""
    _contact_s: float = 0.0

    def __post_init__(self) -> None:
        self._begin()

    def cut(self) -> None:
        """Cut the connection, so that the session's state is SUSPENDED."""
        self._cut = True
        self.wake()

    def mend(self) -> None:
        """Restore the connection: CONNECTED again, in a new session if the old one has ended meanwhile."""
        self._cut = False
        if self._over:
            self._id = 0
            self.wake()
            self._begin()
        self.stay_in_touch()
        self.wake()

    def mute(self) -> None:
        """Cut the connection after the next commit, before its answer: it takes effect, but the client does not learn that."""
        self._mute = True

    def lag(self) -> None:
        """From now on read the present state, like a client of a server that is behind, until the next `sync` or commit of this client."""
        with self.store.lock:
            self._seen, self._revision, self._lag = _Tree(self.store.nodes), self.store.revision, True

    def read(self, path: str) -> RegistryEntry | Damaged | None:
        """Read one record; see `Registry.read`."""
        check_path(path)
        with self.store.lock:
            self._reach()
            node = self._seen.nodes.get(path)
            if node is None:
                return None
            self._need(May.READ, path, node)
            value = decode(node.data)
            if isinstance(value, str):
                return Damaged(path, node.data, value, node.version, node.changed, node.session)
            return RegistryEntry(path, value, node.version, node.made, node.changed, node.session, self._revision)

    def read_many(self, paths: Sequence[str]) -> list[RegistryEntry | Damaged | None]:
        """Read records; see `Registry.read_many`."""
        return [self.read(path) for path in paths]

    def children_many(self, paths: Sequence[str]) -> list[tuple[str, ...]]:
        """The names below each path; see `Registry.children_many`."""
        return [self.children(path) for path in paths]

    def children(self, path: str) -> tuple[str, ...]:
        """The names one level below; see `Registry.children`."""
        check_path(path)
        with self.store.lock:
            self._reach()
            if path not in self._seen.nodes:
                return ()
            self._need(May.READ, path, self._seen.nodes[path])
            return tuple(sorted(self._seen.names(path)))

    def commit(self, *writes: Write, term: Term | None = None) -> CommittedWrite:
        """Do all writes or none; see `Registry.commit`."""
        distinct(writes)
        with self.store.lock:
            data = data_of(writes)
            self._reach()
            self._seen, self._revision, self._lag = self.store.tree, self.store.revision, False
            changes = _Changes(self.store.tree)
            changed: set[str] = set()
            if term is not None:
                fence = changes.get(fence_of(term.right))
                if fence is None or fence.version != term.fence or changes.get(term.right) is None:
                    raise refusal(term)
            paths = tuple(self._apply(changes, changed, write, data[number]) for number, write in enumerate(writes))
            if changed:
                self.store.apply(changes.made, changed)
            self._revision = self.store.revision
            revision = self._revision
        if self._mute:
            self._mute = False
            self.cut()
            raise Unsettled("the connection broke while a commit was under way", remedy="read the records to see whether it took effect")
        return CommittedWrite(revision, paths)

    def sync(self, *, at_least: int | None = None) -> int:
        """Read the newest state from now on; see `Registry.sync`."""
        with self.store.lock:
            self._reach()
            if at_least is None or self._revision < at_least:
                self._seen, self._revision, self._lag = self.store.tree, self.store.revision, False
            return self._revision

    def watch(self, path: str, wake: Callable[[], None]) -> _MemoryWatch:
        """Watch a path; see `Registry.watch`."""
        check_path(path)
        watch = _MemoryWatch(self, path, wake)
        self.watches.add(watch)
        return watch

    def watch_below(self, path: str, wake: Callable[[str | None], None]) -> _MemoryWatchBelow:
        """Watch a path and all below it; see `Registry.watch_below`."""
        check_path(path)
        watch = _MemoryWatchBelow(self, path, wake)
        self.watches_below.add(watch)
        return watch

    def session(self) -> RegistrySession:
        """The session at this moment; see `Registry.session`."""
        if self._closed or not self._id:
            return RegistrySession(self._id, SessionState.LOST, 0.0)
        left_s = self._contact_s + self.store.session_s - self.store.now_s
        return RegistrySession(self._id, SessionState.SUSPENDED if self._cut else SessionState.CONNECTED, left_s)

    def close(self) -> None:
        """End the session; see `Registry.close`."""
        if not self._closed:
            self.store.leave(self)
            self._closed = True
            self.wake()

    def stay_in_touch(self) -> bool:
        """Renew the session, as a connected client always does. Returns False if it is cut off and its session has expired."""
        if not self._cut:
            self._contact_s = self.store.now_s
        return self._over or self.store.now_s - self._contact_s < self.store.session_s

    def notice_end(self) -> None:
        """Called when the store has ended the session."""
        self._over = True
        if not self._cut:
            self.mend()

    def wake(self, paths: frozenset[str] | None = None, records: Iterable[str] = ()) -> None:
        """Wake the watches of the paths, and those of folders above them; without paths, all."""
        if paths is not None and self._cut:
            return  # a client that is cut off gets no notification; `mend` wakes all
        for watch in tuple(self.watches):
            if paths is None or watch.path in paths:
                watch.wake()
        for below in tuple(self.watches_below):
            if paths is None:
                below.wake(None)
            for path in sorted(records):
                if is_below(path, below.path):
                    below.wake(path)

    def _begin(self) -> None:
        self._id, self._over, self._contact_s = self.store.join(self), False, self.store.now_s
        self._seen, self._revision = self.store.tree, self.store.revision

    def _reach(self) -> None:
        if self._closed:
            raise Unreachable("this client of the registry was closed", code="registry-closed")
        if self._cut:
            raise Unreachable("the registry does not answer: cut off", remedy="the client keeps retrying")
        if not self._lag:
            self._seen, self._revision = self.store.tree, self.store.revision

    def _need(self, right: May, path: str, node: _Node) -> None:
        if not any(right in grant.may for grant in node.grants if grant.who in self.who):
            raise Forbidden(
                f"{shown(path)}: this client has no right to {str(right.name).lower()}", remedy="use a login that has this right"
            )

    def _apply(self, changes: _Changes, changed: set[str], write: Write, data: bytes) -> str:
        check_path(write.path)
        new = self.store.revision + 1
        match write:
            case Create():
                return self._create(changes, changed, write, data)
            case Replace(was):
                node = self._there(changes, write.path, was.version)
                self._need(May.WRITE, write.path, node)
                changes.made[write.path] = replace(node, data=data, version=node.version + 1, changed=new)
                changed.add(write.path)
            case Delete():
                self._there(changes, write.path, write.version)
                above = parent_of(write.path)
                self._need(May.DELETE, above, self._there(changes, above, None))
                if not changes.is_empty(write.path):
                    raise Conflict(write.path, "has records below it")
                changes.made[write.path] = None
                changed |= {write.path, above}
            case Require():
                self._need(May.READ, write.path, self._there(changes, write.path, write.version))
        return write.path

    def _create(self, changes: _Changes, changed: set[str], write: Create, data: bytes) -> str:
        new, above, path = self.store.revision + 1, parent_of(write.path), write.path
        if changes.get(above) is None:
            self._create(changes, changed, Create(above, {}), b"")
        folder = self._there(changes, above, None)
        self._need(May.CREATE, above, folder)
        self._need(May.ADMIN, above, folder)
        if folder.session:
            raise Conflict(above, "is ephemeral and cannot have records below it")
        if write.numbered:
            path += f"{folder.numbered:010d}"
            changes.made[above] = replace(folder, numbered=folder.numbered + 1)
        if changes.get(path) is not None:
            raise Conflict(path, "exists already")
        changes.made[path] = _Node(data, 0, new, new, self._id if write.ephemeral else 0, (*folder.grants, *write.grants))
        changed |= {path, above}
        return path

    @staticmethod
    def _there(changes: _Changes, path: str, version: int | None) -> _Node:
        node = changes.get(path)
        if node is None:
            raise Conflict(path, "does not exist")
        if version is not None and node.version != version:
            raise Conflict(path, f"was changed in the meantime: it has version {node.version}, not {version}")
        return node

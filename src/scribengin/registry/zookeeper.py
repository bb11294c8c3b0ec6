"""The registry on ZooKeeper, in terms of the contract: a record is a node, a commit a transaction, a revision a zxid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import Refused
from scribengin.registry.access import check_root
from scribengin.registry.contract import (
    ANYONE,
    CommittedWrite,
    Conflict,
    Create,
    Damaged,
    Forbidden,
    Grant,
    May,
    RegistryEntry,
    Require,
    check_path,
    distinct,
    fence_of,
    parent_of,
    refusal,
    shown,
)
from scribengin.registry.record_io import data_of, decode
from scribengin.registry.watches import Wakes
from scribengin.registry.zookeeper_session import Cause, Failed, ZooKeeperSession
from scribengin.registry.zookeeper_wire import WireWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.registry.access import Login, RegistryAddress, Tls
    from scribengin.registry.contract import RegistrySession, RegistryWatch, Term, Write
    from scribengin.registry.zookeeper_wire import WireNode

_TRIES = 20
"""tries of a commit whose folders other clients create or remove at the same time"""
_WORDS = {
    Cause.VERSION: "was changed in the meantime",
    Cause.PRESENT: "exists already",
    Cause.ABSENT: "does not exist",
    Cause.CHILDREN: "has records below it",
    Cause.EPHEMERAL: "is ephemeral and cannot have records below it",
}


def open_zookeeper(
    address: RegistryAddress,
    *,
    login: Login | None = None,
    tls: Tls | None = None,
    grants: tuple[Grant, ...] = (),
    session_s: float = 10.0,
    wait_s: float = 15.0,
    insecure: bool = False,
) -> ZooKeeperRegistry:
    """Open a connected client. If the root does not exist it is created, with all access rights for this login.

    Args:
        address: the servers and the root.
        login: the login; None: none.
        tls: the TLS settings; None: no TLS.
        grants: further access rights on a root that is created.
        session_s: the lifetime of the session without contact, in seconds; servers have limits of their own.
        wait_s: the most seconds to wait for the connection.
        insecure: allow a registry that every client may write.

    Raises:
        Unreachable: no server answered in time.
        Forbidden: the login was rejected.
        Refused: every client may write, and `insecure` is False.
    """
    registry = ZooKeeperRegistry(address, login, tls, session_s)
    try:
        registry.begin(wait_s)
        registry.prepare_root(grants, logged_in=login is not None or bool(tls and tls.certificate), insecure=insecure)
    except BaseException:
        registry.close()
        raise
    return registry


class ZooKeeperRegistry:
    """A client of the registry on ZooKeeper: `registry.contract.Registry`. Opened by `open_zookeeper`."""

    def __init__(self, address: RegistryAddress, login: Login | None, tls: Tls | None, session_s: float) -> None:
        self.address = address
        self._wakes = Wakes(self._arm)
        self._zookeeper = ZooKeeperSession(address, login, tls, session_s, self._wakes.all, self._changed)

    def begin(self, wait_s: float) -> None:
        """Connect. Raises Unreachable if no server answers in time, Forbidden if the login is rejected."""
        self._wakes.start()
        self._zookeeper.begin(wait_s)

    def prepare_root(self, grants: tuple[Grant, ...], *, logged_in: bool, insecure: bool) -> None:
        """Create the root if it is missing, and check which clients may change it.

        Args:
            grants: further access rights on a root that is created.
            logged_in: this client has a login, to which a root that is created belongs.
            insecure: allow a registry that every client may write.

        Raises:
            Refused: every client may write, and `insecure` is False.
        """
        names = self.address.root.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            place = "/" + "/".join(names[:depth])
            if not self._zookeeper.exists(place):
                if not logged_in and not insecure:
                    raise Refused(
                        f"{self.address} does not exist; created without a login, any client that reaches it could change it",
                        remedy="give a login, or allow open access (insecure)",
                        code="registry-open",
                    )
                self._zookeeper.make(place, None if logged_in else (Grant(ANYONE, May.ALL),), grants)
        check_root(self.address, self._zookeeper.grants(self.address.root) or (), insecure=insecure)
        self.read("")

    def read(self, path: str) -> RegistryEntry | Damaged | None:
        """Read one record; see `Registry.read`."""
        place, before = self._place(path), self._zookeeper.reached()
        return _value(path, self._zookeeper.get(place), before)

    def read_many(self, paths: Sequence[str]) -> list[RegistryEntry | Damaged | None]:
        """Read records; see `Registry.read_many`."""
        places, before = [self._place(path) for path in paths], self._zookeeper.reached()
        return [_value(path, node, before) for path, node in zip(paths, self._zookeeper.get_many(places), strict=True)]

    def children(self, path: str) -> tuple[str, ...]:
        """The names one level below; see `Registry.children`."""
        return tuple(sorted(self._zookeeper.children(self._place(path))))

    def children_many(self, paths: Sequence[str]) -> list[tuple[str, ...]]:
        """The names below each path; see `Registry.children_many`."""
        return [tuple(sorted(names)) for names in self._zookeeper.children_many([self._place(path) for path in paths])]

    def commit(self, *writes: Write, term: Term | None = None) -> CommittedWrite:
        """Do all writes or none; see `Registry.commit`."""
        distinct(writes)
        data = data_of(writes)
        checks = [] if term is None else [Require(fence_of(term.right), term.fence), Require(term.right)]
        if not writes and not checks:
            return CommittedWrite(self.sync(), ())
        for _ in range(_TRIES):
            folders = [Create(path, {}) for path in self._lacking(writes)]
            all_writes: list[Write] = [*checks, *folders, *writes]
            before = len(checks) + len(folders)
            try:
                places = self._zookeeper.transact(self._steps(all_writes, [b""] * before + data))
            except _Vanished:
                continue
            except Failed as failed:
                write = all_writes[failed.number]
                if term is not None and failed.number < len(checks) and failed.cause in (Cause.ABSENT, Cause.VERSION):
                    raise refusal(term) from failed
                raced = failed.cause is Cause.ABSENT or (failed.cause is Cause.PRESENT and failed.number < before)
                if isinstance(write, Create) and raced:
                    continue
                raise _explained(write, failed.cause) from failed
            return CommittedWrite(self._zookeeper.reached(), tuple(self._path(place) for place in places[before:]))
        raise Conflict(parent_of(writes[0].path), f"was created and removed by other clients at each of {_TRIES} tries")

    def sync(self, *, at_least: int | None = None) -> int:
        """Wait until earlier commits are visible; see `Registry.sync`."""
        if at_least is None or self._zookeeper.reached() < at_least:
            self._zookeeper.sync()
        return self._zookeeper.reached()

    def watch(self, path: str, wake: Callable[[], None]) -> RegistryWatch:
        """Watch a path; see `Registry.watch`."""
        check_path(path)
        return self._wakes.add(path, wake)

    def watch_below(self, path: str, wake: Callable[[str | None], None]) -> RegistryWatch:
        """Watch a path and all below it; see `Registry.watch_below`."""
        check_path(path)
        return self._wakes.add_below(path, wake)

    def session(self) -> RegistrySession:
        """The session at this moment; see `Registry.session`."""
        return self._zookeeper.standing()

    def close(self) -> None:
        """End the session; see `Registry.close`."""
        self._zookeeper.close()
        self._wakes.close()

    def _lacking(self, writes: Sequence[Write]) -> list[str]:
        """The missing folders above new records, upper ones first."""
        lacking: list[str] = []
        made = {write.path for write in writes if isinstance(write, Create)}
        for write in writes:
            above, found = parent_of(write.path), list[str]()
            while isinstance(write, Create) and above and above not in made and above not in lacking:
                if self._zookeeper.exists(self._place(above)):
                    break
                found.append(above)
                above = parent_of(above)
            lacking += reversed(found)
        return lacking

    def _steps(self, writes: Sequence[Write], data: Sequence[bytes]) -> list[WireWrite]:
        steps: list[WireWrite] = []
        grants: dict[str, tuple[Grant, ...]] = {}
        for write, brought in zip(writes, data, strict=True):
            if isinstance(write, Create):
                above = parent_of(write.path)
                if above not in grants:
                    grants[above] = self._grants(above)
                grants[write.path] = (*grants[above], *write.grants)
            steps.append(WireWrite(self._place(write.path), write, brought, grants.get(write.path, ())))
        return steps

    def _grants(self, path: str) -> tuple[Grant, ...]:
        """The access rights on a record, which new records below it inherit."""
        grants = self._zookeeper.grants(self._place(path))
        if grants is None:
            raise _Vanished
        if any(grant.who.startswith("digest:") and grant.who.endswith(":x") for grant in grants):
            raise Forbidden(
                f"{shown(path)}: this client has no right to create records below it: it may not read the rights that they inherit",
                remedy="use a login that has ADMIN there",
            )
        return grants

    def _arm(self, paths: Sequence[str], below: Sequence[str]) -> tuple[set[str], set[str]]:
        armed = self._zookeeper.arm([self._place(path) for path in paths], self._fired) if paths else ()
        return {self._path(place) for place in armed}, {path for path in below if self._zookeeper.arm_below(self._place(path))}

    def _changed(self, place: str) -> None:
        self._wakes.below(self._path(place))

    def _fired(self, place: str) -> None:
        self._wakes.one(self._path(place))

    def _place(self, path: str) -> str:
        check_path(path)
        return f"{self.address.root}/{path}" if path else self.address.root

    def _path(self, place: str) -> str:
        return place.removeprefix(self.address.root).lstrip("/")


class _Vanished(Exception):
    """A folder was removed between two requests."""


def _value(path: str, node: WireNode | None, before: int) -> RegistryEntry | Damaged | None:
    """The record that was read, at revision `before` or later; None if it does not exist."""
    if node is None:
        return None
    value = decode(node.data)
    if isinstance(value, str):
        return Damaged(path, node.data, value, node.version, node.changed, node.session)
    return RegistryEntry(path, value, node.version, node.made, node.changed, node.session, max(before, node.changed))


def _explained(write: Write, cause: Cause) -> Conflict | Forbidden:
    match cause:
        case Cause.RIGHTS:
            return Forbidden(f"{shown(write.path)}: this client has no right to do that", remedy="use a login that has this right")
        case Cause.GRANTS:
            return Forbidden(
                f"{shown(write.path)}: the rights name a login that ZooKeeper does not know",
                remedy="log in, or grant the rights to another login",
            )
    return Conflict(parent_of(write.path) if cause is Cause.EPHEMERAL else write.path, _WORDS[cause])

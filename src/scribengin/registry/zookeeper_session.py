"""A session with ZooKeeper, and typed requests in it. Only this module and the two that it uses import kazoo, which has no types.

None of kazoo's recipes is used: its Lock and Election have no Term and treat SUSPENDED as LOST, its watches do not report reconnects.
Behaviour that kazoo does not document has tests of its own on a real server: what `registry.zookeeper_wire` changes, that `last_zxid` is
set before an answer is returned, and that requests are answered in their order.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from enum import Enum
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, assert_never

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import GetChildren, GetData
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL

from scribengin.core.errors import EnvironmentFault, Unreachable
from scribengin.registry.access import DigestLogin, SaslLogin
from scribengin.registry.contract import Create, Delete, Forbidden, Grant, May, RegistrySession, Replace, Require, SessionState, Unsettled
from scribengin.registry.zookeeper_wire import (
    ReadMany,
    Told,
    WatchBelow,
    WireNode,
    acl_of,
    now_s,
    sasl_options,
    see_connections,
    see_events,
    send,
    tls_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.registry.access import Login, RegistryAddress, Tls
    from scribengin.registry.zookeeper_wire import WireWrite

_BEATS = 4
"""number of heartbeats in a session's time"""
_RECONNECT_S = 1.0
_ANSWER_S = 3.0
"""seconds for one server to accept a connection and begin a session, or a quarter of the session's time if that is more"""
_ANY = -1
"""ZooKeeper's value for any version"""
_AT_ONCE = 200
"""the most nodes that one request reads"""

_LOG = logging.getLogger("scribengin.registry.zookeeper")
_LOG.addHandler(logging.NullHandler())  # kazoo logs a warning at each try to connect; only callers that configure this logger see them
_LOG.setLevel(logging.INFO)  # at DEBUG kazoo would log passwords


class Cause(Enum):
    """Why ZooKeeper refuses a write, as kazoo's exceptions."""

    VERSION = BadVersionError
    PRESENT = NodeExistsError
    ABSENT = NoNodeError
    CHILDREN = NotEmptyError
    EPHEMERAL = NoChildrenForEphemeralsError
    RIGHTS = NoAuthError
    GRANTS = InvalidACLError


class Failed(Exception):
    """A transaction that changed nothing, because write `number` of it failed."""

    def __init__(self, number: int, cause: Cause) -> None:
        super().__init__(f"write {number}: {cause.name}")
        self.number = number
        self.cause = cause


class ZooKeeperSession:
    """A session that connects, and reconnects, until it is closed. Places are absolute paths. `wake_all` is called at each change of the
    connection, `changed` with each place that a server reports, in kazoo's threads: they must return at once."""

    def __init__(
        self,
        address: RegistryAddress,
        login: Login | None,
        tls: Tls | None,
        session_s: float,
        wake_all: Callable[[], None],
        changed: Callable[[str], None],
    ) -> None:
        self.address = address
        if isinstance(login, SaslLogin) and find_spec("puresasl") is None:
            raise EnvironmentFault("a login by SASL needs the package pure-sasl", remedy="install it: pip install 'scribengin[sasl]'")
        self._client = KazooClient(
            hosts=",".join(address.servers),
            timeout=session_s,
            auth_data=[("digest", login.secret.reveal())] if isinstance(login, DigestLogin) else [],
            sasl_options=sasl_options(login) if isinstance(login, SaslLogin) else None,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": min(_RECONNECT_S, session_s / _BEATS)},
            logger=_LOG,
            **(tls_options(tls) if tls else {}),
        )
        self._wake_all = wake_all
        self._changed = changed
        self._state = threading.Condition()
        # guarded by `_state`
        self._link = SessionState.LOST
        self._id = 0
        self._granted_s = session_s
        self._confirmed_s = 0.0
        self._fresh = True
        """no read can be older than an earlier one; False at the start of a new session"""
        self._top = 0
        self._refused = False
        self._ended = False
        """kazoo has given up, because of an unknown error"""
        self._why = ""
        """the reason why the last try to connect failed"""
        self._closed = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="registry-heart", daemon=True)

    def begin(self, wait_s: float) -> None:
        """Connect. Raises Unreachable if no server answers in time, Forbidden if the login is rejected."""
        self._client.add_listener(self._on_state)
        see_connections(self._client, self._on_granted, self._on_failed, max(_ANSWER_S, self._granted_s / _BEATS))
        see_events(self._client, self._changed)
        self._client.start_async()
        self._heart.start()
        self._wait_connected(wait_s)

    def standing(self) -> RegistrySession:
        """The session at this moment."""
        with self._state:
            left_s = self._confirmed_s + self._granted_s - now_s() if self._id else 0.0
            return RegistrySession(self._id, self._link, left_s, self.address.servers)

    def close(self) -> None:
        """End the session. Closing twice is allowed."""
        if self._closed.is_set():
            return
        self._closed.set()
        with suppress(KazooException, OSError):  # for a connection that hangs, the session ends when it expires
            self._client.stop()
            self._client.close()
        with self._state:
            self._link, self._id = SessionState.LOST, 0
            self._state.notify_all()
        if self._heart.is_alive():
            self._heart.join()

    def get(self, place: str) -> WireNode | None:
        """A node; None if it does not exist."""
        found = self._ask(lambda: self._client.get_async(place), place)
        if found is None:
            return None
        return _node(*found)

    def get_many(self, places: Sequence[str]) -> list[WireNode | None]:
        """The nodes, in their order; None for one that does not exist."""
        found = self._ask_many([GetData(place, None) for place in places])
        return [None if each is None else _node(*each) for each in found]

    def children_many(self, places: Sequence[str]) -> list[tuple[str, ...]]:
        """The names below each node; empty if it does not exist."""
        return [tuple(each or ()) for each in self._ask_many([GetChildren(place, None) for place in places])]

    def children(self, place: str) -> tuple[str, ...]:
        """The names below a node; empty if it does not exist."""
        return tuple(self._ask(lambda: self._client.get_children_async(place), place) or ())

    def exists(self, place: str) -> bool:
        """True if the node exists; this needs no access right."""
        return self._ask(lambda: self._client.exists_async(place)) is not None

    def grants(self, place: str) -> tuple[Grant, ...] | None:
        """The access rights on a node; None if it does not exist. Without ADMIN there, hashes are shown as `x`."""
        found = self._ask(lambda: self._client.get_acls_async(place), place)
        return None if found is None else tuple(Grant(f"{acl.id.scheme}:{acl.id.id}", May(acl.perms)) for acl in found[0])

    def make(self, place: str, grants: tuple[Grant, ...] | None, more: tuple[Grant, ...]) -> None:
        """Create a node if it does not exist.

        Args:
            place: its path.
            grants: its access rights; None: all for this login.
            more: further access rights.
        """
        acl = [*(CREATOR_ALL_ACL if grants is None else acl_of(grants)), *acl_of(more)]
        with suppress(NodeExistsError):
            self._ask_once(lambda: self._client.create_async(place, b"", acl), place)

    def transact(self, steps: Sequence[WireWrite]) -> list[str]:
        """Do all writes or none. Returns the place of each, in order. Raises Failed, or Unsettled if the answer was lost."""
        transaction = self._client.transaction()
        for step in steps:
            match step.write:
                case Create(ephemeral=ephemeral, numbered=numbered):
                    transaction.create(step.place, step.data, acl_of(step.grants), ephemeral, numbered)
                case Replace(was):
                    transaction.set_data(step.place, step.data, was.version)
                case Delete(version=version):
                    transaction.delete(step.place, _ANY if version is None else version)
                case Require(version=version):
                    transaction.check(step.place, _ANY if version is None else version)
                case _:
                    assert_never(step.write)
        self._wait_connected(self._granted_s)
        session = self._id
        try:
            results = transaction.commit_async().get(timeout=self._granted_s)
        except (ConnectionLoss, SessionExpiredError, KazooTimeoutError) as error:
            raise Unsettled(
                f"the connection to {self.address} broke during a commit: it is not known whether the commit took effect",
                remedy="read the records with this client to see whether it did",
            ) from error
        except KazooException as error:
            raise self._explained(error) from error
        for number, result in enumerate(results):
            # ZooKeeper reports writes before the failed one as rolled back, and those after it as inconsistent
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                raise self._failed(number, result) from result
        self._note_fresh(session)  # a server that has done this write has done all earlier ones
        return [result if isinstance(result, str) else step.place for result, step in zip(results, steps, strict=True)]

    def sync(self) -> None:
        """Wait until the server has everything that was committed before, on any server. The guarantee is that of ZooKeeper's sync: a
        leader that is cut off from its quorum still answers until it notices that."""
        session = self._id
        self._ask_once(lambda: self._client.sync_async(self.address.root))
        self._note_fresh(session)

    def reached(self) -> int:
        """The zxid that later reads reach at least. kazoo forgets it at the end of a session, this class does not."""
        if not self._fresh:
            self.sync()
        with self._state:
            self._top = max(self._top, int(self._client.last_zxid))
            return self._top

    def arm(self, places: Sequence[str], fired: Callable[[str], None]) -> set[str]:
        """Request one notification of the next change of each node or its children: `fired(place)`. Returns the places for which that
        succeeded."""
        if self.standing().link is not SessionState.CONNECTED:
            return set()
        told = Told(fired)
        asked = [(place, self._client.exists_async(place, told), self._client.get_children_async(place, told)) for place in places]
        armed = set()
        with suppress(KazooException, KazooTimeoutError):
            for place, node, children in asked:
                node.get(timeout=self._granted_s)
                with suppress(NoNodeError, NoAuthError):
                    children.get(timeout=self._granted_s)
                armed.add(place)
        return armed

    def arm_below(self, place: str) -> bool:
        """Request a notification of each change at the node and below it, while this connection lasts. Returns True if that succeeded."""
        if self.standing().link is not SessionState.CONNECTED:
            return False
        with suppress(KazooException, KazooTimeoutError):
            send(self._client, WatchBelow(place)).get(timeout=self._granted_s)
            return True
        return False

    # --- the first three run in kazoo's threads, and must not wait for a server

    def _on_state(self, state: str) -> None:
        with self._state:
            if state == KazooState.SUSPENDED:
                self._link = SessionState.SUSPENDED
            elif state == KazooState.LOST:
                self._link, self._id = SessionState.LOST, 0
                self._refused |= self._client.client_state == KeeperState.AUTH_FAILED
                self._ended = self._client.client_state == KeeperState.CLOSED
            self._state.notify_all()
        if state != KazooState.CONNECTED:  # `_on_granted` reports CONNECTED, after the login has succeeded
            self._wake_all()

    def _on_granted(self, session: int, sent_s: float, granted_s: float) -> None:
        with self._state:
            self._fresh &= session == self._id
            self._link, self._id, self._confirmed_s, self._granted_s = SessionState.CONNECTED, session, sent_s, granted_s
            self._state.notify_all()
        self._wake_all()

    def _on_failed(self, error: Exception) -> None:
        self._why = str(error)

    def _beat(self) -> None:
        while not self._closed.wait(self._granted_s / _BEATS):
            session, sent_s = self.standing(), now_s()
            if session.link is not SessionState.CONNECTED:
                continue
            with suppress(KazooException, KazooTimeoutError):
                self._client.exists_async("/").get(timeout=self._granted_s)
                with self._state:
                    if self._id == session.id:
                        self._confirmed_s = max(self._confirmed_s, sent_s)

    def _wait_connected(self, wait_s: float) -> None:
        with self._state:
            self._state.wait_for(
                lambda: self._link is SessionState.CONNECTED or self._refused or self._ended or self._closed.is_set(), wait_s
            )
            if self._closed.is_set():
                raise Unreachable(f"this client of {self.address} was closed", code="registry-closed")
            if self._refused:
                raise self._explained(AuthFailedError())
            if self._ended:
                raise Unreachable(
                    f"the connection to {self.address} has ended: {self._why}",
                    remedy="restart this process",
                    code="registry-client-ended",
                )
            if self._link is not SessionState.CONNECTED:
                raise self._silent()

    def _note_fresh(self, session: int) -> None:
        with self._state:
            self._fresh |= session == self._id

    def _ask(self, request: Callable[[], Any], place: str = "") -> Any:
        """The answer to a request; None if the node does not exist.

        The answer is never older than an earlier one: the server of a new session may be behind what was read in the old one, so it is
        synced first. The request is repeated if the session was lost meanwhile.
        """
        while True:
            if not self._fresh:
                self.sync()
            session = self._id
            answer = self._ask_once(request, place)
            if session == self._id and self._fresh:
                return answer

    def _ask_many(self, questions: Sequence[Any]) -> list[Any]:
        """The answers, in order; None for a node that does not exist. Answers of one request are of one moment; up to _AT_ONCE are in one
        request."""
        found: list[Any] = []
        for start in range(0, len(questions), _AT_ONCE):
            some = questions[start : start + _AT_ONCE]
            answers = self._ask(partial(send, self._client, ReadMany(some)))
            for question, answer in zip(some, answers, strict=True):
                if isinstance(answer, Exception) and not isinstance(answer, NoNodeError):
                    raise self._explained(answer, question.path) from answer
                found.append(None if isinstance(answer, NoNodeError) else answer)
        return found

    def _ask_once(self, request: Callable[[], Any], place: str = "") -> Any:
        """The answer to a request that may be sent twice; None if the node does not exist."""
        deadline = time.monotonic() + self._granted_s
        while True:
            self._wait_connected(max(0.0, deadline - time.monotonic()))
            try:
                return request().get(timeout=max(0.01, deadline - time.monotonic()))
            except NoNodeError:
                return None
            except (ConnectionLoss, SessionExpiredError):
                continue
            except KazooTimeoutError:
                raise self._silent() from None
            except NodeExistsError:
                raise
            except KazooException as error:
                raise self._explained(error, place) from error

    def _silent(self) -> Unreachable:
        why = f": {self._why}" if self._why and self._link is not SessionState.CONNECTED else ""
        return Unreachable(f"{self.address} does not answer{why}", remedy="the client keeps retrying; check that its servers are up")

    def _failed(self, number: int, error: Exception) -> Exception:
        cause = next((cause for cause in Cause if isinstance(error, cause.value)), None)
        return self._explained(error) if cause is None else Failed(number, cause)

    def _explained(self, error: Exception, place: str = "") -> EnvironmentFault:
        where = f"{self.address}, node {place}" if place else str(self.address)
        match error:
            case NoAuthError():
                return Forbidden(f"{where}: this client has no right to do that", remedy="use a login that has this right")
            case AuthFailedError():
                return Forbidden(f"{self.address} rejects this login", remedy="check the secret and the servers' settings")
        return EnvironmentFault(f"{where}: the answer is {type(error).__name__} {error}", code="registry-answer")


def _node(data: bytes, stat: Any) -> WireNode:
    return WireNode(data, stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)

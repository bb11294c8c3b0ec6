"""The requests and answers of a session, and logins, access rights and TLS, in the form that kazoo needs."""

from __future__ import annotations

import socket
import ssl
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    Watch,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, Id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.registry.access import SaslLogin, Tls
    from scribengin.registry.contract import Grant, Write


# Two requests of ZooKeeper 3.6 and newer that kazoo lacks: many reads at once, and a watch on everything below a node. Numbers and layouts
# are those of ZooKeeper's `zookeeper.jute` and `OpCode`. A read of many is not a transaction: each node is read separately, and one that
# does not exist or may not be read does not affect the others.


_ERROR = -1
_RECURSIVE = 1
"""a persistent watch on a node and everything below it; 0 would be on the node alone"""


@dataclass(frozen=True, slots=True)
class ReadMany:
    """`GetData`s and `GetChildren`s in one request. The answer has one result for each: (data, stat), a list of names, or an exception."""

    type: ClassVar[int] = 22
    questions: Sequence[Any]

    def serialize(self) -> bytes:
        """The request's bytes, for kazoo's connection."""
        parts = [MultiHeader(each.type, False, -1).serialize() + each.serialize() for each in self.questions]
        return b"".join((*map(bytes, parts), multiheader_struct.pack(-1, True, -1)))

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        """Decode the results in an answer, for kazoo's connection."""
        results: list[Any] = []
        header, offset = MultiHeader.deserialize(answer, offset)
        while not header.done:
            if header.type == GetData.type:
                data, offset = read_buffer(answer, offset)
                stat = ZnodeStat._make(stat_struct.unpack_from(answer, offset))
                offset += stat_struct.size
                results.append((data or b"", stat))
            elif header.type == GetChildren.type:
                (count,) = int_struct.unpack_from(answer, offset)
                offset += int_struct.size
                names = []
                for _ in range(count):
                    name, offset = read_string(answer, offset)
                    names.append(name)
                results.append(names)
            else:
                if header.type != _ERROR:
                    raise ValueError(f"an answer of type {header.type} among many")
                (code,) = int_struct.unpack_from(answer, offset)
                offset += int_struct.size
                results.append(EXCEPTIONS[code]())
            header, offset = MultiHeader.deserialize(answer, offset)
        return results


@dataclass(frozen=True, slots=True)
class WatchBelow:
    """Request a notification of each change of the node and of all below it, until this connection ends."""

    type: ClassVar[int] = 106
    path: str

    def serialize(self) -> bytes:
        """The request's bytes, for kazoo's connection."""
        return bytes(write_string(self.path)) + bytes(int_struct.pack(_RECURSIVE))

    @classmethod
    def deserialize(cls, _answer: bytes, _offset: int) -> bool:
        """Decode the answer, which is empty; always True. For kazoo's connection."""
        return True


def send(client: Any, request: ReadMany | WatchBelow) -> Any:
    """Send a request; returns kazoo's promise of the answer."""
    promise = client.handler.async_result()
    client._call(request, promise)
    return promise


def see_events(client: Any, seen: Callable[[str], None]) -> None:
    """Call `seen(place)` for each change that the server reports, in kazoo's thread, in order and before any later answer. kazoo itself
    only calls a watch at exactly that place, which a watch on everything below does not have."""
    connection = client._connection
    read = connection._read_watch_event

    def reading(event: bytes, offset: int) -> None:
        place = Watch.deserialize(event, offset)[0].path
        if place:  # empty: the session has changed, which the client's listener reports
            seen(place)
        read(event, offset)

    connection._read_watch_event = reading


# Adds the data of its connections, and a limit for each try, to kazoo's client. For `registry.zookeeper_session`.


_CLOCK = getattr(
    time, "CLOCK_BOOTTIME", None
)  # continues while the machine sleeps, as the servers' time does; macOS's monotonic clock does too


def now_s() -> float:
    """Seconds of a clock that never goes back, and continues while this process, or this machine, is suspended."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def see_connections(
    client: Any, granted: Callable[[int, float, float], None], failed: Callable[[Exception], None], within_s: float
) -> None:
    """Report each connection of kazoo's client, and limit the time of each try.

    kazoo does not expose the lifetime that the server grants; its read time-out, which its connection returns, is two thirds of it. It only
    logs why it is not connected. And it gives one server all of the session's time to answer: a server that is starting, or a host that is
    gone, would cost the session, so the next server is tried after `within_s`.

    Args:
        client: kazoo's client.
        granted: called at each connection with the session's id, the time when the connection was requested (by `now_s`), and the lifetime
            of
            the session in seconds.
        failed: called with the reason if a connection fails.
        within_s: seconds for one try.
    """
    connection, handler = client._connection, client.handler
    connect, invoke, create_connection = connection._connect, connection._invoke, handler.create_connection

    def connecting(*place: Any) -> Any:
        sent_s = now_s()
        try:
            read_ms, connect_ms = connect(*place)
        except Exception as error:
            failed(error)
            raise
        granted(client.client_id[0], sent_s, read_ms * 1.5 / 1000)
        return read_ms, connect_ms

    def create(*some: Any, timeout: float, **more: Any) -> Any:
        try:
            return create_connection(*some, timeout=min(timeout, within_s), **more)
        except ssl.SSLError as error:
            _close_sockets(error)
            raise

    connection._connect = connecting
    connection._invoke = lambda timeout, *rest, **more: invoke(min(timeout, within_s), *rest, **more)
    handler.create_connection = create


def _close_sockets(error: BaseException) -> None:
    """Close the sockets in the frames of the error's traceback: after a failed TLS handshake, kazoo leaves its connection to the garbage
    collector, one for each try."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, socket.socket):
                value.close()


@dataclass(frozen=True, slots=True)
class WireNode:
    """A node as it was read. `made` and `changed` are zxids; `session` is the owner of an ephemeral node, else 0."""

    data: bytes
    version: int
    made: int
    changed: int
    session: int


@dataclass(frozen=True, slots=True)
class WireWrite:
    """One write of a transaction, on the node at `place`, with its `data` and, for a new node, all its `grants`."""

    place: str
    write: Write
    data: bytes
    grants: tuple[Grant, ...] = ()


def acl_of(grants: Sequence[Grant]) -> list[ACL]:
    """Access rights as kazoo's ACL of a new node."""
    split = [(grant.may.value, *grant.who.split(":", 1)) for grant in grants]
    return [ACL(may, Id(scheme, name)) for may, scheme, name in split]


def sasl_options(login: SaslLogin) -> dict[str, str]:
    """A SASL login as the `sasl_options` of kazoo's client."""
    if login.secret is not None:
        user, _, password = login.secret.reveal().partition(":")
        return {"mechanism": login.mechanism, "username": user, "password": password}
    return {"mechanism": login.mechanism} | ({"principal": login.principal} if login.principal else {})


def tls_options(tls: Tls) -> dict[str, Any]:
    """TLS settings as options of kazoo's client."""
    return {
        "use_ssl": True,
        "check_hostname": tls.check_host,
        "ca": tls.ca and str(tls.ca),
        "certfile": tls.certificate and str(tls.certificate),
        "keyfile": tls.key and str(tls.key),
        "keyfile_password": tls.key_password and tls.key_password.reveal(),
    }


class Told:
    """A callback for kazoo, called once. Equal for the same function, so that kazoo keeps one of them for a place."""

    def __init__(self, fired: Any) -> None:
        self._fired = fired

    def __call__(self, event: Any) -> None:
        """Handle kazoo's event, in kazoo's thread."""
        if event.path is not None:  # None: the connection was lost, which the session's listener reports
            self._fired(event.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and other._fired == self._fired

    def __hash__(self) -> int:
        return hash(self._fired)

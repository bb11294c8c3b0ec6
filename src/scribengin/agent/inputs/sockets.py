"""Sockets that inputs listen on: addresses, TLS, and connections that the thread of the lane reads itself.

No thread stands between a connection and its lane: what the lane does not poll stays in the kernel's buffers, and the sender waits. So the
memory of an input is bounded by one read and by one unfinished record for each connection.

What cannot be opened (a port in use, a certificate that is missing or wrong) is a message of the report, and is tried again with a growing
delay; certificates are loaded again when their files change.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scribengin.agent.inputs.line_streams import READ_BYTES
from scribengin.core.errors import EnvironmentFault
from scribengin.core.net import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOG = logging.getLogger("scribengin.agent")
MOST_CONNECTIONS = 1024
HANDSHAKE_S = 30.0
ACCEPT_AGAIN_S = 0.5
EVENT_S = 300.0
"""a fault of a connection is reported for this time"""
SOON_S = 14 * 24 * 3600.0
"""a certificate that expires within this time is reported"""


# Addresses.


@dataclass(frozen=True, slots=True)
class ListenPlace:
    """An address to listen on; port 0 is a free port that the kernel chooses."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def family(self) -> socket.AddressFamily:
        """IPv6 if the host is an address of it."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET


def listen_place(where: str, text: str, *, scheme: str, schemes: tuple[str, ...] = ()) -> ListenPlace:
    """The address that an option `listen` names.

    Args:
        where: The lane, for messages.
        text: `HOST:PORT`, or with a scheme.
        scheme: Of a text that has none.
        schemes: Those that a text may have.

    Raises:
        EnvironmentFault: The text is not a valid address.
    """
    try:
        url = urlsplit(text if "://" in text else f"{scheme}://{text}")
        host, port = url.hostname, url.port
    except ValueError:
        host, port, url = None, None, urlsplit("")
    if not host or port is None or url.path or url.scheme not in (schemes or (scheme,)):
        forms = " or ".join(f"{each}://HOST:PORT" for each in schemes) or "HOST:PORT"
        raise EnvironmentFault(f"{where}: listen: {text!r} is not a valid address; expected {forms}", remedy="correct the option `listen`")
    return ListenPlace(url.scheme, host, port)


def refuse_exposure(where: str, place: ListenPlace, *, secured: bool, insecure: bool, need: str) -> None:
    """Refuse an address that other hosts reach, unless senders must show who they are, or the options allow it.

    Args:
        where: The lane, for messages.
        place: The address.
        secured: True if senders use TLS, and show a token or a client certificate.
        insecure: The option `insecure`.
        need: What would secure it, for the remedy.

    Raises:
        EnvironmentFault: The address is refused.
    """
    if not (secured or insecure or is_loopback(place.host)):
        raise EnvironmentFault(
            f"{where}: listen: other hosts can reach {place}, and any of them could send records",
            remedy=f"{need}listen on 127.0.0.1, or set `insecure: true` if the network is trusted",
        )


# TLS.


class ServerCertificate:
    """The TLS files of a listening input: certificate, key, and the authority of client certificates; read again when they change."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._certificate = str(options.get("certificate") or "")
        self._key = str(options.get("key") or "")
        self._client_ca = str(options.get("client_ca") or "")
        self._context: ssl.SSLContext | None = None
        self._seen: tuple[int, ...] = ()
        self._checked = 0.0
        self._expires = 0.0
        self._fault = ""

    @property
    def wanted(self) -> bool:
        """True if the options name a certificate."""
        return bool(self._certificate)

    @property
    def asks_clients(self) -> bool:
        """True if a client must show a certificate."""
        return bool(self._client_ca)

    @property
    def fault(self) -> str:
        """What is wrong with the files, for people; empty if nothing is."""
        if self._fault or not self._expires:
            return self._fault
        left = self._expires - time.time()
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self._expires))
        if left <= 0:
            return f"the certificate {self._certificate} expired on {day}: clients refuse it; to fix, replace the file (it is read again)"
        if left < SOON_S:
            return f"the certificate {self._certificate} expires on {day}; to fix, replace the file (it is read again)"
        return ""

    def context(self) -> ssl.SSLContext | None:
        """The context for new connections; None if the files cannot be used, see `fault`. What worked before stays in use."""
        now = time.monotonic()
        if self._checked and now - self._checked < 1:
            return self._context
        self._checked = now
        files = [file for file in (self._certificate, self._key, self._client_ca) if file]
        try:
            seen = tuple(Path(file).stat().st_mtime_ns for file in files)
            if seen != self._seen:
                self._seen = ()
                self._context = self._load()
                self._expires = self._expiry()
                self._seen = seen
            self._fault = ""
        except (OSError, ssl.SSLError, ValueError) as error:
            self._fault = (
                f"TLS: {_named(error, files)}; to fix, correct `certificate`, `key` or `client_ca`, or the files (they are read again)"
            )
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key or None, password=_no_password)
        if self._client_ca:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _expiry(self) -> float:
        """When the certificate ends, in seconds since 1970: `ssl` tells it only of the certificate that the other side has shown."""
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(self._certificate, self._key or None, password=_no_password)
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        other.check_hostname = False
        other.verify_mode = ssl.CERT_NONE
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = own.wrap_bio(to_server, to_client, server_side=True)
        client = other.wrap_bio(to_client, to_server)
        for side in (client, server, client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        return _not_after(client.getpeercert(binary_form=True) or b"")


def _no_password() -> str:
    raise ValueError("the key is encrypted, and no agent can enter its password")


def _named(error: Exception, files: list[str]) -> str:
    """The text of an error, with the files that it may be about if it names none."""
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return text if any(file in text for file in files) else f"{', '.join(files)}: {text}"


def _not_after(der: bytes) -> float:
    """The end of the validity of a certificate in DER, in seconds since 1970; 0 if it cannot be read.

    It is the second time of the field `validity`, which follows `issuer` and comes before `subject` (RFC 5280, 4.1).
    """
    try:
        _, start, _ = _der_value(der, 0)  # Certificate
        _, at, end = _der_value(der, start)  # TBSCertificate
        fields: list[tuple[int, int, int]] = []
        while at < end:
            kind, begin, at = _der_value(der, at)
            fields.append((kind, begin, at))
        validity = fields[4 if fields[0][0] == 0xA0 else 3]
        _, _, at = _der_value(der, validity[1])
        kind, begin, at = _der_value(der, at)
        text = der[begin:at].decode("ascii").rstrip("Z")
        if kind == 0x17:
            text = ("20" if text < "50" else "19") + text
        return float(ssl.cert_time_to_seconds(time.strftime("%b %d %H:%M:%S %Y GMT", time.strptime(text, "%Y%m%d%H%M%S"))))
    except (IndexError, ValueError):
        return 0.0


def _der_value(der: bytes, at: int) -> tuple[int, int, int]:
    """The kind of the value at that place, where its content begins, and where it ends."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start], "big")
    return der[at], start, start + length


# Opening, again and again.


class RetryTimes:
    """When something that failed is tried again: after 1 s, then after twice as long each time, up to a minute."""

    def __init__(self, first_s: float = 1.0, most_s: float = 60.0) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._delay_s = 0.0
        self._at = 0.0

    def due(self) -> bool:
        """True if it is time to try."""
        return time.monotonic() >= self._at

    @property
    def left_s(self) -> float:
        """The seconds until the next try."""
        return max(0.0, self._at - time.monotonic())

    def failed(self) -> float:
        """Note a failure; returns the delay until the next try, in seconds."""
        self._delay_s = min(self._most_s, self._delay_s * 2 or self._first_s)
        self._at = time.monotonic() + self._delay_s
        return self._delay_s

    def worked(self) -> None:
        """Begin with the shortest delay at the next failure."""
        self._delay_s = self._at = 0.0


def bind(place: ListenPlace, kind: socket.SocketKind) -> socket.socket:
    """A socket at that address. Raises OSError."""
    made = socket.socket(place.family, kind)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((place.host, place.port))
    except OSError:
        made.close()
        raise
    return made


def why_not_bound(place: ListenPlace, error: OSError) -> str:
    """A failure of `bind`, for people."""
    remedies = {
        "EADDRINUSE": "end the process that has the port (see `ss -lntup`), or change `listen`",
        "EADDRNOTAVAIL": "name an address of this host in `listen`",
        "EACCES": "take a port from 1024 on, or give the agent CAP_NET_BIND_SERVICE",
    }
    remedy = remedies.get(errno.errorcode.get(error.errno or 0, ""), "correct `listen`")
    return f"cannot listen on {place}: {error.strerror or error}; to fix, {remedy} (it is tried again)"


# Connections.


@dataclass(eq=False, slots=True)
class StreamConnection:
    """A connection that is read; `sender` is the address of the other host."""

    sender: str
    channel: socket.socket
    since: float
    shaken: bool = True
    """False until the TLS handshake is done"""
    decoder: Any = None
    """what the input keeps for it"""


@dataclass(eq=False)
class StreamServer:
    """Connections over TCP or TLS, all read by the thread that calls `read`."""

    place: ListenPlace
    certificate: ServerCertificate
    most_connections: int = MOST_CONNECTIONS
    port: int = 0
    """on which it listens; 0 while it does not"""
    _listener: socket.socket | None = None
    _connections: dict[socket.socket, StreamConnection] = field(default_factory=dict)
    _ready: set[StreamConnection] = field(default_factory=set)
    """those that may have more than was read, in the kernel or in the buffers of TLS"""
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _accept_at: float = 0.0
    """when to accept connections again, after that has failed; 0: now"""
    _retry: RetryTimes = field(default_factory=RetryTimes)
    _fault: str = ""
    """why it does not listen"""
    _event: tuple[float, str] = (0.0, "")
    """the newest fault of a connection: when, and what"""

    def __post_init__(self) -> None:
        self._open()

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._connections)

    @property
    def message(self) -> str:
        """What is wrong, for people."""
        at, event = self._event
        recent = time.monotonic() - at < EVENT_S
        faults = [self._fault, self.certificate.fault if self.certificate.wanted else "", event if recent else ""]
        return "; ".join(fault for fault in faults if fault)

    def read(self, most_bytes: int) -> Iterator[tuple[StreamConnection, bytes]]:
        """What has come, about `most_bytes` at most; empty bytes mean that the connection has ended."""
        if self._listener is None:
            self._open()
        elif self._accept_at and time.monotonic() >= self._accept_at:
            self._accept_at = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)
        if self.certificate.wanted:
            self.certificate.context()
        self._select(0)
        left = most_bytes
        while self._ready and left > 0:
            ready = list(self._ready)
            share = max(4096, min(READ_BYTES, left // len(ready)))
            for each in ready:
                data = self._receive(each, share)
                if data is None:
                    self._ready.discard(each)
                    continue
                left -= len(data)
                yield each, data
                if not data:
                    self.drop(each)

    def wait(self, timeout_s: float) -> None:
        """Until something may be there, or the time is over."""
        if not self._ready:
            if self._listener is None:
                timeout_s = min(timeout_s, self._retry.left_s)
            self._select(timeout_s)

    def drop(self, connection: StreamConnection, why: str = "") -> None:
        """Close a connection.

        Args:
            connection: One of this server.
            why: For the log and the report, unless the sender has closed it.
        """
        if why:
            self._note(f"a connection of {connection.sender} was closed: {why}")
        self._ready.discard(connection)
        if self._connections.pop(connection.channel, None) is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(connection.channel)
        connection.channel.close()

    def close(self) -> None:
        """Close the port and all connections."""
        for connection in list(self._connections.values()):
            self.drop(connection)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._selector.close()

    def _note(self, event: str) -> None:
        if event != self._event[1]:
            LOG.warning("%s: %s", self.place, event)
        self._event = (time.monotonic(), event)

    def _open(self) -> None:
        if not self._retry.due():
            return
        if self.certificate.wanted and self.certificate.context() is None:
            self._retry.failed()
            return
        try:
            self._listener = bind(self.place, socket.SOCK_STREAM)
            self._listener.listen(256)
        except OSError as error:
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            self._fault = why_not_bound(self.place, error)
            if self._retry.failed() == 1.0:
                LOG.warning("%s", self._fault)
            return
        self._fault = ""
        self._retry.worked()
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        LOG.info("%s: listens on port %d", self.place, self.port)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _select(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listener:
                self._accept()
            elif (connection := self._connections.get(key.fileobj)) is not None:  # type: ignore[call-overload]
                self._ready.add(connection)
        if self.certificate.wanted:
            late = time.monotonic() - HANDSHAKE_S
            for connection in [each for each in self._connections.values() if not each.shaken and each.since < late]:
                self.drop(connection, f"no TLS handshake within {HANDSHAKE_S:.0f} s")

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(64):
            try:
                channel, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # the sender is gone again, or this process has no more file descriptors
                self._note(f"a connection was not accepted: {error.strerror}; it is tried again")
                # it would be ready at once again, and again
                self._selector.unregister(self._listener)
                self._accept_at = time.monotonic() + ACCEPT_AGAIN_S
                return
            if len(self._connections) >= self.most_connections:
                channel.close()
                self._note(f"more than {self.most_connections} connections: others are closed; to fix, use another agent for some")
                continue
            channel.setblocking(False)
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection = StreamConnection(sender_of(address), channel, time.monotonic())
            if self.certificate.wanted:
                context = self.certificate.context()
                assert context is not None
                connection.channel = context.wrap_socket(channel, server_side=True, do_handshake_on_connect=False)
                connection.shaken = False
            self._connections[connection.channel] = connection
            self._selector.register(connection.channel, selectors.EVENT_READ)
            self._ready.add(connection)

    def _receive(self, connection: StreamConnection, most_bytes: int) -> bytes | None:
        """Bytes of a connection; none at its end; None if it has nothing now, or was closed."""
        try:
            if not connection.shaken:
                assert isinstance(connection.channel, ssl.SSLSocket)
                connection.channel.do_handshake()
                connection.shaken = True
                self._selector.modify(connection.channel, selectors.EVENT_READ)
            return connection.channel.recv(most_bytes)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except ssl.SSLWantWriteError:
            self._selector.modify(connection.channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
            return None
        except OSError as error:
            if connection.shaken:
                return b""  # reset, or cut off within TLS: what came is kept
            self.drop(connection, handshake_fault(error))
            return None


def sender_of(address: Any) -> str:
    """The host of a socket's address, without its port; an IPv4 address that came by IPv6 as such."""
    return str(address[0]).removeprefix("::ffff:")


def handshake_fault(error: OSError) -> str:
    """Why a TLS handshake failed, for people."""
    text = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    known = {
        "HTTP_REQUEST": "it speaks HTTP, not TLS",
        "WRONG_VERSION_NUMBER": "it does not speak TLS",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has shown no client certificate, which `client_ca` demands",
        "certificate has expired": "its client certificate has expired; to fix, renew it there",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that the certificate of this input has expired; to fix, replace the file",
        "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of this input's certificate; to fix, give it the authority's certificate",
    }
    return f"TLS: {known.get(text, text)}"

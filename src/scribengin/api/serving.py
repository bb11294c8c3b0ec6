"""The socket of the API, which is bound before its address is published, and uvicorn, which serves it in a thread."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from scribengin.api.auth import Authentication
from scribengin.client.problems import CODE, MEDIA_TYPE, Fault, PointedError, encode, to_problem
from scribengin.core.errors import EnvironmentFault, Refused
from scribengin.core.net import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.applications import Starlette

    from scribengin.api.auth import Proves

_MAKE_ONE = "make one: scribengin token add NAME --role ROLE"
_EVERYWHERE = ("0.0.0.0", "::")
"""addresses to listen on, but not to connect to"""
_BACKLOG = 256
_START_S = 30.0
_LEAVE_S = 3
"""seconds for answers under way at the end; streams of events are cut"""


@dataclass(frozen=True, slots=True)
class Listen:
    """An address of this machine on which to listen.

    Attributes:
        host: the host name or IP address.
        port: the port; 0: a free one.
        certificate: a PEM file for TLS.
        key: the PEM file of its key.
        asks: a token is required on the loopback, too.
        insecure: allow other hosts to connect without tokens or without TLS.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    asks: bool = False
    insecure: bool = False

    @property
    def local(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.host)

    def check_transport(self) -> None:
        """Raise Refused if other hosts could read the traffic; EnvironmentFault if TLS cannot be set up."""
        if (self.certificate is None) != (self.key is None):
            raise Refused(
                "TLS needs a certificate and its key", remedy="pass both: --tls-certificate FILE --tls-key FILE", code="listen-open"
            )
        if not self.local and not self.insecure and self.certificate is None:
            raise Refused(
                f"{self.host} can be reached from other hosts, and tokens would be sent in plain text",
                remedy="pass a certificate: --tls-certificate FILE --tls-key FILE; or, to allow this, pass --insecure-api",
                code="listen-open",
            )
        if self.certificate is not None and self.key is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError) as error:
                raise EnvironmentFault(
                    f"TLS cannot use {self.certificate} and {self.key}: {error}",
                    remedy="pass a PEM certificate and its own key",
                    code="listen-tls",
                ) from error

    def check_tokens(self, *, there: bool) -> None:
        """Raise Refused if other hosts would have access without a token, because there is none. `there`: tokens exist."""
        if there:
            return
        if self.asks:
            raise Refused("tokens are required, but none exists", remedy=_MAKE_ONE, code="listen-open")
        if not self.local and not self.insecure:
            raise Refused(
                f"{self.host} can be reached from other hosts, but no token exists",
                remedy=f"{_MAKE_ONE}; or, to allow access without tokens, pass --insecure-api",
                code="listen-open",
            )

    def gate(self, tokens: Proves, *, there: bool) -> Authentication:
        """The authentication for this address. `there`: tokens exist. If other hosts can reach it, a token is also required once the first
        one is made later."""
        return Authentication(tokens, asks=self.asks or (not self.local and there), local=self.local, until=not self.local)


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A bound socket. `url` is the address of the API; if it listens on all addresses, it has the name of this machine."""

    socket: socket.socket
    url: str
    listen: Listen

    @contextmanager
    def serve(self, app: Starlette) -> Iterator[None]:
        """Serve the application inside the `with` block."""
        certificate, key = (None if path is None else str(path) for path in (self.listen.certificate, self.listen.key))
        config = uvicorn.Config(
            app,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            http=_Protocol,
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_LEAVE_S,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [self.socket]}, name="api")
        thread.start()
        try:
            deadline = time.monotonic() + _START_S
            while not server.started and thread.is_alive() and time.monotonic() < deadline:
                time.sleep(0.01)
            if not server.started:
                raise EnvironmentFault(f"the API did not start at {self.url}", remedy="see the lines above")
            yield
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def open_listener(listen: Listen) -> Iterator[BoundListener]:
    """Bind the socket. Raises EnvironmentFault if the address is taken, or not one of this machine."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    # with the protocol named, asyncio sets TCP_NODELAY: else each answer, of two packets, waits 40 ms for an acknowledgement
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((listen.host, listen.port))
        except OSError as error:
            raise EnvironmentFault(
                f"the API cannot answer at {listen.host}:{listen.port}: {error.strerror}",
                remedy="choose another port: --port PORT",
                code="port-taken",
            ) from error
        bound.listen(_BACKLOG)
        shown = socket.gethostname() if listen.host in _EVERYWHERE else listen.host
        host = f"[{shown}]" if ":" in shown else shown
        yield BoundListener(bound, f"{'http' if listen.certificate is None else 'https'}://{host}:{bound.getsockname()[1]}", listen)


class _Protocol(H11Protocol):
    """Answers requests that are not valid HTTP with a problem, too."""

    def send_400_response(self, msg: str) -> None:
        """Send a problem instead of a line of text."""
        problem = to_problem(PointedError((Fault("request", msg, "send HTTP/1.1"),)))
        body = encode(problem)
        length = str(len(body)).encode()
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (CODE.lower().encode(), b"request"),
            (b"content-length", length),
            (b"connection", b"close"),
        ]
        for event in (h11.Response(status_code=problem.status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            data = self.conn.send(event)
            self.transport.write(data or b"")
        self.transport.close()

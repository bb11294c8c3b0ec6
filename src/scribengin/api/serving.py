"""Where the API answers: a socket that is bound before anything is told of it, and uvicorn behind it, in a thread."""

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

from scribengin.api.gate import Authentication
from scribengin.client.problems import CODE, MEDIA_TYPE, Fault, PointedError, encode, to_problem
from scribengin.core.errors import EnvironmentFault, Refused
from scribengin.core.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.applications import Starlette

    from scribengin.api.gate import Proves

_MAKE_ONE = "make one: scribengin token add NAME --role ROLE"
_EVERYWHERE = ("0.0.0.0", "::")
"""addresses to listen at, and none to be asked at"""
_BACKLOG = 256
_START_S = 30.0
_LEAVE_S = 3
"""for answers under way when it ends; streams of events are cut"""


@dataclass(frozen=True, slots=True)
class Listen:
    """An address of this machine; port 0: a free one. `certificate` and `key` are PEM files, of TLS. `asks`: a token is needed on the
    loopback, too. `insecure`: that it is open to others without tokens or without TLS is meant."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    asks: bool = False
    insecure: bool = False

    @property
    def local(self) -> bool:
        """Only this machine can reach it."""
        return is_loopback(self.host)

    def check_transport(self) -> None:
        """Raise Refused where others could read what goes by; EnvironmentFault where TLS cannot begin."""
        if (self.certificate is None) != (self.key is None):
            raise Refused(
                "TLS takes a certificate and its key", remedy="name both: --tls-certificate FILE --tls-key FILE", code="listen-open"
            )
        if not self.local and not self.insecure and self.certificate is None:
            raise Refused(
                f"others can reach {self.host}, and tokens would go by in plain text",
                remedy="name a certificate: --tls-certificate FILE --tls-key FILE; or say that it is meant: --insecure-api",
                code="listen-open",
            )
        if self.certificate is not None and self.key is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError) as error:
                raise EnvironmentFault(
                    f"TLS cannot begin with {self.certificate} and {self.key}: {error}",
                    remedy="name PEM files that belong together",
                    code="listen-tls",
                ) from error

    def check_tokens(self, *, there: bool) -> None:
        """Raise Refused where others could reach it without a token, as there is none."""
        if there:
            return
        if self.asks:
            raise Refused("a token is asked for, and there is none", remedy=_MAKE_ONE, code="listen-open")
        if not self.local and not self.insecure:
            raise Refused(
                f"others can reach {self.host}, and there is no token",
                remedy=f"{_MAKE_ONE}; or say that it is meant: --insecure-api",
                code="listen-open",
            )

    def gate(self, tokens: Proves, *, there: bool) -> Authentication:
        """Who comes in here; `there`: whether there are tokens. Where others can reach it, those that come later close it, too."""
        return Authentication(tokens, asks=self.asks or (not self.local and there), local=self.local, until=not self.local)


@dataclass(frozen=True, slots=True)
class Door:
    """A bound socket. `url` is where the API will answer; where it listens at all addresses, by the name of this machine."""

    socket: socket.socket
    url: str
    listen: Listen

    @contextmanager
    def serve(self, app: Starlette) -> Iterator[None]:
        """Answer inside the `with` block."""
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
def open_door(listen: Listen) -> Iterator[Door]:
    """Bind. Raises EnvironmentFault where the address is taken, or none of this machine."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((listen.host, listen.port))
        except OSError as error:
            raise EnvironmentFault(
                f"the API cannot answer at {listen.host}:{listen.port}: {error.strerror}",
                remedy="name another port: --port PORT",
                code="port-taken",
            ) from error
        bound.listen(_BACKLOG)
        shown = socket.gethostname() if listen.host in _EVERYWHERE else listen.host
        host = f"[{shown}]" if ":" in shown else shown
        yield Door(bound, f"{'http' if listen.certificate is None else 'https'}://{host}:{bound.getsockname()[1]}", listen)


class _Protocol(H11Protocol):
    """Says also of what is no HTTP in the one form of mistakes."""

    def send_400_response(self, msg: str) -> None:
        """Instead of a line of text."""
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

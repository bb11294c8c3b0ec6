"""The socket of a gateway, TLS with client certificates, and uvicorn, which serves it in a thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from scribengin.core.errors import EnvironmentFault, Refused
from scribengin.core.net import is_loopback

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.gateway.server import GatewayApp

_log = structlog.get_logger(__name__)

_BACKLOG = 2048
_START_S = 30.0
_LEAVE_S = 30
"""seconds for requests that are under way at the end"""
_KEEP_ALIVE_S = 75
_RENEW_S = 60.0
"""how often the certificate is checked for a newer one"""
_EVERYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class GatewayListen:
    """Where a gateway listens.

    Attributes:
        host: The host name or IP address.
        port: The port; 0: a free one.
        certificate: A PEM file for TLS.
        key: The PEM file of its key.
        client_ca: A PEM file of authorities; a client with a certificate of theirs needs no token.
        insecure: Allow other hosts to connect without TLS or without tokens.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    insecure: bool = False

    def check(self, *, tokens: bool) -> None:
        """Check that other hosts need a token and cannot read the traffic.

        Args:
            tokens: Tokens are required.

        Raises:
            Refused: They could connect without.
            EnvironmentFault: TLS cannot use the files.
        """
        if (self.certificate is None) != (self.key is None):
            raise Refused(
                "TLS needs a certificate and its key", remedy="pass both: --tls-certificate FILE --tls-key FILE", code="listen-open"
            )
        if self.client_ca is not None and self.certificate is None:
            raise Refused("client certificates need TLS", remedy="pass --tls-certificate FILE --tls-key FILE", code="listen-open")
        if not is_loopback(self.host) and not self.insecure:
            if self.certificate is None:
                raise Refused(
                    f"{self.host} can be reached from other hosts, and tokens would be sent in plain text",
                    remedy="pass --tls-certificate FILE --tls-key FILE; or, to allow this, pass --insecure",
                    code="listen-open",
                )
            if not tokens and self.client_ca is None:
                raise Refused(
                    f"{self.host} can be reached from other hosts, and no token or client certificate is required",
                    remedy="pass --tokens FILE or --client-ca FILE; or, to allow this, pass --insecure",
                    code="listen-open",
                )
        if self.certificate is not None:
            self.context()

    def context(self) -> ssl.SSLContext:
        """What TLS uses. Raises EnvironmentFault."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        assert self.certificate is not None
        doing = f"{self.certificate} and {self.key}"
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                doing = str(self.client_ca)
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ssl.SSLError) as error:
            raise EnvironmentFault(
                f"TLS cannot use {doing}: {error}", remedy="pass a PEM certificate and its own key", code="listen-tls"
            ) from error
        return context


class GatewayServer:
    """A gateway that answers at an address, until it is stopped."""

    def __init__(self, app: GatewayApp, listen: GatewayListen) -> None:
        """Bind the socket and start to answer.

        Args:
            app: The application; it is closed with the server.
            listen: The address.

        Raises:
            EnvironmentFault: The address is taken or not one of this machine, or TLS cannot use the files.
        """
        self.app = app
        self._listen = listen
        self._context = listen.context() if listen.certificate is not None else None
        self._socket = _bound(listen)
        self.port: int = self._socket.getsockname()[1]
        shown = socket.gethostname() if listen.host in _EVERYWHERE else listen.host
        host = f"[{shown}]" if ":" in shown else shown
        self.url = f"{'http' if self._context is None else 'https'}://{host}:{self.port}"
        self._ended = threading.Event()
        context = self._context
        config = uvicorn.Config(
            app,
            http=CertifiedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_LEAVE_S,
            ssl_context_factory=None if context is None else lambda *_: context,
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="gateway")
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if not self._server.started:
            self.stop()
            raise EnvironmentFault(f"the gateway did not start at {self.url}", remedy="see the lines above")
        if context is not None:
            threading.Thread(target=self._renew, args=(context,), name="certificate", daemon=True).start()

    def __enter__(self) -> GatewayServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_alive(self) -> bool:
        """False after it has ended, for any reason."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop accepting, answer what is under way, store what waits."""
        self._server.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.app.stop)
        self._thread.join()
        self._ended.set()
        self._socket.close()
        self.app.close()

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        asyncio.run(serve())

    def _renew(self, context: ssl.SSLContext) -> None:
        """Use a certificate that replaced the first one: new connections get it."""
        listen = self._listen
        assert listen.certificate is not None
        before = _changed_at(listen.certificate)
        while not self._ended.wait(_RENEW_S):
            now = _changed_at(listen.certificate)
            if now in (before, 0):
                continue
            before = now
            try:
                context.load_cert_chain(listen.certificate, listen.key)
            except (OSError, ssl.SSLError) as error:
                _log.error(f"the changed certificate cannot be used, and the last one stays: {listen.certificate}: {error}")
            else:
                _log.info(f"the certificate was renewed: {listen.certificate}")


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _bound(listen: GatewayListen) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((listen.host, listen.port))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise EnvironmentFault(
            f"the gateway cannot listen at {listen.host}:{listen.port}: {error.strerror or error}",
            remedy="choose another address: --listen HOST:PORT",
            code="port-taken",
        ) from error
    return bound


class CertifiedProtocol(H11Protocol):
    """Puts the names of the client's certificate in the state of each request, as `certificate_names`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        found = transport.get_extra_info("peercert")
        if found:
            self.app_state = {**self.app_state, "certificate_names": names_of_certificate(found)}


def names_of_certificate(certificate: dict[str, Any]) -> tuple[str, ...]:
    """The common name and the DNS names of a certificate that `ssl` has verified.

    >>> names_of_certificate({"subject": ((("commonName", "web1"),),), "subjectAltName": (("DNS", "web1.local"), ("DNS", "web1"))})
    ('web1', 'web1.local')
    """
    common = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    others = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return tuple(dict.fromkeys([*common, *others]))

"""A connection to a gateway that is kept open between requests, for one thread."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scribengin.agent.answers import MOST_ANSWER_BYTES
from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.agent.settings import AgentSettings

_CONNECT_S = 5.0
_BLOCK = 256 * 1024


@dataclass(frozen=True, slots=True)
class GatewayReply:
    """What a gateway answered, whatever it means."""

    status: int
    retry_after: str | None
    revision: str | None
    """of the header `ETag`"""
    body: bytes


class GatewayFault(Exception):
    """A gateway gave no answer; the text says why, and what to do if that is known."""


class GatewayConnection:
    """Requests to gateways, one at a time. A change of the gateway closes the connection to the last one.

    `cut_if_late` and `close` may be called by other threads.
    """

    def __init__(self, settings: AgentSettings, *, timeout_s: float | None = None) -> None:
        self.timeout_s = settings.timeout_s if timeout_s is None else min(timeout_s, settings.timeout_s)
        """for an answer"""
        self._settings = settings
        self._url = ""
        self._connection: http.client.HTTPConnection | None = None
        self._used = False
        self._token: str | None = None
        self._late_at: float | None = None
        self._closed = False

    def request(
        self, url: str, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str], most: int = MOST_ANSWER_BYTES
    ) -> GatewayReply:
        """Make a request and read the whole answer.

        Args:
            url: The address of the gateway.
            method: Of HTTP.
            path: After the address.
            body: What to send.
            headers: Further headers; the token is added.
            most: The longest answer in bytes; a longer one is cut, and then no valid answer.

        Raises:
            GatewayFault: No whole answer came in time. The request may have been carried out.
        """
        if url != self._url:
            self.disconnect()
            self._url = url
        # a whole answer, too, has a time: one that comes byte by byte would never time out
        self._late_at = time.monotonic() + _CONNECT_S + 2 * self.timeout_s
        try:
            while True:
                again = self._used  # the gateway may have closed a connection that was idle: that says nothing about it
                try:
                    return self._exchange(method, path, body, headers, most)
                except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError) as error:
                    self.disconnect()
                    if not again:
                        raise GatewayFault(self._text(error)) from error
        except (OSError, http.client.HTTPException, ValueError, EnvironmentFault) as error:
            self.disconnect()
            raise GatewayFault(self._text(error)) from error
        finally:
            self._late_at = None

    def token_changed(self) -> bool:
        """Read the token again; True if it differs from the one that was used."""
        with suppress(EnvironmentFault):
            if self._token is not None and self._settings.token() != self._token:
                self._token = None
                return True
        return False

    def cut_if_late(self) -> None:
        """End a request that takes longer than any answer should."""
        if self._late_at is not None and time.monotonic() > self._late_at:
            self._shut()

    def close(self) -> None:
        """End a request that is under way, and make no other."""
        self._closed = True
        self._shut()

    def disconnect(self) -> None:
        """Close the connection; the next request opens another. For the thread that makes requests."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._used = None, False

    def _shut(self) -> None:
        connection = self._connection
        if connection is not None and (sock := connection.sock) is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], most: int) -> GatewayReply:
        if self._closed:
            raise ConnectionError("the agent stops")
        connection = self._open()
        all_headers = dict(headers)
        if self._token is None:
            self._token = self._settings.token()
        if self._token:
            all_headers["Authorization"] = f"Bearer {self._token}"
        unsent: OSError | None = None
        try:
            connection.request(method, path, body, all_headers)
        except (BrokenPipeError, ConnectionResetError) as error:
            unsent = error  # it may have answered, and closed, before it had read all: an answer of 401 or 413
        try:
            response = connection.getresponse()
            answer = response.read(most + 1)
        except (OSError, http.client.HTTPException):
            if unsent is not None:
                raise unsent from None
            raise
        self._used = True
        if not response.isclosed() or response.will_close or unsent is not None:
            self.disconnect()
        return GatewayReply(response.status, response.headers.get("Retry-After"), response.headers.get("ETag"), answer[:most])

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            parts = urlsplit(self._url)
            host, timeout_s = parts.hostname or "", min(_CONNECT_S, self.timeout_s)
            if parts.scheme == "https":
                made: http.client.HTTPConnection = http.client.HTTPSConnection(
                    host, parts.port, timeout=timeout_s, context=self._settings.tls(), blocksize=_BLOCK
                )
            else:
                made = http.client.HTTPConnection(host, parts.port, timeout=timeout_s, blocksize=_BLOCK)
            self._connection = made
            made.connect()
            made.sock.settimeout(self.timeout_s)
            made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection

    def _text(self, error: Exception) -> str:
        if isinstance(error, EnvironmentFault):
            return f"{error.message}; {error.remedy}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not valid: {error.verify_message}. Renew it, correct the address, or name its authority with --ca"
        if isinstance(error, ssl.SSLError):
            reason = (error.reason or str(error)).replace("_", " ").lower()
            remedy = "renew the certificate of this agent, and check --certificate and --key" if "alert" in reason else "check its address"
            return f"no secure connection: {reason}; {remedy}"
        if isinstance(error, TimeoutError):
            return f"no answer within {self.timeout_s:g} s"
        if isinstance(error, socket.gaierror):
            return f"its name is not known: {error.strerror}. Check the address, and the name service of this host"
        if isinstance(error, http.client.RemoteDisconnected):
            return "it closed the connection without an answer"
        if isinstance(error, http.client.IncompleteRead):
            return "it closed the connection within its answer"
        if isinstance(error, http.client.HTTPException):
            return f"its answer is not valid HTTP ({type(error).__name__}: {str(error)[:100]!r}); check that the address leads to a gateway"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        return str(error) or type(error).__name__

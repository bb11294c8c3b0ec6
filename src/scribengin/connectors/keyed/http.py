"""HTTP requests to a store: pooled connections, failover to other nodes, errors as Scribengin errors."""

from __future__ import annotations

import gzip
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from scribengin.connectors.addresses import split_url
from scribengin.core.errors import SinkError, SourceError, Unreachable
from scribengin.core.net import trusted
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from scribengin.core.errors import ScribenginError

_CONNECT_S, _READ_S = 10.0, 120.0
_GZIP_LEVEL = 1
"""the lowest compression level: JSON rows shrink to a fifth, and hardly more at the highest level"""
AWAY = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses of errors that a retry may solve"""


@dataclass(frozen=True, slots=True)
class Codes:
    """The error codes of a kind of store."""

    away: str
    login: str
    trust: str
    address: str
    config: str
    other: str


class HttpCluster:
    """The nodes of one cluster. Pickled with its secrets and without connections; `str` shows no secret."""

    codes: ClassVar[Codes]
    known: ClassVar[frozenset[str]]
    """the keys that `config` may have"""
    login: ClassVar[str]
    """the remedy if the server denies access"""
    headers: ClassVar[Mapping[str, str]] = {}
    """headers of every request"""
    content_type: ClassVar[str]
    """the Content-Type of a request with a body"""
    place: ClassVar[str]
    """what the flow calls the place, for remedies"""

    def __init__(self, node: str, servers: Sequence[str], config: Mapping[str, Any], role: Literal["source", "sink"] = "sink") -> None:
        self.node = node
        self.called = f'{role} "{node}"'
        self._kind: type[SourceError | SinkError] = SourceError if role == "source" else SinkError
        self._config = config
        self._urls = [self._checked(url.rstrip("/")) for url in servers]
        if unknown := set(config) - self.known:
            said = f'{self.called}: `config` has "{min(unknown)}", which is not a known setting'
            raise self._error(said, f"use one of {', '.join(sorted(self.known))}", self.codes.config)
        self._http: httpx2.Client | None = None

    def __str__(self) -> str:
        return self._urls[0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_http": None}

    def reason_in(self, answer: httpx2.Response) -> str:
        """The error message in the server's answer."""
        return " ".join(answer.text.split())[:200] or answer.reason_phrase

    def ask(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        json: Any = None,
        also: Sequence[int] = (),
        gzipped: bool = False,
    ) -> httpx2.Response:
        """Send a request to the current node, or to another one if that is unavailable; returns the answer.

        Args:
            method: The HTTP method.
            path: The path and query of the URL.
            content: The body; None if there is none.
            json: An object to send as JSON, instead of `content`.
            also: Error statuses that are returned instead of raised.
            gzipped: Compress `content`.

        Raises:
            Unreachable: if no node answers.
            SourceError, SinkError: if a retry cannot succeed.
        """
        import httpx2

        http = self._open()
        failed: Exception | None = None
        headers = {"Content-Type": self.content_type} if content is not None else {}
        if gzipped and content is not None:
            content = gzip.compress(content, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        for _ in range(len(self._urls) + 1):  # the first node is tried again, because an idle connection may be closed
            try:
                # an object is encoded here, so that the Content-Type is the one that the server expects
                answer = http.request(method, f"{self._urls[0]}{path}", content=content, json=json, headers=headers)
            except httpx2.TransportError as error:
                failed = error
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    break
                self._urls = [*self._urls[1:], self._urls[0]]
                continue
            self.doubt(answer, path)
            if answer.is_success or answer.status_code in also:
                return answer
            raise self.refused(answer, f"{method} {path.partition('?')[0]}")
        assert failed is not None
        raise self._away(failed)

    def doubt(self, answer: httpx2.Response, path: str) -> None:
        """Raise Unreachable if the answer shows that the server is not ready yet. By default every answer is accepted."""

    def close(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None:
            http.close()

    def refused(self, answer: httpx2.Response, what: str) -> ScribenginError:
        """Convert an answer with an error status to a Scribengin error. `what` describes the request."""
        status = answer.status_code
        said = f"{self.called}: {self} answered {what} with {status}: {self.reason_in(answer)}"
        if status in (401, 403):
            return self._error(said, self.login, self.codes.login)
        if status in AWAY:
            remedy = "check that the cluster is healthy and has free space; a running flow retries automatically"
            return Unreachable(said, remedy=remedy, code=self.codes.away, node=self.node)
        return self._error(said, f"correct the {self.place} or the flow", self.codes.other)

    def _open(self) -> httpx2.Client:
        if self._http is None:
            import httpx2

            given = {name: value.reveal() if isinstance(value, Secret) else str(value) for name, value in self._config.items()}
            key = {"Authorization": f"ApiKey {given['api_key']}"} if "api_key" in given else {}
            auth = (given.get("user", ""), given.get("password", "")) if "user" in given else None
            try:
                verify = trusted(Path(given["ca"]).expanduser() if "ca" in given else None)
            except OSError as error:
                said = f"{self.called}: `config` has ca {given['ca']}, from which no certificate can be read: {error}"
                raise self._error(said, "name a PEM file of the CA that signed the server's certificate", self.codes.config) from error
            timeout = httpx2.Timeout(_READ_S, connect=_CONNECT_S)
            self._http = httpx2.Client(headers={**self.headers, **key}, auth=auth, timeout=timeout, verify=verify, trust_env=False)
            weakref.finalize(self, self._http.close)  # a sink is never closed
        return self._http

    def _checked(self, url: str) -> str:
        parts = split_url(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise self._kind(
                f'{self.called}: `server` has "{url}", which is not an address',
                remedy="write http://HOST:PORT",
                code=self.codes.address,
                node=self.node,
            )
        if parts.password is not None or parts.username is not None:
            raise self._kind(
                f"{self.called}: `server` contains a user or a password",
                remedy='remove it and write config: {user: NAME, password: "${secret:env/NAME}"}: a secret is never shown',
                code="secret-in-plain",
                node=self.node,
            )
        return url

    def _away(self, error: Exception) -> ScribenginError:
        said = f"{self.called}: {self} does not answer: {' '.join(str(error).split())}"
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return self._error(said, "name the CA file that signed its certificate: config: {ca: /path/to/ca.pem}", self.codes.trust)
        remedy = "check that the cluster is up; a running flow retries automatically"
        return Unreachable(said, remedy=remedy, code=self.codes.away, node=self.node)

    def _error(self, said: str, remedy: str, code: str) -> SourceError | SinkError:
        return self._kind(said, remedy=remedy, code=code, node=self.node)

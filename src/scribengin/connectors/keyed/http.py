"""HTTP to a store: pooled connections, another node where one is away, errors in our words."""

from __future__ import annotations

import gzip
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from scribengin.connectors.addresses import split_url
from scribengin.core.errors import SinkError, SourceError, Unreachable
from scribengin.core.secret import Secret
from scribengin.core.tls import trusted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from scribengin.core.errors import ScribenginError

_CONNECT_S, _READ_S = 10.0, 120.0
_GZIP_LEVEL = 1
"""the least work: rows of JSON are a fifth of their size then, and hardly less by the most"""
AWAY = frozenset({408, 429, 500, 502, 503, 504})
"""answers that a later try may not get"""


@dataclass(frozen=True, slots=True)
class Codes:
    """Under which codes a kind of store tells what is wrong."""

    away: str
    login: str
    trust: str
    address: str
    config: str
    other: str


class HttpCluster:
    """Nodes of one cluster. Travels by pickle with its secrets and without connections; `str` shows none."""

    codes: ClassVar[Codes]
    known: ClassVar[frozenset[str]]
    """what `config` may have"""
    login: ClassVar[str]
    """the remedy where the server does not let us"""
    headers: ClassVar[Mapping[str, str]] = {}
    """of every request"""
    content_type: ClassVar[str]
    """of a request that brings bytes"""
    place: ClassVar[str]
    """what a flow names there, for remedies"""

    def __init__(self, node: str, servers: Sequence[str], config: Mapping[str, Any], role: Literal["source", "sink"] = "sink") -> None:
        self.node = node
        self.called = f'{role} "{node}"'
        self._kind: type[SourceError | SinkError] = SourceError if role == "source" else SinkError
        self._config = config
        self._urls = [self._checked(url.rstrip("/")) for url in servers]
        if unknown := set(config) - self.known:
            said = f'{self.called}: `config` has "{min(unknown)}", which is not known'
            raise self._error(said, f"it may have {', '.join(sorted(self.known))}", self.codes.config)
        self._http: httpx2.Client | None = None

    def __str__(self) -> str:
        return self._urls[0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_http": None}

    def reason_in(self, answer: httpx2.Response) -> str:
        """What the server says went wrong."""
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
        """The answer, of any node. `gzipped`: `content` goes so. Raises Unreachable, and SourceError or SinkError where no later try will
        do; not for the statuses `also`."""
        import httpx2

        http = self._open()
        failed: Exception | None = None
        headers = {"Content-Type": self.content_type} if content is not None else {}
        if gzipped and content is not None:
            content = gzip.compress(content, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        for _ in range(len(self._urls) + 1):  # a connection that was idle may be gone: the first node once more
            try:
                # an object is encoded here so that Content-Type is what the server expects of it
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
        """Raise Unreachable where a server answers so that does not know better yet. Here every answer is believed."""

    def close(self) -> None:
        """Give up the connections."""
        http, self._http = self._http, None
        if http is not None:
            http.close()

    def refused(self, answer: httpx2.Response, what: str) -> ScribenginError:
        """An answer that is an error, in our words."""
        status = answer.status_code
        said = f"{self.called}: {self} answers {what} with {status}: {self.reason_in(answer)}"
        if status in (401, 403):
            return self._error(said, self.login, self.codes.login)
        if status in AWAY:
            remedy = "look whether the cluster is well and has room; a flow that runs tries again by itself"
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
                said = f"{self.called}: `config` has ca {given['ca']}, of which no certificate can be read: {error}"
                raise self._error(said, "name a PEM file of who signs the server's certificate", self.codes.config) from error
            timeout = httpx2.Timeout(_READ_S, connect=_CONNECT_S)
            self._http = httpx2.Client(headers={**self.headers, **key}, auth=auth, timeout=timeout, verify=verify, trust_env=False)
            weakref.finalize(self, self._http.close)  # a sink is not closed by anybody
        return self._http

    def _checked(self, url: str) -> str:
        parts = split_url(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise self._kind(
                f'{self.called}: `server` has "{url}", which is no address',
                remedy="write http://HOST:PORT",
                code=self.codes.address,
                node=self.node,
            )
        if parts.password is not None or parts.username is not None:
            raise self._kind(
                f"{self.called}: `server` holds a user or a password",
                remedy='take it out and write config: {user: NAME, password: "${secret:env/NAME}"}: a secret is never shown',
                code="secret-in-plain",
                node=self.node,
            )
        return url

    def _away(self, error: Exception) -> ScribenginError:
        said = f"{self.called}: {self} does not answer: {' '.join(str(error).split())}"
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return self._error(said, "name who signs its certificate: config: {ca: /path/to/ca.pem}", self.codes.trust)
        remedy = "look whether the cluster is up; a flow that runs tries again by itself"
        return Unreachable(said, remedy=remedy, code=self.codes.away, node=self.node)

    def _error(self, said: str, remedy: str, code: str) -> SourceError | SinkError:
        return self._kind(said, remedy=remedy, code=code, node=self.node)

"""An address that rows are sent to: sends requests, and interprets the answers."""

from __future__ import annotations

import gzip
import socket
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urldefrag, urlencode, urlsplit

import msgspec

from scribengin.connectors.http.options import TEMPLATE
from scribengin.core.errors import SinkError, Unreachable
from scribengin.core.net import trusted
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx2

    from scribengin.connectors.http.staged import RowsRequest

_CONNECT_S = 10.0
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 507, 509, 529})
_BUSY = 409
_TOO_LARGE = 413
_FOR_ALL = {
    401: "set the credentials that the server requires, in `headers` or `query`",
    403: "use credentials with the right to send, in `headers` or `query`",
    405: "use another `method`: the server does not allow this one there",
    407: "bypass the proxy: it requires a login",
    411: "configure the server to accept requests without a length, or bypass the proxy",
    415: "change `body` or `compression`, or set another Content-Type in `headers`: the server does not accept this one",
    501: "use another `method`: the server does not know this one",
    505: "use a server that supports HTTP/1.1",
}
"""statuses that no row causes → remedy"""
_GONE = frozenset({404, 410})
_WORDS = ("message", "detail", "error", "title", "reason", "description", "errors")
_MOST = 300


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The result of a request. `busy`: another request with the same key may be in progress."""

    kind: Literal["taken", "again", "busy", "refused"]
    reason: str = ""
    message: str = ""
    after_s: float = 0.0
    """the number of seconds that the server asked to wait"""


class Endpoint:
    """Sends requests to one address. Pickled with its secrets and without connections; `str` shows no secret."""

    def __init__(self, node: str, folder: Path, options: Mapping[str, Any]) -> None:
        self.node = node
        self._options = options
        self._url = urldefrag(options["url"]).url
        self._by_row = bool(TEMPLATE.search(self._url))
        self._ca = None if options["ca"] is None else Path(folder, Path(options["ca"]).expanduser())
        self._http: httpx2.Client | None = None
        self._trust: ssl.SSLContext | bool | None = None
        """None before `check`; creating it takes longer than a request"""
        parts = urlsplit(self._url)
        if parts.username is not None or parts.password is not None:
            raise self._error(
                "`url` contains a user or a password",
                'take it out and write headers: {Authorization: "Basic ${secret:env/NAME}"}: a secret is never shown',
                "secret-in-plain",
            )
        self._shown = f"{parts.scheme}://{parts.netloc}{parts.path}"

    def __str__(self) -> str:
        return self._shown

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_http": None, "_trust": None}

    def check(self) -> None:
        """Raise SinkError if headers or certificates are not valid."""
        for name, value in self._plain("headers").items():
            if not (value.isascii() and value.isprintable() and name.isascii() and name.replace("-", "").isalnum()):
                raise self._error(f'the header "{name}" has characters that are not valid in a header', "correct `headers`", "http-options")
        try:
            self._trust = trusted(self._ca) if self._url.startswith("https:") else False
        except OSError as error:  # the file is missing, or contains no certificate
            raise self._error(f"{self._ca} holds no valid CA certificate: {error}", "correct `ca`", "http-options") from None

    def reach(self) -> None:
        """Connect and disconnect. Raises Unreachable if no server answers, SinkError for a certificate that is not trusted."""
        parts = urlsplit(self._url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            with socket.create_connection((parts.hostname or "", port), timeout=min(_CONNECT_S, self._options["timeout"])) as connection:
                if isinstance(self._trust, ssl.SSLContext):
                    self._trust.wrap_socket(connection, server_hostname=parts.hostname).close()
        except ssl.SSLCertVerificationError as error:
            raise self._error(f"the certificate is not trusted: {error.verify_message}", "correct `ca`", "http-options") from error
        except OSError as error:
            said = f'sink "{self.node}": {self} does not answer: {error.strerror or error}'
            raise Unreachable(said, remedy="check that the server is up; a running flow retries automatically", node=self.node) from error

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Provide the connections that `send` needs for the duration of the block; they are used for several requests. Raises as
        `check`."""
        import httpx2

        if self._trust is None:
            self.check()
        options = self._options
        headers = {"User-Agent": "scribengin", "Content-Type": "application/x-ndjson" if self._is("lines") else "application/json"}
        headers |= {} if options["compression"] == "none" else {"Content-Encoding": options["compression"]}
        # the flow's headers override ours; names are not case-sensitive
        headers |= {name.title(): value for name, value in self._plain("headers").items()}
        limits = httpx2.Limits(max_connections=options["connections"], max_keepalive_connections=options["connections"])
        timeout = httpx2.Timeout(options["timeout"], connect=min(_CONNECT_S, options["timeout"]))
        with httpx2.Client(headers=headers, timeout=timeout, limits=limits, verify=self._trust or False, trust_env=False) as self._http:
            yield
        self._http = None

    def send(self, request: RowsRequest, key: str) -> RequestOutcome:
        """Send a request once; thread-safe. Raises SinkError if the server would answer all requests in this way, or is not trusted."""
        import httpx2

        assert self._http is not None
        query = urlencode(self._plain("query"))
        url = request.url or self._url
        url += f"{'&' if '?' in url else '?'}{query}" if query else ""
        try:
            answer = self._http.request(
                self._options["method"],
                url,
                content=self._body(request),
                headers={self._options["key_header"]: key},
            )
        except httpx2.TransportError as error:
            said = self._without_secrets(" ".join(str(error).split()) or type(error).__name__)
            if "CERTIFICATE_VERIFY_FAILED" in said:
                remedy = "name the CA file that signed its certificate: ca: /path/to/ca.pem"
                raise self._error(f"{self} cannot be trusted: {said}", remedy, "http-trust") from None
            if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
                raise self._error(f"cannot send to {self}: {said}", "correct `url` and `headers`", "http-options") from None
            return RequestOutcome("again", message=f"{self} does not answer: {said}")
        except httpx2.InvalidURL as error:
            return RequestOutcome("refused", "url-value", f"{self}: the address built from the row is not valid: {error}")
        return self._outcome(answer)

    def _outcome(self, answer: httpx2.Response) -> RequestOutcome:
        status = answer.status_code
        if answer.is_success:
            return RequestOutcome("taken")
        said = self._without_secrets(f"{self} answered {status} {answer.reason_phrase}".rstrip() + _server_message(answer))
        if answer.is_redirect or 300 <= status < 400:
            target = self._without_secrets(answer.headers.get("location", "elsewhere"))
            remedy = "write the target address as `url`: redirects are not followed"
            raise self._error(f"{said}; it redirects to {target}", remedy, "http-redirect")
        if status in _AGAIN:
            return RequestOutcome("again", message=said, after_s=_asked_s(answer.headers.get("retry-after", "")))
        if status == _BUSY:
            return RequestOutcome("busy", "refused", said, _asked_s(answer.headers.get("retry-after", "")))
        if status in _FOR_ALL:
            raise self._error(said, _FOR_ALL[status], "http-login" if status in (401, 403, 407) else "http-refused")
        if status in _GONE and not self._by_row:
            raise self._error(said, "correct `url`", "http-refused")
        return RequestOutcome("refused", "too-large" if status == _TOO_LARGE else "refused", said)

    def _body(self, request: RowsRequest) -> bytes:
        docs: list[bytes] = request.docs.to_pylist()
        body = docs[0] if self._is("object") else b"[" + b",".join(docs) + b"]" if self._is("array") else b"\n".join(docs) + b"\n"
        match self._options["compression"]:
            case "gzip":
                return gzip.compress(body, 5, mtime=0)
            case "zstd":
                from scribengin.core.zstd import compress

                return compress(body)
            case _:
                return body

    def _is(self, body: str) -> bool:
        return bool(self._options["body"] == body)

    def _plain(self, option: str) -> dict[str, str]:
        given: Mapping[str, str | Secret] = self._options[option]
        return {name: value.reveal() if isinstance(value, Secret) else value for name, value in given.items()}

    def _without_secrets(self, text: str) -> str:
        for value in (*self._options["headers"].values(), *self._options["query"].values()):
            if isinstance(value, Secret) and value.reveal():
                text = text.replace(value.reveal(), "***")
        return text

    def _error(self, what: str, remedy: str, code: str) -> SinkError:
        return SinkError(f'sink "{self.node}": {what}', remedy=remedy, code=code, node=self.node)


def key_of(*said: object) -> str:
    """A key in the form of a UUID; the same for the same arguments.

    >>> key_of("me", "orders", 3)
    'c78eabd0-ce3e-9970-26bd-4779a55dcae7'
    """
    digest = blake2b(msgspec.json.encode(said), digest_size=16).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))


def _server_message(answer: httpx2.Response) -> str:
    """The error message in the server's answer, if it is short; for JSON, the text for people."""
    text = answer.text
    try:
        found = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        found = None
    if isinstance(found, dict):
        text = "; ".join(str(found[word]) for word in _WORDS if found.get(word)) or text
    text = " ".join(text.split())
    return f": {text[:_MOST]}{'…' if len(text) > _MOST else ''}" if text and "<" not in text[:1] else ""


def _asked_s(after: str) -> float:
    """The number of seconds in a Retry-After header, which is a number or a date; 0 if it is neither."""
    if after.isdigit():
        return float(after)
    try:
        at = parsedate_to_datetime(after)
    except ValueError:
        return 0.0
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())

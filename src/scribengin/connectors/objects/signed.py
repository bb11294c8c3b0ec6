"""Signed S3 requests that obstore does not offer, and that a forked process may send too."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import ssl
import time
from dataclasses import dataclass
from html import unescape
from threading import local
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from scribengin.connectors.objects.s3 import fault_of
from scribengin.core.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.objects.address import ObjectsAddress

GONE, EXISTS, CONFLICT = 404, 412, 409
"""statuses: nothing of that name; `If-None-Match` failed; another write of the name is in progress"""
_TIMEOUT_S = 60.0
_TRIES = 3
_SIGNED = "x-amz-"
"""Signature Version 4 covers the headers with this beginning"""


@dataclass(frozen=True, slots=True)
class StoreResponse:
    """The answer of the store."""

    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def text(self) -> str:
        """The body."""
        return self.data.decode(errors="replace")

    def all_of(self, tag: str) -> list[str]:
        """The texts of these elements."""
        return [unescape(found) for found in re.findall(f"<{tag}>(.*?)</{tag}>", self.text, re.DOTALL)]

    def one_of(self, tag: str) -> str:
        """The first text; empty if there is none."""
        return next(iter(self.all_of(tag)), "")


class SignedRequests:
    """To one bucket. Keys are complete; thread-safe. Raises the store's errors."""

    def __init__(self, address: ObjectsAddress, bucket: str) -> None:
        """Raises SinkError if the address has no access key."""
        if address.login is None:
            raise SinkError(
                f'"{address.node}": signed requests to {address} need an access key; none is set',
                remedy="set one: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a `profile`, or `config`",
                code="objects-login",
                node=address.node,
            )
        self._address = address
        self._login = address.login
        endpoint = urlsplit(address.endpoint or f"https://s3.{address.region}.amazonaws.com")
        self._plain = endpoint.scheme == "http"
        self._host = endpoint.netloc if address.path_style else f"{bucket}.{endpoint.netloc}"
        self._path = endpoint.path.rstrip("/") + (f"/{bucket}" if address.path_style else "")
        self._trust = None if self._plain else ssl.create_default_context(cafile=address.ca_file)
        self._mine = local()

    def asked(
        self,
        method: str,
        key: str | None,
        query: Mapping[str, str],
        what: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        known: tuple[int, ...] = (),
    ) -> StoreResponse:
        """The answer to a request, sent again if none arrives, or the store is overloaded.

        Args:
            method: of HTTP.
            key: of an object; None for the bucket.
            query: after the `?`.
            what: the action, for the error: "failed to write orders/1".
            body: the content.
            headers: in addition to those of the signature.
            known: statuses of failures that the caller expects.
        """
        answer = self._ask(method, key, query, body, what, headers or {})
        content = method == "GET" and key is not None and answer.status < 300
        if not content and answer.status not in known:
            self.check(answer, what)
        return answer

    def check(self, answer: StoreResponse, what: str) -> None:
        """Raise the error of an answer; an answer that began as a success may contain one in its text."""
        if answer.status >= 300 or b"<Error>" in answer.data:
            raise fault_of(self._address, answer.text or f"status code {answer.status}", what)

    def _ask(
        self, method: str, key: str | None, query: Mapping[str, str], body: bytes, what: str, headers: Mapping[str, str]
    ) -> StoreResponse:
        path = self._path + ("" if key is None else f"/{quote(key, safe='/-_.~')}")
        asked = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
        for tries in range(_TRIES):
            try:
                answer = self._send(method, path or "/", asked, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self._mine.connection = None
                if tries == _TRIES - 1 or isinstance(error, ssl.SSLCertVerificationError):
                    raise fault_of(self._address, str(error) or type(error).__name__, what) from None
            else:
                if answer.status < 500 or tries == _TRIES - 1:
                    return answer
            time.sleep(0.1 * 4**tries)
        raise AssertionError

    def _send(self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]) -> StoreResponse:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            if self._trust is None:
                connection = http.client.HTTPConnection(self._host, timeout=_TIMEOUT_S)
            else:
                connection = http.client.HTTPSConnection(self._host, timeout=_TIMEOUT_S, context=self._trust)
            self._mine.connection = connection
        connection.request(method, f"{path}?{query}" if query else path, body, self._signed(method, path, query, body, headers))
        answer = connection.getresponse()
        return StoreResponse(answer.status, answer.headers, answer.read())

    def _signed(self, method: str, path: str, query: str, body: bytes, given: Mapping[str, str]) -> dict[str, str]:
        """The headers, with the signature over them, as in AWS's documentation of Signature Version 4."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": self._host, "x-amz-content-sha256": digest, "x-amz-date": now}
        headers |= {name: value for name, value in given.items() if name.startswith(_SIGNED)}
        if self._login.token:
            headers["x-amz-security-token"] = self._login.token
        names = ";".join(sorted(headers))
        canonical = "\n".join((method, path, query, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, digest))
        scope = f"{now[:8]}/{self._address.region}/s3/aws4_request"
        key = f"AWS4{self._login.secret}".encode()
        for part in scope.split("/"):
            key = _hmac(key, part)
        signature = _hmac(key, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}").hex()
        of = f"AWS4-HMAC-SHA256 Credential={self._login.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**given, **headers, "authorization": of}


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()

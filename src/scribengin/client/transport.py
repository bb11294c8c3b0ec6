"""How the client sends requests to masters: to any of them, to the next one if one does not answer; a write is executed once."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from scribengin.client import problems
from scribengin.client.models import PackageRow
from scribengin.core.errors import Refused, ScribenginError, Unreachable
from scribengin.core.net import trusted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from scribengin.core.secret import Secret

T = TypeVar("T")
REVISION, KEY, USER = "Scribengin-Revision", "Idempotency-Key", "Scribengin-User"
_CONNECT_S = 5.0
_READ_S = 120.0
"""seconds; an answer may take as long as the planning of a flow"""
_AGAIN_S = 0.5
_BUSY_S = 30.0


class Transport:
    """Sends requests to any of `masters` (`http://HOST:PORT`), each of which answers for all. If one does not answer, the next one is
    asked. Not thread-safe.

    The last revision seen is sent with each call, so that a call through another master sees this client's writes. A write carries an
    idempotency key: it is executed once, even if it is repeated at another master because the first one did not answer.
    """

    def __init__(self, masters: Sequence[str], *, token: Secret | None = None, user: str = "", certificates: Path | None = None) -> None:
        """Prepare the client; nothing is sent yet.

        Args:
            masters: the addresses of masters.
            token: the API token; None: none.
            user: the caller's name, for masters that require no token.
            certificates: a PEM file of the issuers of the masters' certificates.

        Raises:
            Refused: no address was given, or one is not valid.
        """
        if not masters:
            raise Refused("no address of a master was given", remedy="pass one: --master http://HOST:PORT", code="master-missing")
        self.masters = [address_of(master) for master in masters]
        self.revision = 0
        headers = {"Accept": f"application/json, {problems.MEDIA_TYPE}"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token.reveal()}"
        if user:
            headers[USER] = quote(user)
        timeout = httpx2.Timeout(_READ_S, connect=_CONNECT_S)
        self._http = httpx2.Client(headers=headers, timeout=timeout, verify=trusted(certificates), trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the masters."""
        self._http.close()

    def has_package(self, id: str) -> bool:
        """True if the answering master has the package of that SHA-256."""
        try:
            self._ask("HEAD", f"/v1/packages/{part(id)}")
        except ScribenginError as error:
            if error.code == "package-missing":
                return False
            raise
        return True

    def upload(self, id: str, data: bytes) -> PackageRow:
        """Upload a package to the answering master. Raises Refused if `data` does not match its hash: it is not stored then."""
        answer = self._ask("PUT", f"/v1/packages/{part(id)}", content=data, headers={"Content-Type": "application/zip"})
        return msgspec.json.decode(answer.content, type=PackageRow)

    def _get(self, path: str, kind: type[T], *, read_s: float = _READ_S) -> T:
        return msgspec.json.decode(self._ask("GET", path, read_s=read_s).content, type=kind)

    def _write(self, method: str, path: str, body: Any, kind: type[T], expected: int | None) -> T:
        headers = {KEY: uuid.uuid4().hex, "Content-Type": "application/json"}
        if expected is not None:
            headers |= {"If-Match": f'"{expected}"'} if expected else {"If-None-Match": "*"}
        content = b"" if body is None else msgspec.json.encode(body)
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                return msgspec.json.decode(self._ask(method, path, content=content, headers=headers).content, type=kind)
            except ScribenginError as error:  # a master that did not answer may still execute the write: repeat until it has an answer
                if error.code != "key-busy" or time.monotonic() >= deadline:
                    raise
                time.sleep(_AGAIN_S)

    def _ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        with self._answer(method, path, **more) as answer:
            answer.read()
            return answer

    @contextmanager
    def _answer(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, content: bytes | None = None, read_s: float = _READ_S
    ) -> Iterator[httpx2.Response]:
        """The answer of the first master that answers; that one is asked first the next time. Raises the error that it reports, or
        Unreachable if none answers."""
        silent: list[str] = []
        for master in list(self.masters):
            sent = {**(headers or {}), **({REVISION: str(self.revision)} if self.revision else {})}
            try:
                answer = self._send(method, master + path, sent, content, read_s)
            except httpx2.TransportError as error:
                silent.append(f"{master}: {error or type(error).__name__}")
                continue
            try:
                self.revision = max(self.revision, number_in(answer.headers.get(REVISION)))
                if answer.is_success:
                    self._prefer(master)
                    yield answer
                    return
                said = problems.decode(answer.read(), answer.status_code, answer.headers.get(problems.CODE, "answer"))
            finally:
                answer.close()
            told = problems.to_error(said)
            if not isinstance(told, Unreachable) or len(self.masters) == 1:
                self._prefer(master)
                raise told
            silent.append(f"{master}: {told.message}")
        raise Unreachable(
            f"no master answers ({'; '.join(silent)})",
            remedy="pass masters that are up: --master URL,URL; or pass none and start one here: scribengin server dev",
            code="master-unreachable",
        )

    def _send(self, method: str, url: str, headers: dict[str, str], content: bytes | None, read_s: float) -> httpx2.Response:
        """Send one request. If a standby redirects it to the leader, send it there, with the same token."""
        timeout = httpx2.Timeout(read_s, connect=_CONNECT_S)

        def send(url: str) -> httpx2.Response:
            request = self._http.build_request(method, url, headers=headers, content=content, timeout=timeout)
            return self._http.send(request, stream=True)

        answer = send(url)
        leader = answer.headers.get("location", "")
        if answer.status_code == 307 and leader.startswith(("http://", "https://")):
            answer.close()
            answer = send(leader)
        return answer

    def _prefer(self, master: str) -> None:
        self.masters.remove(master)
        self.masters.insert(0, master)


def address_of(text: str) -> str:
    """The address of a master in a user's text, as `http://HOST:PORT`; `http` is the default scheme. Raises Refused if it is not an
    address.

    >>> address_of("localhost:8080/")
    'http://localhost:8080'
    """
    full = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        url = httpx2.URL(full)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.path not in ("", "/") or url.query or url.userinfo:
        raise Refused(
            f'"{text}" is not an address of a master', remedy="write http://HOST:PORT or https://HOST:PORT", code="master-address"
        )
    return full.rstrip("/")


def part(name: str) -> str:
    """The text as one escaped segment of a URL's path."""
    return quote(name, safe="")


def number_in(text: str | None) -> int:
    """The number in a header; 0 if it is missing or not a number."""
    return int(text) if text and text.isdigit() else 0

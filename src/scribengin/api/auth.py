"""Authentication of a request: by its token, by the session of a browser, or, on this machine's loopback, without a token by a name in a
header; and the caller's access rights."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from scribengin.client.transport import USER
from scribengin.core.errors import Refused
from scribengin.core.net import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request


# The caller of a request, and its access rights.


class Role(IntEnum):
    """A role of a caller. Each includes the access rights of the roles before it."""

    AGENT = 0
    """nothing here: the token is for gateways"""
    VIEWER = 1
    """read"""
    OPERATOR = 2
    """set the desired state of existing flows: pause, resume, drain, stop"""
    EDITOR = 3
    """change flows: submit, roll back, delete; packages"""
    ADMIN = 4
    """write records of the registry"""


@dataclass(frozen=True, slots=True)
class Who:
    """The caller of a request. `labels`: it has access only to flows with all of these; empty: to all flows."""

    name: str
    role: Role
    labels: Mapping[str, str] = field(default_factory=dict)

    def may_see(self, labels: Mapping[str, str]) -> bool:
        """True if the caller has access to a flow with these labels."""
        return all(labels.get(label) == value for label, value in self.labels.items())

    def check(self, role: Role) -> None:
        """Raise Refused if the caller's role is lower than `role`."""
        if self.role < role:
            raise Refused(
                f"{self.name} has role {self.role.name.lower()}; this needs role {role.name.lower()}",
                remedy="use a token of that role: scribengin token add NAME --role ROLE",
                code="role-lacking",
            )


_LONGEST_NAME = 100


class Proves(Protocol):
    """A store of tokens, which finds the caller that a token belongs to."""

    def prove(self, token: str) -> Who | None:
        """The caller to whom the token belongs; None if it is not valid."""

    def prove_session(self, secret: str) -> Who | None:
        """The user of a browser's session; None if it is over."""

    def there(self) -> bool:
        """True if there is any token."""


def invalid_token() -> Refused:
    """The error for a token that is unknown, revoked or expired."""
    return Refused("this token is not valid here", remedy="make one: scribengin token add NAME --role ROLE", code="token-unknown")


class Authentication:
    """Authenticates requests.

    Args:
        tokens: the tokens; None: none is valid.
        asks: a token is always required. Otherwise a caller without a token may do everything, but a token that is sent must be valid.
        local: the address is on the loopback. A request without a token must then use a loopback host name, and must not come from a web
            page of
            another origin: any page that is open in a browser can send requests to this machine.
        until: requests without a token are accepted only until the first token exists.
    """

    def __init__(self, tokens: Proves | None, *, asks: bool, local: bool, until: bool = False) -> None:
        self._tokens = tokens
        self._asks = asks
        self._local = local
        self._until = until

    def who(self, request: Request) -> Who:
        """The caller of a request. Raises Refused: `token-missing`, `token-unknown`, `origin-foreign`."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind:
            who = self._tokens.prove(token.strip()) if kind.lower() == "bearer" and self._tokens is not None else None
            if who is None:
                raise invalid_token()
            return who
        session = session_of(request)
        if session and self._tokens is not None and (who := self._tokens.prove_session(session)) is not None:
            check_own_page(request)
            return who
        if self._until and not self._asks and self._tokens is not None:
            self._asks = self._tokens.there()  # stays True: removing the last token does not open access
        if self._asks and session:
            raise Refused("the session is over", remedy="sign in again with a token", code="session-over")
        if self._asks:
            raise Refused(
                "a token is required", remedy="send Authorization: Bearer TOKEN; for commands: SCRIBENGIN_TOKEN", code="token-missing"
            )
        if self._local:
            _check_origin(request)
        return Who(unquote(request.headers.get(USER, ""))[:_LONGEST_NAME] or "somebody", Role.ADMIN)


def session_cookie(request: Request) -> str:
    """The name of the cookie of a browser's session. It has the port, which browsers do not tell apart: a host may have several masters."""
    port = request.headers.get("Host", "").rpartition(":")[2]
    return f"scribengin_session_{port if port.isascii() and port.isdecimal() else 'default'}"


def session_of(request: Request) -> str:
    """The secret of the browser's session; empty if the request has none."""
    return request.cookies.get(session_cookie(request), "")


def check_own_page(request: Request) -> None:
    """Raise Refused unless the request comes from a page of this server, or reads at the wish of the user. Browsers send cookies with
    requests of other pages on the same host, too."""
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    unknown = origin is None and site is None and request.method not in ("GET", "HEAD")
    if unknown or _is_foreign(request):
        raise Refused(
            f"request from a page of another origin ({origin or site or 'unknown'}) with the session of a browser",
            remedy="use the web console; other programs send Authorization: Bearer TOKEN",
            code="origin-foreign",
        )


def _check_origin(request: Request) -> None:
    called = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    origin = request.headers.get("Origin")
    if not is_loopback(called) or _is_foreign(request):
        raise Refused(
            f"request from another origin ({origin or called or 'unknown'}) without a token",
            remedy="use 127.0.0.1 or localhost as the host; from a web page, send a token",
            code="origin-foreign",
        )


def _is_foreign(request: Request) -> bool:
    """True if the request comes from a page of another origin, as far as its browser says."""
    origin = request.headers.get("Origin")
    other = origin is not None and urlsplit(origin).netloc != request.headers.get("Host")
    return other or request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")

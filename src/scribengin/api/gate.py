"""Who a request comes from: by its token, or on this machine's loopback, where nobody is asked for one, by what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from scribengin.api.access import Role, Who
from scribengin.client.transport import USER
from scribengin.core.errors import Refused
from scribengin.core.loopback import is_loopback

if TYPE_CHECKING:
    from starlette.requests import Request

_LONGEST_NAME = 100


class Proves(Protocol):
    """What knows tokens."""

    def prove(self, token: str) -> Who | None:
        """Whose it is; None where it is nobody's."""

    def there(self) -> bool:
        """Whether there is any."""


class Authentication:
    """`asks`: nobody comes in without a token. Otherwise who brings none may do everything; one that is brought must be right all the same.
    `until`: so it is until there is a token; from then on nobody comes in without one.

    `local`: the door is on the loopback. Without a token it opens only for requests that name it so, and that no foreign web page has
    made: any page that is open in a browser can send requests to this machine.
    """

    def __init__(self, tokens: Proves | None, *, asks: bool, local: bool, until: bool = False) -> None:
        self._tokens = tokens
        self._asks = asks
        self._local = local
        self._until = until

    def who(self, request: Request) -> Who:
        """Raises Refused: `token-missing`, `token-unknown`, `origin-foreign`."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind:
            who = self._tokens.prove(token.strip()) if kind.lower() == "bearer" and self._tokens is not None else None
            if who is None:
                raise Refused(
                    "this token is not known here", remedy="ask for one: scribengin token add NAME --role ROLE", code="token-unknown"
                )
            return who
        if self._until and not self._asks and self._tokens is not None:
            self._asks = self._tokens.there()  # and stays so: removing the last one opens no door
        if self._asks:
            raise Refused(
                "a token is needed here", remedy="send Authorization: Bearer TOKEN; for commands: SCRIBENGIN_TOKEN", code="token-missing"
            )
        if self._local:
            _check_origin(request)
        return Who(unquote(request.headers.get(USER, ""))[:_LONGEST_NAME] or "somebody", Role.ADMIN)


def _check_origin(request: Request) -> None:
    called = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    origin = request.headers.get("Origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("Host")
    if not is_loopback(called) or foreign or request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise Refused(
            f"this comes from elsewhere ({origin or called or 'nobody said where'}), and is made without a token",
            remedy="name this machine 127.0.0.1 or localhost; from a web page send a token",
            code="origin-foreign",
        )

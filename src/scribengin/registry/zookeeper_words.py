"""What a session is asked and answers, and logins, rights and TLS in kazoo's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kazoo.security import ACL, Id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.registry.access import SaslLogin, Tls
    from scribengin.registry.contract import Grant, Write


@dataclass(frozen=True, slots=True)
class WireNode:
    """A node as it was read: `made` and `changed` are zxids, `session` is its owner's where it is ephemeral."""

    data: bytes
    version: int
    made: int
    changed: int
    session: int


@dataclass(frozen=True, slots=True)
class WireWrite:
    """One write of a transaction, on the node at `place`; `data` and, of a new node, all its `grants`."""

    place: str
    write: Write
    data: bytes
    grants: tuple[Grant, ...] = ()


def acl_of(grants: Sequence[Grant]) -> list[ACL]:
    """What a new node is made with."""
    split = [(grant.may.value, *grant.who.split(":", 1)) for grant in grants]
    return [ACL(may, Id(scheme, name)) for may, scheme, name in split]


def sasl_options(login: SaslLogin) -> dict[str, str]:
    """For the client's `sasl_options`."""
    if login.secret is not None:
        user, _, password = login.secret.reveal().partition(":")
        return {"mechanism": login.mechanism, "username": user, "password": password}
    return {"mechanism": login.mechanism} | ({"principal": login.principal} if login.principal else {})


def tls_options(tls: Tls) -> dict[str, Any]:
    """For the client."""
    return {
        "use_ssl": True,
        "check_hostname": tls.check_host,
        "ca": tls.ca and str(tls.ca),
        "certfile": tls.certificate and str(tls.certificate),
        "keyfile": tls.key and str(tls.key),
        "keyfile_password": tls.key_password and tls.key_password.reveal(),
    }


class Told:
    """What kazoo calls, once. Equal for the same function, so that kazoo keeps one of them for a place."""

    def __init__(self, fired: Any) -> None:
        self._fired = fired

    def __call__(self, event: Any) -> None:
        """kazoo's event, in kazoo's thread."""
        if event.path is not None:  # None: the connection is gone, of which the session's listener tells
            self._fired(event.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and other._fired == self._fired

    def __hash__(self) -> int:
        return hash(self._fired)

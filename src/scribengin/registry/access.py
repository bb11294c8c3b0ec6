"""The address and the login of a registry: `zk://a:2181,b:2181/path`, logins, TLS."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import Refused
from scribengin.registry.contract import ANYONE, Grant, May

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from scribengin.core.secret import Secret

DEFAULT_PORT = 2181
DEFAULT_ROOT = "/scribengin"
_ADDRESS = re.compile(r"zk://([^/]+)(/.*)?\Z")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?\Z")
_ROOT = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+)+\Z")


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """The servers of a ZooKeeper as `host:port`, and the path below which all records are.

    >>> RegistryAddress.parse("zk://a,b:2182/teams/scribengin")
    RegistryAddress(servers=('a:2181', 'b:2182'), root='/teams/scribengin')
    """

    servers: tuple[str, ...]
    root: str

    @staticmethod
    def parse(text: str) -> RegistryAddress:
        """Parse an address such as `zk://a,b:2182/path`. Raises Refused if it is not valid."""
        found = _ADDRESS.match(text)
        hosts = [_HOST.match(one.strip()) for one in found[1].split(",")] if found else []
        root = ((found[2] or "").rstrip("/") or DEFAULT_ROOT) if found else ""
        if not hosts or not _ROOT.match(root) or not all(host and 0 < int(host[2] or DEFAULT_PORT) < 65_536 for host in hosts):
            raise Refused(
                f'"{text}" is not an address of a registry', remedy="write zk://HOST:PORT,HOST:PORT/path", code="registry-address"
            )
        return RegistryAddress(tuple(f"{host[1]}:{host[2] or DEFAULT_PORT}" for host in hosts if host), root)

    def __str__(self) -> str:
        return f"zk://{','.join(self.servers)}{self.root}"


@dataclass(frozen=True, slots=True)
class DigestLogin:
    """ZooKeeper's own login: a secret `user:password`. ZooKeeper does not verify it at login; a wrong one only lacks access rights."""

    secret: Secret

    def __post_init__(self) -> None:
        user, colon, password = self.secret.reveal().partition(":")
        if not (user and colon and password):
            raise Refused(
                f"the registry's login {self.secret.reference} is not of the form user:password",
                remedy="store both in the secret, with a colon between them",
                code="registry-login",
            )

    @property
    def user(self) -> str:
        """The part before the colon."""
        return self.secret.reveal().partition(":")[0]

    @property
    def who(self) -> str:
        """The login in the form of access rights: with the password's hash, not the password."""
        digest = hashlib.sha1(self.secret.reveal().encode(), usedforsecurity=False).digest()  # ZooKeeper requires SHA-1
        return f"digest:{self.user}:{base64.b64encode(digest).decode()}"

    def __str__(self) -> str:
        return f'user "{self.user}"'


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A login by SASL. DIGEST-MD5 uses a secret `user:password`; GSSAPI (Kerberos) uses this process's ticket, that of `principal` if it
    has several. It needs the extra `sasl`; GSSAPI also needs a Kerberos library of the machine."""

    mechanism: str = "DIGEST-MD5"
    secret: Secret | None = None
    principal: str = ""

    def __post_init__(self) -> None:
        if self.mechanism == "DIGEST-MD5" and (self.secret is None or not all(self.secret.reveal().partition(":"))):
            raise Refused("a login by DIGEST-MD5 needs a secret of the form user:password", code="registry-login")
        if self.mechanism not in ("DIGEST-MD5", "GSSAPI"):
            raise Refused(
                f'"{self.mechanism}" is not a supported login mechanism', remedy="use DIGEST-MD5 or GSSAPI", code="registry-login"
            )

    def __str__(self) -> str:
        user = self.secret.reveal().partition(":")[0] if self.secret else self.principal
        return f'user "{user}" ({self.mechanism})' if user else self.mechanism


Login = DigestLogin | SaslLogin


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings of a client, as PEM files. `ca` verifies the servers' certificates (None: the system's CAs); `certificate` and `key`
    are those of this client."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: Secret | None = None
    check_host: bool = True


def check_root(address: RegistryAddress, grants: Iterable[Grant], *, insecure: bool) -> None:
    """Check that not every client can change the registry.

    Args:
        address: for the message.
        grants: the access rights at the root.
        insecure: allow it.

    Raises:
        Refused: every client can change the root, and `insecure` is False.
    """
    everybody = [grant for grant in grants if grant.who == ANYONE and grant.may & ~May.READ]
    if everybody and not insecure:
        raise Refused(
            f"any client that reaches {address} can change it: {everybody[0]} at its root",
            remedy="restrict its rights with a login and setAcl -R in ZooKeeper's shell; or allow open access (insecure)",
            code="registry-open",
        )

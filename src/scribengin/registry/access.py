"""Where a registry is, and as whom it is entered: `zk://a:2181,b:2181/path`, logins, TLS."""

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
    """The servers of a ZooKeeper as `host:port`, and the path there below which all records lie.

    >>> RegistryAddress.parse("zk://a,b:2182/teams/scribengin")
    RegistryAddress(servers=('a:2181', 'b:2182'), root='/teams/scribengin')
    """

    servers: tuple[str, ...]
    root: str

    @staticmethod
    def parse(text: str) -> RegistryAddress:
        """Raises Refused for what is none."""
        found = _ADDRESS.match(text)
        hosts = [_HOST.match(one.strip()) for one in found[1].split(",")] if found else []
        root = ((found[2] or "").rstrip("/") or DEFAULT_ROOT) if found else ""
        if not hosts or not _ROOT.match(root) or not all(host and 0 < int(host[2] or DEFAULT_PORT) < 65_536 for host in hosts):
            raise Refused(f'"{text}" is no address of a registry', remedy="write zk://HOST:PORT,HOST:PORT/path", code="registry-address")
        return RegistryAddress(tuple(f"{host[1]}:{host[2] or DEFAULT_PORT}" for host in hosts if host), root)

    def __str__(self) -> str:
        return f"zk://{','.join(self.servers)}{self.root}"


@dataclass(frozen=True, slots=True)
class DigestLogin:
    """ZooKeeper's own: a secret `user:password`. Nothing checks it when it is given; a wrong one just has no rights."""

    secret: Secret

    def __post_init__(self) -> None:
        user, colon, password = self.secret.reveal().partition(":")
        if not (user and colon and password):
            raise Refused(
                f"the registry's login {self.secret.reference} is not of the form user:password",
                remedy="let the secret hold both, with a colon between them",
                code="registry-login",
            )

    @property
    def user(self) -> str:
        """The part before the colon."""
        return self.secret.reveal().partition(":")[0]

    @property
    def who(self) -> str:
        """As rights name it: the password's hash, not the password."""
        digest = hashlib.sha1(self.secret.reveal().encode(), usedforsecurity=False).digest()  # ZooKeeper's choice
        return f"digest:{self.user}:{base64.b64encode(digest).decode()}"

    def __str__(self) -> str:
        return f'user "{self.user}"'


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """By SASL. DIGEST-MD5 takes a secret `user:password`; GSSAPI (Kerberos) this process's ticket, that of `principal`
    where it has several.

    Needs the extra `sasl`; GSSAPI needs a Kerberos library of the machine in addition.
    """

    mechanism: str = "DIGEST-MD5"
    secret: Secret | None = None
    principal: str = ""

    def __post_init__(self) -> None:
        if self.mechanism == "DIGEST-MD5" and (self.secret is None or not all(self.secret.reveal().partition(":"))):
            raise Refused("a login by DIGEST-MD5 needs a secret of the form user:password", code="registry-login")
        if self.mechanism not in ("DIGEST-MD5", "GSSAPI"):
            raise Refused(f'"{self.mechanism}" is no way to log in', remedy="take DIGEST-MD5 or GSSAPI", code="registry-login")

    def __str__(self) -> str:
        user = self.secret.reveal().partition(":")[0] if self.secret else self.principal
        return f'user "{user}" ({self.mechanism})' if user else self.mechanism


Login = DigestLogin | SaslLogin


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. `ca` signs the servers' certificates (the system's own where it is None); `certificate` and `key` are this client's."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: Secret | None = None
    check_host: bool = True


def check_root(address: RegistryAddress, grants: Iterable[Grant], *, insecure: bool) -> None:
    """Raise Refused where everybody can change the root, unless that is meant."""
    everybody = [grant for grant in grants if grant.who == ANYONE and grant.may & ~May.READ]
    if everybody and not insecure:
        raise Refused(
            f"whoever reaches {address} can change it: {everybody[0]} at its root",
            remedy="give it rights of its own: a login, and setAcl -R in ZooKeeper's shell; or say that this is meant (insecure)",
            code="registry-open",
        )

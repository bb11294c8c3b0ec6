"""How a process comes into the registry: where it is, as whom it enters, and what it hands to the workers that it starts.

SCRIBENGIN_REGISTRY                  zk://HOST:PORT/path
SCRIBENGIN_REGISTRY_LOGIN            user:password, where the registry asks for a login
SCRIBENGIN_REGISTRY_TLS_CA           PEM files, where it is entered by TLS
SCRIBENGIN_REGISTRY_TLS_CERTIFICATE
SCRIBENGIN_REGISTRY_TLS_KEY
SCRIBENGIN_REGISTRY_INSECURE         1 where it is meant that everybody can change it
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.errors import Refused
from scribengin.core.secret import Secret
from scribengin.registry.access import DigestLogin, RegistryAddress, SaslLogin, Tls
from scribengin.registry.contract import ANYONE, Grant, May

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.registry.access import Login
    from scribengin.registry.zookeeper import ZooKeeperRegistry

REGISTRY, LOGIN = "SCRIBENGIN_REGISTRY", "SCRIBENGIN_REGISTRY_LOGIN"
INSECURE = "SCRIBENGIN_REGISTRY_INSECURE"
_TLS = {name: f"SCRIBENGIN_REGISTRY_TLS_{name.upper()}" for name in ("ca", "certificate", "key")}
_OURS = tuple(f"SCRIBENGIN_REGISTRY_{name}" for name in ("LOGIN_FILE", "WORKER_KEY_FILE", "SASL", "PRINCIPAL"))
"""what masters and hosts may find in their environment, and is no worker's business"""
_READABLE = (Grant(ANYONE, May.READ),)
"""everybody may read what masters make: workers, each with a login of its own, and people who only look. No secret stands there."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """One way in. `insecure`: that everybody can change the registry is meant. `worker_key` is what the logins of workers are made of,
    where masters and hosts enter without a password of their own."""

    address: RegistryAddress
    login: Login | None = None
    tls: Tls | None = None
    insecure: bool = False
    worker_key: Secret | None = None

    def open(self, *, session_s: float = 10.0, wait_s: float = 15.0) -> ZooKeeperRegistry:
        """A client. Where the registry's root is not there, it is made: this login's, and for everybody to read.

        Raises as `open_zookeeper`.
        """
        from scribengin.registry.zookeeper import open_zookeeper  # kazoo is of an extra: who asks a master does without

        return open_zookeeper(
            self.address,
            login=self.login,
            tls=self.tls,
            grants=_READABLE,
            session_s=session_s,
            wait_s=wait_s,
            insecure=self.insecure,
        )

    def check_workers(self) -> None:
        """Raise Refused where workers could not enter as anybody, though the registry asks who one is."""
        if self._key() is None and (self.login is not None or (self.tls is not None and self.tls.certificate is not None)):
            raise Refused(
                "workers need logins of their own, which are made of a password, and this login has none",
                remedy="give masters and nodes the same file with a long random text: --worker-key-file FILE",
                code="registry-worker-key",
            )

    def worker_login(self, flow: str, tier: str) -> DigestLogin | None:
        """As whom workers of a tier enter, on whichever host; None where all may write anyway.

        Made of the key and the tier's name: whoever has the key knows it without asking, and nothing of it needs to be stored or sent. The
        key cannot be found from it.
        """
        key = self._key()
        if key is None:
            return None
        password = hmac.new(key.reveal().encode(), f"scribengin worker {flow}.{tier}".encode(), hashlib.sha256).hexdigest()
        return DigestLogin(Secret(f"{flow}.{tier}:{password}", f"${{{LOGIN}}}"))

    def host_key(self, host: str) -> Secret | None:
        """What masters show to that host's page, and it knows without asking: made of the same key, another one for each host. None where
        there is no key."""
        key = self._key()
        if key is None:
            return None
        made = hmac.new(key.reveal().encode(), f"scribengin host {host}".encode(), hashlib.sha256).hexdigest()
        return Secret(made, f"the key of node {host}")

    def of_worker(self, flow: str, tier: str) -> tuple[dict[str, str | None], dict[str, Secret]]:
        """What a worker's environment gets, in the open and as secrets. None takes away what this process' own has."""
        login = self.worker_login(flow, tier)
        tls = {_TLS[name]: getattr(self.tls, name, None) for name in _TLS}
        environment = {
            REGISTRY: str(self.address),
            INSECURE: "1" if self.insecure else None,
            **dict.fromkeys(_OURS),
            **{name: None if path is None else str(path.absolute()) for name, path in tls.items()},
        }
        if login is None:
            return {**environment, LOGIN: None}, {}
        return environment, {LOGIN: login.secret}

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> ConnectionSettings:
        """The way in that a worker was given. Raises Refused where the environment names none."""
        if not environment.get(REGISTRY):
            raise Refused(f"{REGISTRY} is not set", remedy="a launcher sets it; by hand: zk://HOST:PORT/path", code="registry-address")
        login = DigestLogin(Secret(environment[LOGIN], f"${{{LOGIN}}}")) if environment.get(LOGIN) else None
        ca, certificate, key = (Path(environment[name]) if environment.get(name) else None for name in _TLS.values())
        tls = Tls(ca, certificate, key) if ca or certificate else None
        insecure = login is None or environment.get(INSECURE) == "1"
        return ConnectionSettings(RegistryAddress.parse(environment[REGISTRY]), login, tls, insecure)

    def _key(self) -> Secret | None:
        if self.worker_key is not None:
            return self.worker_key
        match self.login:
            case DigestLogin(secret) | SaslLogin(secret=Secret() as secret):
                return secret
        return None

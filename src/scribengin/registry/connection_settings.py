"""Connection settings of the registry: its address, the login, and what a process passes on to the workers that it starts.

SCRIBENGIN_REGISTRY                  zk://HOST:PORT/path
SCRIBENGIN_REGISTRY_LOGIN            user:password, if the registry requires a login
SCRIBENGIN_REGISTRY_TLS_CA           PEM files, for TLS
SCRIBENGIN_REGISTRY_TLS_CERTIFICATE
SCRIBENGIN_REGISTRY_TLS_KEY
SCRIBENGIN_REGISTRY_INSECURE         1 to allow a registry that every client can change
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
"""variables that masters and hosts may have in their environment, and that workers do not need"""
_READABLE = (Grant(ANYONE, May.READ),)
"""every client may read what masters make: workers, each with a login of its own, and people who only read. It contains no secret."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The connection settings of a registry. `insecure`: every client may change the registry. `worker_key` is the key from which the
    logins of workers are derived, if masters and hosts have no password of their own."""

    address: RegistryAddress
    login: Login | None = None
    tls: Tls | None = None
    insecure: bool = False
    worker_key: Secret | None = None

    def open(self, *, session_s: float = 10.0, wait_s: float = 15.0) -> ZooKeeperRegistry:
        """A client. If the registry's root does not exist, it is created: owned by this login, and readable by every client. Raises as
        `open_zookeeper`."""
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
        """Raise Refused if workers could not log in, though the registry requires a login."""
        if self._key() is None and (self.login is not None or (self.tls is not None and self.tls.certificate is not None)):
            raise Refused(
                "workers need logins of their own, which are derived from a password; this login has no password",
                remedy="give masters and nodes the same file with a long random text: --worker-key-file FILE",
                code="registry-worker-key",
            )

    def worker_login(self, flow: str, tier: str) -> DigestLogin | None:
        """The login of a tier's workers, on every host; None if every client may write.

        It is derived from the key and the tier's name: whoever has the key can compute it, and nothing of it is stored or sent. The key
        cannot be derived from it.
        """
        key = self._key()
        if key is None:
            return None
        password = hmac.new(key.reveal().encode(), f"scribengin worker {flow}.{tier}".encode(), hashlib.sha256).hexdigest()
        return DigestLogin(Secret(f"{flow}.{tier}:{password}", f"${{{LOGIN}}}"))

    def host_key(self, host: str) -> Secret | None:
        """The secret that masters send to that host's page, and that the host can compute itself: derived from the same key, different for
        each host. None if there is no key."""
        key = self._key()
        if key is None:
            return None
        made = hmac.new(key.reveal().encode(), f"scribengin host {host}".encode(), hashlib.sha256).hexdigest()
        return Secret(made, f"the key of node {host}")

    def of_worker(self, flow: str, tier: str) -> tuple[dict[str, str | None], dict[str, Secret]]:
        """The environment of a worker, public values and secrets. None removes a variable that this process has."""
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
        """The connection settings that a worker was given. Raises Refused if the environment has none."""
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

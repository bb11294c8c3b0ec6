"""Connection settings of the registry: its address, the login, and the environment that a process passes to the workers that it starts.

SCRIBENGIN_REGISTRY                  zk://HOST:PORT/path
SCRIBENGIN_REGISTRY_LOGIN            user:password, if the registry requires a login
SCRIBENGIN_REGISTRY_TLS_CA           PEM files, for TLS
SCRIBENGIN_REGISTRY_TLS_CERTIFICATE SCRIBENGIN_REGISTRY_TLS_KEY
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
"""every client may read what masters create: workers, each with a login of its own, and users who only read. It contains no secret."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The connection settings of a registry.

    Attributes:
        address: the servers and the root.
        login: the login; None: none.
        tls: the TLS settings; None: no TLS.
        insecure: allow a registry that every client may change.
        worker_key: the key from which the logins of workers are derived, if the login has no password; None: the login's password.
    """

    address: RegistryAddress
    login: Login | None = None
    tls: Tls | None = None
    insecure: bool = False
    worker_key: Secret | None = None

    def open(self, *, session_s: float = 10.0, wait_s: float = 15.0) -> ZooKeeperRegistry:
        """Open a client. If the registry's root does not exist, it is created: owned by this login, and readable by every client. Raises as
        `open_zookeeper`.

        Args:
            session_s: the lifetime of the session without contact, in seconds.
            wait_s: the most seconds to wait for the connection.
        """
        from scribengin.registry.zookeeper import open_zookeeper  # kazoo is of an extra, which clients of the API do not need

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
        """The login of a tier's workers, the same on every host; None if workers need none.

        It is derived from the key and the tier's name: every holder of the key can compute it, and it is neither stored nor sent. The key
        cannot be derived from it.
        """
        key = self._key()
        if key is None:
            return None
        password = hmac.new(key.reveal().encode(), f"scribengin worker {flow}.{tier}".encode(), hashlib.sha256).hexdigest()
        return DigestLogin(Secret(f"{flow}.{tier}:{password}", f"${{{LOGIN}}}"))

    def host_key(self, host: str) -> Secret | None:
        """The secret that masters send to the page of a host, which the host computes itself: derived from the same key, different for each
        host. None if there is no key."""
        key = self._key()
        if key is None:
            return None
        made = hmac.new(key.reveal().encode(), f"scribengin host {host}".encode(), hashlib.sha256).hexdigest()
        return Secret(made, f"the key of node {host}")

    def of_worker(self, flow: str, tier: str) -> tuple[dict[str, str | None], dict[str, Secret]]:
        """The environment of a worker: (public values, secrets). None removes a variable of this process's environment."""
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
        """The connection settings in a worker's environment. Raises Refused if it has none."""
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

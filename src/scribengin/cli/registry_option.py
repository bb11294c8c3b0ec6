"""`--registry` and what goes with it: the way into a registry that is not one of `scribengin server dev` here."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.core.secret import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.access import Login, Tls
    from scribengin.registry.entrance import ConnectionSettings

C = TypeVar("C")
_FILE = click.Path(path_type=Path, dir_okay=False)
_FURTHER = ("sasl", "principal", "registry_tls_ca", "registry_tls_certificate", "registry_tls_key", "worker_key_file", "insecure")


def registry_options(*, required: bool) -> Callable[[Callable[..., C]], Callable[..., C]]:
    """Gives a command `entrance`, an Entrance. Where it is not `required` it is None unless a registry is named, and all but the address
    and the login are left out of the help."""

    def decorate(command: Callable[..., C]) -> Callable[..., C]:
        @wraps(command)
        def with_entrance(
            *some: Any,
            registry: str | None,
            login_file: Path | None,
            sasl: str | None,
            principal: str,
            registry_tls_ca: Path | None,
            registry_tls_certificate: Path | None,
            registry_tls_key: Path | None,
            worker_key_file: Path | None,
            insecure: bool,
            **more: Any,
        ) -> C:
            entrance = None
            if registry is not None:
                tls = (registry_tls_ca, registry_tls_certificate, registry_tls_key)
                entrance = _entrance(registry, login_file, sasl, principal, tls, worker_key_file, insecure=insecure)
            return command(*some, entrance=entrance, **more)

        for option in reversed(_options(required=required)):
            with_entrance = option(with_entrance)
        return with_entrance

    return decorate


def _options(*, required: bool) -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    def option(name: str, doc: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        key = name.removeprefix("--").replace("-", "_")
        words = key.removeprefix("registry").strip("_")
        variable = f"SCRIBENGIN_REGISTRY_{words}".upper().rstrip("_")
        return click.option(name, envvar=variable, help=doc, hidden=not required and key in _FURTHER, **more)

    return [
        option("--registry", "Registry address: zk://HOST:PORT,HOST:PORT/path.", required=required, metavar="ADDRESS"),
        option("--login-file", "File with USER:PASSWORD of the registry.", type=_FILE),
        option("--sasl", "Log in with SASL.", type=click.Choice(["DIGEST-MD5", "GSSAPI"])),
        option("--principal", "Kerberos principal, if there are tickets of several.", default=""),
        option("--registry-tls-ca", "CA file (PEM) that signed the certificates of the servers; enables TLS.", type=_FILE),
        option("--registry-tls-certificate", "Client certificate (PEM).", type=_FILE),
        option("--registry-tls-key", "Key (PEM) of the client certificate.", type=_FILE),
        option(
            "--worker-key-file",
            "File with any long random text, from which the logins of workers are made. Default: the password.",
            type=_FILE,
        ),
        option("--insecure", "Allow a registry that anyone who reaches it can change.", is_flag=True),
    ]


def _entrance(
    registry: str,
    login_file: Path | None,
    sasl: str | None,
    principal: str,
    tls: tuple[Path | None, Path | None, Path | None],
    worker_key_file: Path | None,
    *,
    insecure: bool,
) -> ConnectionSettings:
    from scribengin.registry.access import RegistryAddress, Tls
    from scribengin.registry.entrance import ConnectionSettings

    key = None if worker_key_file is None else read_secret(worker_key_file)
    encrypted: Tls | None = Tls(*tls) if any(tls) else None
    return ConnectionSettings(RegistryAddress.parse(registry), _login(login_file, sasl, principal), encrypted, insecure, key)


def _login(login_file: Path | None, sasl: str | None, principal: str) -> Login | None:
    from scribengin.registry.access import DigestLogin, SaslLogin

    secret = None if login_file is None else read_secret(login_file)
    if sasl is not None:
        return SaslLogin(sasl, secret, principal)
    return None if secret is None else DigestLogin(secret)

"""Options of servers: where the API of a master or node listens (`--listen`, `--port`), TLS, tokens, and what a master keeps where."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.cli.settings import StateRoot
from scribengin.control.home import DEFAULT, Home
from scribengin.core.errors import Exit
from scribengin.core.secret import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.registry.access import Login, Tls
    from scribengin.registry.connection_settings import ConnectionSettings


# `--registry` and related options: how to connect to a registry that `scribengin server dev` does not run here


C = TypeVar("C")
_FILE = click.Path(path_type=Path, dir_okay=False)
_FURTHER = ("sasl", "principal", "registry_tls_ca", "registry_tls_certificate", "registry_tls_key", "worker_key_file", "insecure")


def registry_options(*, required: bool) -> Callable[[Callable[..., C]], Callable[..., C]]:
    """Add the options to a command. The command receives `entrance`, a `ConnectionSettings`. If not `required`, it is None unless a
    registry is named, and the help only shows the options for the address and the login."""

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
    from scribengin.registry.connection_settings import ConnectionSettings

    key = None if worker_key_file is None else read_secret(worker_key_file)
    encrypted: Tls | None = Tls(*tls) if any(tls) else None
    return ConnectionSettings(RegistryAddress.parse(registry), _login(login_file, sasl, principal), encrypted, insecure, key)


def _login(login_file: Path | None, sasl: str | None, principal: str) -> Login | None:
    from scribengin.registry.access import DigestLogin, SaslLogin

    secret = None if login_file is None else read_secret(login_file)
    if sasl is not None:
        return SaslLogin(sasl, secret, principal)
    return None if secret is None else DigestLogin(secret)


# `--home`, or `--registry`: the control plane that a command uses


def _home(_context: click.Context, _parameter: click.Parameter, value: Path) -> Home:
    return Home(value.expanduser())


folder_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="SCRIBENGIN_HOME",
    default=DEFAULT,
    show_default=True,
    metavar="DIR",
    callback=_home,
    help="Folder of the control plane, as given to `scribengin server dev`.",
)
"""Adds the option to a command, which receives `home`, a `Home` without a registry."""


def home_option(command: Callable[..., C]) -> Callable[..., C]:
    """Add the options to a command, which receives `home`, a `Home`. It uses the registry of `--registry` if one is named."""

    @folder_option
    @registry_options(required=False)
    @wraps(command)
    def with_home(*some: Any, home: Home, entrance: ConnectionSettings | None, **more: Any) -> C:
        return command(*some, home=Home(home.folder, entrance), **more)

    return with_home


# options of commands that run until they are asked to end


@contextmanager
def until_asked() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets. The second signal ends the process at once."""
    asked = threading.Event()

    def interrupt(_number: int, _frame: Any) -> None:
        if asked.is_set():
            click.echo("stopped at once; workers keep running, and the next master or node takes them over", err=True)
            os._exit(Exit.INTERRUPTED)
        asked.set()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


keep_versions_option = click.option(
    "--keep-versions",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Number of versions to keep of each flow: the newest ones. Older versions in use are kept too.",
)
"""Adds the option to a command, which receives `keep_versions`."""

state_option = click.option(
    "--state",
    type=StateRoot(),
    metavar="DIR",
    help="Where new flows keep their state: hdfs://NAMENODE:PORT/FOLDER, s3://BUCKET/FOLDER, or a folder that all hosts "
    "and masters reach under this path. Default: inside the home folder.",
)
"""Adds the option to a command, which receives `state`."""


def listen_options(command: Callable[..., C]) -> Callable[..., C]:
    """Add the options to a command, which receives `listen`, an `api.serving.Listen`."""

    @click.option("--listen", metavar="HOST", default="127.0.0.1", show_default=True, help="Address to listen on.")
    @click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Port to listen on. Default: a free one.")
    @click.option("--tls-certificate", metavar="FILE", type=_FILE, help="Certificate (PEM) to serve TLS with.")
    @click.option("--tls-key", metavar="FILE", type=_FILE, help="Key (PEM) of the certificate.")
    @click.option("--ask-token", is_flag=True, help="Require a token on loopback too. Elsewhere a token is always required.")
    @click.option("--insecure-api", is_flag=True, help="Allow remote access without TLS or tokens.")
    @wraps(command)
    def with_listen(
        *some: Any, port: int, tls_certificate: Path | None, tls_key: Path | None, ask_token: bool, insecure_api: bool, **more: Any
    ) -> C:
        from scribengin.api.serving import Listen

        listen = Listen(more.pop("listen"), port, tls_certificate, tls_key, ask_token, insecure_api)
        return command(*some, listen=listen, **more)

    return with_listen

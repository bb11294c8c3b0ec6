"""Where a master's API answers, or a node: `--listen`, `--port`, TLS, tokens; what a master keeps, and where."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.cli.settings import StateRoot

if TYPE_CHECKING:
    from collections.abc import Callable

C = TypeVar("C")
_FILE = click.Path(path_type=Path, dir_okay=False)

keep_versions_option = click.option(
    "--keep-versions",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Number of versions to keep of each flow: the newest ones. Older versions in use are kept too.",
)
"""Gives a command `keep_versions`."""

state_option = click.option(
    "--state",
    type=StateRoot(),
    metavar="DIR",
    help="Where new flows keep their state: hdfs://NAMENODE:PORT/FOLDER, s3://BUCKET/FOLDER, or a folder that all hosts "
    "and masters reach under this path. Default: inside the home folder.",
)
"""Gives a command `state`."""


def listen_options(command: Callable[..., C]) -> Callable[..., C]:
    """Gives a command `listen`, an `api.serving.Listen`."""

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

"""`scribengin server gateway`: a gateway on a registry."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.server_options import folder_option, registry_options

if TYPE_CHECKING:
    from scribengin.control.home import Home
    from scribengin.registry.connection_settings import ConnectionSettings

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=AnsweringCommand)
@registry_options(required=True)
@click.option("--name", metavar="NAME", help="Name of this gateway. Default: the name of the machine.")
@click.option("--group", metavar="GROUP", default="", help="Group that flows name under `gateways:`. Default: serve the agents of all.")
@click.option("--cost", type=click.FloatRange(0.0, min_open=True), default=1.0, show_default=True, help="Agents try lower costs first.")
@click.option("--listen", default="127.0.0.1:7443", metavar="HOST:PORT", help="Where it listens. Default: port 7443 of the loopback.")
@click.option("--url", metavar="URL", help="Address at which agents reach it. Default: the one where it listens.")
@click.option("--tls-certificate", type=_FILE, metavar="FILE", help="Certificate (PEM) of the gateway; needs --tls-key.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Key (PEM) of the certificate.")
@click.option("--client-ca", type=_FILE, metavar="FILE", help="Accept client certificates of these authorities (PEM).")
@click.option("--no-tokens", is_flag=True, help="Require no token of agents.")
@folder_option
def command(
    *,
    entrance: ConnectionSettings,
    name: str | None,
    group: str,
    cost: float,
    listen: str,
    url: str | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    no_tokens: bool,
    home: Home,
) -> CommandAnswer:
    """Run a gateway on a registry, until Ctrl-C or SIGTERM: it takes records from agents, and stores them in the channels of flows.

    It serves the flows of the registry that run, and keeps the reports of agents there: `scribengin agent list` shows them. Agents need a
    token: `scribengin token add NAME --role agent`.

    \b
    Example:
      scribengin server gateway --registry zk://z1:2181/flows --login-file login --group dmz
    """
    from scribengin.gateway.process import address_of, run_gateway
    from scribengin.gateway.registry_directory import open_registry_directory
    from scribengin.gateway.serving import GatewayListen

    host, port = address_of(listen)
    place = GatewayListen(host, port, tls_certificate, tls_key, client_ca, entrance.insecure)
    place.check(tokens=not no_tokens)
    called = name or socket.gethostname()
    with open_registry_directory(entrance, home, os.environ, name=called, group=group, cost=cost, asks_tokens=not no_tokens) as directory:

        def started(own: str) -> None:
            directory.announce(url or own)
            click.echo(f"gateway {called} is up: {url or own}, registry {entrance.address}", err=True)

        status = run_gateway(directory, place, name=called, started=started)
    return CommandAnswer({"name": called, "registry": str(entrance.address), "status": int(status)})

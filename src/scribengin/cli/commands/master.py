"""`scribengin server master`: run a master that uses an existing registry."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.server_options import folder_option, keep_versions_option, listen_options, registry_options, state_option, until_asked

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.api.serving import Listen
    from scribengin.control.home import Home
    from scribengin.registry.connection_settings import ConnectionSettings


@click.command(cls=AnsweringCommand)
@registry_options(required=True)
@click.option("--name", metavar="NAME", help="Name of this master. Default: HOST:PID.")
@state_option
@keep_versions_option
@listen_options
@folder_option
def command(
    *, entrance: ConnectionSettings, name: str | None, state: Path | None, keep_versions: int, listen: Listen, home: Home
) -> CommandAnswer:
    """Run a master of the control plane until Ctrl-C or SIGTERM. Several masters may run on any hosts: one leads, the others are standby.

    The home folder holds the log and the packages that were submitted through this master. Start hosts for workers with
    `scribengin server node`.

    \b
    Example:
      scribengin server master --registry zk://z1:2181,z2:2181/flows --login-file login
    """
    from scribengin.hosts.master import MasterHost

    called = name or f"{socket.gethostname()}:{os.getpid()}"
    with until_asked() as asked, MasterHost(home, called, entrance, listen=listen, state=state, keep_versions=keep_versions) as master:
        click.echo(f"master {called} is up: API {master.url}, registry {entrance.address}, log {home.master_log(called)}", err=True)
        asked.wait()
        click.echo("stopping", err=True)
    return CommandAnswer({"name": called, "registry": str(entrance.address), "http": master.url})

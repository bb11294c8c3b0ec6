"""`scribengin node`: this machine as a host of workers."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import folder_option
from scribengin.cli.listen_options import listen_options
from scribengin.cli.registry_option import registry_options
from scribengin.cli.serving import until_asked
from scribengin.core.units import parse_bytes

if TYPE_CHECKING:
    from scribengin.api.serving import Listen
    from scribengin.control.home import Home
    from scribengin.registry.entrance import Entrance


def _bytes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(cls=AnsweringCommand)
@registry_options(required=True)
@click.option("--name", metavar="NAME", help="What it is called; the machine's name by default.")
@click.option("--cores", type=click.IntRange(min=1), help="What all its workers together may have; no limit by default.")
@click.option("--memory", metavar="SIZE", callback=_bytes, help="The same, as in 16GiB.")
@listen_options
@folder_option
def command(*, entrance: Entrance, name: str | None, cores: int | None, memory: int | None, listen: Listen, home: Home) -> Answer:
    """Make this machine a host of workers, until Ctrl-C or SIGTERM. It registers itself; masters start workers here.

    Its workers outlive it: they go on, and the next one with the same folder and name adopts them. To have them go elsewhere first:
    `scribengin decommission NAME --wait`. Its page, and the logs of its workers, are for this machine; with --listen for masters of others,
    who come in with a key that they both make of the registry's password.
    """
    from scribengin.control.masters import token_of
    from scribengin.hosts.node import Capacity, Node

    called = name or socket.gethostname()
    capacity, token = Capacity(cores, memory), token_of(os.environ)
    with until_asked() as asked, Node(home, called, entrance, capacity=capacity, token=token, listen=listen) as node:
        click.echo(f"node {called} is up: page {node.url}, registry {entrance.address}, all of it in {home.folder}", err=True)
        asked.wait()
        click.echo("stopping; its workers go on", err=True)
    return Answer({"name": called, "registry": str(entrance.address), "http": node.url, "home": str(home.folder)})

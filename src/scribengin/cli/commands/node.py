"""`scribengin node`: this machine as a host of workers."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.capacity_options import capacity_options
from scribengin.cli.home_option import folder_option
from scribengin.cli.registry_option import registry_options
from scribengin.cli.serving import until_asked

if TYPE_CHECKING:
    from scribengin.control.home import Home
    from scribengin.hosts.node import Capacity
    from scribengin.registry.entrance import Entrance


@click.command(cls=AnsweringCommand)
@registry_options(required=True)
@click.option("--name", metavar="NAME", help="What it is called; the machine's name by default.")
@capacity_options
@folder_option
def command(*, entrance: Entrance, name: str | None, capacity: Capacity, home: Home) -> Answer:
    """Make this machine a host of workers, until Ctrl-C or SIGTERM. It registers itself; masters start workers here.

    Its workers outlive it: they go on, and the next one with the same folder and name adopts them. To have them go elsewhere first:
    `scribengin decommission NAME --wait`.
    """
    from scribengin.control.masters import token_of
    from scribengin.hosts.node import Node

    called = name or socket.gethostname()
    token = token_of(os.environ)
    with until_asked() as asked, Node(home, called, entrance, capacity=capacity, token=token):
        click.echo(f"node {called} is up: registry {entrance.address}, all of it in {home.folder}", err=True)
        asked.wait()
        click.echo("stopping; its workers go on", err=True)
    return Answer({"name": called, "registry": str(entrance.address), "home": str(home.folder)})

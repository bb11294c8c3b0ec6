"""`scribengin rollback NAME VERSION`."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option
from scribengin.cli.waiting import wait_for, wait_option

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@click.argument("version", type=int)
@wait_option
@home_option
def command(*, flow: str, version: int, wait: float | None, home: Home) -> Answer:
    """Go to another version that there was: its code and its flow together. What is wanted of the flow stays as it is."""
    from scribengin.control import admin

    states = {"running": "running", "paused": "paused"}
    with home.registry() as registry:
        admin.rollback(registry, flow, version, by=getpass.getuser())
        goal = admin.read_flow(registry, flow).desired.state
        status = wait_for(registry, flow, (states.get(goal, "stopped"),), wait)
    said = f"flow {flow}: version {version} is wanted" + (f"; it is {status['state']}" if status is not None else "")
    return Answer({"flow": flow, "version": version, "status": status}, show=lambda: click.echo(said))

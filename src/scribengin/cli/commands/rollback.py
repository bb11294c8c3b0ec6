"""`scribengin rollback NAME VERSION`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.plane_option import masters_option
from scribengin.cli.waiting import wait_for, wait_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@click.argument("version", type=int)
@wait_option
@masters_option
def command(*, flow: str, version: int, wait: float | None, masters: Masters) -> Answer:
    """Go to another version that there was: its code and its flow together. What is wanted of the flow stays as it is."""
    import msgspec

    states = {"running": "running", "paused": "paused"}
    with masters.client() as client:
        client.rollback(flow, version)
        goal = client.flow(flow).wanted.state
        status = msgspec.to_builtins(wait_for(client, flow, (states.get(goal, "stopped"),), wait))
    said = f"flow {flow}: version {version} is wanted" + (f"; it is {status['state']}" if status is not None else "")
    return Answer({"flow": flow, "version": version, "status": status}, show=lambda: click.echo(said))

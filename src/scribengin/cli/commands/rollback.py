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

_STATES = {"running": "running", "paused": "paused"}


@click.command(cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@click.argument("version", type=int)
@click.option("--only", is_flag=True, help="This flow alone, not those that were submitted as one with that version.")
@wait_option
@home_option
def command(*, flow: str, version: int, only: bool, wait: float | None, home: Home) -> Answer:
    """Go to another version that there was: its code and its flow together. What is wanted of the flow stays as it is.

    Flows that were submitted as one with that version go back with it.
    """
    from scribengin.control import admin

    with home.registry() as registry:
        changed = admin.rollback(registry, flow, version, by=getpass.getuser(), only=only)
        rows = []
        for name, number in changed.items():
            goal = admin.read_flow(registry, name).desired.state
            status = wait_for(registry, name, (_STATES.get(goal, "stopped"),), wait)
            rows.append({"flow": name, "version": number, "status": status})

    def show() -> None:
        for row in rows:
            now = f"; it is {row['status']['state']}" if isinstance(row["status"], dict) else ""
            click.echo(f"flow {row['flow']}: version {row['version']} is wanted{now}")

    mine = next((row for row in rows if row["flow"] == flow), {"flow": flow, "version": version, "status": None})
    return Answer({**mine, "flows": rows}, show=show)

"""`scribengin rollback NAME VERSION`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.value_options import accept_option
from scribengin.cli.waiting import wait_for, wait_running_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters
    from scribengin.cli.value_options import Agreed
    from scribengin.cli.waiting import WaitOption

_STATES = {"running": "running", "paused": "paused"}


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.argument("version", type=int)
@click.option("--only", is_flag=True, help="Only this flow, not those that were submitted together with that version.")
@accept_option
@wait_running_option
@masters_option
@each_flow("flow")
def command(*, flow: str, version: int, only: bool, accept: Agreed, wait: WaitOption | None, masters: Masters) -> CommandAnswer:
    """Return to an earlier version of a flow: its flow file and its code. The desired state does not change.

    Flows that were submitted together with that version return with it. If rows would be lost or duplicated, the command asks as `apply`
    does.

    \b
    Example:
      scribengin rollback orders 3 --wait
    """
    import msgspec

    with masters.client() as client:
        changed = client.rollback(flow, version, only=only, accept=accept.rows, columns=accept.columns).versions
        rows = []
        for name, number in changed.items():
            goal = client.flow(name).wanted.state
            status = msgspec.to_builtins(wait_for(client, name, (_STATES.get(goal, "stopped"),), wait, version=number))
            rows.append({"flow": name, "version": number, "status": status})

    def show() -> None:
        for row in rows:
            now = f"; it is {row['status']['state']}" if row["status"] is not None else ""
            click.echo(f"flow {row['flow']}: version {row['version']} is wanted{now}")

    mine = next((row for row in rows if row["flow"] == flow), {"flow": flow, "version": version, "status": None})
    return CommandAnswer({**mine, "flows": rows}, show=show)

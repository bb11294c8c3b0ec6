"""`scribengin warm`: list or stop the warm processes of this user."""

from __future__ import annotations

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.warm import end_warm, warm_processes


@click.command(cls=AnsweringCommand)
@click.option("--stop", is_flag=True, help="Stop them; a command that uses one finishes first.")
def command(*, stop: bool) -> CommandAnswer:
    """List the warm Spark sessions of this user, one for each folder of flows.

    \b
    Example:
      scribengin warm --stop
    """
    found = warm_processes()
    for each in found if stop else ():
        end_warm(each)
    result = {"warm": [{"folder": each.folder, "pid": each.pid} for each in found], "stopped": stop}

    def show() -> None:
        for each in found:
            click.echo(f"{each.folder}  pid {each.pid}" + ("  stopped" if stop else ""))
        if not found:
            click.echo("no Spark session is kept warm")

    return CommandAnswer(result, show=show)

"""`scribengin apply FILE`: submit a flow to the control plane."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.flow_argument import flow_path
from scribengin.cli.home_option import home_option
from scribengin.cli.waiting import wait_for, wait_option

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@click.argument("file", type=click.Path(), metavar="FILE")
@wait_option
@home_option
def command(*, file: str, wait: float | None, home: Home) -> Answer:
    """Submit a flow: its file and its code become its next version, which then runs. The same again does nothing.

    The folder of the file is packed: later edits change nothing before the next `apply`. Relative paths of data start there.
    """
    from scribengin.control import admin
    from scribengin.control.submit import submission

    path = flow_path(file)
    with home.registry() as registry:
        submitted, warnings = submission(path, home.packages, home.state)
        applied = admin.apply(registry, submitted, state=lambda _flow: str(home.state.absolute()), by=getpass.getuser())
        row = wait_for(registry, applied.flow, ("running",), wait)

    def show() -> None:
        what = "submitted" if applied.changed else "nothing to do: it is just this that runs as"
        click.echo(f"flow {applied.flow}: {what} version {applied.version}")
        if row is not None:
            click.echo(f"flow {applied.flow} is {row['state']}")

    return Answer({"flow": applied.flow, "version": applied.version, "changed": applied.changed, "status": row}, warnings, show=show)

"""`scribengin events NAME`: the history of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@masters_option
@each_flow("flow")
def command(*, flow: str, masters: Masters) -> CommandAnswer:
    """Show the history of a flow, newest first: state changes with their cause, versions, operations. Keeps the last fifty state changes,
    twenty operations, and the versions that `history` lists. Works without a running master.

    \b
    Example:
      scribengin events orders
    """
    import msgspec

    with masters.reader() as plane:
        found = msgspec.to_builtins(plane.happened(flow))
    headings = {"at": "at", "what": "what", "says": "", "why": "why", "by": "by"}
    return CommandAnswer(found, show=lambda: print_table(found, headings))
